"""The readout's numbers as tables of short texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kanab.errors import listed
from kanab.report.figures import Row, error_figures, figures_of, fixed, is_share, metric_figures, percent
from kanab.report.words import (
    balance_rows,
    correction_name,
    differs,
    headlines,
    lower_is_better,
    role_of,
    segment_test,
    several_roles,
)
from kanab.tabular import Table, number, p_value

Data = Mapping[str, Any]


def metric_heading(data: Data, metric: str) -> str:
    """Return the metric, its role where there are several, its good direction where that is less, and its units."""
    label = role_of(data, metric) if several_roles(data) else None
    about = [text for text in (label, "less is better" if lower_is_better(data, metric) else None) if text]
    units = ["means in %, effects in points"] if is_share(data, metric) else []
    notes = "; ".join([", ".join(about)] * bool(about) + units)
    return f"{metric} ({notes})" if notes else metric


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


def segments_table(data: Data) -> Table:
    """Return every test of segments that decides; the pooled F is in the plain data."""
    rows = []
    for row in data["segments"]:
        if row["decides"]:
            unclear = "not testable" if row["p"] is None else "no sign"
            answer = "yes" if differs(row, data["confidence"]) else unclear
            stub = f"{row['metric']} by {row['covariate']}"
            statistic = "–" if row["F"] is None else segment_test(row).removeprefix("robust ")
            test = (statistic, p_value(row["p"]), p_value(row["p_adjusted"]))
            rows.append((stub, answer, row["variance"].replace("_", " "), *test))
    return Table(("effect on", "differs", "variance", "test", "p", "corrected p"), tuple(rows))


def segment_places(data: Data) -> list[tuple[str, str]]:
    """Return the metrics and covariates whose effects at levels are known, in order."""
    return list(dict.fromkeys((row["metric"], row["covariate"]) for row in data["segment_effects"]))


def rows_of_levels(data: Data, metric: str, covariate: str) -> list[Row]:
    """Return the effects at the levels of one covariate on one metric."""
    return [row for row in data["segment_effects"] if (row["metric"], row["covariate"]) == (metric, covariate)]


def clear_level(row: Row, confidence: float) -> bool:
    """Return whether the effect at a level is more than exploratory: the F decides, and both tests ring."""
    second = row["p_null_adjusted"]
    return not row["exploratory"] and differs(row, confidence) and (second is None or second < 1 - confidence)


def segment_effects_sentences(data: Data, metric: str, covariate: str) -> list[str]:
    """Return how the effects at the levels of a covariate may be read, and which levels have no interval."""
    rows = rows_of_levels(data, metric, covariate)
    of_rate = any(
        test["decides"] and test["df"] and test["df"][1] is None
        for test in data["segments"]
        if (test["metric"], test["covariate"]) == (metric, covariate)
    )
    named = "χ²" if of_rate else "F"
    reading = (
        f"Exploratory: the {named} test does not say that the effect differs, so differences between levels may be "
        "chance."
        if rows[0]["exploratory"]
        else f"The {named} test says that the effect differs."
    )
    tested = sum(row["p"] is not None for row in rows)
    together = f" The {tested} intervals hold together, with {percent(data['confidence'])} confidence (Šidák)."
    reading += together * (tested > 1)
    sentences = [f"{metric_heading(data, metric)}, the effect at each level of {covariate}. {reading}"]
    for note in dict.fromkeys(row["note"] for row in rows if row["note"]):
        where = [row for row in rows if row["note"] == note]
        at = "" if len(where) == len(rows) else f"Where {covariate} is {listed(level_names(where))}: "
        text = f"{at}{note}."
        sentences.append(text[:1].upper() + text[1:])
    return sentences


def level_names(rows: Sequence[Row]) -> list[str]:
    """Return the levels of rows, each once."""
    return list(dict.fromkeys(row["level"] for row in rows))


def segment_effects_table(data: Data, metric: str, covariate: str) -> Table:
    """Return the effect at each level of a covariate: people, means, and intervals that hold together."""
    rows = rows_of_levels(data, metric, covariate)
    several = len({row["arm"] for row in rows}) > 1
    figures = figures_of([{**row, "interval": row["interval_adjusted"]} for row in rows], share=is_share(data, metric))
    cells = tuple(
        (
            f"{row['level']}, {row['arm']}" if several else row["level"],
            f"{row['people_control']:,}",
            f"{row['people_arm']:,}",
            figures.bare(row["mean_control"]),
            figures.bare(row["mean_arm"]),
            figures.bare(row["estimate"], signed=True),
            figures.bare(row["se"]),
            figures.between(row["interval_adjusted"]),
            p_value(row["p"]),
            p_value(row["p_adjusted"]),
        )
        for row in rows
    )
    interval = f"{percent(data['confidence'])} interval"
    header = (covariate, "people, control", "arm", "control", "arm", "effect", "SE", interval, "p", "p (Šidák)")
    return Table(header, cells)


def follow_ups_table(data: Data) -> Table:
    """Return the effect in each level against the effect in the rest."""
    rows = []
    for level in data["follow_ups"]:
        errors = [other["se"] for other in data["follow_ups"] if other["metric"] == level["metric"]]
        share = is_share(data, level["metric"])
        figures = error_figures(errors, share=share)
        stub = f"{level['metric']}{' (points)' if share else ''}, {level['covariate']} = {level['level']}"
        sides = (figures.bare(level[side], signed=True) for side in ("effect", "rest", "difference"))
        tests = (figures.bare(level["se"]), p_value(level["p"]), p_value(level["p_adjusted"]))
        rows.append((stub, level["arm"], *sides, *tests))
    header = ("effect on", "arm", "there", "in the rest", "difference", "SE", "p", "corrected p")
    return Table(header, tuple(rows))
