"""A running collector: the plan in force, the writer, and what happens on the clock.

Every pulse it looks whether a tick has come (then ripe cohorts are sealed), whether the hour is over
(then people per arm are floored and looked at), and what other collectors of the store have sealed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial

from kanab.collector.counting.accept import Scheme
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.health import Live, live
from kanab.collector.http.metrics import metrics_text
from kanab.collector.keys.encryption import Boxes
from kanab.collector.keys.keyring import Keyring
from kanab.collector.protocol.config import config_digest, public_config
from kanab.collector.protocol.nonces import seconds_of
from kanab.collector.protocol.reasons import Drops, Reason, refused
from kanab.collector.sealing import people_by_arm, seal_ripe
from kanab.collector.stores.store import Fate, Store
from kanab.collector.writer import Told, Writer
from kanab.errors import KanabError, StoreError
from kanab.plan.model import Plan
from kanab.plan.periods import Periods

PULSE = 15.0
"""Seconds between two looks at the clock."""

SILENCE = 60.0
"""Seconds after which a trouble that stays is told again."""

Clock = Callable[[], datetime]


def system_clock() -> datetime:
    """Now, in UTC."""
    return datetime.now(UTC)


class Service:
    """Takes posts for a plan into a store, and seals on the clock.

    ``clock`` is injected by rehearsals and demonstrations only. ``say`` gets the few sentences that an
    operator should read: none of them is about a person.
    """

    def __init__(
        self,
        store: Store,
        keyring: Keyring,
        plan: Plan,
        *,
        clock: Clock = system_clock,
        pulse: float = PULSE,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.store = store
        self.drops = Drops()
        self.live = Live()
        self._boxes = Boxes(keyring)
        self._clock, self._pulse, self._say = clock, pulse, say
        scheme = Scheme(plan)  # a plan that cannot be collected is refused before anything is written
        life = scheme.calendar.life
        self._writer = Writer(store, keyring, life=life, clock=lambda: clock().timestamp())
        now = scheme.calendar.opening(seconds_of(clock())).current
        self._versions, change = Versions.read(store).record(store, plan, now)
        for sentence in (*change.at_once, *(f"from the next period on: {one}" for one in change.next_period)):
            say(f"kanab: {sentence}.")
        self._follow(now)
        self._sealed_through = store.sealed_through()
        self._held_back: tuple[int, str] | None = None
        self._failing = False
        self._behind = False
        self._said: tuple[str, float] | None = None
        self._shown: dict[str, int] = {}
        self._batches = 0
        self._beating: asyncio.Task[None] | None = None

    # ── posts ──────────────────────────────────────────────────────────────────────────────────

    async def take(self, body: bytes, content_type: str | None) -> None:
        """Count a post; returns when that is on disk, or raises why it is not counted."""
        waiting: asyncio.Future[Fate | StoreError] = asyncio.get_running_loop().create_future()
        if self.begin(body, content_type, self.now(), partial(_settle, waiting)):
            self.end(await waiting)

    def now(self) -> datetime:
        """What the collector's clock says."""
        return self._clock()

    def begin(self, body: bytes, content_type: str | None, now: datetime, told: Told) -> bool:
        """Read a post and queue what it adds; ``told`` hears its fate on the event loop. False: it adds nothing."""
        if self._behind:
            raise _clock_behind()
        accepted = self._scheme.accept(body, content_type, now, self._sealed_through)
        if accepted.dropped:
            self.drops.add(*accepted.dropped)
        if not accepted.deltas:
            return False
        try:
            self._writer.post(accepted.nonce, accepted.deltas, told)
        except StoreError as problem:
            self._fail(problem)
            raise
        return True

    def end(self, fate: Fate | StoreError) -> None:
        """What became of a post: raises why it is not counted."""
        if isinstance(fate, StoreError):
            self._fail(fate)
            raise fate
        self._failing = False
        if fate is Fate.EXPIRED:
            raise refused(Reason.EXPIRED, "the nonce is older than messages live", "Give this message up.")
        if fate is not Fate.NEW:
            self.drops.add(fate.value)

    def _follow(self, period: int) -> None:
        """Take the plan that is in force in a period; totals of experiments that ended are still taken."""
        self._followed = period, len(self._versions.entries)
        self.plan = self._versions.in_force(period)
        known = self._versions.known
        began = {one.name: self._versions.metrics(one.name) for one in known.experiments}
        self._scheme = Scheme(known, began)
        self._config = public_config(self.plan, began)
        self.digest = config_digest(self._config)
        self.origins = frozenset(origin.encode() for origin in self.plan.origins)

    def config_named(self, digest: str) -> bytes | None:
        """The plan's public part under its name."""
        return self._config if digest == self.digest else None

    # ── the clock ──────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Look at the clock now, and from now on."""
        await asyncio.to_thread(self.beat)
        self._beating = asyncio.create_task(self._beat_on())

    async def stop(self) -> None:
        """Take nothing more, commit what waits."""
        if self._beating is not None:
            self._beating.cancel()
            with suppress(asyncio.CancelledError):
                await self._beating
            self._beating = None
        await asyncio.to_thread(self._writer.close)

    async def _beat_on(self) -> None:
        while True:
            await asyncio.sleep(self._pulse)
            await asyncio.to_thread(self.beat)

    def beat(self) -> None:
        """What the clock demands; what fails is said and tried again at the next pulse."""
        now = self._clock()
        try:
            self._sealed_through = max(self._sealed_through, self.store.sealed_through())
            self._compare(now)
            self._turn(now)
            self._seal(now)
            self._look(now)
            self._shown = self.drops.floored(self.plan.k)
            self._batches = len(self.store.sealed())
            self._failing = False
        except KanabError as problem:
            self._fail(problem)
        except Exception as problem:  # a mistake of this program must not end the clock, nor repeat what it held
            self._fail(StoreError(f"what the clock demands failed ({type(problem).__name__})", "It is tried again."))

    def _fail(self, problem: KanabError) -> None:
        """The store cannot be used: tell the operator, but not the same again and again."""
        self._failing = True
        sentence, now = f"kanab: {problem}", time.monotonic()
        if self._said is None or self._said[0] != sentence or now - self._said[1] > SILENCE:
            self._said = sentence, now
            self._say(sentence)

    def _compare(self, now: datetime) -> None:
        """A clock that stands before the last sealed cohort would drop everything: nothing is taken meanwhile."""
        behind = self.plan.cohorts is not None and self._current(now) <= self._sealed_through
        if behind and not self._behind:
            self._say(f"kanab: {_clock_behind()}")
        self._behind = behind

    def _turn(self, now: datetime) -> None:
        """A new period, or another collector with a newer plan, may have put another plan in force."""
        self._versions = Versions.read(self.store)
        period = self._current(now)
        if self._followed != (period, len(self._versions.entries)):
            self._follow(period)

    def _current(self, now: datetime) -> int:
        return self._scheme.calendar.opening(seconds_of(now)).current

    def _seal(self, now: datetime) -> None:
        """At a tick: everything that was ripe then becomes one batch, or waits for the next tick."""
        through = ripe_at_tick(self.plan, self._scheme, now)
        if through is None or through <= self._sealed_through or self._held_back == (through, self.digest):
            return
        for sealed in seal_ripe(self.store, self._boxes, self._versions, through):
            if sealed.release is None:
                self._held_back = through, self.digest
                self._say(f"kanab: not sealed: {sealed.held_back}.")
            else:
                batch = sealed.release.receipt.batch
                self._say(f"kanab: sealed the cohorts through {batch.through if batch else 'the end'}.")
        self._sealed_through = max(self._sealed_through, self.store.sealed_through())

    def _look(self, now: datetime) -> None:
        """Once an hour: people per arm, floored, and whether they arrive as planned."""
        hour = now.replace(minute=0, second=0, microsecond=0)
        if self.live.as_of == hour:
            return
        before = self.live.alarms
        self.live = live(self.plan, people_by_arm(self.store, self._boxes, self.plan), hour)
        for name in sorted(self.live.alarms - before):
            self._say(f"kanab: people of {name} do not arrive in the planned shares.")

    # ── health ─────────────────────────────────────────────────────────────────────────────────

    @property
    def healthy(self) -> bool:
        """Can posts be written, and keys be erased?"""
        return not self._failing and not self._behind and self._writer.trouble is None

    def metrics(self) -> str:
        """The state for a monitoring system: numbers about people in steps of k, refreshed on the clock."""
        return metrics_text(self.live, self._shown, healthy=self.healthy, sealed=self._batches)


def _settle(waiting: asyncio.Future[Fate | StoreError], fate: Fate | StoreError) -> None:
    if not waiting.done():  # or its sender went away
        waiting.set_result(fate)


def _clock_behind() -> StoreError:
    return StoreError(
        "the last sealed cohort lies ahead of this machine's clock",
        "Set the clock right; after a rehearsal use another store. Until then nothing is taken, and clients try again.",
    )


def ripe_at_tick(plan: Plan, scheme: Scheme, now: datetime) -> int | None:
    """The last cohort that was ripe when the last tick came; None where only ``kanab seal`` seals."""
    if plan.cohorts is None or plan.cohorts.seal == "end":
        return None
    ticks = Periods(plan.cohorts.seal)
    day = ticks.first_day(ticks.of_day(now.astimezone(UTC).date()))
    tick = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)
    return scheme.calendar.last_ripe(seconds_of(tick))
