"""The laws of the tally: adding is counting together. Everything is compared as exact integers."""

import json
from collections import defaultdict
from collections.abc import Sequence
from functools import reduce
from itertools import product
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kanab import Metric, Tally, count_columns

LAW = settings(max_examples=60, deadline=None, derandomize=True, database=None)

ARMS, TIERS, PLANS = ("A", "B", "C"), (1, 2, 3, None), ("x", "y")


class Person(NamedTuple):
    arm: Any
    tier: Any
    plan: Any
    y: Any
    z: Any


class Way(NamedTuple):
    """How people are counted: grids of the two metrics, squares, and whether products are kept."""

    scale: int = 4
    other_scale: int = 1
    squares: Any = "marginals"
    products: bool = True
    missing: Any = "zero"
    covariates: tuple[str, ...] = ("tier", "plan")


def count(people: Sequence[Person], way: Way, bounds: tuple[float, float] | None = None) -> Tally:
    rows = {name: [getattr(one, name) for one in people] for name in Person._fields}
    return count_columns(
        rows,
        arm="arm",
        covariates=list(way.covariates),
        metrics={"y": Metric("y", way.scale, bounds, way.missing), "z": Metric("z", way.other_scale)},
        squares=way.squares,
        products=[("y", "z")] if way.products else [],
    )


quarters = st.integers(-32, 32).map(lambda steps: steps / 4)
person = st.builds(
    Person,
    arm=st.sampled_from(ARMS),
    tier=st.sampled_from(TIERS),
    plan=st.sampled_from(PLANS),
    y=st.none() | quarters,
    z=st.integers(-9, 9),
)
crowd = st.lists(person, min_size=1, max_size=9)
grids = st.sampled_from([1, 2, 4, 8])
squares = st.sampled_from(["arm", "marginals", "class"])
rules = st.sampled_from(["zero", "exclude"])
ways = st.tuples(st.just(4), grids, squares, st.booleans(), rules).map(lambda choices: Way(*choices))

# nobody, but with every level: added to a tally it changes nothing except which levels are listed
EVERYWHERE = [Person(*levels, 0, 0) for levels in product(ARMS, TIERS, PLANS)]


def everywhere(people: Sequence[Person], way: Way) -> Tally:
    nobody = count(EVERYWHERE, way).empty()
    return count(people, way) + nobody if people else nobody


def by_class(tally: Tally) -> dict[Any, Any]:
    """Every number under the names of its levels, whatever the order of the levels."""
    document = tally.to_dict()
    found = {("class", *entry.pop("levels")): entry for entry in document["classes"]}
    for name in ("squares", "crosses"):
        for entry in document.get(name, []):
            margin = (name, str(entry.get("metric") or entry["metrics"]), *entry["by"])
            found |= {(*margin, *cell.pop("levels")): cell for cell in entry["cells"]}
    return found


# ── addition is a commutative monoid ───────────────────────────────────────────────────────────

mixed = st.tuples(grids, grids, squares, st.booleans()).map(lambda choices: Way(*choices))


@LAW
@given(a=crowd, b=crowd, one=mixed, two=mixed, bounded=st.booleans())
def test_addition_is_commutative(a: Any, b: Any, one: Way, two: Way, bounded: bool) -> None:
    bounds = (-4.0, 4.0) if bounded else None
    assert count(a, one, bounds) + count(b, two, bounds) == count(b, two, bounds) + count(a, one, bounds)


@pytest.mark.slow
@LAW
@given(people=st.tuples(crowd, crowd, crowd), how=st.tuples(mixed, mixed, mixed), bounded=st.booleans())
def test_addition_is_associative(people: Any, how: Any, bounded: bool) -> None:
    bounds = (-4.0, 4.0) if bounded else None
    a, b, c = (count(some, way, bounds) for some, way in zip(people, how, strict=True))
    assert (a + b) + c == a + (b + c)


@LAW
@given(people=crowd, way=ways)
def test_the_empty_tally_is_the_zero_of_addition(people: Any, way: Way) -> None:
    tally = count(people, way)
    empty = tally.empty()
    assert empty.total == 0
    assert tally + empty == tally
    assert empty + tally == tally
    assert tally - empty == tally
    assert empty + empty == empty == empty.empty()


@LAW
@given(people=crowd, way=mixed, binary=st.lists(st.integers(0, 1), min_size=9, max_size=9))
def test_a_0_1_metric_obeys_the_same_laws(people: Any, way: Way, binary: list[int]) -> None:
    paid = [one._replace(y=value) for one, value in zip(people, binary, strict=False)]
    whole = count(paid, way._replace(scale=1), (0, 1))
    fine = count(paid, way, (0, 1))
    assert whole + fine == fine + whole
    assert (whole + whole) + fine == whole + (whole + fine)
    assert (whole + fine).moments_of("y").sums.tolist() == (fine + fine).moments_of("y").sums.tolist()


# ── adding is counting everyone together ───────────────────────────────────────────────────────


@pytest.mark.slow
@LAW
@given(people=crowd, way=ways, groups=st.lists(st.integers(0, 2), min_size=9, max_size=9))
def test_adding_the_tallies_of_groups_is_counting_everyone_together(people: Any, way: Way, groups: Any) -> None:
    parts = [[one for one, group in zip(people, groups, strict=False) if group == g] for g in range(3)]
    tallies = [count(part, way) for part in parts if part]
    together = reduce(lambda one, two: one + two, tallies)
    assert together == count(people, way)
    assert sum(tallies) == together


@pytest.mark.slow
@LAW
@given(a=crowd, b=crowd, way=ways)
def test_what_was_added_can_be_subtracted(a: Any, b: Any, way: Way) -> None:
    one, two = everywhere(a, way), everywhere(b, way)
    assert (one + two) - two == one
    assert (one + two) - one == two
    assert one - one == one.empty()


@LAW
@given(a=crowd, b=crowd, way=ways)
def test_refining_a_grid_is_counting_on_the_finer_one(a: Any, b: Any, way: Way) -> None:
    whole = [one._replace(y=one.y and round(one.y)) for one in a]
    fine = way._replace(scale=8, other_scale=8)
    coarse = way._replace(scale=2, other_scale=4)
    assert count(whole, coarse) + count(b, fine) == count(whole, fine) + count(b, fine)


@LAW
@given(people=crowd, way=ways, random=st.randoms(use_true_random=False))
def test_the_order_of_rows_never_changes_a_digit(people: Any, way: Way, random: Any) -> None:
    shuffled = list(people)
    random.shuffle(shuffled)
    assert count(shuffled, way) == count(people, way)
    assert json.dumps(count(shuffled, way).to_dict()) == json.dumps(count(people, way).to_dict())


@LAW
@given(
    values=st.lists(
        st.tuples(st.sampled_from(ARMS), st.integers(1 - 2**52, 2**52 - 1), st.integers(1 - 2**52, 2**52 - 1)),
        min_size=1,
        max_size=30,
    )
)
def test_sums_squares_and_products_are_those_of_python_integers(values: list[tuple[str, int, int]]) -> None:
    tally = count([Person(arm, 1, "x", y, z) for arm, y, z in values], Way(scale=1, covariates=()))
    exact: dict[str, list[int]] = defaultdict(lambda: [0] * 5)
    for arm, y, z in values:
        exact[arm] = [old + new for old, new in zip(exact[arm], (y, z, y * y, z * z, y * z), strict=True)]
    found = [
        tally.moments_of("y").sums, tally.moments_of("z").sums,
        tally.squares("y"), tally.squares("z"), tally.cross("y", "z").products,
    ]  # fmt: skip
    wanted = [exact[arm] for arm in tally.factor("arm").levels]
    assert [list(row) for row in zip(*(cells.tolist() for cells in found), strict=True)] == wanted


# ── coarsening, collapsing, selecting, pooling ─────────────────────────────────────────────────

tier_maps = st.fixed_dictionaries({1: st.sampled_from([1, 2]), 2: st.just(2), 3: st.sampled_from([2, 3])})
name_maps = st.dictionaries(st.sampled_from(PLANS), st.sampled_from(["x", "y", "z", "all"]))
SCORES = {1: 1, 2: 2, 3: 3}


@LAW
@given(people=crowd, way=ways, tiers=tier_maps, plans=name_maps)
def test_coarsening_then_collapsing_is_collapsing(people: Any, way: Way, tiers: Any, plans: Any) -> None:
    tally = everywhere(people, way)
    assert tally.coarsen("tier", tiers).collapse("tier") == tally.collapse("tier")
    assert tally.coarsen("plan", plans).collapse("plan") == tally.collapse("plan")


@LAW
@given(people=crowd, way=ways, tiers=tier_maps)
def test_coarsening_is_recoding_every_row(people: Any, way: Way, tiers: dict[int, int]) -> None:
    tally = count(people, way)
    known = {old: new for old, new in tiers.items() if old in tally.factor("tier").levels}
    recoded = [one._replace(tier=tiers.get(one.tier, one.tier)) for one in people]
    assert tally.coarsen("tier", known, SCORES) == count(recoded, way)


@LAW
@given(people=crowd, way=ways, plans=name_maps)
def test_coarsening_names_is_recoding_every_row(people: Any, way: Way, plans: dict[str, str]) -> None:
    tally = count(people, way)
    known = {old: new for old, new in plans.items() if old in tally.factor("plan").levels}
    recoded = [one._replace(plan=plans.get(one.plan, one.plan)) for one in people]
    coarse = tally.coarsen("plan", known)
    assert by_class(coarse) == by_class(count(recoded, way))


@LAW
@given(people=crowd, way=ways)
def test_collapsing_is_counting_without_the_covariate(people: Any, way: Way) -> None:
    tally = count(people, way)
    assert tally.collapse("plan") == count(people, way._replace(covariates=("tier",)))
    assert tally.collapse("tier") == count(people, way._replace(covariates=("plan",)))
    bare = count(people, way._replace(covariates=()))
    assert tally.collapse("plan").collapse("tier") == tally.collapse("tier").collapse("plan") == tally.keep() == bare


@LAW
@given(people=crowd, way=ways, arms=st.lists(st.sampled_from(ARMS), min_size=1, unique=True).map(sorted))
def test_selecting_arms_is_filtering_rows(people: Any, way: Way, arms: list[str]) -> None:
    chosen = everywhere(people, way).select_arms(arms)
    stay = [one for one in people if one.arm in arms]
    nobody = everywhere([], way).select_arms(arms)
    assert chosen == (count(stay, way) + nobody if stay else nobody)


@LAW
@given(people=crowd, way=ways, pooled=st.sets(st.sampled_from(ARMS), min_size=1))
def test_pooling_arms_is_recoding_them(people: Any, way: Way, pooled: set[str]) -> None:
    tally = count(people, way)
    present = [arm for arm in tally.factor("arm").levels if arm in pooled]
    assume(present)
    recoded = [one._replace(arm="pooled" if one.arm in pooled else one.arm) for one in people]
    assert by_class(tally.pool_arms({"pooled": present})) == by_class(count(recoded, way))
    renamed = [one._replace(arm=min(present) if one.arm in pooled else one.arm) for one in people]
    assert by_class(tally.pool_arms({min(present): present})) == by_class(count(renamed, way))


# ── plain data ─────────────────────────────────────────────────────────────────────────────────


@LAW
@given(people=crowd, way=ways, big=st.integers(1 - 2**52, 2**52 - 1))
def test_a_tally_survives_json(people: Any, way: Way, big: int) -> None:
    tally = count([*people, Person("A", 1, "x", 0, big)], way._replace(other_scale=1))
    again = Tally.from_dict(json.loads(json.dumps(tally.to_dict())))
    assert again == tally
    assert again.to_dict() == tally.to_dict()
    assert again + tally == tally + tally
