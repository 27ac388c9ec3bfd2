"""A running collector: the plan in force, the writer, and what happens on the clock.

Every few seconds it checks whether a tick has come (then ripe cohorts are sealed), whether the hour is over
(then people per arm are floored and compared with the plan), and what other collectors of the store have sealed.
"""

import asyncio
import math
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

from kanab import __version__
from kanab.collector.clock import OUT_OF_TIME, Clock, clock_error, guarded
from kanab.collector.counting.accept import PostAcceptor
from kanab.collector.counting.cohorts import Calendar
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.export import Export
from kanab.collector.health import LiveHealth, live_health
from kanab.collector.http.metrics import CollectorFigures, metrics_text
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.keys.store_witness import Witness
from kanab.collector.log import Level, Say, say_nothing
from kanab.collector.protocol.config import config_digest, public_config
from kanab.collector.protocol.nonces import expired_error, read_voucher_keys, seconds_of
from kanab.collector.protocol.reasons import Drops, Reason, epoch_error
from kanab.collector.readiness import Problem, Readiness
from kanab.collector.restoring import LOST_MEMORY, begin_epoch, older_error
from kanab.collector.sealing import check_store_account, first_open, missing_records, people_by_arm, seal_due
from kanab.collector.store_ledger import RAISED, closed_through, reopen_cohorts, shown_accounts, would_be_destroyed
from kanab.collector.stores.store import NEW, NOTHING_SEALED, PostOutcome, Store
from kanab.collector.writer import OnOutcome, Writer
from kanab.counted import floor_to_k
from kanab.errors import KanabError, LedgerError, MessageError, StoreError
from kanab.plan.model import Plan, settle_missing
from kanab.plan.periods import Periods
from kanab.privacy.epsilon.noisy_release import check_declared
from kanab.privacy.ledger import verified_entries
from kanab.privacy.release import name_left_out
from kanab.stats.srm import LIVE_SAMPLE_RATIO_ALARM

CHECK_SECONDS = 15.0
"""Seconds between two checks of the clock."""

REPEAT_SECONDS = 60.0
"""Seconds after which a problem that persists is reported again."""

OVERDUE_SECONDS = 3600.0
"""Seconds after a tick at which a seal that has not come is called overdue."""

AT_STOP_SECONDS = 5.0
"""Seconds that a collector which stops waits for an export, and for messages to people, that have begun."""

STUCK_SECONDS = 300.0
"""Seconds after which a check of the clock that does not end is called stuck: it waits for the store."""

_UNCONFIRMED = (
    "cohorts are ripe by this machine's clock, but since the start, or a jump, nothing has confirmed it. They are "
    "sealed once two other clocks agree, an hour after a small jump, or after a start with --accept-clock."
)

_FOREIGN = (
    "a page of another site posts here, and is refused: the plan names no origins. If it is yours, write "
    'origins = ["https://shop.example"] into the plan, with the pages that may post.'
)


class SealNotifier(Protocol):
    """Tells people what was sealed and what is alarming, in a thread of its own."""

    @property
    def failing(self) -> bool:
        """Whether somebody could not be told, and is told later."""

    def offer(self, entries: Sequence[bytes], alarms: Collection[str], plan: Plan) -> None:
        """Begin to tell what is new in the ledger, and the experiments with an alarm before the seal."""

    def stop(self, seconds: float) -> None:
        """Wait so long for telling that has begun, and say nothing about it afterwards."""


class Service:
    """Takes posts for a plan into a store, and seals on the clock.

    ``replaces`` is the number of the newest version where an earlier plan shall hold again instead of it. ``witness``
    says how far the store had come. A ``clock`` that is not guarded is a rehearsal's: it is always believed.
    ``voucher_keys`` stand newest first. ``say`` gets the few sentences that an operator should read.
    """

    def __init__(
        self,
        store: Store,
        keyring: Keyring,
        plan: Plan,
        *,
        replaces: int | None = None,
        witness: Witness | None = None,
        clock: Clock | None = None,
        notifier: SealNotifier | None = None,
        voucher_keys: Sequence[bytes] = (),
        say: Say = say_nothing,
    ) -> None:
        if plan.vouch and not voucher_keys:
            read_voucher_keys("")  # raises what to do
        self._voucher_keys = voucher_keys
        self.store = store
        self.drops, self.answers = Drops(), Drops()
        self.live = LiveHealth()
        self.readiness = Readiness()
        self._cipher = RecordCipher(keyring)
        self._clock = guarded(clock)
        self._say = say
        self._behind = False
        self._last_trouble: str | None = None
        self._has_reported_origins = False
        self._unconfirmed: float | None = None
        self._acceptor = acceptor = PostAcceptor(
            plan
        )  # a plan that cannot be collected is refused before anything is written
        if plan.budget is not None:  # or every seal would be refused
            check_declared(settle_missing(plan))
        now = acceptor.calendar.opening(seconds_of(self._clock())).current
        before = Versions.read(store)
        life = acceptor.calendar.life
        self._clock.compare(store, life)
        if self._clock.trouble is not None and before.is_changed(plan):
            raise self._clock.trouble  # a new plan is recorded with its period, which nobody knows
        if plan.budget is not None:
            check_store_account(store, before.adopt(plan, now, replaces=replaces)[0])
        self._keyring = keyring
        self._writer = Writer(store, keyring, life=life, clock=self._forgetting_time)
        self._versions, change = before.record(store, plan, now, replaces=replaces)
        for sentence in (*change.at_once, *(f"from the next period on: {text}" for text in change.next_period)):
            say(f"kanab: {sentence}.")
        if store.lost():
            self._writer.epoch = begin_epoch(store, LOST_MEMORY, self._clock(), keyring=keyring)
            say(
                f"kanab: {LOST_MEMORY}: a new epoch begins, and people who were open are not counted any more.",
                Level.WARNING,
            )
        self._witness = witness
        self._older = older_error(store, keyring, witness)
        self._follow(now)
        self._sealed_through = NOTHING_SEALED
        with suppress(LedgerError):  # the first look at the clock reports it
            self._read_sealed()
        self._held_back: tuple[int, str] | None = None
        self._due_since: datetime | None = None
        self._reported: tuple[str, float] | None = None
        self._figures = CollectorFigures()
        self._entries = 0  # of the ledger, when the figures were made
        self._clock_task: asyncio.Task[None] | None = None
        self._check_began: float | None = None
        self._notifier = notifier
        self._watch()
        self._export = None if plan.export is None else Export(plan.export, self.readiness, say)

    # ── posts ──────────────────────────────────────────────────────────────────────────────────

    async def take(self, body: bytes, content_type: str | None) -> Reason | None:
        """Count a post, and return when that is on disk: None, or the reason why it was dropped.

        Raises `MessageError` where the post is refused, and `StoreError` where it cannot be written.
        """
        waiting: asyncio.Future[PostOutcome | StoreError] = asyncio.get_running_loop().create_future()
        dropped = self.begin(body, content_type, self.now(), partial(_settle, waiting))
        return self.end(await waiting) if dropped is None else dropped

    def now(self) -> datetime:
        """Return the time on the collector's clock."""
        return self._clock()

    def begin(self, body: bytes, content_type: str | None, now: datetime, on_outcome: OnOutcome) -> Reason | None:
        """Read a post and queue what it adds; return why it adds nothing, or call ``on_outcome`` on the loop later."""
        if self._behind or self._clock.trouble is not None:
            self._report_clock()
            raise clock_error()
        if self._older is not None:
            raise self._older
        try:
            accepted = self._acceptor.accept(body, content_type, now, self._sealed_through)
        except MessageError as problem:
            raise (self._clock.untimely(problem) if problem.reason in OUT_OF_TIME else problem) from None
        nonce, deltas, dropped, epoch = accepted
        if dropped:
            self.drops.add(*dropped)
        if not deltas:
            self.answers.add(dropped[0])
            return dropped[0]
        try:
            self._writer.post(nonce, deltas, on_outcome, epoch)
        except StoreError as problem:
            self._report(problem)
            raise
        return None

    def end(self, outcome: PostOutcome | StoreError) -> Reason | None:
        """Finish a post by its outcome: return the reason if it was dropped, raise the error if it is refused."""
        if isinstance(outcome, StoreError):
            self.readiness.set(Problem.STORE, wrong=True)
            self._report(outcome)
            raise outcome
        if self.readiness.noted:
            self.readiness.set(Problem.STORE, wrong=False)
        if outcome is NEW:
            return None
        if outcome is PostOutcome.EXPIRED:
            raise expired_error()
        if outcome is PostOutcome.EPOCH:
            if self.epoch != self._writer.epoch:
                self._publish()
            raise epoch_error()
        reason = Reason(outcome.value)
        self.refuse(reason)
        return reason

    def refuse(self, reason: Reason | str) -> None:
        """Note that a post got another answer than that it was counted."""
        if reason == Reason.ORIGIN and not self.origins and not self._has_reported_origins:
            self._has_reported_origins = True
            self._say(f"kanab: {_FOREIGN}", Level.WARNING)
        self.drops.add(reason)
        self.answers.add(reason)

    def _follow(self, period: int) -> None:
        """Follow the plan that is in force in a period; totals of experiments that ended are still taken."""
        self._followed = period, len(self._versions.entries)
        self.plan = self._versions.in_force(period)
        known = self._versions.known
        began = {name: self._versions.metrics(name) for name in known.experiment_names}
        self._acceptor = PostAcceptor(known, began, self._voucher_keys, checked=self._acceptor.plan)
        self.origins = frozenset(origin.encode() for origin in self.plan.origins)
        self._began = began
        self._publish()

    def _publish(self) -> None:
        """Make the config of the plan in force and the store's epoch."""
        self.epoch = self._writer.epoch
        self.config = public_config(self.plan, self._began, self.epoch)
        self.digest = config_digest(self.config)

    # ── the clock ──────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Check the clock now, and from now on every few seconds."""
        await asyncio.to_thread(self.check_clock)
        self._clock_task = asyncio.create_task(self._check_forever())

    async def stop(self) -> None:
        """Take no more posts, and commit those that wait."""
        if self._clock_task is not None:
            self._clock_task.cancel()
            with suppress(asyncio.CancelledError):
                await self._clock_task
            self._clock_task = None
        await asyncio.to_thread(self._writer.close)
        with suppress(StoreError):
            await asyncio.to_thread(self._note_witness)
        if self._export is not None:
            await asyncio.to_thread(self._export.wait, AT_STOP_SECONDS)
        if self._notifier is not None:
            await asyncio.to_thread(self._notifier.stop, AT_STOP_SECONDS)

    async def _check_forever(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await asyncio.to_thread(self.check_clock)

    def check_clock(self) -> None:
        """Do what is due by the clock; what fails is reported and tried again at the next check."""
        self._check_began = time.monotonic()
        guard = self.readiness.guard
        try:
            with guard(Problem.STORE):
                self._read_sealed()
                now = self._compared_time()
                if now is not None:
                    self._follow_plan(now)
                if self._older is not None or not self._writer.number:  # later on the store itself notices
                    self._older = older_error(self.store, self._keyring, self._witness)
                self.readiness.set(Problem.EPOCH, wrong=self._older is not None)
                self._note_witness()
            if self._older is not None:
                raise self._older
            if now is not None:
                with guard(Problem.SEAL):
                    self._seal(now)
            with guard(Problem.STORE):
                if now is not None:
                    self._refresh_live(now)
                entries = self.store.sealed()
                if len(entries) != self._entries:
                    ledger = verified_entries(entries, "the store")
                    receipts, self._entries = [release.receipt for release in ledger.releases], len(entries)
                    self._figures = CollectorFigures(
                        sealed=len(receipts),
                        forged=sum(len(receipt.forged) for receipt in receipts),
                        deleted=sum(bool(receipt.deleted) for receipt in receipts),
                        accounts=shown_accounts(ledger),
                    )
                self._measure()
            if self._export is not None:
                self._export.offer(entries)
            if self._notifier is not None:
                self._notifier.offer(entries, self.live.alarms, self.plan)
            if self._writer.trouble is not None:
                self._report(self._writer.trouble)
        except KanabError as problem:
            self._report(problem)
        except Exception as problem:  # a mistake of this program must not end the clock, nor repeat what it held
            self._report(StoreError(f"what the clock demands failed ({type(problem).__name__})", "It is tried again."))
        self._check_began = None

    def _read_sealed(self) -> None:
        """Learn what is sealed by now; open again what somebody only marked as sealed, and look for what is missing."""
        if self.store.sealed_through() <= self._sealed_through:
            return
        if reopen_cohorts(self.store):
            self._say(f"kanab: {RAISED}. They are open again.", Level.ERROR)
            self.live = replace(self.live, as_of=None)
        self._sealed_through = max(self._sealed_through, closed_through(self.store))

    def _report(self, problem: KanabError) -> None:
        """Report a problem to the operator, but not the same one again and again."""
        sentence, now = f"kanab: {problem}", time.monotonic()
        if self._reported is None or self._reported[0] != sentence or now - self._reported[1] > REPEAT_SECONDS:
            self._reported = sentence, now
            self._say(sentence, Level.ERROR)

    def _compared_time(self) -> datetime | None:
        """Return the time after a comparison with the store and other clocks; None if it is not believed."""
        self._clock.compare(self.store, self._acceptor.calendar.life)
        now = self._clock()
        self._behind = self.plan.cohorts is not None and self._current(now) <= self._sealed_through
        self._report_clock()
        return now if self._clock_trouble() is None else None

    def _clock_trouble(self) -> StoreError | None:
        """Return why nothing is taken, sealed or forgotten by this clock; None while it is believed."""
        if not self._behind:
            return self._clock.trouble
        return StoreError(
            "the last sealed cohort lies ahead of this machine's clock",
            "Set the clock right; after a rehearsal use another store. Until then nothing is taken, and clients try "
            "again.",
        )

    def _report_clock(self) -> None:
        """Tell the operator when the clock is not believed any more, and when it is again."""
        problem = self._clock_trouble()
        sentence = None if problem is None else f"kanab: {problem}"
        if sentence != self._last_trouble:
            self._last_trouble = sentence
            if sentence is None:
                self._say("kanab: the clock of this machine is believed again; posts are counted.")
            else:
                self._say(sentence, Level.ERROR)

    def _forgetting_time(self) -> float | None:
        """Return the time by which nonces are forgotten; None while nobody has confirmed it."""
        now = self._clock()
        return now.timestamp() if self._clock.is_sure and self._clock_trouble() is None else None

    def _is_clock_wrong(self) -> bool:
        self._clock()
        return self._clock_trouble() is not None

    def _note_witness(self) -> None:
        """Write how far the store has come; what is acknowledged until the next time, it does not know."""
        seen = self._writer.seen.join(self._cipher.seen)
        if self._witness is not None and self._older is None and (seen.number or seen.records):
            self._witness.note(seen, self._sealed_through)

    def _recall(self) -> None:
        """Join what this collector has committed, and what its witness knows, for who reads the records."""
        noted = None if self._witness is None else self._witness.read()
        self._cipher.seen = self._writer.seen.join(self._cipher.seen).join(noted)

    def _follow_plan(self, now: datetime) -> None:
        """Follow another plan if a new period, or another collector with a newer plan, has put it in force."""
        self._versions = Versions.read(self.store)
        period = self._current(now)
        self._writer.epoch = self.store.epoch()
        if self._followed != (period, len(self._versions.entries)) or self.epoch != self._writer.epoch:
            self._follow(period)

    def _current(self, now: datetime) -> int:
        return self._acceptor.calendar.opening(seconds_of(now)).current

    def _seal(self, now: datetime) -> None:
        """Seal, after a tick, everything that was ripe then as one batch, or leave it for the next tick."""
        through = self._due(now)
        if through is None:
            return
        if not self._clock.is_sure:
            if self._unconfirmed is None and any(cohort <= through for cohort in self.store.sizes()):  # told once
                self._unconfirmed = time.monotonic()
                self._say(f"kanab: {_UNCONFIRMED}", Level.WARNING)
            return
        self._due_since = self._due_since or last_seal_time(self.plan, now)
        self._recall()
        for sealed in seal_due(self.store, self._cipher, self._versions, through):
            if sealed.release is None:
                self._held_back = through, self.digest
                self._say(f"kanab: not sealed: {sealed.held_back}.", Level.WARNING)
            else:
                batch = sealed.release.receipt.batch
                self._say(f"kanab: sealed the cohorts through {batch.through if batch else 'the end'}.")
                for name, why in sealed.release.receipt.forged.items():
                    self._say(f"kanab: {name_left_out(name, why)}.", Level.WARNING)
                for sentence in sealed.release.receipt.deleted:
                    self._say(f"kanab: {sentence}.", Level.ERROR)
            for sentence in sealed.waiting.values():
                self._say(f"kanab: {sentence}.", Level.WARNING)
            for sentence in sealed.destroyed.values():
                self._say(f"kanab: {sentence}.", Level.ERROR)
        self._read_sealed()
        self._due_since = None

    def _due(self, now: datetime) -> int | None:
        """Return the cohort through which everything should be sealed by now; None if nothing is due."""
        through = due_through(self.plan, self._acceptor.calendar, now)
        if through is None or through < max(self._sealed_through + 1, self._versions.entries[0].since):
            return None
        return None if self._held_back == (through, self.digest) else through

    def _refresh_live(self, now: datetime) -> None:
        """Refresh, once an hour, the floored people per arm, and whether they arrive as planned."""
        hour = now.replace(minute=0, second=0, microsecond=0)
        if self.live.as_of == hour:
            return
        self._recall()
        missing = bool(missing_records(self.store, self._cipher))
        if missing and Problem.DELETED not in self.readiness.noted:
            self._say(f"kanab: {Problem.DELETED.line}", Level.ERROR)
        self.readiness.set(Problem.DELETED, wrong=missing)
        if self.plan.budget is not None:  # people per arm, however coarse, would be exact
            self.live = LiveHealth(hour)
            return
        before = self.live
        live = live_health(self.plan, people_by_arm(self.store, self._cipher, self.plan), hour)
        self.live = replace(live, would_be_lost=self._would_be_lost())
        for name in sorted(self.live.alarms - before.alarms):
            limit = f"p below {LIVE_SAMPLE_RATIO_ALARM:g}"
            self._say(f"kanab: people of {name} do not arrive in the planned shares ({limit}).", Level.WARNING)
        self.readiness.set(Problem.LOSS, wrong=bool(self.live.would_be_lost))
        for name in sorted(self.live.would_be_lost - before.would_be_lost):
            ends = f"{name} has ended with an arm below k, and its people would be destroyed at the seal"
            self._say(f"kanab: {ends}. Put it back into the plan, or let it go.", Level.WARNING)

    def _would_be_lost(self) -> frozenset[str]:
        """Return the experiments that have ended, and whose people the next seal would destroy."""
        first = first_open(self.store, self._versions)
        plan = self._versions.over(first, max(first, self._followed[0]))
        ended = {*plan.experiment_names} - {*self._versions.newest.experiment_names}
        if not ended:
            return frozenset()
        return frozenset(would_be_destroyed(plan, ended, self._cipher.genuine(self.store.records()).counters))

    # ── health ─────────────────────────────────────────────────────────────────────────────────

    def seal_lag(self) -> float:
        """Return the seconds since the tick at which something should have been sealed that is not; 0 if all is."""
        now = self._clock()
        if self._due(now) is None or self._clock_trouble() is not None:
            return 0.0
        if not self._clock.is_sure:
            return 0.0 if self._unconfirmed is None else time.monotonic() - self._unconfirmed
        tick = self._due_since or last_seal_time(self.plan, now) or now
        return max((now - tick).total_seconds(), 0.0)

    def _watch(self) -> None:
        """Have readiness ask for what can be seen at any time."""
        watch, writer = self.readiness.watch, self._writer
        watch(Problem.CLOCK, self._is_clock_wrong)
        watch(Problem.QUEUE, lambda: writer.nearly_full)
        watch(Problem.SEAL, lambda: self.seal_lag() > OVERDUE_SECONDS)
        watch(Problem.KEY, lambda: writer.trouble is not None and self._keyring.period <= self._sealed_through)
        watch(Problem.STORE, lambda: writer.trouble is not None and self._keyring.period > self._sealed_through)
        if (notifier := self._notifier) is not None:
            watch(Problem.NOTIFY, lambda: notifier.failing)
        watch(Problem.STORE, lambda: time.monotonic() - (self._check_began or math.inf) > STUCK_SECONDS)

    def _measure(self) -> None:
        """Refresh what counts messages, in steps of k: on the clock, and not whenever somebody asks."""
        k, writer = self.plan.k, self._writer
        if self.plan.budget is not None:
            self._figures = CollectorFigures(sealed=self._figures.sealed, noisy=True)
            return
        self._figures = replace(
            self._figures,
            nonces=floor_to_k(self.store.remembered(), k),
            answers={"counted": floor_to_k(writer.counted, k), **self.answers.floored(k)},
            drops=self.drops.floored(k),
            posts=writer.posts.floored(k),
            commits=writer.commits.floored(k),
        )

    def metrics(self) -> str:
        """Return the state for a monitoring system: numbers about people in steps of k, refreshed on the clock."""
        figures = replace(
            self._figures,
            live=self.live,
            problems=self.readiness.problems(),
            info={"version": __version__, "plan": str(len(self._versions.entries)), "epoch": self.epoch},
            seal_lag=self.seal_lag(),
            clock_step=round(self._clock.step, 3),
            waiting=0 if self.plan.budget is not None else floor_to_k(self._writer.waiting, self.plan.k),
            most_waiting=self._writer.limit,
        )
        return metrics_text(figures)


def _settle(waiting: asyncio.Future[PostOutcome | StoreError], outcome: PostOutcome | StoreError) -> None:
    if not waiting.done():  # or its sender went away
        waiting.set_result(outcome)


def due_through(plan: Plan, calendar: Calendar, now: datetime) -> int | None:
    """Return the last cohort that was ripe when the last tick came; None where only ``kanab seal`` seals."""
    tick = last_seal_time(plan, now)
    return None if tick is None else calendar.last_due(seconds_of(tick))


def last_seal_time(plan: Plan, now: datetime) -> datetime | None:
    """Return when the last tick came; None where only ``kanab seal`` seals."""
    if plan.cohorts is None or plan.cohorts.seal == "end":
        return None
    ticks = Periods(plan.cohorts.seal)
    day = ticks.first_day(ticks.of_day(now.astimezone(UTC).date()))
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)
