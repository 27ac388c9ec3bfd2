"""Tables as analyses read them: releases, which passed the gate with a receipt, and somebody's own rows."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from kanab.choices import INTERNAL, OWN_ROWS
from kanab.errors import PrivacyError
from kanab.plan.model import Plan
from kanab.privacy.epsilon.combined import combine_arms
from kanab.privacy.epsilon.mechanism import MECHANISM
from kanab.privacy.merging import LevelMap
from kanab.stats.skewness import Shapes
from kanab.tally.tally import Tally


def new_salt() -> str:
    """Return random digits that go into a hash, so that nobody who has the hash alone can try out what was hashed."""
    return secrets.token_hex(16)


def missing_bins(covariate: str, levels: Iterable[object], planned: object) -> list[str]:
    """Say that a covariate has fewer bins than planned, if it has."""
    bins = sum(level is not None for level in levels)
    if not isinstance(planned, int) or bins >= planned:
        return []
    word = "bin" if bins == 1 else "bins"
    return [f"{covariate}: {bins} {word} instead of {planned}, because many people share a value"]


COLLECTORS_CLOCK = "the collector's clock"
"""What decides which cohort a person of a collector belongs to, as receipts name it."""


@dataclass(frozen=True)
class Batch:
    """The cohorts that a release is about: periods of a column, after one and through another."""

    every: str
    after: str | None
    through: str
    column: str = ""


HELD_BACK = "is held back until the next seal"
"""What a receipt says of an experiment whose people are in a later batch."""

FORGED = "messages do not add up, some were forged or lost"
"""What a receipt says of a metric with sums that nobody could have sent."""

DELETED = "records are missing from the store, because somebody deleted rows"
"""What a receipt says of records that a collector had committed and a seal did not find."""


@dataclass(frozen=True)
class NoiseReceipt:
    """The ε and δ of one release, what its ledger has spent and has left after it, and standard deviations.

    ``scales`` has, by table and statistic, the standard deviation of the noise, in units of the metrics. ``total`` is
    the ε that all releases of the ledger may spend together.
    """

    epsilon: float
    delta: float
    total: float
    spent: float
    left: float
    scales: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    mechanism: str = MECHANISM


def promise(noise: NoiseReceipt) -> str:
    """Say what a release with noise promises."""
    return f"noise in every number: ε = {noise.epsilon:g} at δ = {noise.delta:g}"


def spent_sentence(noise: NoiseReceipt, *, chained: bool, batch: bool = False) -> str:
    """Say what has been spent with a release, and what is left; alone, nobody knows. A batch is about its cohorts."""
    if not chained:
        return f"Spent: ε = {noise.epsilon:g}, and nobody adds up what else was spent about these people"
    left = math.floor(1000 * noise.left) / 1000
    rest = f"A further release about these people may spend up to ε = {left:g}" if left else "Nothing is left"
    if batch and not left:
        rest = "Nothing is left for these people; further cohorts are others, and may spend as much"
    return f"Spent in all: ε = {noise.spent:.3g} of {noise.total:g}. {rest}"


PeopleAccounts = Mapping[str, Mapping[str, int]]
"""People per experiment of a collector by what became of them (published, held_back, destroyed), floored to k."""


@dataclass(frozen=True)
class Receipt:
    """What the gate did: the rule, what was merged, withheld or left out, and deviations from defaults.

    Releases are written with these fields in this order; new ones come last, before ``maps``.

    ``effective_k`` is that of everything published about these people, this release and earlier
    ones, as a multiple of k; None where it is unknown how the tables overlap. ``effective_k_within`` is
    "experiment" where each experiment was looked at by itself, as a collector does. ``homogeneous`` are
    classes in which all values are alike, ``not_enumerated`` those too large to try out all whole
    numbers, ``narrowest`` the narrowest interval that the inference audit let pass, as a share of the
    largest value's distance from the mean. Counts of people who are not in a class (clamped, missing,
    excluded, outside) are floored to multiples of k. ``where`` and ``choices`` (unit, sql, join, …) say word for
    word which rows counted and how they became people; choices are None in releases of before they were
    recorded. ``ledger`` is the name of the file that it was released into, ``store`` the key chain of the
    collector that sealed it: which one, without a way to any key; ``people`` is that collector's account of everybody
    in the cohorts through this batch. ``checked`` names rules that need values, which no file shows: "contributors"
    and, where it was known how large values are, "dominance". With ``noise`` nothing else of the data is in the
    receipt: the smallest class is one with noise. ``shapes`` are classes of skewness, and of the share of people off
    the commonest value, by experiment and metric. ``repeats`` are columns that look like a person's id and repeat,
    where rows were people.
    """

    k: int
    smallest_class: int
    classes: int
    effective_k: int | None = None
    effective_k_within: Literal["", "experiment"] = ""
    homogeneous: int = 0
    not_enumerated: int = 0
    narrowest: float | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    deviations: tuple[str, ...] = ()
    clamped: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[str, int] = field(default_factory=dict)
    excluded: int = 0
    outside: int = 0
    where: str = ""
    choices: Mapping[str, str] | None = None
    ledger: str = ""
    store: str = ""
    people: PeopleAccounts = field(default_factory=dict)
    shapes: Shapes = field(default_factory=dict)
    batch: Batch | None = None
    noise: NoiseReceipt | None = None
    checked: tuple[str, ...] = ()
    repeats: tuple[str, ...] = ()
    maps: Mapping[str, LevelMap] = field(default_factory=dict)

    @property
    def promise(self) -> str:
        """What the release promises, in words."""
        return f"k-anonymous at k = {self.k}" if self.noise is None else promise(self.noise)

    @property
    def forged(self) -> dict[str, str]:
        """What was withheld because its messages do not add up, with the sentences."""
        return {name: why for name, why in self.left_out.items() if FORGED in why}

    @property
    def deleted(self) -> tuple[str, ...]:
        """What the batch lacks because somebody deleted records of the collector's store, with the sentence."""
        return tuple(sentence for sentence in self.deviations if DELETED in sentence)


def concerns(left_out: str, experiment: str) -> bool:
    """Return whether something that a receipt names as left out is an experiment, a table of it or a metric in it.

    >>> [concerns(name, "check") for name in ("check", "check/tier: spend", "check: spend", "checkout/tier")]
    [True, True, True, False]
    """
    return left_out == experiment or left_out.startswith((f"{experiment}/", f"{experiment}: "))


def name_left_out(left_out: str, why: str) -> str:
    """Return why something is left out, beginning with the experiment or table that it is of."""
    table = left_out.partition(": ")[0]
    return why if why.startswith(table) else f"{table}: {why}"


@dataclass(frozen=True, eq=False)
class Tables:
    """What an analysis reads: tables by arms and covariates, the plan that they follow, and what was done to them.

    It is a `Release` or `OwnRows`. ``parts`` are the batches that a sum of releases was made of.
    ``ranges`` are round numbers below and above all values of metrics whose bounds nobody declared, ``rates`` metrics
    that are 0 or 1 for every person of a cluster; these are known in memory only.
    """

    plan: Plan
    tables: Mapping[str, Tally]
    receipt: Receipt
    parts: tuple[Release, ...] = field(default=(), kw_only=True)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict, kw_only=True)
    rates: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def chained(self) -> bool:
        """Whether it is in a ledger."""
        return False

    def tables_of(self, experiment: str) -> dict[str, Tally]:
        """Return the tables of one experiment by name, but for those with another one."""
        return dict(self._tables_by_experiment.get(experiment, {}))

    @cached_property
    def _tables_by_experiment(self) -> dict[str, dict[str, Tally]]:
        tables: dict[str, dict[str, Tally]] = {}
        for name, table in self.tables.items():
            if len(table.experiment_names) == 1:
                tables.setdefault(table.experiment_names[0], {})[name] = table
        return tables

    def why_left_out(self, experiment: str = "") -> dict[str, str]:
        """Return why what is left out is, naming experiments but the given one, or a plan's only one."""
        names = self.plan.experiment_names
        own = names[0] if len(names) == 1 else experiment
        left_out = self.receipt.left_out.items()
        return {name: why if concerns(name, own) else name_left_out(name, why) for name, why in left_out}

    def fewer_bins(self, experiments: Iterable[str]) -> list[str]:
        """Say which covariates have fewer bins than planned, before sparse ones were merged."""
        sentences: dict[str, None] = {}
        for name, table in ((name, table) for each in experiments for name, table in self.tables_of(each).items()):
            for factor in table.covariates if len(table.covariates) == 1 else ():
                merged, planned = self.receipt.maps.get(name), self.plan.covariate(factor.name).bins
                levels = factor.levels if merged is None else [old for _, olds in merged.groups for old in olds]
                sentences |= dict.fromkeys(missing_bins(factor.name, levels, planned))
        return list(sentences)

    def totals(self, experiment: str) -> Tally:
        """Return every metric of an experiment per arm, and its ratios; raise `PrivacyError` where none is left."""
        if self.receipt.noise is not None and experiment in self.tables:
            return self._combined(experiment)
        arms = [table.keep() for table in self.tables_of(experiment).values()]
        if not arms:
            raise PrivacyError(f"the release holds no table of {experiment}", "Release it with more people.")
        parts = {part.metric.name: part for table in arms for part in table.moments}
        crosses = {cross.pair: cross for table in arms for cross in table.crosses}
        return Tally(arms[0].factors, arms[0].people, tuple(parts.values()), tuple(crosses.values()))

    def _combined(self, experiment: str) -> Tally:
        """Return the arms of an experiment from all its tables with noise, batch by batch."""
        batches = [part for part in self.parts if experiment in part.plan.experiment_names]
        if not batches:
            own = self.tables_of(experiment)
            return combine_arms(own.pop(experiment), own.values())
        totals = [part.totals(experiment) for part in batches]
        alike = all(table.metrics == totals[0].metrics for table in totals)
        return sum(totals[1:], totals[0]) if alike else self.tables[experiment]


@dataclass(frozen=True, eq=False)
class Release(Tables):
    """Tables that passed the gate, with their receipt. Made by ``release`` or read from its file.

    ``previous`` is the hash of the release before it in its ledger, empty for the first one; None
    says that it is in no ledger. ``salt`` is hashed with the rest; releases of before have none.
    """

    bounds_declared: bool = True
    previous: str | None = None
    salt: str = field(default_factory=new_salt, kw_only=True)

    def __post_init__(self) -> None:
        for name, table in self.tables.items() if self.receipt.noise is None else ():
            if np.any((table.people > 0) & (table.people < self.receipt.k)):
                raise PrivacyError(
                    f"{name} holds a class with fewer than k = {self.receipt.k} people", "Do not use this release."
                )

    @property
    def chained(self) -> bool:
        """Whether it is in a ledger."""
        return self.previous is not None

    def __repr__(self) -> str:
        names = ", ".join(self.tables)
        return f"Release of {names}: {self.receipt.promise}"


@dataclass(frozen=True, eq=False)
class OwnRows(Tables):
    """Tables on the screen of whoever holds the rows: classes are merged to k, and no other rule was asked.

    Nothing that takes releases takes it: it is not k-anonymous, and nobody compared it with earlier outputs.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__} of {', '.join(self.tables)}. {INTERNAL}"


def refuse_own_rows(value: object) -> None:
    """Raise `PrivacyError` for what was computed on somebody's own rows: tables, readouts, or their plain data."""
    scope = value.get("scope") if isinstance(value, Mapping) else None
    is_readout = getattr(value, "own_rows", False) is True
    if isinstance(value, OwnRows) or is_readout or (isinstance(scope, str) and scope == OWN_ROWS):
        raise PrivacyError(
            "this is internal: it was computed on rows and did not pass the privacy gate",
            "Release the rows (kanab release), and give that release.",
        )
