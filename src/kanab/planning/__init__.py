"""Power, sample sizes and forecasts before an experiment starts.

Others import the names in ``__all__`` from here, or a module of this folder by its name.
"""

from kanab.analysis.methods.quantiles import propose_bins
from kanab.planning.forecast import Baseline, Forecast, baseline_from_release, forecast_plan
from kanab.planning.interactions import (
    CrossedNoise,
    InteractionPower,
    crossed_noise,
    crossed_noise_of,
    interaction_power,
)
from kanab.planning.noise import Noise, noise_of_amounts, noise_of_means, noise_of_rate
from kanab.planning.power import PlannedTest, Power, PowerCurve, power_curve, solve_power
from kanab.planning.released import noise_of_rows

__all__ = [
    "Baseline",
    "CrossedNoise",
    "Forecast",
    "InteractionPower",
    "Noise",
    "PlannedTest",
    "Power",
    "PowerCurve",
    "baseline_from_release",
    "crossed_noise",
    "crossed_noise_of",
    "forecast_plan",
    "interaction_power",
    "noise_of_amounts",
    "noise_of_means",
    "noise_of_rate",
    "noise_of_rows",
    "power_curve",
    "propose_bins",
    "solve_power",
]
