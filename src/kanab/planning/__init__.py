"""Power, sample sizes, forecasts and simulations before an experiment starts."""

from kanab.planning.forecast import Forecast, Known, forecast_plan, known_from_release
from kanab.planning.interactions import (
    CrossedNoise,
    InteractionPower,
    crossed_noise,
    crossed_noise_of,
    interaction_power,
)
from kanab.planning.noise import Noise, noise_of_amounts, noise_of_means, noise_of_rate
from kanab.planning.power import Power, Question, power_curve, solve_power
from kanab.planning.simulation import Population, Study, simulate

__all__ = [
    "CrossedNoise",
    "Forecast",
    "InteractionPower",
    "Known",
    "Noise",
    "Population",
    "Power",
    "Question",
    "Study",
    "crossed_noise",
    "crossed_noise_of",
    "forecast_plan",
    "interaction_power",
    "known_from_release",
    "noise_of_amounts",
    "noise_of_means",
    "noise_of_rate",
    "power_curve",
    "simulate",
    "solve_power",
]
