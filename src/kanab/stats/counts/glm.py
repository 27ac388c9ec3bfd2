"""Logistic and Poisson regression from classes: the same coefficients and errors as from the rows.

People of a class share their row of the design, so the score and the information need their number and their
sum alone. Squares say more only about how far counts vary beyond Poisson's: then errors can allow for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import scipy

from kanab.arguments import check_arguments
from kanab.errors import AnalysisError, DesignError, FormulaError, listed
from kanab.stats.distributions import check_sides, chi2_tail, t_quantile, t_tail
from kanab.stats.formula import Design, design, parse
from kanab.stats.gram import Classes, Floats, arm_squares, classes_of, dependent_terms, independent
from kanab.stats.noise import refuse_noise
from kanab.tabular import Table, number, p_value
from kanab.tally.tally import Tally

Family = Literal["gaussian", "binomial", "poisson"]
CountFamily = Literal["binomial", "poisson"]
CountErrors = Literal["model", "quasi", "arm", "HC0", "HC1"]

OVERDISPERSED = 1.2
"""Counts that vary this many times as much as Poisson's make a note where errors do not allow for it."""

_MOST_STEPS = 40
"""A fit that exists needs about ten of Newton's steps; a coefficient that grows without end moves on by one each."""

_LEAST_WEIGHT = 1e-200
"""So that a class whose fitted rate is 0 or 1 in floats can still be divided by its weight."""

_RATIOS = {"binomial": "odds ratio", "poisson": "rate ratio"}
_NAMES = {"binomial": "logistic", "poisson": "Poisson"}
_LEVEL = re.compile(r"\[[^:]*\](?=:|$)")


@dataclass(frozen=True)
class ModelTest:
    """A χ² test of several coefficients at once: by the likelihood ratio, or Wald's."""

    test: Literal["likelihood ratio", "Wald"]
    terms: str
    chi2: float
    df: int
    p: float

    def __str__(self) -> str:
        return f"{self.terms}: {self.test} χ²({self.df}) = {number(self.chi2, 6)}, p = {p_value(self.p)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the test as plain data."""
        return {"test": self.test, "terms": self.terms, "chi2": self.chi2, "df": self.df, "p": self.p}


@dataclass(frozen=True, eq=False)
class CountFit:
    """A logistic or a Poisson regression: coefficients ``b`` on the log scale, z tests, and their ratios.

    ``ratios`` are exp(b), odds ratios or rate ratios, with ``ratio_intervals``. ``loglik`` and ``deviance`` are those
    of the rows; None for counts above 1, because Σ log y! and Σ y log y cannot be had from sums. ``kernel`` is
    the log-likelihood without that constant, so differences of it are exact. ``overall`` compares with the
    intercept alone, ``lack_of_fit`` with one mean per class (None where the model has as many coefficients).
    ``dispersion`` is how many times as much as the model says counts vary, None where it cannot be known;
    it is Pearson's χ² (``pearson``) over ``df`` where squares are known per class, else from squares per arm.
    """

    formula: str
    metric: str
    experiment: str
    family: CountFamily
    errors: CountErrors
    names: tuple[str, ...]
    b: Floats
    se: Floats
    z: Floats
    p: Floats
    intervals: Floats
    confidence: float
    n: int
    df: int
    covariance: Floats
    kernel: float
    loglik: float | None
    deviance: float | None
    overall: ModelTest
    lack_of_fit: ModelTest | None
    pearson: float | None
    dispersion: float | None
    steps: int

    @property
    def ratios(self) -> Floats:
        """Odds ratios, or rate ratios; the intercept's is the odds or the rate where all else is at its reference."""
        return np.exp(self.b)

    @property
    def ratio_intervals(self) -> Floats:
        """The intervals of the ratios."""
        with np.errstate(over="ignore"):
            return np.exp(self.intervals)

    def wald(self, *terms: str) -> ModelTest:
        """Test several coefficients at once: coefficients by name, or terms such as "tier" or "arm:tier".

        Raises `FormulaError` for what the model does not have.
        """
        chosen: dict[int, None] = {}
        for term in terms:
            places = [place for place, name in enumerate(self.names) if term in (name, self._term(name))]
            if not places:
                known = dict.fromkeys(self._term(name) for name in self.names[1:])
                raise FormulaError("the model has no such term", f"It has: {listed(known)}.")
            chosen |= dict.fromkeys(places)
        if not chosen:
            raise FormulaError("no term is named", "For example fit.wald('tier').")
        places = list(chosen)
        b = self.b[places]
        chi2 = float(b @ np.linalg.solve(self.covariance[np.ix_(places, places)], b))
        return ModelTest("Wald", ", ".join(terms), chi2, len(places), chi2_tail(chi2, len(places)))

    def _term(self, name: str) -> str:
        """Return the term of a coefficient, where the experiment is called arm: variant[B]:tier[2] is arm:tier."""
        bare = _LEVEL.sub("", name)
        return ":".join("arm" if part == self.experiment else part for part in bare.split(":"))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader has to know beside the numbers."""
        notes = []
        if self.dispersion is not None and self.errors == "model" and self.dispersion > OVERDISPERSED:
            notes.append(
                f"Counts vary {number(self.dispersion, 3)} times as much as Poisson's, so these errors are too small: "
                "use errors='quasi' or errors='arm'."
            )
        if self.loglik is None:
            notes.append(
                "The log-likelihood is known but for a constant (Σ log y! needs rows), its differences exactly."
            )
        return tuple(notes)

    def _table(self) -> Table:
        ratio = _RATIOS[self.family]
        rows = tuple(
            (name, number(b), number(se), number(z), p_value(p), number(r), f"{number(low)} … {number(high)}")
            for name, b, se, z, p, r, (low, high) in zip(
                self.names, self.b, self.se, self.z, self.p, self.ratios, self.ratio_intervals, strict=True
            )
        )
        kind = "" if self.errors == "model" else f", {self.errors} errors"
        title = f"{self.metric} ~ {self.formula}   ({_NAMES[self.family]}, n = {self.n:,}, df = {self.df:,}{kind})"
        return Table(("term", "b", "se", "z", "p", ratio, f"{self.confidence:.0%} interval"), rows, title)

    def __str__(self) -> str:
        return "\n".join([str(self._table()), *self.notes])

    def _repr_html_(self) -> str:
        return self._table().to_html() + "".join(f"<p>{note}</p>" for note in self.notes)

    def to_dict(self) -> dict[str, Any]:
        """Return the fit as plain data, ready for JSON."""
        columns = (self.b, self.se, self.z, self.p, self.intervals, self.ratios, self.ratio_intervals)
        words = ("b", "se", "z", "p", "interval", "ratio", "ratio_interval")
        return {
            "formula": self.formula,
            "metric": self.metric,
            "family": self.family,
            "errors": self.errors,
            "ratio": _RATIOS[self.family],
            "confidence": self.confidence,
            "n": self.n,
            "df": self.df,
            "coefficients": [
                {"term": name, **{word: _finite(value) for word, value in zip(words, row, strict=True)}}
                for name, *row in zip(self.names, *(column.tolist() for column in columns), strict=True)
            ],
            "loglik": self.loglik,
            "loglik_without_constant": self.kernel,
            "deviance": self.deviance,
            "overall": self.overall.to_dict(),
            "lack_of_fit": None if self.lack_of_fit is None else self.lack_of_fit.to_dict(),
            "pearson_chi2": self.pearson,
            "dispersion": self.dispersion,
            "notes": list(self.notes),
        }


def _finite(value: Any) -> Any:
    """Return numbers for JSON, which has neither infinity nor what is not a number."""
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return value if math.isfinite(value) else None


@dataclass(frozen=True, eq=False)
class _Model:
    """A family on the classes of one metric: events or counts, people, and the functions of the linear predictor."""

    family: CountFamily
    n: Floats
    sums: Floats

    def mean(self, eta: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return np.asarray(scipy.special.expit(eta) if self.family == "binomial" else np.exp(eta))

    def weights(self, eta: Floats) -> Floats:
        """Return the information of every class: n times the variance that the model gives a person."""
        if self.family == "binomial":
            return np.asarray(self.n * scipy.special.expit(eta) * scipy.special.expit(-eta))
        return self.n * self.mean(eta)

    def kernel(self, eta: Floats) -> float:
        """Return the log-likelihood without what does not depend on coefficients."""
        with np.errstate(over="ignore"):
            normaliser = np.logaddexp(0.0, eta) if self.family == "binomial" else np.exp(eta)
        return math.fsum((self.sums * eta).tolist()) - math.fsum((self.n * normaliser).tolist())

    def saturated(self) -> float:
        """Return the kernel with one mean per class, its own."""
        s, n = self.sums, self.n
        if self.family == "binomial":
            return float((scipy.special.xlogy(s, s / n) + scipy.special.xlogy(n - s, (n - s) / n)).sum())
        return float((scipy.special.xlogy(s, s / n) - s).sum())

    def start(self) -> Floats:
        """Return linear predictors near those of the class means, none of them infinite."""
        mean = (self.sums + self.sums.sum() / self.n.sum()) / (self.n + 1)
        return np.asarray(scipy.special.logit(mean) if self.family == "binomial" else np.log(mean))


@check_arguments()
def fit_counts(
    tally: Tally,
    formula: str,
    metric: str | None = None,
    *,
    family: CountFamily = "binomial",
    errors: CountErrors = "model",
    confidence: float = 0.95,
) -> CountFit:
    """Fit a formula by logistic ("binomial") or Poisson regression: ``fit`` with a ``family`` does the same.

    Covariates that the formula does not name are collapsed first. ``errors`` are those of the model; or
    "quasi" (the model's times the root of the dispersion), "arm" (a dispersion for each arm), "HC0", "HC1" (robust).
    Raises `AnalysisError` for a metric that is not 0/1 (binomial) or not of whole numbers from 0 on (poisson), and for
    errors whose squares were not kept, `DesignError` where a coefficient has no finite value (separation).

    >>> from kanab.counting.columns import count_columns
    >>> people = {"arm": ["B"] * 70 + ["A"] * 80, "cured": [1] * 56 + [0] * 14 + [1] * 48 + [0] * 32}
    >>> print(fit_counts(count_columns(people, arm="arm", metrics=["cured"]), "arm"))
    cured ~ arm   (logistic, n = 150, df = 148)
    term            b      se      z        p  odds ratio  95% interval
    ─────────  ──────  ──────  ─────  ───────  ──────────  ──────────────
    Intercept  0.4055  0.2282  1.777   0.0756       1.500  0.9590 … 2.346
    arm[B]     0.9808  0.3760  2.609  0.00909       2.667  1.276 … 5.572
    """
    check_sides(confidence, "two-sided")
    _check_choices(family, errors)
    table, classes, model = _prepared(tally, formula, metric, family)
    shape = design(table, parse(formula), classes)
    df = classes.total - len(shape.names)
    if df < 1:
        raise DesignError(
            f"there are too few people for the {len(shape.names)} coefficients of this formula",
            "Use a simpler formula, or wait for more people.",
        )
    b, inverse, steps = _newton(shape, model)
    eta = shape.matrix @ b
    fitted = _Fitted(table, metric, classes, model, eta, df)
    covariance = fitted.covariance(errors, shape.matrix, inverse)
    se = np.sqrt(np.maximum(0.0, np.diag(covariance)))
    z = np.divide(b, se, out=np.full_like(b, np.nan), where=se > 0)
    reach = t_quantile((1 + confidence) / 2, math.inf) * se
    kernel = model.kernel(eta)
    kind = table.moments_of(metric).metric
    return CountFit(
        formula, kind.name, table.arms[0].name, family, errors, shape.names, b, se, z,
        np.array([math.nan if math.isnan(value) else t_tail(value, math.inf) for value in z]),
        np.column_stack([b - reach, b + reach]), confidence, classes.total, df, covariance,
        kernel, kernel if kind.binary else None, _deviance(model, kernel) if kind.binary else None,
        _ratio_test(_null_kernel(model), kernel, len(shape.names) - 1, f"1 → {formula}"),
        _lack_of_fit(model, kernel, formula, len(classes.counts) - len(shape.names)),
        fitted.pearson, fitted.dispersion, steps,
    )  # fmt: skip


@check_arguments()
def likelihood_ratio(
    tally: Tally, main: str, full: str, metric: str | None = None, *, family: CountFamily = "binomial"
) -> ModelTest:
    """Test any two nested formulas of a logistic or a Poisson regression by the ratio of their likelihoods.

    Raises `FormulaError` where the first is not contained in the second, and what ``fit_counts`` raises.

    >>> from kanab.counting.columns import count_columns
    >>> from kanab.datasets import shop_rows
    >>> shop = count_columns(shop_rows(), arm="variant", covariates=["device"], metrics=["bought"])
    >>> print(likelihood_ratio(shop, "arm + device", "arm * device"))
    arm + device → arm * device: likelihood ratio χ²(2) = ..., p = ...
    """
    _check_choices(family, "model")
    table, classes, model = _prepared(tally, f"({main}) + ({full})", metric, family)
    shapes = [design(table, parse(text), classes) for text in (main, full)]
    both = np.column_stack([shapes[1].matrix, shapes[0].matrix])
    if independent(both, classes.n).sum() > independent(shapes[1].matrix, classes.n).sum():
        raise FormulaError("the first formula is not contained in the second", "Give nested formulas.")
    small, large = (model.kernel(shape.matrix @ _newton(shape, model)[0]) for shape in shapes)
    return _ratio_test(small, large, len(shapes[1].names) - len(shapes[0].names), f"{main} → {full}")


def _ratio_test(small: float, large: float, df: int, terms: str) -> ModelTest:
    chi2 = max(0.0, 2 * (large - small))
    return ModelTest("likelihood ratio", terms, chi2, df, chi2_tail(chi2, df) if df else 1.0)


def _null_kernel(model: _Model) -> float:
    """Return the kernel of the intercept alone."""
    whole = _Model(model.family, model.n.sum(keepdims=True), model.sums.sum(keepdims=True))
    return whole.saturated()


def _lack_of_fit(model: _Model, kernel: float, formula: str, df: int) -> ModelTest | None:
    return _ratio_test(kernel, model.saturated(), df, f"{formula} → classes") if df else None


def _deviance(model: _Model, kernel: float) -> float:
    """Return the deviance of rows of 0 and 1, whose own fit has the log-likelihood 0 (Poisson: −Σ y)."""
    return -2 * (kernel + (0.0 if model.family == "binomial" else float(model.sums.sum())))


def _check_choices(family: str, errors: str) -> None:
    if family not in get_args(CountFamily):
        raise AnalysisError("unknown family", f"Use one of: {', '.join(get_args(Family))}.")
    if errors not in get_args(CountErrors):
        raise AnalysisError("unknown kind of errors", f"Use one of: {', '.join(get_args(CountErrors))}.")
    if family == "binomial" and errors in ("quasi", "arm"):
        raise AnalysisError("a 0/1 metric cannot vary more than its mean allows", "Use errors='model', 'HC0' or 'HC1'.")


def _prepared(tally: Tally, formula: str, metric: str | None, family: CountFamily) -> tuple[Tally, Classes, _Model]:
    """Return the table of the covariates that a formula names, its classes, and the model on them."""
    refuse_noise(tally, "a fit of a formula")
    named = {variable.name for term in parse(formula) for variable in term}
    table = tally.keep(*(factor.name for factor in tally.covariates if factor.name in named))
    moments = table.moments_of(metric)
    kind = moments.metric
    if family == "binomial" and not kind.binary:
        raise AnalysisError(
            f"{kind.name} is not a 0/1 metric, so it has no odds",
            "Declare its bounds (0, 1) and resolution 1 if it is one, or use family='poisson' or 'gaussian'.",
        )
    if family == "poisson" and not (kind.scale == 1 and kind.bounds is not None and kind.bounds[0] >= 0):
        raise AnalysisError(
            f"{kind.name} is not known to be whole numbers from 0 on, so it has no Poisson regression",
            "Declare bounds from 0 on and resolution 1 if it is a count, or use family='gaussian'.",
        )
    classes = classes_of(table, metric)
    sums = moments.sums[tuple(classes.places.T)].astype(np.float64)
    total = float(sums.sum())
    if total == 0 or (family == "binomial" and total == classes.total):
        raise DesignError(f"{kind.name} is the same for everybody, so there is nothing to fit", "Wait for more people.")
    return table, classes, _Model(family, classes.n, sums)


def _newton(shape: Design, model: _Model) -> tuple[Floats, Floats, int]:
    """Return the likeliest coefficients, the inverse of the information there, and how many steps it took."""
    x = shape.matrix
    if not independent(x, model.n).all():
        raise dependent_terms(x, model.n, shape.names)
    eta = model.start()
    b, half = _weighted(x, model.weights(eta), eta)
    step = np.full_like(b, np.inf)
    kernel = model.kernel(x @ b)
    for steps in range(1, _MOST_STEPS + 1):
        eta = x @ b
        weights = np.maximum(model.weights(eta), _LEAST_WEIGHT)
        step, half = _weighted(x, weights, (model.sums - model.n * model.mean(eta)) / weights)
        step, kernel = _not_beyond(lambda scaled: model.kernel(x @ (b + scaled)), step, kernel)  # noqa: B023
        b = b + step
        if np.all(np.abs(step) <= 1e-9 * (1 + np.abs(b))):
            _, half = _weighted(x, model.weights(x @ b), eta)
            return b, half @ half.T, steps
    raise _separated(shape, step)


def _weighted(x: Floats, weights: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return the coefficients of weighted least squares, and R⁻¹ of its QR decomposition."""
    root = np.sqrt(weights)
    q, r = np.linalg.qr(root[:, None] * x)
    half = np.linalg.pinv(r)
    return half @ (q.T @ (root * y)), half


def _not_beyond(kernel_at: Callable[[Floats], float], step: Floats, kernel: float) -> tuple[Floats, float]:
    """Halve a step until the likelihood does not fall, but for rounding."""
    while (reached := kernel_at(step)) < kernel - 1e-9 * (1 + abs(kernel)):
        step = step / 2
    return step, reached


def _separated(shape: Design, step: Floats) -> DesignError:
    """Return the error that names the coefficients which still grow."""
    moves = np.abs(step) * np.abs(shape.matrix).max(axis=0)
    names = [name for name, move in zip(shape.names, moves.tolist(), strict=True) if not move <= 0.1 * moves.max()]
    return DesignError(
        f"these terms have no finite coefficient, because some of their classes have no event, or nothing else: "
        f"{', '.join(names)}",
        "Merge levels, drop the terms, or wait for more people.",
    )


@dataclass(frozen=True, eq=False)
class _Fitted:
    """A fitted model on its table: how far values lie from the means, as far as squares tell."""

    table: Tally
    metric: str | None
    classes: Classes
    model: _Model
    eta: Floats
    df: int

    def covariance(self, errors: CountErrors, x: Floats, inverse: Floats) -> Floats:
        """Return the covariance of the coefficients; raise `AnalysisError` where the squares for it were not kept."""
        if errors == "model":
            return inverse
        if errors == "quasi":
            return inverse * (self.arm_dispersions()[1] if self.pearson is None else self.pearson / self.df)
        if errors == "arm":
            middle = self.arm_dispersions()[0] * self.model.weights(self.eta)
        else:
            middle = self.residuals() * (self.classes.total / self.df if errors == "HC1" else 1.0)
        return np.asarray(inverse @ (x.T @ (x * middle[:, None])) @ inverse)

    def residuals(self) -> Floats:
        """Return Σ (y − fitted mean)² of every class; raise `AnalysisError` where its squares were not kept."""
        within = self.classes.within_each(arm_squares(self.table, self.metric, self.table.axes))
        return within + (self.model.sums - self.model.n * self.model.mean(self.eta)) ** 2 / self.model.n

    @property
    def pearson(self) -> float | None:
        """Pearson's χ² of the rows; None where squares per class were not kept."""
        if self.table.squares(self.metric, self.table.axes) is None:
            return None
        return float((self.residuals() * self.model.n / self.model.weights(self.eta)).sum())

    @property
    def dispersion(self) -> float | None:
        """How many times as much as Poisson's the counts vary; None of odds, and where too little is known."""
        if self.model.family == "binomial":
            return None
        if self.pearson is not None:
            return self.pearson / self.df
        with suppress(AnalysisError, DesignError):
            return self.arm_dispersions()[1]
        return None

    def arm_dispersions(self) -> tuple[Floats, float]:
        """Return how many times Poisson's the variance within classes is: in the arm of each class, and over all arms.

        Squares per arm are enough. Raises `AnalysisError` without them, `DesignError` where nobody shares a class.
        """
        arms = self.table.experiment_names
        squares = arm_squares(self.table, self.metric, arms)
        axes = [self.table.axes.index(name) for name in arms]
        places = np.ravel_multi_index(tuple(self.classes.places[:, axes].T), squares.shape)
        arm, group = np.unique(places, return_inverse=True)
        within = np.array([self.classes.within(int(squares.flat[place]), places == place) for place in arm])
        expected = np.bincount(group, (self.model.n - 1) * self.model.mean(self.eta))
        if not np.all(expected > 0):
            raise DesignError("an arm has too few people to tell how much its counts vary", "Wait for more people.")
        return (within / expected)[group], float(within.sum() / expected.sum())
