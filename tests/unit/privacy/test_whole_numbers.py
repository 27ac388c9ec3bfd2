from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import kanab as kb
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.privacy import gate, whole_numbers
from kanab.privacy.overlap import ReleasedTable, columns
from kanab.privacy.shown import ShownTable
from kanab.privacy.whole_numbers import NOT_EVALUATED, alike, expose, whole_steps, withhold_whole_numbers


def crowd(seed: int, n: int, levels: tuple[int, ...], spread: float, span: int = 1) -> dict[str, Any]:
    """People whose rates differ by level, on the logit scale by so much."""
    rng = np.random.default_rng(seed)
    people: dict[str, Any] = {"arm": rng.choice(["A", "B"], n)}
    logit = np.full(n, rng.normal())
    for place, size in enumerate(levels):
        people[f"c{place}"] = rng.integers(0, size, n)
        logit = logit + rng.normal(0, spread, size)[people[f"c{place}"]]
    people["bought"] = rng.binomial(span, 1 / (1 + np.exp(-logit)))
    return people


def plan(people: dict[str, Any], k: int = 10, span: int = 1, **more: Any) -> Plan:
    covariates = [name for name in people if name.startswith("c")]
    metric = MetricPlan("bought", binary=True, **more) if span == 1 else MetricPlan("bought", (0, span), 1, **more)
    arm = ExperimentPlan("arm", segments=tuple(covariates))
    return Plan((metric,), (arm,), tuple(CovariatePlan(name) for name in covariates), k)


def shown(counted: kb.Counted) -> list[ShownTable]:
    """Everything as it was counted, arm totals first."""
    names = list(counted.tallies)
    totals = ReleasedTable(names[0], metrics=("bought",), totals=True)
    tables = [ShownTable("arm", counted.tallies[names[0]].keep(), columns(counted, totals))]
    return tables + [
        ShownTable(name, counted.tallies[name], columns(counted, ReleasedTable(name, metrics=("bought",))))
        for name in names
    ]


def left(tables: list[ShownTable], withheld: Any) -> list[ShownTable]:
    return [table for table in tables if (table.name, "bought") not in withheld]


def pinned_people(counted: kb.Counted, tables: list[ShownTable], span: int) -> int:
    """Enumerate all whole solutions: people of fewer than k alike with one total, that no class says of all its own."""
    assert counted.signatures is not None
    cells, people = alike([table.columns[0] for table in tables], counted.signatures.people)
    every = np.indices(people * span + 1).reshape(len(people), -1).T
    said = np.zeros(len(people), dtype=bool)
    for column, table in zip(cells.T, tables, strict=True):
        part = table.tally.moments_of("bought")
        for place, (n, total) in enumerate(zip(part.counts.ravel(), part.sums.ravel(), strict=True)):
            every = every[every[:, column == place].sum(axis=1) == total]
            said |= (column == place) & (total in (0, n * span))
    pinned = (every.min(axis=0) == every.max(axis=0)) & (people < counted.plan.k) & ~said
    return int(people[pinned].sum())


@given(st.integers(0, 10**6), st.integers(12, 18), st.integers(2, 3), st.integers(1, 2), st.sampled_from([0.5, 2.0]))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@pytest.mark.slow
def test_nobody_is_pinned_after_it_and_nothing_is_withheld_in_vain(
    seed: int, n: int, tables: int, span: int, spread: float
) -> None:
    people = crowd(seed, n, (2, 2, 2)[:tables], spread, span)
    counted = kb.count(people, plan(people, 3, span))
    assert counted.signatures is not None
    assume(all(np.all((tally.people == 0) | (tally.people >= 3)) for tally in counted.tallies.values()))
    assume(np.prod(counted.signatures.people * span + 1.0) <= 50_000)
    every = shown(counted)
    before = pinned_people(counted, every, span)
    withheld = withhold_whole_numbers(counted, every)
    assert pinned_people(counted, left(every, withheld), span) == 0
    assert bool(withheld) == (before > 0)


def strongly_different(seeds: range) -> list[kb.Counted]:
    """Releases of 200 to 700 people whose rates differ a lot (logit, standard deviation 2)."""
    rng = np.random.default_rng(8)
    made = []
    for seed in seeds:
        n, sizes = int(rng.integers(200, 700)), tuple(rng.integers(2, 6, int(rng.integers(2, 5))).tolist())
        people = crowd(seed, n, sizes, 2.0)
        made.append(kb.count(people, plan(people)))
    return made


@pytest.mark.slow
def test_strong_differences_pinned_people_and_no_longer_do(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = strongly_different(range(30))
    rules = gate.VALUE_RULES
    assert rules[-1] is withhold_whole_numbers
    before = after = withheld = 0
    for counted in (everything[place] for place in (2, 3, 4, 5, 29)):
        tables: list[ShownTable] = []

        def look(_: kb.Counted, shown_tables: Any, into: list[ShownTable] = tables) -> dict[Any, str]:
            into[:] = [table for table in shown_tables if "bought" in table.tally.metric_names]
            return {}

        for others in (rules[:-1], rules):
            monkeypatch.setattr(gate, "VALUE_RULES", (*others, look))
            release = gate.make_release(counted)
            people = expose(counted, counted.plan.metrics[0], tables).people
            if others is rules:
                after += people > 0
                withheld += any("whole steps" in why for why in release.receipt.left_out.values())
            else:
                before += people > 0
    assert (before, after) == (withheld, 0)
    assert before == 2  # 120 people


def test_rates_alike_lose_nothing() -> None:
    for seed in range(8):
        people = crowd(seed, 1_000, (3, 4, 3, 2), 0.3)
        release = kb.release(kb.count(people, plan(people)))
        assert not [why for why in release.receipt.left_out.values() if "whole steps" in why]


def test_a_class_whose_people_are_all_alike_is_not_withheld_for_that() -> None:
    people = {"arm": ["A", "B"] * 60, "c0": [0, 0, 1, 1] * 30, "c1": [0] * 60 + [1] * 60,
              "bought": [1, 0, 0, 0, *[1, 1, 0, 0]] * 15}  # fmt: skip
    counted = kb.count(people, plan(people))
    assert withhold_whole_numbers(counted, shown(counted)) == {}


def test_steps_are_those_of_the_coarsest_grid() -> None:
    rows = {"arm": ["A", "B"] * 4, "rating": [1, 2, 3, 4, 5, 1, 2, 3]}
    stars = kb.count(rows, arm="arm", metrics=["rating"], bounds={"rating": (1, 5)}, resolution={"rating": 0.01})
    (tally,) = stars.tallies.values()
    steps = whole_steps([tally.moments_of("rating")])
    assert steps is not None
    assert (steps.low, steps.size, steps.count) == (100, 100, 4)
    spend = kb.count(rows, arm="arm", metrics=["rating"], bounds={"rating": (0, 500)}, resolution={"rating": 0.01})
    (tally,) = spend.tallies.values()
    assert whole_steps([tally.moments_of("rating")]) is None


def test_what_is_too_much_work_is_said_in_the_receipt(monkeypatch: pytest.MonkeyPatch) -> None:
    people = crowd(1, 400, (5, 5), 1.0)
    counted = kb.count(people, plan(people))
    monkeypatch.setattr(whole_numbers, "expose", lambda *_: whole_numbers.Exposed(0, unsettled=True))
    left_out = kb.release(counted).receipt.left_out
    assert "not evaluated" in left_out[f"{NOT_EVALUATED}: bought"]
