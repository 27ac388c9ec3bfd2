"""The readout: effects, tests and checks of one experiment, as a value that prints itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from typing import Any, ClassVar

from kanab.analysis import methods
from kanab.analysis.compare import ClusterCounts
from kanab.analysis.decision import Decision, decide
from kanab.analysis.effect_rows import EFFECT_COLUMNS, EffectRow, plain
from kanab.analysis.methods.base import Findings, plain_tables
from kanab.analysis.sections import (
    brief_text,
    readout_figure,
    readout_html,
    readout_markdown,
    readout_text,
    report_html,
)
from kanab.arguments import check_arguments
from kanab.atomicfile import write_whole
from kanab.choices import OWN_ROWS, Alternative, Slopes, Variance
from kanab.dataframes import Frames, Row, Tables
from kanab.description import AnyCorrection
from kanab.errors import AnalysisError, listed, meant
from kanab.plan.declared import ControlChoice
from kanab.plan.model import DecisionRule
from kanab.privacy.release import Receipt
from kanab.report.figure import Figure
from kanab.stats.balance import BALANCE_ALARM, BalanceCheck
from kanab.stats.cautions import Caution
from kanab.stats.sequential import AnyTimeSampleRatio
from kanab.stats.srm import SAMPLE_RATIO_ALARM, SampleRatio, is_alarm
from kanab.tally.factor import Level, label
from kanab.tally.metric import Missing

Data = Mapping[str, Any]


@dataclass(frozen=True, repr=False)
class Readout(Frames[str]):
    """Everything known about one experiment. ``to_dict`` is documented and stable.

    ``missing`` says by metric what became of missing values, and how many people at least have none. ``rates`` are the
    metrics that are 0 or 1 for everybody; they are named in `to_dict` where noise hides it. ``own_rows`` says
    that it is internal: computed on rows, without the gate. ``results`` are what each method found, by its name. Of a
    readout that is narrowed to one metric, ``whole`` is the one that it was narrowed from.
    """

    experiment: str
    arms: Mapping[Level, int]
    control: Level
    confidence: float
    alternative: Alternative
    correction: AnyCorrection
    sample_ratio: SampleRatio
    effects: tuple[EffectRow, ...]
    receipt: Receipt
    results: Mapping[str, Findings] = field(default_factory=dict)
    cautions: tuple[Caution, ...] = ()
    pooled: Mapping[Level, Sequence[Level]] = field(default_factory=dict)
    missing: Mapping[str, tuple[Missing, int]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    chained: bool = False
    any_time: AnyTimeSampleRatio | None = None
    variance: Variance = "exact"
    slopes: Slopes = "own"
    balance: tuple[BalanceCheck, ...] = ()
    control_chosen: ControlChoice = "named"
    rule: DecisionRule = field(default_factory=DecisionRule)
    costs: tuple[str, ...] = ()
    clusters: ClusterCounts | None = None
    rates: tuple[str, ...] = ()
    own_rows: bool = False
    whole: Readout | None = None

    _columns: ClassVar[Mapping[str, Sequence[str]]] = {"effects": EFFECT_COLUMNS}

    def __getitem__(self, metric: str) -> Readout:
        """Return the same readout narrowed to one metric: what it prints, its rows and its figures.

        P-values stay corrected over all metrics, and the decision is the experiment's. Raises `AnalysisError` for a
        metric that there is not.
        """
        known = self._metrics
        if metric not in known:
            hint = f"{meant(metric, known)}Metrics: {listed(known) or 'none'}."
            raise AnalysisError("there is no effect on a metric of that name", hint)
        effects = tuple(row for row in self.effects if row.effect.metric == metric)
        return replace(self, effects=effects, whole=self.whole or self)

    def rows(self, table: str) -> tuple[Any, ...]:
        """Return the rows of a table as values: "effects", or a table of a method, such as "segment_effects".

        It is empty where nobody asked for it. Raises `AnalysisError` for a table that there is not.
        """
        read: dict[str, Sequence[Any]] = {}
        for method in methods.METHODS:
            read |= dict.fromkeys(method.tables, ())
        for result in self.results.values():
            read |= result.tables
        read["effects"] = self.effects
        if table not in read:
            raise AnalysisError(
                "there are no rows of that name", f"{meant(table, read)}Use one of: {', '.join(sorted(read))}."
            )
        if self.whole is None or table == "effects":
            return tuple(read[table])
        return tuple(row for row in read[table] if getattr(row, "metric", None) == self.effects[0].effect.metric)

    def __contains__(self, metric: object) -> bool:
        """Return whether there is an effect on a metric of that name."""
        return metric in self._metrics

    @property
    def _metrics(self) -> list[str]:
        return list(dict.fromkeys(row.effect.metric for row in self.effects))

    @property
    def decision(self) -> Decision | None:
        """What to do, and why, by the rule of the plan; None where no metric is primary, or the control is unknown."""
        decision = self.to_dict()["decision"]
        return None if decision is None else Decision(**decision)

    def __str__(self) -> str:
        return readout_text(self._shown())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return readout_html(self._shown())

    @check_arguments()
    def to_html(self, path: str | PathLike[str] | None = None) -> str:
        """Return the readout as one HTML page with pictures that loads nothing; with a path, also write it there."""
        page = report_html(self._shown())
        if path is not None:
            write_whole(path, page)
        return page

    @check_arguments()
    def to_text(self, width: int | None = None) -> str:
        """Return the readout as printed; with a width, tables that are wider are cut into several."""
        return readout_text(self._shown(), width=width)

    @check_arguments()
    def details(self, width: int | None = None) -> str:
        """Return the readout as printed, with what pages fold away and every field of every effect."""
        return readout_text(self._shown(), width=width, details=True)

    def to_brief(self) -> str:
        """Return the decision, alarms and one line per metric and arm, within 80 columns where names allow it."""
        return brief_text(self._shown())

    def to_markdown(self) -> str:
        """Return the readout in Markdown."""
        return readout_markdown(self._shown())

    @check_arguments(skip=("what",))
    def chart(self, what: str = "effects", *, metric: str | None = None) -> Figure:
        """Return a chart of effects, or of what else was asked for; of one metric or of all.

        Raises `AnalysisError` where there is nothing to draw.
        """
        return readout_figure(self._shown(), what, metric)

    @check_arguments(skip=("metric",))
    def plot(self, metric: str | None = None) -> Figure:
        """Return a chart of the effects, on one metric or on all; `chart` also draws what else was asked for."""
        return self.chart(metric=metric)

    def _tables(self) -> Tables:
        return _tables(self.to_dict())

    def _shown(self) -> dict[str, Any]:
        """Return the plain data as people read it: with several looks, p over all of them.

        Of one metric, all effects stay, for they are corrected together; ``narrowed`` names those to speak of.
        """
        data = self.to_dict()
        if self.whole is not None:
            shown = [self.effects[0].effect.metric]
            data |= {"effects": self.whole.to_dict()["effects"], "narrowed": shown}
        if self.any_time is not None:
            data["sample_ratio"] |= {"p": self.any_time.p}
        return data

    def _missing(self, metric: str) -> dict[str, Any]:
        rule, people = self.missing.get(metric, (None, 0))
        return {"missing": rule, "people_missing": people}

    def to_dict(self) -> dict[str, Any]:
        """Return the readout as plain data, ready for JSON; open ends of intervals are None."""
        if self.whole is not None:
            return _narrowed(self.whole.to_dict(), self.effects[0].effect.metric)
        data = self._plain()
        ratio = data["sample_ratio"]
        p = ratio["p"] if self.any_time is None else ratio["p_any_time"]
        return data | {"decision": decide(data | {"sample_ratio": ratio | {"p": p}})}

    def _plain(self) -> dict[str, Any]:
        return {
            "scope": OWN_ROWS if self.own_rows else "release",
            "experiment": self.experiment,
            "people": sum(self.arms.values()),
            "k": self.receipt.k,
            "control": label(self.control),
            "control_chosen": self.control_chosen,
            "arms": plain(self.arms),
            "confidence": self.confidence,
            "alternative": self.alternative,
            "correction": self.correction,
            "variance": self.variance,
            "slopes": self.slopes,
            "sample_ratio": {
                **plain(self.sample_ratio),
                "p_any_time": None if self.any_time is None else self.any_time.p,
                "limit": SAMPLE_RATIO_ALARM,
                "alarm": is_alarm(self.sample_ratio.p if self.any_time is None else self.any_time.p),
            },
            "balance": {
                "alarm": any(check.alarm for check in self.balance),
                "limit": BALANCE_ALARM,
                "rows": [_balance_row(check) for check in self.balance],
            },
            "pooled": {label(new): [*map(label, olds)] for new, olds in self.pooled.items()},
            "cautions": [
                {"kind": caution.code, "metric": caution.metric, "sentence": caution.sentence}
                for caution in self.cautions
            ],
            "effects": [row.to_dict() | self._missing(row.effect.metric) for row in self.effects],
            "promise": next((row.simultaneous.meaning for row in self.effects if row.simultaneous is not None), None),
            "rule": vars(self.rule),
            "privacy": self._privacy()
            | ({"people": dict(people)} if (people := self.receipt.people.get(self.experiment)) else {})
            | {"costs": list(self.costs)},
            "notes": list(self.notes),
            "clusters": plain(self.clusters),
            **plain_tables(methods.METHODS, self.results),
        }

    def _privacy(self) -> dict[str, Any]:
        done = _done(self.receipt)
        return done if self.own_rows else done | _promised(self.receipt, self.rates, chained=self.chained)


def _balance_row(check: BalanceCheck) -> dict[str, Any]:
    level = label(check.level) if check.about == "covariate" else None
    row: dict[str, Any] = plain(check)
    return row | {"alarm": check.alarm, "arm": label(check.arm), "level": level}


def _narrowed(data: dict[str, Any], metric: str) -> dict[str, Any]:
    """Return plain data without the rows of other metrics."""
    return {
        key: [row for row in value if not isinstance(row, Mapping) or row.get("metric") in (metric, None)]
        if isinstance(value, list)
        else value
        for key, value in data.items()
    }


def _done(receipt: Receipt) -> dict[str, Any]:
    batch = receipt.batch
    return {
        "k": receipt.k,
        "merged": {name: levels.merged_labels for name, levels in receipt.maps.items()},
        "left_out": dict(receipt.left_out),
        "deviations": list(receipt.deviations),
        "cohorts": None if batch is None else {"every": batch.every, "after": batch.after, "through": batch.through},
        "where": receipt.where,
        "choices": None if receipt.choices is None else dict(receipt.choices),
    }


def _promised(receipt: Receipt, rates: Sequence[str], *, chained: bool) -> dict[str, Any]:
    return {
        "effective_k": receipt.effective_k,
        "effective_k_within": receipt.effective_k_within,
        "smallest_class": receipt.smallest_class,
        "classes": receipt.classes,
        "audit": "passed",
        "homogeneous": receipt.homogeneous,
        "narrowest": receipt.narrowest,
        "chained": chained,
        "ledger": receipt.ledger or None,
    } | ({} if receipt.noise is None else {"noise": {**asdict(receipt.noise), "rates": list(rates)}})


# ── tables that become frames ──────────────────────────────────────────────────────────────────


def _tables(data: Data) -> Tables:
    of_methods = {name: rows for each in methods.METHODS for name, rows in each.frames(data).items()}
    ratio, privacy = data["sample_ratio"], data["privacy"]
    return {
        "effects": data["effects"],
        **of_methods,
        "arms": [*_arms(data)],
        "pooled": [{"arm": arm, "of": of} for arm, ofs in data["pooled"].items() for of in ofs],
        "sample_ratio": [{name: value for name, value in ratio.items() if name not in ("residuals", "shares")}],
        "balance": [row | {"limit": data["balance"]["limit"]} for row in data["balance"]["rows"]],
        "missing": _missing(data),
        "cautions": data["cautions"],
        "decision": [*_decision(data)],
        "rule": [data["rule"]],
        "privacy": [_privacy(privacy)],
        "costs": [{"sentence": sentence} for sentence in privacy["costs"]],
        "merged": [*_merged(privacy)],
        "left_out": [{"table": table, "why": why} for table, why in privacy["left_out"].items()],
        "noise": [*_noise(privacy)],
        "notes": [{"sentence": sentence} for sentence in data["notes"]],
    }


def _privacy(privacy: Data) -> Row:
    row = {name: value for name, value in privacy.items() if name not in ("merged", "left_out", "costs")}
    noise = {name: value for name, value in privacy.get("noise", {}).items() if name != "scales"}
    return row | ({"noise": noise} if noise else {})


def _merged(privacy: Data) -> Iterator[Row]:
    for covariate, levels in privacy["merged"].items():
        yield from ({"covariate": covariate, "level": new, "of": of} for new, ofs in levels.items() for of in ofs)


def _noise(privacy: Data) -> Iterator[Row]:
    for table, scales in privacy.get("noise", {}).get("scales", {}).items():
        yield from ({"table": table, "statistic": name, "scale": scale} for name, scale in scales.items())


def _arms(data: Data) -> Iterator[Row]:
    ratio, clusters = data["sample_ratio"], data["clusters"]
    for arm, people in data["arms"].items():
        row = {
            "arm": arm, "control": arm == data["control"], "people": people,
            "share": ratio["shares"].get(arm), "residual": ratio["residuals"].get(arm),
        }  # fmt: skip
        if clusters is not None:
            by_arm = clusters["people"] or {}
            row |= {"assigned_by": clusters["by"], "clusters": clusters["clusters"].get(arm)}
            row |= {"people": by_arm.get(arm), "rates": clusters["rates"]}
        yield row


def _missing(data: Data) -> list[Row]:
    rules = {row["metric"]: {name: row[name] for name in ("missing", "people_missing")} for row in data["effects"]}
    return [{"metric": metric} | rule for metric, rule in rules.items() if rule["missing"] is not None]


def _decision(data: Data) -> Iterator[Row]:
    """Yield a row for every sentence behind the decision; nothing where no metric is primary."""
    decision = data["decision"]
    if decision is not None:
        beside = {name: value for name, value in decision.items() if name not in ("arms", "because", "rule")}
        yield from (beside | {"because": sentence} for sentence in decision["because"])
