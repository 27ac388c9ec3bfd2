"""A readout as text, Markdown, notebook HTML and a report in one file.

Others import the functions that take a readout's plain data (``text``, ``html``, ``charts``), and what other reports
are built from: ``sections``, ``page``, ``figures`` and ``style``.
"""
