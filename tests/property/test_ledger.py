"""A simulator that knows everybody, against the ledger: does anyone ever stand out from everything released?

People enroll, leave, and change their values and levels; random plans are released into one ledger.
After every release the simulator computes from its own people, one row each, among how many the most
exposed one hides in everything that was ever published. Values lie on a fine grid and are all
different, so that no change keeps every digit by chance; that it could is a documented limit.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kanab as kb
from kanab.counted import Counted
from kanab.errors import PrivacyError, SourceError
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.plan.periods import Periods, Span
from kanab.privacy.batches import add_releases
from kanab.privacy.ledger import read_ledger
from kanab.privacy.leverage import leverage
from kanab.privacy.merging import LevelMap
from kanab.privacy.release import Release
from kanab.privacy.request import MOST_REFUSED
from kanab.tally.factor import Level
from kanab.tally.tally import Tally

Person = dict[str, Any]
NOT_IN_IT = -1
NIL = 1e-10  # whole numbers below a thousand have no singular values between this and nothing

METRICS = {
    "y": MetricPlan("y", (-50, 50), 0.0001),
    "w": MetricPlan("w", (0, 100), 0.0001, missing="exclude"),
    "u": MetricPlan("u", (0, 100), 0.0001, missing="exclude"),
    "d": MetricPlan("d", binary=True),
    "y/w": MetricPlan("y/w", ratio=("y", "w")),
    "w/d": MetricPlan("w/d", ratio=("w", "d")),
    "w/u": MetricPlan("w/u", ratio=("w", "u")),
}


# ── the simulator's people ─────────────────────────────────────────────────────────────────────


def born(rng: np.random.Generator, number: int) -> Person:
    """Somebody new. ``v`` is nearly the same covariate as ``x``, ``echo`` as ``arm``, and nearly all have w or no u."""
    arm = str(rng.choice(["A", "B"]))
    has_w = rng.random() < 0.7
    has_u = rng.random() < 0.6 if has_w else rng.random() < 0.01
    x = str(rng.choice(["a", "b", "c", "d", "e"], p=[0.35, 0.3, 0.2, 0.12, 0.03]))
    return {
        "id": number,
        "arm": arm,
        "promo": [None, "on", "off"][rng.choice(3, p=[0.2, 0.4, 0.4])],
        "echo": str(rng.choice(["A", "B"])) if rng.random() < 0.03 else arm,
        "x": x,
        "v": str(rng.choice(["a", "b", "c"])) if rng.random() < 0.03 else x,
        "z": int(rng.choice([1, 2, 3, 4, 5, 9], p=[0.3, 0.25, 0.2, 0.15, 0.08, 0.02])),
        "age": None if rng.random() < 0.05 else float(np.round(rng.gamma(9, 4), 1)),
        "y": float(np.round(rng.uniform(-49, 49), 4)),
        "w": float(np.round(rng.uniform(1, 99), 4)) if has_w else None,
        "u": float(np.round(rng.uniform(1, 99), 4)) if has_u else None,
        "d": int(rng.random() < 0.4),
    }


def columns_of(people: Sequence[Person]) -> dict[str, Any]:
    """People as a table, in any order."""
    numbers = ("age", "y", "w", "u")
    return {
        name: np.array([np.nan if one[name] is None else one[name] for one in people])
        if name in numbers
        else np.array([one[name] for one in people], dtype=object)
        for name in people[0]
    }


# ── what a table says about somebody, worked out once more ─────────────────────────────────────


def within(bin_: str, value: float) -> bool:
    """Is a number in the bin of this name?"""
    ends = [float(text) for text in re.findall(r"-?\d+(?:\.\d+)?", bin_)]
    if bin_.startswith("<"):
        return value < ends[0]
    if bin_.startswith("≥"):
        return value >= ends[0]
    return bin_ == "any" or ends[0] <= value < ends[1]


def level_of(value: Level, covariate: CovariatePlan, table: Tally, levels: LevelMap | None) -> Level:
    """The published level of somebody who has this value."""
    known = [old for _, olds in levels.groups for old in olds] if levels else list(table.factor(covariate.name).levels)
    if covariate.bins is not None and value is not None:
        value = next(old for old in known if isinstance(old, str) and within(old, float(value)))
    if covariate.top is not None and value is not None and value not in known:
        value = "other"
    if levels is None:
        return value
    for new, olds in levels.groups:
        if value in olds:
            return new
    if levels.cuts is not None and isinstance(value, (int, float)):
        return levels.groups[sum(value >= cut for cut in levels.cuts)][0]
    return "other" if levels.rest else value


def cells_of(people: Sequence[Person], release: Release, name: str) -> list[tuple[int, ...] | None]:
    """Everybody's class in a published table; None for people who are not in it."""
    table = release.tables[name]
    found: list[tuple[int, ...] | None] = []
    for one in people:
        place = []
        for factor in table.factors:
            level = one[factor.name]
            if factor.role == "covariate":
                # a table of two covariates has the levels of their own tables, perhaps merged further
                own = f"{table.factors[0].name}/{factor.name}" if len(table.covariates) == 2 else name
                maps = release.receipt.maps
                level = level_of(level, release.plan.covariate(factor.name), release.tables[own], maps.get(own))
                further = maps.get(f"{name}: {factor.name}")
                level = level if further is None else next(new for new, olds in further.groups if level in olds)
            elif level is None:
                break
            place.append(factor.levels.index(level))
        found.append(tuple(place) if len(place) == len(table.factors) else None)
    return found


def steps(value: float | None, metric: kb.Metric) -> int | None:
    """A value on its grid, within its bounds."""
    if value is None:
        return None if metric.missing == "exclude" else 0
    low, high = metric.bounds or (-np.inf, np.inf)
    return int(np.floor(np.clip(value, low, high) * metric.scale + 0.5))


def counted_again(people: Sequence[Person], release: Release, name: str) -> dict[str, Any]:
    """Counts, sums and squares by class and by margin, from the people."""
    table = release.tables[name]
    found: dict[str, Any] = {"people": np.zeros(table.shape, dtype=object)}
    for part in table.moments:
        for key in ("counts", "sums", *(by for by in part.squares)):
            shape = table.shape_of(key) if isinstance(key, tuple) else table.shape
            found[f"{part.metric.name} {key}"] = np.zeros(shape, dtype=object)
    for one, cell in zip(people, cells_of(people, release, name), strict=True):
        if cell is None:
            continue
        found["people"][cell] += 1
        for part in table.moments:
            value = steps(one[part.metric.name], part.metric)
            if value is not None:
                found[f"{part.metric.name} counts"][cell] += 1
                found[f"{part.metric.name} sums"][cell] += value
                for by in part.squares:
                    margin = tuple(cell[table.axes.index(axis)] for axis in by)
                    found[f"{part.metric.name} {by}"][margin] += value**2
    return {key: cells.tolist() for key, cells in found.items()}


def published(release: Release, name: str) -> dict[str, Any]:
    """The same as the release says it."""
    table = release.tables[name]
    found = {"people": table.people.tolist()}
    for part in table.moments:
        metric = part.metric.name
        found |= {f"{metric} counts": part.counts.tolist(), f"{metric} sums": part.sums.tolist()}
        found |= {f"{metric} {by}": cells.tolist() for by, cells in part.squares.items()}
    return found


def classes_of(people: Sequence[Person], release: Release) -> dict[int, list[tuple[Any, ...]]]:
    """For everybody all classes that the release puts them into: tables, who has a value, and who has two."""
    found: dict[int, list[tuple[Any, ...]]] = {one["id"]: [] for one in people}
    for name, table in release.tables.items():
        for one, cell in zip(people, cells_of(people, release, name), strict=True):
            if cell is None:
                continue
            own = found[one["id"]]
            own.append((name, cell))
            has = {part.metric.name for part in table.moments if steps(one[part.metric.name], part.metric) is not None}
            own += [(name, cell, metric.name) for metric in table.metrics if metric.name in has]
            for cross in table.crosses:
                if set(cross.pair) <= has:
                    own.append((name, *(cell[table.axes.index(axis)] for axis in cross.by), *cross.by, cross.pair))
    return found


def into(ledger: Path, counted: Counted) -> Release:
    """Release into a ledger; somebody looks at refused attempts whenever it waits for that."""
    waits = len(read_ledger(ledger).unreviewed) >= MOST_REFUSED
    return kb.release(
        counted, ledger=ledger, new_ledger=not read_ledger(ledger).releases, reviewed="simulated" if waits else ""
    )


@dataclass
class Everything:
    """Who was in which class of everything ever published, as it was at that time."""

    rows: dict[int, list[int]] = field(default_factory=dict)
    count: int = 0

    def add(self, people: Sequence[Person], release: Release) -> None:
        found = classes_of(people, release)
        names = {name: place for place, name in enumerate(dict.fromkeys(c for own in found.values() for c in own))}
        for number, own in found.items():
            self.rows.setdefault(number, []).extend(self.count + names[one] for one in own)
        self.count += len(names)

    @property
    def matrix(self) -> np.ndarray:
        """One row per person ever counted, one column per class of any table."""
        x = np.zeros((len(self.rows), self.count))
        for place, own in enumerate(self.rows.values()):
            x[place, own] = 1
        return np.unique(x, axis=1)

    def effective_k(self) -> float:
        """1 / the largest entry on the diagonal of X X⁺, and by another way: how much of one person is in reach."""
        x = self.matrix
        h = np.einsum("ij,ji->i", x, np.linalg.pinv(x, rcond=NIL))
        worst = int(h.argmax())
        alone = np.zeros(len(x))
        alone[worst] = 1
        reach = x @ np.linalg.lstsq(x, alone, rcond=NIL)[0]
        assert 1 - ((alone - reach) ** 2).sum() == pytest.approx(h[worst], abs=1e-8)
        return float(1 / h[worst])

    def by_the_rule(self) -> float:
        """The same by kanab's own rule, a table per class."""
        cells = np.where(self.matrix > 0, 0, NOT_IN_IT).astype(np.int64)
        return leverage(cells, np.ones(len(cells), dtype=np.int64)).effective_k


# ── random plans ───────────────────────────────────────────────────────────────────────────────


def covariates(rng: np.random.Generator) -> tuple[CovariatePlan, ...]:
    """Levels as they are found, commonest ones, bins at edges or at quantiles."""
    edges = tuple(sorted({float(edge) for edge in rng.integers(15, 60, rng.integers(1, 4))}))
    return (
        CovariatePlan("x", top=int(rng.integers(2, 4)) if rng.random() < 0.3 else None),
        CovariatePlan("v"),
        CovariatePlan("z", bins=(2.0, 4.0) if rng.random() < 0.3 else None),
        CovariatePlan("age", bins=edges if rng.random() < 0.6 else int(rng.integers(2, 6))),
    )


def some(rng: np.random.Generator, names: Sequence[str], most: int) -> tuple[str, ...]:
    return tuple(str(name) for name in rng.permutation(names)[: rng.integers(0, most + 1)])


def any_plan(rng: np.random.Generator, k: int) -> Plan:
    """One or two experiments, some covariates each, perhaps their pair; y is always measured."""
    names = ("x", "v", "z", "age")
    first = "echo" if rng.random() < 0.15 else "arm"
    pair = ("promo",) if rng.random() < 0.3 else ()
    experiments = [ExperimentPlan(first, None, None, some(rng, names, 2), some(rng, names, 1), pair)]
    if pair or rng.random() < 0.3:
        experiments.append(ExperimentPlan("promo", adjust=some(rng, names, 1)))
    wanted = ["y", *some(rng, ("w", "d", "u"), 3)]
    wanted += [name for name in ("y/w", "w/d", "w/u") if set(name.split("/")) <= set(wanted) and rng.random() < 0.6]
    return Plan(tuple(METRICS[name] for name in wanted), tuple(experiments), covariates(rng), k)


# ── one population, many releases ──────────────────────────────────────────────────────────────

Step = tuple[Callable[[], None], float]


def take(steps_: Sequence[Step], rng: np.random.Generator) -> None:
    """One of some steps, each as often as its weight says."""
    weights = np.array([weight for _, weight in steps_])
    steps_[rng.choice(len(steps_), p=weights / weights.sum())][0]()


class OnePopulation:
    """Releases about everybody: whatever the people do in between, nobody ever stands out."""

    SIZE, K = 260, 6

    def __init__(self, folder: Path, seed: int) -> None:
        self.ledger = folder / "kanab.ledger"
        self.rng = np.random.default_rng(seed)
        self.people = [born(self.rng, number) for number in range(self.SIZE)]
        self.next = self.SIZE
        self.released: list[Release] = []
        self.then: list[list[Person]] = []
        self.everything = Everything()
        self.refused = 0

    def step(self) -> None:
        take(
            [
                (self.release_more_tables, 10), (self.be_as_at_the_last_release, 5), (self.release_about_others, 0.5),
                (self.release_without_somebody, 0.5), (self.spend_something_else, 1), (self.lose_or_find_a_value, 1),
                (self.be_of_another_level, 1), (self.leave, 1), (self.enroll, 1),
            ],
            self.rng,
        )  # fmt: skip

    @property
    def k(self) -> int:
        """The rule of everything so far."""
        return max((one.receipt.k for one in self.released), default=self.K + int(self.rng.integers(3)))

    def attempt(self, people: Sequence[Person], plan: Plan) -> Release | None:
        """A release into the ledger, or None and nothing but a note of it."""
        before = read_ledger(self.ledger)
        try:
            return into(self.ledger, kb.count(columns_of(people), plan, earlier=before.plans))
        except (PrivacyError, SourceError):
            assert [one.salt for one in read_ledger(self.ledger).releases] == [one.salt for one in before.releases]
            assert [path.name for path in self.ledger.parent.iterdir()] in ([], [self.ledger.name])
            self.refused += 1
            return None

    def release_more_tables(self) -> None:
        found = self.attempt(self.people, any_plan(self.rng, self.k))
        if found is not None:
            assert not self.differs(self.people)
            self.released.append(found)
            self.then.append([dict(one) for one in self.people])
            self.everything.add(self.people, found)
            self.check(found)

    def check(self, found: Release) -> None:
        """The last release, and everything together, against the truth."""
        for name, table in found.tables.items():
            assert counted_again(self.people, found, name) == published(found, name)
            assert all(n == 0 or n >= found.receipt.k for n in table.people.ravel())
        truth, promised = self.everything.effective_k(), found.receipt.effective_k
        assert truth >= self.k * (1 - 1e-6)
        assert promised is not None
        assert promised % found.receipt.k == 0
        assert found.receipt.k <= promised <= truth * (1 + 1e-6)
        assert truth * (1 - 1e-6) <= self.everything.by_the_rule() <= truth * (1 + 1e-6)
        assert list(map(repr, read_ledger(self.ledger).releases)) == list(map(repr, self.released))

    def differs(self, people: Sequence[Person]) -> bool:
        """Would a table that was published come out differently from these people?"""
        for old in self.released:
            for name in old.tables:
                try:
                    if counted_again(people, old, name) != published(old, name):
                        return True
                except (ValueError, StopIteration):  # a level that the table does not have
                    return True
        return False

    def release_about_others(self) -> None:
        others = [born(self.rng, number) for number in range(self.SIZE)]
        if self.released:
            assert self.attempt(others, any_plan(self.rng, self.k)) is None

    def release_without_somebody(self) -> None:
        one = self.somebody()
        counted = [experiment.name for old in self.released for experiment in old.plan.experiments]
        if any(one[name] is not None for name in counted):
            rest = [other for other in self.people if other is not one]
            assert self.attempt(rest, any_plan(self.rng, self.k)) is None or self.differs(self.people)

    def somebody(self) -> Person:
        return self.people[self.rng.integers(len(self.people))]

    def spend_something_else(self) -> None:
        self.become(self.somebody(), y=float(np.round(self.rng.uniform(-49, 49), 4)))

    def lose_or_find_a_value(self) -> None:
        one = self.somebody()
        self.become(one, w=None if one["w"] is not None else float(np.round(self.rng.uniform(1, 99), 4)))

    def be_of_another_level(self) -> None:
        self.become(
            self.somebody(), x=str(self.rng.choice(["a", "b", "c"])), age=float(self.rng.integers(150, 600) / 10)
        )

    def become(self, one: Person, **values: Any) -> None:
        self.people = [one | values if other is one else other for other in self.people]

    def leave(self) -> None:
        gone = self.somebody()
        self.people = [one for one in self.people if one is not gone]

    def enroll(self) -> None:
        self.people = [*self.people, born(self.rng, self.next)]
        self.next += 1

    def be_as_at_the_last_release(self) -> None:
        if self.then:
            self.people = [dict(one) for one in self.then[-1]]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_nobody_stands_out_from_everything_that_was_ever_released_about_one_population(
    tmp_path: Path, seed: int
) -> None:
    walk = OnePopulation(tmp_path, seed)
    for _ in range(28):
        walk.step()
    assert len(walk.released) > 2
    assert walk.refused


# ── cohorts ────────────────────────────────────────────────────────────────────────────────────

WEEKS = Periods("7d")
FIRST = date(1970, 1, 1)
COHORTS = Plan(
    (METRICS["y"], METRICS["w"], METRICS["u"], METRICS["d"], METRICS["w/d"], METRICS["w/u"]),
    (
        ExperimentPlan("arm", (("A", 1.0), ("B", 1.0)), adjust=("x",), segments=("age",), interactions=("promo",)),
        ExperimentPlan("promo", (("on", 1.0), ("off", 1.0)), adjust=("z",)),
    ),
    (
        CovariatePlan("x", ("a", "b", "c", "d", "e")),
        CovariatePlan("z", (1, 2, 3, 4, 5, 9)),
        CovariatePlan("age", bins=(25.0, 32.0, 40.0, 50.0)),
    ),
    k=6,
)


def groups_of(release: Release, name: str) -> dict[Level, Level]:
    """Where each level of a table went."""
    levels = release.receipt.maps.get(name)
    if levels is not None:
        return {old: new for new, olds in levels.groups for old in olds}
    return {level: level for level in release.tables[name].covariates[0].levels}


class Cohorts:
    """Week after week is sealed; what happens to people afterwards changes nothing."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.ledger = folder / "kanab.ledger"
        self.rng = np.random.default_rng(seed)
        self.people: list[Person] = []
        self.sealed: list[Person] = []
        self.released: list[Release] = []
        self.batches: list[tuple[list[Person], set[str]]] = []
        self.everything = Everything()
        self.week = WEEKS.number("2026-W36")
        self.after: int | None = None
        self.refused = 0
        self.enroll()

    def step(self) -> None:
        take(
            [(self.enroll, 4), (self.come_late, 1), (self.change_anything, 2), (self.leave, 1), (self.wait, 1),
             (self.seal, 5), (self.skip_a_week, 0.5)],
            self.rng,
        )  # fmt: skip

    def enroll(self, back: int = 0) -> None:
        """New people of this week."""
        for _ in range(int(self.rng.choice([15, 60, 150]))):
            day = FIRST + timedelta(days=WEEKS.first_day(self.week - back) + int(self.rng.integers(7)))
            self.people.append(born(self.rng, int(self.rng.integers(2**62))) | {"enrolled": day.isoformat()})

    def come_late(self) -> None:
        """New people of a week that may be sealed."""
        self.enroll(back=int(self.rng.integers(1, 4)))

    def change_anything(self) -> None:
        """Everything about a few people but when they enrolled."""
        for who in self.rng.integers(0, len(self.people), 5):
            fixed = {name: self.people[who][name] for name in ("id", "enrolled")}
            self.people[who] = born(self.rng, 0) | fixed

    def leave(self) -> None:
        if len(self.people) > 20:
            self.people.pop(int(self.rng.integers(len(self.people))))

    def wait(self) -> None:
        self.week += 1

    def seal(self) -> None:
        """Everybody who enrolled since the last seal, late ones of sealed weeks left out."""
        if self.after == self.week:
            return
        found = self.attempt(self.after)
        if found is not None:
            own = [dict(one) for one in self.people if self.enrolled_since(one)]
            self.check(found, own)
            self.after = self.week
            self.week += 1

    def enrolled_since(self, one: Person) -> bool:
        week = WEEKS.of_day(date.fromisoformat(one["enrolled"]))
        return week <= self.week and (self.after is None or week > self.after)

    def skip_a_week(self) -> None:
        """Weeks that are left out would have to be sealed twice later."""
        if self.after is not None and self.after + 1 < self.week:
            assert self.attempt(self.after + 1) is None
        if self.after is not None:
            assert self.attempt(self.after - 1) is None

    def attempt(self, after: int | None) -> Release | None:
        span = Span("enrolled", "7d", None if after is None else WEEKS.label(after), WEEKS.label(self.week))
        before = read_ledger(self.ledger)
        try:
            return into(self.ledger, kb.count(columns_of(self.people), COHORTS, rows=kb.Rows(span=span)))
        except (PrivacyError, SourceError):
            assert [one.salt for one in read_ledger(self.ledger).releases] == [one.salt for one in before.releases]
            self.refused += 1
            return None

    def check(self, found: Release, own: list[Person]) -> None:
        """A batch by itself, against the one before, and all of them together."""
        for name in found.tables:
            assert counted_again(own, found, name) == published(found, name)
        alone = Everything()
        alone.add(own, found)
        assert COHORTS.k <= (found.receipt.effective_k or 0) <= alone.effective_k() * (1 + 1e-6)
        if self.released:
            self.only_coarser(self.released[-1], found)
        assert not {one["id"] for one in own} & {one["id"] for one in self.sealed}
        self.released.append(found)
        self.sealed += own
        self.everything.add(own, found)
        self.batches.append((own, set(found.plan.experiment_names)))
        added = add_releases(read_ledger(self.ledger).releases)
        for name, table in added.tables.items():  # an experiment may have been left out of a batch
            there = [one for people, names in self.batches for one in people if names >= set(table.experiment_names)]
            assert counted_again(there, added, name) == published(added, name)

    def only_coarser(self, last: Release, found: Release) -> None:
        before = set(last.plan.experiment_names)  # one that was left out of the last batch may be in this one
        crossed = {
            name for name, table in found.tables.items() if table.covariates and set(table.experiment_names) <= before
        }
        assert crossed <= set(last.tables)
        for name in crossed:
            old, new = groups_of(last, name), groups_of(found, name)
            for one, other in combinations([level for level in old if level in new], 2):
                assert old[one] != old[other] or new[one] == new[other]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_batches_add_up_to_the_people_at_their_seals_and_nobody_stands_out(tmp_path: Path, seed: int) -> None:
    walk = Cohorts(tmp_path, seed)
    for _ in range(40):
        walk.step()
    assert len(walk.released) > 2
    assert walk.everything.effective_k() >= COHORTS.k * (1 - 1e-6)


# ── one metric, one grid ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "other", [{"bounds": (0, 400)}, {"bounds": (1, 90)}, {"resolution": 0.1}, {"missing": "exclude"}], ids=str
)
def test_a_metric_has_the_same_bounds_and_grid_in_all_releases_of_a_ledger(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    """The largest value is 333.33 and all others are below 90: two clamped sums would differ by that person's."""
    rng = np.random.default_rng(2)
    y = np.round(rng.uniform(0, 89, 400), 2)
    y[17] = 333.33
    rows = {"arm": np.array(["A", "B"] * 200), "y": y}
    ledger = tmp_path / "kanab.ledger"
    metric = MetricPlan("y", (0, 90), 0.01)
    arms = (ExperimentPlan("arm"),)
    kb.release(kb.count(rows, Plan((metric,), arms)), ledger=ledger, new_ledger=True)
    before = read_ledger(ledger).hashes
    counted = kb.count(rows, Plan((replace(metric, **other),), arms), earlier=read_ledger(ledger).plans)
    with pytest.raises(PrivacyError, match="y was released before with other bounds, another resolution or another"):
        kb.release(counted, ledger=ledger)
    assert read_ledger(ledger).hashes[:-1] == before
