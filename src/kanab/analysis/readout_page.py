"""The readout as a report in one file that loads nothing from the network."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from html import escape
from itertools import takewhile
from typing import Any

from kanab.analysis import methods
from kanab.analysis.sections import (
    caution_sentences,
    method_sections,
    metric_sentences,
    readout_figures,
)
from kanab.choices import INTERNAL
from kanab.report.decision import decision_sentences, lead_sentences, rule_sentences
from kanab.report.document import Fold, Part, Section
from kanab.report.effect_tables import (
    arms_table,
    balance_table,
    effects_table,
    metric_heading,
)
from kanab.report.figure import Figure
from kanab.report.html_page import Page, PageSection, bullets, filled, header_html, marked, table_html
from kanab.report.noise_words import noise_terms
from kanab.report.words import (
    MARKS,
    account_words,
    alarm_sentences,
    balance_alarmed,
    balance_sentences,
    cluster_sentences,
    colour_key,
    effective_k_scope,
    ended,
    is_internal,
    merged_levels,
    method_sentences,
    metrics_of,
    note_sentences,
    sample_ratio_sentence,
    smallest_class,
    summary,
    title,
    tone,
    unchained,
    verdicts,
)

Data = Mapping[str, Any]
Pictures = Mapping[str, Mapping[str, Figure]]  # by kind and metric

_FOREST_KEY = "In the pictures: dot, the effect; line, its interval; upright mark, no difference. "


def report_html(data: Data) -> str:
    """Return the report as one HTML file; see ``report_page``."""
    return report_page(data).to_html()


def report_page(data: Data) -> Page:
    """Return the report in its sections, with pictures and the same numbers in tables."""
    pictures = readout_figures(data)
    sections = filled(
        PageSection("cautions", "Before you act on it", _cautions(data)),
        PageSection("arrival", "Did people arrive as planned?", _arrival(data)),
        PageSection("effects", "What happened?", _effects(data, pictures)),
        *_methods(data, pictures),
        PageSection("privacy", "Privacy" if is_internal(data) else "Privacy receipt", _privacy(data)),
        PageSection("notes", "Notes", bullets(note_sentences(data))),
        PageSection("method", "How it was computed", bullets([*method_sentences(data), *rule_sentences(data)])),
    )
    header = header_html("Experiment", data["experiment"], *lead_html(data))
    return Page(title(data), header, sections, "from counts and sums", internal=INTERNAL if is_internal(data) else "")


def lead_html(data: Data) -> list[str]:
    """Return the sentences that lead into a report, as HTML; the decision stands out."""
    sentences = [marked(sentence) for sentence in lead_sentences(data)]
    if decision_sentences(data):
        first, *rest = re.split(r"(?<=[.?]) ", sentences[0], maxsplit=1)
        sentences[0] = " ".join([f"<strong>{first}</strong>", *rest])
    return sentences


def _cautions(data: Data) -> str:
    """Return each caution in a box of its own, so that none is overlooked."""
    return "\n".join(
        f'<p class="call caution" role="note">{marked(sentence)}</p>' for sentence in caution_sentences(data)
    )


def _methods(data: Data, pictures: Pictures) -> list[PageSection]:
    """Return the section of every method: its pictures beside its first sentences, then its tables."""
    keys = {each.name: each.key for each in methods.METHODS}
    return [
        PageSection(section.name, section.heading, _method(section, pictures.get(section.name, {}), keys[section.name]))
        for section in method_sections(data)
    ]


def _method(section: Section, pictures: Mapping[str, Figure], key: str) -> str:
    drawn = "".join(_figure(each) for each in pictures.values())
    if not drawn:
        return _parts(section.parts, section.heading)
    sentences = list(takewhile(lambda part: isinstance(part, str), section.parts))
    rest = _parts(section.parts[len(sentences) :], section.heading)
    said = f'<p class="key">{escape(key)}</p>' if key else ""
    return f'{said}<div class="pair">{bullets(map(str, sentences))}<div>{drawn}</div></div>\n{rest}'


def _parts(parts: Iterable[Part], name: str) -> str:
    """Return sentences before the table that they are about, in reading order; folds are opened by a click."""
    pieces: list[str] = []
    sentences: list[str] = []
    for part in parts:
        if isinstance(part, str):
            sentences.append(part)
            continue
        pieces.append(bullets(sentences) if len(sentences) > 1 else "".join(f"<p>{marked(s)}</p>" for s in sentences))
        if isinstance(part, Fold):
            inner = _parts(part.parts, part.summary)
            pieces.append(f"<details><summary>{escape(part.summary)}</summary>\n{inner}</details>")
        else:
            pieces.append(table_html(part, f"{name} {part.header[0]}", kind="cards wide"))
        sentences = []
    return "\n".join(pieces)


def _arrival(data: Data) -> str:
    """Return each check in a box of its own, then people per arm, and the checks of balance where one is an alarm."""
    alarms = alarm_sentences(data)
    pieces = []
    for sentence in (sample_ratio_sentence(data), *balance_sentences(data)):
        verdict, _, rest = sentence.partition(". ")
        alarm = ' alarm" role="alert' if sentence in alarms else ""
        pieces.append(f'<p class="call{alarm}"><strong>{escape(verdict)}.</strong> {marked(rest)}</p>')
    pieces += [f"<p>{marked(sentence)}</p>" for sentence in cluster_sentences(data)]
    pieces.append(table_html(arms_table(data), "People per arm", kind="cards few"))
    if balance_alarmed(data):
        pieces.append(table_html(balance_table(data), "Balance of the arms", kind="cards wide"))
    return "\n".join(pieces)


def _effects(data: Data, pictures: Pictures) -> str:
    if not metrics_of(data):
        return f"<p>{escape(summary(data))}</p>"
    articles = [_metric(data, metric, pictures) for metric in metrics_of(data)]
    drawn = bool(pictures["effects"])
    key = f'<p class="key">{escape(_FOREST_KEY + colour_key(data))}</p>' if drawn else ""
    return "\n".join([key, *articles])


def _metric(data: Data, metric: str, pictures: Pictures) -> str:
    """Return the verdicts on one metric beside its forest plot, then the numbers."""
    unit = metric_heading(data, metric).removeprefix(metric).strip(" ()")
    units = f'<p class="unit">{escape(unit)}</p>' if unit else ""
    items = "".join(
        f'<li class="{tone(verdict.row)}"><span class="mark" aria-hidden="true">{MARKS[verdict.kind]}</span>'
        f'<span class="claim">{marked(verdict.claim)}</span> '
        f'<span class="evidence">{marked(_sentence(verdict.evidence))}</span></li>'
        for verdict in verdicts(data, metric)
    )
    items += "".join(
        f'<li class="unclear"><span class="evidence">{marked(sentence)}</span></li>'
        for sentence in metric_sentences(data, metric)
    )
    picture = _figure(pictures["effects"].get(metric))
    pair = "pair" if picture else "pair words"
    return (
        f"<article>\n<h3>{escape(metric)}</h3>{units}\n"
        f'<div class="{pair}"><ul class="verdicts">{items}</ul>{picture}</div>\n'
        f"{table_html(effects_table(data, metric), f'Effects on {metric}', kind='cards wide')}\n</article>"
    )


def _sentence(evidence: str) -> str:
    """Return the evidence as a line of its own."""
    text = evidence.lstrip(",;: ")
    return text[:1].upper() + text[1:]


def _privacy(data: Data) -> str:
    """Return the receipt as terms and their values."""
    privacy = data["privacy"]
    rows = [
        *_rule(data),
        *(
            (("Acknowledged people", f"{account_words(people)}, in steps of k"),)
            if (people := privacy.get("people"))
            else ()
        ),
        *((f"Merged levels of {name}", into) for name, into in merged_levels(data)),
        *((f"Left out: {name}", why) for name, why in privacy["left_out"].items()),
        *(("What it cost", ended(text)) for text in privacy.get("costs", ())),
        *(("Differs from defaults", text) for text in privacy["deviations"]),
    ]
    if not merged_levels(data):
        rows.append(("Merged levels", "none"))
    if not privacy["left_out"]:
        rows.append(("Left out", "nothing"))
    return f"<dl>{''.join(f'<dt>{escape(term)}</dt><dd>{escape(str(value))}</dd>' for term, value in rows)}</dl>"


def _rule(data: Data) -> list[tuple[str, str]]:
    """Return what is promised, and over what; of somebody's own rows only how far levels were merged."""
    privacy = data["privacy"]
    if is_internal(data):
        return [("Rule", f"levels merged to k = {privacy['k']}; nothing else is withheld")]
    ledger = privacy.get("ledger") or "chained" if privacy["chained"] else unchained(privacy)
    if privacy.get("noise"):
        return [*noise_terms(data), ("Ledger", ledger)]
    return [
        ("Rule", f"k-anonymous at k = {privacy['k']}"),
        ("Smallest class", smallest_class(data)),
        ("Classes", f"{privacy['classes']:,}"),
        ("Effective k of class sums", _effective(privacy)),
        ("Audit", privacy["audit"]),
        ("Ledger", ledger),
    ]


def _effective(privacy: Data) -> str:
    k = privacy["effective_k"]
    return "not evaluated" if k is None else f"at least {k:,}, {effective_k_scope(privacy)}"


def _figure(figure: Figure | None) -> str:
    return f"<figure>{figure.to_html()}</figure>" if figure else ""
