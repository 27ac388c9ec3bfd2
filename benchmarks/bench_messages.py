"""How many posts one thread decodes, checks and turns into counters: the collector without network and disk.

    python benchmarks/bench_messages.py

Targets: 20,000 posts of one message a second, 300,000 messages a second in posts of 20. Printed are
the best of many short rounds, which a busy machine disturbs least, and the median round.

Reached with Python 3.11 on one of 2 shared cores, best (median), in messages a second: one message 153,000
(81,000); 20 of one table 713,000 (355,000); 20 of two tables 594,000 (283,000); 20 as JSON 112,000 (55,000).
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from statistics import median

from kanab.collector.counting.accept import PostAcceptor
from kanab.collector.protocol.nonces import make_nonce
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


def main() -> None:
    acceptor = PostAcceptor(parse_plan(PLAN))
    for name, (kind, messages, body) in bodies().items():
        assert len(acceptor.accept(body, kind, NOW, None).deltas) == 1
        best, middle = measure(acceptor, kind, body)
        target = f"   target {TARGETS[name]:,}" if name in TARGETS else ""
        print(f"{name:18} {messages / best:9,.0f} messages/s, median {messages / middle:9,.0f}{target}")


if __name__ == "__main__":
    main()
