"""Are these lines one person's whole transition? Sums would not notice, so it is asked of every post."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kanab.collector.counting.apply import ENROLLED, Ends, Moves
from kanab.collector.counting.layout import Layout
from kanab.collector.counting.lines import Spot
from kanab.collector.protocol.reasons import Reason, refused
from kanab.errors import MessageError, listed


def does_not_go_on(spot: Spot, what: int) -> MessageError:
    """The error for a second move that does not begin where the first one ended."""
    if what == ENROLLED:
        return _broken(spot.place.layout, "one post enrolls twice", "A post is one person's.")
    fact = "a total does not go on from where it was"
    return _broken(spot.place.layout, fact, "Every old is the new before it.")


def _check_ratios(layout: Layout, ends: Moves) -> None:
    """A ratio moves with its parts, from and to the same totals."""
    numbers = {metric.name: what for what, metric in enumerate(layout.metrics)}
    for what, ratio in enumerate(layout.ratios, len(numbers)):
        parts = [ends.get(numbers[name]) for name in ratio.pair]
        if what in ends:
            fits = all(_goes_along(ends[what], side, part) for side, part in enumerate(parts))
        else:
            fits = not ratio.whole or not ratio.demanded or parts == [None, None]
        if not fits:
            fact = f"the totals of {'/'.join(ratio.pair)} do not move as its parts do"
            raise _broken(layout, fact, "Send the lines of both parts and of the ratio.")


def _goes_along(ratio: Ends, side: int, part: Ends | None) -> bool:
    """Does one side of a ratio move like the metric itself, if that moved at all?

    A ratio begins with nothing when the second of its parts gets its first value.
    """
    old, new = (None if total is None else total[side] for total in ratio)  # type: ignore[index]
    if part is None:
        return old is None or old == new
    return new == part[1] and (old is None or old == part[0])


def check_together(groups: Mapping[Spot, Moves], own: Mapping[str, Sequence[Layout]]) -> None:
    """Over all tables: each experiment's own ones say the same of one arm and cohort; pairs name the same arms."""
    seen: dict[str, list[Spot]] = {}
    pairs: dict[str, Spot] = {}
    for spot, moves in groups.items():
        if spot.place.ratios:
            _check_ratios(spot.place.layout, moves)
        if spot.own is not None:
            seen.setdefault(spot.own, []).append(spot)
        elif pairs.setdefault(spot.place.layout.name, spot) is not spot:
            raise _broken(spot.place.layout, "one post names two classes of a table", "A post is one person's.")
    for name, spots in seen.items():
        if len(groups) > 1 or len(own[name]) > 1:
            _check_own(name, spots, groups, own[name])
    for spot in pairs.values():
        for name, arm in spot.place.arms.items():
            if name in seen and seen[name][0].place.arms[name] != arm:
                raise _broken(spot.place.layout, f"one post names two arms of {name!r}", "A post is one person's.")


def _check_own(name: str, spots: Sequence[Spot], groups: Mapping[Spot, Moves], own: Sequence[Layout]) -> None:
    one, *others = spots
    tables = {spot.place.layout.name for spot in spots}
    if (
        len(tables) == len(spots) == len(own)
        and all(spot.cohort == one.cohort and spot.place.arms == one.place.arms for spot in others)
        and all(groups[spot] == groups[one] for spot in others)
    ):
        return
    names = listed(layout.linkage.name for layout in own)
    raise refused(
        Reason.INCOMPLETE,
        f"the lines of {name!r} are not one person's whole transition",
        f"Send the same lines, with one arm and one cohort, for each of its tables: {names}.",
    )


def _broken(layout: Layout, fact: str, remedy: str) -> MessageError:
    return refused(Reason.INCOMPLETE, fact, remedy, layout.linkage.name)
