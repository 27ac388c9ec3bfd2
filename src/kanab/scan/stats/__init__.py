"""F-tests, effects and verdicts of all pairs at once."""
