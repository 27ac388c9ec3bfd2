"""The readout in sections of sentences and tables; among them what else was asked: contrasts, claims, bayes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kanab.errors import listed
from kanab.report.decision import rule_sentences
from kanab.report.figures import Figures, Row, figures_of, is_share, percent, relative_figures, spoken_p
from kanab.report.look_words import look_sentences
from kanab.report.quantile_section import quantile_parts
from kanab.report.received_section import received_parts
from kanab.report.tables import (
    arms_table,
    balance_table,
    effects_table,
    metric_heading,
    segment_effects_sentences,
    segment_effects_table,
    segment_places,
    segments_table,
)
from kanab.report.window_section import window_parts
from kanab.report.words import (
    balance_alarmed,
    balance_sentences,
    cluster_sentences,
    correction_name,
    families,
    headlines,
    is_internal,
    method_of,
    method_sentences,
    metrics_of,
    note_sentences,
    privacy_sentences,
    sample_ratio_sentence,
    segment_sentences,
    spoken_arm,
    spoken_ps,
    summary,
    verdicts,
)
from kanab.tabular import Table, number, p_value

Data = Mapping[str, Any]
Part = str | Table


@dataclass(frozen=True)
class Section:
    """A heading, and sentences and tables in reading order; ``name`` is its anchor where it becomes HTML."""

    heading: str
    parts: tuple[Part, ...]
    name: str = ""


def readout_sections(data: Data) -> list[Section]:
    """Return the whole readout in reading order: can it be trusted, what happened, for whom, at what k."""
    sections = [
        Section("Before you act on it", tuple(caution_sentences(data))),
        Section("Did people arrive as planned?", arrival_parts(data)),
        *(Section(metric_heading(data, metric), _effect_parts(data, metric)) for metric in metrics_of(data)),
        *([] if metrics_of(data) else [Section("Effects", (summary(data),))]),
        *further_sections(data),
    ]
    if data["segments"]:
        parts: tuple[Part, ...] = (*segment_sentences(data), segments_table(data), *segment_effect_parts(data))
        sections.append(Section("Does the effect differ by segment?", parts))
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


def segment_effect_parts(data: Data) -> tuple[Part, ...]:
    """Return the effect at each level of every segment, each table after the sentences that say how to read it."""
    parts: list[Part] = []
    for place in segment_places(data):
        parts += [*segment_effects_sentences(data, *place), segment_effects_table(data, *place)]
    return tuple(parts)


def further_sections(data: Data) -> list[Section]:
    """Return the answers to what was asked besides, or what several comparisons bring with them."""
    sections = [
        Section("How does the effect change with time?", window_parts(data), "windows"),
        Section("What did receiving do?", received_parts(data), "received"),
        Section("Did quantiles move?", quantile_parts(data), "quantiles"),
        Section("Other comparisons of arms", contrast_parts(data), "contrasts"),
        Section("Are the claims shown?", margin_parts(data), "claims"),
        Section("What to believe, given the prior", bayes_parts(data), "bayes"),
    ]
    return [section for section in sections if section.parts]


def caution_sentences(data: Data) -> list[str]:
    """Return what to know before acting on any number."""
    return [caution["sentence"] for caution in data.get("cautions", ())]


def metric_sentences(data: Data, metric: str) -> list[str]:
    """Return what stands beside a metric's verdicts: what adjusting saved, odds ratios, who is missing, and so on."""
    sentences = saved_sentences, odds_sentences, missing_sentences, look_sentences, omnibus_sentences
    return [sentence for of in sentences for sentence in of(data, metric)]


def saved_sentences(data: Data, metric: str) -> list[str]:
    """Return how many more people the plain effects would have taken to be as precise as the adjusted ones.

    >>> row = {"metric": "spend", "arm": "B", "covariates": ["spend_before"], "saved": 0.384}
    >>> saved_sentences({"effects": [row]}, "spend")
    ['Adjusting for spend_before is worth as much as if 38 % more people had come.']
    >>> row |= {"covariates": ["tier"], "saved": -0.2, "se_noise": 0.1, "carries_verdict": True}
    >>> saved_sentences({"effects": [row]}, "spend")
    ['Adjusting for tier costs more in noise than it explains: as if 20 % fewer people had come.']
    >>> saved_sentences({"effects": [row | {"carries_verdict": False}]}, "spend")
    ['Adjusting for tier would add too much noise: the effect without it decides.']
    """
    rows = [row for row in data["effects"] if row["metric"] == metric and row.get("saved") is not None]
    units = "clusters" if data.get("clusters") else "people"
    if any(row.get("se_noise") and not row["carries_verdict"] for row in rows):
        return [
            f"Adjusting for {listed(rows[0]['covariates'])} would add too much noise: the effect without it decides."
        ]
    gains = list(dict.fromkeys(_more(row["saved"], units) for row in rows))
    if not any(gains):
        lost = max((-row["saved"] for row in rows if row.get("se_noise")), default=0.0)
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


def omnibus_sentences(data: Data, metric: str) -> list[str]:
    """Return whether any arms differ, in one line, by the method that carries the verdict; for three arms or more."""
    wanted = {method_of(row) for row in headlines(data, metric)}
    rows = [row for row in data.get("omnibus", ()) if row["metric"] == metric and method_of(row) in wanted]
    row = next((row for row in rows if row["F"] is not None), None)
    if row is None:
        return []
    finding = "some of them differ" if row["p"] < 1 - data["confidence"] else "no sign that any of them differ"
    first, second = row["df"]
    welch = second is not None
    test = f"Welch's F({first:g}, {second:,.0f})" if welch else f"χ²({first:g})"
    test = f"{test} = {number(row['F'] if welch else first * row['F'], 3)}, {spoken_p(row['p'])}"
    return [f"All {len(data['arms'])} arms at once: {finding} ({test}{_adjusted(row)})."]


def _adjusted(row: Row) -> str:
    return f", adjusted for {listed(row['covariates'])}" if row["method"] == "adjusted" else ""


# ── contrasts ──────────────────────────────────────────────────────────────────────────────────


def contrast_parts(data: Data) -> tuple[Part, ...]:
    """Return the comparisons that were asked for beside those with the control."""
    rows = data.get("contrasts", ())
    if not rows:
        return ()
    method = correction_name(data)
    family = (
        f"Corrected separately ({method}): {families(rows)}."
        if method and families(rows)
        else "Each comparison is tested on its own."
    )
    cells = []
    for row in rows:
        share = is_share(data, row["metric"])
        figures = figures_of([row], share=share)
        cells.append(
            (
                f"{contrast_name(row['contrast'])} on {_unit(row['metric'], share)}{_adjusted(row)}",
                figures.bare(row["estimate"], signed=True),
                figures.between(row["interval"]),
                p_value(row["p"]),
                p_value(row["p_adjusted"]),
            )
        )
    header = ("contrast", "effect", f"{percent(data['confidence'])} interval", "p", f"p ({method or 'no correction'})")
    return family, Table(header, tuple(cells))


def _unit(metric: str, share: bool) -> str:
    return f"{metric} (points)" if share else metric


def contrast_name(weights: Mapping[str, float]) -> str:
    """Return the contrast as a sum.

    >>> contrast_name({"B": 0.5, "C": 0.5, "A": -1})
    '0.5 B + 0.5 C − A'
    """
    words = " ".join(
        f"{'+' if weight > 0 else '−'} {'' if abs(weight) == 1 else f'{abs(weight):g} '}{arm}"
        for arm, weight in weights.items()
    )
    return words.removeprefix("+ ")


# ── claims against a margin ────────────────────────────────────────────────────────────────────


def margin_parts(data: Data) -> tuple[Part, ...]:
    """Return non-inferiority, superiority, equivalence: a sentence for each claim and arm, then all methods."""
    rows = data.get("margins", ())
    if not rows:
        return ()
    carried = {(row["metric"], row["arm"], method_of(row)) for m in metrics_of(data) for row in headlines(data, m)}
    claims = [margin_sentence(data, row) for row in rows if (row["metric"], row["arm"], method_of(row)) in carried]
    level = percent(rows[0]["confidence"])
    how = f"Each claim is tested one-sided at {level}; those about a primary metric are corrected for each other."
    return *claims, how, _margin_table(data, rows)


def margin_sentence(data: Data, row: Row) -> str:
    """Return whether a claim is shown; one that is not shown is not refuted."""
    figures = _margin_figures(data, row)
    claim = f"{row['claim'].capitalize()} of {spoken_arm(row['arm'])} on {row['metric']}"
    if row["p"] is None:
        return f"{claim} cannot be tested: {'too noisy to tell' if row.get('too_noisy') else 'nothing varies'}."
    unit = " %" if row["relative"] else " points" if figures.share else ""
    lies = f"the effect lies {_limits(row, figures, unit)}"
    evidence = f"{figures.between(row['interval'])}{unit}; {spoken_ps(row)}{_adjusted(row)}"
    if row["shown"]:
        return f"{claim} is shown: {lies} (interval {evidence})."
    return f"{claim} is not shown: that {lies} is not certain (interval {evidence})."


def _limits(row: Row, figures: Figures, unit: str = "") -> str:
    """Return where the effect must lie. Limits are as they were given, not rounded to what is known."""
    scale = 100 if figures.share else 1
    low, high = (None if limit is None else f"{limit * scale:+.6g}".replace("-", "−") for limit in row["limits"])
    if low is None or high is None:
        return f"above {low}{unit}" if high is None else f"below {high}{unit}"
    return f"between {low} and {high}{unit}"


def _margin_figures(data: Data, row: Row) -> Figures:
    if row["relative"]:
        return relative_figures([{"relative": row["estimate"], "relative_interval": row["interval"]}])
    return figures_of([row], share=is_share(data, row["metric"]))


def _margin_table(data: Data, rows: Sequence[Row]) -> Table:
    cells = []
    for row in rows:
        figures = _margin_figures(data, row)
        unit = " (%)" if row["relative"] else " (points)" if figures.share else ""
        cells.append(
            (
                f"{row['arm']} on {row['metric']}{unit}{_adjusted(row)}",
                row["claim"],
                _limits(row, figures),
                figures.bare(row["estimate"], signed=True),
                figures.between(row["interval"]),
                p_value(row["p"]),
                "–" if row["p"] is None else "yes" if row["shown"] else "no",
            )
        )
    return Table(("effect of", "claim", "lies", "effect", "interval", "p", "shown"), tuple(cells))


# ── bayes ──────────────────────────────────────────────────────────────────────────────────────


def bayes_parts(data: Data) -> tuple[Part, ...]:
    """Return the prior and the posterior of every metric that has a prior."""
    parts: list[Part] = []
    for metric in metrics_of(data):
        wanted = {method_of(row) for row in headlines(data, metric)}
        rows = [row for row in data.get("bayes", ()) if row["metric"] == metric and method_of(row) in wanted]
        for posterior in rows[:1]:
            parts += [_prior_sentence(data, posterior), _bayes_table(data, posterior)]
    return tuple(parts)


def _prior_sentence(data: Data, posterior: Row) -> str:
    share, relative = is_share(data, posterior["metric"]), posterior["prior"].get("relative")
    unit = f" % of the mean of {data['control']}" if relative else " points" if share else ""
    scale = 100 if share or relative else 1
    mean, sd = posterior["prior"]["mean"], posterior["prior"]["sd"]
    prior = "none" if sd is None else f"{scale * mean:g} ± {scale * sd:g}{unit} (one standard deviation)"
    less = "; less is better" if posterior["better"] == "lower" else ""
    adjusted = f"; its estimate is{_adjusted(posterior).removeprefix(',')}" if _adjusted(posterior) else ""
    return f"Prior for the effect on {posterior['metric']}: {prior}{less}{adjusted}."


def _bayes_table(data: Data, posterior: Row) -> Table:
    share = is_share(data, posterior["metric"])
    rows = {row["arm"]: {"estimate": row["mean"], "interval": row["interval"]} for row in posterior["effects"]}
    chances = {row["arm"]: row["positive"] for row in posterior["effects"]}
    figures = figures_of(rows.values(), share=share)
    cells = tuple(
        (
            row["arm"],
            figures.bare(rows[row["arm"]]["estimate"], signed=True) if row["arm"] in rows else "–",
            figures.between(rows[row["arm"]]["interval"]) if row["arm"] in rows else "–",
            chance(chances.get(row["arm"])),
            chance(row["best"]),
            number(100 * row["loss"] if share else row["loss"], 2),
        )
        for row in posterior["arms"]
    )
    credible = f"{percent(data['confidence'])} credible"
    return Table((_unit(posterior["metric"], share), "effect", credible, "above 0", "best arm", "expected loss"), cells)


def chance(probability: float | None) -> str:
    """Return a probability in percent, never quite certain.

    >>> chance(0.99999), chance(0.1234), chance(0.0), chance(None)
    ('> 99.9 %', '12.3 %', '< 0.1 %', '–')
    """
    if probability is None:
        return "–"
    return "> 99.9 %" if probability > 0.9995 else "< 0.1 %" if probability < 0.0005 else percent(probability, 1)
