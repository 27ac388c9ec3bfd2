"""`kb.audit` and `kb.attack`: what the commands do, from Python."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import kanab as kb
from kanab.cli.main import cli
from kanab.datasets import shop_rows
from kanab.errors import ArgumentError, SourceError
from kanab.privacy.ledger import read_ledger

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
