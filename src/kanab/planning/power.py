"""Power: any two of people, effect and power give the third."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
import scipy

from kanab.arguments import check_arguments
from kanab.choices import INTERNAL, OWN_ROWS, Alternative, PowerCorrection
from kanab.dataframes import Frames, Tables
from kanab.errors import AnalysisError
from kanab.planning.planning_pictures import curve_figure
from kanab.planning.power_words import power_text
from kanab.planning.spread import Spread
from kanab.report.figure import Figure
from kanab.stats.distributions import check_sides, find_root, joint_quantile, legendre, t_quantile
from kanab.stats.gram import Floats
from kanab.stats.margins import Margin
from kanab.stats.skewness import critical_t
from kanab.tally.factor import Level, label

Solved = Literal["people", "effect", "power"]
COARSE = (0.25, 0.5, 1, 2, 4)
FINE = tuple(2 ** (step / 8) for step in range(-16, 17))
"""For so many times the people a table and a picture say what they find."""

MOST_PEOPLE = 1e13
"""Nothing is planned with more people than this."""

_OF_POINTS = (
    "solved", "people", "effect", "relative", "power", "multiplies", "arm", "confidence", "margin", "arms",
)  # fmt: skip
_FAR = 1e6
_TOO_FEW = ("so few people do not show equivalence with that power, even without an effect", "Ask for more people.")
_TOO_MANY = ("that power is reached without any effect", "Ask for more power than the test's own error.")


@check_arguments()
@dataclass(frozen=True)
class PlannedTest:
    """How the effect will be tested: which side or margin, how sure, for how many comparisons at once.

    ``tests`` is the number of tests that a correction is over: arms against the control, unless more
    (metrics × arms) are named. "dunnett" uses how the arms' effects correlate and is over arms only.
    Raises `AnalysisError` for choices that contradict each other.
    """

    confidence: float = 0.95
    alternative: Alternative = "two-sided"
    margin: Margin | None = None
    correction: PowerCorrection = "none"
    tests: int | None = None

    def __post_init__(self) -> None:
        check_sides(self.confidence, self.alternative)
        if self.correction not in get_args(PowerCorrection):
            raise AnalysisError("unknown correction", f"Use one of: {', '.join(get_args(PowerCorrection))}.")
        if self.tests is not None and (type(self.tests) is not int or self.tests < 1):
            raise AnalysisError("tests must be a whole number, at least 1", "Count arms × metrics.")
        if self.tests is not None and self.correction == "dunnett":
            raise AnalysisError("Dunnett's correction is over arms", "Leave out tests, or use 'bonferroni'.")
        if self.margin is not None and self.alternative != "two-sided":
            raise AnalysisError("a margin has its own side", "Give a margin or an alternative, not both.")


@dataclass(frozen=True)
class Power(Frames[Literal["points", "arms"]]):
    """People, effect and power that belong together, for the arm that is hardest to judge.

    ``solved`` is the one that was asked for. ``arms`` are people per arm; ``relative`` the effect as a
    share of the control's mean, where that is known. Of amounts with a mean, ``other`` is the answer for the
    other kind of effect: one that multiplies everybody's value where this one shifts it, and the reverse.
    ``own_rows``: it rests on rows that passed no gate, and is internal.
    """

    solved: Solved
    people: int
    arms: tuple[tuple[Level, int], ...]
    arm: Level
    effect: float
    relative: float | None
    power: float
    test: PlannedTest
    multiplies: bool = False
    other: Power | None = None
    own_rows: bool = False
    spread: Spread | None = field(default=None, compare=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, ready for JSON."""
        test, other, spread = self.test, self.other, self.spread
        answer: dict[str, Any] = {
            "solved": self.solved, "people": self.people, "arms": {label(arm): n for arm, n in self.arms},
            "control": None, "control_chosen": None, "arm": label(self.arm), "effect": self.effect,
            "relative": self.relative, "power": self.power, "alternative": test.alternative,
            "correction": test.correction, "margin": None if test.margin is None else str(test.margin),
            "multiplies": self.multiplies, "other": None, "mean": None, "binary": False,
            "confidence": test.confidence, "notes": [],
        }  # fmt: skip
        if other is not None:
            answer["other"] = {
                "multiplies": other.multiplies, "people": other.people,
                "arms": {label(arm): n for arm, n in other.arms}, "effect": other.effect, "relative": other.relative,
                "power": other.power,
            }  # fmt: skip
        if spread is not None:
            answer |= {"control": label(spread.control), "control_chosen": spread.chosen, "mean": spread.mean}
            answer |= {"binary": spread.binary, "notes": list(spread.notes)}
        return ({"scope": OWN_ROWS} if self.own_rows else {}) | answer

    def around(self, steps: Sequence[float], *, at_power: float) -> list[dict[str, Any]]:
        """Return the effect found with a power, and this effect's power, for so many times the people; None is none."""
        rows = []
        for people in dict.fromkeys(round(self.people * step) for step in steps):
            smallest, same = self._reached(people, power=at_power), self._reached(people, effect=self.effect)
            rows.append(
                {
                    "people": people, "at_power": at_power, "effect": smallest and smallest.effect,
                    "relative": smallest and smallest.relative, "power": same and same.power,
                }
            )  # fmt: skip
        return rows

    def _reached(self, people: int, *, effect: float | None = None, power: float | None = None) -> Power | None:
        """Solve again, or return nothing where so few people show no possible effect."""
        assert self.spread is not None
        try:
            return solve_power(self.spread, people=people, effect=effect, power=power, test=self.test)
        except AnalysisError:
            return None

    def _tables(self) -> Tables:
        return PowerCurve([self])._tables()

    def __str__(self) -> str:
        return power_text(self.to_dict() | {"curve": None})


class PowerCurve(tuple[Power, ...], Frames[Literal["points", "arms"]]):
    """The answers for several numbers of people, as a tuple that makes DataFrames."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return every point as plain data, ready for JSON."""
        points = [point.to_dict() for point in self]
        internal = {"scope": OWN_ROWS} if any(point.own_rows for point in self) else {}
        return internal | {"points": [{name: point[name] for name in _OF_POINTS} for point in points]}

    def chart(self) -> Figure:
        """Return a chart of the effect that is found, or of the power, by people.

        Raises `AnalysisError` where there is nothing to draw.
        """
        points = [
            {
                "people": point.people, "effect": point.effect, "power": point.power,
                "at_power": None if point.solved == "power" else point.power,
            }
            for point in self
        ]  # fmt: skip
        note = INTERNAL if any(point.own_rows for point in self) else ""
        return curve_figure(self[0].to_dict() if self else {}, points, note)

    def _tables(self) -> Tables:
        points = self.to_dict()["points"]
        return {
            "points": [{name: value for name, value in point.items() if name != "arms"} for point in points],
            "arms": [
                {"people_in_all": point["people"], "arm": arm, "people": people}
                for point in points
                for arm, people in point["arms"].items()
            ],
        }


@check_arguments()
def solve_power(
    spread: Spread,
    *,
    people: int | None = None,
    effect: float | None = None,
    power: float | None = None,
    relative: bool = False,
    test: PlannedTest | None = None,
) -> Power:
    """Solve for the one of people (in all arms), effect and power that is left out.

    With ``relative`` the effect is a share of the control's mean. An arm's effect is judged against
    the control, by the same t as ``contrast`` gives: Welch's for plain means, so that shares and
    variances may differ, with what a release knows of the metric's shape. Of several
    arms the hardest one decides. Raises `AnalysisError` where there is not exactly one to solve for, or no
    solution. Where amounts have a mean, ``other`` answers for an effect that multiplies them: the same share of
    everybody's value, so that the arm's spread grows too.
    """
    planned = test or PlannedTest()
    check_two_of_three(people, effect, power)
    _check(spread, people, effect, power)
    if effect is not None and relative:
        if not spread.mean:
            raise AnalysisError("a relative effect needs a control mean other than 0", "Give the mean, or units.")
        effect *= abs(spread.mean)
    answer = _solved(spread, people, effect, power, planned)
    if spread.binary or spread.mean is None or spread.mean <= 0:
        return answer
    try:
        return replace(answer, other=_solved(replace(spread, grows=not spread.grows), people, effect, power, planned))
    except AnalysisError:  # no effect of that kind would do
        return answer


def _solved(
    spread: Spread, people: int | None, effect: float | None, power: float | None, planned: PlannedTest
) -> Power:
    """Solve for the one that is None, the effect being in units."""
    in_units = None if planned.margin is None else planned.margin.in_units(spread.mean)
    arm = max(spread.others, key=lambda arm: spread.error(arm, 1e6, effect or 0.0)[0])
    comparison = _Comparison(spread, replace(planned, margin=in_units), arm)
    solved: Solved = "power"
    if people is None:
        assert effect is not None
        assert power is not None
        fewest = comparison.people_for(effect, power)  # every arm has whole people, at least its share
        solved, people = "people", sum(math.ceil(fewest * share - 1e-9) for share in spread.shares.tolist())
    elif effect is None:
        assert power is not None
        solved, effect = "effect", comparison.effect_for(people, power)
    assert effect is not None
    arms = tuple(zip(spread.arms, allotted(people, spread.shares), strict=True))
    share = None if not spread.mean else effect / abs(spread.mean)
    return Power(
        solved, people, arms, arm, effect, share, comparison.power(people, effect), planned, spread.grows,
        own_rows=spread.own_rows, spread=spread,
    )  # fmt: skip


@check_arguments()
def power_curve(
    spread: Spread,
    *,
    people: Iterable[int],
    effect: float | None = None,
    power: float | None = None,
    relative: bool = False,
    test: PlannedTest | None = None,
) -> PowerCurve:
    """Solve for each of several numbers of people: the power of an effect, or the effect for a power."""
    return PowerCurve(
        solve_power(spread, people=n, effect=effect, power=power, relative=relative, test=test) for n in people
    )


def check_two_of_three(people: Any, effect: Any, power: Any) -> None:
    """Check that exactly one of people, effect and power is left out; raises `AnalysisError`."""
    if sum(value is None for value in (people, effect, power)) != 1:
        raise AnalysisError(
            "exactly one of people, effect and power is solved for",
            "Give an effect (5%) for the people who see it, or people (20000) for the effect that they see.",
        )


def _check(spread: Spread, people: Any, effect: Any, power: Any) -> None:
    if people is not None and not (isinstance(people, Real) and spread.fewest <= float(people) <= MOST_PEOPLE):
        raise AnalysisError("so few (or so many) people cannot be planned with", "Every arm needs two people or more.")
    if effect is not None and not (isinstance(effect, Real) and math.isfinite(effect)):
        raise AnalysisError("the effect must be a finite number", "In units of the metric, or relative=True.")
    if power is not None and not (isinstance(power, Real) and 0 < float(power) < 1):
        raise AnalysisError("the power must lie between 0 and 1", "For example 0.8.")


def allotted(people: float, shares: Floats) -> list[int]:
    """Return whole people per arm that add up to all of them: the largest fractions are rounded up."""
    exact = people * shares
    whole = np.floor(exact + 1e-9)
    order = np.argsort(whole - exact, kind="stable")
    whole[order[: round(people - whole.sum())]] += 1
    return [int(n) for n in whole]


@dataclass(frozen=True, eq=False)
class _Comparison:
    """One arm against the control, and how it is tested."""

    spread: Spread
    test: PlannedTest
    arm: Level

    def power(self, people: float, effect: float) -> float:
        """Return how often the test will say yes."""
        if self.spread.binary and not 0 <= (self.spread.mean or 0) + effect <= 1:
            raise AnalysisError("the effect would take the rate below 0 or above 1", "Ask for a smaller effect.")
        se, df = self.spread.error(self.arm, people, effect)
        if se == 0:  # pragma: no cover - spread without any is refused when it is made
            raise AnalysisError("nothing would vary, so there is nothing to plan", "Give a rate between 0 and 1.")
        down, up = self._limits(people, effect, se, df)
        margin = self.test.margin
        if margin is None:
            nc = effect / se
            if self.test.alternative == "two-sided":
                return beyond(up, df, nc) + beyond(down, df, -nc)
            return beyond(up, df, nc) if self.test.alternative == "greater" else beyond(down, df, -nc)
        tests = [((effect - null) / se, up) if side == "greater" else ((null - effect) / se, down)
                 for null, side in margin.tests]  # fmt: skip
        if len(tests) == 1:
            away, limit = tests[0]
            return beyond(limit, df, away)
        return both_beyond(max(down, up), df, tests[0][0], tests[1][0])

    def _limits(self, people: float, effect: float, se: float, df: float) -> tuple[float, float]:
        """Return how many of Welch's errors a clear effect is away from 0, or from a margin: below it, and above."""
        limit = self._limit(df, effect)
        error, freedom = self.spread.alike_error(self.arm, people, effect)
        if self.spread.plain_rate:  # the score test has the error of rates that are alike
            limit *= error / se if self.test.margin is None else 1.0
            return limit, limit
        down, up = (critical_t(limit, kappa) for kappa in self.spread.tilted(self.arm, people, effect))
        if not self.spread.needs_alike(self.arm, people):
            return down, up
        wide = self._limit(freedom, effect) * error / se  # both tests have one numerator: the wider error decides
        return max(down, wide), max(up, wide)

    def _limit(self, df: float, effect: float) -> float:
        """Return how large t has to be."""
        test = self.test
        sided: Alternative = "greater" if test.margin is not None or test.alternative != "two-sided" else "two-sided"
        if test.correction == "dunnett":
            return joint_quantile(test.confidence, df, self.spread.correlations(effect), sided)
        alpha = 1 - test.confidence
        tests = len(self.spread.others) if test.tests is None else test.tests
        if test.correction == "bonferroni":
            alpha = alpha / tests
        elif test.correction == "sidak":
            alpha = -math.expm1(math.log1p(-alpha) / tests)
        return -t_quantile(alpha / 2 if sided == "two-sided" else alpha, df)

    def people_for(self, effect: float, power: float) -> float:
        """Return the fewest people, not yet rounded, that reach this power."""
        self._check_reachable(effect)
        return fewest_people(lambda people: self.power(people, effect) - power, self.spread.fewest * (1 + 1e-9))

    def _check_reachable(self, effect: float) -> None:
        """Check that the effect is on the right side, so that more people help at all."""
        margin, side = self.test.margin, self.test.alternative
        if margin is None:
            fine = effect != 0 if side == "two-sided" else effect > 0 if side == "greater" else effect < 0
        else:
            fine = all(effect > null if beyond == "greater" else effect < null for null, beyond in margin.tests)
        if not fine:
            raise AnalysisError(
                "the effect lies on the wrong side: no number of people would show it",
                "Ask for an effect on the side that the test or the margin looks at.",
            )

    def effect_for(self, people: float, power: float) -> float:
        """Return the smallest effect (for equivalence: the largest) that reaches this power."""
        start, sign, most = self._range()
        equivalence = self.test.margin is not None and self.test.margin.claim == "equivalence"

        def excess(size: float) -> float:
            return self.power(people, start + sign * size) - power

        if (excess(0.0) < 0) == equivalence:
            raise AnalysisError(*(_TOO_FEW if equivalence else _TOO_MANY))
        end = self._far(excess, most, up=not equivalence)
        return start + sign * find_root(excess, 0.0, end)

    def _far(self, excess: Callable[[float], float], most: float, *, up: bool) -> float:
        """Return an effect large enough to be on the other side."""
        size = most / 1024 if math.isfinite(most) else self.spread.error(self.arm, 4 * self.spread.fewest, 0.0)[0] / 64
        while (excess(min(size, most)) < 0) == up:
            if size >= most:
                raise AnalysisError(
                    "even the largest possible effect would not be seen with that power", "Ask for more people."
                )
            size *= 2
        return min(size, most)

    def _range(self) -> tuple[float, float, float]:
        """Return from which effect, in which direction and how far solutions are looked for."""
        margin, mean = self.test.margin, self.spread.mean or 0.0
        if margin is None:
            start, sign = 0.0, -1.0 if self.test.alternative == "less" else 1.0
        elif len(margin.tests) == 1:
            null, side = margin.tests[0]
            start, sign = null, 1.0 if side == "greater" else -1.0
        else:
            (low, _), (high, _) = margin.tests
            return (low + high) / 2, 1.0, (high - low) / 2
        if self.spread.grows:  # nothing falls below 0, and far up the spread grows as fast as the effect
            return start, sign, mean + start if sign < 0 else _FAR * mean
        if not self.spread.binary:
            return start, sign, math.inf
        room = 1 - mean - start if sign > 0 else mean + start
        return start, sign, room * (1 - 1e-9)


def fewest_people(excess: Callable[[float], float], least: float) -> float:
    """Return the fewest people, from the least on, with whom the power is in excess of what is asked for."""
    low, high = math.log(least), math.log(least) + 1
    if excess(least) >= 0:
        return least
    while excess(math.exp(high)) < 0:
        low, high = high, high + 2
        if high > math.log(MOST_PEOPLE):
            raise AnalysisError("no number of people would be enough", "Ask for a larger effect or less power.")
    return math.exp(find_root(lambda log_people: excess(math.exp(log_people)), low, high))


def beyond(limit: float, df: float, nc: float) -> float:
    """Return how often a t with this noncentrality is above the limit."""
    below = float(scipy.special.nctdtr(df, nc, limit))
    if math.isnan(below):  # pragma: no cover - some versions' series give up far out
        centre = limit * (1 - 1 / (4 * df))
        below = float(scipy.special.ndtr((centre - nc) / math.sqrt(1 + limit**2 / (2 * df))))
    return min(1.0, max(0.0, 1 - below))


def both_beyond(limit: float, df: float, below: float, above: float) -> float:
    """Return how often both tests of equivalence say yes, the effect being so many errors inside each limit."""
    if below + above <= 0:
        return 0.0
    top = (below + above) / (2 * limit)  # with a larger estimated error the two tests contradict each other
    low, high = (math.sqrt(2 * scipy.special.gammaincinv(df / 2, p) / df) for p in (1e-15, 1 - 1e-15))
    high = min(high, top)
    if high <= low:
        return 0.0 if top <= low else float(scipy.special.ndtr(below - limit) - scipy.special.ndtr(limit - above))
    x, w = legendre(96)
    s = (low + high) / 2 + (high - low) / 2 * x
    log = df / 2 * math.log(df / 2) - scipy.special.gammaln(df / 2) + (df - 1) * np.log(s) - df * s**2 / 2 + math.log(2)
    inside = scipy.special.ndtr(below - limit * s) - scipy.special.ndtr(limit * s - above)
    return min(1.0, max(0.0, float((high - low) / 2 * w @ (np.exp(log) * inside))))
