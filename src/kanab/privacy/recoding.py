"""Rule 3 over all tables: recode instead of withhold.

Where too few people are behind an amount, or one of them is most of it, levels are merged further: one map per table
for all its metrics and arms, chosen on pooled people and the planned share, then checked arm by arm. A metric that
would cost a table more than half of its levels leaves the table instead; a primary metric does so only where two
levels are left. What the arms' own totals tell is not said at all.

A collector keeps no values, but it counts who is off 0: at a seal nobody or at least three people of every class have
some of an amount. Forged messages may make numbers below 0, which are too few. Where nobody counted contributors
nothing is asked, and the receipt says so.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from kanab.counted import MOST_STEPS, Counted, SignatureValues
from kanab.errors import flag, listed
from kanab.plan.model import Plan
from kanab.privacy.class_rules import Draft, smallest_share
from kanab.privacy.exposure import LEAST_CONTRIBUTORS, Floats, excess, is_harmless, within
from kanab.privacy.joint_rules import arm_columns, as_published, first_linkages, smallest_class
from kanab.privacy.merging import LevelMap, merge_level
from kanab.privacy.overlap import Column, Place, ShownTable, column, signatures_of
from kanab.tally.cell_arrays import Cells
from kanab.tally.factor import Level
from kanab.tally.tally import Tally

ENOUGH_CONTRIBUTORS = 7.5
"""A level stays if the people behind an amount in it, over all arms, times the smallest planned share reach this."""

FEW = "few people are behind its sums, or one of them is most of a sum"
FOLLOWS = "for most people it follows from {others}, and few people are behind what is left"


@dataclass(frozen=True)
class Recoded:
    """Tables with levels merged further; the metrics that leave them, and products, each with the reason."""

    drafts: Mapping[str, Draft]
    withheld: Mapping[Place, str]
    products: Mapping[tuple[str, frozenset[str]], str]


def recode(counted: Counted, drafts: Mapping[str, Draft], earlier: Sequence[ShownTable]) -> Recoded:
    """Merge levels, or withhold metrics and products, until no combination of sums tells about one or two people."""
    recoding = _Recoding(counted, dict(drafts), earlier)
    for subject in _subjects(counted):
        recoding.ask(subject)
    return Recoded(recoding.drafts, recoding.withheld, recoding.products)


@dataclass(frozen=True, eq=False)
class _Subject:
    """An amount that is asked about, and the metrics (several of a relation) that tell its sums."""

    metrics: tuple[str, ...]
    values: SignatureValues

    @property
    def gives_way(self) -> str:
        """The metric that is withheld where nothing else helps."""
        return self.metrics[-1]

    @property
    def why(self) -> str:
        """Why it is withheld."""
        return FOLLOWS.format(others=listed(self.metrics[:-1])) if len(self.metrics) > 1 else FEW


def _subjects(counted: Counted) -> Iterator[_Subject]:
    """Yield everything that rule 3 is about: amounts, in the order of their roles, and what relations leave of them."""
    signatures = signatures_of(counted)
    for name in _by_role(counted):
        if name in signatures.values and not _harmless(counted, name):
            yield _Subject((name,), signatures.values[name])
    order = _by_role(counted)
    for relation, values in signatures.left.items():
        own = [name for name in order if name in relation.metrics]
        yield _Subject((*(name for name in sorted(relation.metrics) if name not in own), *own), values)


def _by_role(counted: Counted) -> list[str]:
    """Return the counted metrics: primary ones first, then guardrails, then the others in the order of the plan."""
    experiments = counted.plan.experiments
    primary = [name for each in experiments for name in each.primary]
    guardrails = [name for each in experiments for name in each.guardrails]
    names = [metric.name for metric in counted.plan.counted_metrics]
    return [name for name in dict.fromkeys([*primary, *guardrails, *names]) if name in names]


def _harmless(counted: Counted, name: str) -> bool:
    """Return whether a metric that is not sensitive is 0/1, or a whole number of a few steps, for everybody."""
    if counted.plan.metrics_by_name[name].sensitive != "no":
        return False
    metric = next(each for tally in counted.tallies.values() for each in tally.metrics if each.name == name)
    low, _ = metric.grid_bounds or counted.ranges.get(name, (-1, 0))
    return is_harmless(signatures_of(counted).values[name], metric.scale, low)


def squares_by_arm(counted: Counted) -> Counted:
    """Keep squares by arm only of a few whole steps, some below 0: of −1, 0 and 1 half of y² − y is who has −1."""
    values = {} if counted.signatures is None else counted.signatures.values
    tallies = {}
    for name, tally in counted.tallies.items():
        moments = []
        for part in tally.moments:
            metric, known = part.metric, values.get(part.metric.name)
            low, high = metric.grid_bounds or counted.ranges.get(metric.name, (-1, 0))
            few = metric.scale == 1 and high - low <= MOST_STEPS
            few = few if known is None else is_harmless(known, metric.scale, 0)
            arms = [(arm,) for arm in tally.experiment_names]
            moments.append(part.with_squares_at(arms, tally.axes) if few and low < 0 else part)
        tallies[name] = replace(tally, moments=tuple(moments))
    return replace(counted, tallies=tallies)


@dataclass
class _Recoding:
    """Tables on their way, and what was withheld from them so far."""

    counted: Counted
    drafts: dict[str, Draft]
    earlier: Sequence[ShownTable]
    withheld: dict[Place, str] = field(default_factory=dict)
    products: dict[tuple[str, frozenset[str]], str] = field(default_factory=dict)

    def ask(self, subject: _Subject) -> None:
        """Merge or withhold until nobody is told by the sums of one amount."""
        old = [table.columns[0] for table in self.earlier if {*subject.metrics} <= self._released(table.tally.axes)]
        old += [having for table in self.earlier for pair, having in table.cut if pair.issuperset(subject.metrics)]
        before = excess(old, (), subject.values)
        arms = self._arms(subject, old, before)
        base = [*old, *arms, *self._cut_columns(subject, [*old, *arms], arms, before)]
        start = dict(self.drafts)
        for name in self._tables(subject):
            self._enough_contributors(subject, name)
        while True:
            tables = {name: column(self.counted, as_published(self.drafts[name])) for name in self._tables(subject)}
            squared = list(arms)
            for name, classes in tables.items():
                covariate, tally = self.drafts[name].linkage.covariate, self.drafts[name].tally
                known = [tally.moments_of(each).squares for each in subject.metrics if each in tally.metric_names]
                if any(covariate in by for squares in known for by in squares):
                    levels = len(_groups(self.drafts[name]))
                    squared.append(np.where(classes >= 0, classes % levels, -1))
            beyond = excess([*base, *tables.values()], squared, subject.values)
            if within(beyond, before):
                return
            worst = int(np.argmax(beyond / np.maximum(before, 1)))
            self._give_way(subject, tables, worst, start)

    # ── arms and products ──────────────────────────────────────────────────────────────────────

    def _arms(self, subject: _Subject, old: Sequence[Column], before: Floats) -> list[Column]:
        """Return the arms of every experiment whose totals may be shown; bar the metric from the others."""
        arms: list[Column] = []
        for name, own in arm_columns(self.counted).items():
            if not self._shows(name, subject, self._first_tally(name).metric_names):
                continue
            if within(excess([*old, *arms, own], [*arms, own], subject.values), before):
                arms.append(own)
            else:
                metric = subject.gives_way
                self.withheld[name, metric] = (
                    f"{metric} is withheld altogether: {subject.why} of an arm; {self._remedy(subject)}"
                )
        return arms

    def _first_tally(self, experiment: str) -> Tally:
        return self.counted.tallies[self.counted.plan.linkages_of(experiment)[0].name]

    def _cut_columns(
        self, subject: _Subject, base: Sequence[Column], arms: Sequence[Column], before: Floats
    ) -> list[Column]:
        """Return who of every arm has a 0/1 metric that multiplies an amount, where the products may leave."""
        signatures, kept = signatures_of(self.counted), list[Column]()
        for experiment, pair, own in self._products_of(subject):
            classes = np.where(signatures.cut[next(iter(pair - {*subject.metrics}))], own, -1)
            if within(excess([*base, *kept, classes], arms, subject.values), before):
                kept.append(classes)
            else:
                both = " and ".join(sorted(pair))
                self.products[experiment, pair] = f"products of {both} are withheld in {experiment}: {FEW}"
        return kept

    def _products_of(self, subject: _Subject) -> Iterator[tuple[str, frozenset[str], Column]]:
        """Yield the products of an amount with 0/1 metrics, by experiment, with the arm of every signature."""
        signatures = signatures_of(self.counted)
        for name, arms in arm_columns(self.counted).items():
            for cross in self._first_tally(name).crosses:
                others = {*cross.pair} - {*subject.metrics}
                if len(subject.metrics) == len(others) == 1 and others <= signatures.cut.keys():
                    yield name, frozenset(cross.pair), arms

    # ── tables ─────────────────────────────────────────────────────────────────────────────────

    def _shows(self, name: str, subject: _Subject, metrics: Sequence[str]) -> bool:
        """Return whether the sums of a subject can be told from what is published under a name, and before."""
        before = self._released(self.drafts[name].linkage.axes if name in self.drafts else (name,))
        known = {metric for metric in metrics if (name, metric) not in self.withheld}
        return subject.gives_way in known and {*subject.metrics} <= known | before

    def _released(self, axes: Sequence[str]) -> set[str]:
        """Return the metrics that were released before by some axes."""
        alike = [old.tally for old in self.earlier if {*old.tally.axes} == {*axes}]
        return {metric for tally in alike for metric in tally.metric_names}

    def _tables(self, subject: _Subject) -> list[str]:
        """Return the tables that show an amount by class."""
        names = []
        for name, draft in self.drafts.items():
            places = (name, *draft.linkage.experiments)
            metrics = () if draft.why or len(draft.linkage.axes) < 2 else draft.tally.metric_names
            if all(self._shows(place, subject, metrics) for place in places):
                names.append(name)
        return names

    def _contributors(self, subject: _Subject, draft: Draft) -> list[int]:
        """Return the people behind an amount by group of a table's levels, over all arms, in the map's order."""
        levels = draft.levels
        assert levels is not None, "it has a covariate"
        classes = column(self.counted, as_published(draft))
        inside = classes >= 0
        order = _groups(draft)
        people = np.bincount(classes[inside] % len(order), subject.values.off[inside], len(order))
        by_level = dict(zip(order, people.astype(int).tolist(), strict=True))
        return [by_level.get(new, 0) for new, _ in levels.groups]

    def _enough_contributors(self, subject: _Subject, name: str) -> None:
        """Merge levels with few people behind an amount, over all arms; or withhold it from the table."""
        draft = self.drafts[name]
        if draft.levels is None:
            return
        experiment = self.counted.plan.experiment(draft.linkage.experiments[0])
        needed = ENOUGH_CONTRIBUTORS / smallest_share(experiment, draft.tally)
        least = _least_levels(draft, subject.gives_way, self.counted.plan)
        trial = draft
        while True:
            people = self._contributors(subject, trial)
            few = [n for n in people if 0 < n < needed]
            if not few:
                self.drafts[name] = trial
                return
            trial = _merged(trial, people.index(min(few)), people)
            assert trial.levels is not None, "it had some"
            if len(trial.levels.groups) < least:
                return  # the arms may be well all the same: they decide

    def _give_way(
        self, subject: _Subject, tables: Mapping[str, Column], worst: int, start: Mapping[str, Draft]
    ) -> None:
        """Merge the most exposed people's level in the table where the fewest are, or withhold the metric there."""
        name = smallest_class(tables, worst, subject.values.off) or next(iter(tables))
        draft, place = self.drafts[name], int(tables[name][worst])
        least = _least_levels(start[name], subject.gives_way, self.counted.plan)
        if place >= 0 and draft.levels is not None and len(draft.levels.groups) > least:
            order = _groups(draft)
            level = [new for new, _ in draft.levels.groups].index(order[place % len(order)])
            self.drafts[name] = _merged(draft, level, self._contributors(subject, draft))
            return
        self.drafts[name] = start[name]  # what it was merged for it does not have
        metric = subject.gives_way
        self.withheld[name, metric] = (
            f"{metric} is withheld in {name}: {subject.why} of a class; {self._remedy(subject, start[name])}"
        )

    def _remedy(self, subject: _Subject, draft: Draft | None = None) -> str:
        """Say what would keep an amount in a table, or in the arms."""
        *others, metric = subject.metrics
        if others:
            before = {name for table in self.earlier for name in table.tally.metric_names}
            return "wait for more people" if before & {*others} else f"leave out {' or '.join(others)} to have it"
        if draft is not None and draft.levels is not None and len(draft.levels.groups) > 2:
            covariate = draft.levels.covariate
            word = "--bin" if draft.tally.factor(covariate).scores else "--top"
            return f"keep fewer levels of {covariate} ({word} {covariate}=…), or wait for more people"
        bounds = self.counted.plan.metrics_by_name[metric].bounds
        example = "LOW:HIGH" if bounds is None else "{:.12g}:{:.12g}".format(*narrower(bounds))
        words = flag("--bounds", f"{metric}={example}")
        return f"narrower bounds may keep it, beyond which values are clamped ({words}), or wait for more people"


def _groups(draft: Draft) -> list[Level]:
    """Return the levels of a table as they are published, in its order."""
    levels = draft.tally.factors[-1].levels
    return list(dict.fromkeys(levels if draft.levels is None else map(draft.levels.target, levels)))


def _least_levels(draft: Draft, metric: str, plan: Plan) -> int:
    """Return how many levels of a table a metric leaves at least: two, or half of them if it is no primary one."""
    if draft.levels is None or metric in plan.experiment(draft.linkage.experiments[0]).primary:
        return 2
    return max(2, (len(draft.levels.groups) + 1) // 2)


def _merged(draft: Draft, place: int, people: Sequence[int]) -> Draft:
    assert draft.levels is not None, "it has a covariate"
    return replace(draft, levels=merge_level(draft.tally, draft.levels, place, people))


def narrower(bounds: tuple[float, float]) -> tuple[float, float]:
    """Return bounds half as far apart.

    >>> narrower((0, 500)), narrower((10, 30)), narrower((-100, 500))
    ((0, 250.0), (10, 20.0), (-50.0, 250.0))
    """
    low, high = bounds
    return (low / 2, high / 2) if low < 0 else (low, (low + high) / 2)


# ── at a seal ──────────────────────────────────────────────────────────────────────────────────

TOO_FEW = "too few people of {} have some of it"

Contributors = Mapping[str, Cells]
"""People whose value is not 0 in the classes of one table, by metric."""


def merge_to_contributors(counted: Counted, drafts: Mapping[str, Draft]) -> Recoded:
    """Merge levels until nobody or enough people of every class have some of each amount; withhold what is left."""
    merged = dict(drafts)
    withheld: dict[Place, str] = {}
    for linkage in first_linkages(counted.plan):
        experiment = linkage.experiments[0]
        withheld |= _from_arms(experiment, _asked(counted, linkage.name, counted.arm_totals(experiment)))
    for name, draft in drafts.items():
        barred = {metric for experiment, metric in withheld if experiment in draft.linkage.experiments}
        asked = _asked(counted, name, draft.tally)
        cells = {metric: people for metric, people in asked.items() if metric not in barred}
        if draft.why or not cells or len(draft.tally.axes) == 1:
            continue
        merged[name], gone = _merged_locally(draft, cells, counted.plan)
        why = TOO_FEW.format("a class")
        withheld |= {(name, metric): f"{metric} is withheld in {name}: {why}" for metric in gone}
    return Recoded(merged, withheld, {})


def _asked(counted: Counted, table: str, tally: Tally) -> Contributors:
    """Return the contributors in a table of those metrics of a tally that the rule is about."""
    known, plans = counted.contributors.get(table, {}), counted.plan.metrics_by_name
    asked = {}
    for metric in tally.metrics:
        low, high = metric.grid_bounds or (-1, 0)
        few_steps = metric.scale == 1 and low >= 0 and high <= MOST_STEPS
        if metric.name in known and (plans[metric.name].sensitive != "no" or not few_steps):
            asked[metric.name] = known[metric.name]
    return asked


def _from_arms(experiment: str, cells: Contributors) -> dict[Place, str]:
    """Return the metrics of which too few people of an arm have some: every table adds up to them."""
    withheld = {}
    for metric, people in cells.items():
        by_arm = people.reshape(len(people), -1).sum(axis=1)
        if _too_few(by_arm).any():
            why = TOO_FEW.format("an arm")
            withheld[experiment, metric] = f"{metric} is withheld altogether: {why}"
    return withheld


def _merged_locally(draft: Draft, cells: Contributors, plan: Plan) -> tuple[Draft, list[str]]:
    """Return a table with its levels merged, and the metrics that leave it: for each, merging starts again."""
    gone: list[str] = []
    levels = draft.levels
    while (failing := _first_failing(draft, levels, cells, gone)) is not None:
        metric, place = failing
        if levels is None or len(levels.groups) <= _least_levels(draft, metric, plan):
            gone.append(metric)
            levels = draft.levels
        else:
            people = _by_group(draft, levels, cells[metric]).sum(axis=0).tolist()
            # Joining a group without any contributors would bring nothing.
            sizes = [number if number > 0 else max(people) + 1 for number in people]
            levels = merge_level(draft.tally, levels, place, sizes)
    return replace(draft, levels=levels), gone


def _first_failing(
    draft: Draft, levels: LevelMap | None, cells: Contributors, gone: list[str]
) -> tuple[str, int] | None:
    """Return a metric and the place of a level of which too few people have some; None where there is none."""
    for metric, people in cells.items():
        if metric not in gone:
            columns = people if levels is None else _by_group(draft, levels, people)
            failing = np.argwhere(_too_few(columns))
            if len(failing):
                return metric, int(failing[0][-1])
    return None


def _by_group(draft: Draft, levels: LevelMap, people: Cells) -> Cells:
    """Return contributors by the groups of a map, in its order."""
    places = {level: place for place, level in enumerate(draft.tally.factor(levels.covariate).levels)}
    return np.stack([people[..., [places[old] for old in olds]].sum(axis=-1) for _, olds in levels.groups], axis=-1)


def _too_few(people: Cells) -> NDArray[np.bool_]:
    return np.asarray((people != 0) & (people < LEAST_CONTRIBUTORS), dtype=bool)


# ── rule 4: few numbers about few people, for metrics that are marked sensitive ────────────────

TOO_MANY_NUMBERS = "it is sensitive, and its tables hold too many numbers about the few people off its commonest value"


def few_numbers(counted: Counted, drafts: Mapping[str, Draft], earlier: Sequence[ShownTable] = ()) -> dict[Place, str]:
    """Return the tables in which a sensitive metric is withheld, with the reason: later ones give way."""
    signatures = signatures_of(counted)
    withheld: dict[Place, str] = {}
    for metric in (each.name for each in counted.plan.counted_metrics if each.sensitive != "no"):
        off = signatures.values[metric].off
        fixed = [table.columns[0] for table in earlier if metric in table.tally.metric_names]
        for experiment, arms in arm_columns(counted).items():
            kept = list(fixed)
            for name, draft in drafts.items():
                if draft.why or experiment not in draft.linkage.experiments or len(draft.linkage.axes) < 2:
                    continue
                classes = column(counted, as_published(draft))
                if _enough([*kept, classes], arms, off, signatures.people):
                    kept.append(classes)
                elif metric in draft.tally.metric_names:
                    withheld[name, metric] = f"{metric} is withheld in {name}: {TOO_MANY_NUMBERS}"
    return withheld


def _enough(tables: Sequence[Column], arms: Column, off: Column, people: Column) -> bool:
    """Return whether enough people of every arm are off the commonest value for all numbers about the arm."""
    for arm in range(int(arms.max()) + 1):
        inside = (arms == arm) & (people > 0)
        numbers = 1 + sum(len(np.unique(classes[inside & (classes >= 0)])) - 1 for classes in tables)
        few = int(off[inside].sum())
        if 0 < few < 2 * numbers:
            return False
    return True
