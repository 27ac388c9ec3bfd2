"""Where counters and nonces are kept: SQLite, PostgreSQL, memory; others use these stores, or ``store.Store``."""
