"""Every setting of a collector comes from a flag, a variable or a default, in this order, and no secret from a flag."""

import os
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from kanab.cli.main import cli
from kanab.cli.operating.settings import clear_service_links, variables
from kanab.cli.stores import dashboard_token
from kanab.collector.stores.sqlite import SqliteStore
from kanab.errors import StoreError

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "collector.md"
SAID_ONCE = {"--as-of", "--reason"}
NOT_OF_COLLECTORS = {"KANAB_CONFIG", "KANAB_COOKIE_KEY", "KANAB_SHARED"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A store in which nothing is sealed."""
    SqliteStore(tmp_path / "data" / "store.db").close()
    return tmp_path / "data"


def run(*words: str | Path, **variables: str) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words], env=variables)


def fact(result: Result) -> str:
    return str(result.exception)


def test_the_table_of_the_documentation_has_every_setting_of_every_command() -> None:
    rows = re.findall(r"^\| `(KANAB_[A-Z_]+)` \| (.*?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    documented = {name: set(re.findall(r"`(--[a-z-]+)`", flags)) for name, flags in rows}
    assert len(rows) == len(documented)
    read: dict[str, set[str]] = {name: set() for name in variables(*cli.commands.values()) - NOT_OF_COLLECTORS}
    for command in cli.commands.values():
        for option in command.params:
            if isinstance(option, click.Option) and option.envvar in read:
                read[str(option.envvar)] |= {text for text in option.opts if text.startswith("--")}
    assert documented == read


def test_every_option_of_every_command_that_opens_a_store_has_a_variable() -> None:
    for name, command in cli.commands.items():
        options = [option for option in command.params if isinstance(option, click.Option)]
        if any(option.name == "store" for option in options):
            valued = [option for option in options if not option.is_flag and option.opts[0] not in SAID_ONCE]
            missing = [option.opts[0] for option in valued if not option.envvar]
            assert missing == [], name
            assert any(option.name == "store_file" for option in options)


def test_a_flag_comes_before_a_variable(data: Path, tmp_path: Path) -> None:
    assert fact(run("export", KANAB_DATA=str(data))).startswith("nothing is sealed yet")
    assert fact(run("export", "--data", data, KANAB_DATA=str(tmp_path))).startswith("nothing is sealed yet")
    assert fact(run("export", "--data", data, KANAB_STORE="postgresql://x")).startswith("nothing is sealed yet")
    assert fact(run("export", KANAB_DATA=str(data), KANAB_STORE="postgresql://x")).startswith("where the store is kept")


def test_the_address_of_a_database_is_read_from_a_file(tmp_path: Path) -> None:
    (file := tmp_path / "address").write_text("mysql://me:hidden@db/kanab\n")
    for result in (run("export", "--store-file", file), run("export", KANAB_STORE_FILE=str(file))):
        assert fact(result).startswith("that is not the address of a database")
        assert result.stderr == ""
    assert fact(run("export", "--store-file", tmp_path / "none")).startswith("the file of --store-file cannot be read")
    twice = run("export", "--store-file", file, "--store", "postgresql://x")
    assert fact(twice).startswith("the address of the store is said twice")


def test_a_password_on_the_command_line_is_warned_about_and_not_repeated() -> None:
    for address in ("mysql://me:hidden@db/kanab", "mysql://db/kanab?password=hidden"):
        stderr = run("export", "--store", address).stderr
        assert "the password in --store stands in the list of processes. Give the address in KANAB_STORE" in stderr
        assert "hidden" not in stderr
    assert run("export", KANAB_STORE="mysql://me:hidden@db/kanab").stderr == ""
    assert run("export", "--store", "mysql://me@db/kanab").stderr == ""


def test_a_variable_that_nothing_reads_is_warned_about(data: Path) -> None:
    result = run("export", "--data", data, KANAB_DATE="x", KANAB_SERVICE_HOST="10.0.0.1")
    assert result.stderr.startswith("kanab: nothing reads the variable KANAB_DATE; nearest: KANAB_DATA")
    assert result.stderr.count("\n") == 1
    assert run("audit", data, KANAB_DATE="x").stderr == ""  # not a command of a collector


def test_the_port_that_kubernetes_sets_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KANAB_PORT", "tcp://10.0.0.1:8000")
    clear_service_links()
    assert "KANAB_PORT" not in os.environ
    monkeypatch.setenv("KANAB_PORT", "8080")
    clear_service_links()
    assert os.environ["KANAB_PORT"] == "8080"


def test_the_token_is_read_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KANAB_TOKEN", raising=False)
    (file := tmp_path / "token").write_text("a long random text\n")
    monkeypatch.setenv("KANAB_TOKEN_FILE", str(file))
    assert dashboard_token("192.0.2.1") == "a long random text"
    monkeypatch.setenv("KANAB_TOKEN", "another long text")
    assert dashboard_token("192.0.2.1") == "another long text"
    monkeypatch.setenv("KANAB_TOKEN", "fifteen letters")
    assert dashboard_token("127.0.0.1") == "fifteen letters"
    with pytest.raises(StoreError, match="the token has fewer than 16 characters"):
        dashboard_token("192.0.2.1")
    monkeypatch.delenv("KANAB_TOKEN")
    monkeypatch.setenv("KANAB_TOKEN_FILE", str(tmp_path / "none"))
    with pytest.raises(StoreError, match="the file of KANAB_TOKEN_FILE cannot be read"):
        dashboard_token("127.0.0.1")


def test_what_nobody_named_is_skipped_with_the_reason_and_not_ok(data: Path) -> None:
    lines = run("doctor", "--data", data).output.splitlines()
    assert "skipped  plan: no plan file is named. Give --plan FILE to compare it with the store's." in lines
    assert "skipped  clock: there is no other clock to compare it with. Give --clock-peer https://…." in lines
    assert "skipped  backup: no ledger is named. Give --ledger FILE, as kanab export wrote it." in lines
    assert not [line for line in lines if line.startswith("ok") and ("Give" in line or "not looked" in line)]
