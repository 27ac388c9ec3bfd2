"""kanab audit adds up again what releases with ε have spent, and compares it with what they state."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.unit.cli.conftest import program as program
from tests.unit.cli.program import Program
from tests.unit.privacy.epsilon.test_accountant import both_kinds, counted, noise

import kanab as kb
from kanab.datasets import shop_rows
from kanab.inspection.auditor import check_newest, check_release, check_spent, check_together, passes
from kanab.inspection.officer.account import privacy_account
from kanab.plan.model import Budget
from kanab.privacy.ledger import Ledger, append_release, read_ledger
from kanab.privacy.release import Release


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path, half = tmp_path / "kanab.ledger", counted("epsilon = 1\nper_release = 0.5")
    for number, epsilon in enumerate((0.5, 0.4)):
        kb.write_release(
            kb.release(half, epsilon=epsilon, ledger=path, new_ledger=not number), tmp_path / f"{number}.json"
        )
    return path


def budget_of(release: Release) -> Budget:
    assert release.plan.budget is not None
    return release.plan.budget


def stating(release: Release, **changes: float) -> Release:
    return replace(release, receipt=replace(release.receipt, noise=replace(noise(release), **changes)))


def test_the_command_adds_up_what_a_ledger_has_spent(ledger: Path, program: Program) -> None:
    said = program("audit", str(ledger))
    assert said.code == 0
    assert "holds: account - added up again, ε = 0.654 of 1 was spent when it was released." in said.out
    assert "holds: account - together they spend ε = 0.654 at δ = 1e-06, which is within their total of 1." in said.out
    assert "holds: newest copy" in said.out
    files = program("audit", str(ledger.with_name("0.json")), str(ledger.with_name("1.json")))
    assert files.code == 0
    assert "holds: noise - discrete Gaussian noise in every number, of the scales that ε = 0.4, δ = 1e-06" in files.out


def test_a_receipt_that_states_less_than_was_spent_is_broken(ledger: Path) -> None:
    releases = read_ledger(ledger).releases
    second = stating(releases[1], spent=0.4)
    forged = append_release(ledger.with_name("forged"), Ledger(), replace(releases[0], previous=""))
    forged = append_release(ledger.with_name("forged"), forged, replace(second, previous=forged.head))
    check = check_spent(forged.releases[1], noise(second), forged)
    assert check.holds is False
    assert check_spent(forged.releases[0], noise(releases[0]), forged).holds


def test_more_than_the_total_over_files_is_broken(ledger: Path) -> None:
    releases = read_ledger(ledger).releases
    promised = [replace(release.plan, budget=replace(budget_of(release), epsilon=0.6)) for release in releases]
    small = [replace(stating(release, total=0.6), plan=plan) for release, plan in zip(releases, promised, strict=True)]
    assert [check.holds for check in check_together(small)] == [False]
    assert [check.holds for check in check_together(releases)] == [True]
    alone = [kb.release(counted("epsilon = 1")) for _ in range(2)]
    assert [check.holds for check in check_together(alone)] == [None]
    assert not list(check_together([*releases[:1], *releases[:1]]))  # the same one twice


def test_a_ledger_of_before_that_has_both_kinds_is_broken(tmp_path: Path, program: Program) -> None:
    ledger = both_kinds(tmp_path / "kanab.ledger")
    exact, noisy = ledger.releases
    assert check_spent(noisy, noise(noisy), ledger).holds is False
    assert [check.holds for check in check_together([kb.release(counted()), noisy])] == [None]  # other people, perhaps
    said = program("audit", str(tmp_path / "kanab.ledger"))
    assert said.code == 1
    assert "BROKEN: account - the rule: a ledger is with ε or without" in said.out
    account = privacy_account({"k.json": exact, "e.json": noisy}, ledger)
    assert account["verdict"]["short"].startswith("BROKEN: account in e.json")


def test_stated_noise_that_is_not_the_plans_is_broken(ledger: Path) -> None:
    release = read_ledger(ledger).releases[0]
    assert passes(check_release(release))
    assert [check.rule for check in check_release(stating(release, epsilon=0.6)) if check.holds is False] == ["noise"]
    told = replace(release, receipt=replace(release.receipt, clamped={"bought": 3}))
    assert [check.rule for check in check_release(told) if check.holds is False] == ["receipt"]
    shaped = replace(release, receipt=replace(release.receipt, shapes={"checkout": {"spend": (4.0, 0.5)}}))
    assert [check.rule for check in check_release(shaped) if check.holds is False] == ["receipt"]


def test_an_older_copy_is_broken_on_the_machine_that_knows(ledger: Path) -> None:
    whole = read_ledger(ledger)
    newest = check_newest(whole)
    assert newest is not None
    assert newest.holds
    older = check_newest(replace(whole, entries=whole.entries[:1], hashes=whole.hashes[:1]))
    assert older is not None
    assert older.holds is False
    assert check_newest(Ledger()) is None


def test_a_release_without_its_ledger_is_not_evaluated(ledger: Path) -> None:
    release = read_ledger(ledger).releases[0]
    assert check_spent(release, noise(release), None).holds is None
    alone = kb.release(counted("epsilon = 1"))
    assert check_spent(alone, noise(alone), None).holds is None
    assert check_spent(release, noise(release), Ledger()).holds is False


def test_fewer_than_k_people_with_or_without_a_value_are_found_in_a_file() -> None:
    rows = shop_rows(900)
    made = kb.release(kb.count(rows, arm="variant", metrics=[kb.Mean("spend", bounds=(0, 500), missing="exclude")]))
    (name, table), (part,) = next(iter(made.tables.items())), made.tables["variant"].moments
    fewer = replace(part, counts=part.counts - np.array([3, 0], dtype=object))
    changed = replace(made, tables={name: replace(table, moments=(fewer,))})
    assert [(check.holds, check.classes) for check in check_release(changed) if check.rule == "k"] == [(False, 1)]
    assert [check.holds for check in check_release(made) if check.rule == "k"] == [True]
