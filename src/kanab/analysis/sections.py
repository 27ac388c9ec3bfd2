"""The readout as a document: its sections, and these on a terminal, as Markdown and in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from kanab.analysis import methods
from kanab.choices import INTERNAL
from kanab.errors import listed
from kanab.report.decision import decision_sentences, rule_sentences
from kanab.report.digits import Row, bind_numbers, figures_of, percent
from kanab.report.document import Part, Section
from kanab.report.effect_tables import (
    arms_table,
    balance_table,
    effects_table,
    metric_heading,
)
from kanab.report.figure import Figure, chosen_figure
from kanab.report.look_words import look_sentences
from kanab.report.pictures import effect_figure
from kanab.report.text import mapped, printable, sections_markdown, sections_text, unmarked
from kanab.report.words import (
    alarm_sentences,
    balance_alarmed,
    balance_sentences,
    cluster_sentences,
    headlines,
    is_internal,
    method_sentences,
    metrics_of,
    note_sentences,
    privacy_sentences,
    sample_ratio_sentence,
    spoken_arm,
    summary,
    title,
    verdicts,
)
from kanab.tabular import Table, number

Data = Mapping[str, Any]

_HEADING = "font-weight:600;margin:1em 0 .3em"
_ALARM = "border-left:6px solid #d1242f;padding-left:.7em"


def readout_sections(data: Data) -> list[Section]:
    """Return the whole readout in reading order: can it be trusted, what happened, for whom, at what k."""
    sections = [
        Section("Before you act on it", tuple(caution_sentences(data))),
        Section("Did people arrive as planned?", arrival_parts(data)),
        *(Section(metric_heading(data, metric), _effect_parts(data, metric)) for metric in metrics_of(data)),
        *([] if metrics_of(data) else [Section("Effects", (summary(data),))]),
        *method_sections(data),
    ]
    sections.append(Section("Privacy", tuple(privacy_sentences(data))))
    sections.append(Section("Notes", (*note_sentences(data), *method_sentences(data), *rule_sentences(data))))
    return [section for section in sections if section.parts]


def arrival_parts(data: Data) -> tuple[Part, ...]:
    """Return whether people arrived in the planned shares, and whether the arms hold alike people."""
    tables = (arms_table(data), balance_table(data)) if balance_alarmed(data) else (arms_table(data),)
    return sample_ratio_sentence(data), *balance_sentences(data), *cluster_sentences(data), *tables


def _effect_parts(data: Data, metric: str) -> tuple[Part, ...]:
    claims = (verdict.sentence for verdict in verdicts(data, metric))
    return *claims, *metric_sentences(data, metric), effects_table(data, metric)


def method_sections(data: Data) -> list[Section]:
    """Return the answers to what was asked besides, or what several comparisons bring with them."""
    sections = [Section(each.heading, tuple(each.parts(data)), each.name) for each in methods.METHODS]
    return [section for section in sections if section.parts]


def readout_figures(data: Data) -> dict[str, dict[str, Figure]]:
    """Return what can be drawn, by kind and metric: effects, and what methods draw."""
    effects = {metric: figure for metric in metrics_of(data) if (figure := effect_figure(data, metric))}
    return {"effects": effects} | {each.name: dict(each.figures(data)) for each in methods.METHODS if each.draws}


def readout_figure(data: Data, what: str, metric: str | None) -> Figure:
    """Return what a readout's ``chart`` shows."""
    kinds = {}
    for kind, figures in readout_figures(data).items():
        kinds[kind] = {name: [figure] for name, figure in figures.items()}.copy
    return chosen_figure(kinds, what, metric, note=INTERNAL if is_internal(data) else "")


def caution_sentences(data: Data) -> list[str]:
    """Return what to know before acting on any number."""
    return [caution["sentence"] for caution in data.get("cautions", ())]


def metric_sentences(data: Data, metric: str) -> list[str]:
    """Return what stands beside a metric's verdicts: what adjusting saved, odds ratios, who is missing, and so on."""
    of_effects = (saved_sentences, odds_sentences, missing_sentences, look_sentences)
    of_methods = (each.beside for each in methods.METHODS)
    return [sentence for beside in (*of_effects, *of_methods) for sentence in beside(data, metric)]


def saved_sentences(data: Data, metric: str) -> list[str]:
    """Return how many more people the plain effects would have taken to be as precise as the adjusted ones.

    >>> row = {"metric": "spend", "arm": "B", "covariates": ["spend_before"], "sample_size_gain": 0.384}
    >>> saved_sentences({"effects": [row]}, "spend")
    ['Adjusting for spend_before is worth as much as if 38 % more people had come.']
    >>> row |= {"covariates": ["tier"], "sample_size_gain": -0.2, "se_noise": 0.1, "carries_verdict": True}
    >>> saved_sentences({"effects": [row]}, "spend")
    ['Adjusting for tier costs more in noise than it explains: as if 20 % fewer people had come.']
    >>> saved_sentences({"effects": [row | {"carries_verdict": False}]}, "spend")
    ['Adjusting for tier would add too much noise: the effect without it decides.']
    """
    rows = [row for row in data["effects"] if row["metric"] == metric and row.get("sample_size_gain") is not None]
    units = "clusters" if data.get("clusters") else "people"
    if any(row.get("se_noise") and not row["carries_verdict"] for row in rows):
        return [
            f"Adjusting for {listed(rows[0]['covariates'])} would add too much noise: the effect without it decides."
        ]
    gains = list(dict.fromkeys(_more(row["sample_size_gain"], units) for row in rows))
    if not any(gains):
        lost = max((-row["sample_size_gain"] for row in rows if row.get("se_noise")), default=0.0)
        fewer = f"as if {lost * 100:.0f} % fewer {units} had come"
        why = f"Adjusting for {listed(rows[0]['covariates'])} costs more in noise than it explains" if rows else ""
        return [f"{why}: {fewer}."] if lost >= 0.005 else []
    worth = f"Adjusting for {listed(rows[0]['covariates'])} is worth as much as if"
    if len(gains) == 1:
        return [f"{worth} {gains[0]} had come."]
    parts = [f"{spoken_arm(row['arm'])}: {_more(row['saved'], units) or 'no more'}" for row in rows]
    return [f"{worth} more {units} had come ({'; '.join(parts)})."]


def _more(share: float, units: str) -> str:
    """Return a share of people or clusters more in words; nothing where it is none."""
    if share >= 1:
        return f"{number(1 + share, 2)} times as many {units}"
    return f"{share * 100:.0f} % more {units}" if share >= 0.005 else ""


def odds_sentences(data: Data, metric: str) -> list[str]:
    """Return the odds ratios of a 0/1 metric's plain effects, in one line.

    >>> row = {"metric": "bought", "arm": "B", "control": "A", "method": "difference", "carries_verdict": True}
    >>> row |= {"odds_ratio": 1.254, "odds_ratio_interval": [1.02, 1.541]}
    >>> odds_sentences({"effects": [row], "confidence": 0.95}, "bought")
    ['Odds ratio against A: B 1.25 (95 % interval 1.02 to 1.54).']
    """
    rows = [row for row in data["effects"] if row["metric"] == metric and row.get("odds_ratio_interval")]
    parts = []
    for row in rows:
        figures = figures_of([{"estimate": row["odds_ratio"], "interval": row["odds_ratio_interval"]}], share=False)
        interval = f"{percent(data['confidence'])} interval {figures.spoken(row['odds_ratio_interval'])}"
        parts.append(f"{spoken_arm(row['arm'])} {figures.bare(row['odds_ratio'])} ({interval})")
    plain = " (not adjusted)" if any(row["method"] == "adjusted" for row in headlines(data, metric)) else ""
    return [f"Odds ratio against {spoken_arm(rows[0]['control'])}{plain}: {'; '.join(parts)}."] if rows else []


def missing_sentences(data: Data, metric: str) -> list[str]:
    """Return how many people at least have no value of a metric, and what became of them, in one line."""
    row: Row = next((row for row in data["effects"] if row["metric"] == metric), {})
    if not row.get("people_missing"):
        return []
    rule = " and are left out of it" if row["missing"] == "exclude" else ", which counts as 0"
    least, steps = ("", "") if is_internal(data) else ("At least ", f" (in steps of {data['k']})")
    return [f"{least}{row['people_missing']:,} people have no value of {metric}{rule}{steps}."]


# ── surfaces ───────────────────────────────────────────────────────────────────────────────────


def readout_text(data: Data, *, width: int | None = None) -> str:
    """Return the readout for a terminal, at most ``width`` columns wide where names allow it.

    Without a width tables are as wide as they need. Control characters in names become visible.
    """
    clean = mapped(data, printable)
    return sections_text((title(clean), *decision_sentences(clean), summary(clean)), readout_sections(clean), width)


def readout_markdown(data: Data) -> str:
    """Return the readout as Markdown; names that look like markup are escaped."""
    safe = mapped(data, unmarked)
    lines = [f"# {title(safe)}", "", *(f"**{sentence}**\n" for sentence in decision_sentences(safe)), summary(safe)]
    return "\n".join([*lines, *sections_markdown(readout_sections(safe))]) + "\n"


def readout_html(data: Data) -> str:
    """Return a fragment for Jupyter and marimo: no style sheet and no colours of its own, so it fits light and dark."""
    alarms = alarm_sentences(data)
    lead = "<br>".join(escape(sentence) for sentence in (*decision_sentences(data), summary(data)))
    parts = [f"<p><strong>{escape(title(data))}</strong><br>{lead}</p>"]
    for section in readout_sections(data):
        parts.append(f'<p role="heading" aria-level="4" style="{_HEADING}">{escape(section.heading)}</p>')
        for part in section.printed:
            if isinstance(part, Table):
                parts.append(f'<div style="overflow-x:auto">{part.to_html()}</div>')
            else:
                style = _ALARM if part in alarms else "margin:.2em 0"
                parts.append(f'<p style="{style}">{escape(bind_numbers(part))}</p>')
    return f'<div class="kanab-readout">{"".join(parts)}</div>'
