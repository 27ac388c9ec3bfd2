"""Power, sample sizes, forecasts and simulations before an experiment starts."""
