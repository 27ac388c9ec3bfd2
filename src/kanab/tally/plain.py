"""Tallies as plain data, ready for JSON: written, and read strictly with the path of every mistake."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np

from kanab.errors import KanabError, TallyError
from kanab.tally.cell_arrays import Cells, check_shape, zeros
from kanab.tally.factor import Factor, Role
from kanab.tally.metric import DOUBLE_LIMIT, Metric, Missing
from kanab.tally.moments import By, Cross, Moments

Whole = int | str
"""Integers beyond 2^53 are written as texts: many JSON readers would turn them into floats."""

Levels = list[str | int | float | bool | None]


class _TallyPart(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    pass


class FactorEntry(_TallyPart):
    """An experiment's arms or a covariate's levels."""

    name: str
    levels: Levels
    role: Role
    scores: list[float | None] | None = None


class MetricEntry(_TallyPart):
    """A metric and its grid."""

    name: str
    scale: int = 1
    bounds: tuple[float, float] | None = None
    missing: Missing = "zero"


class ClassEntry(_TallyPart):
    """One class: people, sums in steps, and counts where values may be missing."""

    levels: Levels
    people: int
    sums: dict[str, Whole] = {}
    counts: dict[str, int] = {}


class SquaresCell(_TallyPart):
    """The squares of one combination of levels."""

    levels: Levels
    squares: Whole


class SquaresEntry(_TallyPart):
    """The squares of a metric at one marginal."""

    metric: str
    by: list[str]
    cells: list[SquaresCell]


class CrossCell(_TallyPart):
    """The products of two metrics in one arm."""

    levels: Levels
    people: int
    sums: tuple[Whole, Whole]
    squares: tuple[Whole, Whole]
    products: Whole


class CrossEntry(_TallyPart):
    """The products of two metrics."""

    metrics: tuple[str, str]
    by: list[str]
    cells: list[CrossCell]


_Cell = TypeVar("_Cell", ClassEntry, SquaresCell, CrossCell)


class Document(_TallyPart):
    """The plain form of a tally: only classes that hold somebody are listed."""

    format: Literal["kanab-tally/1"]
    factors: list[FactorEntry]
    metrics: list[MetricEntry]
    classes: list[ClassEntry]
    squares: list[SquaresEntry] = []
    crosses: list[CrossEntry] = []


class Parts(NamedTuple):
    """The values that a tally is made of."""

    factors: tuple[Factor, ...]
    people: Cells
    moments: tuple[Moments, ...]
    crosses: tuple[Cross, ...]


def write(parts: Parts) -> dict[str, Any]:
    """Return the parts of a tally as JSON-ready data."""
    factors = parts.factors
    classes = [
        ClassEntry(
            _levels(factors, place),
            parts.people.item(place),
            {part.metric.name: _text(part.sums.item(place)) for part in parts.moments},
            {part.metric.name: part.counts.item(place) for part in parts.moments if part.metric.missing == "exclude"},
        )
        for place in np.ndindex(*parts.people.shape)
        if parts.people.item(place)
        or any(part.sums.item(place) or part.counts.item(place) for part in parts.moments)  # noise may leave nobody
    ]
    metrics = []
    for metric in (part.metric for part in parts.moments):
        rule: Missing = "zero" if metric.missing == "zero" else "exclude"  # msgspec leaves it out as the same object
        metrics.append(MetricEntry(metric.name, metric.scale, metric.bounds, rule))
    squares = []
    for part in parts.moments:
        for by, cells in part.squares.items():
            named, places = _named(factors, by), np.ndindex(*cells.shape)
            listed = [SquaresCell(_levels(named, place), _text(cells.item(place))) for place in places]
            squares.append(SquaresEntry(part.metric.name, list(by), listed))
    document = Document(
        "kanab-tally/1",
        [
            FactorEntry(factor.name, list(factor.levels), factor.role, list(factor.scores) if factor.scores else None)
            for factor in factors
        ],
        metrics,
        classes,
        squares,
        [CrossEntry(part.pair, list(part.by), _crosses(_named(factors, part.by), part)) for part in parts.crosses],
    )
    plain: dict[str, Any] = msgspec.to_builtins(document)
    return plain


def read(data: Any) -> Parts:
    """Read the parts of a tally from plain data."""
    try:
        document = msgspec.convert(data, Document, strict=True)
    except msgspec.ValidationError as problem:
        fact, _, path = str(problem).partition(" - at ")
        place = path.removeprefix("`key` in ").strip("`") or "$"
        fact = re.sub(r"Invalid enum value .*", "Invalid value", fact)  # msgspec quotes it: no data in an error
        raise TallyError(fact, "Give a tally as to_dict() writes it.", at=place) from None
    except UnicodeError:
        raise TallyError("a text holds half a character", "Give a tally as to_dict() writes it.", at="$") from None
    return build(document)


def build(document: Document) -> Parts:
    """Build the parts of a tally. Raises `TallyError` or `LevelError`, with the path, where the document is wrong."""
    factors = tuple(
        Factor(entry.name, tuple(entry.levels), entry.role, tuple(entry.scores) if entry.scores else None)
        for entry in document.factors
    )
    shape = _shape(factors)
    check_shape(shape)
    metrics = [Metric(entry.name, entry.scale, entry.bounds, entry.missing) for entry in document.metrics]
    people = zeros(shape)
    sums = {metric.name: zeros(shape) for metric in metrics}
    counts = {metric.name: zeros(shape) for metric in metrics}
    for place, entry, path in _placed(document.classes, factors, "classes", "$.classes"):
        people[place] = entry.people
        if entry.sums.keys() != sums.keys() or not entry.counts.keys() <= sums.keys():
            raise TallyError("a class must have one sum for every metric", "Name them all.", at=f"{path}.sums")
        for metric in metrics:
            sums[metric.name][place] = _whole(entry.sums[metric.name], f"{path}.sums")
            default = entry.people if metric.missing == "zero" else None
            count = entry.counts.get(metric.name, default)
            if count is None:
                fact = "a metric with missing='exclude' needs its own count in every class"
                raise TallyError(fact, "Add it under counts.", at=f"{path}.counts")
            counts[metric.name][place] = count
    squares = _read_squares(document.squares, factors, sums.keys())
    moments = tuple(Moments(m, counts[m.name], sums[m.name], squares.get(m.name, {})) for m in metrics)
    return Parts(factors, people, moments, tuple(_read_crosses(document.crosses, factors)))


def _read_squares(
    entries: Sequence[SquaresEntry], factors: tuple[Factor, ...], metrics: Any
) -> dict[str, dict[By, Cells]]:
    squares: dict[str, dict[By, Cells]] = {}
    for number, entry in enumerate(entries):
        path = f"$.squares[{number}]"
        if entry.metric not in metrics:
            raise TallyError("squares of an unknown metric", "Name one of the tally's metrics.", at=path)
        named = _named(factors, entry.by, path)
        cells = zeros(_shape(named))
        for place, cell, where in _placed(entry.cells, named, "squares", f"{path}.cells"):
            cells[place] = _whole(cell.squares, where)
        marginals = squares.setdefault(entry.metric, {})
        if any(set(by) == set(entry.by) for by in marginals):
            raise TallyError("the same marginal comes twice", "Give it once.", at=path)
        marginals[tuple(entry.by)] = cells
    return squares


def _read_crosses(entries: Sequence[CrossEntry], factors: tuple[Factor, ...]) -> list[Cross]:
    crosses = []
    for number, entry in enumerate(entries):
        path = f"$.crosses[{number}]"
        named = _named(factors, entry.by, path)
        counts, s1, s2, q1, q2, products = (zeros(_shape(named)) for _ in range(6))
        for place, cell, where in _placed(entry.cells, named, "cross-products", f"{path}.cells"):
            counts[place] = cell.people
            values = (*cell.sums, *cell.squares, cell.products)
            for target, value in zip((s1, s2, q1, q2, products), values, strict=True):
                target[place] = _whole(value, where)
        crosses.append(Cross(entry.metrics, tuple(entry.by), counts, (s1, s2), (q1, q2), products))
    return crosses


def _placed(
    entries: Sequence[_Cell], factors: Sequence[Factor], word: str, path: str
) -> Iterator[tuple[tuple[int, ...], _Cell, str]]:
    """Yield each entry with the place of its levels, which may come once, and its path."""
    seen: set[tuple[int, ...]] = set()
    for number, entry in enumerate(entries):
        where = f"{path}[{number}]"
        if len(entry.levels) != len(factors):
            raise TallyError("one level for each factor is needed", "Give them in order.", at=where)
        try:
            place = tuple(factor.index(level) for factor, level in zip(factors, entry.levels, strict=True))
        except KanabError as problem:
            raise type(problem)(problem.fact, problem.remedy, at=where) from None
        if place in seen:
            raise TallyError(f"the same class comes twice among the {word}", "Add them up.", at=where)
        seen.add(place)
        yield place, entry, where


def _named(factors: Sequence[Factor], by: Sequence[str], path: str = "") -> list[Factor]:
    by_name = {factor.name: factor for factor in factors}
    if not by or not set(by) <= by_name.keys() or len(set(by)) != len(by):
        raise TallyError("a marginal names an unknown factor", "Use the names of the factors.", at=path)
    return [by_name[name] for name in by]


def _shape(factors: Sequence[Factor]) -> tuple[int, ...]:
    return tuple(len(factor.levels) for factor in factors)


def _levels(factors: Sequence[Factor], place: tuple[int, ...]) -> Levels:
    return [factor.levels[i] for factor, i in zip(factors, place, strict=True)]


def _crosses(factors: Sequence[Factor], part: Cross) -> list[CrossCell]:
    return [
        CrossCell(
            _levels(factors, place),
            part.counts.item(place),
            (_text(part.sums[0].item(place)), _text(part.sums[1].item(place))),
            (_text(part.squares[0].item(place)), _text(part.squares[1].item(place))),
            _text(part.products.item(place)),
        )
        for place in np.ndindex(*part.counts.shape)
    ]


def _text(value: int) -> Whole:
    return value if abs(value) <= DOUBLE_LIMIT else str(value)


def _whole(value: Whole, path: str) -> int:
    if isinstance(value, str):
        if not re.fullmatch(r"-?[0-9]{1,80}", value):
            raise TallyError("a number written as text is not a whole number", "Use digits only.", at=path)
        return int(value)
    return value
