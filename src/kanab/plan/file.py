"""The plan file: read from TOML, or refused with every mistake in it at once; and plans as plain data."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kanab.arguments import check_arguments
from kanab.atomicfile import read_text
from kanab.errors import PlanError, closest, listed
from kanab.fields import Kind, WrongValueError, described, spellings
from kanab.plan import values
from kanab.plan.check import find_mistakes, nearest, path_to, refuse
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
from kanab.plan.notify_plan import PORTS, MailPlan, NotifyPlan

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
    """Read a plan that ``plan_to_dict`` wrote, which may leave arms and bounds to the data; or raise `PlanError`."""
    return _built(data, "the plan", file=False)


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """Return the plan as plain data in the shape of its file, ready for JSON; defaults are left out."""
    own, cohorts, budget = _written(plan), plan.cohorts, plan.budget
    experiments = [replace(each, adjust=(*each.adjust, *each.numbers)) for each in plan.experiments]
    return (
        {"k": plan.k}
        | {key: own[key] for key in ("origins", "durability", "nonce_life", "vouch") if key in own}
        | ({} if cohorts is None else {"cohorts": vars(cohorts)})
        | {"covariates": {covariate.name: _covariate_to_dict(covariate) for covariate in plan.covariates}}
        | {"metrics": {metric.name: _written(metric) for metric in plan.metrics}}
        | {"experiments": {experiment.name: _written(experiment) for experiment in experiments}}
        | ({} if budget is None else {"privacy": _budget_to_dict(budget)})
    )


def _budget_to_dict(budget: Budget) -> dict[str, Any]:
    always = {"epsilon": budget.epsilon, "delta": budget.delta}
    if budget.per_release is not None:
        always["per_release"] = budget.per_release
    return always | {"weights": dict(sorted(budget.weights.items()))} | _written(budget)


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

    def only(self, known: Iterable[str], words: Mapping[str, str] = MappingProxyType({})) -> None:
        """Note the keys that nobody knows; ``words`` are other words for those that are known."""
        names = {**words, **{key: key for key in known}}
        for key in (key for key in self.keys if key not in known):
            near = closest(key, names)
            meant = f"did you mean {names[near[0]]!r}?" if near else f"known: {listed(known)}"
            self.wrong(key, _REMOVED.get(key) or f"is an unknown key; {meant}")

    def needs(self, key: str, example: str) -> None:
        if self.file and key not in self.keys:
            self.wrong(key, f"is missing: {example}")

    def get(self, key: str, kind: Kind, default: Any) -> Any:
        """Read a value, or return its default where it is absent or wrong."""
        try:
            return kind.read(self.keys[key]) if key in self.keys else default
        except WrongValueError as problem:
            self.wrong(key, str(problem))
            return default

    def fields(self, cls: Any, *without: str, more: Sequence[str] = ()) -> dict[str, Any]:
        """Read the keys of the fields of a class, but for some; ``more`` are known, too, and read elsewhere."""
        known = {each.key: each for each in described(cls).values() if each.key not in without}
        known_as = {each.name: each.key for each in known.values()}
        words = {word: known_as[name] for word, name in spellings(known.values()).items()}
        self.only([*known, *more], words)
        return {each.name: self.get(key, each.setting.kind, each.default) for key, each in known.items()}

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
    tables = ["cohorts", "covariates", "metrics", "experiments", "export", "privacy"]
    said = root.fields(Plan, more=[*tables, "sheet", "notify"]) if file else root.fields(Plan, "own_rows", more=tables)
    metrics = tuple(_metric(name, table) for name, table in root.tables("metrics"))
    names = [metric.name for metric in metrics]
    covariates, sheet = root.table("covariates"), root.table("sheet")
    sheet.only(SHEET_ENTRIES)
    plan = Plan(
        metrics,
        tuple(_experiment(name, table, names) for name, table in root.tables("experiments")),
        tuple(_covariate(name, covariates) for name in covariates.keys),
        cohorts=Cohorts(**root.table("cohorts").fields(Cohorts)) if "cohorts" in data else None,
        export=_export(root.table("export")) if file and "export" in data else None,
        budget=_budget(root.table("privacy")) if "privacy" in data else None,
        sheet={key: sheet.get(key, values.PROSE, "") for key in sheet.keys if key in SHEET_ENTRIES},
        notify=_notify(root.table("notify")) if file and "notify" in data else None,
        **said,
    )
    if file:
        root.mistakes.extend(_undeclared(plan))
    refuse(list(dict.fromkeys([*root.mistakes, *find_mistakes(plan)])), where)
    return plan


def _export(table: _Table) -> str | None:
    """Read where ledgers go: a setting of the machine, so that no release and no version of the plan holds it."""
    table.only(["to"])
    table.needs("to", "a folder, or an address such as 's3://bucket/folder'")
    place: str | None = table.get("to", values.NAME, None)
    return place


def _notify(table: _Table) -> NotifyPlan:
    """Read who is told about seals and alarms: a setting of the machine, without its secrets."""
    slack, json_table = table.table("slack"), table.table("json")
    channels = [name for name in ("slack", "json", "mail") if name in table.keys]
    if "to" in slack.keys:
        slack.wrong("to", "holds a secret: leave it out, and set KANAB_NOTIFY_SLACK or KANAB_NOTIFY_SLACK_FILE")
    slack.only(["to"])
    json_table.only(["to"])
    if not channels:
        table.mistakes.append("notify tells nobody: add [notify.slack], [notify.json] or [notify.mail]")
    return NotifyPlan(
        slack="slack" in channels,
        json="json" in channels,
        json_to=json_table.get("to", values.WEB_ADDRESS, None),
        mail=_mail(table.table("mail")) if "mail" in channels else None,
        **table.fields(NotifyPlan, more=["slack", "json", "mail"]),
    )


def _mail(table: _Table) -> MailPlan:
    table.needs("server", "a host such as 'mail.example:587'")
    table.needs("from", "a mailbox such as 'kanab@shop.example'")
    table.needs("to", "mailboxes such as ['team@shop.example']")
    said = table.fields(MailPlan)
    host, port = said.pop("server") or ("", None)
    return MailPlan(host, port or PORTS[said["encryption"]], **said)


def _budget(table: _Table) -> Budget | None:
    """Read what releases with noise may spend; ``find_mistakes`` says what is wrong with the numbers."""
    said = table.fields(Budget, *(["beside_exact"] if table.file else []))
    if "epsilon" not in table.keys:
        table.wrong("epsilon", "is missing: what everything may tell about one person, for example 1")
        return None
    return Budget(**said)


def _undeclared(plan: Plan) -> Iterator[str]:
    for group, members in (("metrics", plan.metrics), ("experiments", plan.experiments)):
        if not members:
            yield f"{group} is missing: name at least one"
    declared = [covariate.name for covariate in plan.covariates]
    for experiment in plan.experiments:
        for key, names in (("adjust", experiment.adjust), ("segments", experiment.segments)):
            for name in (name for name in names if name not in declared):
                path = path_to("experiments", experiment.name, key)
                yield f"{path} names an unknown covariate, {name!r}; {nearest(name, declared)}"


def _metric(name: str, table: _Table) -> MetricPlan:
    if not {"kind", "ratio"} & set(table.keys):
        table.needs("bounds", "[lower, upper], or kind = 'binary'")
    return MetricPlan(name, **table.fields(MetricPlan))


def _covariate(name: str, group: _Table) -> CovariatePlan:
    if not isinstance(group.keys[name], dict):
        return CovariatePlan(name, group.get(name, values.LEVELS, None))
    return CovariatePlan(name, **group.table(name).fields(CovariatePlan))


def _experiment(name: str, table: _Table, metrics: list[str]) -> ExperimentPlan:
    table.needs("arms", "name at least two with their shares, such as { A = 1, B = 1 }")
    rule = table.table("decision")
    said = table.fields(ExperimentPlan, *(["only"] if table.file else []))
    arms, control, adjust = [arm for arm, _ in said["shares"] or ()], said["control"], said["adjust"]
    if table.file:  # where any order means the same; that of plain data stays, for its digest
        adjust = tuple(sorted(adjust))
        control = arms[0] if control is None and arms else control
    tolerance = said["tolerance"]
    said |= {
        "control": next((arm for arm in arms if str(arm) == str(control)), control),
        "adjust": tuple(each for each in adjust if each not in metrics),
        "numbers": tuple(each for each in adjust if each in metrics),
        "tolerance": tolerance if isinstance(tolerance, dict) else dict.fromkeys(metrics, tolerance),
        "decision": DecisionRule(**rule.fields(DecisionRule)),
    }
    return ExperimentPlan(name, **said)


# ── writing ────────────────────────────────────────────────────────────────────────────────────


def _written(plan: Any) -> dict[str, Any]:
    """Return what a plan, or a part of it, says other than by default, in the order in which plans are written."""
    cls: Any = type(plan)
    entries: dict[str, Any] = {}
    for each in described(cls).values():
        value = getattr(plan, each.name)
        if value != each.default:
            entries[each.key] = _written(value) if is_dataclass(value) else each.setting.kind.write(value)
    return {key: value for key, value in entries.items() if value is not None and value != []}


def _covariate_to_dict(covariate: CovariatePlan) -> Any:
    entries = _written(covariate)
    return entries["levels"] if [*entries] == ["levels"] else entries
