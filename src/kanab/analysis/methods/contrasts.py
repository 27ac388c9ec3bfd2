"""Other comparisons of arms than those with the control: of each two, or of weighted ones; corrected separately."""

from collections.abc import Mapping, Sequence

from kanab.analysis.compare import contrast_rows
from kanab.analysis.methods.base import Data, Facts, Findings, Method
from kanab.report.digits import Row, adjusted_for, figures_of, is_share, named_with_unit, percent
from kanab.report.document import Part
from kanab.report.words import correction_name, families
from kanab.tabular import Table, p_value


class Contrasts(Method):
    """Compare the arms of each contrast as arms are compared with the control."""

    name = "contrasts"
    heading = "Other comparisons of arms"
    tables = ("contrasts",)

    def asked(self, facts: Facts) -> bool:
        """Return whether contrasts are asked for."""
        return bool(facts.options.contrasts)

    def read(self, facts: Facts) -> Findings:
        """Return the rows of effects, each with the weights of arms."""
        return Findings({"contrasts": [row.contrast_dict() for row in contrast_rows(facts.means, facts.options)]})

    def parts(self, data: Data) -> Sequence[Part]:
        """Return how they are corrected, and the table."""
        rows = data.get("contrasts", ())
        if not rows:
            return ()
        method, named = correction_name(data), families(rows)
        how = "Each comparison is tested on its own."
        if method and named:
            how = f"Corrected separately ({method}): {named}."
        return how, _table(data, rows, method)

    def how(self, data: Data) -> Sequence[str]:
        """Return how contrasts of more than two arms are tested, where that is not as two rates are."""
        rates = {row["metric"] for row in data["effects"] if row["test"] == "score"}
        if any(row["metric"] in rates and row["test"] == "welch" for row in data["contrasts"]):
            return ["Contrasts of more than two arms of 0/1 metrics: each arm with its own variance (Welch)."]
        return ()


def _table(data: Data, rows: Sequence[Row], method: str) -> Table:
    cells = []
    for row in rows:
        figures = figures_of([row], share=is_share(data, row["metric"]))
        cells.append(
            (
                f"{contrast_name(row['contrast'])} on {named_with_unit(data, row['metric'])}{adjusted_for(row)}",
                figures.bare(row["estimate"], signed=True),
                figures.between(row["interval"]),
                p_value(row["p"]),
                p_value(row["p_adjusted"]),
            )
        )
    header = ("contrast", "effect", f"{percent(data['confidence'])} interval", "p", f"p ({method or 'no correction'})")
    return Table(header, tuple(cells))


def contrast_name(weights: Mapping[str, float]) -> str:
    """Return the contrast as a sum."""
    words = " ".join(
        f"{'+' if weight > 0 else '−'} {'' if abs(weight) == 1 else f'{abs(weight):g} '}{arm}"
        for arm, weight in weights.items()
    )
    return words.removeprefix("+ ")
