"""The plan file: read from TOML, or refused with every mistake in it at once; and plans as plain data.

A file declares everything: the arms with their shares, the bounds of every metric, the covariates.
What it does not name cannot be stored or released, and a key that nobody knows is a mistake.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, get_args

from kanab.arguments import check_arguments
from kanab.atomicfile import read_text
from kanab.choices import DEFAULT_K
from kanab.errors import PlanError
from kanab.fields import WrongValueError
from kanab.plan import values
from kanab.plan.check import find_mistakes, nearest, path_to, refuse
from kanab.plan.joint_shares import nested, plain_number
from kanab.plan.model import (
    SHEET_ENTRIES,
    Budget,
    Cohorts,
    CovariatePlan,
    DecisionRule,
    ExperimentPlan,
    MetricPlan,
    Plan,
)
from kanab.plan.notify_plan import EVENTS, PORTS, MailPlan, NotifyPlan
from kanab.tally.metric import Missing

_T = TypeVar("_T")
_REMOVED = {"survival": "was removed; count a 0/1 metric within a window instead, such as cancelled after 28 days"}
_PLACE = re.compile(r" \(at (line \d+, column \d+|end of document)\)$")


@check_arguments()
def read_plan(path: str | PathLike[str]) -> Plan:
    """Read the plan of a TOML file. Raises `PlanError`, with all mistakes, where it cannot be read or is wrong."""
    return _parsed(read_text(path, PlanError), Path(path).name)


@check_arguments()
def parse_plan(text: str) -> Plan:
    """Read the plan that a TOML text declares. Raises `PlanError` with all mistakes where it has any.

    >>> plan = parse_plan('''
    ... [metrics]
    ... spend = { bounds = [0, 500], resolution = 0.01 }
    ... [experiments.checkout]
    ... arms = { A = 1, B = 1 }
    ... ''')
    >>> plan.k, plan.experiment().arms, plan.experiment().control
    (10, ('A', 'B'), 'A')
    """
    return _parsed(text, "the plan")


def plan_from_dict(data: Any) -> Plan:
    """Read a plan that ``plan_to_dict`` wrote; unlike a file it may leave arms and bounds to the data.

    Raises `PlanError` with all mistakes where it has any.
    """
    return _built(data, "the plan", file=False)


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """Return the plan as plain data in the shape of its file, ready for JSON; defaults are left out.

    >>> from kanab.description import Mean
    >>> from kanab.plan.model import make_plan
    >>> plan_to_dict(make_plan("variant", [Mean("spend", bounds=(0, 500))], adjust=["tier"]))["metrics"]
    {'spend': {'bounds': [0, 500]}}
    """
    cohorts = plan.cohorts
    return _without_empty(
        k=plan.k,
        origins=list(plan.origins),
        durability=plan.durability if plan.durability != Plan.durability else None,
        nonce_life=plan.nonce_life if plan.nonce_life != Plan.nonce_life else None,
        vouch=plan.vouch or None,
        cohorts=cohorts and {"every": cohorts.every, "window": cohorts.window, "seal": cohorts.seal},
        covariates={covariate.name: _covariate_to_dict(covariate) for covariate in plan.covariates},
        metrics={metric.name: _metric_to_dict(metric) for metric in plan.metrics},
        experiments={experiment.name: _experiment_to_dict(experiment) for experiment in plan.experiments},
        privacy=plan.budget and _budget_to_dict(plan.budget),
    )


def _budget_to_dict(budget: Budget) -> dict[str, Any]:
    return _without_empty(
        epsilon=budget.epsilon,
        delta=budget.delta,
        per_release=budget.per_release,
        weights=dict(sorted(budget.weights.items())),
        beside_exact=budget.beside_exact or None,
        shares=dict(sorted(budget.shares.items())) or None,
        stores=budget.stores if budget.stores != Budget.stores else None,
    )


@check_arguments()
def plan_digest(plan: Plan) -> str:
    """Return the SHA-256 of the plan's canonical JSON: equal plans have equal digests."""
    text = json.dumps(plan_to_dict(plan), separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


# ── reading ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Table:
    """One table with its path; ``file`` says that everything must be declared."""

    keys: Mapping[str, Any]
    path: tuple[str, ...]
    mistakes: list[str]
    file: bool

    def wrong(self, key: str, problem: str) -> None:
        self.mistakes.append(f"{path_to(*self.path, key)} {problem}")

    def only(self, *known: str) -> None:
        for key in self.keys:
            if key not in known:
                self.wrong(key, _REMOVED.get(key) or f"is an unknown key; {nearest(key, known, 'known')}")

    def needs(self, key: str, example: str) -> None:
        if self.file and key not in self.keys:
            self.wrong(key, f"is missing: {example}")

    def get(self, key: str, read: Callable[[Any], _T], default: _T) -> _T:
        """Read a value, or return its default where it is absent or wrong."""
        try:
            return read(self.keys[key]) if key in self.keys else default
        except WrongValueError as problem:
            self.wrong(key, str(problem))
            return default

    def table(self, key: str) -> _Table:
        entries = self.keys.get(key, {})
        if not isinstance(entries, dict):
            self.wrong(key, "must be a table")
            return _Table({}, (*self.path, key), self.mistakes, file=False)
        return _Table(entries, (*self.path, key), self.mistakes, self.file)

    def tables(self, key: str) -> Iterator[tuple[str, _Table]]:
        group = self.table(key)
        yield from ((name, group.table(name)) for name in group.keys)


def _parsed(text: str, where: str) -> Plan:
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as problem:
        place = _PLACE.search(str(problem))
        fact = _PLACE.sub("", str(problem)) if place else "a value is too long or too deep"
        line = place[1] if place and place[1].startswith("line") else f"line {len(text.splitlines()) or 1}"
        raise PlanError(f"{where} is not valid TOML: {fact}", at=line if place else "") from None
    return _built(data, where, file=True)


def _built(data: Any, where: str, *, file: bool) -> Plan:
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise PlanError(f"{where} must be a table", "docs/how-to/plan.md shows one.")
    root = _Table(data, (), [], file)
    root.only(
        "k",
        "origins",
        "durability",
        "nonce_life",
        "vouch",
        "cohorts",
        "covariates",
        "metrics",
        "experiments",
        "export",
        "privacy",
        *(["sheet", "notify", "own_rows"] if file else []),
    )
    metrics = tuple(_metric(name, table) for name, table in root.tables("metrics"))
    covariates, sheet = root.table("covariates"), root.table("sheet")
    sheet.only(*SHEET_ENTRIES)
    plan = Plan(
        metrics,
        tuple(
            _experiment(name, table, [metric.name for metric in metrics]) for name, table in root.tables("experiments")
        ),
        tuple(_covariate(name, covariates) for name in covariates.keys),
        root.get("k", lambda k: k, DEFAULT_K),
        _cohorts(root.table("cohorts")) if "cohorts" in data else None,
        root.get("origins", values.origins, ()),
        root.get("durability", values.one_of("disk", "memory"), Plan.durability),
        root.get("nonce_life", values.span, Plan.nonce_life),
        _export(root.table("export")) if file and "export" in data else None,
        _budget(root.table("privacy")) if "privacy" in data else None,
        {key: sheet.get(key, values.prose, "") for key in sheet.keys if key in SHEET_ENTRIES},
        _notify(root.table("notify")) if file and "notify" in data else None,
        root.get("own_rows", values.one_of("internal", "gated"), Plan.own_rows),
        root.get("vouch", values.one_of(False, True), Plan.vouch),
    )
    if file:
        root.mistakes.extend(_undeclared(plan))
    refuse(list(dict.fromkeys([*root.mistakes, *find_mistakes(plan)])), where)
    return plan


def _export(table: _Table) -> str | None:
    """Read where ledgers go: a setting of the machine, so that no release and no version of the plan holds it."""
    table.only("to")
    table.needs("to", "a folder, or an address such as 's3://bucket/folder'")
    return table.get("to", values.text, None)


def _notify(table: _Table) -> NotifyPlan:
    """Read who is told about seals and alarms: a setting of the machine, without its secrets."""
    table.only("events", "url", "slack", "json", "mail")
    slack, json_table = table.table("slack"), table.table("json")
    if "to" in slack.keys:
        slack.wrong("to", "holds a secret: leave it out, and set KANAB_NOTIFY_SLACK or KANAB_NOTIFY_SLACK_FILE")
    slack.only("to")
    json_table.only("to")
    if not {"slack", "json", "mail"} & table.keys.keys():
        table.mistakes.append("notify tells nobody: add [notify.slack], [notify.json] or [notify.mail]")
    return NotifyPlan(
        table.get("events", values.some_of(*EVENTS), EVENTS),
        table.get("url", values.web_address, None),
        "slack" in table.keys,
        "json" in table.keys,
        json_table.get("to", values.web_address, None),
        _mail(table.table("mail")) if "mail" in table.keys else None,
    )


def _mail(table: _Table) -> MailPlan:
    table.only("server", "from", "to", "encryption", "user")
    table.needs("server", "a host such as 'mail.example:587'")
    table.needs("from", "a mailbox such as 'kanab@shop.example'")
    table.needs("to", "mailboxes such as ['team@shop.example']")
    encryption = table.get("encryption", values.one_of(*PORTS), MailPlan.encryption)
    nowhere: tuple[str, int | None] = "", None
    host, port = table.get("server", values.mail_server, nowhere)
    return MailPlan(
        host,
        port or PORTS[encryption],
        table.get("from", values.mail_address, ""),
        table.get("to", values.mail_addresses, ()),
        encryption,
        table.get("user", values.prose, None),
    )


def _budget(table: _Table) -> Budget | None:
    """Read what releases with noise may spend; ``find_mistakes`` says what is wrong with the numbers."""
    older = [] if table.file else ["beside_exact"]
    table.only("epsilon", "delta", "per_release", "weights", "shares", "stores", *older)
    if "epsilon" not in table.keys:
        table.wrong("epsilon", "is missing: what everything may tell about one person, for example 1")
        return None
    weights, shares = table.table("weights"), table.table("shares")
    return Budget(
        table.get("epsilon", values.number, 1.0),
        table.get("delta", values.number, Budget.delta),
        table.get("per_release", values.number, None),
        {name: weights.get(name, values.number, 1.0) for name in weights.keys},
        table.get("beside_exact", values.text, ""),
        {name: shares.get(name, values.number, 1.0) for name in shares.keys},
        table.get("stores", values.positive_whole, Budget.stores),
    )


def _undeclared(plan: Plan) -> Iterator[str]:
    for group, members in (("metrics", plan.metrics), ("experiments", plan.experiments)):
        if not members:
            yield f"{group} is missing: name at least one"
    declared = [covariate.name for covariate in plan.covariates]
    for experiment in plan.experiments:
        for key, names in (("adjust", experiment.adjust), ("segments", experiment.segments)):
            for name in names:
                if name not in declared:
                    path = path_to("experiments", experiment.name, key)
                    yield f"{path} names an unknown covariate, {name!r}; {nearest(name, declared)}"


def _metric(name: str, table: _Table) -> MetricPlan:
    table.only("kind", "bounds", "resolution", "missing", "of", "sensitive", "ratio", "squares", "least_events", "bins")
    if not {"kind", "ratio"} & set(table.keys):
        table.needs("bounds", "[lower, upper], or kind = 'binary'")
    return MetricPlan(
        name,
        table.get("bounds", values.bounds, None),
        table.get("resolution", values.number, None),
        table.get("kind", values.one_of("binary"), None) == "binary",
        table.get("missing", values.one_of(*get_args(Missing)), MetricPlan.missing),
        table.get("of", values.text, None),
        {False: "no", True: "yes", "both": "both"}[table.get("sensitive", values.one_of(False, True, "both"), False)],  # type: ignore[arg-type]
        table.get("ratio", values.two_names, None),
        table.get("squares", values.one_of("marginals", "class"), MetricPlan.squares),
        table.get("least_events", values.positive_whole, None),
        table.get("bins", values.bins, None),
    )


def _covariate(name: str, group: _Table) -> CovariatePlan:
    if not isinstance(group.keys[name], dict):
        return CovariatePlan(name, group.get(name, values.levels, None))
    table = group.table(name)
    table.only("levels", "bins", "top", "score")
    return CovariatePlan(
        name,
        table.get("levels", values.levels, None),
        table.get("bins", values.bins, None),
        table.get("top", lambda n: n, None),
        table.get("score", values.one_of(False, True), CovariatePlan.score),
    )


def _experiment(name: str, table: _Table, metrics: list[str]) -> ExperimentPlan:
    table.only(
        "arms", "control", "adjust", "segments", "interactions", "salt", "exclude_with", "holdout", "tolerance",
        "looks", "joint_shares", *([] if table.file else ["only"]),
        "primary", "guardrails", "lower_is_better", "non_inferiority", "decision",
        "received", "quantiles",
    )  # fmt: skip
    table.needs("arms", "name at least two with their shares, such as { A = 1, B = 1 }")
    shares = table.get("arms", values.shares, None)
    arms = [arm for arm, _ in shares or ()]
    adjust: tuple[str, ...] = table.get("adjust", values.names, ())
    if table.file:  # where any order means the same; that of plain data stays, for its digest
        adjust = tuple(sorted(adjust))
    control = table.get("control", values.level, arms[0] if arms and table.file else None)
    return ExperimentPlan(
        name,
        shares,
        next((arm for arm in arms if str(arm) == str(control)), control),
        tuple(covariate for covariate in adjust if covariate not in metrics),
        table.get("segments", values.names, ()),
        table.get("interactions", values.names, ()),
        table.get("salt", values.text, None),
        table.get("exclude_with", values.names, ()),
        table.get("holdout", values.proportion, ExperimentPlan.holdout),
        table.get("tolerance", lambda value: values.tolerance(value, metrics), {}),
        table.get("looks", values.positive_whole, None),
        table.get("joint_shares", values.joint_shares, {}),
        None if table.file else table.get("only", values.levels, None),
        table.get("primary", values.names, ()),
        table.get("guardrails", values.names, ()),
        table.get("lower_is_better", values.names, ()),
        table.get("non_inferiority", values.sizes, {}),
        _decision(table.table("decision")),
        tuple(metric for metric in adjust if metric in metrics),
        received=table.get("received", values.text, None),
        quantiles=table.get("quantiles", values.probabilities, {}),
    )


def _decision(table: _Table) -> DecisionRule:
    table.only(*values.SWITCHES)
    switches = {name: table.get(name, read, getattr(DecisionRule, name)) for name, read in values.SWITCHES.items()}
    return DecisionRule(**switches)


def _cohorts(table: _Table) -> Cohorts:
    table.only("every", "window", "seal")
    return Cohorts(
        table.get("every", values.days, Cohorts.every),
        table.get("window", values.span, Cohorts.window),
        table.get("seal", values.tick, Cohorts.seal),
    )


# ── writing ────────────────────────────────────────────────────────────────────────────────────


def _without_empty(**entries: Any) -> dict[str, Any]:
    """Leave out None and empty lists."""
    return {key: value for key, value in entries.items() if value is not None and value != []}


def _covariate_to_dict(covariate: CovariatePlan) -> Any:
    levels, score = plain_number(covariate.levels), covariate.score or None
    if levels is not None and not score:
        return levels
    return _without_empty(levels=levels, bins=plain_number(covariate.bins), top=covariate.top, score=score)


def _metric_to_dict(metric: MetricPlan) -> dict[str, Any]:
    return _without_empty(
        kind="binary" if metric.binary else None,
        bounds=plain_number(metric.bounds),
        resolution=plain_number(metric.resolution),
        missing="exclude" if metric.missing == "exclude" else None,
        of=metric.of,
        sensitive={"no": None, "yes": True, "both": "both"}[metric.sensitive],
        ratio=plain_number(metric.ratio),
        squares=metric.squares if metric.squares != MetricPlan.squares else None,
        least_events=metric.min_events,
        bins=plain_number(metric.bins),
    )


def _experiment_to_dict(experiment: ExperimentPlan) -> dict[str, Any]:
    texts = all(isinstance(arm, str) for arm in experiment.arms or ())
    shares = [[arm, plain_number(share)] for arm, share in experiment.shares or ()]
    decision = vars(experiment.decision)
    return _without_empty(
        arms={str(arm): share for arm, share in shares} if texts and shares else shares,
        control=experiment.control,
        adjust=[*experiment.adjust, *experiment.numbers],
        segments=list(experiment.segments),
        interactions=list(experiment.interactions),
        salt=experiment.salt,
        exclude_with=list(experiment.exclude_with),
        holdout=plain_number(experiment.holdout) or None,
        tolerance={name: plain_number(experiment.tolerance[name]) for name in sorted(experiment.tolerance)} or None,
        looks=experiment.looks,
        joint_shares={name: nested(shares) for name, shares in sorted(experiment.joint_shares.items())} or None,
        only=plain_number(experiment.only),
        primary=list(experiment.primary),
        guardrails=list(experiment.guardrails),
        lower_is_better=list(experiment.lower_is_better),
        non_inferiority={name: _size(*experiment.non_inferiority[name]) for name in sorted(experiment.non_inferiority)}
        or None,
        decision={key: value for key, value in decision.items() if value != getattr(DecisionRule, key)} or None,
        received=experiment.received,
        quantiles={name: list(shares) for name, shares in experiment.quantiles.items()} or None,
    )


def _size(size: float, relative: bool) -> float | str:
    """Write a size as it is read: a number, or a percentage."""
    return f"{100 * size:.12g}%" if relative else plain_number(size)
