"""What reports are made of, as values: ``document``, ``digits``, ``figure``, ``effect_tables``, sentences in ``words``.

``text`` and ``html_page`` make text, Markdown and HTML of them.
"""
