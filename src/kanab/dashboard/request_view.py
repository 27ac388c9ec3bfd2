"""What a reader asks, answered from one look at the shelf: pages and plain data show the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from kanab.dashboard.background import NotYetError
from kanab.dashboard.experiment_list import Entry, entry
from kanab.dashboard.next_seal import Standing
from kanab.dashboard.page_sections import experiment_charts
from kanab.dashboard.releases import Contents
from kanab.dashboard.results import Library, Point, Reading
from kanab.errors import KanabError
from kanab.plan.model import Plan
from kanab.planning.forecast import Baseline, baseline_from_release
from kanab.scan.readout import PairReadout

_T = TypeVar("_T")

PULSE = 15.0
"""Seconds between two looks at the shelf while nobody asks, so that no reader waits for what a seal brought."""


class UnknownExperimentError(Exception):
    """Nobody planned or released an experiment of this name."""


@dataclass(frozen=True)
class Found:
    """An experiment: its line of the list, and the reading that was asked for among those that there are."""

    entry: Entry
    readings: tuple[Reading, ...] = ()
    chosen: int = 0

    @property
    def reading(self) -> Reading | None:
        """The chosen reading; None before the first seal."""
        return self.readings[self.chosen] if self.readings else None


class Question:
    """One request's view: everything in it is about the same bytes."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self.contents: Contents = library.look()
        self.standing: Standing | None = library.standing()

    @cached_property
    def readings(self) -> Mapping[str, list[Reading]]:
        """Every experiment that was released, with its readings."""
        return self._library.readings(self.contents)

    def experiment(self, name: str, of: str = "") -> Found:
        """One experiment by name; ``of`` is the number of another reading than the newest."""
        readings = tuple(self.readings.get(name, ()))
        planned = self.standing is not None and name in self.standing.plan.experiment_names
        if not readings and not planned:
            raise UnknownExperimentError
        chosen = int(of) if of.isdecimal() and len(of) < 6 and int(of) < len(readings) else max(len(readings) - 1, 0)
        return Found(entry(name, readings[chosen] if readings else None, self.standing), readings, chosen)

    def charts(self, found: Found) -> dict[str, str]:
        """The pictures of a reading."""
        reading = found.reading
        assert reading is not None
        key = ("charts", found.entry.name, reading.bundle.names)
        return self.kept(key, lambda: experiment_charts(reading.data))

    def history(self, found: Found) -> list[Point]:
        """What was known after each seal of a reading."""
        assert found.reading is not None
        return self._library.history(self.contents, found.entry.name, found.reading.bundle)

    @cached_property
    def interactions(self) -> PairReadout | None:
        """Every pair whose table was released."""
        return self._library.interactions(self.contents)

    @cached_property
    def accounts(self) -> Mapping[str, dict[str, Any]]:
        """The officer's account of every ledger."""
        return self._library.accounts(self.contents)

    def kept(self, key: Any, make: Callable[[], _T]) -> _T:
        """Something made of the same bytes that takes a while, and is the same for every reader."""
        return self._library.kept(self.contents, key, make)

    @cached_property
    def plan(self) -> Plan | None:
        """The plan in force; where nothing is collected, that of the newest release."""
        if self.standing is not None:
            return self.standing.plan
        return next((one.plan for one in reversed(self.contents.releases.values())), None)

    @cached_property
    def known(self) -> Baseline | None:
        """What the newest release says about shares of levels and how metrics vary."""
        newest = next(reversed(self.contents.releases.values()), None)
        with suppress(KanabError):
            return None if newest is None else baseline_from_release(newest)
        return None


class Desk:
    """Takes questions; while it is open it looks at the shelf now and then."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._closed = threading.Event()

    def ask(self) -> Question:
        """A look at the shelf, for one request."""
        return Question(self._library)

    def open(self) -> None:
        """Begin to compute what the first reader will ask for, and go on."""
        self._closed.clear()
        threading.Thread(target=self._work, daemon=True).start()

    def close(self) -> None:
        """Look no more."""
        self._closed.set()

    def _work(self) -> None:
        while not self._closed.is_set():
            with suppress(KanabError, NotYetError):
                self._library.warm()
            self._closed.wait(PULSE)
