"""The shape of metrics, as memory has it, from an engine's sums of third powers by arm.

These are doubles, about the commonest value of a sample: shapes are told in half octaves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from kanab.counted import Counted, CountedShape
from kanab.counting.engine.answer import Places, QueryAnswer
from kanab.counting.engine.statement import THIRD
from kanab.plan.joint import View
from kanab.tally.cells import DROPPED, Cells
from kanab.tally.tally import Tally

FARTHEST = 1e4
"""So many standard deviations may a mean be off: third powers of doubles have no digits left beyond."""

Floats = NDArray[np.float64]
ByArm = Callable[[str], Floats]


def shapes_of_answer(
    answer: QueryAnswer, view: View, counted: Counted, places: Mapping[str, Places]
) -> dict[str, dict[str, CountedShape]]:
    """Return the shapes of a plan's amounts and ratios, by experiment, but for those that doubles cannot tell."""
    shapes: dict[str, dict[str, CountedShape]] = {}
    for experiment in view.plan.experiment_names:
        by_arm = _reader(answer, view.experiments[experiment], places)
        shapes[experiment] = {}
        for linkage in view.plan.linkages_of(experiment):
            if not linkage.people_only:
                table = counted.tallies[linkage.name].keep()
                shapes[experiment] |= _amounts(answer, view, table, by_arm) | _ratios(answer, view, table, by_arm)
    return shapes


def _reader(answer: QueryAnswer, experiment: str, places: Mapping[str, Places]) -> ByArm:
    """Return what reads a number of every arm."""
    arms = places[experiment]
    rows = answer.of("arms", (answer.query.arms[experiment],), (experiment,))
    spots = [arms.into[texts[0]] for texts, _ in rows.rows]

    def read(name: str) -> Floats:
        numbers = np.zeros(len(arms.factor.levels))
        for spot, number in zip(spots, rows.floats(name), strict=True):
            if spot != DROPPED:
                numbers[spot] += number
        return numbers

    return read


def _amounts(answer: QueryAnswer, view: View, table: Tally, by_arm: ByArm) -> dict[str, CountedShape]:
    shapes = {}
    for moments in table.moments:
        measure = answer.query.measure(view.metrics[moments.metric.name])
        if not measure.metric.binary:
            n, sums, squares = moments.counts, moments.sums, moments.squares_by(table.axes, table.axes)
            assert squares is not None
            usual = measure.commonest  # third powers are about it
            people = np.maximum(_floats(n), 1)
            mean = _floats(sums - usual * n) / people
            second = _floats(squares - 2 * usual * sums + usual**2 * n)
            away = _floats(n * squares - sums * sums) / people
            cubes = by_arm(f"k{measure.place}") / measure.unit**3 - 3 * mean * second + 2 * _floats(n) * mean**3
            if not away.any() or second.sum() <= FARTHEST**2 * away.sum():
                off = int(by_arm(f"o{measure.place}").sum())
                shapes[moments.metric.name] = CountedShape(_skewness(away, cubes, n), off, int(n.sum()))
    return shapes


def _ratios(answer: QueryAnswer, view: View, table: Tally, by_arm: ByArm) -> dict[str, CountedShape]:
    """Return the shapes of ratios: of y − R z, with the R of each arm."""
    shapes = {}
    placed = {cross.pair: place for place, cross in answer.query.ratio_crosses}
    for pair in view.plan.ratios:
        cross = table.cross(*pair)
        y, z = (answer.query.measure(view.metrics[name]) for name in pair)
        turned = (y.place, z.place) not in placed  # another plan has the pair the other way round
        place = placed[z.place, y.place] if turned else placed[y.place, z.place]
        yyy, yyz, yzz, zzz = (
            by_arm(f"z{place}_{word}") / (y.unit ** (3 - power) * z.unit**power)
            for power, word in enumerate(THIRD[::-1] if turned else THIRD)
        )
        above, below = map(_floats, cross.sums)
        ratio = np.divide(above, below, out=np.zeros(len(below)), where=below != 0)
        (yy, zz), yz = map(_floats, cross.squares), _floats(cross.products)
        away = yy - 2 * ratio * yz + ratio**2 * zz
        cubes = yyy - 3 * ratio * yyz + 3 * ratio**2 * yzz - ratio**3 * zzz
        if (yy + ratio**2 * zz).sum() <= FARTHEST**2 * away.sum():
            # a part that is the same for everybody says nothing about who is unusual
            off = [count for part in (0, 1) if (count := int(by_arm(f"z{place}_off{part}").sum()))]
            people = int(cross.counts.sum())
            shapes["/".join(pair)] = CountedShape(_skewness(away, cubes, cross.counts), min(off, default=0), people)
    return shapes


def _skewness(squares: Floats, cubes: Floats, people: Cells) -> float:
    """Return the skewness of everybody's distance from the mean of their arm; 0 where nothing varies."""
    variance = float(squares.sum() / max(people.sum(), 1))
    return float(cubes.sum() / people.sum()) / variance**1.5 if variance > 0 else 0.0


def _floats(cells: Cells) -> Floats:
    return cells.astype(np.float64)
