"""Servers fork: locks and threads of the parent are of no use in the child, which makes its own."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Resettable(Protocol):
    """An object with locks or threads."""

    def reset(self) -> None:
        """Make new ones."""


def reset_in_children(owner: Resettable) -> None:
    """Call ``reset`` in every forked process, as long as the object exists."""
    reference = weakref.ref(owner)

    def reset() -> None:
        owner = reference()
        if owner is not None:
            owner.reset()

    if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
        os.register_at_fork(after_in_child=reset)
