"""From an accepted post to counters, and from counters to tables.

Others import ``accept.PostAcceptor``, ``tables.tables``, ``counters``, ``cohorts.Calendar`` and ``plan_versions``.
"""
