"""Joint signatures: how many people of one experiment have which levels in all of its tables at once.

The gate needs them to say among how many people everybody hides. They are counted of enrollments, which name all levels
in one post. People of several experiments get no common signature: it would be a fingerprint.

    checkout/*|B:phone:3|n         people of arm B with this device and this tier: covariates in order of their names
    checkout/*||over               there were more combinations than are kept, and none is kept any longer
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kanab.collector.counting.apply import ClassCounters
from kanab.collector.counting.counters import JOINT, Counters
from kanab.collector.protocol.encoding import encode, spell
from kanab.counted import Signatures
from kanab.plan.model import Plan
from kanab.tally.tally import Tally

MOST_SIGNATURES = 20_000
"""Combinations of levels that are kept per experiment and cohort; five covariates with six levels have fewer."""

OLDER = "some of its people were counted by an earlier version of kanab"
TOO_MANY = "its people have too many combinations of levels"
"""Why it is not known how the tables of an experiment overlap."""

_OVER = f"{JOINT}|over"


def signature_name(classes: Sequence[ClassCounters]) -> str:
    """Return the name of the counter of a person's signature, from the classes in all tables of an experiment."""
    parts = sorted([each.signature_part for each in classes])
    return classes[0].signature_head + "".join([text for _, text in parts]) + "|n"


def within_bound(counters: Counters) -> Counters:
    """Return counters without the signatures of experiments that have too many: invented ones must not fill a disk."""
    if len(counters) <= MOST_SIGNATURES and not any(name.endswith(_OVER) for name in counters):
        return counters
    sizes: dict[str, int] = {}
    for name in counters:
        experiment, joint, rest = name.partition(JOINT)
        if joint:
            sizes[experiment] = sizes.get(experiment, 0) + (MOST_SIGNATURES + 1 if rest == "|over" else 1)
    over = {experiment for experiment, size in sizes.items() if size > MOST_SIGNATURES}
    kept = {name: value for name, value in counters.items() if JOINT not in name or name.partition("/")[0] not in over}
    return kept | {experiment + _OVER: 1 for experiment in over}


def signatures_of(plan: Plan, tallies: Mapping[str, Tally], counters: Counters) -> tuple[Signatures, dict[str, str]]:
    """Return how the tables of each experiment overlap, and the experiments of which it is not known, with the reason.

    Whose signature is not known stands below the others as if they were different people: so do pairs and bins.
    """
    names = tuple(plan.linkage_names)
    blocks: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    unknown: dict[str, str] = {}

    def add(tables: Sequence[str], cells: NDArray[np.int64], people: NDArray[np.int64]) -> None:
        block = np.full((len(people), len(names)), -1, dtype=np.int64)
        block[:, [names.index(name) for name in tables]] = cells
        blocks.append((block, people))

    for experiment in plan.experiments:
        own = plan.linkages_of(experiment.name)
        for linkage in own:
            if linkage.people_only:
                add([linkage.name], *_alone(tallies[linkage.name]))
        tables = [linkage.name for linkage in own if not linkage.people_only]
        joint = _joint(experiment.name, [tallies[name] for name in tables], counters) if len(tables) > 1 else None
        if joint is not None and _fits(*joint, [tallies[name] for name in tables]):
            add(tables, *joint)
            continue
        if len(tables) > 1:
            unknown[experiment.name] = TOO_MANY if encode(experiment.name) + _OVER in counters else OLDER
        for name in tables:
            add([name], *_alone(tallies[name]))
    for linkage in plan.linkages:
        if len(linkage.experiments) > 1:
            add([linkage.name], *_alone(tallies[linkage.name]))
    cells, people = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return Signatures(names, cells, people, within="experiment", unknown=tuple(unknown)), unknown


def _alone(tally: Tally) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the classes of one table as signatures."""
    people = tally.people.ravel().astype(np.int64)
    classes = np.flatnonzero(people)
    return classes[:, None], people[classes]


def _joint(
    experiment: str, tables: Sequence[Tally], counters: Counters
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Return the signatures that were counted, as classes of every table; None where a level is not in its table."""
    head = encode(experiment) + JOINT
    order = sorted(range(len(tables)), key=lambda place: tables[place].covariates[0].name)
    arms = {encode(spell(level)): place for place, level in enumerate(tables[0].factors[0].levels)}
    levels = [
        {encode(spell(level)): place for place, level in enumerate(tables[place].covariates[0].levels)}
        for place in order
    ]
    cells, people = [], []
    for name, value in counters.items():
        if not name.startswith(head) or not name.endswith("|n") or not value:
            continue
        arm, *texts = name[len(head) : -len("|n")].split(":")
        if (
            arm not in arms
            or len(texts) != len(levels)
            or any(t not in known for t, known in zip(texts, levels, strict=True))
        ):
            return None
        row = [0] * len(tables)
        for place, text, known in zip(order, texts, levels, strict=True):
            row[place] = arms[arm] * len(known) + known[text]
        cells.append(row)
        people.append(value)
    counted = np.array(cells, dtype=np.int64).reshape(-1, len(tables))
    sequence = np.lexsort(counted.T[::-1])  # as when rows are counted: the gate then makes the same choices
    return counted[sequence], np.array(people, dtype=np.int64)[sequence]


def _fits(cells: NDArray[np.int64], people: NDArray[np.int64], tables: Sequence[Tally]) -> bool:
    """Return whether signatures are those of all the people of all tables."""
    sums = [np.bincount(column, people, table.people.size) for column, table in zip(cells.T, tables, strict=True)]
    return bool((people > 0).all()) and all(
        np.array_equal(counts.astype(np.int64), table.people.ravel().astype(np.int64))
        for counts, table in zip(sums, tables, strict=True)
    )
