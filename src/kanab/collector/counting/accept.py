"""Scheme: everything that a plan allows, ready to take posts: bytes in, counters by cohort out.

A post is one person's: per experiment it carries lines for all of its own linkages, with one arm, one
cohort and the same moves. It is applied whole, or it is refused; lines of unknown experiments and of
cohorts that are no longer open are dropped. Nothing of a post is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import floor
from typing import NamedTuple

from kanab.collector.counting.apply import ENROLLED, Ends, Moves, increment
from kanab.collector.counting.cohorts import Calendar, Opening
from kanab.collector.counting.counters import Counters, add_counters
from kanab.collector.counting.lines import Gauge, Heads, Spot
from kanab.collector.counting.tables import tables
from kanab.collector.counting.transitions import check_together, does_not_go_on
from kanab.collector.protocol.nonces import hour_of, open_hours, seconds_of, untimely
from kanab.collector.protocol.post import Post, Value, read_post
from kanab.collector.protocol.reasons import Reason, refused
from kanab.plan.model import Plan

Groups = dict[Spot, dict[int, Ends]]


class Accepted(NamedTuple):
    """What a post adds: counters by the number of the cohort; and why lines were dropped, one reason each."""

    nonce: bytes
    deltas: dict[int, Counters]
    dropped: tuple[Reason, ...]


class Scheme:
    """A plan, compiled for taking posts; ``began`` are the metrics that experiments began with, if it has grown.

    >>> from kanab.plan.model import Cohorts, ExperimentPlan, MetricPlan
    >>> shop = ExperimentPlan("checkout", (("A", 1), ("B", 1)))
    >>> scheme = Scheme(Plan((MetricPlan("minutes", (0, 600), 1),), (shop,), cohorts=Cohorts()))
    >>> body = b"kanab/1 00079b70000102030405060708090a0b\\ncheckout:B@2026-W46:minutes:4>6\\n"
    >>> scheme.accept(body, "text/plain", datetime(2026, 11, 15, 16, tzinfo=UTC), None).deltas
    {2966: {'checkout|B|minutes|s': 2, 'checkout|checkout=B|minutes|q': 20}}
    """

    def __init__(self, plan: Plan, began: Mapping[str, Sequence[str]] | None = None) -> None:
        self.plan = plan
        self.calendar = Calendar(plan)
        self._heads = Heads(plan, self.calendar, began)
        self._moment = self._at(datetime(1970, 1, 1, tzinfo=UTC))
        tables(plan, {})  # a plan whose tables cannot be made is refused now, not at the seal

    def accept(
        self, body: bytes, content_type: str | None, now: datetime, sealed_through: int | None = None
    ) -> Accepted:
        """What a post adds, or a MessageError that says why it is refused."""
        post = read_post(body, content_type)
        moment = self._moment
        if moment.now is not now:  # posts that are begun together share it
            moment = self._moment = self._at(now)
        if hour_of(post.nonce) not in moment.hours:
            raise untimely(post.nonce, moment.hours)
        groups, dropped = self._grouped(post)
        if groups:
            check_together(groups, self._heads.own)
        deltas: dict[int, Counters] = {}
        for spot, moves in groups.items():
            cohort = spot.cohort
            if _late(cohort, moves, moment.opening, sealed_through):
                dropped += [Reason.LATE] * self._lines_of(spot, post)
                continue
            more = increment(spot.place, moves)
            if cohort in deltas:
                add_counters(deltas[cohort], more)
            else:
                deltas[cohort] = more
        return Accepted(post.nonce, deltas, tuple(dropped))

    def _at(self, now: datetime) -> _Moment:
        seconds = seconds_of(now)
        return _Moment(now, open_hours(seconds, self.calendar.life), self.calendar.opening(seconds))

    def _grouped(self, post: Post) -> tuple[Groups, list[Reason]]:
        """The moves of every class that the post names, and the reasons of lines that name nothing in the plan."""
        heads = self._heads
        heads.trim()
        known = heads.known.get
        groups: Groups = {}
        dropped: list[Reason] = []
        for position, (head, old, new) in enumerate(post.lines):
            found = known(head)
            if found is None or (new is None) != (found[1] == ENROLLED):
                result = heads.find((head, old, new), post.place(position))
                if result is None:
                    dropped.append(Reason.EXPERIMENT)
                    continue
                found, (_, old, new) = result  # noqa: PLW2901 - the paper writes totals in another way
            spot, what, gauges = found
            ends: Ends | None
            if type(old) is float and type(new) is float and len(gauges) == 1:  # nearly every line: steps(), twice
                scale, low, high, _ = gauges[0]
                start, end = old * scale + 0.5, new * scale + 0.5
                ends = (
                    high if start >= high else low if start < low else floor(start),
                    high if end >= high else low if end < low else floor(end),
                )
            else:
                ends = _ends(gauges, old, new)
            if ends is None:
                raise refused(Reason.NUMBER, *_TOTALS, post.place(position))
            moves = groups.get(spot)
            if moves is None:
                groups[spot] = {what: ends}
            elif what not in moves:
                moves[what] = ends
            elif moves[what][1] == ends[0] and what != ENROLLED:
                moves[what] = moves[what][0], ends[1]
            else:
                raise does_not_go_on(spot, what)
        return groups, dropped

    def _lines_of(self, spot: Spot, post: Post) -> int:
        """How many lines of a post name a class, in whatever spelling."""
        found = (self._heads.find(line, post.place(position)) for position, line in enumerate(post.lines))
        return sum(one is not None and one[0][0] is spot for one in found)


class _Moment(NamedTuple):
    """What is open at a moment: the hours of nonces, and the cohorts."""

    now: datetime
    hours: range
    opening: Opening


_TOTALS = (
    "the totals do not fit the metric",
    "A metric moves as 0>4, one whose missing values are excluded first as >4, a ratio as 0/0>30/1.",
)


def _ends(gauges: tuple[Gauge, ...], old: Value | None, new: Value | None) -> Ends | None:
    """A line's totals on the grid; None if they are not those of this metric or ratio."""
    if new is None:
        return None, None
    if len(gauges) == 1:
        gauge = gauges[0]
        if isinstance(new, tuple) or isinstance(old, tuple) or (old is None and gauge.whole):
            return None
        return None if old is None else gauge.steps(old), gauge.steps(new)
    first, second = gauges
    if not isinstance(new, tuple) or not (isinstance(old, tuple) or (old is None and not first.whole & second.whole)):
        return None
    before = None if old is None else (first.steps(old[0]), second.steps(old[1]))
    return before, (first.steps(new[0]), second.steps(new[1]))


def _late(cohort: int, moves: Moves, opening: Opening, sealed_through: int | None) -> bool:
    """Is a cohort no longer open? Enrollments that come too late for a cohort that still is are refused.

    Were they dropped in silence, the sender would go on to send totals of somebody who is not counted.
    """
    current, enroll_from, measure_from = opening
    if cohort > current:
        raise refused(Reason.COHORT, "a cohort lies ahead", "Use the period of enrollment, in UTC.")
    if cohort < measure_from or (sealed_through is not None and cohort <= sealed_through):
        return True
    if cohort < enroll_from and ENROLLED in moves:
        raise refused(Reason.UNTIMELY, "the period of this enrollment is over", "Do not count this person.")
    return False
