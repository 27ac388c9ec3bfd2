"""What a method of a readout is: rows, whose fields are the keys of JSON and the columns of frames, and words on them.

A new method is one module beside this one and a line in ``METHODS``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from kanab.analysis.compare import AnalyzedTables, MetricMeans
from kanab.analysis.effect_rows import EffectRow, plain
from kanab.analysis.options import ResolvedOptions
from kanab.dataframes import Tables
from kanab.description import Reading
from kanab.plan.model import ExperimentPlan
from kanab.privacy.release import Tables as ReleasedTables
from kanab.report.document import Part
from kanab.report.figure import Figure
from kanab.stats.cautions import Caution
from kanab.tally.factor import Level
from kanab.tally.tally import Tally

Data = Mapping[str, Any]
Mode = Literal["looks", "noise", "clusters"]
"""Ways of reading that a method may not work with: several looks, a release with ε, arms of clusters."""


@dataclass(frozen=True)
class Facts:
    """What methods read of one experiment; ``outcomes`` are its tables without numbers that are adjusted for."""

    released: ReleasedTables
    analyzed: AnalyzedTables
    reading: Reading
    options: ResolvedOptions
    pool: Mapping[Level, Sequence[Level]]
    outcomes: Mapping[str, Tally]
    means: Sequence[MetricMeans]
    effects: Sequence[EffectRow]

    @property
    def plan(self) -> ExperimentPlan:
        """The experiment."""
        return self.analyzed.plan

    @property
    def modes(self) -> set[Mode]:
        """In which of the ways that a method may not work with the experiment is read."""
        is_so: dict[Mode, bool] = {
            "looks": self.options.looks is not None,
            "noise": self.released.receipt.noise is not None,
            "clusters": "assigned_by" in (self.released.receipt.choices or {}),
        }
        return {mode for mode, so in is_so.items() if so}

    def table(self, name: str) -> Tally | None:
        """Return a table of the experiment by the name of its other factor, arms pooled; None where it is withheld."""
        table = self.released.tables.get(f"{self.plan.name}/{name}")
        return table.pool_arms(self.pool, self.plan.name) if table is not None and self.pool else table


@dataclass(frozen=True)
class Findings:
    """What a method found: rows by table, the first of them its own; what to know before and beside the numbers."""

    tables: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    notes: Sequence[str] = ()
    cautions: Sequence[Caution] = ()


class Method:
    """A method: ``name`` and ``heading`` are those of its section, ``tables`` are its keys in JSON.

    ``without`` says of each way of reading that it does not work with why its own table is empty then; ``draws`` says
    that it has figures, and ``key`` how to read them.
    """

    name: ClassVar[str]
    heading: ClassVar[str] = ""
    tables: ClassVar[tuple[str, ...]] = ()
    without: ClassVar[Mapping[Mode, str]] = {}
    draws: ClassVar[bool] = False
    key: ClassVar[str] = ""

    def asked(self, facts: Facts) -> bool:  # noqa: ARG002
        """Return whether plan or reading ask for it; always by default."""
        return True

    def read(self, facts: Facts) -> Findings:  # noqa: ARG002
        """Return its rows; none for a method that shows the effects in another way."""
        return Findings()

    def parts(self, data: Data) -> Sequence[Part]:  # noqa: ARG002
        """Return its section from the plain data of a readout; nothing where there is nothing to say."""
        return ()

    def beside(self, data: Data, metric: str) -> Sequence[str]:  # noqa: ARG002
        """Return what it says beside the verdicts on a metric; nothing by default."""
        return ()

    def figures(self, data: Data) -> Mapping[str, Figure]:  # noqa: ARG002
        """Return its figures by metric."""
        return {}

    def how(self, data: Data) -> Sequence[str]:  # noqa: ARG002
        """Return how it was computed, for a statistician; nothing by default."""
        return ()

    def frames(self, data: Data) -> Tables:
        """Return the rows of DataFrames by table."""
        return {table: data[table] for table in self.tables}


def read_methods(methods: Iterable[Method], facts: Facts) -> dict[str, Findings]:
    """Return what every method that is asked for found, by its name."""
    results = {}
    for method in methods:
        if method.asked(facts):
            results[method.name] = _in_mode(method, method.read(facts), facts.modes)
    return results


def _in_mode(method: Method, result: Findings, modes: set[Mode]) -> Findings:
    why = [sentence for mode, sentence in method.without.items() if mode in modes]
    if not why or not any(result.tables.values()):
        return result
    return Findings({**result.tables, method.tables[0]: ()}, (*result.notes, *why))


def plain_tables(methods: Iterable[Method], results: Mapping[str, Findings]) -> dict[str, Any]:
    """Return every table of every method as plain data; empty where nobody asked for it."""
    return {
        table: plain(results[method.name].tables.get(table, ()) if method.name in results else ())
        for method in methods
        for table in method.tables
    }  # fmt: skip
