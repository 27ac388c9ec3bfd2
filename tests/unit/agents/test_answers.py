"""What assistants are told is what releases say, and no sequence of questions shows more than release files hold."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.collector.http.conftest import RunningService, app, ask, open_service, running
from tests.unit.dashboard.shop_releases import WEEKLY, FixedSource, alone, entries, ledger_bytes, write

import kanab as kb
from kanab.agents.answers import MOST_LISTED, NOTHING_YET, TOOLS, Answers, answer_call
from kanab.collector.http.app import Collector
from kanab.dashboard.release_sources import FileReleases
from kanab.dashboard.releases import RawSource
from kanab.errors import KanabError
from kanab.planning import solve_power, spread_of_means
from kanab.privacy.release_json import read_release
from kanab.stats import adjusted_means

__all__ = ["app", "open_service", "running"]


@pytest.fixture(scope="module")
def answers() -> Answers:
    return Answers(FixedSource(WEEKLY))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One release file, and beside it what a curator has."""
    place = tmp_path_factory.mktemp("releases")
    write(place, checkout_release_json=alone(), rows_csv=b"person,spend\nMarie,12.34\n", kanab_toml=b"k = 10\n")
    return place


def over(*places: Path) -> Answers:
    return Answers(FileReleases(places, "store.db"))


def said(answers: Answers, name: str, **arguments: Any) -> str:
    """What an assistant reads: the answer, or why there is none."""
    try:
        answer = answer_call(answers, name, arguments)
    except KanabError as problem:
        return f"refused: {problem}"
    return f"{answer.text}\n{json.dumps(answer.data, allow_nan=False)}"


# ── answers ────────────────────────────────────────────────────────────────────────────────────


def test_a_readout_is_that_of_kanab_analyze_brief_and_says_whether_effects_differ(folder: Path) -> None:
    answer = over(folder).readout("checkout")
    readout = kb.analyze(read_release(folder / "checkout.release.json"), "checkout")
    brief, _, more = answer.text.partition("\nNo sign that the effect differs: ")
    assert brief == readout.to_brief()
    assert more == "bought by device (p = 0.726), spend by device (p = 0.682, corrected 0.726)."
    assert (answer.data["look"], answer.data["may_stop"]) == (None, None)
    row = next(row for row in readout.to_dict()["effects"] if row["metric"] == "spend" and row["carries_verdict"])
    told = next(row for row in answer.data["effects"] if row["metric"] == "spend")
    assert told["estimate"] == pytest.approx(row["estimate"], rel=1e-5)
    assert told["interval"] == pytest.approx(row["interval"], rel=1e-5)
    assert told["verdict"] == "better"
    assert answer.data["people"] == 2000


def test_the_list_begins_with_what_needs_attention(answers: Answers) -> None:
    answer = answers.list_experiments()
    assert [row["experiment"] for row in answer.data["experiments"]] == ["price", "checkout", "banner"]
    assert answer.text.startswith("price: Alarm: people do not arrive in the planned shares (p below 0.001).")
    assert all(people % 10 == 0 for row in answer.data["experiments"] for people in row["arms"].values())
    assert {row["verdict"] for row in answer.data["experiments"][2]["results"]} == {"unclear"}


def test_a_long_list_has_pages(monkeypatch: pytest.MonkeyPatch, answers: Answers) -> None:
    assert MOST_LISTED == 100
    monkeypatch.setattr("kanab.agents.answers.MOST_LISTED", 2)
    first, second = answers.list_experiments(), answers.list_experiments(2)
    assert first.text.splitlines()[-1] == "1 more: ask for page 2."
    assert [row["experiment"] for row in second.data["experiments"]] == ["banner"]
    assert answers.list_experiments(3).text == "There are no more experiments."


def test_experiments_are_compared_and_read_together(answers: Answers) -> None:
    answer = answers.compare(["checkout", "banner", "price"], "spend")
    assert [(row["experiment"], row["verdict"]) for row in answer.data["effects"]] == [
        ("checkout", "better"), ("banner", "unclear"), ("price", "unclear"),
    ]  # fmt: skip
    shrunk = {row["experiment"]: row for row in answer.data["together"]["effects"]}
    assert 0 < shrunk["checkout"]["shrunk"] < shrunk["checkout"]["estimate"]
    assert "effects that stay clear after shrinkage: checkout." in answer.text
    assert "of twenty experiments without any effect one still looks clear" in answer.text
    two = answers.compare(["checkout", "banner"], "spend")
    assert two.data["together"] == {"read": False}
    assert "They are not read together" in two.text


def test_arms_are_compared_with_the_first_one_named(answers: Answers) -> None:
    forth, back = answers.readout("checkout"), answers.compare(["checkout"], "spend", ["B", "A"])
    effect = next(row for row in forth.data["effects"] if row["metric"] == "spend")
    (turned,) = back.data["effects"]
    assert (turned["arm"], turned["control"], turned["verdict"]) == ("A", "B", "worse")
    assert turned["estimate"] == pytest.approx(-effect["estimate"])
    assert "correct" not in back.text  # one experiment: its own correction is over its own arms


def test_power_is_solved_from_the_variances_of_the_release(folder: Path) -> None:
    answer = answer_call(
        over(folder), "power", {"experiment": "checkout", "metric": "spend", "effect": 1, "adjust": ["tier"]}
    )
    table = read_release(folder / "checkout.release.json").tables["checkout/tier"]
    noise = spread_of_means(adjusted_means(table, "spend"), shares={"A": 1, "B": 1}, control="A")
    assert answer.data["people"] == solve_power(noise, effect=1, power=0.8).people
    assert "as it was found in checkout (checkout.release.json), adjusted for tier." in answer.text
    detectable = answer_call(over(folder), "power", {"experiment": "checkout", "metric": "spend"})
    assert (detectable.data["solved"], detectable.data["people"], detectable.data["power"]) == ("effect", 2000, 0.8)


@pytest.mark.slow
def test_the_privacy_statement_names_k_attacks_and_gaps(answers: Answers) -> None:
    answer = answers.privacy()
    (ledger,) = answer.data["ledgers"]
    assert (ledger["state"], ledger["k"], ledger["effective_k"]) == ("passed", 10, 20)
    assert {row["state"] for row in ledger["attacks"]} <= {"learnt nothing", "not tried"}
    assert {row["question"]: row["state"] for row in ledger["questions"]}["inference"] == "in part"
    assert answer.text.startswith("kanab.ledger: k-anonymous at k = 10; audit passed")


# ── bad input ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        (
            "readout",
            {"experiment": "nobody"},
            "there is no experiment of this name. Released here: banner, checkout, price.",
        ),
        ("readout", {}, "Object missing required field `experiment`. readout takes: experiment, reading."),
        ("readout", {"experiment": 3}, "Expected `str`, got `int` - at `$.experiment`."),
        ("readout", {"experiment": "x" * 100_000}, "Expected `str` of length <= 200 - at `$.experiment`."),
        ("readout", {"experiment": "checkout", "reading": 7}, "there is no such reading. There are 1, counted from 0."),
        ("readout", {"experiment": "checkout", "where": "spend > 100"}, "Object contains unknown field `where`."),
        ("privacy", {"path": "/etc/passwd"}, "Object contains unknown field `path`. privacy takes: nothing."),
        ("compare", {"experiments": []}, "Expected `array` of length >= 1 - at `$.experiments`."),
        ("compare", {"experiments": ["checkout"] * 1000}, "Expected `array` of length <= 20 - at `$.experiments`."),
        (
            "compare",
            {"experiments": ["checkout"], "arms": ["A", "Z"]},
            "two or more arms of the experiment are compared. Arms: A, B.",
        ),
        ("compare", {"experiments": ["checkout", "banner"], "arms": ["A", "B"]}, "arms are those of one experiment."),
        (
            "compare",
            {"experiments": ["checkout"], "metric": "profit"},
            "checkout has no effect on this metric. It has: bought, spend.",
        ),
        ("power", {"experiment": "checkout"}, "several metrics, and none named. Name one of: bought, spend."),
        (
            "power",
            {"experiment": "checkout", "metric": "spend", "effect": float("nan")},
            "the effect must be a finite number.",
        ),
        (
            "power",
            {"experiment": "checkout", "metric": "spend", "power": 1.5},
            "Expected `float` < 1.0 - at `$.power`.",
        ),
        (
            "power",
            {"experiment": "checkout", "metric": "spend", "adjust": ["person"]},
            "the release holds no table of checkout by 'person'.",
        ),
        ("shell", {}, "there is no tool of this name. Tools: list_experiments, readout, compare, power, privacy."),
    ],
)
def test_a_bad_question_is_answered_with_what_can_be_asked(
    answers: Answers, name: str, arguments: dict[str, Any], says: str
) -> None:
    reply = said(answers, name, **arguments)
    assert says in reply
    assert len(reply) < 400


def test_a_field_that_nobody_knows_is_not_repeated_at_length(answers: Answers) -> None:
    assert len(said(answers, "privacy", **{"x" * 100_000: 1})) < 400


def test_an_empty_folder_says_what_to_do(tmp_path: Path) -> None:
    nothing = over(tmp_path)
    assert nothing.list_experiments().text == NOTHING_YET
    assert NOTHING_YET in said(nothing, "readout", experiment="checkout")
    assert NOTHING_YET in nothing.privacy().text


def test_a_changed_release_is_refused_by_name_and_others_are_served(tmp_path: Path) -> None:
    changed = alone("banner").replace(b'"sums"', b'"sums" ', 1).replace(b"0", b"1", 3)
    write(tmp_path, checkout_release_json=alone(), banner_release_json=changed)
    answer = over(tmp_path).list_experiments()
    assert [row["experiment"] for row in answer.data["experiments"]] == ["checkout"]
    assert answer.text.startswith("Alarm: banner.release.json is not shown: ")
    assert answer.data["alarms"][0].startswith("banner.release.json is not shown: ")
    assert "Released here: checkout." in said(over(tmp_path), "readout", experiment="banner")


def test_a_release_that_changes_is_read_and_verified_again(tmp_path: Path) -> None:
    write(tmp_path, checkout_release_json=alone(), kanab_ledger=ledger_bytes())
    asked = over(tmp_path)
    before = asked.readout("checkout")
    assert len(before.data["readings"]) == 2
    (tmp_path / "checkout.release.json").write_bytes(alone()[:-20])
    assert "checkout.release.json is not shown" in asked.readout("checkout").data["alarms"][0]
    (tmp_path / "checkout.release.json").write_bytes(alone(seed=6))
    after = asked.readout("checkout")
    assert after.data["alarms"] == []
    assert after.data["effects"] != before.data["effects"]
    assert asked.readout("checkout", 0).data["people"] == 3010


def test_a_broken_ledger_is_an_alarm_in_every_answer() -> None:
    first, _, third = entries()
    broken = Answers(FixedSource(RawSource("kanab.ledger", (first, third), ledger=True)))
    for name in ("list_experiments", "privacy"):
        assert "an entry was removed or moved" in said(broken, name)
    assert broken.list_experiments().data["experiments"][0]["health"] == "alarm"


# ── nothing beyond the files ───────────────────────────────────────────────────────────────────


WORDS = ("checkout", "banner", "price", "nobody", "A", "B", "on", "tier", "device", "spend", "bought", "Marie", "'; --")


def questions(seed: int, count: int) -> list[tuple[str, dict[str, Any]]]:
    """Questions at random, of which many are not allowed: every field of every tool, and some that no tool has."""
    draw = random.Random(seed)
    values = [
        lambda: draw.choice(WORDS), lambda: draw.sample(WORDS, draw.randint(0, 3)),
        lambda: draw.choice([0, 1, 2, -1, 5000, 0.1, 0.5]), lambda: draw.choice([True, None, {"where": "1 = 1"}]),
    ]  # fmt: skip
    asked = []
    for _ in range(count):
        tool = draw.choice(TOOLS)
        fields = {name: draw.choice(values)() for name in tool.schema["properties"] if draw.random() < 0.3}
        if "experiment" in tool.schema["required"]:
            fields["experiment"] = draw.choice(WORDS[:4])
        if "experiments" in tool.schema["required"]:
            fields["experiments"] = draw.sample(WORDS[:4], draw.randint(1, 4))
        if draw.random() < 0.1:
            fields[draw.choice(["where", "sql", "path", "unit"])] = draw.choice(WORDS)
        asked.append((tool.name, fields))
    return asked


@pytest.mark.slow
def test_no_sequence_of_questions_shows_more_than_the_release_files_hold(tmp_path: Path) -> None:
    """The same files without rows, plan or store, asked in another order: every answer is the same, byte for byte."""
    beside, bare = tmp_path / "beside" / "releases", tmp_path / "bare" / "releases"
    for place in (beside, bare):
        place.mkdir(parents=True)
        write(place, kanab_ledger=ledger_bytes(), banner_release_json=alone("banner"))
    write(beside, rows_csv=b"person,checkout,spend\nMarie,A,12.34\n", kanab_toml=b"k = 1\n", people_json=b'["Marie"]')
    asked = questions(20, 120)
    first = over(beside)
    forth = {at: said(first, name, **fields) for at, (name, fields) in enumerate(asked)}
    second, order = over(bare), list(range(len(asked)))
    random.Random(21).shuffle(order)
    back = {at: said(second, asked[at][0], **asked[at][1]) for at in order}
    assert forth == back
    answered = [reply for reply in forth.values() if not reply.startswith("refused")]
    assert 30 < len(answered) < 110  # some of both, or nothing would be proven
    assert "12.34" not in "".join(forth.values())


def test_people_of_an_open_cohort_change_no_answer(running: RunningService, app: Collector, tmp_path: Path) -> None:
    asked = questions(22, 12)
    collector = over(tmp_path / "data")
    before = [said(collector, name, **fields) for name, fields in asked]
    statuses = {ask(app, "POST", "/v1/t", running.enroll()).status for _ in range(30)}
    assert statuses == {204}
    assert [said(collector, name, **fields) for name, fields in asked] == before
    assert collector.list_experiments().text == NOTHING_YET


WATCHED = """
import json, sys
from kanab.agents.answers import Answers
from kanab.agents.answers import answer_call
from kanab.dashboard.release_sources import FileReleases
from kanab.errors import KanabError
answers = Answers(FileReleases([sys.argv[1]], "store.db"))
asked = json.loads(sys.stdin.read())
for name, fields in asked:  # what is imported at first use is imported now
    try: answer_call(answers, name, fields)
    except KanabError: pass
seen = set()
def watch(event, arguments):
    if event == "open" and str(arguments[0]).startswith(sys.argv[1]):
        seen.add((str(arguments[0]), str(arguments[1])))
    elif event in ("socket.connect", "socket.bind", "subprocess.Popen", "os.remove", "os.rename", "os.mkdir"):
        seen.add((event, ""))
sys.addaudithook(watch)
answers = Answers(FileReleases([sys.argv[1]], "store.db"))
for name, fields in asked:
    try: answer_call(answers, name, fields)
    except KanabError: pass
print(json.dumps(sorted(seen)))
"""


@pytest.mark.slow
def test_questions_open_release_files_to_read_them_and_nothing_else(folder: Path) -> None:
    asked = json.dumps(questions(23, 40))
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, str(folder)], input=asked, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [[str(folder / "checkout.release.json"), "r"]]


def test_no_tool_takes_a_filter_a_query_or_a_path() -> None:
    """Fields are names of what was released, and numbers for planning; an addition has to be weighed here."""
    assert {tool.name: sorted(tool.schema["properties"]) for tool in TOOLS} == {
        "list_experiments": ["page"],
        "readout": ["experiment", "reading"],
        "compare": ["arms", "experiments", "metric"],
        "power": ["adjust", "confidence", "control", "effect", "experiment", "metric", "people", "power", "relative"],
        "privacy": [],
    }
    assert all(tool.schema["additionalProperties"] is False for tool in TOOLS)


@pytest.mark.parametrize("tool", ["list_experiments", "readout", "compare"])
def test_a_model_is_told_that_unclear_is_not_no_effect(tool: str) -> None:
    says = next(each.says for each in TOOLS if each.name == tool)
    assert "not clear is NOT 'no effect'" in says
    assert all(f"'{word}" in says for word in ("better", "worse", "unclear", "hint", "watch", "not testable"))
