import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from tests.approved import assert_approved
from tests.described import as_values
from tests.unit.cli.program import Program, transcript

import kanab as kb
from kanab.cli.main import cli
from kanab.collector.stores.sqlite import SqliteStore
from kanab.inspection.promises import NOT_IN_A_BATCH, NOT_IN_A_FILE
from kanab.plan.file import plan_digest, plan_from_dict
from kanab.privacy.ledger import Ledger, read_ledger
from kanab.privacy.release_json import hash_of


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["audit", *words])


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


def changed(file: Path, change: Any, name: str) -> Path:
    """The file with a change and a hash that fits it."""
    data = json.loads(file.read_text(encoding="utf-8"))
    change(data)
    data["hash"] = hash_of(data)
    other = file.with_name(name)
    other.write_text(json.dumps(data), encoding="utf-8")
    return other


def lower(data: dict[str, Any]) -> None:
    entry = data["tables"]["variant/tier"]["classes"][0]
    entry["people"] = 4
    entry["sums"]["bought"], entry["sums"]["spend"] = 1, 10


def move(data: dict[str, Any]) -> None:
    first, second = data["tables"]["variant/tier"]["classes"][0], data["tables"]["variant/tier"]["classes"][-1]
    first["people"], second["people"] = first["people"] + 5, second["people"] - 5


def square(data: dict[str, Any]) -> None:
    spend = kb.Metric.declare("spend", bounds=(0, 500), resolution=0.01)
    metrics = {"spend": spend, "bought": kb.Metric("bought", 1, (0, 1))}
    fine = kb.count_columns(shop(), arm="variant", covariates=["tier"], squares="class", metrics=metrics)
    data["tables"]["variant/tier"] = fine.to_dict()


def two_buyers(data: dict[str, Any]) -> None:
    data["tables"]["variant/tier"]["classes"][0]["sums"]["bought"] = 2
    data["plan"]["metrics"]["bought"] = {"kind": "binary"}
    data["plan"]["metrics"]["spend"]["of"] = "bought"
    data["plan_digest"] = plan_digest(plan_from_dict(data["plan"]))


def edit(file: Path) -> None:
    file.write_text(file.read_text(encoding="utf-8").replace('"k": 10', '"k": 11'), encoding="utf-8")


AUDITED = """
data
.
none.json
shop.json
shop.json --json
small.json
moved.json
squares.json
buyers.json
strict.json
few.json
edited.json
monday.json tuesday.json
kanab.ledger
cut/shop.json
shop.json cut/shop.json
edited.ledger
"""


@pytest.mark.slow
def test_what_is_audited_holds_or_names_the_broken_rule(
    file: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, ledger = file.parent, file.with_name("kanab.ledger")
    monkeypatch.chdir(folder)
    SqliteStore(folder / "data" / "store.db").close()
    first_line = ledger.read_text(encoding="utf-8").split("\n")[0]
    kb.release(counted(covariates=["device"], earlier=read_ledger(ledger).plans), ledger=ledger)
    (folder / "cut").mkdir()
    (folder / "cut" / "shop.json").write_bytes(file.read_bytes())
    (folder / "cut" / "kanab.ledger").write_text(first_line + "\n", encoding="utf-8")
    for name, source in (("edited.json", file), ("edited.ledger", ledger)):
        (folder / name).write_bytes(source.read_bytes())
        edit(folder / name)
    changed(file, lower, "small.json")
    changed(file, square, "squares.json")
    changed(file, two_buyers, "buyers.json")
    kb.write_release(kb.release(counted(covariates=["tier", "device"])), folder / "both.json")
    changed(folder / "both.json", move, "moved.json")
    rows = shop()
    for name, upto in (("monday", 899), ("tuesday", 900)):
        made = kb.release(counted({key: values[:upto] for key, values in rows.items()}))
        kb.write_release(made, folder / f"{name}.json")
    made = kb.read_release(file)
    metrics = tuple(replace(metric, min_events=60) for metric in made.plan.metrics if metric.name == "bought")
    kb.write_release(replace(made, plan=replace(made.plan, metrics=metrics)), folder / "strict.json")
    rare = rows | {"bought": np.random.default_rng(2).random(900) < 0.04}
    kb.write_release(kb.release(counted(rare)), folder / "few.json")
    assert_approved("cli/audit.txt", transcript(program, "audit", AUDITED))


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
