"""Accepts posts by a plan: bytes in, counters by cohort out.

A post is one person's, with all lines of each of its experiments. It is applied whole, or it is refused; lines of
unknown experiments and of cohorts that are no longer open are dropped. Nothing of a post is kept.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from kanab.collector.counting.apply import ENROLLED, Transition, Transitions, increment
from kanab.collector.counting.cohorts import ALWAYS, Calendar, Opening
from kanab.collector.counting.counters import Counters, add_counters
from kanab.collector.counting.layout import TableLayout
from kanab.collector.counting.lines import CohortClass, LinePrefixes, MetricGrid
from kanab.collector.counting.signatures import signature_name
from kanab.collector.counting.tables import possible_tables
from kanab.collector.protocol.nonces import ahead_error, hour_of, is_genuine, open_hours, seconds_of, untimely_error
from kanab.collector.protocol.post import Post, Value, read_post
from kanab.collector.protocol.reasons import Reason, refused
from kanab.errors import MessageError, listed
from kanab.plan.model import Plan

Groups = dict[CohortClass, dict[int, Transition]]
"""The transitions of a post, by class and measure."""


class Accepted(NamedTuple):
    """What a post adds: counters by the number of the cohort; why lines were dropped, one reason each; its epoch."""

    nonce: bytes
    deltas: dict[int, Counters]
    dropped: tuple[Reason, ...]
    epoch: str = ""


class PostAcceptor:
    """A plan, compiled for accepting posts; ``began`` are the metrics that experiments began with, if it has grown."""

    def __init__(
        self,
        plan: Plan,
        began: Mapping[str, Sequence[str]] | None = None,
        voucher_keys: Sequence[bytes] = (),
        *,
        checked: Plan | None = None,
    ) -> None:
        self.plan = plan
        self._voucher_keys = voucher_keys
        self.calendar = Calendar(plan)
        self._prefixes = LinePrefixes(plan, self.calendar, began)
        self._seconds, self._hours, self._opening = -1, range(0), ALWAYS  # what is open at a moment
        if plan != checked:
            possible_tables(plan, {})  # a plan whose tables cannot be made is refused now, not at the seal

    def accept(
        self, body: bytes, content_type: str | None, now: datetime, sealed_through: int | None = None
    ) -> Accepted:
        """Return what a post adds; raises `MessageError` with the reason why it is refused."""
        post = self._vouched(body, content_type) if self.plan.vouch else read_post(body, content_type)
        if (seconds := seconds_of(now)) != self._seconds:
            self._seconds, self._opening = seconds, self.calendar.opening(seconds)
            self._hours = open_hours(seconds, self.calendar.life)
        if hour_of(post.nonce) not in self._hours:
            raise untimely_error(post.nonce, self._hours)
        groups, dropped = self._grouped(post)
        by_experiment = _check_complete(groups, self._prefixes.own_tables) if groups else {}
        deltas: dict[int, Counters] = {}
        late: list[CohortClass] = []
        for target, transitions in groups.items():
            cohort = target.cohort
            if _is_late(cohort, transitions, self._opening, sealed_through):
                late.append(target)
                continue
            more = increment(target.counters, transitions)
            if cohort in deltas:
                add_counters(deltas[cohort], more)
            else:
                deltas[cohort] = more
        for targets in by_experiment.values():
            first = targets[0]
            if len(targets) > 1 and ENROLLED in groups[first] and first.cohort in deltas:
                deltas[first.cohort][signature_name([target.counters for target in targets])] = 1
        if late:
            dropped += [Reason.LATE] * self._lines_of(set(late), post)
        return Accepted(post.nonce, deltas, tuple(dropped), post.epoch)

    def _vouched(self, body: bytes, content_type: str | None) -> Post:
        """Read a post whose nonce must be a voucher, before its hour is read: forged ones cast no doubt on clocks."""
        try:
            post = read_post(body, content_type)
        except MessageError as problem:
            if problem.reason != Reason.NONCE:
                raise
            raise refused(Reason.UNVOUCHED, "a post needs a voucher", _TAKE_ONE) from None
        if not is_genuine(post.nonce, self._voucher_keys):
            raise refused(Reason.FORGED, "the nonce is no voucher of this site's server", _TAKE_ONE)
        return post

    def _grouped(self, post: Post) -> tuple[Groups, list[Reason]]:
        """Return the transitions of every class that the post names, and the reasons of lines not in the plan."""
        prefixes = self._prefixes
        prefixes.trim()
        known = prefixes.known.get
        groups: Groups = {}
        dropped: list[Reason] = []
        for position, (prefix, old, new) in enumerate(post.lines):
            meaning = known(prefix)
            if meaning is None or (new is None) != (meaning[1] == ENROLLED):
                result = prefixes.find((prefix, old, new), post.place(position))
                if result is None:
                    dropped.append(Reason.EXPERIMENT)
                    continue
                meaning, (_, old, new) = result  # noqa: PLW2901 - the paper writes totals in another way
            target, measure, grids = meaning
            moved = _transition(grids, old, new)
            if moved is None:
                raise refused(Reason.NUMBER, *_WRONG_TOTALS, post.place(position))
            transitions = groups.get(target)
            if transitions is None:
                groups[target] = {measure: moved}
            elif measure not in transitions:
                transitions[measure] = moved
            elif transitions[measure][1] == moved[0] and measure != ENROLLED:
                transitions[measure] = transitions[measure][0], moved[1]
            elif measure == ENROLLED:
                raise _broken(target.counters.layout, "one post enrolls twice", "A post is one person's.")
            else:
                fact = "a total does not go on from where it was"
                raise _broken(target.counters.layout, fact, "Every old is the new before it.")
        return groups, dropped

    def _lines_of(self, targets: set[CohortClass], post: Post) -> int:
        """Return how many lines of a post name one of the classes, in whatever spelling."""
        count = 0
        for position, line in enumerate(post.lines):
            meaning = self._prefixes.known.get(line[0])
            if meaning is None and (result := self._prefixes.find(line, post.place(position))) is not None:
                meaning = result[0]
            count += meaning is not None and meaning[0] in targets
        return count


_TAKE_ONE = "Take one that the site's server minted (docs/how-to/vouchers.md)."
_WRONG_TOTALS = (
    "the totals do not fit the metric",
    "A metric moves as 0>4, one whose missing values are excluded first as >4, a ratio as 0/0>30/1.",
)


def _transition(grids: tuple[MetricGrid, ...], old: Value | None, new: Value | None) -> Transition | None:
    """Return a line's totals on the grid; None if they are not those of this metric or ratio."""
    if new is None:
        return None, None
    if len(grids) == 1:
        grid = grids[0]
        if isinstance(new, tuple) or isinstance(old, tuple) or (old is None and grid.starts_at_zero):
            return None
        return None if old is None else grid.steps(old), grid.steps(new)
    first, second = grids
    if not isinstance(new, tuple):
        return None
    after = first.steps(new[0]), second.steps(new[1])
    if isinstance(old, tuple):
        return (first.steps(old[0]), second.steps(old[1])), after
    begins = old is None and not (first.starts_at_zero and second.starts_at_zero)
    return (None, after) if begins else None


def _is_late(cohort: int, transitions: Transitions, opening: Opening, sealed_through: int | None) -> bool:
    """Return whether a cohort is no longer open. Enrollments that come too late for one that still is are refused.

    Were they dropped in silence, the sender would go on to send totals of somebody who is not counted.
    """
    _, enroll_from, measure_from, last = opening
    if cohort > last:
        raise ahead_error("a cohort lies ahead", "the period of enrollment, in UTC")
    if cohort < measure_from or (sealed_through is not None and cohort <= sealed_through):
        return True
    if cohort < enroll_from and ENROLLED in transitions:
        raise refused(Reason.UNTIMELY, "the period of this enrollment is over", "Do not count this person.")
    return False


# ── is a post one person's whole transition? Sums would not notice, so every post is checked ────


def _check_complete(
    groups: Mapping[CohortClass, Transitions], own_tables: Mapping[str, Sequence[str]]
) -> dict[str, list[CohortClass]]:
    """Check that own tables agree on an arm and a cohort, and pairs on arms; return classes by experiment."""
    by_experiment: dict[str, list[CohortClass]] = {}
    pairs: dict[str, CohortClass] = {}
    for target, transitions in groups.items():
        if target.counters.layout.ratios:
            _check_ratios(target.counters.layout, transitions)
        if target.experiment is not None:
            by_experiment.setdefault(target.experiment, []).append(target)
        elif pairs.setdefault(target.counters.layout.name, target) is not target:
            raise _broken(target.counters.layout, "one post names two classes of a table", "A post is one person's.")
    for name, targets in by_experiment.items():
        if len(groups) > 1 or len(own_tables[name]) > 1:
            _check_experiment(name, targets, groups, own_tables[name])
    for target in pairs.values():
        for name, arm in target.counters.arms.items():
            if name in by_experiment and by_experiment[name][0].counters.arms[name] != arm:
                raise _broken(target.counters.layout, f"one post names two arms of {name!r}", "A post is one person's.")
    return by_experiment


def _check_experiment(
    name: str, targets: Sequence[CohortClass], groups: Mapping[CohortClass, Transitions], own_tables: Sequence[str]
) -> None:
    first, *others = targets
    names = {target.counters.layout.name for target in targets}
    if len(names) == len(targets) == len(own_tables) and all(
        target.cohort == first.cohort
        and target.counters.arms == first.counters.arms
        and groups[target] == groups[first]
        for target in others
    ):
        return
    raise refused(
        Reason.INCOMPLETE,
        f"the lines of {name!r} are not one person's whole transition",
        f"Send the same lines, with one arm and one cohort, for each of its tables: {listed(own_tables)}.",
    )


def _check_ratios(layout: TableLayout, transitions: Transitions) -> None:
    """Check that a ratio moves with its parts, from and to the same totals."""
    for measure, moved in transitions.items():
        parts = layout.ratio_parts.get(measure)
        if parts is None:
            wrong = next((ratio for ratio in layout.demanded_ratios.get(measure, ()) if ratio not in transitions), None)
        else:
            fits = all(_moves_with(moved, side, transitions.get(part)) for side, part in enumerate(parts))
            wrong = None if fits else measure
        if wrong is not None:
            ratio = layout.ratios[wrong - len(layout.metrics)]
            fact = f"the totals of {'/'.join(ratio.pair)} do not move as its parts do"
            raise _broken(layout, fact, "Send the lines of both parts and of the ratio.")


def _moves_with(ratio: Transition, side: int, part: Transition | None) -> bool:
    """Return whether one side of a ratio moves like the metric itself, if that moved at all."""
    old, new = (None if total is None else total[side] for total in ratio)  # type: ignore[index]
    if part is None:
        return old is None or old == new
    return new == part[1] and (old is None or old == part[0])


def _broken(layout: TableLayout, fact: str, remedy: str) -> MessageError:
    return refused(Reason.INCOMPLETE, fact, remedy, layout.linkage.name)
