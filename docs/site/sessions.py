"""Show the Python sessions of docstrings as code: to Markdown the three arrows of a prompt are quotations."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

SESSION = re.compile(r"(?:^>>> .*\n?(?:^(?!\s*$).+\n?)*)+", re.MULTILINE)


class Sessions(Extension):
    """Put fences around sessions, and code quotes of the docstring style around single words."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            text = obj.docstring.value.replace("``", "`")
            obj.docstring.value = SESSION.sub(lambda match: f"```python\n{match[0].rstrip()}\n```\n", text)
