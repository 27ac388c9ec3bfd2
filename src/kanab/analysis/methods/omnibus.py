"""One test of whether any of the arms differ, where there are more than two."""

from collections.abc import Sequence
from dataclasses import dataclass

from kanab.analysis.effect_rows import typed
from kanab.analysis.methods.base import Data, Facts, Findings, Method
from kanab.report.digits import adjusted_for, spoken_p
from kanab.report.words import headlines, method_of
from kanab.stats.arms import omnibus
from kanab.tabular import number


@dataclass(frozen=True)
class OmnibusRow:
    """The test of one metric, by plain or adjusted means; but for Welch's F the second of ``df`` is infinite."""

    metric: str
    method: str
    covariates: Sequence[str]
    F: float | None
    df: Sequence[float | None] | None
    p: float | None


class Omnibus(Method):
    """Test whether any arms differ, at one look only."""

    name = "omnibus"
    tables = ("omnibus",)

    def asked(self, facts: Facts) -> bool:
        """Return whether there is one look only."""
        return "looks" not in facts.modes

    def read(self, facts: Facts) -> Findings:
        """Return a row for every metric and way of adjusting."""
        rows = []
        for means in (each.means for each in facts.means if len(each.means.arms) > 2):
            test = omnibus(means)
            rows.append(OmnibusRow(test.metric, means.method, means.covariates, test.F, test.df, test.p))
        return Findings({"omnibus": rows})

    def beside(self, data: Data, metric: str) -> Sequence[str]:
        """Return whether any arms differ, in one line, by the method that carries the verdict."""
        wanted = {method_of(row) for row in headlines(data, metric)}
        for raw in data.get("omnibus", ()):
            (row,) = typed([raw], OmnibusRow)
            if row.metric == metric and method_of(raw) in wanted and row.F is not None and row.p is not None:
                return [_sentence(data, row, adjusted_for(raw))]
        return ()


def _sentence(data: Data, row: OmnibusRow, adjusted: str) -> str:
    assert row.F is not None
    assert row.p is not None
    assert row.df is not None
    finding = "some of them differ" if row.p < 1 - data["confidence"] else "no sign that any of them differ"
    first, second = row.df
    assert first is not None
    welch = second is not None
    test = f"Welch's F({first:g}, {second:,.0f})" if welch else f"χ²({first:g})"
    test = f"{test} = {number(row.F if welch else first * row.F, 3)}, {spoken_p(row.p)}"
    return f"All {len(data['arms'])} arms at once: {finding} ({test}{adjusted})."
