"""Answers about power and forecasts of plans as text, charts and pages; the commands import its modules."""
