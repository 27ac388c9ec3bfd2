"""What assistants are told is what releases say, and no sequence of questions shows more than release files hold."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.approved import assert_approved
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


GOOD: list[tuple[str, dict[str, Any]]] = [
    ("list_experiments", {}), ("readout", {"experiment": "price"}),
    ("compare", {"experiments": ["checkout", "banner", "price"], "metric": "spend"}),
    ("compare", {"experiments": ["checkout", "banner"], "metric": "spend"}),
    ("compare", {"experiments": ["checkout"], "metric": "spend", "arms": ["B", "A"]}),
    ("power", {"experiment": "checkout", "metric": "spend", "effect": 1, "adjust": ["tier"]}), ("privacy", {}),
]  # fmt: skip


@pytest.mark.slow
def test_answers_are_those_that_were_approved(answers: Answers) -> None:
    """What needs attention comes first, people in steps of k; arms against the first one named."""
    texts = []
    for name, arguments in GOOD:
        answer = answer_call(answers, name, arguments)
        for ledger in answer.data.get("ledgers", ()):  # what the officer's report says
            ledger |= {"risks": "…", "questions": {row["question"]: row["state"] for row in ledger["questions"]}}
        data = json.dumps(answer.data, ensure_ascii=False)
        texts += [f"{name} {json.dumps(arguments)}", "=" * 99, answer.text, "", data, ""]
    assert_approved("agents/answers.txt", "\n".join(texts))


def test_a_long_list_has_pages(monkeypatch: pytest.MonkeyPatch, answers: Answers) -> None:
    assert MOST_LISTED == 100
    monkeypatch.setattr("kanab.agents.answers.MOST_LISTED", 2)
    first, second = answers.list_experiments(), answers.list_experiments(2)
    assert first.text.splitlines()[-1] == "1 more: ask for page 2."
    assert [row["experiment"] for row in second.data["experiments"]] == ["banner"]
    assert answers.list_experiments(3).text == "There are no more experiments."


def test_power_is_solved_from_the_variances_of_the_release(folder: Path) -> None:
    answer = answer_call(
        over(folder), "power", {"experiment": "checkout", "metric": "spend", "effect": 1, "adjust": ["tier"]}
    )
    table = read_release(folder / "checkout.release.json").tables["checkout/tier"]
    noise = spread_of_means(adjusted_means(table, "spend"), shares={"A": 1, "B": 1}, control="A")
    assert answer.data["people"] == solve_power(noise, effect=1, power=0.8).people
    assert "as it was found in checkout, adjusted for tier." in answer.text
    detectable = answer_call(over(folder), "power", {"experiment": "checkout", "metric": "spend"})
    assert (detectable.data["solved"], detectable.data["people"], detectable.data["power"]) == ("effect", 2000, 0.8)


# ── bad input ──────────────────────────────────────────────────────────────────────────────────


BAD: list[tuple[str, dict[str, Any]]] = [
    ("readout", {"experiment": "nobody"}), ("readout", {}), ("readout", {"experiment": 3}),
    ("readout", {"experiment": "x" * 100_000}), ("readout", {"experiment": "checkout", "reading": 7}),
    ("readout", {"experiment": "checkout", "where": "spend > 100"}), ("privacy", {"path": "/etc/passwd"}),
    ("privacy", {"x" * 100_000: 1}), ("compare", {"experiments": []}),
    ("compare", {"experiments": ["checkout"] * 1000}), ("compare", {"experiments": ["checkout"], "arms": ["A", "Z"]}),
    ("compare", {"experiments": ["checkout", "banner"], "arms": ["A", "B"]}),
    ("compare", {"experiments": ["checkout"], "metric": "profit"}), ("power", {"experiment": "checkout"}),
    ("power", {"experiment": "checkout", "metric": "spend", "effect": float("nan")}),
    ("power", {"experiment": "checkout", "metric": "spend", "power": 1.5}),
    ("power", {"experiment": "checkout", "metric": "spend", "adjust": ["person"]}), ("shell", {}),
]  # fmt: skip


def test_a_bad_question_is_answered_with_what_can_be_asked(answers: Answers) -> None:
    replies = [said(answers, name, **arguments) for name, arguments in BAD]
    assert all(reply.startswith("refused: ") and len(reply) < 400 for reply in replies)
    asked = [f"{name} {json.dumps(arguments)[:99]}" for name, arguments in BAD]
    texts = [f"{question}\n{reply}\n" for question, reply in zip(asked, replies, strict=True)]
    assert_approved("agents/bad_questions.txt", "\n".join(texts))


def test_an_empty_folder_says_what_to_do(tmp_path: Path) -> None:
    nothing = over(tmp_path)
    assert nothing.list_experiments().text == NOTHING_YET
    assert NOTHING_YET in said(nothing, "readout", experiment="checkout")
    assert NOTHING_YET in nothing.privacy().text


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
