"""Write the one statement: people grouped by all arms and levels, and every table added up from that.

The first stage holds one row per signature, with counts, sums and squares. The second is a list of
parts over it, in one pass: signatures with their people and what the rules for amounts ask of
them, classes with their sums, and squares on marginals only. So the source is read once, and what is
not published of a signature goes no further than the process that counts.
"""

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from itertools import combinations
from typing import Any

import ibis
from sqlglot import exp

from kanab.counted import Relation
from kanab.counting.engine.dialects import Engine
from kanab.counting.engine.group_keys import Key, Kind, as_values, in_experiment
from kanab.counting.engine.measures import Measure, as_number, fourth_powers, grid_steps, product_terms
from kanab.counting.grids import Products
from kanab.plan.joint_plan import Population, populations, tables_about, views_of
from kanab.plan.model import CovariatePlan, Linkage, Plan
from kanab.tally.factor import Level

_STAGE = "kanab_signatures"
Arms = tuple[tuple[str, Key, tuple[Level, ...] | None], ...]
"""Of every experiment its name, the key of its arms, and the declared ones, if any, as values of the column."""

_AGGREGATES = {"SUM": exp.Sum, "ADD": exp.Sum, "MIN": exp.Min, "MAX": exp.Max, "BOOL_AND": exp.LogicalAnd}


@dataclass(frozen=True)
class CrossSum:
    """A pair of metrics whose products are added: their places, and how yy, zz and yz are added.

    ``shared``: everybody has both, so that all but the products is counted with the metrics themselves.
    """

    pair: tuple[int, int]
    products: tuple[Products, Products, Products]
    shared: bool = False


@dataclass(frozen=True)
class BinnedCovariate:
    """A covariate in bins, whose mean in each is wanted: its key and its grid."""

    key: Key
    scale: int


@dataclass(frozen=True)
class CountQuery:
    """Everything that the statement counts.

    ``flags`` are columns of true/false that are counted over everybody, ``declared_levels`` the
    covariates' levels as far as they are known beforehand, ``kinds`` what the metrics' columns hold, ``gaps``
    the metrics that some people are known to lack, ``cut`` those that multiply others and seem to be 0 or 1, unless
    they are known to hold ``other_values``, ``relations`` what a sample shows to follow from other metrics. Without
    ``for_release`` nothing is counted that only the gate asks for.
    """

    plan: Plan
    engine: Engine
    arms: Mapping[str, Key]
    levels: Mapping[str, Key]
    measures: tuple[Measure, ...]
    crosses: tuple[CrossSum, ...] = ()
    binned: tuple[BinnedCovariate, ...] = ()
    flags: tuple[str, ...] = ()
    declared_levels: Mapping[str, CovariatePlan] = field(default_factory=dict)
    gaps: frozenset[str] = frozenset()
    other_values: frozenset[str] = frozenset()
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    cut: frozenset[str] = frozenset()
    relations: tuple[Relation, ...] = ()
    for_release: bool = True

    @property
    def keys(self) -> tuple[Key, ...]:
        """All columns to group by."""
        return (*self.arms.values(), *self.levels.values())

    def axes(self, linkage: Linkage) -> tuple[Key, ...]:
        """Return the keys of a table."""
        arms = [self.arms[name] for name in linkage.experiments]
        return (*arms, *([self.levels[linkage.covariate]] if linkage.covariate else []))

    def measure(self, name: str) -> Measure:
        """Return a metric by its name."""
        return next(measure for measure in self.measures if measure.name == name)

    def measures_of(self, *linkages: Linkage) -> tuple[Measure, ...]:
        """Return the metrics that any of some tables holds."""
        holding = tables_about(self.plan)
        wanted = set[str]().union(*(holding[linkage.name] for linkage in linkages))
        return tuple(measure for measure in self.measures if measure.name in wanted)

    def crosses_of(self, measures: Iterable[Measure]) -> tuple[tuple[int, CrossSum], ...]:
        """Return the products of two of some metrics, and their places."""
        wanted = {measure.place for measure in measures}
        return tuple((place, cross) for place, cross in enumerate(self.crosses) if wanted.issuperset(cross.pair))

    @property
    def numbers(self) -> tuple[Measure, ...]:
        """The metrics that weigh sums of others, but for those that seem to be 0 or 1."""
        weights = {*self.plan.weights} - self.cut
        return tuple(measure for measure in self.measures if measure.name in weights)

    @property
    def other_products(self) -> tuple[tuple[Measure, Measure], ...]:
        """The pairs of such metrics whose products are not published: rounded sums of them are enough."""
        known = {frozenset(cross.pair) for cross in self.crosses}
        pairs = combinations(self.numbers, 2)
        return tuple(pair for pair in pairs if frozenset(each.place for each in pair) not in known)

    @property
    def ratio_crosses(self) -> tuple[tuple[int, CrossSum], ...]:
        """The products of the two parts of each ratio of the plan that is asked for, and their places."""
        view = views_of(self.plan)[0]
        ratios = {frozenset(view.metrics[name] for name in pair) for pair in view.plan.ratios}
        names = {measure.place: measure.name for measure in self.measures}
        of_pair = ((place, cross, {names[part] for part in cross.pair}) for place, cross in enumerate(self.crosses))
        return tuple((place, cross) for place, cross, pair in of_pair if pair in ratios)

    @property
    def cutting(self) -> tuple[Measure, ...]:
        """The metrics that multiply others and seem to be 0 or 1."""
        return tuple(measure for measure in self.measures if measure.name in self.cut)

    def anywhere(self, people: Any, experiments: Iterable[str] = ()) -> Any:
        """Return who of the source is in any of some, or of all experiments: their arm is there, and is declared."""
        keys = [self.arms[name] for name in experiments or self.arms]
        arms = (in_experiment(key.expression(people), key.kind, self.plan.experiment(key.name).arms) for key in keys)
        return reduce(operator.or_, arms)


# ── the first stage ────────────────────────────────────────────────────────────────────────────


def first_stage(people: Any, query: CountQuery) -> Any:
    """Group people into a row per signature: their number, and for every metric counts, sums and squares."""
    table = _with_values(people, query)
    sums = {"n": table.count()}
    for measure in query.measures:
        sums |= _metric_sums(table, measure, query)
    sums |= _proofs(table, query)
    for place, cross in enumerate(query.crosses):
        sums |= _cross_sums(table, place, cross, query)
    for place, cross in query.ratio_crosses:
        sums |= _third_powers(table, place, cross, query)
    sums |= _number_ranges(table, query) if query.for_release else {}
    for place in range(len(query.relations)):
        left = table[f"r{place}"]
        added = (left > 0).cast("int32").sum(), (left * left).sum(), left.max(), fourth_powers(left)
        sums |= {f"r{place}{word}": number for word, number in zip(LEFT, added, strict=True)}
    for place in range(len(query.binned)):
        sums[f"x{place}s"] = query.engine.total(table[f"x{place}"])
    for flag in query.flags:
        sums[flag] = table[flag].sum()
    return table.group_by([*(key.column for key in query.keys), *_presence(query)]).aggregate(**sums)


def _with_values(people: Any, query: CountQuery) -> Any:
    """Select people's keys, and what is added up of them: the steps of metrics, and what follows from these."""
    inside = query.anywhere(people)
    columns = {key.column: key.expression(people) for key in query.keys}
    for measure in query.measures:
        value = measure.value(people, inside)
        columns[f"y{measure.place}"] = value
        if not measure.as_is:
            columns[f"d{measure.place}"] = measure.steps(value)
        if measure.leaves_out:
            columns[f"p{measure.place}"] = (inside & value.notnull()).cast("int32")
    for place, binned in enumerate(query.binned):
        number = as_number(people[binned.key.name], binned.key.kind, careful=True).cast("float64")
        number = ibis.ifelse(inside, number, ibis.null("float64"))
        columns[f"x{place}"] = grid_steps(number, binned.scale).cast("int64")
    for flag in query.flags:
        columns[flag] = people[flag].cast("int32").cast("int64")
    table = people.select(**columns)
    careful = {measure.place: measure for measure in query.measures if measure.careful}
    if careful:
        table = table.mutate(**{f"g{place}": measure.clamped(table[f"d{place}"]) for place, measure in careful.items()})
    having = {f"b{each.place}": (_present(table, each) != 0).fill_null(False) for each in query.cutting}
    left = {f"r{place}": _left(table, relation, query) for place, relation in enumerate(query.relations)}
    more = {name: has.cast("int32") for name, has in having.items()} | left
    return table.mutate(**more) if more else table


def _proofs(table: Any, query: CountQuery) -> dict[str, Any]:
    """Return what must hold for the form of the query to be enough: of everybody's values, and of sums of doubles."""
    steps = {measure: _steps(table, measure) for measure in query.measures}
    each = [
        proof
        for measure in query.measures
        if not measure.careful
        for proof in measure.proofs(table[f"y{measure.place}"], steps[measure])
    ]
    proofs = {
        "ok": [reduce(operator.and_, each).all()] if each else [],
        "exact": [proof for measure in query.measures for proof in measure.exact(steps[measure])],
    }
    return {name: reduce(operator.and_, conditions) for name, conditions in proofs.items() if conditions}


def _presence(query: CountQuery) -> tuple[str, ...]:
    """Return the columns that split signatures: who has a value of metrics that leave others out, who has 1 of some."""
    present = [f"p{measure.place}" for measure in query.measures if measure.leaves_out]
    return (*present, *(f"b{measure.place}" for measure in query.cutting))


def _for_rules(query: CountQuery) -> Iterator[str]:
    """Yield the columns that rules ask of signatures: how far people are off the commonest values; of metrics that
    weigh others range, sums and products.
    """
    for measure in query.cutting:  # to see that they are 0 or 1
        yield from measure.sum_names
    for measure in query.measures:
        yield from measure.off_names
    for place in range(len(query.relations)):
        yield from (f"r{place}{word}" for word in LEFT)
    for measure in query.numbers:
        yield from (f"l{measure.place}", f"h{measure.place}", *measure.sum_names)
    for place, cross in query.crosses_of(query.numbers):
        yield from (f"z{place}_yz{term}" for term in range(len(cross.products[2].weights)))
    yield from (f"w{first.place}_{second.place}" for first, second in query.other_products)


def _steps(table: Any, measure: Measure) -> Any:
    """Return unclamped steps: a column of their own, or the metric's own integers."""
    return table[f"y{measure.place}" if measure.as_is else f"d{measure.place}"]


def _metric_sums(table: Any, measure: Measure, query: CountQuery) -> dict[str, Any]:
    place, engine = measure.place, query.engine
    value, raw = table[f"y{place}"], _steps(table, measure)
    steps = table[f"g{place}"] if measure.careful else raw
    sums = {f"c{place}": value.count(), **measure.sums(steps, engine), **measure.values_off(steps)}
    return sums | {f"{word}{place}": check for word, check in measure.checks(value, raw).items()}


def _cross_sums(table: Any, place: int, cross: CrossSum, query: CountQuery) -> dict[str, Any]:
    """Add over the people who have both values; a missing one that means 0 is a value."""
    measures = [query.measures[place] for place in cross.pair]
    first, second = (_present(table, measure, gaps=cross.shared) for measure in measures)  # nothing adds nothing
    total = query.engine.total
    if cross.shared and all(measure.doubles for measure in measures):  # at most half of Σ y² + Σ z², which are proven
        product = (first.cast("float64") * second.cast("float64")).sum()
        return {f"z{place}_yz0": product.cast("int64")}
    if cross.shared:
        terms = product_terms(first, second, cross.products[2])
        return {f"z{place}_yz{part}": total(term) for part, term in enumerate(terms)}
    both = first.notnull() & second.notnull()
    y, z = (ibis.ifelse(both, steps.cast("int64"), ibis.null("int64")) for steps in (first, second))
    sums = {f"z{place}_n": both.cast("int32").sum(), f"z{place}_y": total(y), f"z{place}_z": total(z)}
    for word, (a, b), products in zip(("yy", "zz", "yz"), ((y, y), (z, z), (y, z)), cross.products, strict=True):
        for part, term in enumerate(product_terms(a, b, products)):
            sums[f"z{place}_{word}{part}"] = total(term)
    return sums


def _third_powers(table: Any, place: int, cross: CrossSum, query: CountQuery) -> dict[str, Any]:
    """Return, over the people who have both values, sums of all products of three, and who is off either commonest."""
    measures = [query.measures[place] for place in cross.pair]
    steps = [_present(table, measure) for measure in measures]
    both = steps[0].notnull() & steps[1].notnull()
    off = {
        f"z{place}_off{part}": (both & (each != measure.commonest)).cast("int32").sum()
        for part, (each, measure) in enumerate(zip(steps, measures, strict=True))
    }
    y, z = (ibis.ifelse(both, each, ibis.null(each.type())).cast("float64") for each in steps)
    powers = zip(THIRD, (y * y * y, y * y * z, y * z * z, z * z * z), strict=True)
    return off | {f"z{place}_{word}": power.sum() for word, power in powers}


THIRD = ("yyy", "yyz", "yzz", "zzz")
"""The products of three of the parts of a ratio."""


def _left(table: Any, relation: Relation, query: CountQuery) -> Any:
    """Return what a relation leaves of everybody's amount, in units; 0 within the rounding of the grids."""

    def units(name: str) -> Any:
        measure = query.measure(name)
        return _present(table, measure).fill_null(0).cast("float64") / float(measure.metric.scale)

    left = units(relation.target)
    for name, weight in relation.weights:
        left = left - units(name) * weight
    return ibis.ifelse(left.abs() <= relation.slack * (1 + 1e-9), 0.0, left.abs())


LEFT = "oqmf"
"""What is counted of what a relation leaves: people, squares, the largest, and fourth powers."""


def _number_ranges(table: Any, query: CountQuery) -> dict[str, Any]:
    """Return the smallest and the largest step of metrics that weigh others, and products that nobody publishes."""
    ranges: dict[str, Any] = {}
    for measure in query.numbers:
        steps = _present(table, measure, gaps=True)
        ranges[f"l{measure.place}"] = measure.smallest(steps)
        ranges[f"h{measure.place}"] = measure.largest(steps)
    for first, second in query.other_products:
        parts = (_present(table, each).cast("float64") for each in (first, second))
        ranges[f"w{first.place}_{second.place}"] = operator.mul(*parts).sum()
    return ranges


def _present(table: Any, measure: Measure, *, gaps: bool = False) -> Any:
    steps = table[f"g{measure.place}"] if measure.careful else _steps(table, measure)
    return steps if measure.leaves_out or gaps else steps.fill_null(0)


# ── the second stage ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class QueryPart:
    """Some rows of the answer: the sets of keys they are grouped by, their people, and their numbers.

    ``experiments`` are those that all of these people are in; where there are none, they are in at
    least one of ``group``, or of all.
    """

    name: str
    sets: tuple[tuple[Key, ...], ...]
    values: tuple[tuple[str, str], ...]
    experiments: tuple[str, ...] = ()
    outside: bool = False
    group: Population = ()

    @property
    def keys(self) -> tuple[Key, ...]:
        """All keys of all sets."""
        return tuple(dict.fromkeys(key for keys in self.sets for key in keys))


def query_parts(stage: Any, query: CountQuery) -> tuple[QueryPart, ...]:
    """Return the parts of everything that leaves the engine."""
    flags = tuple((flag, "SUM") for flag in query.flags)
    of_signatures = dict.fromkeys(("n", *_presence(query), *(_for_rules(query) if query.for_release else ())))
    parts = [
        QueryPart("signatures", (query.keys,), tuple((name, "MAX") for name in of_signatures)),
        QueryPart("inside", ((),), (("n", "SUM"), *flags, *_check_values(stage, query))),
        QueryPart("outside", ((),), (("n", "SUM"), *flags), outside=True),
    ]
    groups = populations(query.plan)
    for place, group in enumerate(groups if len(groups) > 1 else ()):
        values = (("n", "SUM"), *_check_values(stage, query))
        parts.append(QueryPart(f"inside{place}", ((),), values, group=group))
    if query.binned:
        sums = tuple((f"x{place}s", "SUM") for place in range(len(query.binned)))
        parts.append(QueryPart("bins", tuple((binned.key,) for binned in query.binned), (("n", "SUM"), *sums)))
    for experiments in dict.fromkeys(linkage.experiments for linkage in query.plan.linkages):
        parts += _table_parts(stage, query, experiments)
    return tuple(parts)


def _table_parts(stage: Any, query: CountQuery, experiments: tuple[str, ...]) -> Iterator[QueryPart]:
    """Yield the parts of all tables of the same experiments, which are about the same people."""
    linkages = [linkage for linkage in query.plan.linkages if linkage.experiments == experiments]
    measures = query.measures_of(*linkages)
    by_class, by_marginal = _square_names(query, measures)
    products = tuple(f"z{place}_" for place, _ in query.crosses_of(measures))
    third = tuple(f"_{word}" for word in THIRD)
    crosses = [(name, "ADD" if name.endswith(third) else "SUM") for name in stage.columns if name.startswith(products)]
    if len(experiments) == 1:
        crosses += [(f"o{measure.place}", "SUM") for measure in measures if not measure.metric.binary]
        crosses += [(f"k{measure.place}", "ADD") for measure in measures if not measure.metric.binary]
    segmented = [linkage for linkage in linkages if linkage.squares == "marginals" and linkage.covariate]
    classes = tuple(query.axes(linkage) for linkage in linkages)
    counts = ((f"{word}{measure.place}", "SUM") for measure in measures for word in "cs")
    yield QueryPart("classes", classes, (("n", "SUM"), *counts, *by_class), experiments)
    if by_marginal or crosses:
        arms = tuple((query.arms[name],) for name in experiments)
        yield QueryPart("arms", arms, (*by_marginal, *crosses), experiments)
    by_level = _square_names(query, [measure for measure in measures if measure.name not in query.plan.numbers])[1]
    if by_level and segmented:
        levels = tuple((query.axes(linkage)[-1],) for linkage in segmented)
        yield QueryPart("levels", levels, by_level, experiments)


def _check_values(stage: Any, query: CountQuery) -> list[tuple[str, str]]:
    checks = {"c": "SUM", "lo": "MIN", "hi": "MAX", "cl": "SUM"}
    values = [(f"{word}{measure.place}", how) for measure in query.measures for word, how in checks.items()]
    values += [(proof, "BOOL_AND") for proof in ("ok", "exact")]
    return [value for value in values if value[0] in stage.columns]


def _square_names(
    query: CountQuery, measures: Sequence[Measure]
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """Return the squares that a plan wants per class, and those that it wants on marginals."""
    by_class: list[tuple[str, str]] = []
    by_marginal: list[tuple[str, str]] = []
    for measure in measures:
        squares = by_class if measure.name in query.plan.metrics_squared_by_class else by_marginal
        squares += [(name, "SUM") for name in measure.square_names]
    return tuple(by_class), tuple(by_marginal)


def write_statement(
    first: str, parts: Sequence[QueryPart], query: CountQuery, dialect: Any, *, pretty: bool = False
) -> str:
    """Return the whole statement: the first stage as a named subquery, and one pass over it for all parts."""
    name = exp.to_identifier(_STAGE, quoted=True).sql(dialect=dialect)
    arms = []
    for experiment, key in query.arms.items():
        declared = query.plan.experiment(experiment).arms
        arms.append((experiment, key, None if declared is None else as_values(declared, key.kind)))
    second = _second_stage(
        tuple(parts), keys=query.keys, arms=tuple(arms), present=_presence(query), engine=query.engine,
        dialect=dialect, pretty=pretty,
    )  # fmt: skip
    return f"WITH {name} AS (\n{first}\n)\n{second}"


@lru_cache(maxsize=128)
def _second_stage(
    parts: tuple[QueryPart, ...], *, keys: tuple[Key, ...], arms: Arms, present: tuple[str, ...], engine: Engine,
    dialect: Any, pretty: bool,
) -> str:  # fmt: skip
    """Return the rows of all parts out of one pass: every signature next to every set of keys that it belongs to.

    Each row has the part's place, which of its sets (a bit per key not in it), and keys and numbers as texts. The
    data have no part in it, and writing it takes a fifth of a small file's time: it is written once.
    """
    sets = [(place, part, group) for place, part in enumerate(parts) for group in part.sets]
    masked = {key.column: [number for number, (_, _, group) in enumerate(sets) if key in group] for key in keys}
    masked |= {name: [0] for name in present}  # these split signatures, which are no groups of keys alone
    own = []  # of a key, nothing next to sets without it
    for name, numbers in masked.items():
        value = exp.Case(ifs=[exp.If(this=_column("number").isin(*numbers), true=_column(name))])
        own.append(exp.alias_(value, f"own_{name}", quoted=True))
    about = []
    for place, part in enumerate(parts):
        of_part = exp.EQ(this=_column("place"), expression=exp.Literal.number(place))
        about.append(exp.and_(of_part, _people(part, arms)))
    values = dict.fromkeys(name for part in parts for name, _ in part.values)
    inner = exp.Select(
        expressions=[_column("place"), _column("mask"), *own, *map(_column, values)],
        from_=exp.From(this=exp.table_(_STAGE, quoted=True)),
        joins=[exp.Join(this=_list_of(sets), kind="CROSS")],
        where=exp.Where(this=exp.or_(*about)),
    )
    groups = [_column(name) for name in ("place", "mask", *(f"own_{name}" for name in masked))]
    texts = [engine.text(_column(f"own_{key.column}")) for key in keys]
    slots = [_slot(number, parts, engine) for number in range(max(len(part.values) for part in parts))]
    # answers have names of their own, as some engines read a name as what it names here
    answers = [
        exp.alias_(column, f"answer{place}", quoted=True, copy=False)
        for place, column in enumerate([*groups[:2], *texts, *slots])
    ]
    statement = exp.Select(
        expressions=answers,
        from_=exp.From(this=inner.subquery("kanab_rows", copy=False)),
        group=exp.Group(expressions=groups),
    )
    return statement.sql(dialect=dialect, pretty=pretty, copy=False)


def _list_of(sets: Sequence[tuple[int, QueryPart, tuple[Key, ...]]]) -> Any:
    """Return a table of the sets of keys: a number, the place of the part, and a bit per key that is not in it."""
    rows = []
    for number, (place, part, keys) in enumerate(sets):
        mask = sum(1 << bit for bit, key in enumerate(part.keys) if key not in keys)
        names = ("number", "place", "mask")
        columns = [
            exp.alias_(exp.Literal.number(value), name, quoted=True)
            for name, value in zip(names, (number, place, mask), strict=True)
        ]
        rows.append(exp.Select(expressions=columns))
    return exp.union(*rows, distinct=False).subquery("kanab_sets")


def _slot(number: int, parts: Sequence[QueryPart], engine: Engine) -> Any:
    """Return the number that each part has in the same slot, as text."""
    ifs = [
        exp.If(this=exp.Literal.number(place), true=engine.text(_aggregate(name, how, engine)))
        for place, part in enumerate(parts)
        for name, how in part.values[number : number + 1]
    ]
    return exp.Case(this=_column("place"), ifs=ifs)


def _people(part: QueryPart, arms: Arms) -> Any:
    in_each = {name: _in_experiment(key, declared) for name, key, declared in arms}
    inside = [in_each[name] for name in part.experiments or part.group or in_each]
    if part.experiments:
        return exp.and_(*inside)
    anywhere = exp.or_(*inside)
    return exp.not_(exp.func("COALESCE", anywhere, exp.false())) if part.outside else anywhere


def _in_experiment(key: Key, declared: tuple[Level, ...] | None) -> Any:
    arm = _column(key.column)
    if declared is None:
        return exp.Not(this=exp.Is(this=arm, expression=exp.null()))
    return arm.isin(*map(exp.convert, declared)) if declared else exp.false()


def _column(name: str) -> exp.Column:
    return exp.column(name, quoted=True)


def _aggregate(name: str, how: str, engine: Engine) -> Any:
    if how == "SUM" and engine.sums == "words":
        return exp.Anonymous(this="kanab_sum", expressions=[_column(name)])
    return _AGGREGATES[how](this=_column(name))
