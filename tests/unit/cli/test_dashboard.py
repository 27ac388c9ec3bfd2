"""kanab dashboard and the pages of kanab serve, as commands."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.unit.dashboard.shop_releases import ledger_bytes

from kanab.cli.main import cli
from kanab.collector.http.server import address_of, bind
from kanab.errors import SourceError, StoreError

PLAN = "metrics.spend = { bounds = [0, 500] }\nexperiments.checkout.arms = { A = 1, B = 1 }\n"


@contextmanager
def running(*words: str, token: str = "") -> Iterator[str]:
    """A command that serves, at the address that it says."""
    command = [sys.executable, "-c", "from kanab.cli.main import main; main()", *words, "--port", "0"]
    environment = os.environ | {"KANAB_TOKEN": token}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stderr is not None
        said = next(line for line in process.stderr if " at http://" in line)
        address = re.findall(r"http://\S+", said)[0]
        wait_for(address)
        yield address
    finally:
        process.send_signal(signal.SIGTERM)
        rest = process.communicate(timeout=30)[1]
    assert process.returncode == 0
    assert rest == ""


def wait_for(address: str) -> None:
    """The address is said when it is taken; soon after somebody listens."""
    host, _, port = address.removeprefix("http://").partition("/")[0].partition(":")
    for _ in range(400):
        with suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return
        time.sleep(0.05)
    pytest.fail("nobody listens")


def read(address: str, **headers: str) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=30) as answer:
        found: bytes = answer.read()
        return found


@pytest.mark.slow
def test_releases_are_shown_and_nothing_is_written_or_said(tmp_path: Path) -> None:
    (tmp_path / "kanab.ledger").write_bytes(ledger_bytes())
    with running("dashboard", str(tmp_path)) as address:
        found = json.loads(read(f"{address}/v1/experiments"))
        assert b"<h1>Experiments</h1>" in read(address)
    assert [one["name"] for one in found["experiments"]] == ["price", "checkout", "banner"]
    assert [file.name for file in tmp_path.iterdir()] == ["kanab.ledger"]


@pytest.mark.slow
def test_a_token_is_asked_for_where_one_is_set(tmp_path: Path) -> None:
    with running("dashboard", str(tmp_path), token="a long random text") as address:
        with pytest.raises(urllib.error.HTTPError, match="401"):
            read(f"{address}/v1/experiments")
        assert b"Log in" in read(address)
        assert json.loads(read(f"{address}/v1/plan", Authorization="Bearer a long random text"))["plan"] is None


@pytest.mark.slow
def test_a_collector_serves_its_pages(tmp_path: Path) -> None:
    (tmp_path / "kanab.toml").write_text(PLAN, encoding="utf-8")
    with running("serve", "--plan", str(tmp_path / "kanab.toml"), "--data", str(tmp_path / "data")) as address:
        assert read(f"{address}/healthz") == b"ok\n"
        page = read(f"{address}/experiments/checkout").decode()
    assert "It is sealed once, at the end, with <code>kanab seal --plan kanab.toml --data ./kanab-data</code>." in page


def test_an_address_that_is_said_takes_connections_from_then_on() -> None:
    with bind("127.0.0.1", 0) as listening:
        place = listening.getsockname()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(place, timeout=5)
        assert address_of(listening, "127.0.0.1") == f"http://127.0.0.1:{place[1]}"
        socket.create_connection(place, timeout=5).close()


def test_other_machines_may_not_read_without_a_token(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="numbers could be read from other machines"):
        CliRunner().invoke(
            cli, ["dashboard", str(tmp_path), "--host", "0.0.0.0"], catch_exceptions=False, env={"KANAB_TOKEN": ""}
        )


def test_what_is_shown_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="there is no 'nothing'"):
        CliRunner().invoke(cli, ["dashboard", str(tmp_path / "nothing")], catch_exceptions=False)
