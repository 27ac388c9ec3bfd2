"""Where counters and nonces are kept: SQLite, PostgreSQL, memory; others use them, or their interface ``store.Store``."""
