from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kanab as kb
from kanab.counted import Counted
from kanab.errors import PrivacyError
from kanab.inspection.attack.experiment_differences import find_experiment_differences
from kanab.inspection.attack.published import published_from_dict
from kanab.inspection.auditor import check_differences
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.privacy import gate
from kanab.privacy.gate import release
from kanab.privacy.release import Release
from kanab.privacy.release_json import release_to_dict
from kanab.privacy.subtraction.experiments import few_apart, leave_out_experiments, may_be_inside, people_apart

Rows = dict[str, Any]
WHY = "price is left out: its people and those of layout differ by fewer than k, who would be told apart"


def site(missing: int, total: int = 800, seed: int = 6) -> Rows:
    """Everybody in two experiments, but for some who are not in the second."""
    rng = np.random.default_rng(seed)
    price = rng.choice(["A", "B"], total).astype(object)
    price[total - missing :] = None
    spend = np.where(rng.random(total) < 0.4, np.round(10 + rng.gamma(2, 15, total), 2), 0)
    return {"layout": rng.choice(["A", "B"], total), "price": price, "tier": rng.integers(1, 4, total), "spend": spend}


def plan(*experiments: str) -> Plan:
    return Plan(
        (MetricPlan("spend", (0, 500), 0.01),),
        tuple(ExperimentPlan(name, (("A", 1.0), ("B", 1.0)), adjust=("tier",)) for name in experiments),
        (CovariatePlan("tier", (1, 2, 3)),),
    )


def local(counted: Counted) -> Counted:
    """What a collector knows: nothing of who is in both."""
    return replace(counted, signatures=None)


def told(released: Release) -> int:
    return len(find_experiment_differences([published_from_dict(release_to_dict(released), "ours")], 10))


@pytest.mark.parametrize("missing", [1, 3, 9])
@pytest.mark.parametrize("known", [True, False])
def test_the_later_of_two_experiments_that_differ_by_a_few_people_is_left_out(missing: int, known: bool) -> None:
    counted = kb.count(site(missing), plan("layout", "price"))
    made = release(counted if known else local(counted))
    assert made.receipt.left_out == {"price": WHY}
    assert list(made.tables) == ["layout/tier"]
    assert made.plan.experiment_names == ("layout",)
    assert told(made) == 0


def test_without_the_rule_the_one_who_is_missing_is_told_to_the_cent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "leave_out_experiments", lambda counted, _: (counted, {}))
    monkeypatch.setattr(gate, "coarsen_shared_levels", lambda _, drafts: drafts)
    rows = site(1)
    made = release(local(kb.count(rows, plan("layout", "price"))))
    (finding, *_) = find_experiment_differences([published_from_dict(release_to_dict(made), "ours")], 10)
    assert finding.people == 1
    assert finding.learnt.endswith(f"that person's spend is {rows['spend'][-1]:g}")
    assert [check.holds for check in check_differences({"ours": made})] == [False]


@pytest.mark.parametrize("known", [True, False])
def test_experiments_of_the_same_people_and_of_k_others_stay(known: bool) -> None:
    for missing in (0, 60):
        counted = kb.count(site(missing), plan("layout", "price"))
        made = release(counted if known else local(counted))
        assert set(made.tables) == {"layout/tier", "price/tier"}
        assert told(made) == 0
        assert [check.holds for check in check_differences({"ours": made})] == [True]


def test_two_releases_into_one_ledger_are_subtracted_as_well(tmp_path: Path) -> None:
    rows, ledger = site(1), tmp_path / "kanab.ledger"
    first = release(kb.count(rows, plan("layout")), ledger=ledger, new_ledger=True)
    again = kb.count(rows, plan("price"), earlier=[first.plan])
    with pytest.raises(PrivacyError, match="fewer than k people could be singled out"):
        release(again, ledger=ledger)
    both = release(kb.count(rows, plan("layout", "price"), earlier=[first.plan]), ledger=ledger)
    assert both.receipt.left_out == {"price": WHY}


def test_a_shared_level_that_differs_by_a_few_people_is_merged_or_left_out_where_one_may_be_inside_the_other() -> None:
    rows = site(0)
    few = np.flatnonzero(rows["tier"] == 3)[:4]
    rows["price"][[*few, *np.flatnonzero(rows["tier"] == 1)[:30]]] = None
    made = release(local(kb.count(rows, plan("layout", "price"))))
    assert "price/tier" not in made.tables or len(made.tables["price/tier"].covariates[0].levels) < 3
    assert set(made.plan.experiment_names) == {"layout", "price"}
    assert told(made) == 0


def test_experiments_of_other_people_are_not_compared_level_by_level() -> None:
    rows = site(0)
    rows["layout"] = rows["layout"].astype(object)
    rows["price"][np.flatnonzero(rows["tier"] == 1)[:100]] = None
    rows["layout"][np.flatnonzero(rows["tier"] == 2)[:100]] = None
    rows["price"][np.flatnonzero(rows["tier"] == 3)[:4]] = None
    made = release(local(kb.count(rows, plan("layout", "price"))))
    assert made.receipt.left_out == {}
    assert set(made.tables) == {"layout/tier", "price/tier"}


def test_people_apart_are_counted_by_the_covariate_that_shows_most() -> None:
    first = {"": {"": 100}, "tier": {1: 60, 2: 40}, "device": {"phone": 50, "desk": 50}}
    second = {"": {"": 100}, "tier": {1: 59, 2: 41}, "device": {"phone": 62, "desk": 38}}
    assert people_apart(first, second) == (12, 12)
    assert not few_apart(first, second, 10)
    assert not may_be_inside(first, second, 10)
    assert not few_apart(first, first, 10)
    assert few_apart({"": {"": 100}}, {"": {"": 99}}, 10)


@pytest.mark.parametrize("seed", range(8))
def test_of_many_experiments_the_same_are_left_out_and_merged_as_two_by_two(seed: int) -> None:
    rng, total, names = np.random.default_rng(seed), 400, [f"test{number}" for number in range(10)]
    rows: Rows = {"tier": rng.integers(1, 4, total), "device": rng.choice(["phone", "desk"], total)}
    order = rng.permutation(total)
    for name in names:  # one inside the other, by steps of any size
        arms = rng.choice(["A", "B"], total).astype(object)
        arms[order[: rng.integers(0, 80)]] = None
        rows[name] = arms
    covariates = [("tier",), ("device",), ("tier", "device"), ()]
    counted = local(kb.count(rows, Plan((), tuple(
        ExperimentPlan(name, (("A", 1.0), ("B", 1.0)), adjust=covariates[rng.integers(4)]) for name in names
    ), (CovariatePlan("tier", (1, 2, 3)), CovariatePlan("device", ("phone", "desk"))))))  # fmt: skip

    def shares(released: Release | Counted, name: str) -> dict[str, dict[Any, int]]:
        tables = released.tallies if isinstance(released, Counted) else released.tables_of(name)
        own = [table for table in tables.values() if table.experiment_names == (name,)]
        people = {axis: table.people_by(axis) for table in own for axis in table.axes[1:]}
        return {"": {"": own[0].total}} | people

    kept: list[str] = []
    for name in names:
        if not any(few_apart(shares(counted, other), shares(counted, name), 10) for other in kept):
            kept.append(name)
    left = leave_out_experiments(counted, ())[1]
    assert set(left) == {*names} - {*kept}
    assert left
    made = release(counted)
    compared = 0
    for first, second in combinations(kept, 2):
        if may_be_inside(shares(counted, first), shares(counted, second), 10):
            own = shares(made, second)
            for covariate, people in own.items():
                other = shares(counted, first).get(covariate)
                levels = made.receipt.maps.get(f"{second}/{covariate}")
                sizes: dict[Any, int] = dict.fromkeys(people, 0)
                for level, n in (other or {}).items():
                    sizes[level if levels is None else levels.target(level)] += n
                assert not other or all(abs(people[level] - sizes[level]) not in range(1, 10) for level in people)
                compared += bool(other)
    assert compared
