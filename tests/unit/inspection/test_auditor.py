"""kanab audit adds up again what releases with ε have spent, and compares it with what they state."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from tests.unit.cli.conftest import program as program
from tests.unit.cli.program import Program
from tests.unit.privacy.epsilon.test_accountant import both_kinds, counted, noise

import kanab as kb
from kanab.cli.main import cli
from kanab.datasets import shop_rows
from kanab.errors import ArgumentError, SourceError
from kanab.inspection.auditor import check_release, check_spent, check_together, passes
from kanab.inspection.officer.account import privacy_account
from kanab.inspection.promises import NOT_COVERED, PROMISES, RULES
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


ROWS = shop_rows(1_003, 7)
METRICS = [kb.Mean("bought", bounds=(0, 1), resolution=1), kb.Mean("spend", bounds=(0, 500), resolution=0.01)]


def made(people: int = 1_003, **choices: Any) -> kb.Release:
    rows = {name: values[:people] for name, values in ROWS.items()}
    return kb.release(kb.count(rows, arm="variant", metrics=METRICS, segments=["tier"]), **choices)


@pytest.mark.parametrize("command", ["audit", "attack"])
def test_python_and_the_command_say_the_same_of_files_and_ledgers(command: str, tmp_path: Path) -> None:
    ledger, file = tmp_path / "kanab.ledger", tmp_path / "shop.json"
    kb.write_release(made(ledger=ledger, new_ledger=True), file)
    for path in (file, ledger):
        report = getattr(kb, command)(path)
        run = CliRunner().invoke(cli, [command, str(path), "--json"])
        assert report.passed
        assert run.exit_code == 0
        assert json.loads(run.output) == json.loads(json.dumps(report.to_dict()))
        assert CliRunner().invoke(cli, [command, str(path)]).output == f"{report}\n"


def test_values_are_audited_and_attacked_as_their_files_are(tmp_path: Path) -> None:
    ledger = tmp_path / "kanab.ledger"
    first = made(ledger=ledger, new_ledger=True)
    kb.write_release(first, tmp_path / "shop.json")
    by_value = kb.audit({"shop.json": first}, ledger=read_ledger(ledger))
    assert by_value == kb.audit(tmp_path / "shop.json")
    assert [check.rule for check in by_value.files["shop.json"] if check.holds is None] == []
    assert kb.audit(first).files["release 1"][-1].says == "its ledger was not given; name it with --ledger"
    assert kb.audit(read_ledger(ledger)).files.keys() == {"kanab.ledger, entry 1"}
    assert kb.attack({"shop.json": first}).to_dict() == kb.attack(tmp_path / "shop.json").to_dict()


def test_growing_data_break_both() -> None:
    releases = {"monday": made(1_000), "tuesday": made(1_003)}
    audited, attacked = kb.audit(releases), kb.attack(releases)
    assert [check.rule for check in audited.broken] == ["differences"]
    assert {finding.attack for finding in attacked.findings} == {"differences"}
    assert not audited.passed and not attacked.passed  # noqa: PT018


def test_what_an_attacker_knows_is_a_dict_of_columns() -> None:
    known = {name: ROWS[name].tolist() for name in ("variant", "tier", "bought", "spend", "country")}
    attacked = kb.attack(made(), known=known)
    assert attacked.passed
    assert not any(attempt.not_tried for attempt in attacked.attempts)
    with pytest.raises(SourceError, match="columns of known differ in length"):
        kb.attack(made(), known=known | {"tier": [1]})
    with pytest.raises(SourceError, match="'spend' is a metric, and needs numbers"):
        kb.attack(made(), known=known | {"spend": ["much"] * 1_003})
    with pytest.raises(ArgumentError, match="k must be at least 2"):
        kb.attack(made(), k=1)


def test_what_is_no_release_is_refused_and_what_cannot_be_read_is_a_broken_rule(tmp_path: Path) -> None:
    (tmp_path / "shop.json").write_text("{}", encoding="utf-8")
    assert [check.rule for check in kb.audit(tmp_path / "shop.json").broken] == ["unchanged"]
    for use in (kb.audit, kb.attack):
        with pytest.raises(SourceError, match=r"there is no file 'nothing\.json'"):
            use(tmp_path / "nothing.json")
        with pytest.raises(SourceError, match="that is not a release"):
            use([5])
        with pytest.raises(SourceError, match="there is no release"):
            use([])


PAGE = (Path(__file__).parents[3] / "docs" / "privacy.md").read_text(encoding="utf-8").replace("`", "")


def test_the_page_and_the_programs_say_the_same_about_what_k_does_not_cover() -> None:
    table = PAGE.split("## What k does not cover", 1)[1].split("\n\n", 2)[1]
    rows = [tuple(cell.strip().lower() for cell in row.strip("|").split("|")) for row in table.split("\n")[2:]]
    assert rows == [(what, example.rstrip(".").lower()) for what, example in NOT_COVERED]


def test_the_page_says_what_the_promises_say() -> None:
    says = [re.sub(r"\W+", " ", text).lower() for _, _, text, _ in PROMISES]
    page = re.sub(r"\W+", " ", re.sub(r"\]\([^)]*\)", "]", PAGE)).lower()
    assert says[0].strip() in page
    assert "whoever knows everybody else learns next to nothing about you" in says[1]
    assert "whoever knows everybody else learns next to nothing about you" in page
    assert len(RULES) == 4
