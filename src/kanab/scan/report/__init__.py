"""Scans as text, tables, pages and figures; others use `html`, `tables` and `scan_pictures`."""
