"""The readout as a document: its sections, and these on a terminal, as Markdown, in a notebook and as one page."""

import re
from collections.abc import Mapping
from dataclasses import replace
from html import escape
from typing import Any

from kanab.analysis import methods
from kanab.analysis.decision import decision_sentences, lead_sentences, look_sentences, rule_sentences
from kanab.choices import INTERNAL
from kanab.dataframes import flat_rows
from kanab.errors import listed
from kanab.report import words
from kanab.report.digits import Row, figures_of, metric_figures, percent
from kanab.report.document import Alert, Fold, Part, Section
from kanab.report.effect_tables import arms_table, balance_table, effects_table, metric_note
from kanab.report.figure import Figure, chosen_figure
from kanab.report.html_page import Page, fragment_html, header_html, marked, page_sections
from kanab.report.noise_words import noise_table
from kanab.report.pictures import effect_figure
from kanab.report.text import mapped, printable, sections_markdown, sections_text, unmarked, wrapped
from kanab.report.words import (
    alarm_sentences,
    correction_name,
    headlines,
    is_internal,
    metrics_of,
    spoken_arm,
    summary,
    title,
    tone,
    verdict_rows,
)
from kanab.tabular import Table, number, p_value

Data = Mapping[str, Any]

_FOREST_KEY = "In the pictures: dot, the effect; line, its interval; upright mark, no difference. "

BRIEF_WIDTH = 80
"""Columns of a terminal that nobody widened."""

_VERDICTS = {"untestable": "not testable", "early": "too early"}


def readout_sections(data: Data) -> list[Section]:
    """Return the whole readout in reading order: can it be trusted, what happened, for whom, at what k."""
    cautions = [Alert(caution["sentence"], "caution") for caution in data.get("cautions", ())]
    how = words.method_sentences(data)
    for method in methods.METHODS:
        how += method.how(data)
    sections = [
        Section("Before you act on it", (*cautions,), "cautions"),
        Section("Did people arrive as planned?", _arrival(data), "arrival"),
        _effects(data),
        *(
            Section(each.heading, (*each.parts(data), *each.figures(data).values()), each.name, key=each.key)
            for each in methods.METHODS
        ),
        Section("Privacy", _privacy(data), "privacy"),
        Section("Notes", (*words.note_sentences(data),), "notes"),
        Section("How it was computed", (*how, *rule_sentences(data)), "method"),
    ]
    return [section for section in sections if section.parts]


def _arrival(data: Data) -> tuple[Part, ...]:
    alarms = words.alarm_sentences(data)
    checks = (words.sample_ratio_sentence(data), *words.balance_sentences(data))
    alerts = [Alert(sentence, "alarm" if sentence in alarms else "fine") for sentence in checks]
    tables = (arms_table(data), balance_table(data)) if words.balance_alarmed(data) else (arms_table(data),)
    return *alerts, *words.cluster_sentences(data), *tables


def _effects(data: Data) -> Section:
    inner, figures = [], _effect_figures(data)
    for metric in metrics_of(data):
        parts: list[Part] = [
            *words.verdicts(data, metric),
            *metric_sentences(data, metric),
            effects_table(data, metric),
        ]
        parts += [figures[metric]] if metric in figures else []
        inner.append(Section(metric, (*parts,), note=metric_note(data, metric)))
    key = _FOREST_KEY + words.colour_key(data) if figures else ""
    return Section("What happened?", (*inner,) or (summary(data),), "effects", key=key)


def _privacy(data: Data) -> tuple[Part, ...]:
    """Return the receipt; what merging and withholding cost, and every scale of noise, on request."""
    costs = tuple(words.ended(text[:1].upper() + text[1:]) for text in data["privacy"].get("costs", ()))
    noise = [Fold("Noise of every number", (noise_table(data),))] if data["privacy"].get("noise") else []
    return *words.privacy_sentences(data), *([Fold("What it cost", costs)] if costs else []), *noise


def _effect_figures(data: Data) -> dict[str, Figure]:
    return {metric: figure for metric in metrics_of(data) if (figure := effect_figure(data, metric))}


def readout_figure(data: Data, what: str, metric: str | None) -> Figure:
    """Return what a readout's ``chart`` shows: effects, and what methods draw."""
    kinds = {"effects": lambda: {name: [figure] for name, figure in _effect_figures(data).items()}}
    for each in methods.METHODS:
        if each.draws:
            drawn = each.figures(data)
            kinds[each.name] = {name: [figure] for name, figure in drawn.items()}.copy
    return chosen_figure(kinds, what, metric, note=INTERNAL if is_internal(data) else "")


def metric_sentences(data: Data, metric: str) -> list[str]:
    """Return what stands beside a metric's verdicts: what adjusting gained, odds ratios, who is missing, and so on."""
    of_effects = (gain_sentences, odds_sentences, missing_sentences, look_sentences)
    of_methods = (each.beside for each in methods.METHODS)
    return [sentence for beside in (*of_effects, *of_methods) for sentence in beside(data, metric)]


def gain_sentences(data: Data, metric: str) -> list[str]:
    """Return how many more people the plain effects would have taken to be as precise as the adjusted ones."""
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
    parts = [f"{spoken_arm(row['arm'])}: {_more(row['sample_size_gain'], units) or 'no more'}" for row in rows]
    return [f"{worth} more {units} had come ({'; '.join(parts)})."]


def _more(share: float, units: str) -> str:
    """Return a share of people or clusters more in words; nothing where it is none."""
    if share >= 1:
        return f"{number(1 + share, 2)} times as many {units}"
    return f"{share * 100:.0f} % more {units}" if share >= 0.005 else ""


def odds_sentences(data: Data, metric: str) -> list[str]:
    """Return the odds ratios of a 0/1 metric's plain effects, in one line."""
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


def readout_text(data: Data, *, width: int | None = None, details: bool = False) -> str:
    """Return the readout for a terminal, at most ``width`` columns wide where names allow it.

    Without a width tables are as wide as they need. Control characters in names become visible. ``details`` adds what
    is folded, and every field of every effect.
    """
    clean = mapped(data, printable)
    sections = readout_sections(clean)
    if details:
        sections = [*map(_unfolded, sections), Section("Every field of the effects", _fields(clean))]
    return sections_text((title(clean), *decision_sentences(clean), summary(clean)), sections, width)


def _unfolded(section: Section) -> Section:
    parts: list[Part] = []
    for part in section.parts:
        parts += [f"{part.summary}:", *part.parts] if isinstance(part, Fold) else [part]
    return replace(section, parts=(*parts,))


def _fields(data: Data) -> tuple[Table, ...]:
    tables = []
    for metric in metrics_of(data):
        effects = [row for row in data["effects"] if row["metric"] == metric]
        names = [f"{row['arm']}{', adjusted' * (row['method'] == 'adjusted')}" for row in effects]
        flat = flat_rows(effects)
        rows = [(name, *(_field(row[name]) for row in flat)) for name in flat[0] if name not in ("metric", "arm")]
        tables.append(Table((metric, *names), tuple(rows)))
    return tuple(tables)


def _field(value: Any) -> str:
    if isinstance(value, float):
        return number(value, 6)
    return "–" if value is None else str(value)


def brief_text(data: Data) -> str:
    """Return the decision, alarms, and the effect that carries the verdict of each metric and arm.

    All is within 80 columns where names allow it; where there is no room for standard errors, intervals say them.
    """
    clean = mapped(data, printable)
    alarms = alarm_sentences(clean)
    alarms += [caution["sentence"] for caution in clean.get("cautions", ()) if caution["kind"] == "rows-not-people"]
    sentences = (f"{title(clean)}.", *decision_sentences(clean), *alarms)
    lines = [line for sentence in sentences for line in wrapped(sentence, BRIEF_WIDTH)]
    rows = verdict_rows(clean)
    lines += str(_brief_table(clean, rows)).splitlines() if rows else []
    return "\n".join([*lines, *(wrapped(INTERNAL, BRIEF_WIDTH) if is_internal(clean) else ())])


def _brief_table(data: Data, rows: list[Row]) -> Table:
    method = correction_name(data)
    header: tuple[str, ...] = (
        "metric", "arm", "effect", "SE", "interval", "relative", f"p ({method})" if method else "p", "verdict",
    )  # fmt: skip
    table = Table(header, tuple(_brief_cells(data, row, corrected=bool(method)) for row in rows))
    if max(map(len, str(table).splitlines())) <= BRIEF_WIDTH:
        return table
    narrow = (*header[:3], *header[4:6], "corrected p" if method else "p", "verdict")
    return Table(narrow, tuple(line[:3] + line[4:] for line in table.rows))


def _brief_cells(data: Data, row: Row, *, corrected: bool) -> tuple[str, ...]:
    figures, relative = metric_figures(data, row["metric"])
    change = relative.bare(row["relative"], signed=True)
    return (
        f"{row['metric']} (points)" if figures.share else row["metric"],
        row["arm"],
        figures.bare(row["estimate"], signed=True),
        figures.bare(row["se_population"]),
        figures.between(row["interval"]),
        change if change == "–" else f"{change} %",
        p_value(row["p_adjusted"] if corrected else row["p"]),
        verdict_word(tone(row)),
    )


def verdict_word(row_tone: str) -> str:
    """Return a row's tone as it is written in a line."""
    return _VERDICTS.get(row_tone, row_tone)


def readout_markdown(data: Data) -> str:
    """Return the readout as Markdown; names that look like markup are escaped."""
    safe = mapped(data, unmarked)
    lines = [f"# {title(safe)}", "", *(f"**{sentence}**\n" for sentence in decision_sentences(safe)), summary(safe)]
    return "\n".join([*lines, *sections_markdown(readout_sections(safe))]) + "\n"


def readout_html(data: Data) -> str:
    """Return a fragment for Jupyter and marimo: no style sheet and no colours of its own, so it fits light and dark."""
    lead = "<br>".join(escape(sentence) for sentence in (*decision_sentences(data), summary(data)))
    head = f"<p><strong>{escape(title(data))}</strong><br>{lead}</p>"
    return f'<div class="kanab-readout">{head}{fragment_html(readout_sections(data))}</div>'


def report_html(data: Data) -> str:
    """Return the readout as one HTML file that loads nothing from the network."""
    return report_page(data).to_html()


def report_page(data: Data) -> Page:
    """Return the page of a readout, with pictures and the same numbers in tables."""
    header = header_html("Experiment", data["experiment"], *lead_html(data))
    internal = INTERNAL if is_internal(data) else ""  # which stands at the top of a page, and not once more
    sections = [
        replace(section, parts=tuple(part for part in section.parts if part != INTERNAL))
        for section in readout_sections(data)
    ]
    shown = [section for section in sections if section.parts]
    return Page(title(data), header, page_sections(shown), "from counts and sums", internal=internal)


def lead_html(data: Data) -> list[str]:
    """Return the sentences that lead into a page, as HTML; the decision stands out."""
    sentences = [marked(sentence) for sentence in lead_sentences(data)]
    if decision_sentences(data):
        first, *rest = re.split(r"(?<=[.?]) ", sentences[0], maxsplit=1)
        sentences[0] = " ".join([f"<strong>{first}</strong>", *rest])
    return sentences
