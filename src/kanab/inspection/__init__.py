"""What a privacy officer runs on releases: audit, attack and report."""
