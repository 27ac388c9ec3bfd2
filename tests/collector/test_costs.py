"""Every post costs as many steps as it has bytes, whatever it says and however large the plan is.

Steps are counted, not seconds: the instructions that Python executes between a post and its answer.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from kanab.collector.counting.accept import PostAcceptor
from kanab.collector.http.access import PostingPage
from kanab.collector.http.app import Collector, Response
from kanab.collector.http.service import Service
from kanab.collector.keys.keyring import Keyring
from kanab.collector.stores.sqlite import SqliteStore
from kanab.plan.file import parse_plan

NOW = datetime(2026, 11, 15, 16, 30, tzinfo=UTC)  # the last day of week 46
NONCE = "00079b70{:024x}"
STEPS_PER_BYTE, STEPS_PER_POST = 100, 3_500


def plan(experiments: int = 1, levels: int = 3, others: int = 0) -> str:
    """A plan of some size; what the posts name is in each of them."""
    tables = [
        "[cohorts]",
        "[covariates]",
        f"tier = {[*range(1, levels + 1)]}",
        'device = ["phone", "desktop"]',
        *(f"covariate{number} = [1, 2]" for number in range(others)),
        "[metrics]",
        "minutes = { bounds = [0, 600], resolution = 0.01 }",
        "pages = { bounds = [0, 600], resolution = 1 }",
        "clicks = { bounds = [0, 600], resolution = 1 }",
        "depth = { ratio = ['minutes', 'pages'] }",
    ]
    for number in range(experiments):
        adjust = ["tier"] if number else ["tier", "device"]
        more = [f"covariate{other}" for other in range(others)] if number == experiments - 1 and others else []
        tables += [f"[experiments.e{number:04}]", "arms = { A = 1, B = 1 }", f"adjust = {adjust + more}"]
    return "\n".join(tables)


PLANS = {
    "small": plan(),
    "300 experiments": plan(experiments=300),
    "1,000 levels": plan(levels=1_000),
    "60 covariates": plan(experiments=2, others=60),
}


def both(rest: str, arm: str = "A", tier: str = "3") -> list[str]:
    """A line for each of the tables of the first experiment."""
    return [f"e0000/tier:{arm}:{tier}{rest}", f"e0000/device:{arm}:phone{rest}"]


def messages(count: int, tier: Any = 3, cohort: str = "2026-W46") -> str:
    """The JSON of a post, but for its nonce."""
    place = {"linkage": ["e0000", "tier"], "levels": ["A", tier], "cohort": cohort}
    return json.dumps([place] * count)


TEXTS: dict[str, list[str]] = {
    "counted": both("@2026-W46"),
    "counted totals": [f"{line}:clicks:{old}>{old + 1}" for line in both("@2026-W46") for old in range(40)],
    "late": [f"{line}:clicks:0>1" for line in both("@2026-W30")],
    "late, 100 lines": [f"{line}:clicks:{old}>{old + 1}" for line in both("@2026-W30") for old in range(50)],
    "late and unknown": [*both("@2026-W30"), "unknown:A@2026-W46"],
    "unknown experiment, 100 lines": ["what:A:3@2026-W46"] * 100,
    "unknown table": ["e0000/what:A:3@2026-W46"],
    "unknown level": both("@2026-W46", tier="9999"),
    "unknown arm": both("@2026-W46", arm="C"),
    "unknown metric": both("@2026-W46:what:0>1"),
    "unknown ratio": both("@2026-W46:what/minutes:0/0>1/1"),
    "a ratio without its line": both("@2026-W46:minutes:0>1"),
    "a cohort ahead": both("@2031-W46"),
    "no cohort": both(""),
    "no label": both("@" + "9" * 5_000),
    "incomplete": both("@2026-W46")[:1],
    "two arms": [both("@2026-W46")[0], both("@2026-W46", arm="B")[1]],
    "discontinuous": [*both("@2026-W46:clicks:0>1"), *both("@2026-W46:clicks:5>6")],
    "enrolled twice": both("@2026-W46") * 50,
    "16 kB of percent signs in a table": ["e0000/" + "%" * 16_000 + ":A:3@2026-W46"],
    "16 kB of percent signs in an experiment": ["%" * 16_000 + ":A:3@2026-W46"],
    "16 kB of percent signs in a level": ["e0000/tier:A:" + "%" * 16_000 + "@2026-W46"],
    "16 kB of percent signs in a metric": ["e0000/tier:A:3@2026-W46:" + "%" * 16_000 + ":0>1"],
    "16 kB of encoded signs": ["e0000/tier:A:" + "%C3%A9" * 2_600 + "@2026-W46"],
    "16 kB of colons": ["e0000/tier" + ":" * 16_000 + "@2026-W46"],
    "16 kB of slashes": ["e0000" + "/" * 16_000 + ":A@2026-W46"],
    "16 kB of digits": ["e0000/tier:A:3@2026-W46:clicks:0>" + "9" * 16_000],
    "16 kB of empty lines": [""] * 16_000,
    "another spelling": [line.replace("e", "%65").replace("A", "%41") for line in both("@2026-W46")],
}
JSONS: dict[str, str] = {
    "JSON, incomplete": messages(1),
    "JSON, 100 lines": messages(100),
    "JSON, unknown level": messages(1, "what"),
    "JSON, late": messages(60, cohort="2026-W30"),
    "JSON, 16 kB of percent signs": messages(1, "%" * 16_000),
    "JSON, a number of 4,000 digits": messages(1, int("9" * 4_000)),
    "JSON, nothing but brackets": "[" * 16_000,
}


def bodies(number: int) -> Iterator[tuple[str, str, bytes]]:
    """Every post, with a nonce of its own."""
    nonce = NONCE.format(number)
    for name, lines in TEXTS.items():
        yield name, "text/plain", "\n".join([f"kanab/1 {nonce}", *lines]).encode()
    for name, text in JSONS.items():
        yield name, "application/json", f'{{"kanab":1,"nonce":"{nonce}","messages":{text}}}'.encode()


def steps(act: Callable[[], None]) -> int:
    """How many instructions of Python an act takes on this thread."""
    count = 0

    def step(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


class Counted:
    """What every post cost at a collector with one of the plans: the first time, and the second time."""

    def __init__(self, text: str, place: Path) -> None:
        store = SqliteStore(place / "store.db")
        service = Service(store, Keyring.create(place / "data.key"), parse_plan(text), clock=lambda: NOW)
        self.statuses: dict[str, int] = {}
        self.costs: list[dict[str, int]] = [{}, {}]
        self.sizes: dict[str, int] = {}
        asyncio.run(self._send_all(Collector(service)))
        asyncio.run(service.stop())
        store.close()

    async def _send_all(self, app: Collector) -> None:
        for number, costs in enumerate(self.costs):
            for name, kind, body in bodies(number):
                answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

                def send(kind: str = kind, body: bytes = body, answered: Any = answered) -> None:
                    app._gathered.append((kind, PostingPage(), "192.0.2.7", body, answered.set_result))
                    app._begin_all()

                costs[name] = steps(send)
                self.sizes[name] = len(body)
                self.statuses[name] = (await answered).status


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counted]:
    return {name: Counted(text, tmp_path_factory.mktemp("costs")) for name, text in PLANS.items()}


def test_every_kind_of_post_is_answered_as_it_should_be(counted: dict[str, Counted]) -> None:
    statuses = counted["small"].statuses
    assert {name for name, status in statuses.items() if status == 204} == {
        "counted", "counted totals", "late", "late, 100 lines", "late and unknown", "unknown experiment, 100 lines",
        "16 kB of percent signs in an experiment", "another spelling",
    }  # fmt: skip
    assert {name for name, status in statuses.items() if status == 503} == {"a cohort ahead"}
    assert set(statuses.values()) == {204, 400, 413, 503}
    assert all(other.statuses == statuses for other in counted.values())


@pytest.mark.parametrize("large", [name for name in PLANS if name != "small"])
def test_a_post_costs_as_much_with_a_large_plan_as_with_a_small_one(counted: dict[str, Counted], large: str) -> None:
    for here, there in zip(counted["small"].costs, counted[large].costs, strict=True):
        assert {name: cost for name, cost in there.items() if cost > 1.1 * here[name] + 20} == {}


@pytest.mark.parametrize("name", PLANS)
def test_a_post_costs_no_more_than_so_many_steps_per_byte(counted: dict[str, Counted], name: str) -> None:
    sizes = counted[name].sizes
    for costs in counted[name].costs:
        assert {
            post: cost for post, cost in costs.items() if cost > STEPS_PER_BYTE * sizes[post] + STEPS_PER_POST
        } == {}


def test_a_post_about_many_closed_experiments_costs_as_many_steps_as_it_has_bytes() -> None:
    """It cost a third of a second: every line was looked up once for every class that was late."""
    acceptor = PostAcceptor(parse_plan(plan(experiments=100)))
    lines = [f"e{number:04}/tier:A:3@2026-W30" for number in range(1, 100)]
    for _ in range(2):
        body = "\n".join([f"kanab/1 {NONCE.format(7)}", *lines]).encode()
        cost = steps(lambda body=body: acceptor.accept(body, None, NOW, None))
        assert cost < STEPS_PER_BYTE * len(body)
