"""People who post to collectors, and the truth about them: what they had when everything was acknowledged."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from tests.collector.collector_process import ForkServer, Place, Wire
from tests.unit.collector.counting.tables_of_counters import tables

from kanab import count
from kanab.collector.counting.accept import PostAcceptor
from kanab.collector.counting.counters import Counters, add_counters
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.protocol.nonces import make_nonce
from kanab.collector.stores.sqlite import SqliteStore
from kanab.collector.stores.store import Store
from kanab.plan.file import parse_plan
from kanab.tally.tally import Tally

PLAN_TEXT = """
k = 10

[cohorts]
every = "7d"
window = "7d"

[covariates]
tier = [1, 2, 3]
device = ["phone", "desktop"]

[metrics]
bought = { kind = "binary" }
minutes = { bounds = [0, 600], resolution = 0.01 }

[experiments.checkout]
arms = { A = 1, B = 1 }
adjust = ["tier"]
segments = ["device"]

[experiments.banner]
arms = { off = 1, on = 1 }
interactions = ["checkout"]
"""
PLAN = parse_plan(PLAN_TEXT)


def this_week() -> str:
    return cohort_label(datetime.now(UTC))


def cohort_label(now: datetime) -> str:
    periods = PostAcceptor(PLAN).calendar.periods
    assert periods is not None
    return periods.label(periods.of_day(now.date()))


def after_everything() -> str:
    """A day on which everything that is posted now is ripe."""
    return (datetime.now(UTC) + timedelta(days=30)).date().isoformat()


@dataclass(frozen=True)
class State:
    """What is counted of a person."""

    checkout: str
    tier: int
    device: str
    banner: str | None
    bought: int = 0
    minutes: float = 0.0


@dataclass(eq=False)
class Person:
    """Someone with an outbox: one post under way, the same bytes until it is answered."""

    state: State
    enrolled: bool = False
    sent: Sent | None = None
    epoch: str = ""


@dataclass(frozen=True)
class Sent:
    """A post under way, and what holds once it is counted."""

    nonce: str
    body: bytes
    after: State


@dataclass
class Visitors:
    """Everybody, drawn from a seed."""

    seed: int
    label: str = field(default_factory=this_week)
    people: list[Person] = field(default_factory=list)
    acknowledged: list[Sent] = field(default_factory=list)
    ahead: timedelta = timedelta()
    epoch: str = ""  # of the config that newcomers have

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)

    def join(self) -> Person:
        choice = self._rng.choice
        banner = choice(["off", "on", None])
        person = Person(State(choice("AB"), choice([1, 2, 3]), choice(["phone", "desktop"]), banner), epoch=self.epoch)
        self.people.append(person)
        return person

    def next_post(self, person: Person) -> Sent:
        """The same bytes as long as they are unanswered; else what the person does next."""
        if person.sent is None:
            before = person.state
            minutes = min(round(before.minutes + self._rng.expovariate(0.05), 2), 600.0)
            after = replace(before, bought=max(before.bought, int(self._rng.random() < 0.2)), minutes=minutes)
            lines = self._lines(before, after, enrolls=not person.enrolled)
            nonce = make_nonce(datetime.now(UTC) + self.ahead)
            first = f"kanab/1 {nonce} {person.epoch}".rstrip()
            body = "\n".join([first, *lines, ""])
            person.sent = Sent(nonce, body.encode(), after)
        return person.sent

    def _lines(self, before: State, after: State, *, enrolls: bool) -> list[str]:
        arm, label = before.checkout, self.label
        heads = [f"checkout/tier:{arm}:{before.tier}@{label}", f"checkout/device:{arm}:{before.device}@{label}"]
        if before.banner is not None:
            heads += [f"banner:{before.banner}@{label}", f"banner/checkout:{before.banner}:{arm}@{label}"]
        lines = list(heads) if enrolls else []
        for head in heads:
            if after.bought != before.bought:
                lines.append(f"{head}:bought:{before.bought}>{after.bought}")
            lines.append(f"{head}:minutes:{before.minutes:g}>{after.minutes:g}")
        return lines

    def acknowledge(self, person: Person) -> None:
        assert person.sent is not None
        self.acknowledged.append(person.sent)
        person.state, person.enrolled, person.sent = person.sent.after, True, None

    def rows(self, counted: Callable[[Sent], bool] | None = None) -> dict[str, list[Any]]:
        """Everybody's row as it must have been counted; posts under way may be counted or not."""
        states = []
        for person in self.people:
            if person.sent is not None and counted is not None and counted(person.sent):
                states.append(person.sent.after)
            elif person.enrolled:
                states.append(person.state)
        names = ("checkout", "tier", "device", "banner", "bought", "minutes")
        return {name: [getattr(state, name) for state in states] for name in names}

    def tallies(self, counted: Callable[[Sent], bool] | None = None) -> dict[str, Tally]:
        """What counting those rows gives: another way than messages, the same digits."""
        return dict(count(self.rows(counted), plan=PLAN).tallies)

    async def post(self, ports: Sequence[int], *, connections: int = 12, stop: asyncio.Event, seen: set[int]) -> None:
        """Post over several connections until told to stop; every status is noted, None as 0."""

        async def one(number: int) -> None:
            own, rng = [self.join()], random.Random(self.seed * 1000 + number)
            async with Wire() as wire:
                while not stop.is_set():
                    if rng.random() < 0.3:
                        own.append(self.join())
                    await self._deliver(wire, rng.choice(own), ports, number, stop, seen)

        async with asyncio.TaskGroup() as group:
            for number in range(connections):
                group.create_task(one(number))

    async def for_a_while(self, ports: Sequence[int], seconds: float, most: int | None = None) -> None:
        """Post for so long, or until so many more are acknowledged; then everything is."""
        stop, end = asyncio.Event(), len(self.acknowledged) + (most or 10**9)
        posting = asyncio.create_task(self.post(ports, stop=stop, seen=set()))
        until = time.monotonic() + seconds
        while time.monotonic() < until and len(self.acknowledged) < end:
            await asyncio.sleep(0.01)
        stop.set()
        await posting
        await self.finish(ports)

    async def _deliver(
        self, wire: Wire, person: Person, ports: Sequence[int], number: int, stop: asyncio.Event, seen: set[int]
    ) -> None:
        """Send one post until it is acknowledged, each time to the next collector; or leave it under way."""
        attempt = number
        body = self.next_post(person).body
        while True:
            status = await wire.send(ports[attempt % len(ports)], body)
            seen.add(status or 0)
            if status == 204:
                self.acknowledge(person)
                return
            if stop.is_set():
                return
            attempt += 1
            await asyncio.sleep(0.02)

    async def finish(self, ports: Sequence[int], seconds: float = 30) -> None:
        """Send everything that is still under way until it is acknowledged."""
        attempt = 0
        async with asyncio.timeout(seconds), Wire() as wire:
            for person in self.people:
                while person.sent is not None:
                    attempt += 1
                    if await wire.send(ports[attempt % len(ports)], person.sent.body) == 204:
                        self.acknowledge(person)
                    else:
                        await asyncio.sleep(0.05)

    async def replay(self, ports: Sequence[int], most: int = 50) -> list[int | None]:
        """Send old posts again, as a retry or an attacker would; the statuses."""
        old = self._rng.sample(self.acknowledged, min(most, len(self.acknowledged)))
        async with Wire() as wire:
            return [await wire.send(ports[number % len(ports)], sent.body) for number, sent in enumerate(old)]


def collected(store: Store, cipher: RecordCipher) -> dict[str, Tally]:
    """What a store holds of its open cohorts, decrypted and added."""
    found: Counters = {}
    for record in store.records():
        add_counters(found, cipher.decrypt(record.cohort, record.ciphertext))
    return tables(PLAN, found)


class Filled(NamedTuple):
    """A folder in which a collector has collected, and the truth."""

    root: Path
    tallies: dict[str, Tally]

    def copy(self, to: Path, fork_server: ForkServer) -> Place:
        return Place(shutil.copytree(self.root, to), fork_server)


def check_collected(
    place: Place, truth: Mapping[str, Tally], opened: Store | None = None, *, key: Path | None = None
) -> None:
    """The store of a place, or another one, holds just that of its open cohorts."""
    store = opened or SqliteStore(place.data / "store.db")
    assert collected(store, RecordCipher(Keyring.from_file(key or place.key))) == truth, "the sums are others"
    store.close()
