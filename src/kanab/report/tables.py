"""The readout's numbers as tables of short texts, and the order in which everything is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kanab.errors import listed
from kanab.report.figures import error_figures, figures_of, fixed, is_share, percent, relative_figures
from kanab.report.sections import caution_sentences, further_answers, metric_sentences
from kanab.report.words import (
    CORRECTIONS,
    differs,
    method_sentences,
    metrics_of,
    note_sentences,
    privacy_sentences,
    sample_ratio_sentence,
    segment_sentences,
    summary,
    verdicts,
)
from kanab.tabular import Table, number, p_value

Data = Mapping[str, Any]


@dataclass(frozen=True)
class Section:
    """A heading, and sentences and tables in reading order."""

    heading: str
    parts: tuple[str | Table, ...]


def sections(data: Data) -> list[Section]:
    """The whole readout in reading order: can it be trusted, what happened, for whom, at what k."""
    cautions = caution_sentences(data)
    found = [Section("Before you act on it", tuple(cautions))] if cautions else []
    found.append(Section("Did people arrive as planned?", (sample_ratio_sentence(data), arms_table(data))))
    found += [
        Section(metric_heading(data, metric), (*_said(data, metric), effects_table(data, metric)))
        for metric in metrics_of(data)
    ]
    if not metrics_of(data):
        found.append(Section("Effects", (summary(data),)))
    found += [Section(one.heading, one.parts) for one in further_answers(data)]
    if data["segments"]:
        said = segment_sentences(data)
        found.append(Section("Does the effect differ by segment?", (*said, segments_table(data))))
    found.append(Section("Privacy", tuple(privacy_sentences(data))))
    notes = (*note_sentences(data), *method_sentences(data))
    return [*found, Section("Notes", notes)] if notes else found


def _said(data: Data, metric: str) -> tuple[str, ...]:
    return *(verdict.sentence for verdict in verdicts(data, metric)), *metric_sentences(data, metric)


def metric_heading(data: Data, metric: str) -> str:
    """The metric, and its units where they are known."""
    return f"{metric} (means in %, effects in points)" if is_share(data, metric) else metric


def arms_table(data: Data) -> Table:
    """People per arm beside their planned shares."""
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
    return Table(("arm", "people", "share", planned, "residual"), rows)


def effects_table(data: Data, metric: str) -> Table:
    """Each arm against the control, plain and adjusted; decimals follow the narrowest interval."""
    rows = [row for row in data["effects"] if row["metric"] == metric]
    ordered = [row for arm in dict.fromkeys(row["arm"] for row in rows) for row in rows if row["arm"] == arm]
    figures = figures_of(rows, share=is_share(data, metric))
    relative = relative_figures(rows)
    level = f"{percent(data['confidence'])} interval"
    method = CORRECTIONS.get(data["correction"], data["correction"])
    header = (f"against {data['control']}", "control", "arm", "effect", level, "relative", level, "p")
    cells = [
        (
            f"↳ adjusted for {listed(row['covariates'])}" if row["method"] == "adjusted" else row["arm"],
            figures.bare(row["mean_control"]),
            figures.bare(row["mean_arm"]),
            figures.bare(row["estimate"], signed=True),
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
    """Every test of segments: the robust F that decides, and the pooled one beside it."""
    pooled = {(row["metric"], row["covariate"]): row for row in data["segments"] if not row["decides"]}
    rows = []
    for row in data["segments"]:
        if row["decides"]:
            beside = pooled.get((row["metric"], row["covariate"]), {"F": None, "p": None})
            said = "not testable" if row["p"] is None else "yes" if differs(row, data["confidence"]) else "no sign"
            stub = f"{row['metric']} by {row['covariate']}"
            robust = (number(row["F"], 3), p_value(row["p"]), p_value(row["p_adjusted"]))
            rows.append(
                (stub, said, row["variance"].replace("_", " "), *robust, number(beside["F"], 3), p_value(beside["p"]))
            )
    header = ("effect on", "differs", "variance", "robust F", "p", "corrected p", "pooled F", "pooled p")
    return Table(header, tuple(rows))


def follow_ups_table(data: Data) -> Table:
    """The effect in each level against the effect in the rest."""
    rows = []
    for one in data["follow_ups"]:
        peers = [other["se"] for other in data["follow_ups"] if other["metric"] == one["metric"]]
        share = is_share(data, one["metric"])
        figures = error_figures(peers, share=share)
        stub = f"{one['metric']}{' (points)' if share else ''}, {one['covariate']} = {one['level']}"
        sides = (figures.bare(one[side], signed=True) for side in ("effect", "rest", "difference"))
        tests = (figures.bare(one["se"]), p_value(one["p"]), p_value(one["p_adjusted"]))
        rows.append((stub, one["arm"], *sides, *tests))
    header = ("effect on", "arm", "there", "in the rest", "difference", "std. error", "p", "corrected p")
    return Table(header, tuple(rows))
