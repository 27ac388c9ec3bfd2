"""Scans as text, tables, pages and charts; others use `html`, `tables` and `charts`."""
