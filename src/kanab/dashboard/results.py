"""What releases on a shelf say: a readout for every experiment, its history, pairs, the officer's account.

Everything here is computed from releases alone, and kept as long as they are the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from kanab.analysis.api import analyze
from kanab.analysis.options import Looks
from kanab.analysis.readout import Readout
from kanab.dashboard.background import Later, Once
from kanab.dashboard.next_seal import Standing
from kanab.dashboard.release_sources import Shelf
from kanab.dashboard.releases import Chain, Contents
from kanab.errors import AnalysisError, KanabError
from kanab.inspection.officer.account import privacy_account
from kanab.privacy.batches import add_releases
from kanab.privacy.release import Release
from kanab.privacy.same_plan import continues
from kanab.scan.readout import PairReadout
from kanab.scan.scan import scan_interactions

_T = TypeVar("_T")

PATIENCE = 4.0
"""Seconds that a page waits for what is being computed, before it says so."""

MOST_POINTS = 60
"""So many seals back goes the history."""

BEYOND = "More seals were made than looks were planned ({fact}); p-values and intervals are those of a single look."


@dataclass(frozen=True, eq=False)
class Bundle:
    """Releases that are read together: batches about different people, added; or one release alone."""

    chain: Chain
    names: tuple[str, ...]
    releases: tuple[Release, ...]

    @property
    def title(self) -> str:
        """What it is called where there are several."""
        return self.names[0] if len(self.names) == 1 else f"{self.names[0]} to {self.names[-1].split(', ')[-1]}"


@dataclass(frozen=True, eq=False)
class Reading:
    """One experiment of a bundle: its readout and the batches behind it, or why there is none."""

    bundle: Bundle
    readout: Readout | None = None
    problem: KanabError | None = None

    @property
    def data(self) -> dict[str, Any]:
        """The readout as people read it: with several looks, p and intervals are those for all of them."""
        assert self.readout is not None
        return self.readout._shown()


@dataclass(frozen=True)
class Point:
    """What was known after a seal: the cohort it went through, and the readout of everything up to it."""

    through: str
    people: int
    data: dict[str, Any]


class Library:
    """Asks a shelf, computes what is new, and keeps it. Safe to be asked by many threads."""

    def __init__(self, shelf: Shelf, *, patience: float = PATIENCE) -> None:
        self._shelf, self._patience = shelf, patience
        self._later = Later()
        self._points: dict[tuple[str, ...], Point] = {}
        self._snapshot: tuple[str, Once] = ("", Once())

    def look(self) -> Contents:
        """What lies on the shelf now."""
        return self._shelf.look()

    def standing(self) -> Standing | None:
        """What is collected, and what is being waited for."""
        return self._shelf.standing()

    def warm(self) -> None:
        """Begin with what the first page will ask for."""
        contents = self.look()
        self._later.get(contents.digest, "readings", lambda: self._readings(contents), wait=0)

    # ── what pages ask ─────────────────────────────────────────────────────────────────────────

    def readings(self, contents: Contents) -> dict[str, list[Reading]]:
        """Every experiment with its readings, the newest last."""
        return self._soon(contents, "readings", lambda: self._readings(contents))

    def history(self, contents: Contents, experiment: str, bundle: Bundle) -> list[Point]:
        """What was known about an experiment after every seal."""
        key = ("history", experiment, bundle.names)
        return self._soon(contents, key, lambda: self._history(experiment, bundle))

    def interactions(self, contents: Contents) -> PairReadout | None:
        """Every pair of experiments whose table was released; None if none was."""
        return self._soon(contents, "interactions", lambda: self._interactions(contents))

    def accounts(self, contents: Contents) -> dict[str, dict[str, Any]]:
        """The officer's account of every chain, by its name."""
        return self._soon(contents, "accounts", lambda: _accounts(contents))

    def kept(self, contents: Contents, key: Any, make: Callable[[], _T]) -> _T:
        """Something else about the same bytes that takes a while, such as a picture."""
        return self._soon(contents, key, make)

    def _soon(self, contents: Contents, key: Any, make: Callable[[], _T]) -> _T:
        return self._later.get(contents.digest, key, make, wait=self._patience)

    # ── how it is computed ─────────────────────────────────────────────────────────────────────

    def _once(self, contents: Contents) -> Once:
        if self._snapshot[0] != contents.digest:
            self._snapshot = contents.digest, Once()
        return self._snapshot[1]

    def _readings(self, contents: Contents) -> dict[str, list[Reading]]:
        found: dict[str, list[Reading]] = {}
        once = self._once(contents)
        for bundle in bundles(contents):
            for name in dict.fromkeys(name for release in bundle.releases for name in release.plan.experiment_names):
                own = _holding(bundle, name)
                if own.releases:
                    found.setdefault(name, []).append(_reading(own, name, once))
        return found

    def _history(self, experiment: str, bundle: Bundle) -> list[Point]:
        """Batch after batch, each added to those before; a point that was computed once never changes."""
        points: list[Point] = []
        total: Release | None = None
        first = len(bundle.releases) - MOST_POINTS
        for at, release in enumerate(bundle.releases):
            own = _narrowed(release, experiment)
            total = own if total is None else add_releases([total, own])
            if at >= first:
                key = (experiment, *(bundle.chain.hashes[name] for name in bundle.names[: at + 1]))
                if key not in self._points:
                    self._points[key] = _point(total, experiment)
                points.append(self._points[key])
        return points

    def _interactions(self, contents: Contents) -> PairReadout | None:
        once = self._once(contents)
        sums = [summed(bundle, once) for bundle in bundles(contents)]
        with_pairs = [one for one in sums if any(len(table.arms) == 2 for table in one.tables.values())]
        return scan_interactions(with_pairs) if with_pairs else None


def bundles(contents: Contents) -> list[Bundle]:
    """Which releases are read together: batches of one ledger that continue each other; all others alone."""
    found: list[Bundle] = []
    for chain in contents.chains:
        runs: list[list[tuple[str, Release]]] = []
        for name, release in chain.releases.items():
            run = next((run for run in reversed(runs) if _follows(release, [one for _, one in run])), None)
            if run is None:
                runs.append([(name, release)])
            else:
                run.append((name, release))
        found += [Bundle(chain, *(tuple(side) for side in zip(*run, strict=True))) for run in runs]
    return found


def _follows(release: Release, run: Sequence[Release]) -> bool:
    """Is it a later batch of the same plan?"""
    batch, last = release.receipt.batch, run[-1].receipt.batch
    if batch is None or last is None or batch.after is None or batch.after < last.through:
        return False
    return all(continues(release.plan, one.plan) for one in run)


def summed(bundle: Bundle, once: Once) -> Release:
    """The batches of a bundle as one release."""
    return once.get(("sum", bundle.chain.name, bundle.names), lambda: add_releases(bundle.releases))


def _holding(bundle: Bundle, experiment: str) -> Bundle:
    """The batches that hold a table of an experiment: it may have begun later, or been too small."""
    own = [
        (name, one)
        for name, one in zip(bundle.names, bundle.releases, strict=True)
        if any([factor.name for factor in table.arms] == [experiment] for table in one.tables.values())
    ]
    return replace(bundle, names=tuple(name for name, _ in own), releases=tuple(one for _, one in own))


def _reading(bundle: Bundle, experiment: str, once: Once) -> Reading:
    try:
        return Reading(bundle, _analyzed(summed(bundle, once), experiment))
    except KanabError as problem:
        return Reading(bundle, problem=problem)


def _analyzed(released: Release, experiment: str) -> Readout:
    """The readout; over all looks, where the plan says how many there will be."""
    if released.plan.experiment(experiment).looks is None:
        return analyze(released, experiment)
    try:
        return analyze(released, experiment, looks=Looks("spending"))
    except AnalysisError as problem:  # for example more seals than looks were planned
        found = analyze(released, experiment)
        return replace(found, notes=(*found.notes, BEYOND.format(fact=problem.fact)))


def _narrowed(release: Release, experiment: str) -> Release:
    """One experiment of a release by itself: its history needs no other table."""
    own = replace(release.plan.experiment(experiment), interactions=(), exclude_with=())
    tables = {name: one for name, one in release.tables.items() if [factor.name for factor in one.arms] == [experiment]}
    return replace(release, plan=replace(release.plan, experiments=(own,)), tables=tables)


def _point(total: Release, experiment: str) -> Point:
    last = (total.parts or (total,))[-1].receipt.batch
    readout = _analyzed(total, experiment)
    return Point("" if last is None else last.through, sum(readout.arms.values()), readout._shown())


def _accounts(contents: Contents) -> dict[str, dict[str, Any]]:
    return {chain.name: privacy_account(chain.releases, chain.ledger) for chain in contents.chains if chain.releases}
