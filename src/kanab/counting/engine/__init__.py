"""One SQL statement per source: stage 1 groups by signature, stage 2 adds up to classes."""
