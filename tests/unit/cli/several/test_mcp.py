"""kanab mcp as a process of its own, with a real client of the protocol: over standard input and output, and HTTP."""

import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from click.testing import CliRunner
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from tests.unit.cli.program import Program
from tests.unit.cli.test_dashboard import running
from tests.unit.dashboard.shop_releases import alone, ledger_bytes, write

import kanab as kb
from kanab.cli.main import cli
from kanab.errors import MissingExtraError, SourceError, StoreError

START = ["-c", "from kanab.cli.main import main; main()", "mcp"]


def talk_to(folder: Path, talk: Callable[[Client], Awaitable[Any]], mode: str) -> tuple[Any, str]:
    """What a client sees of the command, and what it says on the standard error stream."""
    said = folder.parent / "stderr.txt"

    async def run() -> Any:
        server = StdioServerParameters(command=sys.executable, args=[*START, str(folder)])
        with said.open("w", encoding="utf-8") as errlog:
            async with Client(stdio_client(server, errlog), mode=mode) as client:
                return await talk(client)

    return anyio.run(run), said.read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "releases"
    place.mkdir()
    write(place, kanab_ledger=ledger_bytes(), banner_release_json=alone("banner"), shop_release_json=b"{}")
    return place


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_an_assistant_reads_releases_over_standard_input_and_output(folder: Path, mode: str) -> None:
    async def talk(client: Client) -> list[Any]:
        calls: list[tuple[str, dict[str, Any]]] = [
            ("list_experiments", {}), ("readout", {"experiment": "checkout"}),
            ("compare", {"experiments": ["checkout", "price"], "metric": "bought"}),
            ("power", {"experiment": "checkout", "metric": "bought", "effect": 0.02}), ("privacy", {}),
            ("readout", {"experiment": "nobody"}), ("readout", {"experiment": ["checkout"]}), ("shell", {"run": "ls"}),
            ("readout", {"experiment": "x" * 1_000_000}),
        ]  # fmt: skip
        results = [await client.call_tool(name, fields) for name, fields in calls]
        (folder / "banner.release.json").write_bytes(alone("banner")[:-20])
        return [*results, await client.call_tool("readout", {"experiment": "price"})]

    results, said = talk_to(folder, talk, mode)
    assert [result.is_error for result in results] == [False] * 5 + [True] * 4 + [False]
    listed, readout, compared, power, privacy, *refused, last = results
    assert listed.structured_content["total"] == 3
    assert listed.structured_content["alarms"] == [
        "shop.release.json is not shown: this is not a release. Give a file that kanab release wrote."
    ]
    total = kb.add_releases(list(kb.read_ledger(folder / "kanab.ledger").releases))
    effects = {row["metric"]: row for row in readout.structured_content["effects"]}
    expected = kb.analyze(total, "checkout", reading=kb.Reading(looks=kb.Looks("spending"))).to_dict()["effects"]
    for row in (row for row in expected if row["carries_verdict"]):
        assert effects[row["metric"]]["estimate"] == pytest.approx(row["estimate"], rel=1e-5)
    assert [row["verdict"] for row in compared.structured_content["effects"]] == ["better", "unclear"]
    assert power.structured_content["solved"] == "people"
    assert [row["k"] for row in privacy.structured_content["ledgers"]] == [10, 10]
    assert "Released here: banner, checkout, price." in refused[0].content[0].text
    assert any("banner.release.json is not shown" in alarm for alarm in last.structured_content["alarms"])
    assert said == ""


@pytest.mark.slow
def test_garbage_is_answered_and_the_process_goes_on(folder: Path) -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    lines = [
        b"garbage", b"\xff\xfe\x00", b"[" * 5000, b'{"jsonrpc": "2.0"}',
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).encode(),
        b'{"jsonrpc": "2.0", "method": "notifications/initialized"}',
        b'{"jsonrpc": "2.0", "id": 2, "method": "resources/read", "params": {"uri": "file:///etc/passwd"}}',
        b'{"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": 7}}',
        b"more garbage", b'{"jsonrpc": "2.0", "id": 9, "method": "ping", "params": {"x": "' + b"y" * 5_000_000 + b'"}}',
        b'{"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {"name": "list_experiments"}}',
    ]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, *START, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n".join(lines) + b"\n")
    process.stdin.flush()
    answers = [json.loads(process.stdout.readline())]
    while answers[-1]["id"] != 4:
        answers.append(json.loads(process.stdout.readline()))
    rest, said = process.communicate(timeout=60)
    by_id = {answer["id"]: answer for answer in answers if answer["id"] is not None}
    unreadable = [answer["error"] for answer in answers if answer["id"] is None]
    assert [error["code"] for error in unreadable] == [-32700] * 6
    assert unreadable[0]["message"].startswith(
        "this line is not a message of the protocol, or has more than 4194304 letters. "
    )
    assert 9 not in by_id  # too long to be read
    assert by_id[2]["error"]["code"] == -32601
    assert by_id[3]["error"]["code"] == -32602
    assert by_id[4]["result"]["structuredContent"]["total"] == 3
    assert (process.returncode, rest, said) == (0, b"", b"")


@pytest.mark.slow
def test_over_http_the_token_is_asked_for(folder: Path) -> None:
    async def ask(url: str, token: str | None) -> Any:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            return await client.call_tool("readout", {"experiment": "checkout"})

    with running("mcp", str(folder), "--http", token="a long random text") as url:
        result = anyio.run(ask, url, "a long random text")
        assert result.structured_content["people"] == 3010
        assert httpx2.post(url, content=b"{}").status_code == 401
        with pytest.raises((MCPError, ExceptionGroup)):
            anyio.run(ask, url, None)
        with pytest.raises((MCPError, ExceptionGroup)):
            anyio.run(ask, url, "a wrong text")
        assert httpx2.post(url, headers={"Authorization": "Bearer a wrong text"}).status_code == 429  # it has to wait


def test_other_machines_may_not_ask_without_a_token(folder: Path) -> None:
    with pytest.raises(StoreError, match="numbers could be read from other machines"):
        CliRunner().invoke(
            cli, ["mcp", str(folder), "--http", "--host", "0.0.0.0"], catch_exceptions=False, env={"KANAB_TOKEN": ""}
        )


def test_what_is_answered_from_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="there is no 'nothing'"):
        CliRunner().invoke(cli, ["mcp", str(tmp_path / "nothing")], catch_exceptions=False)


def test_one_place_is_named(program: Program, tmp_path: Path) -> None:
    assert "what should be read?" in program("mcp").err
    assert "Name one of them." in program("mcp", str(tmp_path), "--store", "postgresql://host/database").err


def test_a_missing_extra_is_said_before_anything_is_opened(
    program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delitem(sys.modules, "kanab.agents.mcp_server", raising=False)
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    ended = program("mcp", str(tmp_path / "nothing"), "--http", "--port", "1")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == f"kanab: {MissingExtraError('answering assistants', 'mcp')}\n"
    assert os.listdir(tmp_path) == []
