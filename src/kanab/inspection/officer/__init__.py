"""The privacy officer's report: what was released, under which rules, and what remains open."""
