"""Several looks at one experiment: which look it is, what it may decide, and when the design is over."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.described import count_of, readout_of

import kanab as kb
from kanab.analysis.looks import plain_design, read_looks, record_look
from kanab.errors import AnalysisError, SourceError

TEN = [f"metric {number}" for number in range(10)]


def null_people(seed: int, n: int = 600, metrics: list[str] = TEN) -> dict[str, Any]:
    """Return people of two arms that differ in nothing."""
    rng = np.random.default_rng(seed)
    return {"variant": rng.permutation(np.arange(n) % 2), **{name: rng.random(n) < 0.3 for name in metrics}}


@pytest.mark.slow
def test_on_null_data_with_ten_metrics_one_may_stop_in_about_one_study_of_twenty() -> None:
    """Without the correction it is 40 %."""
    looks = kb.Looks("spending", looks=1, earlier=())
    stopped = 0
    for seed in range(60):
        data = kb.readout(null_people(seed), arm="variant", metrics=TEN, reading=kb.Reading(looks=looks)).to_dict()
        verdicts = [row["sequential"]["verdict"] for row in data["effects"]]
        assert [verdict == "may stop" for verdict in verdicts] == [row["p_adjusted"] <= 0.05 for row in data["effects"]]
        stopped += "may stop" in verdicts
    assert stopped <= 8  # 3 are expected; 9 or more have a chance of .004


@pytest.mark.parametrize(
    ("looks", "events", "advice"),
    [
        (kb.Looks("spending", looks=3, earlier=(200,)), 125, "Look 2 of 3: keep going until look 3."),
        (kb.Looks("spending", looks=2, earlier=(200,)), 120, "Look 2 of 2: ended at 600 people without a finding;"),
        (kb.Looks("always-valid", optimal_at=600), 130, "At any time: keep going, about 760 people if the effect"),
    ],
)
def test_what_is_clear_only_before_the_correction_stops_nothing(looks: kb.Looks, events: int, advice: str) -> None:
    """90 of 300 against some more."""
    people = null_people(1)
    for arm, ones in ((0, 90), (1, events)):
        people["metric 0"][people["variant"] == arm] = np.arange(300) < ones
    alone = kb.readout(people, arm="variant", metrics=["metric 0"], reading=kb.Reading(looks=looks))
    assert alone.effects[0].look.verdict == "may stop"  # type: ignore[union-attr]
    among = kb.readout(people, arm="variant", metrics=TEN, reading=kb.Reading(looks=looks))
    row = among.to_dict()["effects"][0]
    assert row["sequential"]["p"] <= 0.05 < row["p_adjusted"]
    assert row["sequential"]["verdict"] != "may stop"
    assert advice in " ".join(str(among).split())
    assert "you may stop" not in str(among)


ARMS = {"arm": "variant", "metrics": ["bought"], "control": 0}


@pytest.mark.parametrize(
    ("looks", "choices"),
    [
        (kb.Looks("always-valid"), {"decision": {"people": 4_000}}),
        (kb.Looks("always-valid", planned=4_000), {}),
        (kb.Looks("always-valid", last=True), {}),
    ],
)
def test_any_time_reading_ends_with_the_planned_people(looks: kb.Looks, choices: dict[str, Any]) -> None:
    ended = readout_of(shop(4_000), **ARMS, primary="bought", looks=looks, **choices)
    look = ended.to_dict()["effects"][0]["sequential"]
    assert (look["verdict"], look["until"], look["fraction"], look["chance"]) == ("ended", None, 1.0, None)
    text = " ".join(str(ended).split())
    assert "At any time: ended at 4,000 people without a finding; effects beyond −2.0 … +7.0 points are ruled out." in (
        text
    )
    assert "if the effect stays as it is" not in text
    assert ended.to_dict()["decision"]["answer"] != "keep going"


def test_the_people_of_the_decision_plan_spending_where_no_looks_are_planned() -> None:
    at = kb.Looks("spending", earlier=[])
    look = readout_of(shop(1_000), **ARMS, decision={"people": 4_000}, looks=at).to_dict()["effects"][0]["sequential"]
    assert (look["planned"], look["fraction"]) == (4_000, 0.25)
    said = readout_of(shop(1_000), **ARMS, decision={"people": 4_000}, looks=replace(at, looks=5))
    assert said.to_dict()["effects"][0]["sequential"]["planned"] is None


BOUGHT: dict[str, Any] = {"arm": "variant", "metrics": ["bought"], "shares": {0: 1, 1: 1}, "control": 0}


def shop(n: int) -> dict[str, Any]:
    """Return a table that grows: its first n people."""
    rng = np.random.default_rng(8)
    variant = rng.integers(0, 2, 6_000)
    bought = rng.random(6_000) < 0.3 + 0.02 * variant
    return {"variant": variant[:n], "bought": bought[:n]}


def look_of(n: int, looks: kb.Looks) -> dict[str, Any]:
    row: dict[str, Any] = readout_of(shop(n), **BOUGHT, looks=looks).to_dict()["effects"][0]["sequential"]
    return row


def test_a_table_that_may_have_grown_is_no_look_unless_one_says_which() -> None:
    refusal = "it is not known which of the planned looks this is.*earlier=.*--looks-at none.*file=.*cohorts"
    with pytest.raises(AnalysisError, match=refusal):
        look_of(1_000, kb.Looks("spending", looks=4))
    with pytest.raises(AnalysisError, match=refusal):
        kb.analyze(
            kb.release(count_of(shop(1_000), **BOUGHT)), reading=kb.Reading(looks=kb.Looks("spending", planned=4_000))
        )
    with pytest.raises(AnalysisError, match="how many looks are planned is not said"):
        look_of(1_000, kb.Looks("spending"))
    assert look_of(1_000, kb.Looks("spending", looks=4, earlier=[]))["look"] == 1
    third = look_of(3_000, kb.Looks("spending", looks=4, earlier=[1_000, 2_000]))
    assert (third["look"], third["fraction"]) == (3, 0.75)
    assert look_of(3_000, kb.Looks("always-valid"))["method"] == "always-valid"


def test_a_looks_file_counts_the_looks_at_a_growing_table(tmp_path: Path) -> None:
    file = tmp_path / "looks.json"
    looks = kb.Looks("spending", looks=3, spending="pocock", file=file)
    seen = [look_of(n, looks) for n in (1_000, 1_000, 2_000, 2_000, 3_000, 3_000)]
    assert [look["look"] for look in seen] == [1, 1, 2, 2, 3, 3]
    assert seen[0] == seen[1]
    said = kb.Looks("spending", looks=3, spending="pocock", earlier=(1_000, 2_000))
    assert seen[-1] == look_of(3_000, said)
    recorded = json.loads(file.read_text())["experiments"]["variant"]
    assert [look["people"] for look in recorded["looks"]] == [1_000, 2_000, 3_000]
    assert recorded["design"]["metrics"] == ["bought"]


def test_after_the_last_look_a_looks_file_knows_no_further_one(tmp_path: Path) -> None:
    looks = kb.Looks("spending", looks=2, file=tmp_path / "looks.json")
    answers = [look_of(n, looks) for n in (1_000, 2_000)]
    with pytest.raises(AnalysisError, match=r"the design ended with look 2 on 20\d\d-\d\d-\d\d; people who came later"):
        look_of(3_000, looks)
    assert look_of(2_000, looks) == answers[-1]


def test_a_last_look_is_the_last_also_when_it_is_read_again(tmp_path: Path) -> None:
    looks = kb.Looks("spending", looks=5, file=tmp_path / "looks.json")
    ended = look_of(1_000, replace(looks, last=True))
    assert (ended["fraction"], ended["verdict"]) == (1.0, "ended")
    assert look_of(1_000, looks) == ended
    with pytest.raises(AnalysisError, match="the design ended with look 1"):
        look_of(2_000, looks)


def test_the_first_look_with_the_planned_people_is_the_last(tmp_path: Path) -> None:
    looks = kb.Looks("spending", planned=2_500, file=tmp_path / "looks.json")
    assert [look_of(n, looks)["fraction"] for n in (1_000, 3_000)] == [0.4, 1.0]
    with pytest.raises(AnalysisError, match="the design ended with look 2"):
        look_of(4_000, looks)
    assert look_of(3_000, kb.Looks("spending", planned=2_500, earlier=(1_000,)))["fraction"] == 1.0
    with pytest.raises(AnalysisError, match="there are more people than planned"):
        look_of(4_000, kb.Looks("spending", planned=2_500, earlier=(1_000, 3_000)))


def test_fewer_people_than_at_the_last_look_are_refused_and_nothing_is_recorded(tmp_path: Path) -> None:
    file = tmp_path / "looks.json"
    looks = kb.Looks("spending", looks=4, file=file)
    look_of(2_000, looks)
    before = file.read_text()
    with pytest.raises(AnalysisError, match="there are fewer people than at the last look"):
        look_of(1_000, looks)
    with pytest.raises(AnalysisError, match="there are more looks than information"):
        look_of(2_001, looks)
    assert file.read_text() == before


def test_a_design_that_changed_on_the_way_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "looks.json"
    readout_of(shop(1_000), **BOUGHT, looks=kb.Looks("spending", looks=4, file=file))
    changed = kb.Looks("spending", looks=5, spending="pocock", file=file)
    refusal = "in looks.json belong to another design: looks was 4, spending was obrien-fleming. Read it as it was"
    with pytest.raises(AnalysisError, match=refusal):
        look_of(2_000, changed)
    with pytest.raises(AnalysisError, match=r"another design: confidence was 0\.95\. "):
        readout_of(shop(2_000), **BOUGHT, confidence=0.9, looks=kb.Looks("spending", looks=4, file=file))
    more = shop(2_000) | {"spend": np.arange(2_000) % 7}
    with pytest.raises(AnalysisError, match="metrics was bought"):
        readout_of(more, **BOUGHT | {"metrics": ["bought", "spend"]}, looks=kb.Looks("spending", looks=4, file=file))


def test_a_looks_file_holds_several_experiments(tmp_path: Path) -> None:
    file = tmp_path / "looks.json"
    for name in ("variant", "banner"):
        people = {name: shop(1_000)["variant"], "bought": shop(1_000)["bought"]}
        looks = kb.Looks("spending", looks=4, file=file)
        kb.readout(people, arm=name, metrics=["bought"], reading=kb.Reading(looks=looks))
    assert list(json.loads(file.read_text())["experiments"]) == ["variant", "banner"]


@pytest.mark.parametrize("text", ["[]", '{"format": "kanab-looks/2", "experiments": {}}', "people\n7500\n", "\x00"])
def test_another_file_is_no_looks_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "looks.json"
    file.write_text(text)
    with pytest.raises(SourceError, match=r"looks\.json is not a looks file\. Name the file that --looks-file wrote"):
        look_of(1_000, kb.Looks("spending", looks=4, file=file))
    assert file.read_text() == text


def test_a_look_that_somebody_else_recorded_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "looks.json"
    design = plain_design(looks=4)
    nothing = read_looks(file, "variant", design)
    record_look(file, "variant", nothing, 1_000, last=False)
    with pytest.raises(SourceError, match=r"another look at variant was added to looks\.json meanwhile"):
        record_look(file, "variant", nothing, 1_100, last=False)
    with pytest.raises(SourceError, match="cannot be written"):
        record_look(tmp_path / "nowhere" / "looks.json", "variant", nothing, 1_000, last=False)


def test_looks_are_said_once() -> None:
    with pytest.raises(AnalysisError, match=r"a looks file and earlier looks \(--looks-at\) contradict each other"):
        kb.Looks("spending", looks=4, earlier=(1_000,), file="looks.json")
    with pytest.raises(AnalysisError, match="a looks file and a method for any time contradict each other"):
        kb.Looks("always-valid", file="looks.json")


def batches(*ends: int) -> list[kb.Release]:
    """Return releases of the shop's people between these ends."""
    whole = shop(6_000)
    spans = [slice(low, high) for low, high in pairwise((0, *ends))]
    return [kb.release(count_of({name: column[span] for name, column in whole.items()}, **BOUGHT)) for span in spans]


@pytest.mark.parametrize("design", [{"looks": 2}, {"planned": 1_800}])
def test_people_who_came_after_the_last_planned_look_are_not_in_the_answer(design: dict[str, int]) -> None:
    looks = kb.Looks("spending", **design)  # type: ignore[arg-type]
    parts = batches(1_000, 2_000, 3_000, 4_000)
    after, last = (kb.analyze(kb.add_releases(parts[:number]), reading=kb.Reading(looks=looks)) for number in (4, 2))
    assert sum(after.arms.values()) == 2_000
    assert after.to_dict()["effects"] == last.to_dict()["effects"]
    assert [caution.sentence for caution in after.cautions] == [
        "The design ended with look 2 (batch 2); people who came later are not in this answer."
    ]
    assert after.cautions[0].sentence in str(after).replace("\n  ", " ")
    assert last.cautions == ()


def test_a_batch_of_next_to_nobody_is_no_look() -> None:
    crowd = kb.release(count_of({name: np.tile(column, 10) for name, column in shop(3_000).items()}, **BOUGHT))
    few = kb.release(count_of({"variant": np.repeat([0, 1], 10), "bought": np.arange(20) % 2}, **BOUGHT))
    both, looks = [crowd, few], kb.Looks("spending", looks=4)
    answer = kb.analyze(kb.add_releases(both), reading=kb.Reading(looks=looks))
    assert answer.to_dict()["effects"][0]["sequential"]["look"] == 1
    assert sum(answer.arms.values()) == 30_000
    assert answer.notes[-1].startswith("The latest batch adds less than 0.1 % of the people and is no look of its own")
    later = kb.analyze(kb.add_releases([*both, *batches(6_000)]), reading=kb.Reading(looks=looks))
    assert later.to_dict()["effects"][0]["sequential"]["look"] == 2
    assert sum(later.arms.values()) == 36_020


def test_missing_values_do_not_change_which_share_of_the_design_has_passed() -> None:
    people = shop(2_000) | {"rating": np.where(np.arange(2_000) % 3 == 0, np.nan, np.arange(2_000) % 5)}
    looks = kb.Looks("spending", planned=4_000, earlier=(1_000,))
    data = readout_of(
        people, **BOUGHT | {"metrics": ["bought", "rating"]}, missing={"rating": "exclude"}, looks=looks
    ).to_dict()
    whole, with_gaps = (row["sequential"] for row in data["effects"])
    assert whole["fraction"] == with_gaps["fraction"] == 0.5
    assert whole["nominal"] == with_gaps["nominal"]


def rare_people(events: int, arm: int = 2_000) -> dict[str, Any]:
    """Return 400 of 18,000 who bought against so many of B, and an amount for each of them."""
    bought = np.r_[np.arange(18_000) < 400, np.arange(arm) < events]
    spend = np.where(bought, 5.0 + np.arange(18_000 + arm) % 4, 0.0)
    return {"variant": ["A"] * 18_000 + ["B"] * arm, "bought": bought, "spend": spend}


@pytest.mark.parametrize("metric", ["bought", "spend", "spend/bought"])
def test_while_an_arm_has_few_events_any_time_says_not_yet_in_p_interval_and_sentence(metric: str) -> None:
    choices: dict[str, Any] = {"arm": "variant", "metrics": ["bought", "spend"], "ratios": ["spend/bought"]}
    choices |= {"bounds": {"spend": (0, 50)}, "resolution": {"spend": 1.0}, "shares": {"A": 9, "B": 1}}
    choices |= {"looks": kb.Looks("always-valid")}
    answer = readout_of(rare_people(12), **choices)
    row = next(row for row in answer._shown()["effects"] if row["metric"] == metric)
    assert (row["p"], row["p_adjusted"], row["interval"], row["interval_adjusted"]) == (1.0, 1.0, None, None)
    assert (row["relative_interval"], row["relative_interval_delta"], row["verdict"]) == (None, None, "unclear")
    assert (row["sequential"]["begun"], row["sequential"]["verdict"]) == (False, "keep going")
    sentence = "At any time: not yet, at least 20 people with another value than the commonest are needed in each arm."
    for text in (str(answer), answer._repr_html_(), answer.to_markdown()):
        assert sentence in " ".join(text.split())
    assert "No relative effect is given" not in str(answer)
    later = readout_of(rare_people(45), **choices)
    assert next(row for row in later.effects if row.effect.metric == metric).look.begun  # type: ignore[union-attr]


def test_a_denominator_that_is_one_for_everybody_does_not_hold_up_a_ratio() -> None:
    people = rare_people(45) | {"visits": np.ones(20_000)}
    answer = kb.readout(
        people,
        arm="variant",
        arms={"A": 9, "B": 1},
        metrics=[kb.Mean("visits", bounds=(0, 1), resolution=1.0), kb.Ratio("bought", "visits")],
        reading=kb.Reading(looks=kb.Looks("always-valid")),
    )
    assert next(row for row in answer.effects if row.effect.metric == "bought/visits").look.begun  # type: ignore[union-attr]


def test_an_arm_with_few_events_holds_up_only_its_own_comparisons() -> None:
    people = {name: np.r_[column, column[:18_000]] for name, column in rare_people(12).items()}
    people["variant"] = np.r_[["A"] * 18_000, ["B"] * 2_000, ["C"] * 18_000]
    answer = kb.readout(people, arm="variant", metrics=["bought"], reading=kb.Reading(looks=kb.Looks("always-valid")))
    begun = {row.effect.arm: row.look.begun for row in answer.effects}  # type: ignore[union-attr]
    assert begun == {"B": False, "C": True}


def tiers(gain: float = 0.0, seed: int = 1, n: int = 3_000) -> dict[str, Any]:
    """Return people of three tiers; the effect is this much larger in the third."""
    rng = np.random.default_rng(seed)
    variant, tier = rng.integers(0, 2, n), rng.integers(1, 4, n)
    return {"variant": variant, "tier": tier, "bought": rng.random(n) < 0.3 + gain * variant * (tier == 3)}
