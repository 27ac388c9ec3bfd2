"""From an accepted post to counters, and from counters to tables."""
