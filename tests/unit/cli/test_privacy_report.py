import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.approved import assert_approved
from tests.shop import shop_counted, shop_rows
from tests.unit.cli.program import Program, transcript

import kanab as kb
from kanab.inspection.officer.account import privacy_account
from kanab.plan.file import plan_digest, plan_from_dict
from kanab.privacy.ledger import read_ledger
from kanab.privacy.release_json import hash_of

PLAN = """
[metrics]
bought = { kind = "binary" }
[experiments.checkout]
arms = { A = 1, B = 1 }
[sheet]
controller = "Shop Ltd"
"""
NAME = "shop.release.json"


def counted(seed: int = 1) -> kb.Counted:
    return shop_counted(shop_rows(900, seed), segments=["tier"])


def changed(change: Callable[[dict[str, Any]], None], name: str) -> None:
    """Write the release with a change and a hash that fits it."""
    data = json.loads(Path(NAME).read_text(encoding="utf-8"))
    change(data)
    data["hash"] = hash_of(data)
    Path(name).write_text(json.dumps(data), encoding="utf-8")


def shrink(data: dict[str, Any]) -> None:
    data["plan"]["k"] = data["receipt"]["k"] = 400
    data["plan_digest"] = plan_digest(plan_from_dict(data["plan"]))


@pytest.fixture(autouse=True)
def _released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release with its ledger, one of the same name, one without its ledger, and what is none."""
    monkeypatch.chdir(tmp_path)
    Path("later").mkdir()
    Path("apart").mkdir()
    kb.write_release(kb.release(counted(), ledger="kanab.ledger", new_ledger=True), NAME)
    kb.write_release(kb.release(counted(seed=2)), f"later/{NAME}")
    Path("apart", NAME).write_bytes(Path(NAME).read_bytes())
    text = Path(NAME).read_text(encoding="utf-8")
    texts = {"edited.json": text.replace('"k": 10', '"k": 11', 1), "cut.json": text[:100], "empty.json": "{}"}
    for name, spoilt in (texts | {"kanab.toml": PLAN}).items():
        Path(name).write_text(spoilt, encoding="utf-8")
    changed(lambda data: data["receipt"].update(effective_k=2), "broken.json")
    changed(shrink, "below.json")


REPORTS = f"""
{NAME} -o report.html
{NAME} later/{NAME} -o two.html
broken.json -o broken.html
apart/{NAME} -o apart.html
apart/{NAME} --ledger kanab.ledger -o named.html
{NAME} --ledger gone.ledger -o none.html
edited.json -o none.html
cut.json -o none.html
empty.json -o none.html
below.json -o none.html
gone.json -o none.html
{NAME}
{NAME} {NAME} -o none.html
-o none.html
{NAME} -o gone/report.html
kanab.toml --sheet -o sheet.html
kanab.toml --sheet --ledger kanab.ledger -o none.html
kanab.toml kanab.toml --sheet -o none.html
empty.json --sheet -o none.html
"""


def test_a_page_is_written_and_the_verdict_said_or_what_is_wrong_and_nothing_written(
    program: Program, tmp_path: Path
) -> None:
    assert_approved("cli/privacy_report.txt", transcript(program, "privacy-report", REPORTS))
    pages = {page.name: page.read_text(encoding="utf-8") for page in tmp_path.glob("*.html")}
    assert {*pages} == {f"{name}.html" for name in ("report", "two", "broken", "apart", "named", "sheet")}
    assert all(page.startswith("<!doctype html>") and tmp_path.name not in page for page in pages.values())
    assert '<p class="call verdict alarm" role="alert"><strong>BROKEN: overlap' in pages["broken.html"]
    assert "Shop Ltd" in pages["sheet.html"]
    assert program("privacy-report", NAME, "-o", "again.html").code == 0
    assert Path("again.html").read_text(encoding="utf-8") == pages["report.html"]


def test_plain_data_are_those_of_the_account_and_of_the_sheet(program: Program, tmp_path: Path) -> None:
    said = program("privacy-report", NAME, "--json").out
    assert json.loads(said) == privacy_account({NAME: kb.read_release(NAME)}, read_ledger("kanab.ledger"))
    assert tmp_path.name not in said
    data = json.loads(program("privacy-report", NAME, f"later/{NAME}", "--json").out)
    assert [release["file"] for release in data["releases"]] == [NAME, f"{NAME} (2)"]
    sheet = json.loads(program("privacy-report", "kanab.toml", "--sheet", "--json").out)
    assert (sheet["format"], sheet["entries"]["controller"]) == ("kanab-sheet/1", "Shop Ltd")
