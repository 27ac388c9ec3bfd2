"""Combined effects and portfolios in sentences, tables, figures and pages, from their plain data."""

from collections.abc import Mapping
from typing import Any

from kanab.report.colours import DOWN, MUTED, QUIET, UP
from kanab.report.digits import Digits, Row, figures_of, percent, scaled, spoken_p
from kanab.report.document import Part, Section
from kanab.report.figure import Bar, Figure, Forest, ForestRow, bar_of, chosen_figure, forest_figure
from kanab.report.html_page import Report
from kanab.report.text import mapped, printable
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


FOREST_KEY = (
    "Squares, the effect in each release, larger with more weight; lines, intervals. The diamond is all of them "
    "together; a broken line is where the effect of one more release would lie."
)
SHRINKAGE_KEY = (
    "Grey ring, the effect as it was seen; dot below it, after shrinkage, blue where it is clearly better and orange "
    "where clearly worse; lines, intervals. The broken mark is the mean that all are drawn to."
)


def combined_report(data: Data) -> Report:
    """Return combined effects as a document."""
    clean = mapped(data, printable)
    names = dict.fromkeys(part["name"] for effect in clean["effects"] for part in effect["parts"])
    error = ", Knapp and Hartung's error" if data["knapp_hartung"] else ""
    how = f"{METHODS[data['method']]}{error}, {percent(data['confidence'])} intervals"
    heading = ", ".join(dict.fromkeys(combined_heading(effect) for effect in clean["effects"]))
    lead = (f"{len(names)} releases combined: {how}.",)
    return Report("Several releases", heading, lead, combined_sections(clean))


def combined_sections(data: Data) -> list[Section]:
    """Return a section for every effect: what it is, whether it differs between releases, the table."""
    sections = []
    for place, effect in enumerate(data["effects"]):
        parts: tuple[Part, ...] = (
            *combined_sentences(data, effect),
            combined_figure(data, effect),
            combined_table(effect),
        )
        sections.append(Section(combined_heading(effect), parts, f"effect-{place}", key=FOREST_KEY))
    return [*sections, *_notes(data)]


def _notes(data: Data) -> list[Section]:
    return [Section("Notes", tuple(data["notes"]), "notes")] if data["notes"] else []


def combined_heading(effect: Row) -> str:
    """Return which effect it is."""
    return f"{effect['arm']} against {effect['control']} on {effect['metric']}"


def combined_figures(effect: Row) -> Digits:
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
    people = sum(part["people"] for part in effect["parts"])
    together = {**effect, "name": "together", "people": people, "weight": 1}
    rows = tuple(
        (
            part["name"], f"{part['people']:,}", figures.bare(part["estimate"], signed=True),
            figures.between(part["interval"]), p_value(part["p"]), percent(part["weight"], 1),
        )
        for part in (*effect["parts"], together)
    )  # fmt: skip
    return Table(("release", "people", f"effect{', points' * effect['share']}", "interval", "p", "weight"), rows)


def portfolio_report(data: Data) -> Report:
    """Return a portfolio as a document: what effects are worth, and notes."""
    clean = mapped(data, printable)
    experiments, of = {row["experiment"] for row in clean["effects"]}, clean["metric"]
    lead = (f"{len(experiments)} experiments, {len(clean['effects'])} effects on {of}, read together.",)
    parts: tuple[Part, ...] = (*shrinkage_sentences(clean), shrinkage_figure(clean), effects_table(clean))
    sections = [Section("What are effects worth?", parts, "effects", key=SHRINKAGE_KEY), *_notes(clean)]
    return Report("Portfolio", f"All experiments on {of}", lead, sections)


def portfolio_figures(data: Data) -> Digits:
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
    if winners["count"] == 1:
        return [*sentences, f"1 effect is clearly better by itself: {raw}, {shrunk} after shrinkage."]
    lost = percent(round(1 - winners["shrunk_mean"] / winners["mean"], 2))
    return [
        *sentences,
        f"{winners['count']} effects are clearly better by themselves: {raw} on average, {shrunk} after shrinkage. "
        f"The difference is the winner's curse: {lost} of what was seen.",
    ]


def listed_effects(data: Data) -> list[Row]:
    """Return the effects that are shown, best first; of many, those that are farthest from the prior's mean."""
    mean, sign = data["prior"]["mean"], -1 if data["better"] == "lower" else 1
    clearest = sorted(data["effects"], key=lambda row: -abs(row["shrunk"] - mean))[:MOST_ROWS]
    return sorted(clearest, key=lambda row: -sign * row["shrunk"])


def effects_table(data: Data) -> Table:
    """Return effects as seen and as shrunk."""
    figures = portfolio_figures(data)
    rows = tuple(
        (
            row["name"], f"{row['people']:,}", figures.bare(row["estimate"], signed=True),
            figures.between(row["interval"]), figures.bare(row["shrunk"], signed=True),
            figures.between(row["shrunk_interval"]),
        )
        for row in listed_effects(data)
    )  # fmt: skip
    return Table(("experiment", "people", f"seen{', points' * data['share']}", "interval", "shrunk", "interval"), rows)


def combined_chart(data: Data, metric: str | None) -> Figure:
    """Return the forests of combined effects from their plain data, of one metric or of all."""
    clean = mapped(data, printable)
    drawn: dict[str, list[Figure]] = {}
    for effect in clean["effects"]:
        drawn.setdefault(effect["metric"], []).append(combined_figure(clean, effect))
    return chosen_figure({"effects": lambda: drawn}, "effects", metric)


def combined_figure(data: Data, effect: Row) -> Figure:
    """Return the effect of every release with its interval, and a diamond for all of them together."""
    figures = combined_figures(effect)

    def row(part: Row, name: str, bars: list[Bar], *, bold: bool = False) -> ForestRow:
        value = f"{figures.bare(part['estimate'], signed=True)} ({figures.between(part['interval'])})"
        return ForestRow(name, value, bars, bold)

    heaviest = max(part["weight"] for part in effect["parts"])
    rows = []
    for part in effect["parts"]:
        size = 2.5 + 3.5 * (part["weight"] / heaviest) ** 0.5
        rows.append(row(part, part["name"], [_bar(part, figures, QUIET, shape="square", size=size)]))
    bars = [_bar(effect, figures, effect_colour(effect), shape="diamond")]
    if effect["prediction"]:
        seen = {"estimate": None, "interval": effect["prediction"]}
        bars.insert(0, _bar(seen, figures, MUTED, wide=1.5, dashes="4 3"))
    rows.append(row(effect, "together", bars, bold=True))
    level = f"{percent(data['confidence'])} intervals. "
    return forest_figure(combined_heading(effect), [Forest(rows, _axis(effect))], level)


def shrinkage_figure(data: Data) -> Figure:
    """Return every effect as it was seen (grey ring) and after shrinkage (dot), and the mean that all are drawn to."""
    figures, rows = portfolio_figures(data), []
    for row in listed_effects(data):
        shrunk = {**row, "estimate": row["shrunk"], "interval": row["shrunk_interval"]}
        value = f"{figures.bare(row['estimate'], signed=True)} → {figures.bare(row['shrunk'], signed=True)}"
        seen = _bar(row, figures, QUIET, shape="ring", size=4, wide=1.5, down=-5)
        rows.append(ForestRow(row["name"], value, [seen, _bar(shrunk, figures, effect_colour(shrunk), size=5, down=5)]))
    mean = scaled(data["prior"]["mean"], data["share"]) or 0.0
    panel = Forest(rows, _axis(data), upright=(0.0, mean))
    return forest_figure(f"Effects on {data['metric']}, seen and after shrinkage", [panel])


def _axis(of: Row) -> str:
    return f"effect on {of['metric']}{', percentage points' if of['share'] else ''}; the upright mark is no effect"


def _bar(row: Row, figures: Digits, colour: str, **look: Any) -> Bar:
    return bar_of(row["estimate"], row["interval"], colour, share=figures.share, **look)


def effect_colour(row: Row) -> str:
    """Return blue for clearly better, orange for clearly worse, grey otherwise."""
    low, high = (0.0 if end is None else end for end in row["interval"])
    if low <= 0 <= high:
        return QUIET
    return UP if (low > 0) == (row["better"] == "higher") else DOWN
