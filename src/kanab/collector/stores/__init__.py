"""Where counters and nonces are kept: SQLite, PostgreSQL, memory.

Others import one of the three stores, or ``store.Store``, the interface that they share.
"""
