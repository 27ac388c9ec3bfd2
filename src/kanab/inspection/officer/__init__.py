"""The privacy officer's report: what was released, under which rules, and what remains open.

Others import ``account`` (plain data), ``page`` (the same as HTML) and ``fields`` (what tables hold and why).
"""
