"""A batch of everything that passes the gate, where the gate fails on some of it.

Anybody can post, so numbers may reach the gate that nobody thought of. What it fails on, the smallest part that can be
told (a metric of an experiment, a table), is left out with a sentence, and costs nothing else. An experiment of which
not even the people by arm pass is held back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from kanab.counted import Counted
from kanab.errors import KanabError, PrivacyError
from kanab.plan.model import Plan
from kanab.privacy.gate import make_release
from kanab.privacy.joint_rules import without_people_of
from kanab.privacy.ledger import Ledger, entry_text, read_entry
from kanab.privacy.release import Release
from kanab.tally.tally import Tally

_REMEDY = "Update kanab and seal again, or destroy these cohorts (kanab void)."


class BatchPart(NamedTuple):
    """A part of a batch: the people of an experiment by arm; or one of its tables; or one of its metrics or ratios."""

    experiment: str
    table: str = ""
    metric: str = ""


class Passed(NamedTuple):
    """What passed the gate, which metrics are left out of it, and which experiments failed; with the reasons."""

    release: Release
    left_out: dict[str, str]
    failed: dict[str, str]


def release_what_holds(counted: Counted, ledger: Ledger) -> Passed:
    """Return the release of everything, or of as much as passes.

    Raises `PrivacyError` where not even the people of one experiment pass.
    """
    try:
        return Passed(_readable(make_release(counted, ledger=ledger)), {}, {})
    except Exception as problem:  # numbers that nobody thought of may fail anywhere
        refusal = problem if isinstance(problem, PrivacyError) else PrivacyError(_reason(problem), _REMEDY)
    gate = _PartialGate(counted, ledger)
    release = gate.release()
    if release is None:
        raise refusal
    return Passed(release, gate.left_out(), gate.failed())


class _PartialGate:
    """Passes the gate with part after part: what it fails on is searched for by halves, and left out."""

    def __init__(self, counted: Counted, ledger: Ledger) -> None:
        self._counted, self._ledger = counted, ledger
        self._kept: list[BatchPart] = []
        self._reasons: dict[BatchPart, str] = {}
        self._release: Release | None = None

    def release(self) -> Release | None:
        """Return the release of all parts that pass together; None if nothing does."""
        plan = self._counted.plan
        self._add([BatchPart(name) for name in plan.experiment_names])
        links = [link for link in plan.linkages if all(BatchPart(name) in self._kept for name in link.experiments)]
        self._add([BatchPart(link.experiments[0], table=link.name) for link in links])
        names = [part.experiment for part in self._kept if not part.table]
        self._add([BatchPart(experiment, metric=metric) for experiment in names for metric in plan.metric_names])
        if self._kept:  # once more, with all reasons
            self._attempt(self._kept)
        return self._release

    def left_out(self) -> dict[str, str]:
        """Return the metrics that are left out, with the reasons; the receipt names the tables."""
        return {
            f"{part.experiment}: {part.metric}": f"{part.metric} is withheld altogether: {why}"
            for part, why in self._reasons.items()
            if part.metric
        }

    def failed(self) -> dict[str, str]:
        """Return the experiments of which not even the people by arm pass, with the reasons."""
        return {part.experiment: why for part, why in self._reasons.items() if not part.metric and not part.table}

    def _add(self, parts: Sequence[BatchPart]) -> None:
        """Keep as many parts as pass together with those that are kept."""
        why = self._attempt([*self._kept, *parts]) if parts else ""
        if not why:
            self._kept += parts
        elif len(parts) == 1:
            self._reasons[parts[0]] = why
        else:
            self._add(parts[: len(parts) // 2])
            self._add(parts[len(parts) // 2 :])

    def _attempt(self, parts: Sequence[BatchPart]) -> str:
        """Pass the gate with some parts only, and keep the release; return why it failed, if it did."""
        counted, kept = self._counted, {*parts}
        gone = [name for name in counted.plan.experiment_names if BatchPart(name) not in kept]
        counted = without_people_of(counted, gone) if gone else counted
        tallies, without = {}, {}
        for link in counted.plan.linkages:
            part = BatchPart(link.experiments[0], table=link.name)
            if part not in kept:
                without[link.name] = self._reasons.get(part, "it is not checked yet")
            names = [
                name
                for name in counted.plan.metric_names
                if not all(BatchPart(experiment, metric=name) in kept for experiment in link.experiments)
            ]
            tallies[link.name] = without_metrics(counted.tallies[link.name], counted.plan, names)
        try:
            counted = replace(counted, tallies=tallies)
            self._release = _readable(make_release(counted, ledger=self._ledger, without=without))
        except Exception as problem:  # whatever it is, the part is left out
            return _reason(problem)
        return ""


def without_metrics(tally: Tally, plan: Plan, names: Collection[str]) -> Tally:
    """Return a tally without some metrics, what is defined by them, and the products of some ratios."""
    gone = {metric.name for metric in plan.metrics if {metric.name, metric.of} & {*names}}
    pairs = {metric.ratio for metric in plan.metrics if metric.name in names}
    kept = tally.select_metrics(name for name in tally.metric_names if name not in gone)
    return replace(kept, crosses=tuple(cross for cross in kept.crosses if cross.pair not in pairs))


def _readable(release: Release) -> Release:
    """Return a release that can be read again: an entry of the ledger that cannot would block all later seals."""
    read_entry(entry_text(release))
    return release


def _reason(problem: Exception) -> str:
    """Return why a part does not pass, without anything that it held."""
    if isinstance(problem, KanabError):
        return problem.fact
    return f"a rule fails on its numbers ({type(problem).__name__})"
