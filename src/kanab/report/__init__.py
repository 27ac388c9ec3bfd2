"""What reports are made of, as values, and how these become text, Markdown, HTML and SVG.

Others import ``document`` (sections, folds), ``effect_tables``, ``digits`` (numbers as texts), ``figure`` and
``html_page``, and the sentences in ``words`` and ``decision``.
"""
