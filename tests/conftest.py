"""The same examples in every run, so that a failure can be seen again; and which tests share a process."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")

TOGETHER = ("sources", "browser", "collector")
"""Folders whose tests share an engine, a browser or a server: started once, in one process."""


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole files go to one process, whole folders where something slow is started for them."""
    here = Path(__file__).parent
    for item in items:
        path = item.path.relative_to(here) if item.path.is_relative_to(here) else item.path
        group = path.parts[0] if path.parts[0] in TOGETHER else str(path)
        item.add_marker(pytest.mark.xdist_group(group))
