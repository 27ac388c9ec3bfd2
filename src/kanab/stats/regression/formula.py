"""A small formula language: ``arm + tier``, ``arm * tier``, ``arm:tier``, ``C(tier)``.

Names are those of the tally's factors; "arm" is its one experiment. Names with spaces go in
`backticks`. ``C(tier)`` treats a numeric covariate as categories. An intercept is always there.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from kanab.errors import FormulaError, listed
from kanab.stats.gram import Classes, Floats
from kanab.tally.tally import Tally

_TOKEN = re.compile(r"\s*(?:(`[^`]+`|[^\W\d]\w*(?:\.\w+)*)|(\S))")
_NAME = re.compile(r"`[^`]+`|[^\W\d]\w*(?:\.\w+)*")
_LONGEST = 2_000
_DEEPEST = 20
_MOST_TERMS = 200

Term = tuple["Variable", ...]


@dataclass(frozen=True, order=True)
class Variable:
    """A factor in a formula, with its numeric scores or as categories."""

    name: str
    categorical: bool = False

    def __str__(self) -> str:
        return f"C({self.name})" if self.categorical else self.name


def parse(formula: str) -> tuple[Term, ...]:
    """Return the terms of a formula, main effects first, each once; raises `FormulaError`.

    >>> [":".join(map(str, term)) for term in parse("arm * C(tier) + device")]
    ['arm', 'C(tier)', 'device', 'arm:C(tier)']
    """
    if not isinstance(formula, str) or len(formula) > _LONGEST:
        raise FormulaError("a formula must be a short text", "For example 'arm + tier'.")
    parser = _Parser([name or other for name, other in _TOKEN.findall(formula)])
    terms = [term for term in parser.terms() if term]
    parser.take("")
    seen: dict[Variable, int] = {}
    for term in terms:
        for variable in sorted(term):
            seen.setdefault(variable, len(seen))
    unique = dict.fromkeys(tuple(sorted(term, key=seen.__getitem__)) for term in terms)
    if len(unique) > _MOST_TERMS:
        raise FormulaError("the formula expands to too many terms", "Use fewer products.")
    return tuple(sorted(unique, key=len))


_TIGHTNESS = {"+": 1, "*": 2, ":": 3}


class _Parser:
    """Reads names between operators, of which some bind tighter than others; brackets are read by themselves."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = [*tokens, ""]
        self._next = 0
        self._depth = 0

    def take(self, wanted: str) -> None:
        """Go on to the next token if this is the wanted one; raises `FormulaError` if not."""
        if self._tokens[self._next] != wanted:
            self._fail()
        self._next += 1

    def terms(self, least: int = 1) -> list[frozenset[Variable]]:
        """Read up to the next operator that binds less tightly, or the end."""
        terms = self._atom()
        while (tightness := _TIGHTNESS.get(operator := self._tokens[self._next], 0)) >= least:
            self._next += 1
            other = self.terms(tightness + 1)
            crossed = [] if operator == "+" else _products(terms, other)
            terms = crossed if operator == ":" else terms + other + crossed
        return terms

    def _atom(self) -> list[frozenset[Variable]]:
        token, following = self._tokens[self._next], self._tokens[self._next + 1 :]
        if token == "1":
            self._next += 1
            return [frozenset()]
        if token == "(":
            return self._bracket()
        categorical = token == "C" and following[:1] == ["("]
        self._next += 2 * categorical
        name = self._tokens[self._next]
        if not _NAME.fullmatch(name) or not (name[0] in "`_" or name[0].isalpha()):
            self._fail()
        self._next += 1
        if categorical:
            self.take(")")
        return [frozenset([Variable(name.strip("`"), categorical)])]

    def _bracket(self) -> list[frozenset[Variable]]:
        self._next, self._depth = self._next + 1, self._depth + 1
        if self._depth > _DEEPEST:
            raise FormulaError("the formula is nested too deeply", "Write it with fewer brackets.")
        terms = self.terms()
        self.take(")")
        self._depth -= 1
        return terms

    def _fail(self) -> None:
        place = f"position {self._next + 1} of the formula"
        if self._tokens[self._next] == "~":
            raise FormulaError(
                "a formula has no left side", "Name the metric separately: fit(tally, 'arm', 'spend').", at=place
            )
        raise FormulaError(
            "this is not a formula", "Use names, +, *, : and C(name); `backticks` for names with spaces.", at=place
        )


def _products(left: list[frozenset[Variable]], right: list[frozenset[Variable]]) -> list[frozenset[Variable]]:
    left, right = list(dict.fromkeys(left)), list(dict.fromkeys(right))
    if len(left) * len(right) > _MOST_TERMS:
        raise FormulaError("the formula expands to too many terms", "Use fewer products.")
    return list(dict.fromkeys(a | b for a in left for b in right))


@dataclass(frozen=True, eq=False)
class Design:
    """A design matrix: one row per class (never per person), one named column per coefficient."""

    names: tuple[str, ...]
    matrix: Floats


def design(tally: Tally, terms: Sequence[Term], classes: Classes) -> Design:
    """Return treatment-coded columns for every term; a term brings the simpler ones that it contains."""
    resolved = [tuple(dict.fromkeys(_resolve(tally, variable) for variable in term)) for term in terms]
    names, columns = ["Intercept"], [np.ones(len(classes.counts))]
    done: set[frozenset[Variable]] = {frozenset()}
    for term in resolved:
        for subset in _subsets(term):
            if frozenset(subset) not in done:
                done.add(frozenset(subset))
                for name, column in _crossed(tally, subset, classes):
                    names.append(name)
                    columns.append(column)
    return Design(tuple(names), np.column_stack(columns))


def _resolve(tally: Tally, variable: Variable) -> Variable:
    names = (*tally.axes, "arm") if len(tally.arms) == 1 else tally.axes
    if variable.name not in names:
        raise FormulaError("the formula names an unknown factor", f"This tally has: {listed(names)}.")
    factor = tally.factor(variable.name)
    return Variable(factor.name, variable.categorical or factor.scores is None)


def _subsets(term: Term) -> Iterator[Term]:
    """Yield the term's numeric part with every choice of its categorical ones, small choices first."""
    numeric = tuple(variable for variable in term if not variable.categorical)
    categorical = [variable for variable in term if variable.categorical]
    for size in range(len(categorical) + 1):
        for chosen in combinations(categorical, size):
            yield tuple(variable for variable in term if variable in chosen or variable in numeric)


def _crossed(tally: Tally, term: Term, classes: Classes) -> list[tuple[str, Floats]]:
    crossed: list[tuple[str, Floats]] = [("", np.ones(len(classes.counts)))]
    for variable in term:
        crossed = [
            (f"{left}:{right}" if left else right, a * b)
            for left, a in crossed
            for right, b in _coded(tally, variable, classes)
        ]
    return crossed


def _coded(tally: Tally, variable: Variable, classes: Classes) -> list[tuple[str, Floats]]:
    factor = tally.factor(variable.name)
    place = classes.places[:, tally.axes.index(factor.name)]
    if not variable.categorical and factor.scores is not None:
        known = np.array([0.0 if score is None else score for score in factor.scores])
        coded = [(factor.name, known[place])]
        if None in factor.levels and factor.levels.index(None) in place:
            coded.append((f"{factor.name}[missing]", (place == factor.levels.index(None)).astype(np.float64)))
        return coded
    present = sorted(set(place.tolist()))
    if factor.role == "arm":  # arms are compared with the control, as everywhere
        present.sort(key=lambda level: factor.levels[level] != factor.control)
    return [(f"{factor.name}[{factor.labels[level]}]", (place == level).astype(np.float64)) for level in present[1:]]
