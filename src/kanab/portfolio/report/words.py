"""Effects over releases and experiments in sentences and tables, from the plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kanab.report.document import Section
from kanab.report.figures import Figures, Row, figures_of, percent, spoken_p
from kanab.report.text import mapped, printable, sections_text
from kanab.tabular import Table, number, p_value

Data = Mapping[str, Any]

METHODS = {
    "fixed": "one effect for all (fixed)",
    "dl": "random effects (DerSimonian–Laird)",
    "pm": "random effects (Paule–Mandel)",
    "reml": "random effects (restricted likelihood)",
}

MOST_ROWS = 40
"""So many effects are listed and drawn; plain data hold all of them."""


def combined_text(data: Data) -> str:
    """Return combined effects for a terminal."""
    clean = mapped(data, printable)
    return sections_text([combined_title(clean)], combined_sections(clean), None)


def combined_title(data: Data) -> str:
    """Return what was combined, and how."""
    names = dict.fromkeys(part["name"] for effect in data["effects"] for part in effect["parts"])
    error = ", Knapp and Hartung's error" if data["knapp_hartung"] else ""
    return f"{len(names)} releases combined: {METHODS[data['method']]}{error}, {percent(data['confidence'])} intervals."


def combined_sections(data: Data) -> list[Section]:
    """Return a section for every effect: what it is, whether it differs between releases, the table."""
    sections = [
        Section(
            combined_heading(effect),
            (*combined_sentences(data, effect), combined_table(effect)),
            f"effect-{place}",
        )
        for place, effect in enumerate(data["effects"])
    ]
    return [*sections, *([Section("Notes", tuple(data["notes"]), "notes")] if data["notes"] else [])]


def combined_heading(effect: Row) -> str:
    """Return which effect it is."""
    return f"{effect['arm']} against {effect['control']} on {effect['metric']}"


def combined_figures(effect: Row) -> Figures:
    """Return how its numbers are written."""
    return figures_of([effect, *effect["parts"]], share=effect["share"])


def combined_sentences(data: Data, effect: Row) -> list[str]:
    """Say the common effect, whether releases differ, and where the next one would lie."""
    figures = combined_figures(effect)
    sentences = [
        f"Together {figures.change(effect['estimate'], signed=True)} ({figures.spoken(effect['interval'])}), "
        f"{spoken_p(effect['p'])}."
    ]
    differ = effect["q_p"] < 1 - data["confidence"]
    sentences.append(
        f"Releases {'differ by more than chance' if differ else 'do not differ by more than chance'}: "
        f"Q = {number(effect['q'])} with {effect['q_df']} degrees of freedom, {spoken_p(effect['q_p'])}; "
        f"{percent(round(effect['i2'], 3))} of the variance is between them (I²)."
    )
    if data["method"] == "fixed" and differ:
        sentences.append("One effect for all does not describe them: read random effects (--method reml).")
    if effect["prediction"] is not None:
        sentences.append(f"The effect in one more such release would lie in {figures.spoken(effect['prediction'])}.")
    if data["knapp_hartung"] and effect["q_df"] < 4:
        sentences.append(
            f"{effect['q_df'] + 1} releases say little about how much releases differ, and the interval is wide for "
            "it; where they are batches of one experiment, --method fixed is the ordinary reading."
        )
    return sentences


def combined_table(effect: Row) -> Table:
    """Return every release with its effect and weight, and all together."""
    figures = combined_figures(effect)
    rows = [
        (
            part["name"], f"{part['people']:,}", figures.bare(part["estimate"], signed=True),
            figures.between(part["interval"]), p_value(part["p"]), percent(part["weight"], 1),
        )
        for part in effect["parts"]
    ]  # fmt: skip
    people = sum(part["people"] for part in effect["parts"])
    rows.append(
        (
            "together", f"{people:,}", figures.bare(effect["estimate"], signed=True),
            figures.between(effect["interval"]), p_value(effect["p"]), percent(1, 1),
        )
    )  # fmt: skip
    unit = ", points" if effect["share"] else ""
    return Table(("release", "people", f"effect{unit}", "interval", "p", "weight"), tuple(rows))


def portfolio_text(data: Data) -> str:
    """Return a portfolio for a terminal."""
    clean = mapped(data, printable)
    return sections_text([portfolio_title(clean)], portfolio_sections(clean), None)


def portfolio_title(data: Data) -> str:
    """Return how many effects on which metric are read together."""
    experiments = {row["experiment"] for row in data["effects"]}
    return f"{len(experiments)} experiments, {len(data['effects'])} effects on {data['metric']}, read together."


def portfolio_sections(data: Data) -> list[Section]:
    """Return the portfolio in reading order: what effects are worth, and notes."""
    return [
        Section("What are effects worth?", (*shrinkage_sentences(data), effects_table(data)), "effects"),
        *([Section("Notes", tuple(data["notes"]), "notes")] if data["notes"] else []),
    ]


def portfolio_figures(data: Data) -> Figures:
    """Return how numbers of the metric are written."""
    shrunk = [{"estimate": row["shrunk"], "interval": row["shrunk_interval"]} for row in data["effects"]]
    return figures_of([*data["effects"], *shrunk], share=data["share"])


def shrinkage_sentences(data: Data) -> list[str]:
    """Say which prior was fitted, and how much winners lose to it."""
    figures, prior, winners = portfolio_figures(data), data["prior"], data["winners"]
    sentences = [
        "True effects are taken for draws of a normal distribution with mean "
        f"{figures.change(prior['mean'], signed=True)} and standard deviation {figures.change(prior['sd'])}, fitted to "
        "all effects by marginal likelihood. "
        "Each is drawn towards that mean, the more so the noisier it is."
    ]
    if not winners["count"]:
        return [*sentences, "No effect is clearly better by itself."]
    raw, shrunk = (figures.change(winners[name], signed=True) for name in ("mean", "shrunk_mean"))
    lost = 1 - winners["shrunk_mean"] / winners["mean"]
    are, average = ("effect is", "") if winners["count"] == 1 else ("effects are", " on average")
    sentences.append(
        f"{winners['count']} {are} clearly better by themselves: {raw}{average}, {shrunk} after shrinkage. "
        f"The difference is the winner's curse: {percent(round(lost, 2))} of what was seen."
        if winners["count"] > 1
        else f"1 {are} clearly better by itself: {raw}, {shrunk} after shrinkage."
    )
    return sentences


def listed_effects(data: Data) -> list[Row]:
    """Return the effects that are shown, best first; of many, those that are farthest from the prior's mean."""
    mean, sign = data["prior"]["mean"], -1 if data["better"] == "lower" else 1
    clearest = sorted(data["effects"], key=lambda row: -abs(row["shrunk"] - mean))[:MOST_ROWS]
    return sorted(clearest, key=lambda row: -sign * row["shrunk"])


def effects_table(data: Data) -> Table:
    """Return effects as seen and as shrunk."""
    figures = portfolio_figures(data)
    rows = [
        (
            row["name"], f"{row['people']:,}", figures.bare(row["estimate"], signed=True),
            figures.between(row["interval"]), figures.bare(row["shrunk"], signed=True),
            figures.between(row["shrunk_interval"]),
        )
        for row in listed_effects(data)
    ]  # fmt: skip
    unit = ", points" if data["share"] else ""
    return Table(("experiment", "people", f"seen{unit}", "interval", "shrunk", "interval"), tuple(rows))
