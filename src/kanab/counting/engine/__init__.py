"""Count in an engine through Ibis: one statement groups people by signature and adds these up to classes.

Others import ``count_table`` and ``show_sql`` from ``sql``; scans also use the building blocks by their modules.
"""
