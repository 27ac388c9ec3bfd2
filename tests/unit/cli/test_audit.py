from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from tests.described import as_values

import kanab as kb
from kanab.cli.audit import audit
from kanab.collector.stores.sqlite import SqliteStore
from kanab.errors import SourceError
from kanab.inspection.promises import NOT_IN_A_BATCH, NOT_IN_A_FILE
from kanab.plan.file import plan_digest, plan_from_dict
from kanab.privacy.ledger import Ledger, read_ledger
from kanab.privacy.release_json import hash_of, release_to_dict


def run(*words: str) -> Result:
    return CliRunner().invoke(audit, list(words))


def shop(n: int = 900, seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "variant": rng.choice(["A", "B"], n),
        "tier": rng.choice([1, 2, 3], n),
        "device": rng.choice(["phone", "desktop"], n),
        "spend": np.round(rng.gamma(2, 10, n), 2),
        "bought": rng.random(n) < 0.3,
    }


def counted(rows: dict[str, Any] | None = None, **choices: Any) -> kb.Counted:
    given: dict[str, Any] = {"bounds": {"spend": (0, 500)}, "resolution": {"spend": 0.01}, "covariates": ["tier"]}
    return kb.count(rows or shop(), **as_values("count", arm="variant", metrics=["spend", "bought"], **given | choices))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = kb.release(counted(), ledger=tmp_path / "kanab.ledger", new_ledger=True)
    kb.write_release(found, tmp_path / "shop.json")
    return tmp_path / "shop.json"


def changed(file: Path, change: Any) -> Path:
    """The file with a change and a hash that fits it."""
    data = json.loads(file.read_text(encoding="utf-8"))
    change(data)
    data["hash"] = hash_of(data)
    other = file.with_name("changed.json")
    other.write_text(json.dumps(data), encoding="utf-8")
    return other


def test_where_nothing_is_sealed_there_is_nothing_to_check_and_nothing_broken(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "data" / "store.db").close()
    result = run(str(tmp_path / "data"))
    assert (result.exit_code, result.output) == (
        0,
        "data\n  not evaluated: unchanged - nothing is sealed in data yet, so there is nothing to check.\n\n"
        "No rule is broken.\n",
    )
    assert json.loads(run(str(tmp_path / "data"), "--json").output)["passed"]


def test_a_release_of_ours_passes_every_rule(file: Path) -> None:
    result = run(str(file))
    assert result.exit_code == 0, result.output
    assert "No rule is broken.\nk does not cover: arithmetic with values; classes where everybody" in result.output
    assert result.output.count("  holds: ") == 8
    data = json.loads(run(str(file), "--json").output)
    assert data["passed"] is True
    assert [one["rule"] for one in data["files"]["shop.json"]] == [
        "k", "overlap", "contributors", "sensitive values", "totals", "squares", "bounds", "ledger",
    ]  # fmt: skip


def test_a_ledger_is_audited_entry_by_entry(file: Path) -> None:
    ledger = file.with_name("kanab.ledger")
    kb.release(counted(covariates=["device"], earlier=read_ledger(ledger).plans), ledger=ledger)
    result = run(str(ledger))
    assert result.exit_code == 0, result.output
    assert "kanab.ledger, entry 2" in result.output
    assert "differences - no two releases differ" in result.output


def test_an_edited_file_is_a_broken_rule(file: Path) -> None:
    file.write_text(file.read_text(encoding="utf-8").replace('"k": 10', '"k": 11'), encoding="utf-8")
    result = run(str(file))
    assert result.exit_code == 1
    assert "BROKEN: unchanged - the rule: the release has been changed since it was made" in result.output


def test_an_edited_ledger_is_a_broken_rule(file: Path) -> None:
    ledger = file.with_name("kanab.ledger")
    ledger.write_text(ledger.read_text(encoding="utf-8").replace('"k": 10', '"k": 11'), encoding="utf-8")
    assert "entry 1 of kanab.ledger has been changed" in run(str(ledger)).output
    assert run(str(ledger)).exit_code == 1


def test_a_release_that_is_not_in_the_ledger_breaks_the_chain(file: Path) -> None:
    ledger = file.with_name("kanab.ledger")
    ledger.write_text(ledger.read_text(encoding="utf-8").split("\n")[0] + "\n", encoding="utf-8")
    result = run(str(file))
    assert result.exit_code == 1
    assert "BROKEN: ledger" in result.output
    assert "its last entries were removed" in result.output


def test_a_class_below_k_is_a_broken_rule(file: Path) -> None:
    def lower(data: dict[str, Any]) -> None:
        entry = data["tables"]["variant/tier"]["classes"][0]
        entry["people"] = 4
        entry["sums"]["bought"], entry["sums"]["spend"] = 1, 10

    result = run(str(changed(file, lower)))
    assert result.exit_code == 1
    assert "fewer than k = 10 people" in result.output


def test_tables_that_do_not_add_up_are_a_broken_rule(tmp_path: Path) -> None:
    found = kb.release(counted(covariates=["tier", "device"]))
    kb.write_release(found, tmp_path / "shop.json")

    def move(data: dict[str, Any]) -> None:
        first, second = data["tables"]["variant/tier"]["classes"][0], data["tables"]["variant/tier"]["classes"][-1]
        first["people"], second["people"] = first["people"] + 5, second["people"] - 5

    result = run(str(changed(tmp_path / "shop.json", move)))
    assert result.exit_code == 1
    assert "BROKEN in 1 class: totals" in result.output
    assert "not evaluated: ledger - it was released without a ledger" in result.output


def test_two_releases_that_differ_by_a_person_are_a_broken_rule(tmp_path: Path) -> None:
    rows = shop()
    for name, upto in (("monday", 899), ("tuesday", 900)):
        kb.write_release(
            kb.release(counted({key: values[:upto] for key, values in rows.items()})), tmp_path / f"{name}.json"
        )
    result = run(str(tmp_path / "monday.json"), str(tmp_path / "tuesday.json"))
    assert result.exit_code == 1
    assert "BROKEN in 1 class: differences" in result.output


def test_squares_by_class_without_a_plan_for_them_are_a_broken_rule(tmp_path: Path) -> None:
    data = release_to_dict(kb.release(counted()))
    spend = kb.Metric.declare("spend", bounds=(0, 500), resolution=0.01)
    metrics = {"spend": spend, "bought": kb.Metric("bought", 1, (0, 1))}
    fine = kb.count_columns(shop(), arm="variant", covariates=["tier"], squares="class", metrics=metrics)
    data["tables"]["variant/tier"] = fine.to_dict()
    data["hash"] = hash_of(data)
    (tmp_path / "fine.json").write_text(json.dumps(data), encoding="utf-8")
    result = run(str(tmp_path / "fine.json"))
    assert result.exit_code == 1
    assert "BROKEN in 1 class: squares" in result.output


def test_a_file_that_is_not_there_is_an_error_not_a_finding(tmp_path: Path) -> None:
    result = run(str(tmp_path / "none.json"))
    assert isinstance(result.exception, kb.errors.SourceError)


def test_classes_where_few_people_have_a_metric_are_listed_and_break_no_rule(tmp_path: Path) -> None:
    rows = shop() | {"bought": np.random.default_rng(2).random(900) < 0.04}
    kb.write_release(kb.release(counted(rows)), tmp_path / "shop.json")
    result = run(str(tmp_path / "shop.json"))
    assert result.exit_code == 0, result.output
    sentence = "bought in variant/tier: in 6 of 6 classes some people, but fewer than 10, have it, or lack it"
    assert f"  for information: {sentence}.\n" in result.output
    data = json.loads(run(str(tmp_path / "shop.json"), "--json").output)
    assert data["few_events"] == {
        "shop.json": [{"table": "variant/tier", "metric": "bought", "few": 6, "classes": 6, "k": 10}]
    }


def test_a_release_with_fewer_events_than_its_plan_asks_for_is_broken(file: Path) -> None:
    assert "for information" not in run(str(file)).output
    made = kb.read_release(file)
    metrics = tuple(replace(metric, min_events=60) for metric in made.plan.metrics if metric.name == "bought")
    kb.write_release(replace(made, plan=replace(made.plan, metrics=metrics)), file.with_name("strict.json"))
    result = run(str(file.with_name("strict.json")))
    assert "sensitive values - the rule: metrics that are sensitive, or have squares by class" in result.output
    assert result.exit_code == 1


def test_a_ledger_is_read_as_often_for_many_releases_as_for_one(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def noted(path: Path) -> Ledger:
        read.append(Path(path).name)
        return read_ledger(path)

    monkeypatch.setattr("kanab.inspection.audit_report.existing_ledger", noted)
    ledger = file.with_name("kanab.ledger")
    assert run(str(ledger)).exit_code == 0
    once = len(read)
    kb.release(counted(covariates=["device"], earlier=read_ledger(ledger).plans), ledger=ledger)
    assert run(str(ledger)).exit_code == 0
    assert len(read) == 2 * once


def _contributors(path: Path, **receipt: Any) -> dict[str, Any]:
    made = kb.read_release(path)
    kb.write_release(replace(made, receipt=replace(made.receipt, **receipt)), path.with_name("other.json"))
    data = json.loads(run(str(path.with_name("other.json")), "--json").output)
    return next(check for check in data["files"]["other.json"] if check["rule"] == "contributors")


def test_who_checked_contributors_and_dominance_is_said_of_every_file(file: Path) -> None:
    assert _contributors(file)["holds"] is True
    assert _contributors(file)["says"].endswith("checked at release, on the rows; a file cannot show it")
    before = _contributors(file, checked=())
    assert (before["holds"], before["says"]) == (None, NOT_IN_A_FILE)
    sealed = _contributors(file, checked=("contributors",), effective_k_within="experiment")
    assert (sealed["holds"], sealed["says"]) == (None, NOT_IN_A_BATCH)


def test_two_buyers_of_a_class_in_a_file_of_before_are_reported_and_it_is_read(file: Path) -> None:
    def two_buyers(data: dict[str, Any]) -> None:
        data["tables"]["variant/tier"]["classes"][0]["sums"]["bought"] = 2
        data["plan"]["metrics"]["bought"] = {"kind": "binary"}
        data["plan"]["metrics"]["spend"]["of"] = "bought"
        data["plan_digest"] = plan_digest(plan_from_dict(data["plan"]))

    result = run(str(changed(file, two_buyers)))
    assert result.exit_code == 1
    assert "BROKEN in 1 class: contributors - the rule: no amount rests on fewer than 3 people" in result.output


def test_a_folder_that_is_no_collectors_is_a_wrong_word_and_no_broken_rule(tmp_path: Path) -> None:
    result = run(str(tmp_path))
    assert isinstance(result.exception, SourceError)
    assert "BROKEN" not in result.output
