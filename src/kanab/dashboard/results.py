"""What releases say: a readout for every experiment, its history, pairs, the officer's account; from them alone."""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeVar

from kanab.analysis.api import analyze
from kanab.analysis.readout import Readout
from kanab.dashboard.background import BackgroundCache, LockedCache, NotYetError
from kanab.dashboard.release_sources import ReleaseSource
from kanab.dashboard.releases import Contents, ReleaseChain
from kanab.description import Reading
from kanab.errors import KanabError
from kanab.inspection.officer.account import privacy_account
from kanab.privacy.batches import add_releases, continues
from kanab.privacy.release import Release, refuse_own_rows
from kanab.scan.scan import scan_stored_pairs
from kanab.scan.scan_readout import PairReadout
from kanab.tally.factor import Level

_T = TypeVar("_T")

PATIENCE = 4.0
"""Seconds that a page waits for what is being computed, before it says so."""

LIST_PATIENCE = 1 / 16
"""So much of that a list waits for experiments that are being analyzed, before it shows those that are."""

PRIVACY_PATIENCE = 1 / 2
"""So much of that the privacy page waits for the checks, before it shows what is being checked."""

REFRESH_SECONDS = 15.0
"""Seconds between two reads of the source while nobody asks, so that no reader waits for what a seal brought."""

MOST_POINTS = 60
"""So many seals back goes the history."""

MOST_STEPS = 12
"""So many seals back go the small pictures of the list."""


@dataclass(frozen=True, eq=False)
class Bundle:
    """Releases that are analyzed as one: batches about different people, added; or one release alone."""

    chain: ReleaseChain
    names: tuple[str, ...]
    releases: tuple[Release, ...]

    @property
    def title(self) -> str:
        """What it is called where there are several."""
        return self.names[0] if len(self.names) == 1 else f"{self.names[0]} to {self.names[-1].split(', ')[-1]}"


@dataclass(frozen=True, eq=False)
class ExperimentReadout:
    """One experiment of a bundle: its readout and the batches behind it, or why there is none."""

    bundle: Bundle
    readout: Readout | None = None
    problem: KanabError | None = None

    @cached_property
    def data(self) -> dict[str, Any]:
        """The readout as people read it: with several looks, p and intervals are those for all of them."""
        assert self.readout is not None
        return self.readout._shown()


@dataclass(frozen=True)
class HistoryPoint:
    """What was known after a seal: the cohort it went through, and the readout of everything up to it."""

    through: str
    people: int
    data: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Computed:
    """What snapshots share: what is being computed, and what was made of the same bytes before."""

    patience: float = PATIENCE
    background: BackgroundCache = field(default_factory=BackgroundCache)
    points: dict[tuple[str, ...], HistoryPoint] = field(default_factory=dict)
    analyses: dict[tuple[str, ...], Readout | KanabError] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What a source holds at a moment, and what follows from it. Safe to be asked by many threads."""

    contents: Contents
    _computed: Computed = field(default_factory=Computed)
    _sums: LockedCache = field(default_factory=LockedCache)

    # ── what pages ask ─────────────────────────────────────────────────────────────────────────

    def ready(self, key: Any, make: Callable[[], Any], patience: float) -> bool:
        """Return whether something is there, after a part of what a page waits."""
        with suppress(NotYetError):
            self.cached(key, make, patience)
            return True
        return False

    def cached(self, key: Any, make: Callable[[], _T], patience: float = 1.0) -> _T:
        """Return something that takes a while, made once."""
        wait = patience * self._computed.patience
        return self._computed.background.get(self.contents.digest, key, make, wait=wait)

    def warm(self) -> None:
        """Begin to compute what the first page will ask for."""
        self.ready("readouts", self._readouts_ahead, 0)
        self.ready("histories", self.histories, 0)

    # ── how it is computed ─────────────────────────────────────────────────────────────────────

    def readouts(self) -> dict[str, list[ExperimentReadout]]:
        """Return every experiment with its readouts, the newest last."""
        readouts = {name: self.readouts_of(name) for name in self.bundles}
        kept = {_key(readout.bundle, name) for name, own in readouts.items() for readout in own}
        for key in list(self._computed.analyses):  # as others may add to it meanwhile
            if key not in kept:
                self._computed.analyses.pop(key, None)
        return readouts

    def _readouts_ahead(self) -> dict[str, list[ExperimentReadout]]:
        """Return the same before anybody asked: whoever waits for another page goes before."""
        for name in self.bundles:
            self._computed.background.give_way("readouts")
            self.readouts_of(name)
        return self.readouts()

    def readouts_of(self, experiment: str) -> list[ExperimentReadout]:
        """Return the readouts of one experiment, the newest last; none where it was not released."""
        own = self.bundles.get(experiment, ())
        return self._sums.get(("readouts", experiment), lambda: [self._readout(bundle, experiment) for bundle in own])

    def readouts_so_far(self) -> dict[str, list[ExperimentReadout] | None]:
        """Return every experiment with its readouts; None where it is not analyzed yet."""
        return {name: self._sums.peek(("readouts", name)) for name in self.bundles}

    @property
    def bundles(self) -> dict[str, list[Bundle]]:
        """Every experiment with the batches that hold it, without analyzing them."""
        return self._sums.get("bundles", lambda: _bundles_by_experiment(self.contents))

    def summed(self, bundle: Bundle) -> Release:
        """Return the batches of a bundle as one release."""
        return self._sums.get((bundle.chain.name, bundle.names), lambda: add_releases(bundle.releases))

    def _readout(self, bundle: Bundle, experiment: str) -> ExperimentReadout:
        """Return a readout; the same releases are analyzed once, whatever else came or went."""
        key = _key(bundle, experiment)
        answer = self._computed.analyses.get(key)
        if answer is None:
            try:
                answer = analyzed(self.summed(bundle), experiment)
            except KanabError as problem:
                answer = problem
            self._computed.analyses[key] = answer
        if isinstance(answer, KanabError):
            return ExperimentReadout(bundle, problem=answer)
        return ExperimentReadout(bundle, answer)

    def histories(self) -> None:
        """Compute the last seals of every experiment that has several, for the small pictures of the list."""
        for name, own in self.readouts().items():
            if own[-1].readout is not None and len(own[-1].bundle.releases) > 1:
                self._sums.get(("steps", name), partial(self.history, name, own[-1].bundle, MOST_STEPS))

    def history_so_far(self, experiment: str) -> list[HistoryPoint]:
        """Return the last seals of an experiment; none where they are not computed yet. It computes nothing."""
        return self._sums.peek(("steps", experiment)) or []

    def history(self, experiment: str, bundle: Bundle, most: int = MOST_POINTS) -> list[HistoryPoint]:
        """Return what was known about an experiment after every seal; a point that was computed never changes."""
        points: list[HistoryPoint] = []
        total: Release | None = None
        first = len(bundle.releases) - most
        for at, release in enumerate(bundle.releases):
            batch = narrowed(release, experiment)
            total = batch if total is None else add_releases([total, batch])
            if at >= first:
                key = _key(bundle, experiment)[: at + 2]
                point = self._computed.points.get(key) or _point(total, experiment)
                self._computed.points[key] = point
                # Where the design ended with an earlier seal, this one adds nothing.
                if all(caution["kind"] != "design-ended" for caution in point.data["cautions"]):
                    points.append(point)
        return points

    def interactions(self) -> PairReadout | None:
        """Return every pair of experiments whose table was released; None if none was."""
        totals = [self.summed(bundle) for bundle in bundles(self.contents)]
        with_pairs = [total for total in totals if any(len(table.arms) == 2 for table in total.tables.values())]
        return scan_stored_pairs(with_pairs) if with_pairs else None

    @cached_property
    def interferes(self) -> dict[str, list[dict[str, str]]]:
        """By experiment which others interfere with it, on which metric; nothing while pairs are scanned."""
        pairs = None
        with suppress(KanabError, NotYetError):
            pairs = self.cached("interactions", self.interactions, LIST_PATIENCE)
        alarms: dict[str, list[dict[str, str]]] = {}
        for row in [] if pairs is None else pairs.scan.flagged:
            for name, other in ((row.a, row.b), (row.b, row.a)):
                if row.verdict == "interference":
                    alarms.setdefault(name, []).append({"experiment": other, "metric": row.metric})
        return alarms

    def accounts(self) -> dict[str, dict[str, Any]]:
        """Return the officer's account of every chain, by its name."""
        chains = self.contents.chains
        return {chain.name: privacy_account(chain.releases, chain.ledger) for chain in chains if chain.releases}


class Results:
    """Reads a source again and again; what was computed is kept as long as it is about the same bytes."""

    def __init__(self, source: ReleaseSource, *, patience: float = PATIENCE) -> None:
        self.source = source
        self._computed = Computed(patience)
        self._reading = threading.Lock()
        self._digest, self._sums = "", LockedCache()
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin to compute what the first reader will ask for, and do so again after every seal."""
        self._stopped.clear()

        def refresh() -> None:
            while not self._stopped.is_set():
                with suppress(KanabError, NotYetError):
                    self.read().warm()
                self._stopped.wait(REFRESH_SECONDS)

        threading.Thread(target=refresh, daemon=True).start()

    def stop(self) -> None:
        """Stop reading the source while nobody asks."""
        self._stopped.set()

    def read(self) -> Snapshot:
        """Return what the source holds now; who asks while it is being verified waits for that."""
        with self._reading:
            contents = self.source.read()
            same = contents.digest == self._digest
            self._digest, self._sums = contents.digest, self._sums if same else LockedCache()
            return Snapshot(contents, self._computed, self._sums)

    def drawing(self) -> AbstractContextManager[None]:
        """Return a block in which a page is drawn: what nobody waits for gives way to it."""
        return self._computed.background.drawing()


def bundles(contents: Contents) -> list[Bundle]:
    """Return which releases are analyzed as one: batches of one ledger that continue each other; all others alone."""
    bundled: list[Bundle] = []
    for chain in contents.chains:
        runs: list[list[tuple[str, Release]]] = []
        for name, release in chain.releases.items():
            run = next((run for run in reversed(runs) if _follows(release, [batch for _, batch in run])), None)
            if run is None:
                runs.append([(name, release)])
            else:
                run.append((name, release))
        bundled += [Bundle(chain, *(tuple(side) for side in zip(*run, strict=True))) for run in runs]
    return bundled


def _follows(release: Release, run: Sequence[Release]) -> bool:
    """Return whether it is a later batch of the same plan."""
    batch, last = release.receipt.batch, run[-1].receipt.batch
    if batch is None or last is None or batch.after is None or batch.after < last.through:
        return False
    return all(continues(release.plan, earlier.plan) for earlier in run)


def _key(bundle: Bundle, experiment: str) -> tuple[str, ...]:
    """Return what an analysis is kept by: the experiment and the hashes of what it is made of."""
    return experiment, *(bundle.chain.hashes[name] for name in bundle.names)


def _bundles_by_experiment(contents: Contents) -> dict[str, list[Bundle]]:
    """Return the batches that hold a table of each experiment: it may have begun later, or been too small."""
    by_experiment: dict[str, list[Bundle]] = {}
    for bundle in bundles(contents):
        for experiment in dict.fromkeys(name for release in bundle.releases for name in release.plan.experiment_names):
            batches = {
                name: release
                for name, release in zip(bundle.names, bundle.releases, strict=True)
                if release.tables_of(experiment)
            }
            if batches:
                holding = replace(bundle, names=tuple(batches), releases=tuple(batches.values()))
                by_experiment.setdefault(experiment, []).append(holding)
    return by_experiment


def analyzed(released: Release, experiment: str, control: Level = None) -> Readout:
    """Return the readout, but of nothing that only holders of rows may see."""
    refuse_own_rows(released)
    return analyze(released, experiment, Reading(control=control))


def narrowed(release: Release, experiment: str) -> Release:
    """Return one experiment of a release by itself: its history needs no other table."""
    alone = replace(release.plan.experiment(experiment), interactions=(), exclude_with=(), joint_shares={})
    plan = replace(release.plan, experiments=(alone,))
    return replace(release, plan=plan, tables=release.tables_of(experiment))


def _point(total: Release, experiment: str) -> HistoryPoint:
    last = (total.parts or (total,))[-1].receipt.batch
    readout = analyzed(total, experiment)
    return HistoryPoint("" if last is None else last.through, sum(readout.arms.values()), readout._shown())
