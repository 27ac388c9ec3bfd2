"""What a privacy officer runs on releases: audit (`auditor`), attack (`attack`) and report (`officer`)."""
