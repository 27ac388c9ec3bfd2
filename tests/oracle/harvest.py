"""Readouts and plans that tests make, caught while they run, and which of them to keep.

Names of the day on which the oracle is frozen stand here and in `questions`; frozen cases need neither of the two.
"""

from __future__ import annotations

import json
import os
import random
import secrets
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from itertools import combinations
from typing import Any
from zlib import crc32

import pytest

from kanab.analysis import api, from_source
from kanab.analysis.options import AnalysisOptions
from kanab.errors import KanabError
from kanab.plan import file as plan_file
from kanab.privacy.epsilon import door, mechanism
from kanab.privacy.release import OwnRows, Release, Tables
from kanab.privacy.release_json import release_to_dict

from .frozen import Data, plain

IDENTIFIERS = ("answer", "claim", "kind", "method", "reading", "role", "test", "variance", "verdict")
"""Keys whose values are words of a program; each value is a trait of a readout."""
LARGEST = 40_000
"""A readout with more plain data than so many characters is not kept."""

Kept = tuple[Data, Data]
"""A case, and what was answered when it was caught."""


@contextmanager
def steady_chance() -> Iterator[Callable[[str], None]]:
    """Let everything random follow from a text that is handed to what this gives."""
    rng = random.Random()

    def draw(size: int, scale: mechanism.Scale) -> list[int]:
        return [round(rng.gauss(0, scale.deviation)) for _ in range(size)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", rng.randbytes)
        patch.setattr(secrets, "token_bytes", rng.randbytes)
        patch.setattr(mechanism, "draw", draw)
        patch.setattr(door, "ThreadPoolExecutor", lambda _: ThreadPoolExecutor(1))  # noise is drawn in one order
        yield lambda text: rng.seed(crc32(text.encode()))


class Harvest:
    """A plugin of pytest that keeps what tests analyze, and the texts of plans that they read."""

    def __init__(self, begin: Callable[[str], None]) -> None:
        self.readouts: list[Kept] = []
        self.plans: dict[str, str] = {}
        self._begin, self._test = begin, ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._begin(item.nodeid)
        self._test = f"{item.path.stem} {item.name}"

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Keep what is analyzed and read within."""
        analyze, parse = api.analyze_release, plan_file._parsed

        def analyzed(released: Any, experiment: str | None, options: AnalysisOptions) -> Any:
            given = _given(released, experiment, options)
            try:
                readout = analyze(released, experiment, options)
            except KanabError as problem:
                self._keep(given, {"error": type(problem).__name__})
                raise
            self._keep(given, readout.to_dict())
            return readout

        def parsed(text: str, where: str) -> Any:
            if "//127.0.0.1:" not in text:  # with the port of a test's server, another one each time
                self.plans.setdefault(text, self._test)
            return parse(text, where)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(api, "analyze_release", analyzed)
            patch.setattr(from_source, "analyze_release", analyzed)
            patch.setattr(plan_file, "_parsed", parsed)
            yield

    def _keep(self, given: Data | None, data: Data) -> None:
        if given is not None:
            self.readouts.append(({"id": self._test, "call": "analyze", "given": given}, plain(data)))


def _given(released: Any, experiment: str | None, options: AnalysisOptions) -> Data | None:
    """Return what is analyzed as plain data; None where that cannot be stored."""
    asked = {name: value for name, value in asdict(options).items() if value != getattr(AnalysisOptions, name)}
    try:
        return plain({"release": release_data(released), "experiment": experiment, "options": asked})  # type: ignore[no-any-return]
    except (AttributeError, TypeError, KanabError):  # no release, a file of looks, own rows with classes below k
        return None


def release_data(tables: Tables) -> Data:
    """Return a release, a sum of releases or own rows as plain data, with what is known in memory only."""
    if tables.parts:
        return {"parts": [release_data(part) for part in tables.parts]}
    own_rows = isinstance(tables, OwnRows)
    release: Any = Release(tables.plan, tables.tables, tables.receipt, salt="") if own_rows else tables
    memory = {"ranges": tables.ranges, "rates": tables.rates, "own_rows": own_rows}
    return {"release": release_to_dict(release), "bounds_declared": release.bounds_declared, **memory}


# ── which to keep ──────────────────────────────────────────────────────────────────────────────


def most_varied(readouts: Iterable[Kept], most: int, is_alike: Callable[[Data, Data], bool]) -> list[Data]:
    """Return cases that show the most pairs of traits that none before them shows, the smaller ones first.

    ``is_alike`` tells whether a case, once it is stored, still gives what it gave.
    """
    fresh = {json.dumps(case["given"]): (case, data) for case, data in readouts if len(json.dumps(data)) < LARGEST}
    waiting = [(case, data, _pairs(_traits(case, data))) for case, data in fresh.values()]
    waiting.sort(key=lambda each: len(json.dumps(each[:2])))
    kept: list[Data] = []
    while waiting and len(kept) < most:
        case, data, shown = max(waiting, key=lambda each: len(each[2]))
        waiting = [each for each in waiting if each[0] is not case]
        if is_alike(case, data):
            kept.append(case)
            for _, _, pairs in waiting:
                pairs.difference_update(shown)
    return kept


def _pairs(traits: set[str]) -> set[tuple[str, str]]:
    return set(combinations(sorted(traits), 2))


def _traits(case: Data, data: Data) -> set[str]:
    """Return the options, receipts, sections and identifiers of a readout."""
    options, release = case["given"]["options"], case["given"]["release"]
    traits = {f"{name}={value if isinstance(value, str) else ''}" for name, value in options.items()}
    traits |= {*release, *release.get("parts", [release])[0]["release"]["receipt"]}
    traits |= {name for name, section in data.items() if section}
    for name, section in data.items():
        for row in section if isinstance(section, list) else [section]:
            known = [key for key in IDENTIFIERS if isinstance(row, dict) and isinstance(row.get(key), str)]
            traits |= {f"{name}.{key}={row[key]}" for key in known}
    return traits
