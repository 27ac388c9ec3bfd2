"""What a report says of noise that was added on purpose: the promise, its price, and what is left to spend."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kanab.stats.noise_variance import FEWEST_DEVIATIONS
from kanab.tabular import Table

Data = Mapping[str, Any]


def promise(noise: Data) -> str:
    """Return what ε and δ promise, in a sentence."""
    factor = math.exp(noise["epsilon"])
    spoken = f"{factor:.3g}" if factor < 1.5 else f"{factor:,.1f}" if factor < 100 else f"{factor:,.0f}"
    return (
        f"Differential privacy at ε = {noise['epsilon']:g}, δ = {noise['delta']:g}: every number carries noise "
        f"({noise['mechanism']}), and whether any one person took part changes the chance of any result by at most "
        f"a factor of {spoken}, but for one chance in {round(1 / noise['delta']):,}."
    )


def account(noise: Data) -> str:
    """Return what was spent and is left."""
    left = f"{noise['left']:.3g}, for one more release" if noise["left"] >= 0.001 else "nothing"
    return f"Spent: ε = {noise['spent']:.3g} of {noise['total']:g} in all; left: {left}."


def widened(effects: Sequence[Data]) -> dict[str, float]:
    """Return by what share noise widens the interval of each metric, at most, over the rows that carry verdicts."""
    wider: dict[str, float] = {}
    for row in effects:
        error, noise = row["se_population"], row.get("se_noise")
        if noise and row.get("carries_verdict") and error > noise:
            share = error / math.sqrt(error**2 - noise**2) - 1
            wider[row["metric"]] = max(share, wider.get(row["metric"], 0.0))
    return wider


def price(data: Data) -> str:
    """Return what the noise costs, once and for all metrics: how much wider it makes intervals."""
    wider = widened(data["effects"])
    if not wider:
        return ""
    ordered = sorted(wider, key=lambda metric: wider[metric])
    least, most = ordered[0], ordered[-1]
    shares = _percent(wider[most]) if len(ordered) == 1 else f"{_percent(wider[least])} to {_percent(wider[most])}"
    named = most if len(ordered) == 1 else f"{least} least, {most} most"
    fewer = 1 - 1 / (1 + wider[most]) ** 2
    few = (
        ""
        if fewer < 0.005
        else f": as if {'' if len(ordered) == 1 else 'up to '}{_percent(fewer)} fewer people had come"
    )
    return f"Noise makes intervals {shares} wider than they would be without ({named}){few}."


def _percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %") if share < 0.01 else f"{share:.0%}".replace("%", " %")


def noise_sentences(data: Data) -> list[str]:
    """Return what stands in the place of k's sentence in a readout with noise."""
    privacy = data["privacy"]
    noise = privacy["noise"]
    return [
        promise(noise),
        *([text] if (text := price(data)) else []),
        f"Levels are merged until every class has k = {privacy['k']} people, and {FEWEST_DEVIATIONS:g} standard "
        "deviations of the noise more.",
        account(noise),
    ]


NO_ACCOUNT = (
    "In no ledger: nobody adds up what else was released about these people, so that ε is of this release alone."
)


def noise_table(data: Data) -> Table:
    """Return how much noise every number carries."""
    scales = data["privacy"]["noise"]["scales"]
    rows = [(table, name, f"{sd:,.4g}") for table, numbers in scales.items() for name, sd in numbers.items()]
    return Table(("table", "number", "one standard deviation"), tuple(rows))
