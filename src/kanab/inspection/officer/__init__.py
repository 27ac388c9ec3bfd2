"""The privacy report: which fields left, under which rules."""
