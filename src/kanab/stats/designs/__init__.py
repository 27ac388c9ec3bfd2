"""Experiments in which the unit that was assigned, or what it received, is not the person who is measured."""
