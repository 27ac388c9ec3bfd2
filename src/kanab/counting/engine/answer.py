"""Read the statement's answer: texts in, tallies and signatures out."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.counted import Counted, CountedShape, Relation, SignatureValues
from kanab.counting.columns import check_classes
from kanab.counting.engine.group_keys import Key
from kanab.counting.engine.measures import Measure
from kanab.counting.engine.statement import LEFT, THIRD, CountQuery, CrossSum, QueryPart
from kanab.counting.frames import check_days
from kanab.counting.levels import check_arms, check_levels, place_arms, place_levels
from kanab.counting.signature_groups import Membership, NumbersInGroups, among, bound_second, counts_things
from kanab.errors import NobodyError, SourceError
from kanab.plan.joint_plan import Population, View, column_of, covariates_about, populations
from kanab.plan.model import Linkage
from kanab.tally.cell_arrays import DROPPED, Cells, marginal, zeros
from kanab.tally.factor import Factor
from kanab.tally.moments import By, Cross, Moments
from kanab.tally.tally import Tally

MOST_SIGNATURES = 2_000_000
"""More combinations of levels over all tables are refused: they would not fit beside the data."""

Text = str | None
Texts = tuple[Text, ...]
Address = tuple[str, tuple[str, ...], tuple[str, ...]]

FARTHEST = 1e4
"""So many standard deviations may a mean be off: third powers of doubles have no digits left beyond."""

Floats = NDArray[np.float64]
ByArm = Callable[[str], Floats]


@dataclass(frozen=True)
class AnswerRows:
    """Rows of one part that are grouped alike: texts of the keys, and named numbers as texts."""

    names: tuple[str, ...] = ()
    rows: list[tuple[Texts, Texts]] = field(default_factory=list, repr=False)

    def column(self, name: str) -> list[tuple[Texts, int]]:
        """Return a number of every row, with the texts of its keys."""
        place = self.names.index(name) if self.rows else 0
        return [(texts, parse_int(numbers[place])) for texts, numbers in self.rows]

    def array(self, name: str, dtype: type = np.int64) -> NDArray[Any]:
        """Return a number of every row, without its keys; numbers of people, which are never long, or rounded ones."""
        return np.array([number for _, number in self.column(name)], dtype=dtype)

    def floats(self, name: str) -> NDArray[np.float64]:
        """Return a rounded number of every row; 0 for nothing."""
        place = self.names.index(name) if self.rows else 0
        return np.array([float(numbers[place] or 0) for _, numbers in self.rows], dtype=np.float64)


@dataclass(frozen=True)
class QueryAnswer:
    """Everything that left the engine."""

    query: CountQuery
    rows: Mapping[Address, AnswerRows]

    def of(self, name: str, keys: Sequence[Key], experiments: Sequence[str] = ()) -> AnswerRows:
        """Return the rows of a part that are grouped by these keys."""
        return self.rows.get((name, tuple(experiments), tuple(key.name for key in keys)), AnswerRows())

    def only(self, name: str) -> Mapping[str, Text]:
        """Return the only row of a part without keys."""
        rows = self.of(name, ())
        return dict(zip(rows.names, rows.rows[0][1], strict=True))

    def inside(self, group: Population) -> Mapping[str, Text]:
        """Return the totals over a group of people that the plan is about."""
        groups = populations(self.query.plan)
        return self.only("inside" if len(groups) == 1 else f"inside{groups.index(group)}")

    def everybody(self) -> dict[str, int]:
        """Count all people, in an experiment or not, and those to whom each flag applies."""
        inside, outside = self.only("inside"), self.only("outside")
        return {name: parse_int(inside[name]) + parse_int(number) for name, number in outside.items()}


def read_answer(rows: Iterable[Sequence[Any]], parts: Sequence[QueryPart], query: CountQuery) -> QueryAnswer:
    """Sort rows into parts as they come; raise `SourceError` where there are too many signatures."""
    keys = query.keys
    by_address: dict[Address, AnswerRows] = {}
    targets: dict[tuple[Any, Any], tuple[AnswerRows, list[int]]] = {}
    for place, mask, *texts in rows:
        if (place, mask) not in targets:
            part = parts[int(place)]
            grouped = [key for bit, key in enumerate(part.keys) if not int(mask) >> bit & 1]
            target = AnswerRows(tuple(name for name, _ in part.values))
            by_address[part.name, part.experiments, tuple(key.name for key in grouped)] = target
            targets[place, mask] = target, [keys.index(key) for key in grouped]
        target, positions = targets[place, mask]
        numbers = texts[len(keys) : len(keys) + len(target.names)]
        target.rows.append((tuple(texts[position] for position in positions), tuple(numbers)))
        if len(target.rows) > MOST_SIGNATURES:
            raise SourceError(
                f"the covariates have more than {MOST_SIGNATURES:,} combinations of levels together",
                "Name fewer covariates, or keep fewer levels: cut into bins (--bin), or the most frequent (--top).",
            )
    for part in parts:  # one row where there is nothing to group by, even of nobody
        if not part.keys:
            names = tuple(name for name, _ in part.values)
            by_address.setdefault((part.name, part.experiments, ()), AnswerRows(names, [((), (None,) * len(names))]))
    return QueryAnswer(query, by_address)


@dataclass(frozen=True)
class Places:
    """A factor, and where each text of its key goes."""

    factor: Factor
    into: Mapping[Text, int] = field(repr=False)


def place_all(answer: QueryAnswer, group: Population) -> dict[str, Places]:
    """Return the factor of every key, from the texts that occurred in a group of people that the plan is about."""
    query = answer.query
    rows = answer.of("signatures", query.keys).rows
    places: dict[str, Places] = {}
    if rows:
        for place, key in enumerate(query.keys[: len(query.arms)]):
            distinct = list(dict.fromkeys(texts[place] for texts, _ in rows))
            check_arms(key.name, len(distinct))
            factor, into = place_arms([key.level(text) for text in distinct], query.plan.experiment(key.name))
            places[key.name] = Places(factor, dict(zip(distinct, into, strict=True)))
        rows = [row for row, there in zip(rows, _in_group(answer, places, group), strict=True) if there]
    if not rows:
        raise NobodyError
    used = covariates_about(query.plan, group)
    for place, key in enumerate(query.keys):
        if key.name in used:
            places[key.name] = _levels(key, [texts[place] for texts, _ in rows], answer)
    return places


def _in_group(answer: QueryAnswer, arms: Mapping[str, Places], group: Population) -> NDArray[np.bool_]:
    """Return which signatures are of people in at least one of some experiments."""
    keys = answer.query.keys
    rows = answer.of("signatures", keys).rows
    if len(group) == len(answer.query.arms):
        return np.ones(len(rows), dtype=bool)
    axes = [(place, arms[key.name].into) for place, key in enumerate(keys) if key.name in group]
    return np.array([any(into[texts[place]] != DROPPED for place, into in axes) for texts, _ in rows], dtype=bool)


def _levels(key: Key, texts: Iterable[Text], answer: QueryAnswer) -> Places:
    distinct = list(dict.fromkeys(texts))
    if key.bins is not None and key.name in answer.query.plan.binned_metrics:
        factor, places = key.bins.outcome((int(text) for text in distinct if text), missing=None in distinct)
        return Places(factor, {None: len(factor.levels) - 1} | {str(bin_): place for bin_, place in places.items()})
    if key.bins is not None:
        return _binned(answer, key, missing=None in distinct)
    levels = [key.level(text) for text in distinct]
    declared = answer.query.declared_levels[key.name]
    if declared.levels is None:
        check_days(key.name, levels)
        check_levels(key.name, len(set(levels)), answer.query.plan)
    factor, into = place_levels(levels, declared)
    return Places(factor, dict(zip(distinct, into, strict=True)))


def _binned(answer: QueryAnswer, key: Key, *, missing: bool) -> Places:
    """Score the bins of a covariate by their exact means over everybody."""
    place, binned = next((place, each) for place, each in enumerate(answer.query.binned) if each.key == key)
    bins = key.bins
    assert bins is not None
    people, sums = [0] * len(bins.labels), [0] * len(bins.labels)
    rows = answer.of("bins", (key,))
    for ((text,), there), (_, total) in zip(rows.column("n"), rows.column(f"x{place}s"), strict=True):
        if text is not None:
            people[int(text)] += there
            sums[int(text)] += total
    factor = bins.factor(people, sums, binned.scale, missing=missing)
    filled = [str(number) for number, count in enumerate(people) if count]
    into: dict[Text, int] = {text: position for position, text in enumerate(filled)}
    return Places(factor, into | {None: len(factor.levels) - 1})


def parse_int(text: Text) -> int:
    """Return a whole number of any size from its text; 0 for nothing."""
    if not text:
        return 0
    whole, point, digits = text.partition(".")
    return int(whole if point and not digits.strip("0") else text)


# ── tallies ────────────────────────────────────────────────────────────────────────────────────


def build_tally(answer: QueryAnswer, linkage: Linkage, places: Mapping[str, Places]) -> Tally:
    """Return the table of a linkage; raise `SourceError` where it has too many classes."""
    query = answer.query
    keys = query.axes(linkage)
    axes = [places[key.name] for key in keys]
    factors = tuple(axis.factor for axis in axes)
    shape = tuple(len(factor.levels) for factor in factors)
    check_classes(linkage.name, shape)
    rows = answer.of("classes", keys, linkage.experiments)
    people = _fill(axes, rows, "n")
    moments = []
    for measure in query.measures_of(linkage):
        counts, sums = (_fill(axes, rows, f"{word}{measure.place}") for word in "cs")
        squares = {} if measure.products is None else _squares(answer, linkage, measure, places, (counts, sums))
        moments.append(Moments(measure.metric, counts if measure.leaves_out else people, sums, squares))
    by_place = {measure.place: part for measure, part in zip(query.measures_of(linkage), moments, strict=True)}
    crosses = [
        _cross(answer, linkage, places[name], (place, cross), [by_place[number] for number in cross.pair])
        for place, cross in query.crosses_of(query.measures_of(linkage))
        for name in linkage.experiments
    ]
    return Tally(factors, people, tuple(moments), tuple(crosses))


def _fill(axes: Sequence[Places], rows: AnswerRows, name: str) -> Cells:
    cells = zeros(tuple(len(axis.factor.levels) for axis in axes))
    for texts, value in rows.column(name):
        spot = tuple(axis.into[text] for axis, text in zip(axes, texts, strict=True))
        if DROPPED not in spot:
            cells[spot] += value
    return cells


def _squares(
    answer: QueryAnswer, linkage: Linkage, measure: Measure, places: Mapping[str, Places], totals: tuple[Cells, Cells]
) -> dict[By, Cells]:
    """Return Σ r² about 0 of every class, or on every marginal that the plan needs."""
    keys = answer.query.axes(linkage)
    names = tuple(key.name for key in keys)
    wanted = answer.query.plan.squares_of(linkage, measure.name)
    if wanted == "class":
        rows = answer.of("classes", keys, linkage.experiments)
        return {names: _about_zero(measure, rows, [places[name] for name in names], *totals)}
    squares: dict[By, Cells] = {}
    for key in keys:
        if key.name in linkage.experiments or wanted == "marginals":
            part = "arms" if key.name in linkage.experiments else "levels"
            counts, sums = (marginal(cells, names, (key.name,)) for cells in totals)
            rows = answer.of(part, (key,), linkage.experiments)
            squares[(key.name,)] = _about_zero(measure, rows, [places[key.name]], counts, sums)
    return squares


def _about_zero(measure: Measure, rows: AnswerRows, axes: Sequence[Places], counts: Cells, sums: Cells) -> Cells:
    products = measure.products
    assert products is not None
    partial = [_fill(axes, rows, name) for name in measure.square_names]
    cells = zeros(counts.shape)
    for spot in np.ndindex(counts.shape):
        cells[spot] = products.total(tuple(part.item(spot) for part in partial), counts.item(spot), sums.item(spot))
    return cells


def _cross(
    answer: QueryAnswer, linkage: Linkage, arms: Places, placed: tuple[int, CrossSum], parts: Sequence[Moments]
) -> Cross:
    place, cross = placed
    name = arms.factor.name
    rows = answer.of("arms", (answer.query.arms[name],), linkage.experiments)

    def added(word: str, weights: Sequence[int]) -> Cells:
        return np.asarray(sum(_fill([arms], rows, f"z{place}_{word}{term}") * w for term, w in enumerate(weights)))

    pair = parts[0].metric.name, parts[1].metric.name
    yy, zz, yz = (products.weights for products in cross.products)
    if cross.shared:
        axes, by = linkage.axes, (name,)
        first, second = parts
        sums = marginal(first.sums, axes, by), marginal(second.sums, axes, by)
        squares = np.asarray(first.squares_by(by, axes)), np.asarray(second.squares_by(by, axes))
        return Cross(pair, by, marginal(first.counts, axes, by), sums, squares, added("yz", yz))
    n, y, z = (_fill([arms], rows, f"z{place}_{word}") for word in "nyz")
    return Cross(pair, (name,), n, (y, z), (added("yy", yy), added("zz", zz)), added("yz", yz))


# ── each plan's own count, out of a joint one ──────────────────────────────────────────────────


def split_off(counted: Counted, view: View) -> Counted:
    """Return a plan's own count, under its own names, out of everything that is about its people."""
    if counted.plan is view.plan:
        return counted
    linkages = view.plan.linkages
    tallies = {
        linkage.name: _own_table(counted.tallies[view.table(linkage).name], linkage, view) for linkage in linkages
    }
    grids = {metric.name: metric for tally in tallies.values() for metric in tally.metrics}
    return replace(
        counted,
        plan=view.plan,
        tallies=tallies,
        bounds_declared=all(metric.declared or grids[metric.name].binary for metric in view.plan.counted_metrics),
        clamped=_renamed(counted.clamped, view.metrics),
        missing=_renamed(counted.missing, view.metrics),
        ranges=_renamed(counted.ranges, view.metrics),
    )


def _renamed(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return values under the plan's own names instead of the joint ones."""
    return {name: values[joint] for name, joint in names.items() if joint in values}


def _own_table(joint: Tally, linkage: Linkage, view: View) -> Tally:
    """Return a table of a plan: its own names, metrics, squares and products."""
    names = dict(zip(joint.axes, linkage.axes, strict=True))
    metrics = {metric.name: view.metrics[metric.name] for metric in view.plan.metrics_of(linkage)}
    moments = [_own_moments(joint.moments_of(other), name, linkage, view, names) for name, other in metrics.items()]
    return Tally(
        tuple(replace(factor, name=names[factor.name]) for factor in joint.factors),
        joint.people,
        tuple(moments),
        tuple(
            _own_cross(joint, pair, (metrics[pair[0]], metrics[pair[1]]), joint_arm, names[joint_arm])
            for pair in view.plan.products_of(linkage)
            for joint_arm in joint.axes[: len(linkage.experiments)]
        ),
    )


def _own_moments(joint: Moments, metric: str, linkage: Linkage, view: View, names: Mapping[str, str]) -> Moments:
    by_arm = view.plan.squares_of(linkage, metric) == "arm"
    squares: dict[By, Any] = {}
    for by, cells in joint.squares.items():
        marginal = tuple(names[name] for name in by)
        if not by_arm or marginal != (linkage.covariate,):
            squares[marginal] = cells
    return Moments(replace(joint.metric, name=metric), joint.counts, joint.sums, squares)


def _own_cross(joint: Tally, pair: tuple[str, str], joint_pair: tuple[str, str], by: str, arm: str) -> Cross:
    """Return the products of a pair in the plan's order, whichever the joint plan has."""
    if any(cross.pair == joint_pair for cross in joint.crosses):
        return replace(joint.cross(*joint_pair, by=(by,)), pair=pair, by=(arm,))
    cross = joint.cross(joint_pair[1], joint_pair[0], by=(by,))
    return replace(cross, pair=pair, by=(arm,), sums=cross.sums[::-1], squares=cross.squares[::-1])


# ── signatures ─────────────────────────────────────────────────────────────────────────────────


def membership_of(answer: QueryAnswer, view: View, places: Mapping[str, Places]) -> Membership:
    """Return the classes of every signature in the tables of a plan, and whether its people have a value.

    Also the numbers that weigh sums, and who has 1 of metrics that multiply others.
    """
    query = answer.query
    signatures = answer.of("signatures", query.keys)
    spots = {
        key.name: np.array([into.get(texts[place], DROPPED) for texts, _ in signatures.rows], dtype=np.int64)
        for place, key in enumerate(query.keys)
        for into in ([places[key.name].into] if key.name in places else [])
    }
    there = _in_group(answer, places, view.population)
    cells, sizes, present, cut = {}, {}, {}, {}
    for linkage in view.plan.linkages:
        keys = query.axes(view.table(linkage))
        shape = [len(places[key.name].factor.levels) for key in keys]
        cells[linkage.name], sizes[linkage.name] = _cells([spots[key.name] for key in keys], shape), math.prod(shape)
    multiplying = {name for pair in view.plan.products for name in pair}
    for name, joint in view.metrics.items():
        measure = query.measure(joint)
        if measure.leaves_out:
            present[name] = there & (signatures.array(f"p{measure.place}") > 0)
        if measure in query.cutting and name in multiplying:
            cut[name] = there & (signatures.array(f"b{measure.place}") > 0)
    if not query.for_release:
        return Membership(cells, sizes, present)
    return Membership(cells, sizes, present, numbers=_numbers(answer, view, there), cut=cut)


def with_values(
    member: Membership, answer: QueryAnswer, view: View, places: Mapping[str, Places], counted: Counted
) -> Membership:
    """Return how far everybody is off the commonest values of a plan's metrics, and what relations leave of them."""
    query = answer.query
    signatures = answer.of("signatures", query.keys)
    there = _in_group(answer, places, view.population)
    values = {}
    for name, joint in view.metrics.items():
        measure = query.measure(joint)
        ends = measure.metric.grid_bounds or counted.ranges[joint]
        sensitive = view.plan.metrics_by_name[name].sensitive != "no"
        if sensitive or not counts_things(measure.metric, *ends):
            values[name] = among(_values_off(signatures, measure), there)
    left = {}
    for place, relation in enumerate(query.relations):
        numbers, squares, largest, fourth = (signatures.floats(f"r{place}{word}") for word in LEFT)
        off = numbers.astype(np.int64)
        known = SignatureValues(0, off, squares, largest, bound_second(off, largest, fourth))
        left[_own_names(relation, view, query)] = among(known, there)
    return member._replace(values=values, left=left)


def _own_names(relation: Relation, view: View, query: CountQuery) -> Relation:
    """Return a relation in the names of a plan; metrics of other plans keep those of their columns."""
    own = {joint: name for name, joint in view.metrics.items()}
    names = {name: own.get(name, column_of(query.plan, name)) for name in relation.metrics}
    return replace(
        relation,
        target=names[relation.target],
        weights=tuple((names[name], weight) for name, weight in relation.weights),
    )


def _values_off(rows: AnswerRows, measure: Measure) -> SignatureValues:
    """Return how far the people of every signature are off the commonest value of a metric."""
    commonest = measure.commonest
    if measure.metric.binary:
        sums = rows.array(f"s{measure.place}")
        off = rows.array(f"c{measure.place}") - sums if commonest else sums
        some = off.astype(np.float64)
        return SignatureValues(commonest, off, some, np.minimum(some, 1), np.minimum(np.maximum(some - 1, 0), 1))
    people = rows.array(f"c{measure.place}" if measure.leaves_out else "n", object)
    sums = rows.array(f"s{measure.place}", object)
    squares = (_square_sums(rows, measure) - 2 * commonest * sums + commonest**2 * people).astype(np.float64)
    off, largest = rows.array(f"o{measure.place}"), rows.floats(f"m{measure.place}")
    second = bound_second(off, largest, rows.floats(f"f{measure.place}"))
    return SignatureValues(commonest, off, squares, largest, second)


def other_than_truths(answer: QueryAnswer) -> frozenset[str]:
    """Return the metrics that multiply others and seemed to be 0 or 1 for everybody, but are not."""
    rows = answer.of("signatures", answer.query.keys)
    seeming = (measure for measure in answer.query.cutting if not measure.metric.binary)
    return frozenset(measure.name for measure in seeming if not _holds_truths(rows, measure))


def _holds_truths(rows: AnswerRows, measure: Measure) -> bool:
    """Return whether a metric is 0 or 1 for everybody.

    Σ y² = Σ y proves it for whole numbers. Those between 0 and 1 lie elsewhere than one step of 1 off the commonest.
    """
    scale = measure.metric.scale
    sums = rows.array(f"s{measure.place}", object)
    if np.any(_square_sums(rows, measure) != scale * sums):
        return False
    values = _values_off(rows, measure) if measure.asked else None
    if values is None or scale == 1:
        return scale == 1
    return bool(np.all(values.squares == values.off * float(scale) ** 2)) and values.largest.max(initial=0) <= scale


def _numbers(answer: QueryAnswer, view: View, there: NDArray[np.bool_]) -> NumbersInGroups | None:
    """Return the metrics of a plan that weigh others, by signature; 0 for people whom it is not about."""
    query = answer.query
    names = tuple(name for name in view.plan.weights if view.metrics[name] not in query.cut)
    if not names:
        return None
    rows = answer.of("signatures", query.keys)
    measures = [query.measure(view.metrics[name]) for name in names]

    def columns_of(names_of: Iterable[str]) -> NDArray[np.float64]:
        return np.stack([rows.array(name, np.float64) for name in names_of], axis=1)

    low, high = columns_of(f"l{each.place}" for each in measures), columns_of(f"h{each.place}" for each in measures)
    sums, has = (columns_of(f"{word}{each.place}" for each in measures) for word in "sc")
    everybody = has == rows.array("n")[:, None]
    low, high = np.where(everybody, low, np.minimum(low, 0)), np.where(everybody, high, np.maximum(high, 0))
    products = np.zeros((len(there), len(names), len(names)))
    for place, measure in enumerate(measures):
        products[:, place, place] = _square_sums(rows, measure)
    columns = {measure.place: column for column, measure in enumerate(measures)}
    for place, cross in query.crosses_of(query.numbers):
        if columns.keys() >= {*cross.pair}:
            first, second = (columns[number] for number in cross.pair)
            parts = [rows.array(f"z{place}_yz{t}", object) * w for t, w in enumerate(cross.products[2].weights)]
            products[:, first, second] = products[:, second, first] = np.sum(parts, axis=0).astype(np.float64)
    for pair in query.other_products:
        if columns.keys() >= {each.place for each in pair}:
            first, second = (columns[each.place] for each in pair)
            products[:, first, second] = products[:, second, first] = rows.floats(f"w{pair[0].place}_{pair[1].place}")
    low, high, sums, products = (np.compress(there, each, axis=0) for each in (low, high, sums, products))
    return NumbersInGroups(names, low, high, sums, products).among(there)


def _square_sums(rows: AnswerRows, measure: Measure) -> NDArray[Any]:
    """Return Σ r² about 0 of every signature, as whole numbers of any size; that of 0/1 is its sum."""
    if measure.products is None:
        return rows.array(f"s{measure.place}", object)
    terms = [rows.array(name, object) for name in measure.square_names]
    counts, sums = (rows.array(f"{word}{measure.place}", object) for word in "cs")
    totals = map(measure.products.total, zip(*terms, strict=True), counts, sums)
    return np.array([*totals, None], dtype=object)[:-1]


def _cells(spots: Sequence[NDArray[np.int64]], shape: Sequence[int]) -> NDArray[np.int64]:
    cell = np.zeros(len(spots[0]), dtype=np.int64)
    absent = np.zeros(len(spots[0]), dtype=bool)
    for spot, size in zip(spots, shape, strict=True):
        cell = cell * size + spot
        absent |= spot == DROPPED
    return np.where(absent, DROPPED, cell)


# ── the shape of metrics: doubles, about the commonest value of a sample; shapes are published in half octaves ──


def shapes_of_answer(
    answer: QueryAnswer, view: View, counted: Counted, places: Mapping[str, Places]
) -> dict[str, dict[str, CountedShape]]:
    """Return the shapes of a plan's amounts and ratios, by experiment, but for those that doubles cannot tell."""
    shapes: dict[str, dict[str, CountedShape]] = {}
    for experiment in view.plan.experiment_names:
        by_arm = _arm_reader(answer, view.experiments[experiment], places)
        shapes[experiment] = {}
        for linkage in view.plan.linkages_of(experiment):
            if not linkage.people_only:
                table = counted.tallies[linkage.name].keep()
                shapes[experiment] |= _amount_shapes(answer, view, table, by_arm)
                shapes[experiment] |= _ratio_shapes(answer, view, table, by_arm)
    return shapes


def _arm_reader(answer: QueryAnswer, experiment: str, places: Mapping[str, Places]) -> ByArm:
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


def _amount_shapes(answer: QueryAnswer, view: View, table: Tally, by_arm: ByArm) -> dict[str, CountedShape]:
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
            cubes = by_arm(f"k{measure.place}") - 3 * mean * second + 2 * _floats(n) * mean**3
            if not away.any() or second.sum() <= FARTHEST**2 * away.sum():
                off = int(by_arm(f"o{measure.place}").sum())
                shapes[moments.metric.name] = CountedShape(_skewness(away, cubes, n), off, int(n.sum()))
    return shapes


def _ratio_shapes(answer: QueryAnswer, view: View, table: Tally, by_arm: ByArm) -> dict[str, CountedShape]:
    """Return the shapes of ratios: of y − R z, with the R of each arm."""
    shapes = {}
    placed = {cross.pair: place for place, cross in answer.query.ratio_crosses}
    for pair in view.plan.ratios:
        cross = table.cross(*pair)
        y, z = (answer.query.measure(view.metrics[name]) for name in pair)
        turned = (y.place, z.place) not in placed  # another plan has the pair the other way round
        place = placed[z.place, y.place] if turned else placed[y.place, z.place]
        yyy, yyz, yzz, zzz = (by_arm(f"z{place}_{word}") for word in (THIRD[::-1] if turned else THIRD))
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
