"""Releases of a made-up shop for the dashboard's tests, and a reader that asks through ASGI."""

import asyncio
import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from tests.unit.collector.http.conftest import Answer

import kanab as kb
from kanab.dashboard.next_seal import CollectionStatus
from kanab.dashboard.releases import Contents, RawSource, read_contents
from kanab.plan.model import Cohorts, CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.plan.periods import Span

NOON = datetime(2026, 11, 11, 12, tzinfo=UTC)
WEEKS = ("2026-W36", "2026-W37", "2026-W38", "2026-W39")
DAYS = ("2026-09-01", "2026-09-08", "2026-09-15", "2026-09-22")
METRICS = (MetricPlan("bought", binary=True), MetricPlan("spend", (0, 200), 0.01, of="bought"))
COVARIATES = (CovariatePlan("tier", (1, 2, 3, 4)), CovariatePlan("device", ("phone", "desktop", "tablet")))
PLAN = Plan(
    METRICS,
    (
        ExperimentPlan(
            "checkout", (("A", 1), ("B", 1)), "A", adjust=("tier",), segments=("device",), interactions=("banner",),
            looks=3,
        ),
        ExperimentPlan("banner", (("off", 1), ("on", 1)), "off"),
        ExperimentPlan("price", (("low", 1), ("high", 2)), "low"),
    ),
    COVARIATES,
    cohorts=Cohorts("7d", "7d", "7d"),
)  # fmt: skip
"""Price is assigned half and half, where the plan says one to two: its sample ratio rings."""


def people(n: int = 4000, seed: int = 2) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    rows: dict[str, Any] = {
        "day": rng.choice(DAYS, n),
        "checkout": rng.choice(["A", "B"], n),
        "banner": rng.choice(["off", "on"], n),
        "price": rng.choice(["low", "high"], n),
        "tier": rng.choice([1, 2, 3, 4], n, p=[0.5, 0.3, 0.195, 0.005]),
        "device": rng.choice(["phone", "desktop", "tablet"], n, p=[0.6, 0.3, 0.1]),
    }
    bought = rng.random(n) < 0.15 + 0.1 * (rows["checkout"] == "B")
    return rows | {"bought": bought, "spend": np.round(np.where(bought, rng.gamma(2, 20, n), 0).clip(0, 200), 2)}


def release_weeks(path: Path, plan: Plan = PLAN, rows: Mapping[str, Any] | None = None, weeks: int = 3) -> None:
    """So many weekly batches into one ledger."""
    before: str | None = None
    for week in WEEKS[:weeks]:
        counted = kb.count(rows or people(), plan, rows=kb.Rows(span=Span("day", "7d", before, week)))
        kb.release(counted, ledger=path, new_ledger=before is None)
        before = week


@cache
def ledger_bytes() -> bytes:
    """The ledger of three weekly batches."""
    with TemporaryDirectory() as folder:
        release_weeks(Path(folder) / "kanab.ledger")
        return (Path(folder) / "kanab.ledger").read_bytes()


def entries() -> list[bytes]:
    """Its entries."""
    return ledger_bytes().split(b"\n")[1:-1]


class FixedSource:
    """A source that never changes."""

    def __init__(self, *sources: RawSource, collection: CollectionStatus | None = None) -> None:
        self.contents, self.collection = read_contents(sources), collection

    def read(self) -> Contents:
        return self.contents

    def status(self) -> CollectionStatus | None:
        return self.collection


WEEKLY = RawSource("kanab.ledger", tuple(entries()), ledger=True)


@cache
def alone(name: str = "checkout", seed: int = 5) -> bytes:
    """A release file of one experiment, in no ledger."""
    plan = replace(PLAN, experiments=(replace(PLAN.experiment(name), interactions=(), looks=None),), cohorts=None)
    with TemporaryDirectory() as folder:
        kb.write_release(kb.release(kb.count(people(2000, seed), plan)), Path(folder) / "one.json")
        return (Path(folder) / "one.json").read_bytes()


def ask(
    app: Any,
    path: str,
    *,
    method: str = "GET",
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    client: str = "127.0.0.1",
    host: str = "localhost:8000",
    root: str = "",
    found: Answer | None = None,
) -> Answer:
    """One request of a browser, through ASGI; ``found`` also holds what was sent before a failure."""
    found = found or Answer()
    events = [{"type": "http.request", "body": body, "more_body": False}]
    place, _, query = path.partition("?")

    async def receive() -> Any:
        return events.pop(0) if events else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            found.status = message["status"]
            found.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            found.body += message.get("body", b"")

    given = {"host": host} | {name.lower(): value for name, value in (headers or {}).items()}
    scope = {
        "type": "http", "method": method, "path": root + place, "root_path": root, "scheme": "http",
        "query_string": query.encode(), "server": ("127.0.0.1", 8000), "client": (client, 50_000),
        "http_version": "1.1", "headers": [(name.encode(), value.encode()) for name, value in given.items()],
    }  # fmt: skip
    asyncio.run(app(scope, receive, send))
    return found


def plain(answer: Answer) -> Any:
    """What a program reads."""
    return json.loads(answer.body)


def words(answer: Answer) -> str:
    """What a person reads."""
    return answer.body.decode()


def seen(answer: Answer) -> str:
    """What a person sees of a page: a line for each piece of text, ``[…]`` for each picture."""
    page = words(answer)[words(answer).index("<main") :]
    page = re.sub(r'<svg[^>]*aria-label="([^"]*)".*?</svg>', r"\n[\1]\n", page, flags=re.DOTALL)
    page = re.sub(r"</(td|th)>", " | ", page)
    page = re.sub(r"</?(p|h\d|li|tr|table|section|div|dt|dd|label|option|details|summary)\b[^>]*>", "\n", page)
    lines = html.unescape(re.sub(r"<[^>]+>", " ", page)).splitlines()
    return "\n".join(line for line in (" ".join(line.split()) for line in lines) if line) + "\n"


def write(folder: Path, **files: bytes) -> Sequence[str]:
    """Files in a folder, by names without dots: ``kanab_ledger``, ``checkout_release_json``."""
    for name, data in files.items():
        (folder / name.replace("_", ".")).write_bytes(data)
    return [str(folder)]
