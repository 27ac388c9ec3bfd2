"""What a test opened is closed at its end."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

Keep = Callable[[Any], Any]
"""Returns what it is given, and closes it at the end of the test."""


@pytest.fixture
def closing() -> Iterator[Keep]:
    """Closes what a test opened, the last first."""
    opened: list[Any] = []

    def keep(one: Any) -> Any:
        opened.append(one)
        return one

    yield keep
    for one in reversed(opened):
        one.close()
