"""Power curves and plan forecasts as text and pages."""
