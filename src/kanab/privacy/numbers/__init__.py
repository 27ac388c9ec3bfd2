"""Products with numbers that experiments are adjusted for: how heavily they weigh one person, and when they leave."""
