"""Several plans over the same rows: each as by itself, and together who is in which classes of all of them."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanab.counting.in_memory import count_rows
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan

AB = (("A", 1), ("B", 1))
FIRST = Plan(
    (MetricPlan("spend", (0, 50), 0.01, missing="exclude"),),
    (ExperimentPlan("checkout", AB, adjust=("tier",)),),
    (CovariatePlan("tier", (1, 2, 3)),),
)
SECOND = Plan(
    (MetricPlan("spend", missing="zero"), MetricPlan("bought", binary=True),
     MetricPlan("r", ratio=("spend", "bought"))),
    (ExperimentPlan("banner", (("off", 1), ("on", 1)), segments=("tier",), interactions=("checkout",)),
     ExperimentPlan("checkout", AB)),
    (CovariatePlan("tier", bins=(1.5,)),),
)  # fmt: skip
NAMES = ("checkout", "banner", "tier", "spend", "bought")
PEOPLE = st.lists(
    st.tuples(
        st.sampled_from(["A", "B", "C", None]),
        st.sampled_from(["off", "on", None]),
        st.sampled_from([1, 2, 3, None]),
        st.none() | st.integers(0, 6000).map(lambda cents: cents / 100),
        st.sampled_from([0, 1]),
    ),
    max_size=40,
)
EVERYBODY = [("A", "on", 1, 2.0, 1), ("B", "off", 2, None, 0)]


def levels(person: tuple[Any, ...]) -> dict[str, Any]:
    checkout, banner, tier, spend, _ = person
    checkout = checkout if checkout in ("A", "B") else None
    there = checkout is not None or banner is not None
    low = None if tier is None else "< 1.5" if tier < 1.5 else "≥ 1.5"
    return {
        "checkout/tier": checkout and (checkout, tier),
        "has spend": checkout is not None and spend is not None,
        "banner/tier": banner and (banner, low),
        "banner/checkout": banner and checkout and (banner, checkout),
        "checkout": checkout and (checkout,),
        "there": there,
    }


@pytest.mark.slow
@given(PEOPLE)
def test_signatures_of_two_plans_are_what_a_loop_over_the_people_gives(people: list[tuple[Any, ...]]) -> None:
    rows = {name: list(values) for name, values in zip(NAMES, zip(*(EVERYBODY + people), strict=True), strict=True)}
    counted = count_rows(rows, FIRST, [SECOND])
    (again,) = counted.earlier
    own, other = counted.signatures, again.signatures
    assert (own.metrics, other.metrics) == (("spend",), ())
    assert own.tables == ("checkout/tier",)
    assert other.tables == ("banner/tier", "banner/checkout", "checkout")
    found: Counter[Any] = Counter()
    for i, n in enumerate(own.people.tolist()):
        key = tuple(
            None if cell < 0 else tally_class(part.tallies[name], cell)
            for part in (counted, again)
            for name, cell in zip(part.signatures.tables, part.signatures.cells[i].tolist(), strict=True)
        )
        found[(*key, bool(own.present[i, 0]))] += n
    seen = [levels(person) for person in EVERYBODY + people]
    tables = ("checkout/tier", "banner/tier", "banner/checkout", "checkout", "has spend")
    assert found == Counter(tuple(one[name] for name in tables) for one in seen if one["there"])


def tally_class(tally: Any, cell: int) -> tuple[Any, ...]:
    """The levels of a class, from its flat index."""
    found: list[Any] = []
    for factor in reversed(tally.factors):
        cell, place = divmod(cell, len(factor.levels))
        found.insert(0, factor.levels[place])
    return tuple(found)


@pytest.mark.slow
@given(PEOPLE)
def test_each_of_two_plans_is_counted_as_by_itself(people: list[tuple[Any, ...]]) -> None:
    rows = {name: list(values) for name, values in zip(NAMES, zip(*(EVERYBODY + people), strict=True), strict=True)}
    counted = count_rows(rows, FIRST, [SECOND, FIRST])
    for found, plan in zip((counted, *counted.earlier), (FIRST, SECOND, FIRST), strict=True):
        alone = count_rows(rows, plan)
        assert found.plan == plan
        assert found.tallies == alone.tallies
        for field in ("clamped", "missing", "excluded", "outside", "ranges", "bounds_declared"):
            assert getattr(found, field) == getattr(alone, field)
