"""Tells people about sealed batches: after the commit, at least once, from a thread of its own.

The store remembers what was told, by marks: ``slack`` (this channel is in use; what was sealed before is not told),
``slack:HASH`` (everything about this entry of the ledger was told) and ``slack:ID`` (this notice was). A mark is
written after the call has succeeded. So a process that is killed in between, or a call whose answer was lost, means
that a notice is told again, with the same id, and never that it is not told.
"""

import threading
import time
from collections.abc import Collection, Sequence

from kanab.collector.log import Level, Say, say_nothing
from kanab.collector.sealing import stored_ledger
from kanab.collector.stores.store import Store
from kanab.errors import DeliveryError, KanabError
from kanab.notify.channels import Channel
from kanab.notify.notices import Notice, Notices
from kanab.plan.model import Plan
from kanab.plan.notify_plan import NotifyPlan
from kanab.privacy.ledger import read_entry

FIRST_RETRY_SECONDS = 15.0
"""Seconds until a call that failed is tried again; each further time twice as long,"""

LAST_RETRY_SECONDS = 3_600.0
"""but not longer than this."""

AGAIN = "It is tried again."
"""What becomes of a call that failed."""


class Notifier:
    """Tells channels what there is to tell about a store."""

    def __init__(
        self, store: Store, notify: NotifyPlan, channels: Sequence[Channel], say: Say = say_nothing, again: str = AGAIN
    ) -> None:
        self._store, self._notify, self._channels = store, notify, channels
        self._say, self._again = say, again
        self._failures: dict[str, int] = {}
        self._retry_at: dict[str, float] = {}
        self._settled: object = None
        self._hashes: list[str] = []
        self._thread: threading.Thread | None = None

    @property
    def failing(self) -> bool:
        """Whether a channel could not be told, and is tried again."""
        return bool(self._failures)

    def begin(self) -> None:
        """Take what was sealed before a channel was in use as told. Call it before anything is sealed."""
        sent = self._store.sent_marks()
        new = [channel.name for channel in self._channels if channel.name not in sent]
        if new:
            hashes = stored_ledger(self._store).hashes
            self._store.mark_sent([mark for name in new for mark in (name, *(f"{name}:{each}" for each in hashes))])

    def offer(self, entries: Sequence[bytes], alarms: Collection[str], plan: Plan) -> None:
        """Begin to tell what is new in a ledger, and live alarms, unless that is under way or must wait."""
        if (self._thread is not None and self._thread.is_alive()) or self._state(entries, alarms) == self._settled:
            return
        if all(time.monotonic() < self._retry_at.get(channel.name, 0.0) for channel in self._channels):
            return
        given = list(entries), frozenset(alarms), plan
        self._thread = threading.Thread(target=self.tell, args=given, name="kanab-notify", daemon=True)
        self._thread.start()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until telling that has begun is over, or so long."""
        if self._thread is not None:
            self._thread.join(seconds)

    def stop(self, seconds: float) -> None:
        """Wait so long for telling that has begun, and say nothing about it afterwards: the store is closed then."""
        self.wait(seconds)
        self._say = say_nothing

    def tell(self, entries: Sequence[bytes], alarms: Collection[str], plan: Plan) -> bool:
        """Tell every channel that need not wait what it was not told; return whether all of them know everything."""
        notices = Notices(self._notify, plan, entries)
        done = True
        for channel in self._channels:
            if time.monotonic() < self._retry_at.get(channel.name, 0.0):
                done = False
                continue
            try:
                self._tell(channel, notices, entries, alarms)
            except KanabError as problem:
                self._failed(channel, problem)
                done = False
            except Exception as problem:  # a mistake of this program must not end notices for good
                self._failed(channel, DeliveryError(f"telling failed ({type(problem).__name__})", "Please report it."))
                done = False
            else:
                self._failures.pop(channel.name, None)
                self._retry_at.pop(channel.name, None)
        self._settled = self._state(entries, alarms) if done else None
        return done

    def _tell(self, channel: Channel, notices: Notices, entries: Sequence[bytes], alarms: Collection[str]) -> None:
        sent = self._store.sent_marks()
        unsent = {
            at: digest for at, digest in enumerate(self._hashes_of(entries)) if f"{channel.name}:{digest}" not in sent
        }
        due = [notice for at in unsent for notice in notices.of(at)]
        due += notices.of_alarms(alarms) if alarms else []
        problem = self._send([notice for notice in due if f"{channel.name}:{notice.id}" not in sent], channel)
        if problem is not None:
            raise problem
        self._store.mark_sent([f"{channel.name}:{digest}" for digest in unsent.values()])

    def _send(self, notices: Sequence[Notice], channel: Channel) -> DeliveryError | None:
        """Send notices in their order; return the problem of those that were refused by themselves."""
        refused: DeliveryError | None = None
        for start in range(0, len(notices), channel.most):
            sent = self._store.sent_marks()  # another collector of this store may have been quicker
            group = [each for each in notices[start : start + channel.most] if f"{channel.name}:{each.id}" not in sent]
            if not group:
                continue
            try:
                more = channel.send(group)
            except DeliveryError as problem:
                if not problem.of_message:
                    raise
                refused = problem
                continue
            self._store.mark_sent([f"{channel.name}:{notice.id}" for notice in group])
            kinds = ", ".join(dict.fromkeys(notice.kind for notice in group))
            self._say(f"kanab: {channel.name} ({channel.where}) was told: {kinds}.")
            if more:
                self._say(f"kanab: {channel.name}: {more}.", Level.WARNING)
        return refused

    def _failed(self, channel: Channel, problem: KanabError) -> None:
        count = self._failures[channel.name] = self._failures.get(channel.name, 0) + 1
        wait = min(FIRST_RETRY_SECONDS * 2 ** min(count - 1, 20), LAST_RETRY_SECONDS)
        asked = problem.wait if isinstance(problem, DeliveryError) else 0.0
        self._retry_at[channel.name] = time.monotonic() + max(wait, asked)
        self._say(f"kanab: {channel.name} was not told: {problem} {self._again}", Level.WARNING)

    def _hashes_of(self, entries: Sequence[bytes]) -> list[str]:
        """Return the hashes of a ledger's entries, each read once: a ledger only grows."""
        self._hashes = self._hashes[: len(entries)]
        self._hashes += [read_entry(entry)[1] for entry in entries[len(self._hashes) :]]
        return self._hashes

    def _state(self, entries: Sequence[bytes], alarms: Collection[str]) -> object:
        return len(entries), entries[-1] if entries else b"", frozenset(alarms)


def unsent_batches(store: Store, name: str) -> int | None:
    """Return how many entries of a ledger a channel was not told of; None where it was never in use."""
    sent = store.sent_marks()
    if name not in sent:
        return None
    return sum(f"{name}:{digest}" not in sent for digest in stored_ledger(store).hashes)
