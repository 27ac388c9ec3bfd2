"""A planned experiment in words: people, effect and power as a sentence or two, and a curve as a table."""

from collections.abc import Mapping
from typing import Any

from kanab.tabular import Table, number

Data = Mapping[str, Any]
_CORRECTIONS = {
    "bonferroni": "Bonferroni's correction",
    "sidak": "Šidák's correction",
    "dunnett": "Dunnett's correction",
}
_NOTHING = 1e-6
_SIDES = {"two-sided": "two-sided", "greater": "looking for a rise only", "less": "looking for a fall only"}


def power_text(data: Data) -> str:
    """Return the answer, how it is tested, what it rests on, and the curve where it was asked for."""
    text = "\n".join([answer(data), *otherwise(data), how_tested(data), *data["notes"]])
    return text if data["curve"] is None else f"{text}\n\n{curve_table(data)}"


def answer(data: Data) -> str:
    """Return people, effect and power in one sentence."""
    who = f"{data['people']:,} people in all ({_spread(data)})"
    power = f"power {chance(data['power'])}"
    if data["margin"] is not None:
        return f"{who} show {data['margin']} with {power} if the effect is {change(data)}."
    sized = f"a change of {_size(data)}"
    if data["solved"] == "effect":
        return f"With {who}, the smallest effect found with {power} is {sized}."
    return f"{who} find {sized} with {power}."


def otherwise(data: Data) -> list[str]:
    """Return the answer for an effect of the other kind, and which to take; nothing where a mean is not known."""
    other = data["other"]
    if other is None:
        return ["The effect is taken to multiply everybody's value."] if data["multiplies"] else []
    there = {**data, **other}
    multiplied, shifted = "multiplies everybody's value", "adds the same to everybody's value"
    kinds = (multiplied, shifted) if other["multiplies"] else (shifted, multiplied)
    answers = {
        "people": f"{other['people']:,} people in all ({_spread(there)})",
        "effect": f"the smallest effect is {_size(there)}",
        "power": f"power {chance(other['power'])}",
    }
    return [
        f"That is for an effect that {kinds[1]}. If it {kinds[0]}: {answers[data['solved']]}.",
        f"Money, times and counts mostly change by a factor: then take the answer for one that {multiplied}.",
    ]


def _spread(data: Data) -> str:
    """Return the people per arm."""
    numbers = list(data["arms"].values())
    if max(numbers) == min(numbers):
        return f"{numbers[0]:,} per arm"
    return ", ".join(f"{arm} {n:,}" for arm, n in data["arms"].items())


def _size(data: Data) -> str:
    """Return the effect beside what it changes: a rate, a mean, or nothing that is known."""
    share = "" if data["relative"] is None else f" ({short(100 * data['relative'], signed=True)} %)"
    if data["binary"]:
        return f"{change(data)} in a rate of {short(100 * data['mean'])} %{share}"
    if data["mean"] is not None:
        return f"{change(data)} in a mean of {short(data['mean'])}{share}"
    return change(data)


def change(data: Data) -> str:
    """Return the effect in units of the metric, of a rate in points."""
    if not data["binary"]:
        return short(data["effect"])
    points = short(100 * data["effect"])
    return f"{points} point{'' if points == '1' else 's'}"


def how_tested(data: Data) -> str:
    """Return confidence, sides, correction, and which arm was the hardest."""
    parts = [f"{short(100 * data['confidence'])} % confidence"]
    parts += [] if data["margin"] is not None else [_SIDES[data["alternative"]]]
    parts += [_CORRECTIONS[data["correction"]]] if data["correction"] in _CORRECTIONS else []
    parts += [f"of several arms the hardest to judge decides: {data['arm']}"] if len(data["arms"]) > 2 else []
    return f"{'; '.join(parts)}."


def basis_sentences(data: Data) -> list[str]:
    """Return what the numbers assume, one sentence each."""
    how = "Welch's t at these shares and variances, by the noncentral t: arms may differ in size and in variance."
    if not data["binary"]:
        how += " A release says how skewed the metric is; planned from numbers it is taken to be symmetric."
    sentences = [*data["notes"], how]
    if data["binary"]:
        sentences.append("The arm's variance follows from its rate; plain rates are planned for the score test.")
    else:
        sentences.append(
            "Sums of many people are taken to be normal. Where few people carry a skewed amount, power differs by some "
            "points."
        )
        if data["mean"] is None:
            sentences.append(
                "The effect is taken to add the same to everybody's value. One that multiplies it widens it too: give "
                "the control's mean for both answers."
            )
    sentences.append("People are those of all arms who have a value, each counted once.")
    return sentences


def curve_table(data: Data) -> Table:
    """Return, for fewer and more people, the effect that is found and the power of the effect asked for."""
    unit, scale = (" (points)", 100) if data["binary"] else ("", 1)
    level = next(row["at_power"] for row in data["curve"])
    header = ("people", f"effect{unit} with power {chance(level)}", "relative", f"power for {change(data)}")
    largest = max((abs(row["effect"]) for row in data["curve"] if row["effect"] is not None), default=0.0)
    rows = []
    for row in data["curve"]:
        none = row["effect"] is not None and is_nothing(row["effect"], largest)
        effect = 0.0 if none else row["effect"]
        relative = 0.0 if none and row["relative"] is not None else row["relative"]
        rows.append(
            (
                f"{row['people']:,}",
                "–" if effect is None else rounded(scale * effect),
                "–" if relative is None else f"{'+' if relative >= 0 else ''}{rounded(100 * relative)} %",
                "–" if row["power"] is None else chance(row["power"]),
            )
        )
    return Table(header, tuple(rows))


def is_nothing(effect: float, largest: float) -> bool:
    """Return whether an effect is a solver's 0, beside the largest effect of its curve."""
    return abs(effect) < _NOTHING * largest


def chance(power: float) -> str:
    """Format a power in percent, never quite certain."""
    return "> 99.9 %" if power > 0.9995 else f"{100 * power:.3g} %"


def rounded(value: float) -> str:
    """Format a number to three digits; 0.99998 is 1.00."""
    return number(float(f"{value:.3g}"), 3)


def short(value: float, *, signed: bool = False) -> str:
    """Format a number to four digits, without zeros that say nothing."""
    text = number(value)
    if "." in text and "e" not in text:
        text = text.rstrip("0").rstrip(".")
    return f"+{text}" if signed and value >= 0 else text
