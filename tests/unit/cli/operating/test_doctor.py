"""kanab doctor in this process; what it finds in running collectors is in tests/collector."""

from pathlib import Path

from click.testing import CliRunner

from kanab.cli.main import cli
from kanab.collector.stores.sqlite import SqliteStore


def test_what_nobody_named_is_skipped_with_the_reason_and_not_ok(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "data" / "store.db").close()
    lines = CliRunner().invoke(cli, ["doctor", "--data", str(tmp_path / "data")]).output.splitlines()
    assert "skipped  plan: no plan file is named. Give --plan FILE to compare it with the store's." in lines
    assert "skipped  clock: there is no other clock to compare it with. Give --clock-peer https://…." in lines
    assert "skipped  backup: no ledger is named. Give --ledger FILE, as kanab export wrote it." in lines
    assert not [line for line in lines if line.startswith("ok") and ("Give" in line or "not looked" in line)]
