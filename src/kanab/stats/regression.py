"""Ordinary least squares by a formula, from classes: the same coefficients and errors as from the rows.

A formula is of the tally's factors ("arm" is its one experiment): ``arm + tier``, ``arm * tier``, ``arm:tier``,
``C(tier)`` for scores as categories, `backticks` for names with spaces. Robust errors (HC0 to HC3) need squares per
class: people of a class share their leverage, and their squared residuals add up to n r² plus the squares within.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, get_args

import numpy as np

from kanab.arguments import check_arguments
from kanab.errors import AnalysisError, DesignError, FormulaError, listed
from kanab.stats.distributions import check_sides, f_tail, t_interval, t_tail
from kanab.stats.gram import Classes, Floats, arm_squares, classes_of, refit, solve
from kanab.stats.noise_variance import refuse_noise
from kanab.tabular import Table, number, p_value
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
    """Return the terms of a formula, main effects first, each once; raises `FormulaError`."""
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


# ── the fit ──────────────────────────────────────────────────────────────────────────────────


Errors = Literal["HC0", "HC1", "HC2", "HC3"]


@dataclass(frozen=True, eq=False)
class Anova:
    """Regression, residual and total sums of squares about the mean, and the overall F."""

    df: tuple[int, int, int]
    ss: tuple[float, float, float]
    F: float | None
    p: float | None

    def __str__(self) -> str:
        rows = []
        for row, name in enumerate(("Regression", "Residual", "Total")):
            mean = self.ss[row] / self.df[row] if row < 2 and self.df[row] else None
            test = (number(self.F), p_value(self.p)) if row == 0 else ("", "")
            rows.append((name, str(self.df[row]), number(self.ss[row]), number(mean) if mean else "", *test))
        return str(Table(("", "df", "SS", "MS", "F", "p"), tuple(rows)))


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted model: coefficients ``b`` with their errors, in units of the metric (paper §6–7).

    ``tss`` is Σ y² as in the paper; ``rss`` the residual sum of squares; ``df`` = n − p. With robust ``errors`` se, t,
    p and intervals hold for any variances; the ANOVA is the ordinary one.
    """

    formula: str
    metric: str
    names: tuple[str, ...]
    b: Floats
    se: Floats
    t: Floats
    p: Floats
    intervals: Floats
    confidence: float
    n: int
    df: int
    tss: float
    rss: float
    xtx: Floats
    xty: Floats
    covariance: Floats
    anova: Anova
    errors: Literal["model"] | Errors = "model"

    @property
    def r2(self) -> float | None:
        """Share of the variance about the mean that the model explains."""
        total = self.anova.ss[2]
        return self.anova.ss[0] / total if total else None

    def __str__(self) -> str:
        rows = tuple(
            (name, number(b), number(se), number(t), p_value(p), f"{number(low)} … {number(high)}")
            for name, b, se, t, p, (low, high) in zip(
                self.names, self.b, self.se, self.t, self.p, self.intervals, strict=True
            )
        )
        header = ("term", "b", "se", "t", "p", f"{self.confidence:.0%} interval")
        errors = "" if self.errors == "model" else f", {self.errors} errors"
        return str(Table(header, rows, f"{self.metric} ~ {self.formula}   (n = {self.n:,}, df = {self.df:,}{errors})"))


@check_arguments()
def fit(
    tally: Tally,
    formula: str,
    metric: str | None = None,
    *,
    confidence: float = 0.95,
    errors: Literal["model"] | Errors = "model",
) -> Fit:
    """Fit a formula on the classes by ordinary least squares.

    ``errors`` are the model's, or heteroscedasticity-consistent ones: for these, covariates that the formula does not
    name are collapsed first, so that coarser squares may do (those of ``arm`` alone are always there). Raises
    `FormulaError` for what is not a formula of this tally, `AnalysisError` where squares are missing, `DesignError`
    where people or classes are too few, or a class of one person fits itself (HC2, HC3).

    >>> from kanab.datasets import eighteen
    >>> print(fit(eighteen(), "arm + C(tier)"))
    minutes ~ arm + C(tier)   (n = 18, df = 14)
    term                b      se        t       p  95% interval
    ────────────  ───────  ──────  ───────  ──────  ────────────────
    Intercept      0.6583  0.3387    1.944  0.0723  -0.06813 … 1.385
    treatment[B]  -0.1188  0.3387  -0.3509   0.731  -0.8453 … 0.6076
    tier[2]        0.7211  0.4148    1.738   0.104  -0.1686 … 1.611
    tier[3]         1.116  0.4148    2.690  0.0176  0.2262 … 2.006
    """
    if errors not in ("model", *get_args(Errors)):
        raise AnalysisError("unknown kind of errors", f"Use one of: model, {', '.join(get_args(Errors))}.")
    refuse_noise(tally, "a fit of a formula")
    check_sides(confidence, "two-sided")
    terms = parse(formula)
    if errors != "model":
        named = {variable.name for term in terms for variable in term}
        tally = tally.keep(*(factor.name for factor in tally.covariates if factor.name in named))
    classes = classes_of(tally, metric)
    model = design(tally, terms, classes)
    squares = int(arm_squares(tally, metric).sum())
    n, df, scale = classes.total, classes.total - len(model.names), classes.scale
    if df < 1:
        raise DesignError(
            f"there are too few people for the {len(model.names)} coefficients of this formula",
            "Use a simpler formula, or wait for more people.",
        )
    within = classes.within(squares)
    solution = solve(model.matrix, classes.n, classes, model.names, within)
    rss = within + float(classes.n @ solution.residuals**2)
    covariance = solution.inverse * (rss / df / scale**2)
    if errors != "model":
        covariance = _robust(classes, model, classes.within_each(arm_squares(tally, metric, tally.axes)), errors)
    b = np.array([float((value + (classes.centre if not j else 0)) / scale) for j, value in enumerate(solution.exact)])
    se = np.sqrt(np.maximum(0.0, np.diag(covariance)))
    t = np.divide(b, se, out=np.full_like(b, np.nan), where=se > 0)  # no number where nothing varies
    p = np.array([np.nan if np.isnan(value) else t_tail(value, df) for value in t])
    intervals = np.array([t_interval(x, error, df, confidence) for x, error in zip(b, se, strict=True)])
    return Fit(
        formula, tally.moments_of(metric).metric.name, model.names, b, se, t, p, intervals,
        confidence, n, df, squares / scale**2, rss / scale**2,
        model.matrix.T @ (model.matrix * classes.n[:, None]),
        model.matrix.T @ np.asarray((classes.sums + classes.counts * classes.centre) / scale, dtype=np.float64),
        covariance, _anova(classes, model, rss, df), errors,
    )  # fmt: skip


def _anova(classes: Classes, model: Design, rss: float, df: int) -> Anova:
    flat = solve(np.ones((len(classes.counts), 1)), classes.n, classes, ("Intercept",), rss)
    explained = float(classes.n @ refit(model.matrix, classes.n, flat.residuals) ** 2)
    parameters = len(model.names) - 1
    unit = classes.scale**2
    f = explained / parameters / (rss / df) if parameters and rss else None
    return Anova(
        (parameters, df, parameters + df),
        (explained / unit, rss / unit, (explained + rss) / unit),
        f,
        None if f is None else f_tail(f, parameters, df),
    )


def _robust(classes: Classes, model: Design, within: Floats, errors: Errors) -> Floats:
    """Return the covariance of coefficients that holds for any variances, given the squares within each class."""
    solution = solve(model.matrix, classes.n, classes, model.names, float(within.sum()))
    squares = within + classes.n * solution.residuals**2
    leverage = np.einsum("ij,jk,ik->i", model.matrix, solution.inverse, model.matrix)
    grown = classes.total / (classes.total - len(model.names))
    middle = model.matrix.T @ (model.matrix * (squares * _weights(errors, leverage, grown))[:, None])
    return np.asarray(solution.inverse @ middle @ solution.inverse / classes.scale**2)


def _weights(errors: Errors, leverage: Floats, grown: float) -> Floats:
    """Return what squared residuals are multiplied by; a person that fits itself has none left."""
    if errors == "HC0":
        return np.ones(len(leverage))
    if errors == "HC1":
        return np.full(len(leverage), grown)
    if np.any(leverage > 1 - 1e-9):
        raise DesignError(
            f"a class of one person fits itself, so {errors} does not exist", "Merge levels, or use HC0 or HC1."
        )
    return np.asarray((1 - leverage) ** (-1.0 if errors == "HC2" else -2.0))
