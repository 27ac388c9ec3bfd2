"""Weeks in seconds: a clock that the demonstration moves, until it has caught up with the real one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class DemoClock:
    """A clock that stands where it is put and never goes back; once it has caught up, it is the real one.

    >>> clock = DemoClock(datetime(2026, 10, 5, tzinfo=UTC))
    >>> clock.move_to(datetime(2026, 10, 7, 12, tzinfo=UTC))
    >>> clock().isoformat()
    '2026-10-07T12:00:00+00:00'
    """

    def __init__(self, start: datetime) -> None:
        self._now: datetime | None = start

    def __call__(self) -> datetime:
        """Return the time, in UTC."""
        return datetime.now(UTC) if self._now is None else self._now

    def move_to(self, moment: datetime) -> None:
        """Let time pass, at most up to now."""
        if self._now is not None and moment > self._now:
            self._now = min(moment, datetime.now(UTC))

    def catch_up(self) -> None:
        """Be the real clock from now on."""
        self._now = None


def monday(now: datetime, weeks_ago: int) -> datetime:
    """Return the beginning of a week, so many weeks ago.

    >>> monday(datetime(2026, 11, 15, 17, tzinfo=UTC), 1).isoformat()
    '2026-11-02T00:00:00+00:00'
    """
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return today - timedelta(days=now.weekday(), weeks=weeks_ago)
