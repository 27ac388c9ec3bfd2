"""What an experiment counts, which rows, and how results are read, as values: everything else is derived from them.

A name stands for the value with its defaults: ``metrics=["bought"]`` is ``metrics=[Mean("bought")]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, Literal

from kanab.choices import Alternative, RateTest, Slopes, Variance
from kanab.errors import ArgumentError
from kanab.fields import (
    ANYTHING,
    BOUNDS,
    NAME,
    NAMES,
    NUMBER,
    TEXT,
    WHOLE,
    YES,
    Kind,
    WrongValueError,
    checked,
    describes,
    numbers_shown,
    numbers_text,
    one_of,
    plain_number,
    setting,
    share,
    unchanged,
)

Role = Literal["primary", "guardrail", "secondary"]
Better = Literal["higher", "lower"]
MissingRule = Literal["exclude", "zero"]
AnyCorrection = Literal["none", "bonferroni", "sidak", "holm", "bh", "by", "dunnett"]
"""A correction of p-values by themselves, or the one that knows that all arms share the control."""
Size = tuple[float, bool] | str | float
"""A positive number, or a share of the control's mean such as "2%"; once read, the number and whether it is a share."""
Bins = int | Sequence[float]
Names = Sequence[str] | str


def _bins(value: Any) -> Any:
    if isinstance(value, (list, tuple, range)):
        return tuple(value)
    if isinstance(value, bool) or not isinstance(value, Real) or not float(value).is_integer():
        raise WrongValueError("must be a whole number of bins, or their edges")
    return int(float(value))


def _shares(value: Any) -> Any:
    several = value if isinstance(value, (list, tuple, set, frozenset, range)) else [value]
    try:
        return tuple(sorted(set(several)))
    except TypeError:
        raise WrongValueError("must be shares of people between 0 and 1") from None


def _size(value: Any) -> Any:
    if isinstance(value, tuple):
        return value
    text = value.strip() if isinstance(value, str) else ""
    try:
        size = float(text.removesuffix("%")) / 100 if text.endswith("%") else float(value)
    except (TypeError, ValueError):
        size = -1.0
    if not 0 < size < 1e300:
        raise WrongValueError("must be a positive number, or a share of the control's mean such as '2%'")
    return size, text.endswith("%")


BINS = Kind(
    _bins,
    lambda text: numbers_text(text) if ":" in text else plain_number(text),
    "N|EDGES",
    lambda bins: str(bins) if isinstance(bins, int) else numbers_shown(bins),
)
SHARES = Kind(_shares, lambda text: [*map(share, text.split(","))], "SHARES", lambda shares: ",".join(map(str, shares)))
SIZE = Kind(_size, metavar="SIZE")
SHARE = Kind(unchanged, metavar="SHARE")
HOW = Kind(
    checked(lambda value: isinstance(value, (str, Mapping)), "must be one word, or a dict of words by metric"),
    metavar="HOW",
)


def values_of(name: str, *, several: bool = True) -> Kind:
    """Return the kind of a value of a class, by its name, alone or by metric: classes that compute are not imported."""
    by_metric = f", or a dict of {name}" if several else ""

    def fits(value: Any) -> bool:
        return type(value).__name__ == name

    def read(value: Any) -> Any:
        for said in value.values() if isinstance(value, Mapping) and several else [value]:
            if not all(map(fits, said if isinstance(said, (list, tuple)) and several else [said])):
                raise WrongValueError(f"must be a {name}{by_metric}")
        return value

    return Kind(read)


_by_name = checked(lambda value: isinstance(value, Mapping), "must be a dict")
MARGINS = Kind(lambda value: values_of("Margin").read(_by_name(value)))
CONTRASTS = Kind(checked(lambda value: isinstance(value, (list, tuple)), "must be a list", tuple))


# ── what is counted ────────────────────────────────────────────────────────────────────────────

DEFAULT_K = 10
"""People whom a class holds at least, or nobody: that of a plan that says nothing else."""

LEAST_K_WITHOUT_OVERRIDE = 5
"""Below this a release needs an explicit, recorded override."""


@describes
class Mean:
    """The mean of a column, or the rate of a 0/1 column."""

    column: str = setting("Column to compare.", NAME, "spend", flag="", words=("metric", "outcome", "name"))
    bounds: tuple[float, float] | None = setting(
        "Clamp values to this range.", BOUNDS, (0, 500), default=None, words=("winsorize", "range", "limits")
    )
    resolution: float | None = setting("Step of the grid.", NUMBER, 0.01, default=None, words=("step",))
    missing: MissingRule | None = setting(
        "Missing values: exclude (default) or zero.", one_of(MissingRule), "exclude", default=None, of="rating"
    )
    min_events: int | None = setting(
        "People of a class who must have a 0/1 metric, and lack it, or nobody.", WHOLE, 10, default=None, of="bought"
    )
    clip: str | float | None = setting(
        "Clip at a point of all arms together; noted in the result.", SHARE, "99%", default=None, words=("percentile",)
    )
    role: Role | None = setting("What it is for.", one_of(Role), "guardrail", default=None, flag="")
    better: Better = setting("Good side.", one_of(Better), "lower", default="higher", flag="", words=("direction",))
    margin: Size | None = setting(
        "The most it may be worse (non-inferiority).", SIZE, "2%", default=None, flag="", words=("nim", "tolerance")
    )


@describes
class Ratio:
    """The ratio of two metrics, such as revenue per order; both are counted."""

    numerator: str = setting("Metric above.", NAME, "revenue", flag="")
    denominator: str = setting("Metric below.", NAME, "orders", flag="")
    role: Role | None = setting("What it is for.", one_of(Role), "primary", default=None, flag="")
    better: Better = setting("Good side.", one_of(Better), "lower", default="higher", flag="", words=("direction",))
    margin: Size | None = setting(
        "The most it may be worse (non-inferiority).", SIZE, "2%", default=None, flag="", words=("nim", "tolerance")
    )

    @property
    def column(self) -> str:
        """How the ratio is called."""
        return f"{self.numerator}/{self.denominator}"


@describes
class Quantile:
    """Quantiles of a column, from people in bins of it; its mean is compared, too."""

    column: str = setting("Column to compare.", NAME, "latency", flag="", words=("metric", "outcome", "name"))
    at: tuple[float, ...] | float = setting(
        "Compare quantiles of a metric, from bins of it.", SHARES, (0.5, 0.9), default=(0.5,), flag="--quantile",
        words=("q", "quantiles", "probability", "percentile"), of="latency",
    )  # fmt: skip
    bins: Bins | None = setting(
        "Number of bins between bounds, or edges.", BINS, (0, 50, 100, 200), default=None, flag="--bin", of="latency"
    )
    bounds: tuple[float, float] | None = setting("Clamp values to this range.", BOUNDS, (0, 600), default=None)


@describes
class Covariate:
    """What people were before the experiment, in levels."""

    column: str = setting("Column.", NAME, "tier", flag="", words=("covariate", "feature", "name"))
    bins: Bins | None = setting(
        "Bins of a covariate or of a metric's quantiles: so many quantiles, or edges a:b.", BINS, 5, default=None,
        flag="--bin", of="age",
    )  # fmt: skip
    top: int | None = setting(
        'Keep the N most common levels; the rest is "other".', WHOLE, 20, default=None, of="country"
    )
    score: bool = setting("Adjust for bins by one slope, not as categories.", YES, True, default=False, flag="")


@describes
class Number:
    """A number from before the experiment, adjusted for as it is, without classes (CUPED)."""

    column: str = setting("Column.", NAME, "prior_spend", flag="", words=("cuped", "covariate", "pre", "name"))
    bounds: tuple[float, float] | None = setting("Clamp values to this range.", BOUNDS, (0, 500), default=None)
    resolution: float | None = setting("Step of the grid.", NUMBER, 0.01, default=None)


# ── which rows ─────────────────────────────────────────────────────────────────────────────────


@describes
class Rows:
    """Which rows of a source count, and how they become people."""

    unit: str | None = setting(
        "Column that identifies a person, where people have several rows.", NAME, "user_id", default=None,
        words=("user", "id", "person", "randomization_unit"),
    )  # fmt: skip
    aggregate: Mapping[str, str] | str | None = setting(
        "A person's rows: sum (0/1: max), max, mean.", HOW, {"visits": "max"}, default=None, words=("agg", "how")
    )
    where: str | None = setting(
        "Count only rows where this SQL condition holds; recorded.", TEXT, "country = 'SE'", default=None,
        words=("filter",),
    )  # fmt: skip
    table: str | None = setting(
        "Table of the database, or sheet of an Excel file.", TEXT, "users", default=None, words=("sheet",)
    )
    sql: str | None = setting(
        "Query, instead of a table; a file is the table rows: SELECT * FROM rows.", TEXT, default=None, words=("query",)
    )
    events: Any = setting("Table or file of what happened when; metrics are taken from it.", ANYTHING, default=None)
    window: str | None = setting(
        "How long after a person's first exposure events count: 14d.", TEXT, "14d", default=None, words=("days",)
    )
    time: str = setting("Column with the time of an event.", NAME, default="time")
    exposure_time: str = setting("Column with the time of an exposure.", NAME, default="time")
    join: Any = setting("Second table or file with more columns about the same people.", ANYTHING, default=None)
    on: Names | None = setting(
        "Column by which --join is matched, such as user_id; several separated by commas.", NAMES, "user_id",
        default=None, words=("key",),
    )  # fmt: skip
    sep: str | None = setting(
        "What separates fields of a CSV file: ';', tab; default as its first lines show.", ANYTHING, ";", default=None,
        words=("delimiter",),
    )  # fmt: skip
    decimal: str = setting("Decimal mark of a CSV file; default a point.", ANYTHING, ",", default=".")
    first_by: str | None = setting(
        "Time by which covariates are those of a person's first row.", NAME, "time", default=None
    )
    cluster: Names | None = setting(
        "What arms were assigned by, if not by person: a shop; or several columns, city,hour. Each counts once.", NAMES,
        "shop", default=None, words=("assigned_by", "clusters"),
    )  # fmt: skip
    span: Any = setting("Only the people of these cohorts: a Span.", ANYTHING, default=None, flag="")


# ── how results are read ───────────────────────────────────────────────────────────────────────


class _Written(str):
    """An example that is code, not a text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


LOOKS, PRIOR = _Written("Looks('spending', looks=5)"), _Written("Prior(0, 0.01)")
CLAIMS = _Written("{'spend': Margin('non-inferiority', 0.1)}")


@describes
class Reading:
    """How results are read."""

    control: Any = setting("Arm to compare with.", ANYTHING, "A", default=None, words=("baseline", "reference"))
    confidence: float = setting(
        "Confidence of the intervals.", NUMBER, 0.9, default=0.95, words=("alpha", "level", "ci")
    )
    alternative: Alternative = setting(
        "Sides of the test.", one_of(Alternative), "greater", default="two-sided", words=("sides", "tail")
    )
    correction: AnyCorrection = setting(
        "Correction over metrics × arms.", one_of(AnyCorrection), "bh", default="holm",
        words=("multiplicity", "fdr", "adjustment"),
    )  # fmt: skip
    looks: Any = setting(
        "How it is read that is looked at more than once: Looks(…).",
        values_of("Looks", several=False),
        LOOKS, default=None, flag="",
        words=("sequential", "peeking", "always_valid"),
    )  # fmt: skip
    pool: Mapping[Any, Any] | None = setting(
        "Treat several arms as one.", Kind(_by_name), {"any": ["B", "C"]}, default=None
    )
    contrasts: Any = setting(
        "Comparisons of arms with each other.", CONTRASTS, ["B - C"], default=(), flag="--contrast"
    )
    margins: Mapping[str, Any] | None = setting(
        "Claims by metric: Margin(…).",
        MARGINS,
        CLAIMS,
        default=None,
        flag="",
        words=("claims", "non_inferiority"),
    )
    lower_is_better: Names = setting("Metrics of which less is better.", NAMES, ["returns"], default=())
    prior: Any = setting(
        "Prior of effects, for all metrics or by metric: Prior(…).",
        values_of("Prior"),
        PRIOR,
        default=None,
        words=("bayes", "bayesian"),
    )
    primary: Names = setting("Metrics that decide; others are guardrails or secondary.", NAMES, ["bought"], default=())
    guardrails: Names = setting("Metrics that must not get worse.", NAMES, ["latency"], default=(), flag="--guardrail")
    decision: Mapping[str, Any] | None = setting(
        "What it takes to ship an arm.", Kind(_by_name), {"people": 20_000}, default=None, words=("rule",)
    )
    test: RateTest = setting(
        "Test of plain effects of 0/1 metrics: Miettinen and Nurminen's score test, or Welch's t.", one_of(RateTest),
        "welch", default="score",
    )  # fmt: skip
    variance: Variance = setting(
        "Variance of adjusted effects: exact, or the paper's (Ding), a little smaller.", one_of(Variance), "paper",
        default="exact",
    )  # fmt: skip
    slopes: Slopes = setting(
        "Slopes of adjusted effects: every arm its own (Lin), or one for all arms (CUPED).", one_of(Slopes), "one",
        default="own", words=("cuped",),
    )  # fmt: skip


# ── names for values ───────────────────────────────────────────────────────────────────────────

AnyMetric = str | Mean | Ratio | Quantile
AnyCovariate = str | Covariate | Number


def metric_values(metrics: Iterable[AnyMetric]) -> list[Mean | Ratio | Quantile]:
    """Return metrics as values; raise `ArgumentError` for what is neither a name nor one."""
    return _values(metrics, "metrics", Mean, (Mean, Ratio, Quantile))


def covariate_values(covariates: Iterable[AnyCovariate], word: str) -> list[Covariate | Number]:
    """Return covariates as values; raise `ArgumentError` for what is neither a name nor one."""
    return _values(covariates, word, Covariate, (Covariate, Number))


def _values(given: Any, word: str, default: type, kinds: tuple[type, ...]) -> list[Any]:
    several = [given] if isinstance(given, (str, *kinds)) else given
    named = " or ".join(kind.__name__ for kind in kinds)
    if isinstance(several, (bytes, Mapping)) or hasattr(several, "columns") or not isinstance(several, Iterable):
        raise ArgumentError(f"{word} must be a list of names, of {named}", f"For example {word}=['spend'].")
    values = [default(each) if isinstance(each, str) else each for each in several]
    if not all(isinstance(each, kinds) for each in values):
        raise ArgumentError(f"{word} must be names, or values of {named}", f"For example {word}=['spend'].")
    return values
