"""The paper, recomputed: what it prints, what six classes give, what eighteen rows give."""
