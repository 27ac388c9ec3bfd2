"""How many posts one thread decodes, checks and turns into counters: the collector without network and disk.

    python benchmarks/bench_messages.py

Targets: 20,000 posts of one message a second, 300,000 messages a second in posts of 20. Printed are
the best of many short rounds, which a busy machine disturbs least, and the median round.

Reached with Python 3.11 on one of 2 shared cores, best (median), in messages a second: one message 153,000
(81,000); 20 of one table 713,000 (355,000); 20 of two tables 594,000 (283,000); 20 as JSON 112,000 (55,000).

The last rows are posts that somebody sends to keep a collector busy, to a plan with 100 experiments, each in
milliseconds. 100 lines of closed cohorts take 0.14 ms; they took 333 ms while each line was looked up for every
class that was late. 16 kB of percent signs as a name take 0.03 ms instead of 6.6 ms.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from datetime import UTC, datetime
from statistics import median

from kanab.collector.counting.accept import PostAcceptor
from kanab.collector.protocol.nonces import make_nonce
from kanab.errors import MessageError
from kanab.plan.file import parse_plan

PLAN = """
[cohorts]
[covariates]
tier = [1, 2, 3]
device = ["phone", "desktop"]
[metrics]
bought = { kind = "binary" }
minutes = { bounds = [0, 600], resolution = 0.01 }
pages = { bounds = [0, 1000], resolution = 1 }
[experiments.checkout]
arms = { A = 1, B = 1 }
adjust = ["tier"]
[experiments.banner]
arms = { off = 9, on = 1 }
adjust = ["tier"]
segments = ["device"]
"""
NOW = datetime(2026, 11, 15, 16, 30, tzinfo=UTC)
ROUNDS, POSTS = 400, 50
TARGETS = {"one message": 20_000, "20 of one table": 300_000}


def bodies() -> dict[str, tuple[str, int, bytes]]:
    """Posts by name, with their content type and how many messages they carry."""
    place = "checkout/tier:B:3@2026-W46"
    totals = [f"{place}:minutes:{step * 1.25}>{step * 1.25 + 1.25}" for step in range(17)]
    enrolled = [place, *totals, f"{place}:bought:0>1", f"{place}:pages:0>12"]
    moves = [f":{metric}:{old}>{old + 1}" for metric in ("minutes", "pages") for old in range(4)]
    tables = [
        f"banner/{table}@2026-W46{rest}"
        for table in ("tier:on:3", "device:on:phone")
        for rest in ("", *moves, ":bought:0>1")
    ]
    message = {"linkage": ["checkout", "tier"], "levels": ["B", 3], "cohort": "2026-W46", "metric": "minutes"}
    pages = [{**message, "old": step * 1.25, "new": step * 1.25 + 1.25} for step in range(20)]
    return {
        "one message": ("text/plain", 1, _text(totals[:1])),
        "20 of one table": ("text/plain", 20, _text(enrolled)),
        "20 of two tables": ("text/plain", 20, _text(tables)),
        "20 as JSON": (
            "application/json",
            20,
            json.dumps({"kanab": 1, "nonce": make_nonce(NOW), "messages": pages}).encode(),
        ),
    }


def hostile() -> dict[str, tuple[str, bytes]]:
    """Posts that are refused or dropped, by name, with their content type."""
    tables = [f"e{number:02}/{table}" for number in range(50) for table in ("tier:A:3", "device:A:phone")]
    level = [{"linkage": ["e00", "tier"], "levels": ["A", "%" * 15_000], "cohort": "2026-W46"}]
    return {
        "100 lines, late": ("text/plain", _text([f"{table}@2026-W30" for table in tables])),
        "100 lines, unknown": ("text/plain", _text([f"what/{table}@2026-W46" for table in tables])),
        "16 kB of %": ("text/plain", _text([f"e00/{'%' * 16_000}:A:3@2026-W46"])),
        "16 kB of % as JSON": (
            "application/json",
            json.dumps({"kanab": 1, "nonce": make_nonce(NOW), "messages": level}).encode(),
        ),
        "unknown level": ("text/plain", _text(["e00/tier:A:99@2026-W46"])),
        "one of two tables": ("text/plain", _text(["e00/tier:A:3@2026-W46"])),
    }


def _text(lines: list[str]) -> bytes:
    return "\n".join([f"kanab/1 {make_nonce(NOW)}", *lines, ""]).encode()


def measure(acceptor: PostAcceptor, kind: str, body: bytes) -> tuple[float, float]:
    """Seconds for one post: the best round and the median one."""
    rounds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(POSTS):
            acceptor.accept(body, kind, NOW, None)
        rounds.append((time.perf_counter() - start) / POSTS)
    return min(rounds), median(rounds)


def cost(acceptor: PostAcceptor, kind: str, body: bytes) -> float:
    """Seconds for a post that is not counted: the best of some."""
    times = []
    for _ in range(20):
        start = time.perf_counter()
        with suppress(MessageError):
            assert not acceptor.accept(body, kind, NOW, None).deltas
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    acceptor = PostAcceptor(parse_plan(PLAN))
    for name, (kind, messages, body) in bodies().items():
        assert len(acceptor.accept(body, kind, NOW, None).deltas) == 1
        best, middle = measure(acceptor, kind, body)
        target = f"   target {TARGETS[name]:,}" if name in TARGETS else ""
        print(f"{name:18} {messages / best:9,.0f} messages/s, median {messages / middle:9,.0f}{target}")
    experiments = [
        f'[experiments.e{number:02}]\narms = {{ A = 1, B = 1 }}\nadjust = ["tier"]\nsegments = ["device"]\n'
        for number in range(100)
    ]
    acceptor = PostAcceptor(parse_plan(PLAN.partition("[experiments.")[0] + "".join(experiments)))
    for name, (kind, body) in hostile().items():
        print(f"{name:18} {1000 * cost(acceptor, kind, body):9.3f} ms for a post of {len(body):6,} bytes")


if __name__ == "__main__":
    main()
