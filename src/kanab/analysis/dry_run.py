"""What a release would give, beside what was counted, without releasing it: what merges, what stays out, and why."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from kanab.analysis.own_rows import own_rows
from kanab.choices import INTERNAL, OWN_ROWS
from kanab.counted import Counted
from kanab.errors import PrivacyError, flag, listed
from kanab.plan.model import Plan
from kanab.privacy.costs import costs_of
from kanab.privacy.gate import make_release
from kanab.privacy.ledger import Ledger
from kanab.privacy.recoding import narrower
from kanab.privacy.release import OwnRows, Release
from kanab.stats.cautions import rows_not_people
from kanab.tabular import Table

NOTHING_WRITTEN = "Dry run: nothing was written, and no ledger has a note of it."

_MOST_TRIED = 6
"""So many smaller numbers of levels, or narrower bounds, are tried for what stays out: each counts everybody again."""

_MOST_COUNTS = 24
"""So many times everybody is counted again at most."""


@dataclass(frozen=True, eq=False)
class DryRun:
    """Everything that was counted, and the release of it; None where it would be ``refused``, with the sentence.

    ``keeping`` are flags that would keep what stays out, by the name that the receipt has for it.
    """

    own: OwnRows
    released: Release | None
    refused: str = ""
    keeping: dict[str, str] = field(default_factory=dict)

    @property
    def merged(self) -> dict[str, str]:
        """Which levels become one, by table; those of two covariates at a time after those of one."""
        if self.released is None:
            return {}
        merged = {name: levels.merged_labels for name, levels in self.released.receipt.maps.items()}
        return {
            name: "; ".join(f"{listed(olds)} → {new}" for new, olds in levels.items())
            for name, levels in merged.items()
        }

    @property
    def stays_out(self) -> dict[str, str]:
        """What would not be in the release, each with the receipt's sentence."""
        return {} if self.released is None else dict(self.released.receipt.left_out)

    @property
    def costs(self) -> list[str]:
        """What merging and leaving out would cost."""
        return [] if self.released is None else costs_of(self.released)

    @property
    def undeclared(self) -> str:
        """What has to be declared before a file can be written; nothing where it all is."""
        if self.released is None or self.released.bounds_declared:
            return ""
        plans = self.own.plan.metrics_by_name
        binary = {m.name for table in self.own.tables.values() for m in table.metrics if m.binary}
        names = [name for name, plan in plans.items() if not (plan.declared or plan.ratio or name in binary)]
        example = flag("--bounds", f"{names[0]}=LOW:HIGH")
        return f"bounds of {listed(names)} were taken from the data: a file needs declared ones ({example})"

    def differences(self) -> list[str]:
        """Return a sentence for everything in which the release differs from the tables of the rows."""
        if self.released is None:
            return [f"a release would be refused: {self.refused}"]
        coarser = [name for name in self.merged if not self._alike(name)]
        sentences = [f"levels merged in {name}: {self.merged[name]}" for name in coarser]
        left_out = self.own.receipt.left_out
        sentences += [sentence for name, sentence in self.stays_out.items() if name not in left_out]
        return [*sentences, *([self.undeclared] if self.undeclared else [])]

    def _alike(self, name: str) -> bool:
        released = None if self.released is None else self.released.tables.get(name)
        own = self.own.tables.get(name)
        return released is not None and own is not None and released.shape == own.shape

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, which nothing takes for a release."""
        return {
            "scope": OWN_ROWS,
            "refused": self.refused or None,
            "leaves": [dict(zip(("table", "levels", "metrics"), row, strict=True)) for row in self._leaves()],
            "merges": self.merged,
            "stays_out": [
                {"what": name, "why": why, "keeps_it": self.keeping.get(name)} for name, why in self.stays_out.items()
            ],
            "undeclared": self.undeclared or None,
            "costs": self.costs,
        }

    def _leaves(self) -> Iterator[tuple[str, str, str]]:
        for name, table in ({} if self.released is None else self.released.tables).items():
            levels = " × ".join(str(len(factor.levels)) for factor in table.covariates)
            yield name, levels or "arms", ", ".join(table.metric_names) or "people"

    def __str__(self) -> str:
        lines = [NOTHING_WRITTEN, INTERNAL, ""]
        if self.released is None:
            return "\n".join([*lines, f"A release would be refused: {self.refused}"])
        lines += str(Table(("leaves", "levels", "metrics"), tuple(self._leaves()))).splitlines()
        lines += [f"- {rows_not_people(column)}" for column in self.own.receipt.repeats]
        lines += [f"- Merges in {name}: {into}." for name, into in self.merged.items()]
        for name, why in self.stays_out.items():
            keeps = f" {self.keeping[name]} keeps it." if name in self.keeping else ""
            lines.append(f"- Stays out: {why}.{keeps}")
        lines += [f"- Cost: {sentence}." for sentence in self.costs]
        lines += [f"- Not yet: {self.undeclared}."] if self.undeclared else []
        return "\n".join(lines)


def try_release(counted: Counted, k: int | None = None, *, override: str = "", ledger: Ledger | None = None) -> DryRun:
    """Make a release after those of a ledger, compare it with what was counted, and write nothing."""
    own = own_rows(counted, k)
    try:
        return DryRun(own, make_release(counted, k, override=override, ledger=ledger))
    except PrivacyError as problem:
        return DryRun(own, None, f"{problem.fact}. {problem.remedy}")


def with_keeping_flags(run: DryRun, again: Callable[[Plan], DryRun]) -> DryRun:
    """Add the flags that would keep what stays out: fewer levels, then narrower bounds, tried one after the other."""
    keeping: dict[str, str] = {}
    tried: dict[str, DryRun] = {}
    for name in run.stays_out:
        table, _, metric = name.partition(": ")
        for plan, words in (*_fewer_levels(run, table), *_narrower_bounds(run, metric)):
            if words not in tried and len(tried) < _MOST_COUNTS:
                tried[words] = again(plan)
            if words in tried and _keeps(tried[words], table, metric):
                keeping[name] = words
                break
    return replace(run, keeping=keeping)


def _narrower_bounds(run: DryRun, metric: str) -> Iterator[tuple[Plan, str]]:
    """Yield plans with narrower bounds of an amount, widest first, and the flag that says so."""
    plan = run.own.plan
    declared = plan.metrics_by_name.get(metric)
    bounds = None if declared is None else declared.bounds or run.own.ranges.get(metric)
    if bounds is None:
        return
    for _ in range(_MOST_TRIED):
        bounds = narrower(bounds)
        metrics = tuple(replace(each, bounds=bounds) if each.name == metric else each for each in plan.metrics)
        yield replace(plan, metrics=metrics), flag("--bounds", f"{metric}={bounds[0]:.12g}:{bounds[1]:.12g}")


def _fewer_levels(run: DryRun, table: str) -> Iterator[tuple[Plan, str]]:
    """Yield plans with fewer levels or bins of a table, and the flag that says so; none where levels are declared."""
    plan = run.own.plan
    linkage = next((each for each in plan.linkages if each.name == table), None)
    if linkage is None or linkage.covariate is None or table not in run.own.tables:
        return
    covariate = plan.covariate(linkage.covariate)
    others = tuple(each for each in plan.covariates if each.name != covariate.name)
    levels = len(run.own.tables[table].covariates[0].levels)
    if covariate.levels is not None or isinstance(covariate.bins, tuple):
        return
    for fewer in range(levels - 1, max(1, levels - 1 - _MOST_TRIED), -1):
        if covariate.bins is not None:
            coarser, words = replace(covariate, bins=fewer), flag("--bin", f"{covariate.name}={fewer}")
        else:
            top = fewer - 1  # the others are one more level
            coarser, words = replace(covariate, top=top), flag("--top", f"{covariate.name}={top}")
        yield replace(plan, covariates=(*others, coarser)), words


def _keeps(run: DryRun, place: str, metric: str) -> bool:
    tables = {} if run.released is None else run.released.tables
    kept = [table for name, table in tables.items() if place in (name, *table.experiment_names)]
    return any(not metric or metric in table.metric_names for table in kept)
