"""The gate for scans that are shared: copies of experiments, and what a ledger says was spent on a metric.

The joint of a hundred experiments is everybody, so the leverage rule cannot be evaluated; a budget on independent
numbers stands in for it, over all scans that a ledger notes. Within it every table may be shared, and with it every
statistic; over it a metric is left out.

Every shared sum is one equation about everybody's values. With as many independent equations as people, somebody who
knows the arms solves for everybody, however large the classes are. Where only a few people are off the commonest
value, far fewer equations find them. So there have to be twice as many such people as numbers, and 2 (k − 1) times as
many people: independent assignments put at most about 1.2 × numbers / people of leverage on one person, which is well
below 1/k then.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from os import PathLike
from typing import Any, Literal

import numpy as np

from kanab.counted import Counted, floor_to_k
from kanab.errors import PrivacyError, listed
from kanab.privacy.exposure import LEAST_CONTRIBUTORS
from kanab.privacy.joint_rules import arm_columns
from kanab.privacy.ledger import LedgerNote, append_note, hold_ledger
from kanab.privacy.release import new_salt
from kanab.privacy.request import check_begun
from kanab.scan.pair_tables import PairMoments, Pairs
from kanab.tally.moments import Moments
from kanab.tally.tally import Tally

COPY = "{copy} is left out: it is a copy of {of}, for their arms differ in fewer than k = {k} people"
SMALL = "{name} is left out: an arm holds fewer than k = {k} people"
OVER = (
    "{metric} is left out: with earlier scans there would be too many numbers for so few people, or for so few whose "
    "value is not the commonest one or is missing"
)
AGAIN = "{metric} is left out: {names} {verb} scanned for it before, and the difference of two scans may be one person"
REMEDY = "Share the earlier scan, scan fewer experiments, or count missing values as 0 (--missing)."


# ── experiments that are one ───────────────────────────────────────────────────────────────────


def share_pairs(pairs: Pairs, k: int) -> tuple[Pairs, list[str]]:
    """Return the experiments that may be shared together, and why the others are left out.

    Raises `PrivacyError` where fewer than two are left.
    """
    large = [i for i in range(len(pairs.experiments)) if min(np.diagonal(pairs.people)[pairs.slice_of(i)]) >= k]
    copies = find_copies(pairs, large, k)
    kept = [i for i in large if i not in copies]
    if len(kept) < 2:
        raise PrivacyError(
            f"fewer than two experiments have k = {k} people in every arm, and are no copies",
            "Wait for more people, or scan others.",
        )
    names = [factor.name for factor in pairs.experiments]
    left_out = [SMALL.format(name=name, k=k) for i, name in enumerate(names) if i not in large]
    left_out += [COPY.format(copy=names[copy], of=names[of], k=k) for copy, of in copies.items()]
    return select_experiments(pairs, kept), left_out


def find_copies(pairs: Pairs, places: Sequence[int], k: int) -> dict[int, int]:
    """Return the experiments that differ from an earlier one in fewer than k people, and which that is."""
    alone = np.diagonal(pairs.people)
    outside = alone[:, None] - np.add.reduceat(pairs.people, pairs.starts[:-1], axis=1)  # arms by experiment
    beside = _any_of((outside > 0) & (outside < k), pairs.starts[:-1])
    same = (pairs.people == alone) & (pairs.people == alone[:, None])  # arms of the same people
    equal = np.logical_and.reduceat(_any_of(same, pairs.starts[:-1]), pairs.starts[:-1], axis=1)
    few = _any_of(_any_of((pairs.people > 0) & (pairs.people < k), pairs.starts[:-1]).T, pairs.starts[:-1])
    copies: dict[int, int] = {}
    for place in places:
        for of in (of for of in places if of < place and of not in copies):
            close = beside[place, of] or beside[of, place] or equal[place, of]
            if close or (few[place, of] and differ_little(pairs, of, place, k)):
                copies[place] = of
                break
    return copies


def _any_of(flags: Any, starts: Sequence[int]) -> Any:
    """Return whether any arm of each experiment has a flag, per column."""
    return np.logical_or.reduceat(flags, starts, axis=0)


def differ_little(pairs: Pairs, first: int, second: int, k: int) -> bool:
    """Tell whether some arms of one experiment are some arms of the other, but for fewer than k people.

    Arms that share k people hang together. A group of them that nobody else is in is the same people on both sides,
    but for those in classes between two groups, and their sums can be subtracted.
    """
    rows, columns = pairs.slice_of(first), pairs.slice_of(second)
    inside = np.asarray(pairs.people[rows, columns], dtype=np.int64)
    alone = np.asarray(np.diagonal(pairs.people), dtype=np.int64)
    missing = (alone[rows] - inside.sum(axis=1), alone[columns] - inside.sum(axis=0))
    cells = np.block([[inside, missing[0][:, None]], [missing[1][None, :], np.zeros((1, 1), dtype=np.int64)]])
    high, wide = cells.shape
    cells[-1, -1] = k  # people in neither experiment
    groups = np.arange(high + wide)
    for first_arm, second_arm in np.argwhere(cells >= k).tolist():
        groups[groups == groups[high + second_arm]] = groups[first_arm]
    for group in set(groups.tolist()) - {int(groups[-1])}:
        between = (groups[:high, None] == group) != (groups[None, high:] == group)
        if 0 < int(cells[between].sum()) < k:
            return True
    return False


def select_experiments(pairs: Pairs, places: Sequence[int]) -> Pairs:
    """Return only some of the experiments. The people of the others still count as people."""
    if list(places) == list(range(len(pairs.experiments))):
        return pairs
    arms = np.concatenate([np.arange(pairs.starts[i], pairs.starts[i + 1]) for i in places])
    block = np.ix_(arms, arms)
    moments = tuple(
        PairMoments(part.metric, part.counts[block], part.sums[block], part.squares[np.ix_(arms, np.array(places))])
        for part in pairs.moments
    )
    return replace(
        pairs, experiments=tuple(pairs.experiments[i] for i in places), people=pairs.people[block], moments=moments
    )


# ── what numbers spend ─────────────────────────────────────────────────────────────────────────

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Spent:
    """What numbers about a metric use up: so many per person, and per person off the commonest value.

    Those of several scans add up, whoever they are about.

    >>> [Spent.on([(50, people, off)], 10).within(10) for people, off in [(900, 100), (899, 100), (900, 99), (900, 0)]]
    [True, False, False, True]
    """

    per_person: float = 0.0
    per_unusual: float = 0.0

    @classmethod
    def on(cls, groups: Iterable[tuple[int, int, int]], k: int) -> Spent:
        """Return the largest shares of some groups: numbers, people, and people off the commonest value, of each.

        People are taken in steps of k, so that what is spent tells no count. Nobody off the commonest value is nobody
        to be found.
        """
        known = [(_share(numbers, people, k), _share(numbers, off, k)) for numbers, people, off in groups]
        return cls(*(max(shares, default=0.0) for shares in zip(*known, strict=True)))

    def __add__(self, other: Spent) -> Spent:
        """Return what both take together."""
        return Spent(self.per_person + other.per_person, self.per_unusual + other.per_unusual)

    def within(self, k: int) -> bool:
        """Return whether it may all be shared."""
        return 2 * (k - 1) * self.per_person <= 1 + _ROUNDING and 2 * self.per_unusual <= 1 + _ROUNDING


def _share(numbers: int, people: int, k: int) -> float:
    least = floor_to_k(people, k)
    if least:
        return numbers / least
    return math.inf if people else 0.0


def pair_numbers(arms: Sequence[int]) -> int:
    """Count the independent sums of one metric in the tables of all pairs.

    ``arms`` are the numbers of arms of the experiments, all of them about the same people.

    >>> pair_numbers([2] * 100)
    5051
    >>> pair_numbers([2, 3])
    6
    """
    steps = [max(0, count - 1) for count in arms]
    single = sum(steps)
    crossed = (single**2 - sum(step**2 for step in steps)) // 2
    return 1 + single + crossed


def fewest_off(n: int, s: int, q: int, low: int, high: int) -> int:
    """Return how many people are off the commonest value at least, given count, sum, squares and bounds.

    The commonest value is taken to be 0 or a bound. For a 0/1 metric the answer is exact; for others
    it follows from (Σ y)² ≤ people off 0 × Σ y², and from nobody being beyond the bounds.

    >>> fewest_off(1_000, 20, 20, 0, 1), fewest_off(1_000, 985, 985, 0, 1)
    (20, 15)
    >>> fewest_off(1_000, 60_000, 400_000_000, 0, 50_000)      # nine people at least spent something
    9
    """
    fewest = n
    for value in {low, high, min(max(0, low), high)}:
        above, squares = s - n * value, q - 2 * value * s + n * value**2
        farthest = max(high - value, value - low)
        fewest = min(fewest, max(-(-abs(above) // farthest), -(-(above**2) // squares) if squares else 0))
    return fewest


@dataclass(frozen=True, eq=False)
class Asked:
    """One metric of a scan that is to be shared: what its numbers spend, and what tells them from others."""

    spends: Spent
    numbers: str

    @classmethod
    def of(cls, spends: Spent, blocks: Iterable[Any]) -> Asked:
        """Return what some blocks of numbers spend."""
        return cls(spends, sha256(str([block.tolist() for block in blocks]).encode()).hexdigest())

    def digest(self, salt: str) -> str:
        """Return what tells the same numbers from others."""
        return sha256(f"{salt}{self.numbers}".encode()).hexdigest()


def ask_pairs(pairs: Pairs, k: int) -> dict[str, Asked]:
    """Return what all pair tables of each metric spend: about everybody, and about every arm by itself."""
    counts = [len(factor.levels) for factor in pairs.experiments]
    steps = sum(counts) - len(counts)
    numbers = np.repeat([2 + steps - count for count in counts], counts).tolist()
    alone = np.diagonal(pairs.people).tolist()
    asked = {}
    for part in pairs.moments:
        unusual, missing = pairs.unusual.get(part.metric.name, 0), pairs.missing.get(part.metric.name, 0)
        lacking = missing if part.metric.missing == "exclude" else 0
        groups = [(pair_numbers(counts), pairs.total, _fewest(unusual, lacking, pairs.total))]
        groups += zip(numbers, alone, _off_by_arm(pairs, part), strict=True)
        asked[part.metric.name] = Asked.of(Spent.on(groups, k), (pairs.people, part.counts, part.sums, part.squares))
    return asked


def _off_by_arm(pairs: Pairs, part: PairMoments) -> list[int]:
    """Return how many people of every arm are off the commonest value, or lack one: as many as sums and squares tell.

    Nor more than the arm's share of all of them, where the commonest value is none of those that sums tell on.
    """
    people, counts, sums = (np.diagonal(block) for block in (pairs.people, part.counts, part.sums))
    unusual = pairs.unusual.get(part.metric.name, 0)
    off = []
    for place in range(len(pairs.experiments)):
        for arm in range(pairs.starts[place], pairs.starts[place + 1]):
            n, s, q = int(counts[arm]), int(sums[arm]), int(part.squares[arm, place])
            fewest = 0
            if n * q != s**2:
                limits = part.metric.grid_bounds or (-q, q)
                fewest = max(1, min(fewest_off(n, s, q, *limits), unusual * n // pairs.total))
            off.append(_fewest(fewest, int(people[arm]) - n, int(people[arm])))
    return off


def _fewest(off: int, lacking: int, people: int) -> int:
    """Return the fewer of people off the commonest value, and of those who lack one or have one; 0 is nobody."""
    return min((number for number in (off, lacking, people - lacking) if number), default=0) if lacking else off


def ask_segments(counted: Sequence[Counted], tables: Sequence[Tally], k: int) -> dict[str, Asked]:
    """Return what tables by covariates spend on each metric, experiment by experiment."""
    sources = {name: each for each in counted for name in each.plan.experiment_names}
    asked = {}
    for metric in dict.fromkeys(name for table in tables for name in table.metric_names):
        mine = [table for table in tables if metric in table.metric_names]
        spends = Spent()
        for name in dict.fromkeys(table.axes[0] for table in mine):
            own = [table for table in mine if table.axes[0] == name]
            spends += Spent.on(_groups(own, metric, sources[name]), k)
        parts = [table.moments_of(metric) for table in mine]
        asked[metric] = Asked.of(spends, [block for part in parts for block in (part.counts, part.sums)])
    return asked


def _groups(tables: Sequence[Tally], metric: str, counted: Counted) -> Iterable[tuple[int, int, int]]:
    """Return numbers, people and people off the commonest value: of every arm of an experiment, and of all."""
    arms = tables[0].keep()
    people, part = arms.people.tolist(), arms.moments_of(metric)
    off = [
        _fewest(each, n - known, n)
        for each, n, known in zip(_off_in_arms(part, arms.axes[0], counted), people, part.counts.tolist(), strict=True)
    ]
    numbers = 1 + sum(math.prod(table.people.shape[1:]) - 1 for table in tables)
    return [(len(people) * numbers, sum(people), sum(off)), *zip([numbers] * len(people), people, off, strict=True)]


def _off_in_arms(part: Moments, experiment: str, counted: Counted) -> list[int]:
    """Return the people of every arm who are off the commonest value; one, where they were not counted."""
    if part.metric.binary:
        return [min(s, n - s) for n, s in zip(part.counts.tolist(), part.sums.tolist(), strict=True)]
    if counted.signatures is None or part.metric.name not in counted.signatures.values:
        return [1] * len(part.counts)
    off = counted.signatures.values[part.metric.name].off
    arm = arm_columns(counted)[experiment]
    return [int(off[arm == place].sum()) for place in range(len(part.counts))]


def rests_on_several(part: Moments) -> bool:
    """Return whether no sum of a class can be that of one or two people, as far as bounds tell; of a 0/1 metric always.

    >>> from kanab.datasets import eighteen
    >>> rests_on_several(eighteen().moments[0])
    False
    """
    if part.metric.binary:
        return True
    if part.metric.grid_bounds is None:
        return False
    low, high = part.metric.grid_bounds
    usual = min(max(0, low), high)
    above = abs(part.sums - part.counts * usual)
    return bool(np.all((above == 0) | (above >= LEAST_CONTRIBUTORS * max(high - usual, usual - low))))


# ── the ledger ─────────────────────────────────────────────────────────────────────────────────


def spend(
    path: str | PathLike[str],
    kind: Literal["pairs", "segments"],
    experiments: Sequence[str],
    asked: Mapping[str, Asked],
    k: int,
    *,
    new_ledger: bool = False,
) -> dict[str, str]:
    """Note in a ledger what a scan spends on each metric, and return why some metrics may not be shared.

    The same numbers may be shared again, and spend nothing. Raises `PrivacyError` where no metric is left, or the
    ledger holds releases with ε, `LedgerError` where there is no such ledger.
    """
    with hold_ledger(path) as held:
        check_begun(path, new_ledger=new_ledger)
        if held.noisy:
            raise PrivacyError("the ledger holds releases with ε, and a scan has no noise", "Use another ledger.")
        salt = new_salt()
        left_out, noted = {}, {}
        for metric, wanted in asked.items():
            earlier = [note for note in held.notes if note.kind == "scanned" and note.asked.get(metric)]
            if any(note.asked[metric].endswith(wanted.digest(note.salt)) for note in earlier):
                continue
            spent, known = wanted.spends, set[str]()
            for note in earlier:
                spent += Spent(*map(float, note.asked[metric].split()[:2]))
                known |= note.asked.keys() if note.says == kind else set()
            # whoever subtracts two scans of an experiment sees who has joined it, and what their values are
            if again := [name for name in experiments if name in known]:
                verb = "was" if len(again) == 1 else "were"
                left_out[metric] = AGAIN.format(metric=metric, names=listed(again, most=3), verb=verb)
            elif not spent.within(k):
                left_out[metric] = OVER.format(metric=metric)
            else:
                noted[metric] = f"{wanted.spends.per_person!r} {wanted.spends.per_unusual!r} {wanted.digest(salt)}"
        if len(left_out) == len(asked):
            raise PrivacyError("; ".join(left_out.values()), REMEDY)
        if noted:
            names = dict.fromkeys(experiments, "")
            append_note(path, held, LedgerNote("scanned", kind, noted | names, salt=salt))
    return left_out
