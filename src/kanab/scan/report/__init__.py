"""Scans as text, tables, pages and charts."""
