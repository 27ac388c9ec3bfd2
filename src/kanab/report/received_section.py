"""What receiving did, beside what being assigned did: sentences and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kanab.errors import listed
from kanab.report.figures import Figures, Row, figures_of, is_share, percent
from kanab.report.words import spoken_arm
from kanab.tabular import Table, number

Data = Mapping[str, Any]

ASSUMED = (
    "This takes for granted that being assigned changes people only by what they receive, and keeps nobody from it "
    "who would have received it anyway. Each interval stands on its own; whether there is an effect at all is said by "
    "that of being assigned."
)


def received_parts(data: Data) -> tuple[str | Table, ...]:
    """Return the effects of receiving in words, then all numbers of them."""
    rows = data.get("received", ())
    if not rows:
        return ()
    leading = leading_rows(rows)
    arms = {row["arm"]: row for row in sorted(rows, key=lambda row: row["people_arm"])}  # a metric may lack people
    sentences = [_share_sentence(data, row) for row in arms.values()] + [_sentence(data, row) for row in leading]
    return *sentences, ASSUMED, _table(data, rows)


def leading_rows(rows: Sequence[Row]) -> list[Row]:
    """Return of every metric and arm the row that is put into words: the adjusted one, where there is one."""
    return list({(row["metric"], row["arm"]): row for row in rows}.values())


def _share_sentence(data: Data, row: Row) -> str:
    share = is_share(data, row["received"])
    name, arm, control = row["received"], spoken_arm(row["arm"]), spoken_arm(row["control"])
    if row["one_sided"]:
        rest = f"{control}: nobody, so that the effect of receiving is that on all who did"
    else:
        rest = f"{control}: {_amount(row['received_control'], share)}"
    return f"{name} in {arm}: {_amount(row['received_arm'], share)}; in {rest}."


def _amount(value: float, share: bool) -> str:
    return percent(value, 1) if share else number(value, 3)


def received_figures(data: Data, rows: Sequence[Row]) -> Figures:
    """Return how many decimals effects of receiving have: the delta method's interval always has two ends."""
    drawn = [{"estimate": row["estimate"], "interval": row["interval_delta"]} for row in rows]
    return figures_of(drawn, share=is_share(data, rows[0]["metric"]))


def spoken_ranges(row: Row, figures: Figures) -> str:
    """Return Fieller's set in words.

    >>> spoken_ranges({"ranges": [[None, -2.0], [3.0, None]]}, Figures(decimals=1))
    'any effect but those between −2.0 and 3.0'
    >>> spoken_ranges({"ranges": [[None, None]]}, Figures(decimals=1))
    'any number'
    """
    ranges = row["ranges"]
    if ranges is None:
        return "–"
    if len(ranges) == 2:
        return f"any effect but those between {figures.bare(ranges[0][1])} and {figures.bare(ranges[1][0])}"
    return figures.spoken(ranges[0])


def _sentence(data: Data, row: Row) -> str:
    figures = received_figures(data, [row])
    arm, metric = spoken_arm(row["arm"]), row["metric"]
    per = f" per unit of {row['received']}" if row["dose"] else ""
    per += f", adjusted for {listed(row['covariates'])}" if row["covariates"] else ""
    moved = ""
    if row["mean_with"] is not None:
        moved = f", from {figures.mean(row['mean_without'])} to {figures.mean(row['mean_with'])}"
    level = percent(data["confidence"])
    interval = "nothing varies" if row["ranges"] is None else f"{level} interval {spoken_ranges(row, figures)}"
    return (
        f"{metric}: receiving because of {arm} changed it by {figures.change(row['estimate'], signed=True)}{per} "
        f"({interval}){moved}; being assigned by {figures.change(row['assignment'], signed=True)}."
    )


def _table(data: Data, rows: Sequence[Row]) -> Table:
    cells = []
    for row in rows:
        share, figures = is_share(data, row["received"]), received_figures(data, [row])
        points = " (points)" if figures.share else ""
        cells.append(
            (
                f"↳ adjusted for {listed(row['covariates'])}"
                if row["covariates"]
                else f"{row['arm']} on {row['metric']}{points}",
                _amount(row["received_control"], share),
                _amount(row["received_arm"], share),
                figures.bare(row["assignment"], signed=True),
                figures.bare(row["estimate"], signed=True),
                spoken_ranges(row, figures),
                figures.between(row["interval_delta"]),
                "∞" if row["f"] is None else number(row["f"], 3),
            )
        )
    level = percent(data["confidence"])
    header = (
        "effect of", f"{rows[0]['received']} in {rows[0]['control']}", "in the arm", "assigned", "received",
        f"{level} interval (Fieller)", "delta method", "F",
    )  # fmt: skip
    return Table(header, tuple(cells))
