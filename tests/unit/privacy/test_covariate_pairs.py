"""Tables of two covariates, people only, for joint adjustment: what is published, merged and left out."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.described import as_values

import kanab as kb
from kanab.counting.in_memory import count_rows
from kanab.errors import PrivacyError
from kanab.inspection.attack.published import published_from_dict
from kanab.inspection.auditor import check_release, passes
from kanab.plan.model import Plan, make_plan
from kanab.plan.paired_covariates import planned_pairs
from kanab.privacy import covariate_pairs as pairs_module
from kanab.privacy.batches import add_releases
from kanab.privacy.gate import release
from kanab.privacy.ledger import read_ledger
from kanab.privacy.leverage import Leverage, leverage
from kanab.privacy.numbers.design import Weights
from kanab.privacy.overlap import Column
from kanab.privacy.release_json import release_to_dict

BOUNDS: dict[str, Any] = {"bounds": {"y": (0, 50)}, "resolution": {"y": 1}}
Rows = dict[str, Any]


def people(n: int = 2_000, seed: int = 1, rare: float = 0.2) -> Rows:
    rng = np.random.default_rng(seed)
    return {
        "arm": rng.choice(["A", "B"], n),
        "x": rng.choice(["a", "b", "c"], n, p=[0.5, 0.5 - rare, rare]),
        "z": rng.choice([1, 2, 3, 4], n, p=[0.4, 0.3, 0.3 - rare / 2, rare / 2]),
        "w": rng.choice(["yes", "no"], n),
        "y": rng.integers(0, 50, n),
    }


def plan(*covariates: str, **choices: Any) -> Plan:
    return make_plan("arm", **as_values("make_plan", metrics=["y"], adjust=covariates, **BOUNDS | choices))


def by_hand(rows: Rows, first: str, second: str) -> list[int]:
    return [
        int(np.sum((rows["arm"] == arm) & (rows[first] == a) & (rows[second] == b)))
        for arm in "AB"
        for a in sorted(set(rows[first].tolist()))
        for b in sorted(set(rows[second].tolist()))
    ]


def test_a_covariate_with_the_name_of_a_pair_goes_before_it() -> None:
    clash = make_plan("arm", ["y"], adjust=["x", "z", "x/z"])
    assert list(planned_pairs(clash)) == ["arm/x/x/z", "arm/x/z/z"]


def test_pair_tables_hold_the_people_and_nothing_else() -> None:
    rows = people(6_000)
    made = release(count_rows(rows, plan("z", "x", "w")))
    assert list(made.tables) == ["arm/w", "arm/x", "arm/z", "arm/w/x", "arm/w/z", "arm/x/z"]
    table = made.tables["arm/x/z"]
    assert (table.axes, table.moments) == (("arm", "x", "z"), ())
    assert table.people.ravel().tolist() == by_hand(rows, "x", "z")
    assert made.receipt.effective_k is not None
    assert made.receipt.effective_k >= 10
    assert made.receipt.smallest_class == min(by_hand(rows, "x", "z"))
    assert passes(check_release(made))


def test_one_covariate_or_segments_alone_need_no_pair() -> None:
    rows = people()
    assert list(release(count_rows(rows, plan("x"))).tables) == ["arm/x"]
    assert list(release(count_rows(rows, plan("x", segments=["z"]))).tables) == ["arm/x", "arm/z"]


def test_levels_are_merged_further_for_pairs_and_single_tables_keep_theirs() -> None:
    rows = people(1_500, rare=0.06)
    made = release(count_rows(rows, plan("x", "z")))
    assert made.tables["arm/z"].shape == (2, 4)
    pair = made.tables["arm/x/z"]
    assert pair.shape < (2, 3, 4)
    assert int(pair.people[pair.people > 0].min()) >= 10
    merged = {name: levels.merged_labels for name, levels in made.receipt.maps.items()}
    assert set(merged) <= {"arm/x/z: x", "arm/x/z: z"}
    assert merged
    for name in "xz":
        levels = made.receipt.maps.get(f"arm/x/z: {name}")
        single = made.tables[f"arm/{name}"]
        kept = single if levels is None else levels.apply(single)
        assert kept.covariates[0] == pair.factor(name)
        assert kept.people.tolist() == pair.keep(name).people.tolist()


def test_all_pairs_of_a_covariate_have_one_map() -> None:
    made = release(count_rows(people(1_500, rare=0.06), plan("x", "z", "w")))
    for name in "xzw":
        factors = {table.factor(name) for table in made.tables.values() if len(table.axes) == 3 and name in table.axes}
        assert len(factors) == 1


def test_a_pair_that_cannot_be_made_large_enough_is_left_out_and_the_others_stay() -> None:
    rows = people(600)
    rows["v"] = np.where(np.arange(600) % 7 == 0, "few", "many")
    rows["u"] = np.where(np.arange(600) < 90, "few", "many")
    made = release(count_rows(rows, plan("u", "v", "w")))
    assert made.receipt.left_out == {
        "arm/u/v": "u × v is left out: too few people share its classes, however its levels are merged"
    }
    assert {"arm/u/w", "arm/v/w"} <= set(made.tables)


@pytest.mark.slow
def test_pairs_that_single_people_out_together_are_merged_or_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = people(700)
    counted = count_rows(rows, plan("x", "z", "w"))
    made = release(counted)
    assert (made.receipt.effective_k or 0) >= 10

    def never(*_: Any) -> bool:
        return False

    monkeypatch.setattr(pairs_module, "holds", never)
    without = release(counted)
    assert not any(len(table.axes) == 3 for table in without.tables.values())
    assert without.receipt.left_out["arm/x/z"].startswith("x × z is left out: together with the other tables")
    assert without.receipt.effective_k == release(count_rows(rows, plan(segments=["w", "x", "z"]))).receipt.effective_k


def test_too_many_classes_to_check_leave_pairs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(weights: Weights, cells: Column, people: Column) -> Leverage:
        if cells.shape[1] > 3:  # arms, x and z are checked before
            raise PrivacyError("too many classes")
        return leverage(cells, people)

    monkeypatch.setattr(Weights, "leverage", refuse)
    made = release(count_rows(people(), plan("x", "z")))
    assert list(made.tables) == ["arm/x", "arm/z"]
    assert list(made.receipt.left_out) == ["arm/x/z"]


def test_pairs_of_a_ledger_are_counted_again(tmp_path: Path) -> None:
    ledger, rows = tmp_path / "kanab.ledger", people(1_500, rare=0.06)
    release(count_rows(rows, plan("x", "z")), ledger=ledger, new_ledger=True)
    plans = read_ledger(ledger).plans
    made = release(count_rows(rows, plan("w"), earlier=plans), ledger=ledger)
    assert (made.receipt.effective_k or 0) >= 10
    swapped = rows | {"x": rows["x"].copy()}
    same = np.flatnonzero((rows["arm"] == "A") & (rows["y"] == 7))
    first = same[(rows["x"][same] == "a") & (rows["z"][same] == 1)][0]
    second = same[(rows["x"][same] == "b") & (rows["z"][same] == 2)][0]
    swapped["x"][[first, second]] = swapped["x"][[second, first]]  # single tables stay as they are
    with pytest.raises(PrivacyError, match="comes out differently now"):
        release(count_rows(swapped, plan(), earlier=read_ledger(ledger).plans), ledger=ledger)


def test_batches_of_the_same_levels_add_their_pairs() -> None:
    first, second = (release(count_rows(people(seed=seed), plan("x", "z"))) for seed in (1, 2))
    both = add_releases([first, second])
    added = first.tables["arm/x/z"] + second.tables["arm/x/z"]
    assert both.tables["arm/x/z"] == added
    assert kb.analyze(both).effects[-1].effect.covariates == ("x", "z")


def test_batches_whose_levels_differ_are_adjusted_for_one_covariate_and_say_so() -> None:
    first, second = (release(count_rows(people(1_500, seed=1, rare=rare), plan("x", "z"))) for rare in (0.06, 0.2))
    both = add_releases([first, second])
    assert "arm/x/z" not in both.tables
    found = kb.analyze(both)
    assert found.effects[-1].effect.covariates == ("x",)
    assert "The effect on y is not adjusted for z: there is no table of arm × x × z." in found.notes


def test_an_attacker_reads_the_levels_of_pairs_as_they_were_merged() -> None:
    rows = people(1_500, rare=0.06)
    rows["z"] = np.where(np.arange(1_500) < 12, 5, rows["z"])  # too few for a level of their own in any table
    made = release(count_rows(rows, plan("x", "z")))
    attacked = published_from_dict(json.loads(json.dumps(release_to_dict(made))), "r")
    (axis,) = [axis for table in attacked.tables if table.name == "arm/x/z" for axis in table.axes if axis.name == "z"]
    assert axis.merged is not None
    assert {old for _, olds in axis.merged.groups for old in olds} >= {1, 2, 3, 4}
    assert all(new in made.tables["arm/x/z"].factor("z").levels for new, _ in axis.merged.groups)
