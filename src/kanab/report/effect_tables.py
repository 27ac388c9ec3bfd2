"""The readout's numbers as tables of short texts."""

from collections.abc import Mapping
from typing import Any

from kanab.errors import listed
from kanab.report.digits import fixed, is_share, metric_figures, percent
from kanab.report.words import balance_rows, correction_name, headlines, lower_is_better, role_of, several_roles
from kanab.tabular import Table, number, p_value

Data = Mapping[str, Any]


def metric_note(data: Data, metric: str) -> str:
    """Return what stands beside a metric: its role where there are several, that less is better, and its units."""
    label = role_of(data, metric) if several_roles(data) else None
    about = [text for text in (label, "less is better" if lower_is_better(data, metric) else None) if text]
    units = ["means in %, effects in points"] if is_share(data, metric) else []
    return "; ".join([", ".join(about)] * bool(about) + units)


def arms_table(data: Data) -> Table:
    """Return people per arm beside their planned shares."""
    ratio = data["sample_ratio"]
    total = data["people"]
    rows = tuple(
        (
            f"{arm} (control)" if arm == data["control"] and arm.lower() != "control" else arm,
            f"{people:,}",
            percent(people / total, 2) if total else "–",
            percent(ratio["shares"][arm], 2) if arm in ratio["shares"] else "–",
            fixed(ratio["residuals"].get(arm), 2, signed=True),
        )
        for arm, people in data["arms"].items()
    )
    planned = "planned" if ratio["declared"] else "if equal"
    clusters = data.get("clusters")
    if not clusters:
        return Table(("arm", "people", "share", planned, "residual"), rows)
    people = clusters["people"] or {}
    with_people = tuple(
        (*row, f"{people[arm]:,}" if people else "–") for row, arm in zip(rows, data["arms"], strict=True)
    )
    return Table(("arm", "clusters", "share", planned, "residual", "people"), with_people)


def balance_table(data: Data) -> Table:
    """Return every check of balance: its test, and the arm and level that fit least."""
    rows = []
    for row in balance_rows(data):
        covariate, mean = row["about"] == "covariate", row["about"] == "number"
        sides = [number(row[side], 4) if mean else f"{number(100 * row[side], 3)} %" for side in ("share", "elsewhere")]
        rows.append(
            (
                row["name"] if covariate or mean else f"{row['name']}: missing values",
                number(row["chi2"], 3),
                str(row["df"]),
                p_value(row["p"] if row["p_any_time"] is None else row["p_any_time"]),
                p_value(row["p_adjusted"]),
                f"{row['name']} {row['level']}" if covariate else "mean" if mean else "has a value",
                row["arm"],
                *sides,
                "ALARM" if row["alarm"] else "fine",
            )
        )
    header = ("balance of", "χ²", "df", "p", "corrected p", "furthest off", "in arm", "there", "elsewhere", "verdict")
    return Table(header, tuple(rows))


def effects_table(data: Data, metric: str) -> Table:
    """Return each arm against the control, plain and adjusted; decimals follow the narrowest interval.

    What the verdict's row is adjusted for stands in its sentence; repeated here, the table would not fit 100 columns.
    """
    said = [row["covariates"] for row in headlines(data, metric)]
    rows = [row for row in data["effects"] if row["metric"] == metric]
    ordered = [row for arm in dict.fromkeys(row["arm"] for row in rows) for row in rows if row["arm"] == arm]
    figures, relative = metric_figures(data, metric)
    level = f"{percent(data['confidence'])} interval"
    method = correction_name(data)
    header = (f"against {data['control']}", "control", "arm", "effect", "SE", level, "relative", level, "p")
    cells = [
        (
            row["arm"]
            if row["method"] != "adjusted"
            else "↳ adjusted"
            if row["covariates"] in said
            else f"↳ adjusted for {listed(row['covariates'])}",
            figures.bare(row["mean_control"]),
            figures.bare(row["mean_arm"]),
            figures.bare(row["estimate"], signed=True),
            figures.bare(row["se_population"]),
            figures.between(row["interval"]),
            _percent(relative.bare(row["relative"], signed=True)),
            _percent(relative.between(row["relative_interval"])),
            p_value(row["p"]),
        )
        for row in ordered
    ]
    if not method:
        return Table(header, tuple(cells))
    corrected = tuple((*cell, p_value(row["p_adjusted"])) for cell, row in zip(cells, ordered, strict=True))
    return Table((*header, f"p ({method})"), corrected)


def _percent(text: str) -> str:
    return text if text == "–" else f"{text} %"
