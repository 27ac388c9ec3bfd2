"""A clock that is not believed blindly: what is told too late is gone, and what is sealed too early is lost.

The time of day may be set; the seconds since the machine started cannot. What the first runs ahead of the second is a
*step*, after which the clock has to be confirmed (docs/how-to/collector.md). Posts settle nothing: anybody can send
them.
"""

import http.client
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from kanab.collector.protocol.limits import GRACE_HOURS, HOURS_AHEAD
from kanab.collector.protocol.reasons import Reason, refused
from kanab.collector.stores.store import Store
from kanab.errors import MessageError, StoreError

STEP_LIMIT = 60.0
"""Seconds by which the clock may jump, or differ from others: far less than the hour that clients may be fast."""

SLEW = 500e-6
"""Seconds per second that a clock may be faster or slower without having jumped: as much as NTP corrects it by."""

JUMP_LIMIT = 3_600.0
"""Seconds by which the clock may step while posts are taken: as much as clients may be fast."""

HOLD_SECONDS = 3_600.0
"""Seconds after a step, or the start of a new store, for which nothing is sealed or forgotten."""

MOST_DOWN_HOURS = 24
"""Hours for which no collector of a store may have run where the clock of the next one is believed at its start."""

BACK_SECONDS = 1.0
"""Seconds for which a clock must be back before it is believed: what was read just before is not used any more."""

PEER_SECONDS = 3.0
"""Seconds that another machine has for telling its time."""

_DAY, _HOUR, _MINUTE = 86_400, 3_600, 60
_CONFIRM = "If it is right, start again with --accept-clock. Until then clients are told to send again"

Clock = Callable[[], datetime]


def system_clock() -> datetime:
    """Return the current time, in UTC."""
    return datetime.now(UTC)


def steady_seconds() -> float:
    """Return the seconds on a clock that nobody sets, and that goes on while the machine sleeps, where there is one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class GuardedClock:
    """The time of day, and whether it can be believed.

    ``steady`` never jumps; None means that the clock is moved on purpose, by a rehearsal, and always believed.
    ``peers`` are addresses whose answers have a date. ``accepted`` is an operator's word that the clock is right.
    """

    def __init__(
        self,
        *,
        wall: Clock = system_clock,
        steady: Callable[[], float] | None = steady_seconds,
        peers: Sequence[str] = (),
        accepted: bool = False,
    ) -> None:
        self._wall, self._steady = wall, steady
        self._peers = [http_date(url) for url in peers]
        self._compared, self._first_post = False, 0
        self._doubt: StoreError | None = None
        self._ahead, self._read = 0.0, 0.0
        self._jumped, self._jumped_since, self._jumped_at = 0.0, 0.0, 0.0
        self.settled = self._compared = accepted or steady is None
        """Whether anything but this clock has said that it is right: the store, other clocks, an operator."""
        self.step = 0.0
        """Seconds that the clock has jumped ahead; back, if below 0."""
        self._anchor()

    def __call__(self) -> datetime:
        """Return the time, and take note of a step."""
        now = self._wall()
        if self._steady is not None:
            steady = self._steady()
            step = now.timestamp() - steady - self._ahead
            if -STEP_LIMIT <= step <= STEP_LIMIT:
                slewed = SLEW * (steady - self._read)
                followed = step if -slewed <= step <= slewed else slewed if step > 0 else -slewed
                self._ahead, step = self._ahead + followed, step - followed
                if self._jumped and steady - self._jumped_at > BACK_SECONDS:
                    self._jumped = 0.0
            elif not self.settled:  # nothing was done by the time before: it is as if the collector started now
                self._compared, step = False, 0.0
                self._anchor()
            else:
                self._jumped_since = self._jumped_since if self._jumped else steady
                self._jumped, self._jumped_at = step, steady
                if abs(step) <= JUMP_LIMIT and steady - self._jumped_since > HOLD_SECONDS:
                    step = 0.0
                    self._anchor()
            self._read, self.step = steady, step
        return now

    def _anchor(self) -> None:
        """Expect from now on that the clock goes on from where it stands."""
        if self._steady is not None:
            self._read = self._anchored = self._steady()
            self._ahead, self.step, self._jumped = self._wall().timestamp() - self._read, 0.0, 0.0

    # ── is it right? ───────────────────────────────────────────────────────────────────────────

    @property
    def trouble(self) -> StoreError | None:
        """Why nothing may be taken, sealed or forgotten by this clock; None while posts are."""
        if self._doubt is not None or abs(self._jumped) <= JUMP_LIMIT:
            return self._doubt
        way = f"{'ahead' if self._jumped > 0 else 'back'} by {in_words(self._jumped)}"
        return StoreError(f"this machine's clock jumped {way}", f"Set it right. {_CONFIRM}.")

    @property
    def is_sure(self) -> bool:
        """Whether what cannot be undone may be done by this clock: to seal, to forget, to tell somebody to give up."""
        return self.settled and not self._jumped

    def compare(self, store: Store, life: int) -> None:
        """Compare with other clocks, and at a start with the store, until the clock is sure.

        Where no collector has been sure yet, an hour must pass; if posts were there at the start, within a day after
        the first of them, which later ones do not move. A new store has nothing to lose.
        """
        now = self()
        if self.is_sure:
            return
        differences = self.differences(store)
        agreeing = sum(abs(difference) <= STEP_LIMIT for difference in differences)
        confirmed = agreeing >= 2 and 2 * agreeing > len(differences)
        if self.settled:
            if confirmed:
                self._anchor()
            return
        hour, sure = now.timestamp() // _HOUR, sure_hour(store, life)
        if not self._compared:
            self._first_post = 0 if sure else store.first_hour()
        known = sure or (self._first_post + life // _HOUR if self._first_post else hour)
        waited = self._steady is not None and self._steady() - self._anchored > HOLD_SECONDS
        before = StoreError(_BEFORE, f"Set it right. {_CONFIRM}.") if hour + HOURS_AHEAD < sure else None
        self._doubt = None if confirmed else before or _difference_error(differences)
        fits = (sure > 0 or waited) and hour <= known + HOURS_AHEAD + MOST_DOWN_HOURS
        self.settled |= confirmed or (fits and self._doubt is None)
        self._compared = self._doubt is None

    def differences(self, store: Store) -> list[float]:
        """Return by how many seconds other clocks are ahead of this one: the database's, and those of peers."""
        differences = []
        for source in (store.time, *self._peers):
            before = self._wall().timestamp()
            told = source()
            if told is not None:
                differences.append(told - (before + self._wall().timestamp()) / 2)
        return differences

    def untimely(self, problem: MessageError) -> MessageError:
        """Return the answer to a post out of time: to be sent again, where this clock may be the wrong one."""
        return problem if self.is_sure else clock_error()


OUT_OF_TIME = frozenset({Reason.AHEAD, Reason.EXPIRED, Reason.UNTIMELY})
"""The reasons of posts that would be counted at another time."""

_BEFORE = "this machine's clock stands before the time at which the store's last collector ran"


def guarded(clock: Clock | None) -> GuardedClock:
    """Return a guarded clock as it is; one that a rehearsal moves is always believed; None is the system's, guarded."""
    if isinstance(clock, GuardedClock):
        return clock
    return GuardedClock() if clock is None else GuardedClock(wall=clock, steady=None)


def clock_error() -> MessageError:
    """Return the answer to every post while the clock is not believed."""
    return refused(Reason.CLOCK, "the collector checks its clock", "Send the message again later.")


def sure_hour(store: Store, life: int) -> int:
    """Return the last hour in which a collector was sure of its clock, and forgot older nonces; 0 if none ever was."""
    forgotten = store.forgotten()
    return forgotten + life // _HOUR + GRACE_HOURS if forgotten else 0


def check_before_seal(clock: GuardedClock, store: Store, life: int) -> None:
    """Check that a command may seal by a clock; raises `StoreError` where it differs, or where nothing confirms it."""
    clock.compare(store, life)
    if clock.trouble is not None:
        raise clock.trouble
    if not clock.settled:
        raise StoreError(
            "no collector that was sure of its clock ran within a day, so that nothing confirms this machine's clock",
            "What is sealed too early is lost: look at the clock, and if it is right, give --accept-clock.",
        )


def _difference_error(differences: Sequence[float]) -> StoreError | None:
    """Return the error for a clock that differs from another one; None if it agrees with all that told their time."""
    largest = max(differences, key=abs, default=0.0)
    if abs(largest) <= STEP_LIMIT:
        return None
    way = f"{'behind' if largest > 0 else 'ahead of'} another by {in_words(largest)}"
    return StoreError(f"this machine's clock is {way}", f"Set right the one that is wrong. {_CONFIRM}.")


def in_words(seconds: float) -> str:
    """Return a length of time in words."""
    length, unit = next(
        (round(abs(seconds) / size), name)
        for size, name in ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute"), (1, "second"))
        if abs(seconds) >= size or size == 1
    )
    return f"{length:,} {unit}{'' if length == 1 else 's'}"


def http_date(url: str) -> Callable[[], float | None]:
    """Return a function that reads the date of a web server's answer, in seconds since 1970; None without one."""
    try:
        parts = urlsplit(url)
        kind = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}[parts.scheme]
        host, port, path = parts.hostname or "", parts.port, parts.path or "/"
    except (KeyError, ValueError):
        host = ""
    if not host:
        raise StoreError("that is no address of a clock", "For example --clock-peer https://www.example.com/.")

    def read() -> float | None:
        connection = kind(host, port, timeout=PEER_SECONDS)
        try:
            connection.request("HEAD", path)
            headers = connection.getresponse().headers
            age = headers.get("Age", "0")  # an answer from a cache has the date at which it was made
            made = parsedate_to_datetime(headers.get("Date", "")).timestamp()
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()
        return made + 0.5 + (float(age) if age.isdigit() and len(age) < 10 else 0.0)

    return read
