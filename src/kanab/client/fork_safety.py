"""Servers fork: locks and threads of the parent are of no use in the child, which begins anew."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Begins(Protocol):
    """Something with locks or threads."""

    def begin(self) -> None:
        """Make them."""


def begin_again_in_children(thing: Begins) -> None:
    """Call ``begin`` in every forked process, as long as the thing is there."""
    found = weakref.ref(thing)

    def again() -> None:
        one = found()
        if one is not None:
            one.begin()

    if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
        os.register_at_fork(after_in_child=again)
