"""Readouts as text, HTML, charts and pages."""
