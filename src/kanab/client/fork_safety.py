"""Servers fork: locks and threads of the parent are of no use in the child, which makes its own."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable


def reset_in_children(reset: Callable[[], None]) -> None:
    """Call an object's method in every forked process, as long as the object exists."""
    reference = weakref.WeakMethod(reset)

    def reset_if_there() -> None:
        if (method := reference()) is not None:
            method()

    if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
        os.register_at_fork(after_in_child=reset_if_there)
