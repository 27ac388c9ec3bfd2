"""Answers for assistants: what releases say, as tools of the Model Context Protocol. Nothing but releases is read.

Others import ``answers`` (``Answers``) and, with the extra ``[mcp]``, ``mcp_server`` (``serve_stdio``, ``http_app``).
"""
