"""What may leave, and what may not. Knows nothing of statistics; an auditor can read this folder alone."""
