from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.described import as_values

from kanab.analysis.api import Looks, analyze
from kanab.counted import Counted
from kanab.counting.in_memory import count_rows
from kanab.description import Reading
from kanab.errors import PrivacyError
from kanab.inspection.auditor import check_release
from kanab.plan.model import Cohorts, CovariatePlan, ExperimentPlan, MetricPlan, Plan, make_plan
from kanab.plan.periods import Span
from kanab.privacy.batches import add_releases
from kanab.privacy.gate import release
from kanab.privacy.ledger import read_ledger
from kanab.privacy.release_json import release_from_dict, release_to_dict

BOUNDS: dict[str, Any] = {"bounds": {"y": (-50, 50)}, "resolution": {"y": 0.01}}


def people(n: int = 1000, seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "arm": rng.choice(["A", "B"], n),
        "x": rng.choice(["a", "b", "c"], n),
        "z": rng.choice([1, 2, 3, 4], n),
        "y": np.round(rng.normal(10, 3, n), 2),
        "d": rng.random(n) < 0.3,
    }


def plan(*covariates: str, metrics: tuple[str, ...] = ("y",), **choices: Any) -> Plan:
    return make_plan(
        "arm", **as_values("make_plan", metrics=list(metrics), adjust=list(covariates), **BOUNDS | choices)
    )


# ── several tables of one release ──────────────────────────────────────────────────────────────


def test_tables_that_are_the_same_hide_nobody_and_stay() -> None:
    rows = people()
    found = release(count_rows(rows | {"w": rows["x"]}, plan("x", "w")))
    shapes = {name: table.shape for name, table in found.tables.items()}
    assert shapes == {"arm/x": (2, 3), "arm/w": (2, 3), "arm/w/x": (2, 3, 3)}


@pytest.mark.slow
def test_a_pair_table_that_would_give_people_away_stays_if_merging_a_covariate_hides_them() -> None:
    rows = people()
    rng = np.random.default_rng(3)
    rows["other"] = np.where(rows["x"] == "a", "on", "off")
    rows["other"][rng.choice(1000, 2, replace=False)] = "on"
    two = Plan(
        (MetricPlan("y", (-50, 50), 0.01),),
        (ExperimentPlan("arm", adjust=("x",), interactions=("other",)), ExperimentPlan("other")),
    )
    found = release(count_rows(rows, two))
    assert (found.receipt.effective_k or 0) >= 10
    assert found.receipt.maps["arm/x"].merged_labels == {"other": ["a", "b"]}
    assert "arm/other" in found.tables


def test_a_pair_table_that_would_give_people_away_is_left_out_where_nothing_can_be_merged(tmp_path: Path) -> None:
    """Twelve people hide in the totals, but not six in each arm beside what the ledger has."""
    rows, path = channels(few=12), tmp_path / "kanab.ledger"
    release(count_rows(rows, plan("web")), ledger=path, new_ledger=True)
    pair = Plan(
        (MetricPlan("y", (-50, 50), 0.01),),
        (ExperimentPlan("arm", interactions=("member",)), ExperimentPlan("member")),
    )
    found = release(count_rows(rows, pair, earlier=read_ledger(path).plans), ledger=path)
    why = "arm/member is left out: together with the other tables it would single people out"
    assert found.receipt.left_out == {"arm/member": why}


def channels(few: int = 4) -> dict[str, Any]:
    """500 people; members are those of two channels, and a few others: subtraction would tell these."""
    channel = np.repeat(["web", "shop", "app", "post"], [235, 115, 110, 40])
    member = np.where(np.isin(channel, ["shop", "app"]), "yes", "no")
    member[:few] = "yes"
    web = np.where(np.isin(channel, ["shop", "app"]), "no", "yes")
    return people(500) | {"arm": np.resize(["A", "B"], 500), "member": member, "channel": channel, "web": web}


def test_a_balanced_two_level_covariate_is_kept_while_tables_with_more_levels_can_be_merged() -> None:
    found = release(count_rows(channels(), plan("member", "channel", "x", "z")))
    levels = {name: table.shape[1] for name, table in found.tables.items() if len(table.shape) == 2}
    assert levels == {"arm/member": 2, "arm/channel": 3, "arm/x": 3, "arm/z": 4}
    assert not any(key in found.receipt.left_out for key in levels)
    assert (found.receipt.effective_k or 0) >= 10


def test_a_table_that_is_left_out_because_of_the_others_says_so() -> None:
    found = release(count_rows(channels(), plan("member", "web")))
    why = "web is left out: together with the other tables it would single people out"
    assert found.receipt.left_out == {"arm/web": why}
    assert why + "." in analyze(found).notes


def test_who_has_a_value_counts_as_a_table() -> None:
    """The people without a value, more than k in every class, differ from a level by only two."""
    rows = people()
    gone = rows["x"] == "a"
    gone[np.flatnonzero(rows["x"] == "b")[:2]] = True
    rows["y"] = np.where(gone, np.nan, rows["y"])
    found = release(count_rows(rows, plan("x", "z", metrics=("y", "d"), missing={"y": "exclude"})))
    assert any(key.endswith(": y") for key in found.receipt.left_out)
    assert all("y" not in [m.name for m in t.metrics] for name, t in found.tables.items() if name == "arm/x")


def test_a_metric_that_a_table_withholds_by_itself_costs_no_other_one_its_place() -> None:
    """Three people of a class have no w: for that w leaves, and who has y stays told."""
    rows, rng = people(), np.random.default_rng(4)
    rows["y"] = np.where(rng.random(1000) < 0.3, np.nan, rows["y"])
    rows["w"] = np.where(np.cumsum(rows["x"] == "a") <= 3, np.nan, rng.integers(0, 50, 1000))
    bounds = {"bounds": {"y": (-50, 50), "w": (0, 50)}, "resolution": {"y": 0.01, "w": 1}}
    found = release(count_rows(rows, plan("x", metrics=("y", "w"), missing={"y": "exclude", "w": "exclude"}, **bounds)))
    assert [metric.name for metric in found.tables["arm/x"].metrics] == ["y"]
    assert not any(name.endswith(": y") for name in found.receipt.left_out)


def test_a_rare_sensitive_metric_is_not_in_more_tables_than_hide_who_has_it(tmp_path: Path) -> None:
    """Whoever knows x and z could name the few who have d."""
    rows = people()
    rows["d"] = np.arange(1000) < 16
    usual = plan("x", "z", metrics=("y", "d"))
    assert [metric.name for metric in release(count_rows(rows, usual)).tables["arm/z"].metrics] == ["y", "d"]
    marked = tuple(replace(each, sensitive="yes", min_events=1) if each.name == "d" else each for each in usual.metrics)
    found = release(count_rows(rows, replace(usual, metrics=marked)))
    assert [metric.name for metric in found.tables["arm/x"].metrics] == ["y", "d"]
    assert [metric.name for metric in found.tables["arm/z"].metrics] == ["y"]
    assert found.receipt.left_out["arm/z: d"].startswith("d is withheld in arm/z: it is sensitive")


# ── a ledger ───────────────────────────────────────────────────────────────────────────────────


def test_a_second_release_counts_the_first_one_again(tmp_path: Path) -> None:
    ledger, rows = tmp_path / "kanab.ledger", people()
    first = release(count_rows(rows, plan("x")), ledger=ledger, new_ledger=True)
    second = release(count_rows(rows, plan("z"), earlier=read_ledger(ledger).plans), ledger=ledger)
    assert (first.previous, first.chained, second.chained) == ("", True, True)
    found = read_ledger(ledger)
    assert [list(one.tables) for one in found.releases] == [["arm/x"], ["arm/z"]]
    assert second.previous == found.hashes[0]
    both = release(count_rows(rows, plan(segments=["x", "z"])))
    assert second.receipt.effective_k == both.receipt.effective_k


def test_a_second_release_without_a_recount_is_refused(tmp_path: Path) -> None:
    ledger, rows = tmp_path / "kanab.ledger", people()
    release(count_rows(rows, plan("x")), ledger=ledger, new_ledger=True)
    for earlier in ((), (plan("z"),)):
        with pytest.raises(PrivacyError, match="they were not counted again"):
            release(count_rows(rows, plan("z"), earlier=earlier), ledger=ledger)
    counted = count_rows(rows, plan("z"))
    with pytest.raises(PrivacyError, match="nobody knows how these tables overlap"):
        release(type(counted)(counted.plan, counted.tallies, None), ledger=ledger)


def test_where_even_the_arms_would_give_people_away_nothing_is_released(tmp_path: Path) -> None:
    ledger, rows = tmp_path / "kanab.ledger", people()
    release(count_rows(rows, plan("x")), ledger=ledger, new_ledger=True)
    rows["other"] = np.where((rows["arm"] == "A") & (rows["x"] == "a"), "on", "off")
    rows["other"][np.flatnonzero(rows["x"] == "b")[:2]] = "on"
    other = make_plan("other", **as_values("make_plan", metrics=["y"], **BOUNDS))
    with pytest.raises(PrivacyError, match="together with what was released before"):
        release(count_rows(rows, other, earlier=read_ledger(ledger).plans), ledger=ledger)
    assert len(read_ledger(ledger).releases) == 1


def test_bounds_taken_from_the_data_do_not_go_into_a_ledger(tmp_path: Path) -> None:
    with pytest.raises(PrivacyError, match="a ledger would give them away"):
        release(count_rows(people(), make_plan("arm", ["y"])), ledger=tmp_path / "kanab.ledger", new_ledger=True)
    assert read_ledger(tmp_path / "kanab.ledger").releases == ()


# ── cohorts ────────────────────────────────────────────────────────────────────────────────────

COHORTS = Plan(
    (MetricPlan("y", (-50, 50), 0.01),),
    (ExperimentPlan("arm", (("A", 1.0), ("B", 1.0)), adjust=("x",), segments=("z",)),),
    (CovariatePlan("x", ("a", "b", "c")), CovariatePlan("z", (1, 2, 3, 4))),
)


def sealed(rows: dict[str, Any], after: str | None, through: str, plan: Plan = COHORTS) -> Any:
    return spanned(count_rows(rows, plan), after, through)


def spanned(counted: Any, after: str | None, through: str) -> Any:
    return replace(counted, span=Span("enrolled", "7d", after, through))


def test_batches_follow_each_other_and_keep_the_maps_of_the_first(tmp_path: Path) -> None:
    ledger = tmp_path / "kanab.ledger"
    few = people(400, 1)
    few["x"] = np.where(np.arange(400) < 6, "c", np.where(few["x"] == "c", "a", few["x"]))
    first = release(sealed(few, None, "2026-W40"), ledger=ledger, new_ledger=True)
    assert first.receipt.maps["arm/x"].merged == {"other": ("b", "c")} or first.receipt.maps["arm/x"].merged
    second = release(sealed(people(900, 2), "2026-W40", "2026-W42"), ledger=ledger)
    assert second.tables["arm/x"].factor("x").levels == first.tables["arm/x"].factor("x").levels
    assert second.receipt.batch is not None
    assert (second.receipt.batch.after, second.receipt.batch.through) == ("2026-W40", "2026-W42")


def test_cohorts_and_everybody_do_not_share_a_ledger_and_periods_do_not_jump(tmp_path: Path) -> None:
    ledger = tmp_path / "kanab.ledger"
    release(sealed(people(900, 1), None, "2026-W40"), ledger=ledger, new_ledger=True)
    with pytest.raises(PrivacyError, match="do not go into one ledger"):
        release(count_rows(people(), COHORTS), ledger=ledger)
    with pytest.raises(PrivacyError, match="do not follow the last ones"):
        release(sealed(people(900, 2), "2026-W41", "2026-W42"), ledger=ledger)
    with pytest.raises(PrivacyError, match="by one plan"):
        release(sealed(people(900, 2), "2026-W40", "2026-W42", plan("x")), ledger=ledger)
    with pytest.raises(PrivacyError, match="an arm of arm holds fewer"):
        release(sealed(people(12, 2), "2026-W40", "2026-W42"), ledger=ledger)
    assert len(read_ledger(ledger).releases) == 1


def test_hosts_and_salts_of_a_plan_do_not_leave() -> None:
    secret = replace(
        plan("x"),
        origins=("https://shop.example",),
        experiments=(replace(plan("x").experiments[0], salt="pepper"),),
    )
    found = release(count_rows(people(), secret))
    text = str(release_to_dict(found))
    assert "shop.example" not in text
    assert "pepper" not in text


# ── local mode: nobody knows how the tables overlap ────────────────────────────────────────────


def two_experiments(n: int, *, banner: bool = True, seed: int = 1) -> Any:
    """Counted without signatures, as a collector does."""
    rng = np.random.default_rng(seed)
    rows = people(n, seed) | {"banner": rng.choice(["off", "on"], n)}
    own = plan("x", shares={"A": 1, "B": 1})
    more = ExperimentPlan("banner", (("off", 1.0), ("on", 1.0)), "off", interactions=("arm",))
    cohorts = Cohorts("7d", "7d")
    planned = replace(own, experiments=(*own.experiments, *([more] if banner else [])), cohorts=cohorts)
    return replace(count_rows(rows, planned), signatures=None)


def test_pairs_of_experiments_need_people_for_all_their_numbers_where_the_overlap_is_unknown() -> None:
    many, few = release(two_experiments(400)), release(two_experiments(70))
    assert set(many.tables) == {"arm/x", "banner", "banner/arm"}
    assert "banner/arm" not in few.tables  # four numbers at k = 10 need 72 people
    assert few.receipt.left_out["banner/arm"].endswith("hold too many numbers for so many people")
    assert few.receipt.effective_k is None


def test_an_experiment_may_join_a_later_batch_and_batches_are_added_each_over_its_own(tmp_path: Path) -> None:
    ledger = tmp_path / "kanab.ledger"
    first = release(spanned(two_experiments(900, banner=False), None, "2026-W40"), ledger=ledger, new_ledger=True)
    second = release(spanned(two_experiments(900, seed=2), "2026-W40", "2026-W41"), ledger=ledger)
    third = release(spanned(two_experiments(900, banner=False, seed=3), "2026-W41", "2026-W42"), ledger=ledger)
    assert set(first.tables) == set(third.tables) == {"arm/x"}
    assert set(second.tables) == {"arm/x", "banner", "banner/arm"}
    both = add_releases([first, second])
    assert both.tables["arm/x"] == first.tables["arm/x"] + second.tables["arm/x"]
    assert both.tables["banner"] == second.tables["banner"]
    assert [one.name for one in both.plan.experiments] == ["arm", "banner"]
    assert [sum(analyze(both, name).arms.values()) for name in ("arm", "banner")] == [1800, 900]
    reading = Reading(looks=Looks("spending", looks=4))
    assert [analyze(both, name, reading=reading).effects[0].look.look for name in ("arm", "banner")] == [2, 1]


def test_other_shares_go_on_in_a_ledger_and_other_arms_do_not(tmp_path: Path) -> None:
    ledger = tmp_path / "kanab.ledger"
    counted = two_experiments(900, banner=False)
    first = release(spanned(counted, None, "2026-W40"), ledger=ledger, new_ledger=True)
    (arm,) = counted.plan.experiments
    uneven = replace(counted.plan, experiments=(replace(arm, shares=(("A", 3.0), ("B", 1.0))),))
    other = replace(counted.plan, experiments=(replace(arm, control="B"),))
    with pytest.raises(PrivacyError, match="by one plan"):
        release(spanned(replace(counted, plan=other), "2026-W40", "2026-W41"), ledger=ledger)
    second = release(spanned(replace(counted, plan=uneven), "2026-W40", "2026-W41"), ledger=ledger)
    # the shares of the sum are weighted by the people of each phase
    assert add_releases([first, second]).plan.experiment("arm").shares == (("A", 1125.0), ("B", 675.0))


# ── what is known within each experiment only ──────────────────────────────────────────────────


def within_experiments(counted: Counted, **changes: Any) -> Counted:
    assert counted.signatures is not None
    return replace(counted, signatures=replace(counted.signatures, within="experiment", **changes))


def test_an_effective_k_within_experiments_says_so_everywhere() -> None:
    counted = within_experiments(count_rows(people(), plan("x", "z")))
    made = release(counted)
    whole = release(count_rows(people(), plan("x", "z")))
    assert made.receipt == replace(whole.receipt, effective_k_within="experiment", checked=())
    assert made.tables == whole.tables
    effective = made.receipt.effective_k
    readout = analyze(made)
    assert readout.to_dict()["privacy"]["effective_k_within"] == "experiment"
    assert f"effective k of class sums within each experiment at least {effective}" in " ".join(str(readout).split())
    overlap = next(check for check in check_release(made) if check.rule == "overlap")
    assert overlap.says.startswith("within each experiment no combination")
    again = release_from_dict(release_to_dict(made))
    assert again.receipt.effective_k_within == "experiment"
    assert "effective_k_within" not in release_to_dict(whole)["receipt"]  # older files keep their hash


def test_where_an_experiment_is_unknown_nothing_is_claimed_and_no_covariates_are_crossed() -> None:
    made = release(within_experiments(count_rows(people(), plan("x", "z")), unknown=("arm",)))
    assert (made.receipt.effective_k, made.receipt.effective_k_within) == (None, "")
    assert set(made.tables) == {"arm/x", "arm/z"}
    assert "arm/x/z" in release(within_experiments(count_rows(people(), plan("x", "z")))).tables
