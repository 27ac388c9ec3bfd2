"""From an accepted post to counters, and from counters to tables.

Others use ``accept.PostAcceptor``, ``tables.possible_tables``, ``counters``, ``cohorts.Calendar``, ``plan_versions``.
"""
