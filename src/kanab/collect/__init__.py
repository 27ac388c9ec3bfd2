"""Local mode: a message is checked against the plan, added to counters, and forgotten."""
