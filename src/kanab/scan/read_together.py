"""One budget for everything that is read together: segments of many experiments, releases of several ledgers.

What passed one gate together was checked there, by the leverage rule. Several such groups about the same people add
up: 600 people give themselves away to many releases that are fine by themselves. How groups overlap nobody knows here,
so the budget of independent numbers decides: over it only flagged tests are shown, as many as it allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kanab.privacy.budget import fewest_off, numbers_of
from kanab.privacy.release import Release
from kanab.privacy.release_json import release_to_dict
from kanab.scan.gate import Spent
from kanab.scan.stats.outcomes import Scan
from kanab.scan.stats.withheld import withhold_tests
from kanab.tally.tally import Tally

FILES_ARE_OUT = (
    "Read together, these releases tell more about the same people than each of them alone, and nobody checked them "
    "together: {metrics} {verb} over the budget. The files are published already; what is withheld here can still be "
    "worked out from them. Release into one ledger, so that everything is checked together."
)
"""What a scan of several releases says where it withholds something."""

_Scan = TypeVar("_Scan", bound=Scan[Any])


@dataclass(frozen=True, eq=False)
class TableGroup:
    """Tables that passed one gate together; ``unusual`` are people off the commonest value, where they were counted."""

    tables: tuple[Tally, ...]
    unusual: Mapping[str, Mapping[str, NDArray[np.int64]]] = field(default_factory=dict)

    def spent(self, metric: str) -> Spent:
        """Return how much of the budget all its tables take, experiment by experiment."""
        spent = Spent()
        holding = [table for table in self.tables if metric in table.metric_names]
        for names in dict.fromkeys(table.experiment_names for table in holding):
            mine = [table for table in holding if table.experiment_names == names]
            spent = spent.plus(numbers_of(mine), *self.people(mine[0], metric))
        return spent

    def people(self, table: Tally, metric: str) -> tuple[int, int]:
        """Return how many people a table is about, and how many are off the commonest value, by the scarcest arm."""
        known = self.unusual.get(table.axes[0], {}).get(metric)
        off = _fewest_off(table, metric) if known is None else np.asarray(known)[:, 0].tolist()
        some = [number for number in off if number]
        return table.total, len(off) * min(some, default=0)


def _fewest_off(table: Tally, metric: str) -> list[int]:
    """Return how many people of each arm are off the commonest value at least, from sums and squares."""
    part = table.moments_of(metric)
    arms = table.axes[:1]
    others = tuple(range(1, len(table.axes)))
    counts, sums = (cells.sum(axis=others) for cells in (part.counts, part.sums))
    squares = part.squares_by(arms, table.axes)
    if squares is None:
        return [0] * len(counts)
    limits = part.metric.grid_bounds
    off = []
    for n, s, q in zip(counts.tolist(), sums.tolist(), squares.tolist(), strict=True):
        bounded = n and limits is not None
        off.append(fewest_off(n, s, q, *limits) if bounded and limits else -(-(s**2) // q) if q else 0)
    return off


def withhold_over_budget(
    scan: _Scan,
    tables: Sequence[tuple[int, Tally]],
    groups: Sequence[TableGroup],
    *,
    k: int,
    checked: int = 0,
    before: Mapping[str, Spent] | None = None,
) -> _Scan:
    """Return the scan without what is over the budget of each metric.

    ``tables`` are those of the scan, each with the number of its group. The first ``checked`` groups are shown
    whatever they hold: a gate has checked them. ``before`` is what was spent on other tests about the same people.
    """
    shown: dict[str, list[int]] = {}
    for at, metric in enumerate(scan.metrics):
        fixed = (before or {}).get(metric.name, Spent())
        for group in groups[:checked]:
            fixed = fixed + group.spent(metric.name)
        whole = sum((group.spent(metric.name) for group in groups[checked:]), start=fixed)
        if len(groups) > checked and not whole.within(k):
            lines = {place * len(scan.metrics) + at: owner for place, owner in enumerate(tables)}
            kept = [line for line, (number, _) in lines.items() if number < checked]
            rest = [line for line in scan.flagged_lines.tolist() if line in lines and line not in kept]
            shown[metric.name] = kept + _affordable(rest, lines, groups, fixed=fixed, metric=metric.name, k=k)
    return withhold_tests(scan, shown, k) if shown else scan


def _affordable(
    lines: Sequence[int],
    owners: Mapping[int, tuple[int, Tally]],
    groups: Sequence[TableGroup],
    *,
    fixed: Spent,
    metric: str,
    k: int,
) -> list[int]:
    """Return the first lines whose tables, with a corrected p each, the budget still allows."""
    kept: list[int] = []
    tables: dict[tuple[int, tuple[str, ...]], list[Tally]] = {}
    for line in lines:
        number, table = owners[line]
        tables.setdefault((number, table.experiment_names), []).append(table)
        spent = fixed
        for (at, _), mine in tables.items():
            spent = spent.plus(numbers_of(mine) + len(mine), *groups[at].people(mine[0], metric))
        if not spent.within(k):
            break
        kept.append(line)
    return kept


# ── which releases passed one gate ─────────────────────────────────────────────────────────────


def number_gates(releases: Sequence[Release]) -> list[int]:
    """Return a number per release, the same for those that were checked together or are about different people.

    Releases of one ledger follow each other by their hashes; batches of other cohorts are other people.
    """
    parts = [stored.parts or (stored,) for stored in releases]
    hashes = [{str(release_to_dict(part)["hash"]) for part in each} for each in parts]
    gates = list(range(len(releases)))
    for i, j in combinations(range(len(releases)), 2):
        linked = any(part.previous in hashes[b] for a, b in ((i, j), (j, i)) for part in parts[a])
        if linked or (hashes[i] & hashes[j]) or _other_people(parts[i], parts[j]):
            gates = [gates[i] if gate == gates[j] else gate for gate in gates]
    order = list(dict.fromkeys(gates))
    return [order.index(gate) for gate in gates]


def _other_people(left: Sequence[Release], right: Sequence[Release]) -> bool:
    """Tell whether these are batches of different cohorts."""
    mine, theirs = ([part.receipt.batch for part in side] for side in (left, right))
    return all(
        a is not None and b is not None and a != b and (a.every, a.column) == (b.every, b.column)
        for a in mine
        for b in theirs
    )


def group_tables(releases: Sequence[Release], gates: Sequence[int]) -> list[TableGroup]:
    """Return all tables, those of one gate together."""
    return [
        TableGroup(
            tuple(table for stored, at in zip(releases, gates, strict=True) if at == gate for table in _all(stored))
        )
        for gate in range(max(gates) + 1)
    ]


def _all(stored: Release) -> list[Tally]:
    return list(stored.tables.values())
