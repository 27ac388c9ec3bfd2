"""Asking tells nothing: the first release of a ledger settles who is counted, and refused attempts leave a trace."""

import csv
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.described import as_values
from tests.unit.cli.program import Program

import kanab as kb
from kanab.errors import LedgerError, PrivacyError
from kanab.privacy.ledger import MOST_TEXT, LedgerNote, read_ledger
from kanab.privacy.release_json import hash_of
from kanab.privacy.request import MOST_REFUSED, check_choices, plain_text

FLAGS = ("--arm", "variant", "--metric", "bought", "--bounds", "bought=0:1", "--resolution", "bought=1")
PROBE = "NOT (name='p7' AND hiv=1)"
CHOICES: dict[str, Any] = {
    "arm": "variant", "metrics": ["bought"], "bounds": {"bought": (0, 1)}, "resolution": {"bought": 1},
}  # fmt: skip


def people(*, p7: int = 0) -> dict[str, list[Any]]:
    """Four hundred people, of whom p7 has it or not."""
    draw = random.Random(1)
    return {
        "name": [f"p{i}" for i in range(400)],
        "variant": ["AB"[i % 2] for i in range(400)],
        "tier": [1 + i // 2 % 2 for i in range(400)],
        "bought": [int(draw.random() < 0.4) for _ in range(400)],
        "hiv": [p7 if i == 7 else int(draw.random() < 0.1) for i in range(400)],
    }


def write(folder: Path, rows: Mapping[str, list[Any]]) -> str:
    path = folder / "people.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(rows)
        writer.writerows(zip(*rows.values(), strict=True))
    return str(path)


def released(folder: Path, program: Program, *more: str, p7: int = 0) -> tuple[str, ...]:
    """Begin a ledger; return the words of a further release into it."""
    folder.mkdir(exist_ok=True)
    words = ("release", write(folder, people(p7=p7)), *FLAGS, "--ledger", str(folder / "shop.ledger"))
    first = program(*words, *more, "-o", str(folder / "a.json"), "--new-ledger")
    assert (first.code, first.err) == (0, "")
    return (*words, "-o", str(folder / "b.json"))


# ── the attack ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_whether_a_filter_is_refused_does_not_depend_on_what_anybody_has(tmp_path: Path, program: Program) -> None:
    """The attack: ask for everybody but p7 if she has it; it was refused exactly if she does."""
    answers = set()
    for p7 in (0, 1):
        words = released(tmp_path / str(p7), program, p7=p7)
        asked = program(*words, "--where", PROBE)
        answers.add((asked.code, asked.out, asked.err))
    assert answers == {
        (
            1,
            "",
            "kanab: the releases in shop.ledger were made without --where: other choices may count other people. "
            "Ask as before, or release into another ledger (--ledger FILE --new-ledger).\n",
        )
    }


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--sql", "SELECT * FROM rows WHERE name <> 'p7'"), "--sql"),
        (("--unit", "name"), "--unit"),
        (("--unit", "name", "--first-by", "tier"), "--unit, --first-by"),
        (("--unit", "name", "--aggregate", "bought=mean"), "--unit, --aggregate bought"),
        (("--decimal", ","), "--decimal"),
        (("--join", "more.csv", "--on", "name"), "--join, --on"),
        (("--unit", "name", "--events", "events.csv", "--window", "14d"), "--unit, --events, --window"),
    ],
)
def test_whatever_else_decides_who_is_counted_is_compared(
    tmp_path: Path, program: Program, flags: tuple[str, ...], named: str
) -> None:
    asked = program(*released(tmp_path, program), *flags)
    assert asked.code == 1
    assert f"were made without {named}: other choices may count other people" in asked.err


@pytest.mark.slow
def test_the_same_filter_is_the_same_population_however_it_is_spaced(tmp_path: Path, program: Program) -> None:
    words = released(tmp_path, program, "--where", "hiv  >= 0")
    assert program(*words, "--where", " hiv >=\n0").code == 0
    refused = program(*words, "--where", "hiv > -1")
    assert "were made with another --where" in refused.err
    assert "were made with another --where" in program(*words).err


def test_spaces_that_may_mean_something_are_compared() -> None:
    assert plain_text(" a  =\t1 ") == "a = 1"
    for text in ("name = 'a  b'", "hiv = 0 --\n OR name = 'p7'", 'x = "a  b"', "a /* */  b"):
        assert plain_text(text) == text


@pytest.mark.slow
def test_how_a_further_metric_is_added_up_is_free_and_how_an_earlier_one_was_is_not(
    tmp_path: Path, program: Program
) -> None:
    words = released(tmp_path, program, "--unit", "name")
    more = (*words, "--unit", "name", "--metric", "bought,tier", "--bounds", "tier=0:9", "--resolution", "tier=1")
    assert program(*more, "--aggregate", "tier=max").code == 0
    refused = program(*more, "--aggregate", "tier=mean")
    assert "were made with another --aggregate tier" in refused.err


def test_a_ledger_of_before_choices_were_recorded_compares_its_filters() -> None:
    old = read_ledger(Path(__file__).with_name("before_salts.ledger"))
    assert [release.receipt.choices for release in old.releases] == [None, None]
    check_choices({"unit": "user_id"}, old.releases)
    with pytest.raises(PrivacyError, match=r"the releases in before_salts\.ledger were made without --where"):
        check_choices({"where": "tier > 1"}, old.releases, old.name)


def test_choices_stand_in_the_receipt_and_are_read_with_it(tmp_path: Path, program: Program) -> None:
    flags = ("--sql", "SELECT * FROM rows", "--unit", "name", "--aggregate", "bought=max", "--where", "tier > 0")
    released(tmp_path, program, *flags)
    receipt = json.loads((tmp_path / "a.json").read_text())["receipt"]
    assert receipt["where"] == "tier > 0"
    assert receipt["choices"] == {"unit": "name", "aggregate of bought": "max", "sql": "SELECT * FROM rows"}
    assert receipt["ledger"] == "shop.ledger"
    assert kb.read_release(tmp_path / "a.json").receipt.choices == receipt["choices"]
    shown = json.loads(program("analyze", str(tmp_path / "a.json"), "--json").out)
    assert {name: shown["privacy"][name] for name in ("where", "choices", "ledger")} == {
        name: receipt[name] for name in ("where", "choices", "ledger")
    }
    assert "Rows are those of the query SELECT * FROM rows." in shown["notes"]
    text = " ".join(program("analyze", str(tmp_path / "a.json")).out.split())
    assert "effective k of class sums over everything in ledger shop.ledger at least" in text


def test_of_a_joined_file_the_name_is_recorded_and_not_its_folder(tmp_path: Path) -> None:
    rows = people()
    write(tmp_path, {name: rows[name] for name in ("name", "variant", "bought")})
    more = Path(write(tmp_path, {name: rows[name] for name in ("name", "tier")})).rename(tmp_path / "more.csv")
    source = write(tmp_path, {name: rows[name] for name in ("name", "variant", "bought")})
    made = kb.release(kb.count(source, **as_values("count", **CHOICES, covariates=["tier"], join=more, on=["name"])))
    assert made.receipt.choices == {"join": "more.csv", "on": "name"}
    assert "Columns were joined from more.csv by name." in kb.analyze(made).to_dict()["notes"]


# ── a ledger is begun on purpose ───────────────────────────────────────────────────────────────


def test_a_ledger_that_is_not_there_is_not_begun_silently(tmp_path: Path, program: Program) -> None:
    source, other = write(tmp_path, people()), tmp_path / "2026-11-16"
    other.mkdir()
    asked = program("release", source, *FLAGS, "-o", str(other / "a.json"))
    assert (asked.code, asked.out) == (1, "")
    assert asked.err == (
        f"kanab: there is no ledger {other / 'kanab.ledger'}. Name the one that holds what was released about these "
        "people (--ledger FILE), or begin a new one (--new-ledger, new_ledger=True).\n"
    )
    assert list(other.iterdir()) == []
    with pytest.raises(LedgerError, match="there is no ledger"):
        kb.release(kb.count(people(), **as_values("count", **CHOICES)), ledger=other / "kanab.ledger")


# ── refused attempts ───────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_refused_attempts_are_noted_before_and_after_counting(tmp_path: Path, program: Program) -> None:
    words = released(tmp_path, program)
    program(*words, "--where", PROBE)
    write(tmp_path, people() | {"bought": [0, 1] * 200})
    assert program(*words).code == 1
    assert program(*words, "--k", "5").code == 1
    ledger = read_ledger(tmp_path / "shop.ledger")
    assert [(note.kind, note.says) for note in ledger.notes] == [
        ("refused", "the releases in shop.ledger were made without --where: other choices may count other people"),
        ("refused", "an earlier release of the ledger comes out differently now: people or values have changed"),
        ("refused", "earlier releases of the ledger promise a larger k"),
    ]
    assert ledger.notes[0].asked == {"experiments": "variant", "metrics": "bought", "k": "10", "where": PROBE}
    assert [note.previous for note in ledger.notes] == list(ledger.hashes[:-1])


@pytest.mark.slow
def test_that_there_is_nobody_stands_in_no_ledger_with_epsilon(tmp_path: Path, program: Program) -> None:
    plan = tmp_path / "kanab.toml"
    plan.write_text(
        "[metrics]\nspend = { bounds = [0, 9] }\n[experiments.variant]\narms = { A = 1, B = 1 }\n"
        "[privacy]\nepsilon = 2\nper_release = 1\n"
    )
    asked = ("--plan", str(plan), "--ledger", str(tmp_path / "shop.ledger"), "-o", str(tmp_path / "shop.json"))
    there = write(tmp_path, {"variant": ["A", "B"] * 200, "spend": [1, 2] * 200})
    assert program("release", there, *asked, "--new-ledger").code == 0
    before = (tmp_path / "shop.ledger").read_bytes()
    nobody = write(tmp_path, {"variant": ["C", "D"], "spend": [1, 2]})
    refused = program("release", nobody, *asked[:-1], str(tmp_path / "other.json"), "--epsilon", "0.5")
    assert refused.code != 0
    assert "nobody is in an arm of the plan" in refused.err
    assert (tmp_path / "shop.ledger").read_bytes() == before
    assert not (tmp_path / "other.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("change", ["edited", "edited and hashed again", "removed"])
def test_a_note_that_was_changed_or_removed_is_detected(tmp_path: Path, program: Program, change: str) -> None:
    words, path = released(tmp_path, program), tmp_path / "shop.ledger"
    program(*words, "--where", PROBE)
    program(*words)
    lines = path.read_text(encoding="utf-8").splitlines()
    note = json.loads(lines[2]) | {"asked": {"where": "tier > 1"}}
    if change == "edited and hashed again":
        note["hash"] = hash_of(note)
    lines[2:3] = [] if change == "removed" else [json.dumps(note)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(LedgerError, match=r"entry [23] of shop\.ledger"):
        read_ledger(path)


def test_long_texts_are_cut_and_salted(tmp_path: Path, program: Program) -> None:
    words = released(tmp_path, program)
    program(*words, "--where", f"tier IN ({', '.join(map(str, range(9_000)))})")
    line = (tmp_path / "shop.ledger").read_text(encoding="utf-8").splitlines()[-1]
    assert len(line) < MOST_TEXT + 1_000
    note = read_ledger(tmp_path / "shop.ledger").notes[0]
    assert note.asked["where"].endswith(" …")
    assert len(bytes.fromhex(note.salt)) == 16


@pytest.mark.slow
def test_after_so_many_refused_attempts_somebody_has_to_look(tmp_path: Path, program: Program) -> None:
    words, path = released(tmp_path, program), tmp_path / "shop.ledger"
    for tier in range(MOST_REFUSED):
        assert "other choices" in program(*words, "--where", f"tier <> {tier}").err
    size = path.stat().st_size
    for flags in ((), ("--where", "tier <> 99")):  # even what would be allowed waits, and nothing grows any more
        asked = program(*words, *flags)
        assert asked.code == 1
        assert asked.err == (
            f"kanab: {MOST_REFUSED} attempts to release into shop.ledger were refused. Look at them (kanab audit), and "
            "say why that is no reason to stop: --reviewed REASON (reviewed=…).\n"
        )
    assert path.stat().st_size == size
    assert program(*words, "--reviewed", "a loop over tiers, stopped").code == 0
    ledger = read_ledger(path)
    assert (ledger.notes[-1].kind, ledger.notes[-1].says) == ("reviewed", "a loop over tiers, stopped")
    assert ledger.unreviewed == ()
    again = kb.count(people(), **as_values("count", **CHOICES, earlier=ledger.plans))
    kb.release(again, ledger=path)
    assert len(read_ledger(path).releases) == 3


@pytest.mark.slow
def test_audit_and_officer_list_refused_attempts(tmp_path: Path, program: Program) -> None:
    words = released(tmp_path, program)
    for where in (PROBE, "hiv = 0", "hiv = 1"):
        program(*words, "--where", where)
    ledger = str(tmp_path / "shop.ledger")
    text = program("audit", ledger).out
    assert text.startswith("shop.ledger: 3 refused attempts\n  refused: the releases in shop.ledger were made without")
    assert f"Asked: experiments: variant; metrics: bought; k: 10; where: {PROBE}.\n" in text
    assert "No rule is broken.\n" in text
    plain = json.loads(program("audit", str(tmp_path / "a.json"), "--ledger", ledger, "--json").out)
    assert [attempt["asked"]["where"] for attempt in plain["ledgers"]["shop.ledger"]["refused"]] == [
        PROBE, "hiv = 0", "hiv = 1",
    ]  # fmt: skip
    assert program("release", *words[1:], "--reviewed", "asked by the officer").code == 0
    assert "  refused (reviewed): the releases" in program("audit", ledger).out
    page = tmp_path / "report.html"
    assert program("privacy-report", str(tmp_path / "a.json"), "--ledger", ledger, "-o", str(page)).code == 0
    html = page.read_text(encoding="utf-8")
    assert "3 refused attempts" in html
    assert "where: NOT (name=&#x27;p7&#x27; AND hiv=1)" in html
    assert "Why they were no reason to stop: asked by the officer" in html
    account = json.loads(program("privacy-report", str(tmp_path / "a.json"), "--ledger", ledger, "--json").out)
    assert [len(account["ledger"][name]) for name in ("refused", "reviews", "entries")] == [3, 1, 2]
    assert [entry["entry"] for entry in account["ledger"]["entries"]] == [1, 6]


def test_a_job_that_asks_for_every_new_period_is_noted_once() -> None:
    notes = [LedgerNote("refused", "an arm is too small", {"k": "10", "cohorts": f"through {day}"}) for day in (1, 2)]
    assert notes[0].same(notes[1])
    assert not notes[0].same(LedgerNote("refused", "an arm is too small", {"k": "20", "cohorts": "through 2"}))


def test_a_ledger_that_holds_releases_is_not_begun_again(tmp_path: Path, program: Program) -> None:
    asked = program(*released(tmp_path, program), "--new-ledger")
    assert asked.code == 1
    assert asked.err == (
        "kanab: shop.ledger holds releases already. Leave out --new-ledger (new_ledger), or name another file "
        "(--ledger).\n"
    )
