"""The simulator that knows everybody, against metrics, experiments, levels and whole numbers that can be subtracted.

Random people, random plans, one to three releases into one ledger. Then an attacker who knows everybody's classes, and
the simulator who also knows their values, look at everything that was published. Nothing here uses the gate's own
functions: what can be learnt is worked out from the people, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from tests.property.test_ledger import cells_of, columns_of

import kanab as kb
from kanab.errors import PrivacyError
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.privacy.ledger import read_ledger
from kanab.privacy.release import Release

pytestmark = pytest.mark.slow

Person = dict[str, Any]
Mask = NDArray[np.bool_]
K = 6
NESTED = (0, 1, 2, 54, 62, 66)  # 3 of 70 seeds gave somebody away before there was a rule
PINNED = (0, 1, 5, 25, 47, 53, 62, 66, 68)  # 7 of 70
FEW = 3  # people whose sum tells each of them something: one's is the sum, of two each knows the other's
SEEDS = range(8)

METRICS = {
    "bought": MetricPlan("bought", binary=True),
    "gross": MetricPlan("gross", (0, 500), 0.01),
    "net": MetricPlan("net", (0, 500), 0.01),
    "spend_7d": MetricPlan("spend_7d", (0, 500), 0.01),
    "spend_14d": MetricPlan("spend_14d", (0, 500), 0.01),
    "capped": MetricPlan("capped", (0, 90), 0.01),
    "cents": MetricPlan("cents", (0, 50_000), 1),
    "ordered": MetricPlan("ordered", binary=True),
    "revenue": MetricPlan("revenue", (0, 500), 0.01),
    "seats": MetricPlan("seats", (0, 50), 1),
    "price": MetricPlan("price", (0, 100), 0.01),
    "only_b": MetricPlan("only_b", binary=True),
    "likes": MetricPlan("likes", binary=True),
    "rarely": MetricPlan("rarely", (0, 500), 0.01),
    "double": MetricPlan("double", (0, 1_000), 0.01),
    "books": MetricPlan("books", (0, 500), 0.01),
    "food": MetricPlan("food", (0, 500), 0.01),
    "fee": MetricPlan("fee", (0, 100), 0.01),
}
LEVELS = ("region", "country", "city", "x", "tier")


def born(rng: np.random.Generator, number: int) -> Person:
    """Somebody new: country lies in region and city in country, nearly; amounts come in pairs that are nearly alike."""
    arm = str(rng.choice(["A", "B"]))
    region = int(rng.choice(3, p=[0.5, 0.3, 0.2]))
    country = region * 2 + int(rng.random() < 0.45)
    x, tier = int(rng.choice(4, p=[0.4, 0.3, 0.2, 0.1])), int(rng.choice(3, p=[0.5, 0.3, 0.2]))
    bought = rng.random() < 0.35
    gross = float(np.round(bought * rng.gamma(2.0, 20.0), 2))
    return {
        "id": number,
        "arm": arm,
        "promo": str(rng.choice(["on", "off"])),
        "region": f"r{region}",
        "country": f"c{country if rng.random() < 0.98 else (country + 1) % 6}",
        "city": f"t{country * 2 + int(rng.random() < 0.4)}",
        "x": f"x{x}",
        "tier": tier,
        "bought": int(bought),
        "gross": gross,
        "net": gross if rng.random() > 0.02 else float(np.round(gross * 0.3, 2)),
        "spend_7d": gross,
        "spend_14d": gross if rng.random() > 0.015 else float(np.round(gross + rng.gamma(2.0, 15.0), 2)),
        "capped": min(gross, 90.0),
        "cents": round(100 * gross),
        "ordered": int(rng.random() < 0.5),
        "revenue": 0.0,
        "seats": 1 if rng.random() > 0.004 else int(rng.integers(2, 12)),
        "price": 9.99 if rng.random() > 0.004 else float(np.round(rng.uniform(1, 80), 2)),
        "only_b": int(arm == "B" and rng.random() < 0.25),
        "likes": 0,
        "rarely": float(np.round((rng.random() < 0.12) * rng.gamma(2.0, 20.0), 2)),
    }


def crowd(seed: int, n: int | None = None) -> list[Person]:
    rng = np.random.default_rng(seed)
    people = [born(rng, number) for number in range(n or int(rng.integers(200, 420)))]
    liking = {name: rng.normal(0, 2, 20) for name in ("arm", *LEVELS)}  # rates between levels differ strongly
    for one in people:
        one["revenue"] = float(np.round(one["ordered"] * rng.gamma(2.0, 20.0), 2))
        logit = sum(effect[sum(map(ord, str(one[name]))) % 20] for name, effect in liking.items())
        one["likes"] = int(rng.random() < 1 / (1 + np.exp(-logit)))
    unbilled = people[int(rng.integers(len(people)))]
    unbilled |= {"ordered": 0, "revenue": 173.46}  # the one who paid without an order
    others = [one for one in people if one["arm"] == "A"]
    others[int(rng.integers(len(others)))]["only_b"] = 1  # a metric that only B should have
    later = np.random.default_rng([seed, 2])
    for one in people:
        one["double"] = round((2 if later.random() > 0.02 else 1.5) * one["gross"], 2)
        one["fee"] = (9.99 if later.random() > 0.02 else 4.99) * one["bought"]
        one["books"] = float(np.round(one["gross"] * later.random(), 2))
        one["food"] = round(one["gross"] - one["books"] - 0.5 * (later.random() < 0.02) * one["gross"], 2)
    for one in rng.choice(np.array(people, dtype=object), 2 if seed % 2 else 14, replace=False):
        one["promo"] = None  # a few people whom the second site-wide experiment missed
    return people


# ── what was published, about whom ─────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Sum:
    """A class of a published table: who is in it."""

    table: str
    arm: str
    covariates: tuple[str, ...]
    who: Mask
    metrics: frozenset[str]
    products: frozenset[tuple[str, str]] = frozenset()


@dataclass
class World:
    """People and everything that was ever released about them."""

    people: list[Person]
    sums: list[Sum] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)

    def value(self, name: str) -> NDArray[np.float64]:
        """Everybody's value in steps of the metric's grid: whole numbers."""
        values = np.array([one[name] for one in self.people], dtype=float)
        return np.round(values / (METRICS[name].resolution or 1))

    def add(self, release: Release) -> None:
        """Who is in which class; arm totals, too, which every table adds up to."""
        self.releases.append(release)
        for name, table in release.tables.items():
            cells = cells_of(self.people, release, name)
            metrics = frozenset(table.metric_names)
            crossed = frozenset(tuple(sorted(cross.pair)) for cross in table.crosses)
            covariates = tuple(factor.name for factor in table.covariates)
            arms = len(table.arms)
            for place in dict.fromkeys(cell for cell in cells if cell is not None):
                who = np.array([cell == place for cell in cells])
                self.sums.append(Sum(name, str(place[:arms]), covariates, who, metrics))
            for arm in dict.fromkeys(cell[:1] for cell in cells if cell is not None) if arms == 1 else ():
                who = np.array([cell is not None and cell[:1] == arm for cell in cells])
                products = frozenset((first, second) for first, second in crossed)
                self.sums.append(Sum(f"{name}, arms", str(arm), (), who, metrics, products))

    def of(self, *metrics: str) -> list[Sum]:
        """The classes that have all these metrics; classes of the same people are one, whatever tables they are in."""
        together: dict[bytes, Sum] = {}
        for each in self.sums:
            known = together.get(each.who.tobytes(), each)
            together[each.who.tobytes()] = replace(known, metrics=known.metrics | each.metrics)
        return [each for each in together.values() if {*metrics} <= each.metrics]

    def matrix(self, sums: Sequence[Sum]) -> NDArray[np.float64]:
        """One row per person, one column per class that differs from all others."""
        return np.unique(np.stack([each.who for each in sums], axis=1).astype(float), axis=1)


def told(people: list[Person], plans: Sequence[Plan], folder: Path) -> World:
    """Release plan after plan into one ledger; what is refused is not published."""
    world, ledger = World(people), folder / "kanab.ledger"
    for plan in plans:
        before = read_ledger(ledger)
        try:
            counted = kb.count(columns_of(people), plan, earlier=before.plans)
            world.add(kb.release(counted, ledger=ledger, new_ledger=not before.releases))
        except PrivacyError:
            continue
    return world


def plans(rng: np.random.Generator, metrics: Sequence[str], names: Sequence[str] = LEVELS, **more: Any) -> list[Plan]:
    """One to three plans about the same metrics, each with one to three of the covariates; or a metric at a time."""
    made = []
    apart = more.pop("apart", False)
    for place in range(len(metrics) if apart else int(rng.integers(1, 4))):
        chosen = tuple(sorted(str(name) for name in rng.permutation(names)[: rng.integers(1, 4)]))
        made.append(one_plan(metrics[place : place + 1] if apart else metrics, chosen, **more))
    return made


def one_plan(metrics: Sequence[str], names: Sequence[str], *, both: bool = False, ratio: str = "") -> Plan:
    planned = [METRICS[name] for name in metrics]
    planned += [MetricPlan(ratio, ratio=tuple(ratio.split("/")))] if ratio else []  # type: ignore[arg-type]
    experiments = [ExperimentPlan("arm", segments=tuple(names))]
    experiments += [ExperimentPlan("promo", segments=tuple(names))] if both else []
    return Plan(tuple(planned), tuple(experiments), tuple(CovariatePlan(name) for name in names), K)


def worlds(
    folder: Path, metrics: Sequence[str], seeds: Sequence[int] = SEEDS, names: Sequence[str] = LEVELS, **more: Any
) -> Iterator[tuple[int, World]]:
    for seed in seeds:
        inside = folder / str(seed)
        inside.mkdir()
        rng = np.random.default_rng([seed, 1])
        yield seed, told(crowd(seed), plans(rng, metrics, names, **more), inside)


def learnt(folder: Path, check: Callable[[World], list[str]], metrics: Sequence[str], **more: Any) -> list[str]:
    """What somebody learns, with the seed, in all worlds; and that many worlds published something at all."""
    texts, published = [], []
    for seed, world in worlds(folder, metrics, **more):
        published.append(bool(world.releases))
        texts += [f"seed {seed}: {text}" for text in check(world)]
    assert sum(published) > len(published) / 3
    return texts


# ── what somebody learns ───────────────────────────────────────────────────────────────────────


def few_behind_a_difference(world: World, first: str, second: str, ratio: float = 1.0) -> list[str]:
    """Classes that publish two metrics whose difference rests on one or two people."""
    gap = world.value(first) - ratio * world.value(second)
    return [
        f"{first} − {ratio:g} {second} of {int((gap[each.who] != 0).sum())} in {each.table}"
        for each in world.of(first, second)
        if 0 < (gap[each.who] != 0).sum() < FEW
    ]


def few_behind_a_remainder(world: World, whole: str, *parts: str) -> list[str]:
    """Classes that publish a metric and its parts, whose remainder rests on one or two people."""
    gap = world.value(whole) - sum(world.value(part) for part in parts)
    return [
        f"{whole} − {' − '.join(parts)} of {int((gap[each.who] != 0).sum())} in {each.table}"
        for each in world.of(whole, *parts)
        if 0 < (gap[each.who] != 0).sum() < FEW
    ]


def few_behind_a_product(world: World, amount: str, truth: str) -> list[str]:
    """Arms in which an amount, or another 0/1 metric, is told of one or two people with or without a 0/1 metric."""
    y, d = world.value(amount), world.value(truth)
    said = []
    for each in world.sums:
        if any({*pair} == {amount, truth} for pair in each.products):
            for side in (0, 1):
                carriers = int((y[each.who & (d == side)] != 0).sum())
                if 0 < carriers < FEW:
                    said.append(f"{amount} of {carriers} with {truth} = {side} in {each.table}")
    return said


def leverage(x: NDArray[np.float64]) -> float:
    """How much of the most exposed person is in reach of the sums: the largest entry on the diagonal of X X⁺."""
    return float(np.einsum("ij,ji->i", x, np.linalg.pinv(x, rcond=1e-10)).max())


def hidden_classes(sums: Sequence[Sum]) -> Iterator[tuple[str, Mask]]:
    """Classes minus all classes of another table that lie inside them, arm by arm, and what is left of those."""
    tables: dict[str, list[Sum]] = {}
    for each in sums:
        tables.setdefault(each.table, []).append(each)
    for outer, inner in combinations(tables, 2):
        for first, second in ((outer, inner), (inner, outer)):
            for large in tables[first]:
                inside = [small.who for small in tables[second] if not (small.who & ~large.who).any()]
                rest = large.who & ~np.any(inside, axis=0) if inside else large.who
                if inside and rest.any():
                    yield f"{first} minus {second}", rest


def lone_in_hidden_classes(world: World, metric: str) -> list[str]:
    """Classes that only a difference shows, and in which one or two people have a value that is not zero."""
    y = world.value(metric)
    said = []
    for name, who in hidden_classes(world.of(metric)):
        carriers = int((y[who] != 0).sum())
        if 0 < carriers < FEW:
            said.append(f"{metric} of {carriers} in {name}")
    return list(dict.fromkeys(said))


def named_by_sparseness(world: World, metric: str, arms: Sequence[str]) -> list[str]:
    """People off the commonest value of their arm who are in every explanation by as few people as there are.

    One or two people in an arm; the attacker tries all people, and all pairs of them, with any values.
    """
    y, said = world.value(metric), []
    for arm in arms:
        mine = np.array([str(one["arm"]) == arm for one in world.people])
        values, counts = np.unique(y[mine], return_counts=True)
        off = mine & (y != values[counts.argmax()])
        sums = [each for each in world.of(metric) if not (each.who & ~mine).any()]
        if not 1 <= off.sum() <= 2 or not sums:
            continue
        x = world.matrix(sums)[mine]
        gap = (y - values[counts.argmax()])[mine]
        signatures, which = np.unique(x, axis=0, return_inverse=True)
        which = which.ravel()
        sizes = np.bincount(which)
        target = gap @ x
        fits = []
        for chosen in _choices(len(signatures), sizes, int(off.sum())):
            rows = signatures[list(dict.fromkeys(chosen))]
            amounts, *_ = np.linalg.lstsq(rows.T, target, rcond=None)
            if np.allclose(rows.T @ amounts, target, atol=1e-6):
                fits.append(frozenset(chosen))
        for place in frozenset.intersection(*fits) if fits else ():
            if sizes[place] == 1:
                said.append(f"{metric} of one person in arm {arm}, among {sizes.sum()}")
    return said


def _choices(signatures: int, sizes: NDArray[np.int64], size: int) -> Iterator[tuple[int, ...]]:
    yield from ((each,) for each in range(signatures))
    if size == 2:
        yield from combinations(range(signatures), 2)


def pinned_whole_numbers(world: World, metric: str) -> list[str]:
    """People whose 0 or 1 follows from the sums being whole, outside of classes in which everybody is alike.

    Per signature the least and the most people who can have a 1, by integer programming: alike, and nobody
    or everybody, say everyone's value.
    """
    sums = world.of(metric)
    if not sums:
        return []
    y = world.value(metric)
    x = np.stack([each.who for each in sums], axis=1)
    signatures, which = np.unique(x, axis=0, return_inverse=True)
    which = which.ravel()
    sizes = np.bincount(which).astype(float)
    ones = np.bincount(which, weights=y)
    totals = ones @ signatures
    alike = [each.who for each in sums if y[each.who].min() == y[each.who].max()] + [
        who for _, who in hidden_classes(sums) if y[who].min() == y[who].max() and who.sum() >= K
    ]
    known = np.any(alike, axis=0) if alike else np.zeros(len(y), dtype=bool)
    constraint = LinearConstraint(signatures.T.astype(float), totals, totals)
    pinned = 0
    for place in np.flatnonzero((sizes < K) & ((ones == 0) | (ones == sizes))):
        if known[which == place].all():
            continue
        away = np.zeros(len(sizes))
        away[place] = -1.0 if ones[place] == 0 else 1.0  # is there a solution in which not everybody is so?
        answer = milp(
            away, constraints=constraint, bounds=Bounds(0, sizes), integrality=np.ones(len(sizes)),
            options={"time_limit": 2.0},
        )  # fmt: skip
        if answer.status == 0 and round(abs(answer.fun)) == ones[place]:
            pinned += int(sizes[place])
    return [f"{metric} of {pinned} people among {len(y)}"] if pinned else []


# ── nobody learns anything ─────────────────────────────────────────────────────────────────────


def test_no_difference_of_gross_and_net_rests_on_one_or_two_people(tmp_path: Path) -> None:
    assert not learnt(tmp_path, lambda world: few_behind_a_difference(world, "gross", "net"), ["gross", "net"])


def test_no_difference_of_7_and_14_days_rests_on_one_or_two_people(tmp_path: Path) -> None:
    metrics = ["spend_7d", "spend_14d"]
    assert not learnt(tmp_path, lambda world: few_behind_a_difference(world, "spend_14d", "spend_7d"), metrics)


def test_no_difference_of_raw_and_capped_rests_on_one_or_two_people(tmp_path: Path) -> None:
    assert not learnt(tmp_path, lambda world: few_behind_a_difference(world, "gross", "capped"), ["gross", "capped"])


def test_no_difference_of_amounts_in_other_units_rests_on_one_or_two_people(tmp_path: Path) -> None:
    """In steps of the grid cents and gross are alike; net differs from both in a few people."""
    assert not learnt(tmp_path, lambda world: few_behind_a_difference(world, "cents", "net"), ["cents", "net"])


def test_no_difference_of_an_amount_and_its_double_rests_on_one_or_two_people(tmp_path: Path) -> None:
    metrics = ["double", "gross"]
    assert not learnt(tmp_path, lambda world: few_behind_a_difference(world, "double", "gross", 2), metrics)


def test_no_difference_of_a_fee_and_who_paid_it_rests_on_one_or_two_people(tmp_path: Path) -> None:
    assert not learnt(tmp_path, lambda world: few_behind_a_difference(world, "fee", "bought", 999), ["fee", "bought"])


def test_no_difference_of_metrics_of_two_releases_rests_on_one_or_two_people(tmp_path: Path) -> None:
    metrics = ["gross", "net"]
    assert not learnt(tmp_path, lambda world: few_behind_a_difference(world, "gross", "net"), metrics, apart=True)


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="the rule is about two metrics at a time; three are a stated limit"
)
def test_no_remainder_of_an_amount_without_its_parts_rests_on_one_or_two_people(tmp_path: Path) -> None:
    metrics = ["gross", "books", "food"]
    assert not learnt(tmp_path, lambda world: few_behind_a_remainder(world, *metrics), metrics)


def test_no_product_tells_the_revenue_of_one_or_two_people_without_an_order(tmp_path: Path) -> None:
    metrics = ["ordered", "revenue"]
    assert not learnt(
        tmp_path, lambda world: few_behind_a_product(world, "revenue", "ordered"), metrics, ratio="revenue/ordered"
    )


def test_no_product_of_two_0_1_metrics_tells_of_one_or_two_people(tmp_path: Path) -> None:
    metrics = ["bought", "only_b"]
    assert not learnt(
        tmp_path, lambda world: few_behind_a_product(world, "only_b", "bought"), metrics, ratio="only_b/bought"
    )


def test_two_site_wide_experiments_that_differ_in_two_people_single_nobody_out(tmp_path: Path) -> None:
    def exposed(world: World) -> list[str]:
        h = leverage(world.matrix(world.sums)) if world.sums else 0.0
        return [f"a sum over everything rests on {1 / h:.2f} people"] if h > 1 / K * (1 + 1e-6) else []

    assert not learnt(tmp_path, exposed, ["gross"], both=True)


def test_nobody_off_the_commonest_value_of_an_arm_is_named(tmp_path: Path) -> None:
    def named(world: World) -> list[str]:
        return [text for metric in ("only_b", "seats", "price") for text in named_by_sparseness(world, metric, "AB")]

    assert not learnt(tmp_path, named, ["only_b", "seats", "price"], seeds=(*range(6), 58))


def test_no_class_that_only_a_difference_shows_has_one_or_two_buyers(tmp_path: Path) -> None:
    names = ("region", "country", "city")
    assert not learnt(
        tmp_path, lambda world: lone_in_hidden_classes(world, "rarely"), ["rarely"], seeds=NESTED, names=names
    )


def test_no_whole_number_pins_fewer_than_k_people(tmp_path: Path) -> None:
    names = ("x", "tier", "region", "country", "city")
    assert not learnt(
        tmp_path, lambda world: pinned_whole_numbers(world, "likes"), ["likes"], seeds=PINNED, names=names
    )
