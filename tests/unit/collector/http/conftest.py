"""A collector in this process, asked through ASGI without a server."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kanab.collector.http.app import Collector
from kanab.collector.http.service import Service
from kanab.collector.keys.keyring import Keyring
from kanab.collector.protocol.nonces import make_nonce
from kanab.collector.stores.sqlite import SqliteStore
from kanab.plan.file import parse_plan
from kanab.plan.model import Plan

PLAN = parse_plan("""
k = 10
origins = ["https://shop.example"]
[cohorts]
every = "7d"
window = "7d"
seal = "7d"
[covariates]
tier = [1, 2, 3]
[metrics]
minutes = { bounds = [0, 600], resolution = 0.01 }
[experiments.checkout]
arms = { A = 1, B = 1 }
adjust = ["tier"]
""")
NOON = datetime(2026, 11, 11, 12, tzinfo=UTC)  # a Wednesday, of week 46


@dataclass
class Answer:
    """What a client sees."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass
class RunningService:
    """A service on a clock that tests turn, and what it said."""

    service: Service
    said: list[str]
    now: datetime = NOON
    epoch: str = ""

    def body(self, *lines: str, now: datetime | None = None) -> bytes:
        first = f"kanab/1 {make_nonce(now or self.now)} {self.epoch}".rstrip()
        return "\n".join([first, *lines, ""]).encode()

    def enroll(self, arm: str = "B", tier: int = 3, week: str = "2026-W46") -> bytes:
        head = f"checkout/tier:{arm}:{tier}@{week}"
        return self.body(head, f"{head}:minutes:0>{tier + 1}")


def ask(
    app: Any,
    method: str,
    path: str,
    body: bytes | list[bytes] = b"",
    headers: Mapping[str, str] | None = None,
    *,
    client: tuple[str, int] | None = ("127.0.0.1", 50_000),
    root: str = "",
    query: str = "",
) -> Answer:
    """One request through ASGI."""
    pieces = [body] if isinstance(body, bytes) else list(body)
    events = [
        {"type": "http.request", "body": piece, "more_body": number < len(pieces) - 1}
        for number, piece in enumerate(pieces)
    ] or [{"type": "http.disconnect"}]
    found = Answer()

    async def receive() -> Any:
        return events.pop(0) if events else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            found.status = message["status"]
            found.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            found.body += message["body"]

    lower = {name.lower(): value for name, value in (headers or {}).items()}
    scope = {
        "type": "http", "method": method, "path": root + path, "root_path": root, "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in ({"host": "localhost:8000"} | lower).items()],
        "client": client,
    }  # fmt: skip
    asyncio.run(app(scope, receive, send))
    return found


@pytest.fixture
def open_service(tmp_path: Path) -> Iterator[Callable[..., RunningService]]:
    """Opens services on one store."""
    opened: list[RunningService] = []

    def open_one(plan: Plan = PLAN, now: datetime = NOON, store: SqliteStore | None = None) -> RunningService:
        said: list[str] = []
        own: list[RunningService] = []
        ring = Keyring.create(tmp_path / "data.key")
        kept = store or SqliteStore(tmp_path / "data" / "store.db")

        def say(sentence: str, _level: str = "") -> None:
            said.append(sentence)

        service = Service(kept, ring, plan, clock=lambda: own[0].now if own else now, say=say)
        own.append(RunningService(service, said, now))
        opened.extend(own)
        return own[0]

    yield open_one
    for running in opened:
        asyncio.run(running.service.stop())
        running.service.store.close()


@pytest.fixture
def running(open_service: Callable[..., RunningService]) -> RunningService:
    return open_service()


@pytest.fixture
def app(running: RunningService) -> Collector:
    return Collector(running.service)
