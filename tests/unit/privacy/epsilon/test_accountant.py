"""A ledger as an accountant: what would overspend is refused, what was asked for before is the same file."""

import csv
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.shop import shop_rows
from tests.unit.cli.program import Program

import kanab as kb
from kanab.cli.release import _write
from kanab.errors import LedgerError, PrivacyError
from kanab.plan.file import parse_plan
from kanab.plan.model import Budget, Cohorts
from kanab.privacy.epsilon import mechanism
from kanab.privacy.epsilon.accountant import NO_LEDGER
from kanab.privacy.epsilon.rho import epsilon_of, rho_of
from kanab.privacy.ledger import Ledger, append_release, hold_ledger, read_ledger, witness_folder
from kanab.privacy.release import Release

PLAN = """
[metrics]
bought = { kind = "binary" }
[covariates]
device = ["phone", "desktop"]
[experiments.variant]
arms = { A = 1, B = 1 }
adjust = ["device"]
"""
EXACT = PLAN.replace("bought", "visited")


def shop(n: int = 2000) -> dict[str, list[Any]]:
    rng = np.random.default_rng(2)
    days = [f"2026-09-{day:02d}" for day in rng.integers(7, 28, n)]
    rows = shop_rows(n, visited=(rng.random(n) < 0.6).astype(int), enrolled=days)
    return {name: np.asarray(rows[name]).tolist() for name in ("variant", "device", "bought", "visited", "enrolled")}


ROWS = shop()


def counted(privacy: str = "", text: str = PLAN) -> kb.Counted:
    return kb.count(ROWS, parse_plan(text + (f"[privacy]\n{privacy}" if privacy else "")))


def noise(release: Release) -> Any:
    assert release.receipt.noise is not None
    return release.receipt.noise


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return witness_folder()


def test_releases_add_up_as_rho_and_say_what_is_spent_and_left(tmp_path: Path) -> None:
    ledger = tmp_path / "shop.ledger"
    half = counted("epsilon = 1\nper_release = 0.5")
    first = noise(kb.release(half, ledger=ledger, new_ledger=True))
    assert (first.epsilon, first.total) == (0.5, 1)
    assert first.spent == pytest.approx(0.5)
    second = noise(kb.release(half, epsilon=0.4, ledger=ledger))
    rho = rho_of(0.5, 1e-6) + rho_of(0.4, 1e-6)
    assert second.spent == pytest.approx(epsilon_of(rho, 1e-6))
    assert second.left == pytest.approx(epsilon_of(rho_of(1, 1e-6) - rho, 1e-6))
    assert len(read_ledger(ledger).noisy) == 2


HALF = "epsilon = 1\nper_release = 0.5"


@pytest.mark.parametrize(
    ("before", "asked", "epsilon", "refusal"),
    [
        ("epsilon = 1", "epsilon = 1", 0.1, r"total of ε = 1 per person does not allow another release of ε = 0\.1"),
        ("epsilon = 1\nstores = 3", "epsilon = 1\nstores = 3", 0.1, "total of ε = 1 per person does not allow"),
        (HALF, "epsilon = 2\nper_release = 0.5", None, "promise a total of ε = 1"),  # it may fall but not rise
        ("epsilon = 0.8\nper_release = 0.2", "epsilon = 1\nper_release = 0.1", None, r"promise a total of ε = 0\.8"),
        (HALF, "epsilon = 1\nper_release = 0.2\ndelta = 1e-7", None, "at δ = 1e-06"),
        (HALF, "", None, "the ledger is one with ε, and this release is without"),
        ("", "epsilon = 1", None, "has releases without ε, about whose people an ε promises nothing"),
    ],
)
def test_what_a_ledger_does_not_allow_is_refused_before_anything_is_drawn(
    before: str, asked: str, epsilon: float | None, refusal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = tmp_path / "shop.ledger"
    kb.release(counted(before, PLAN if before else EXACT), ledger=ledger, new_ledger=True)
    monkeypatch.setattr(mechanism, "draw", lambda *_: pytest.fail("drawn"))
    with pytest.raises(PrivacyError, match=refusal):
        kb.release(counted(asked), epsilon=epsilon, ledger=ledger)
    held = read_ledger(ledger)
    assert len(held.releases) == 1
    assert held.notes[-1].asked.get("epsilon", "").startswith(str(epsilon or ""))


@pytest.mark.parametrize(
    ("privacy", "asked", "refusal"),
    [
        ("", {"delta": 1e-6}, "delta is given without epsilon"),
        ("", {"epsilon": 1, "delta": 0.5}, "delta must be a small probability"),
        ("epsilon = 1", {"epsilon": 1, "delta": 1e-5}, "delta is not that of the plan"),
        ("epsilon = 1", {"epsilon": 2}, "may not spend more than the plan's total"),
        ("epsilon = 1", {"epsilon": float("nan")}, "epsilon must"),
    ],
)
def test_what_contradicts_the_plan_is_refused(privacy: str, asked: dict[str, float], refusal: str) -> None:
    with pytest.raises(PrivacyError, match=refusal):
        kb.release(counted(privacy), **asked)


def test_the_same_release_asked_for_twice_is_taken_from_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = tmp_path / "shop.ledger"
    first = kb.release(counted("epsilon = 1"), ledger=ledger, new_ledger=True)
    monkeypatch.setattr(mechanism, "draw", lambda *_: pytest.fail("drawn"))
    again = kb.release(counted("epsilon = 1"), epsilon=1, delta=1e-6, ledger=ledger)
    assert again.salt == first.salt
    assert all(again.tables[name] == table for name, table in first.tables.items())
    assert len(read_ledger(ledger).entries) == 1


def test_without_a_total_in_the_plan_the_ledgers_holds(tmp_path: Path) -> None:
    ledger = tmp_path / "shop.ledger"
    kb.release(counted("epsilon = 2\nper_release = 1"), ledger=ledger, new_ledger=True)
    second = noise(kb.release(counted(), epsilon=0.5, ledger=ledger))
    assert (second.epsilon, second.total) == (0.5, 2)


def both_kinds(path: Path) -> Ledger:
    """A ledger of before, which took both kinds because its plan said why."""
    budget = Budget(1.0, per_release=0.5, beside_exact="a pilot")
    plans = parse_plan(EXACT), replace(parse_plan(PLAN), budget=budget)
    ledger = Ledger(name=path.name)
    for made in (kb.release(kb.count(ROWS, plan)) for plan in plans):
        chained = replace(made, receipt=replace(made.receipt, ledger=path.name), previous=ledger.head)
        ledger = append_release(path, ledger, chained)
    return ledger


def test_a_ledger_of_before_that_has_both_kinds_is_read_and_takes_neither(tmp_path: Path) -> None:
    path = tmp_path / "shop.ledger"
    both_kinds(path)
    ledger = read_ledger(path)
    assert [release.plan.budget and release.plan.budget.beside_exact for release in ledger.releases] == [
        None,
        "a pilot",
    ]
    for asked in (counted(text=EXACT), counted("epsilon = 1\nper_release = 0.1")):
        with pytest.raises(PrivacyError, match=r"the ledger (is one with|has releases without) ε"):
            kb.release(asked, ledger=path)
    assert len(read_ledger(path).releases) == 2


def test_what_stores_and_ledgers_share_is_divided_among_them(tmp_path: Path) -> None:
    path = tmp_path / "shop.ledger"
    third = kb.release(counted("epsilon = 1\nstores = 3"), ledger=path, new_ledger=True)
    assert noise(third).total == 1
    assert noise(third).epsilon == pytest.approx(epsilon_of(rho_of(1, 1e-6) / 3, 1e-6), rel=1e-5)
    assert noise(third).left == 0
    assert read_ledger(path).releases[0].receipt == third.receipt


def test_of_a_part_of_the_total_something_is_left(tmp_path: Path) -> None:
    path, half = tmp_path / "shop.ledger", "epsilon = 1\nshares = { variant = 0.5 }"
    first = noise(kb.release(counted(half), ledger=path, new_ledger=True))
    assert first.epsilon == pytest.approx(first.spent, rel=1e-5) == pytest.approx(0.6905, abs=1e-4)
    assert first.left == pytest.approx(first.spent)
    second = kb.release(counted(half, text=PLAN.replace("bought", "visited")), ledger=path)
    assert (noise(second).spent, noise(second).left) == (pytest.approx(1), 0)


def test_other_rows_are_other_people_for_k_and_the_same_account_for_epsilon(tmp_path: Path) -> None:
    ledger = tmp_path / "shop.ledger"
    half = parse_plan(PLAN + "[privacy]\nepsilon = 1\nper_release = 0.5")
    kb.release(kb.count(ROWS, half), ledger=ledger, new_ledger=True)
    kb.release(replace(kb.count(ROWS, half), where="device = 'phone'"), ledger=ledger)
    assert [release.receipt.where for release in read_ledger(ledger).noisy] == ["", "device = 'phone'"]
    with pytest.raises(PrivacyError, match="were made without --unit"):
        kb.release(replace(kb.count(ROWS, half), choices={"unit": "id"}), epsilon=0.1, ledger=ledger)


@pytest.mark.usefixtures("gated")
def test_rows_are_not_read_by_a_plan_with_epsilon() -> None:
    with pytest.raises(PrivacyError, match="reading the rows would spend it each time"):
        kb.readout(ROWS, plan=parse_plan(PLAN + "[privacy]\nepsilon = 1"))


def test_the_salt_that_arms_are_drawn_by_is_not_published() -> None:
    plan = parse_plan(PLAN.replace("adjust", 'salt = "secret"\nadjust'))
    assert kb.release(kb.count(ROWS, plan), epsilon=1).plan.experiment().salt is None


# ── the command ────────────────────────────────────────────────────────────────────────────────

Words = tuple[str, ...]


@pytest.fixture
def words(tmp_path: Path) -> Words:
    source, plan = tmp_path / "visits.csv", tmp_path / "kanab.toml"
    with source.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(ROWS)
        writer.writerows(zip(*ROWS.values(), strict=True))
    plan.write_text(PLAN, encoding="utf-8")
    return "release", str(source), "--plan", str(plan), "-o", str(tmp_path / "a.json"), "--epsilon", "1"


def test_the_command_says_what_was_spent_and_what_is_left(words: Words, tmp_path: Path, program: Program) -> None:
    (tmp_path / "kanab.toml").write_text(f"{PLAN}[privacy]\nepsilon = 2\n", encoding="utf-8")
    said = program(*words, "--new-ledger")
    assert said.err == ""
    assert said.out.splitlines()[:3] == [
        f"{tmp_path / 'a.json'}: 2 tables, noise in every number: ε = 1 at δ = 1e-06; "
        "classes of at least k = 10 people, by counts with noise.",
        "- A new ledger was begun: kanab.ledger.",
        "- Spent in all: ε = 1 of 2. A further release about these people may spend up to ε = 1.678.",
    ]
    before = (tmp_path / "a.json").read_text()
    (tmp_path / "a.json").unlink()
    again = program(*words)
    assert "- Taken from the ledger, where the same was asked for: nothing was drawn or spent." in again.out
    assert (tmp_path / "a.json").read_text() == before


def test_the_command_without_a_ledger_says_that_nobody_adds_up(words: Words, program: Program) -> None:
    said = program(*words, "--no-ledger").out
    assert "- Spent: ε = 1, and nobody adds up what else was spent about these people." in said
    assert f"- Deviation: {NO_LEDGER}." in said


def test_a_file_that_cannot_be_written_costs_nothing(words: Words, tmp_path: Path, program: Program) -> None:
    ledger = ("--ledger", str(tmp_path / "shop.ledger"), "--new-ledger")
    gone = tuple(str(tmp_path / "gone" / "a.json") if word.endswith("a.json") else word for word in words)
    assert program(*gone, *ledger).code == 2
    assert not read_ledger(tmp_path / "shop.ledger").releases


def test_cohorts_with_epsilon_are_other_people_so_the_largest_counts(
    words: Words, tmp_path: Path, program: Program
) -> None:
    cohorts = ("--cohort", "enrolled", "--window", "7d", "--every", "7d", "--as-of")
    assert program(*words, *cohorts, "2026-09-22", "--new-ledger").err == ""
    again = program(*words, *cohorts, "2026-09-22")
    assert "Taken from the ledger" in again.out
    other = program(*words[:-1], "0.5", *cohorts, "2026-09-22")
    assert "no further cohort is ripe" in other.err
    plan = replace(parse_plan(f"{PLAN}[privacy]\nepsilon = 1"), cohorts=Cohorts("7d", "7d"))
    week = kb.plan.Span("enrolled", "7d", "2026-W37", "2026-W38")
    second = kb.release(kb.count(ROWS, plan, rows=kb.Rows(span=week)), ledger=tmp_path / "kanab.ledger")
    assert (noise(second).spent, noise(second).left) == (pytest.approx(1), 0)
    batches = [release.receipt.batch for release in read_ledger(tmp_path / "kanab.ledger").noisy]
    assert [batch and batch.through for batch in batches] == ["2026-W37", "2026-W38"]


def test_batches_keep_the_map_of_the_first_and_their_noise_adds_up(tmp_path: Path) -> None:
    plan = replace(parse_plan(f"{PLAN}[privacy]\nepsilon = 1"), cohorts=Cohorts("7d", "7d"))
    rows, ledger = shop(9000), tmp_path / "shop.ledger"
    for after, through in ((None, "2026-W37"), ("2026-W37", "2026-W38")):
        week = kb.count(rows, plan, rows=kb.Rows(span=kb.plan.Span("enrolled", "7d", after, through)))
        kb.release(week, ledger=ledger, new_ledger=after is None)
    first, second = read_ledger(ledger).releases
    assert first.receipt.maps == second.receipt.maps
    both = kb.add_releases([first, second])
    for name, table in both.tables.items():
        batches = [first.tables[name], second.tables[name]]
        assert np.array_equal(table.people, batches[0].people + batches[1].people)
        assert table.noise is not None
        assert np.allclose(
            table.noise.people.astype(float), sum(each.noise.people.astype(float) for each in batches if each.noise)
        )
    stated, alone = noise(both).scales["variant"], noise(first).scales["variant"]
    assert stated["people by variant"] == pytest.approx(2**0.5 * alone["people by variant"], rel=1e-5)
    assert noise(both).epsilon == pytest.approx(noise(both).spent) == pytest.approx(1)
    assert kb.analyze(both).effects
    with pytest.raises(PrivacyError, match="is not a release of its own"):
        kb.write_release(both, tmp_path / "both.json")
    week = kb.plan.Span("enrolled", "7d", "2026-W38", "2026-W39")
    exact = kb.release(kb.count(rows, replace(plan, budget=None), rows=kb.Rows(span=week)))
    with pytest.raises(PrivacyError, match="some of these releases have an ε"):
        kb.add_releases([first, exact])


BAD_PLANS = {
    "needs the bounds of 'bought'": ("--arms", "A,B"),
    "needs the arms of 'variant'": ("--bounds", "bought=0:1"),
    "needs the levels of 'device'": ("--bounds", "bought=0:1", "--arms", "A,B", "--covariate", "device"),
    "arms were assigned to clusters": ("--bounds", "bought=0:1", "--arms", "A,B", "--cluster", "device"),
    "epsilon must lie between": ("--epsilon", "0"),
    "epsilon must be a finite number": ("--epsilon", "nan"),
    "delta must be a small probability": ("--delta", "0.5"),
    "'one' is not a valid float": ("--epsilon", "one"),
}


@pytest.mark.parametrize("said", BAD_PLANS)
def test_what_is_not_declared_is_refused_before_a_ledger_is_begun(
    said: str, words: Words, tmp_path: Path, program: Program
) -> None:
    before = {*tmp_path.iterdir()}
    asked = ("release", words[1], "--arm", "variant", "--metric", "bought", "-o", words[5], "--epsilon", "1")
    refused = program(*asked, *BAD_PLANS[said], "--new-ledger")
    assert refused.code != 0
    assert said in refused.err
    assert {*tmp_path.iterdir()} == before


# ── crashes, two processes, backups ────────────────────────────────────────────────────────────


def killed_at(step: int, folder: Path, run: Callable[[], None]) -> bool:
    """Run in a process of its own that is killed before a step that touches a file; tell whether it was."""
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # a lock of a thread that was not forked: killed here, then
        left = step

        def watch(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal left
            if event.startswith(("open", "os.")) and any(str(folder) in str(word) for word in arguments):
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            run()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def draws(folder: Path) -> set[str]:
    """Return the hashes of all releases that lie in a folder, in files of any name."""
    lines = [line for file in folder.iterdir() if file.is_file() for line in file.read_text().splitlines()]
    whole = [(folder / "a.json").read_text()] if (folder / "a.json").exists() else []
    entries = [
        json.loads(text) for text in (*whole, *(line for line in lines if '"tables"' in line and line[0] == "{"))
    ]
    return {entry["hash"] for entry in entries if isinstance(entry, dict) and "tables" in entry}


@pytest.mark.slow
def test_killed_at_every_step_a_release_is_drawn_once_or_nobody_has_seen_it(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    path, asked = folder / "shop.ledger", counted("epsilon = 1")
    flags = {"k": None, "override": "", "output": str(folder / "a.json")}

    def run() -> None:
        with hold_ledger(path) as held:
            pass
        _write(asked, path, held, (), flags)

    step, kills, kept = 0, 0, 0
    while True:
        folder.mkdir()
        killed = killed_at(step, folder, run)
        seen = draws(folder)
        run()
        ledger = read_ledger(path)
        assert len(ledger.noisy) == 1
        assert seen <= {ledger.head} == draws(folder)
        assert not (folder / ".shop.ledger.next").exists()
        kills, kept, step = kills + killed, kept + bool(seen and killed), step + 1
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
        if not killed:
            break
    assert kills > 10
    assert kept > 2


def test_a_torn_entry_is_removed_and_a_whole_one_is_taken_up(tmp_path: Path) -> None:
    ledger, left = tmp_path / "shop.ledger", tmp_path / ".shop.ledger.next"
    half = counted("epsilon = 1\nper_release = 0.5")
    kb.release(half, ledger=ledger, new_ledger=True)
    before = ledger.read_text()
    second = kb.release(half, epsilon=0.2, ledger=ledger)
    after = ledger.read_text()
    ledger.write_text(before)
    left.write_text(after[:-10])
    with pytest.raises(LedgerError, match="older copy"), hold_ledger(ledger):
        pass
    assert not left.exists()
    left.write_text(after)
    assert kb.release(half, epsilon=0.2, ledger=ledger).salt == second.salt
    assert ledger.read_text() == after


def test_the_command_notices_a_restored_backup_of_the_ledger(words: Words, tmp_path: Path, program: Program) -> None:
    (tmp_path / "kanab.toml").write_text(f"{PLAN}[privacy]\nepsilon = 1\n", encoding="utf-8")
    ledger, third = tmp_path / "kanab.ledger", tmp_path / "c.json"
    assert program(*words[:-1], "0.5", "--new-ledger").code == 0
    backup = ledger.read_text()
    assert program(*words[:4], "-o", str(tmp_path / "b.json"), "--epsilon", "0.4").code == 0
    newest = ledger.read_text()
    ledger.write_text(backup)
    refused = program(*words[:4], "-o", str(third), "--epsilon", "0.4")
    assert refused.code == 1
    assert "kanab.ledger is an older copy: entries that followed it are missing, and what they spent." in refused.err
    assert (ledger.read_text(), third.exists()) == (backup, False)
    audited = program("audit", str(ledger))
    assert (audited.code, "BROKEN: newest copy" in audited.out) == (1, True)
    ledger.write_text(newest)
    assert program(*words[:4], "-o", str(third), "--epsilon", "0.4").code == 0
    assert third.read_text() == (tmp_path / "b.json").read_text()


# ── an older copy is noticed: the witness is kept apart ──────────────────────────────────────────


def test_a_copy_that_went_another_way_is_refused(tmp_path: Path) -> None:
    ledger, copy = tmp_path / "shop.ledger", tmp_path / "copy.ledger"
    half = counted("epsilon = 1\nper_release = 0.5")
    kb.release(half, ledger=ledger, new_ledger=True)
    copy.write_text(ledger.read_text())
    kb.release(half, epsilon=0.2, ledger=ledger)
    with pytest.raises(LedgerError, match=r"copy\.ledger is an older copy"):
        kb.release(half, epsilon=0.2, ledger=copy)


def test_the_witness_holds_a_number_and_a_hash(tmp_path: Path, state: Path) -> None:
    ledger = tmp_path / "shop.ledger"
    kb.release(counted("epsilon = 1"), ledger=ledger, new_ledger=True)
    head = read_ledger(ledger).head
    assert [(file.name, file.read_text()) for file in state.iterdir()] == [(head, f"kanab-ledger-witness/1 1 {head}\n")]


def test_a_ledger_without_epsilon_has_no_witness(tmp_path: Path, state: Path) -> None:
    kb.release(counted(text=EXACT), ledger=tmp_path / "shop.ledger", new_ledger=True)
    assert not state.exists()


def test_a_damaged_witness_is_refused_with_its_name(tmp_path: Path, state: Path) -> None:
    ledger = tmp_path / "shop.ledger"
    kb.release(counted("epsilon = 1"), ledger=ledger, new_ledger=True)
    (file,) = state.iterdir()
    file.write_text("torn")
    with pytest.raises(LedgerError, match=f"delete kanab/ledgers/{file.name}"):
        kb.release(counted("epsilon = 1"), epsilon=0.5, ledger=ledger)


def test_where_nothing_can_be_noted_nothing_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(LedgerError, match="Set XDG_STATE_HOME"):
        kb.release(counted("epsilon = 1"), ledger=tmp_path / "shop.ledger", new_ledger=True)
    assert not (tmp_path / "shop.ledger").exists()
