"""Least squares by a formula, from classes: the formulas, fits and robust errors."""
