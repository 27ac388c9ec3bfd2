"""Power, sample sizes and forecasts before an experiment starts.

Others import the names in ``__all__`` from here, or a module of this folder by its name.
"""

from kanab.analysis.methods.quantiles import propose_bins
from kanab.planning.forecast import Baseline, Forecast, baseline_from_release, forecast_plan
from kanab.planning.interactions import (
    CrossedSpread,
    InteractionPower,
    crossed_spread,
    crossed_spread_of,
    interaction_power,
)
from kanab.planning.power import PlannedTest, Power, PowerCurve, power_curve, solve_power
from kanab.planning.spread import Spread, spread_of_amounts, spread_of_means, spread_of_rate, spread_of_rows

__all__ = [
    "Baseline",
    "CrossedSpread",
    "Forecast",
    "InteractionPower",
    "PlannedTest",
    "Power",
    "PowerCurve",
    "Spread",
    "baseline_from_release",
    "crossed_spread",
    "crossed_spread_of",
    "forecast_plan",
    "interaction_power",
    "power_curve",
    "propose_bins",
    "solve_power",
    "spread_of_amounts",
    "spread_of_means",
    "spread_of_rate",
    "spread_of_rows",
]
