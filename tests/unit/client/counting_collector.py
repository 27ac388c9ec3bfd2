"""A collector without a network, and the plan of a shop: what a client sends is counted as the real one would."""

import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.unit.collector.counting.tables_of_counters import tables

from kanab.client.delivery import PostAnswer
from kanab.collector.counting.accept import PostAcceptor
from kanab.collector.counting.counters import Counters, add_counters
from kanab.collector.protocol.config import public_config
from kanab.collector.protocol.reasons import Reason
from kanab.errors import MessageError
from kanab.plan.file import parse_plan
from kanab.plan.model import Plan
from kanab.tally.tally import Tally

SHOP = """
k = 10

[cohorts]
every = "7d"
window = "7d"

[covariates]
tier = [1, 2, 3]
device = ["phone", "desktop", "other"]

[metrics]
bought = { kind = "binary" }
minutes = { bounds = [0, 600], resolution = 0.01 }
orders = { bounds = [0, 50], resolution = 1 }
rating = { bounds = [1, 5], resolution = 1, missing = "exclude" }
pace = { ratio = ["minutes", "orders"] }
joy = { ratio = ["rating", "orders"] }

[experiments.checkout]
arms = { A = 1, B = 1 }
adjust = ["tier"]
segments = ["device"]

[experiments.banner]
arms = { off = 1, on = 1 }
interactions = ["checkout"]
"""
NOW = datetime(2026, 11, 11, 12, 30, tzinfo=UTC)


def plan(text: str = SHOP) -> Plan:
    return parse_plan(text)


@dataclass
class Clock:
    """A time that tests move."""

    now: datetime = NOW

    def __call__(self) -> datetime:
        return self.now

    def pass_by(self, **time: float) -> None:
        self.now += timedelta(**time)


@dataclass
class CountingCollector:
    """A transport whose other end counts posts as a collector does: each nonce once, in one table per linkage."""

    plan: Plan
    clock: Clock = field(default_factory=Clock)
    down: bool = False
    answers_lost: int = 0
    epoch: str = ""
    received: list[bytes] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._scheme = PostAcceptor(self.plan)
        self._seen: set[bytes] = set()
        self._counters: Counters = {}
        self._lock = threading.Lock()

    def config(self) -> bytes:
        if self.down:
            raise ConnectionRefusedError
        return public_config(self.plan, epoch=self.epoch)

    def post(self, body: bytes) -> PostAnswer:
        with self._lock:
            if self.down:
                raise ConnectionRefusedError
            self.received.append(body)
            try:
                accepted = self._scheme.accept(body, "text/plain", self.clock(), None)
            except MessageError as problem:
                self.refusals.append(problem.reason)
                return PostAnswer(problem.status, answer=problem.reason)
            if accepted.epoch != self.epoch:
                self.refusals.append(Reason.EPOCH)
                return PostAnswer(410, answer=Reason.EPOCH, epoch=self.epoch)
            duplicate = accepted.nonce in self._seen
            if accepted.nonce not in self._seen:
                self._seen.add(accepted.nonce)
                for counters in accepted.deltas.values():
                    add_counters(self._counters, counters)
            if self.answers_lost:
                self.answers_lost -= 1
                raise TimeoutError
            return PostAnswer(204, answer=Reason.DUPLICATE if duplicate else "counted")

    def close(self) -> None:
        pass

    def tallies(self) -> dict[str, Tally]:
        return tables(self.plan, self._counters)

    def number(self, name: str) -> Any:
        """One counter; 0 if nothing was counted."""
        return self._counters.get(name, 0)

    def lines(self) -> list[str]:
        """Everything that was sent, without nonces."""
        return [line for body in self.received for line in body.decode().split("\n")[1:-1]]
