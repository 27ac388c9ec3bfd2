"""A readout as text, Markdown, notebook HTML and a report in one file.

Others import the functions that take a readout's plain data (``text``, ``html``, ``pictures``), and what other reports
are built from: ``sections``, ``page``, ``figure``, ``figures`` and ``style``.
"""
