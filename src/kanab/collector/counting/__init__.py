"""From posts to counters and tables: ``accept.PostAcceptor``, ``cohorts.Calendar``, ``tables``, ``plan_versions``."""
