"""Where counters and nonces are kept: SQLite, PostgreSQL, memory."""
