"""The protocol in this process: read-only tools, mistakes that tell nothing, requests that may not read."""

import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import pytest
from mcp import Client
from tests.unit.dashboard.shop_releases import WEEKLY, FixedSource, ask

from kanab.agents.answers import Answers
from kanab.agents.mcp_server import LARGEST_BODY, MISTAKE, http_app, protocol_server
from kanab.collector.http.access import Access
from kanab.dashboard.releases import Contents

PING = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'


def with_client(answers: Answers, talk: Callable[[Client], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with Client(protocol_server(answers)) as client:
            return await talk(client)

    return anyio.run(run)


class BrokenSource(FixedSource):
    """A source with a mistake in it."""

    def read(self) -> Contents:
        raise RuntimeError("Marie spent 12.34")


def test_every_tool_says_that_it_only_reads() -> None:
    tools = with_client(Answers(FixedSource(WEEKLY)), lambda client: client.list_tools()).tools
    assert [tool.name for tool in tools] == ["list_experiments", "readout", "compare", "power", "privacy"]
    for tool in tools:
        hints = tool.annotations
        assert (hints.read_only_hint, hints.destructive_hint, hints.open_world_hint) == (True, False, False)
        assert len(tool.description) > 200


def test_sentences_come_first_then_the_same_numbers_as_json() -> None:
    answers = Answers(FixedSource(WEEKLY))
    result = with_client(answers, lambda client: client.call_tool("readout", {"experiment": "checkout"}))
    sentences, numbers = (block.text for block in result.content)
    assert sentences == answers.readout("checkout").text
    assert json.loads(numbers) == result.structured_content == answers.readout("checkout").data
    assert ": " not in numbers.partition('"notes"')[0]  # compact
    assert len(numbers) < 2000


def test_a_mistake_of_ours_tells_nothing_and_the_server_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def talk(client: Client) -> list[Any]:
        return [await client.call_tool("list_experiments", {}) for _ in range(2)]

    with caplog.at_level(logging.ERROR):
        results = with_client(Answers(BrokenSource(WEEKLY)), talk)
    assert [(result.is_error, result.content[0].text) for result in results] == [(True, MISTAKE)] * 2
    assert [record.getMessage() for record in caplog.records] == ["a mistake"] * 2


def test_many_questions_at_once_have_the_same_answers() -> None:
    answers = Answers(FixedSource(WEEKLY))

    async def talk(client: Client) -> list[str]:
        texts: list[str] = []

        async def one_call(name: str) -> None:
            texts.append((await client.call_tool("readout", {"experiment": name})).content[0].text)

        async with anyio.create_task_group() as tasks:
            for name in ("checkout", "banner", "price") * 4:
                tasks.start_soon(one_call, name)
        return texts

    expected = [answers.readout(name).text for name in ("checkout", "banner", "price")]
    assert sorted(with_client(answers, talk)) == sorted(expected * 4)


@pytest.mark.parametrize(
    ("asked", "status", "says"),
    [
        ({"headers": {"Authorization": "Bearer wrong"}}, 401, "reading this needs the token"),
        ({"headers": {}}, 401, "reading this needs the token"),
        ({"host": "evil.example"}, 403, "this server has another name"),
        ({"headers": {"Origin": "https://evil.example"}}, 403, "a web page of another address may not read this"),
        ({"headers": {"Origin": "http://[evil"}}, 403, "a web page of another address may not read this"),
        ({"method": "GET"}, 405, "questions are posted"),
        ({"path": "/"}, 404, "there is nothing here"),
        ({"body": b"garbage"}, 400, "this is not a message of the protocol"),
        ({"body": b"[" * 100_000}, 413, "a request has at most 65536 bytes"),
        ({"body": b"[" * 60_000}, 400, "this is not a message of the protocol"),
    ],
)
def test_who_may_not_read_is_told_why(asked: dict[str, Any], status: int, says: str) -> None:
    app = http_app(Answers(FixedSource(WEEKLY)), Access("right", hosts=["shop.example"]))
    headers = asked.get("headers", {})
    token = {} if "Authorization" in headers or asked == {"headers": {}} else {"Authorization": "Bearer right"}
    words = {"method": "POST", "body": PING} | asked | {"headers": token | headers}
    answer = ask(app, words.pop("path", "/mcp"), **words)
    assert (answer.status, json.loads(answer.body)["error"]["says"]) == (status, says)
    assert LARGEST_BODY == 65_536


def test_without_a_token_only_this_machine_reads() -> None:
    app = partial(ask, http_app(Answers(FixedSource(WEEKLY)), Access()), "/mcp", method="POST")
    for elsewhere in ({"client": "192.0.2.7"}, {"host": "evil.example"}, {"headers": {"X-Forwarded-For": "192.0.2.7"}}):
        answer = app(body=PING, **elsewhere)  # type: ignore[arg-type]
        assert answer.status == 403
        assert "KANAB_TOKEN" in json.loads(answer.body)["error"]["remedy"]
    assert app(body=b"garbage").status == 400
