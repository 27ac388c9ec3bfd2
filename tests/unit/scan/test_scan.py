from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kanab as kb
from kanab.description import Mean, Rows
from kanab.errors import AnalysisError, ArgumentError, PlanError, PrivacyError, SourceError
from kanab.plan.model import ExperimentPlan, MetricPlan, Plan
from kanab.scan.scan import scan_interactions, scan_segments
from kanab.scan.stats import outcomes

Y = Mean("y", bounds=(-50, 100), resolution=0.01)


def users(n: int = 6_000, tests: int = 5, seed: int = 1) -> dict[str, Any]:
    """Of five tests t1 and t3 interfere in y; the effect of t2 on y differs by device."""
    rng = np.random.default_rng(seed)
    rows: dict[str, Any] = {f"t{i}": rng.choice(["off", "on"], n) for i in range(tests)}
    rows["device"] = rng.choice(["phone", "desktop", "tablet"], n)
    y = rng.normal(20, 5, n)
    y += 2.0 * ((rows["t1"] == "on") & (rows[f"t{tests - 2}"] == "on"))
    y += 2.0 * ((rows["t2"] == "on") & (rows["device"] == "phone"))
    return rows | {"y": np.round(y, 2), "d": (rng.random(n) < 0.3).astype(int)}


def test_the_planted_pair_is_found_and_told() -> None:
    found = scan_interactions(users(), "t*", [Y, "d"])
    data = found.to_dict()
    alarms = [(row["a"], row["b"], row["metric"]) for row in data["pairs"] if row["verdict"] == "interference"]
    assert alarms == [("t1", "t3", "y")]
    assert len(data["pairs"]) == 20
    assert (data["scope"], data["privacy"]) == ("own-rows", {"k": 10, "chained": False})
    assert [(one["a"], one["b"], one["metric"]) for one in data["effects"]] == [("t1", "t3", "y")]
    text = str(found)
    assert "interference" in text
    assert "where t3 shows" in text


def test_what_a_large_scan_does_not_list_is_counted_and_told_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = users(8_000, 8)
    rows["t7"] = np.where(np.arange(8_000) < 200, rows["t7"], None)
    rows["t6"] = np.where(np.arange(8_000) < 225, None, rows["t6"])
    whole = scan_interactions(rows, "t*", [Y, "d"], tolerance={"d": 0.5})
    assert whole.to_dict()["unlisted"] is None
    monkeypatch.setattr(outcomes, "MOST_LISTED", 12)
    found = scan_interactions(rows, "t*", [Y, "d"], tolerance={"d": 0.5})
    data = found.to_dict()
    assert len(data["pairs"]) == 12
    assert [row["verdict"] for row in data["pairs"]].count("interference") == 1
    unlisted = data["unlisted"]
    assert (unlisted["tests"], unlisted["tables"]) == (44, 28)
    assert sum(group["tests"] for group in unlisted["groups"]) == 44
    assert {group["verdict"] for group in unlisted["groups"]} == {
        "nothing found", "clear within tolerance", "not testable"
    }  # fmt: skip
    assert str(found) == str(whole).replace(" (t6 × t7 on y, t6 × t7 on d)", "")
    assert len(found.to_pandas()) == 56
    page = found.to_html()
    assert "Drawn are the 12 most urgent of 56 tests" in page
    assert "28 pairs" in page


def test_alarms_that_are_not_listed_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "MOST_LISTED", 30)
    rng = np.random.default_rng(3)
    rows: dict[str, Any] = {f"t{i}": rng.integers(0, 2, 20_000) for i in range(10)}
    product = np.prod([1 + rows[name] for name in list(rows)], axis=0)
    found = scan_interactions(rows | {"y": np.minimum(product, 200)}, "t*", ["y"])
    assert found.to_dict()["verdicts"] == {"interference": 45}
    assert found.to_dict()["unlisted"]["groups"] == [
        {"metric": "y", "verdict": "interference", "note": "", "tests": 15}
    ]
    assert "The 20 most urgent of 45:" in str(found)
    assert "The 20 most urgent of 45:" in found.to_html()


def test_whatever_the_number_of_people_an_internal_scan_holds_every_test() -> None:
    found = scan_interactions(users(600, 14), "t*", [Y, "d"])
    assert len([row for row in found.scan if row.F is not None]) == 2 * 91


@pytest.mark.slow
def test_nothing_of_as_many_f_as_people_is_shared(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arms = {f"t{i}": rng.choice(["a", "b"], 300) for i in range(40)}
    rows = {**arms, "bought": (rng.random(300) < 0.3).astype(int)}
    with pytest.raises(PrivacyError, match="bought is left out: with earlier scans there would be too many numbers"):
        scan_interactions(rows, "t*", ["bought"], ledger=tmp_path / "kanab.ledger", new_ledger=True)


def test_releases_that_are_read_together_are_all_shown() -> None:
    rows = users(400, 4)
    counted = [kb.count(rows, arm=f"t{i}", metrics=["d"], segments=["device"], k=10 + i) for i in range(4)]
    data = scan_segments([kb.release(each) for each in counted]).to_dict()
    assert data["privacy"]["k"] == 10
    assert len([row for row in data["segments"] if row["F"] is not None]) == 4
    assert "scope" not in data


def test_stored_pair_tables_give_the_same_answer() -> None:
    plan = Plan(
        (MetricPlan("y", (-50, 100), 0.01),),
        (ExperimentPlan("t1", interactions=("t3", "t2")), ExperimentPlan("t2"), ExperimentPlan("t3")),
    )
    stored = scan_interactions(kb.release(kb.count(users(), plan))).to_dict()["pairs"]
    direct = scan_interactions(users(), ["t1", "t2", "t3"], [Y]).to_dict()["pairs"]
    rows = {(row["a"], row["b"]): row for row in direct}
    assert {(row["a"], row["b"]) for row in stored} == {("t1", "t3"), ("t1", "t2")}
    for row in stored:
        same = rows[row["a"], row["b"]]
        assert (row["F_robust"], row["p"]) == pytest.approx((same["F_robust"], same["p"]), rel=1e-9)


def test_segments_of_many_experiments_are_scanned_together() -> None:
    found = scan_segments(users(seed=2), ["t0", "t2"], [Y], ["device"])
    data = found.to_dict()
    assert [(row["experiment"], row["covariate"], row["verdict"]) for row in data["segments"]] == [
        ("t0", "device", "nothing found"),
        ("t2", "device", "differs"),
    ]
    assert data["segments"][1]["follow_ups"][0]["covariate"] == "device"
    assert (data["scope"], data["privacy"]) == ("own-rows", {"k": 10, "chained": False})
    assert found.to_pandas().shape[0] == 2
    alone = data["segments"][1]
    stored = kb.release(kb.count(users(seed=2), arm="t2", metrics=[Y], segments=["device"]))
    for row in (scan_segments(users(seed=2), "t2", Y, "device"), scan_segments(stored, metrics="y")):
        (single,) = row.to_dict()["segments"]  # single names need no list
        assert (single["F"], single["follow_ups"]) == (alone["F"], alone["follow_ups"])


@pytest.mark.parametrize(
    ("scan", "given", "choices", "kind", "fact"),
    [
        ("segments", (), {}, PlanError, "what to compare is not said"),
        ("segments", (["t0"], [kb.Mean("y", clip="p99")], ["device"]), {}, PlanError, "a scan compares means"),
        ("segments", (["t0"], ["y", Y], ["device"]), {}, SourceError, "metrics names a column twice"),
        ("pairs", ("t*", ["y"]), {"rows": Rows(first_by="d")}, PlanError, "a scan of pairs has no first_by"),
        ("pairs", ("t*", ["y"]), {"tolerence": {"y": 1}}, ArgumentError, "'tolerence'. Did you mean 'tolerance'"),
        ("segments", (["t0"], ["y"]), {"covariate": []}, ArgumentError, "'covariate'. Did you mean 'covariates'"),
        ("pairs", ("t*", ["y"]), {"tolerance": 0.5}, ArgumentError, r"tolerance of scan_i.*\(\) must be a dict"),
        ("pairs", ("t*", ["y"]), {"progress": 1}, ArgumentError, r"progress of scan_i.*\(\) must be a function"),
        ("segments", (["t0"], ["y"], ["device"]), {"k": "ten"}, PrivacyError, "k must be a whole number"),
        ("pairs", ("t*", ["y"]), {"alpha": 5}, AnalysisError, "alpha must lie between 0 and 1"),
    ],
)
def test_mistakes_are_one_sentence(
    scan: str, given: tuple[Any, ...], choices: dict[str, Any], kind: type[Exception], fact: str
) -> None:
    verb: Any = {"pairs": scan_interactions, "segments": scan_segments}[scan]
    with pytest.raises(kind, match=fact):
        verb(users(60), *given, **choices)


def test_releases_take_no_choices_of_counting_and_hold_what_they_hold() -> None:
    plain = kb.release(kb.count(users(), arm="t1", metrics=[Y]))
    with pytest.raises(AnalysisError, match="hold no table of two experiments"):
        scan_interactions(plain)
    with pytest.raises(AnalysisError, match="no table by a covariate"):
        scan_segments(plain)
    with pytest.raises(AnalysisError, match="no table is left of covariate 'device'"):
        scan_segments(plain, covariates=["device"])
    for choices in (
        {"experiments": ["t1"]},
        {"covariates": [kb.Covariate("device", top=2)]},
        {"rows": Rows(where="d > 0")},
    ):
        with pytest.raises(PlanError, match="releases already say what was counted"):
            scan_segments(plain, **choices)


def test_the_reference_names_every_field_of_both_scans() -> None:
    text = (Path(__file__).parents[3] / "docs" / "reference.md").read_text(encoding="utf-8")
    documented = text.split("### A scan\n")[1].split("### ")[0]
    pairs = scan_interactions(users(1_000, 3), "t*", [Y]).to_dict()
    segments = scan_segments(users(), ["t2"], [Y], covariates=["device"]).to_dict()
    rows = {*pairs["pairs"][0], *segments["segments"][0]}
    assert [name for name in {*pairs, *segments, *rows} if f"`{name}`" not in documented] == []


FACTORIAL = {("A", "off"): 0.4, ("A", "on"): 0.2, ("B", "off"): 0.2, ("B", "on"): 0.2}


def factorial(n: int = 8_000) -> dict[str, Any]:
    """Return people whose arms of checkout and search are drawn together, in unequal shares."""
    rng = np.random.default_rng(6)
    cells = rng.choice(len(FACTORIAL), n, p=list(FACTORIAL.values()))
    checkout, search = (np.array([cell[side] for cell in FACTORIAL])[cells] for side in (0, 1))
    other = rng.choice(["off", "on"], n)
    return {"checkout": checkout, "search": search, "other": other, "y": np.round(rng.normal(20, 5, n), 2)}


NAMES = ["checkout", "search", "other"]


def verdicts(found: kb.scan.PairReadout) -> dict[tuple[str, str], str]:
    return {(row.a, row.b): row.verdict for row in found.scan.rows}


def test_a_factorial_whose_joint_shares_are_declared_is_not_called_broken() -> None:
    rows = factorial()
    before = scan_interactions(rows, NAMES, [Y])
    assert verdicts(before)["checkout", "search"] == "assignment broken"
    text = " ".join(str(before).split())
    assert "If two of them were assigned together on purpose, declare their joint shares (--joint-shares)." in text
    found = scan_interactions(rows, NAMES, [Y], joint_shares={("checkout", "search"): FACTORIAL})
    assert set(verdicts(found).values()) == {"nothing found"}
    text = " ".join(str(found).split())
    assert "(alarm below 0.001, corrected over all pairs by Holm)" in text
    assert "No sign that people are not in the joint shares that were planned: checkout × search." in text
    assert "the plain effect of either experiment holds part of the other's: checkout × search. Compare arms" in text
    data = found.to_dict()["joint_shares"]
    assert [(pair["a"], pair["b"], pair["independent"]) for pair in data] == [("checkout", "search", False)]
    assert data[0]["shares"] == [[*arms, share] for arms, share in FACTORIAL.items()]
    turned = {("search", "checkout"): {(b, a): share for (a, b), share in FACTORIAL.items()}}
    assert scan_interactions(rows, NAMES, [Y], joint_shares=turned).to_dict() == found.to_dict()


def test_releases_take_joint_shares_from_their_plan_and_analyze_says_what_they_mean() -> None:
    rows = tuple((*arms, share) for arms, share in FACTORIAL.items())
    checkout = ExperimentPlan("checkout", interactions=("search",), joint_shares={"search": rows})
    plan = Plan((MetricPlan("y", (-50, 100), 0.01),), (checkout, ExperimentPlan("search")))
    released = kb.release(kb.count(factorial(), plan))
    assert verdicts(scan_interactions(released)) == {("checkout", "search"): "nothing found"}
    for experiment, other in (("checkout", "search"), ("search", "checkout")):
        sentences = [caution.sentence for caution in kb.analyze(released, experiment).cautions]
        assert any(f"{experiment} was assigned together with {other}, in joint" in sentence for sentence in sentences)
    other_plan = replace(plan, experiments=(replace(checkout, joint_shares={}), ExperimentPlan("search")))
    assert kb.analyze(replace(released, plan=other_plan), "checkout").cautions == ()
    different = replace(checkout, joint_shares={"search": (*rows[:2], ("B", "off", 0.1), ("B", "on", 0.3))})
    another = replace(released, plan=replace(plan, experiments=(different, ExperimentPlan("search"))))
    with pytest.raises(PlanError, match="different joint shares of checkout and search"):
        scan_interactions([released, another])


@pytest.mark.parametrize(
    ("declared", "fact"),
    [
        ({("checkout", "banner"): FACTORIAL}, "joint shares name a pair that is not scanned"),
        ({"checkout": FACTORIAL}, "joint shares must be shares by pair of arms, by pair of experiments"),
        ({("checkout", "search"): {"A": 1}}, "joint shares must be shares by pair of arms"),
        ({("checkout", "search"): 1}, "joint shares must be shares by pair of arms"),
        ([1], "joint shares must be shares by pair of arms"),
    ],
)
def test_joint_shares_that_do_not_fit_are_refused(declared: Any, fact: str) -> None:
    with pytest.raises(PlanError, match=fact):
        scan_interactions(factorial(400), NAMES, [Y], joint_shares=declared)


@pytest.mark.slow
def test_segments_are_those_of_a_persons_first_row() -> None:
    first = users(3_000) | {"person": np.arange(3_000), "day": np.repeat("2026-11-01", 3_000)}
    later = first | {"day": np.repeat("2026-11-02", 3_000), "device": np.repeat("tablet", 3_000), "y": np.zeros(3_000)}
    rows = {name: np.concatenate([later[name], first[name]]) for name in first}
    with pytest.raises(SourceError, match=r"'device' changes among the rows of a person.*first_by"):
        scan_segments(rows, ["t2"], [Y], ["device"], rows=Rows(unit="person"))
    taken = scan_segments(rows, ["t2"], [Y], ["device"], rows=Rows(unit="person", first_by="day")).to_dict()
    assert taken["segments"] == scan_segments(first, ["t2"], [Y], ["device"]).to_dict()["segments"]


def test_fewer_bins_than_asked_for_are_said() -> None:
    rows = users() | {"visits": np.where(np.arange(6_000) % 2, 0, np.arange(6_000) % 50)}
    scanned = scan_segments(rows, ["t1", "t2"], [Y], [kb.Covariate("visits", bins=5)])
    assert str(scanned).count("visits: 3 bins instead of 5, because many people share a value") == 1


def test_effects_within_arms_are_against_the_control_and_say_how_it_is_known() -> None:
    rows = users()
    rows |= {"t1": np.where(rows["t1"] == "on", "challenger", "original"), "t3": np.where(rows["t3"] == "on", "x", "y")}
    (pair,) = scan_interactions(rows, ["t1", "t3"], [Y]).to_dict()["effects"]
    assert {(row["experiment"], row["control"]) for row in pair["effects"]} == {("t1", "original"), ("t3", "x")}
    assert pair["control_chosen"] == ["word", "unknown"]
