"""What one request shows, all of it about the same bytes: pages and plain data show the same."""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property, partial
from typing import Any

from kanab.dashboard.experiment_list import ExperimentSummary, summaries, summarize
from kanab.dashboard.next_seal import CollectionStatus
from kanab.dashboard.releases import Contents
from kanab.dashboard.results import LIST_PATIENCE, PRIVACY_PATIENCE, ExperimentReadout, HistoryPoint, Results
from kanab.dashboard.timeline import trend_of
from kanab.errors import KanabError
from kanab.plan.model import Plan
from kanab.planning.epsilon import PersonAccount, person_account
from kanab.planning.forecast import Baseline, baseline_from_release
from kanab.scan.scan_readout import PairReadout


@dataclass(frozen=True)
class OpenCohort:
    """The open cohort of one experiment: people per arm whom the collector shows anyway, less what was sealed.

    They are floored to multiples of k; there are none with ε.
    """

    cohort: str | None
    days: int | None
    people: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, ready for JSON."""
        return {"cohort": self.cohort, "days_to_seal": self.days, "people": dict(self.people)}

    @property
    def seal_words(self) -> str:
        """When the next seal is, in days."""
        if self.days is None:
            return ""
        return "in less than a day" if self.days < 1 else f"in {self.days} {'day' if self.days == 1 else 'days'}"


def open_cohort(name: str, readout: ExperimentReadout | None, collection: CollectionStatus | None) -> OpenCohort | None:
    """Return the open cohort of an experiment; None where it is not collected."""
    if collection is None or not collection.runs(name):
        return None
    days, people = None, {}
    if collection.next_seal is not None and collection.now is not None:
        days = max(math.floor((collection.next_seal - collection.now) / timedelta(days=1)), 0)
    if collection.live is not None and collection.plan.budget is None:
        sealed = {} if readout is None or readout.readout is None else readout.data["arms"]
        k, live = collection.plan.k, collection.live.people.get(name) or {}
        people = {arm: max(count - sealed.get(arm, 0), 0) // k * k for arm, count in live.items()}
    return OpenCohort(collection.cohort, days, people)


class UnknownExperimentError(Exception):
    """Nobody planned or released an experiment of this name."""


@dataclass(frozen=True)
class ExperimentView:
    """An experiment: its line of the list, its readouts, which one is shown, and whom the last seal held back."""

    summary: ExperimentSummary
    readouts: tuple[ExperimentReadout, ...] = ()
    chosen: int = 0
    open: OpenCohort | None = None
    held_back: int = 0

    @property
    def shown(self) -> ExperimentReadout | None:
        """The chosen readout; None before the first seal."""
        return self.readouts[self.chosen] if self.readouts else None

    @property
    def data(self) -> dict[str, Any]:
        """The chosen readout as people read it, with what to do now: whether it still runs matters."""
        assert self.shown is not None
        return self.shown.data | {"decision": self.summary.decision}


class RequestView:
    """One request's view: everything in it is about the same bytes."""

    def __init__(self, results: Results) -> None:
        self.snapshot = results.read()
        self.contents: Contents = self.snapshot.contents
        self.collection: CollectionStatus | None = results.source.status()
        self.drawn = True

    @cached_property
    def readouts(self) -> Mapping[str, list[ExperimentReadout]]:
        """Every experiment that was released, with its readouts."""
        return self.snapshot.cached("readouts", self.snapshot.readouts)

    @cached_property
    def lines(self) -> list[ExperimentSummary]:
        """Every experiment in one line; some say that they are being read, where that takes a while."""
        if self.snapshot.ready("readouts", self.snapshot.readouts, LIST_PATIENCE):
            self.drawn = self.snapshot.ready("histories", self.snapshot.histories, LIST_PATIENCE)
            return self.whole_list
        return summaries(self.snapshot.readouts_so_far(), self.collection, self.snapshot.interferes)

    @cached_property
    def whole_list(self) -> list[ExperimentSummary]:
        """Every experiment in one line, once all are read."""
        return [self._with_trend(line) for line in summaries(self.readouts, self.collection, self.snapshot.interferes)]

    def _with_trend(self, line: ExperimentSummary) -> ExperimentSummary:
        """Return a line with what its small picture shows, from what has been computed so far."""
        readout = self.readouts[line.name][-1] if line.name in self.readouts else None
        if readout is None or readout.readout is None:
            return line
        points = self.snapshot.history_so_far(line.name)
        arm = None if line.decision is None else line.decision["arm"]
        return replace(line, trend=trend_of(readout.data, points, arm))

    def experiment(self, name: str, number: str = "") -> ExperimentView:
        """Return one experiment by name; ``number`` is that of another readout than the newest."""
        make = partial(self.snapshot.readouts_of, name)
        readouts = tuple(self.snapshot.cached(("readouts", name), make)) if name in self.snapshot.bundles else ()
        planned = self.collection is not None and self.collection.runs(name)
        if not readouts and not planned:
            raise UnknownExperimentError
        exists = number.isdecimal() and len(number) < 6 and int(number) < len(readouts)
        chosen = int(number) if exists else max(len(readouts) - 1, 0)
        newest = readouts[chosen] if readouts else None
        line = summarize(name, newest, self.collection, self.snapshot.interferes.get(name, ()))
        open_now, held_back = open_cohort(name, newest, self.collection), self._held_back(name)
        return ExperimentView(line, readouts, chosen, open_now, held_back)

    def _held_back(self, name: str) -> int:
        """Return how many people of an experiment the last seal held back, in steps of k."""
        accounts = [release.receipt.people for release in self.contents.releases.values() if release.receipt.people]
        planned = self.collection is not None and self.collection.runs(name)
        return accounts[-1].get(name, {}).get("held_back", 0) if planned and accounts else 0

    def history(self, view: ExperimentView) -> list[HistoryPoint]:
        """Return what was known after each seal of the readout that is shown."""
        assert view.shown is not None
        name, bundle = view.summary.name, view.shown.bundle
        return self.snapshot.cached(("history", name, bundle.names), partial(self.snapshot.history, name, bundle))

    @cached_property
    def interactions(self) -> PairReadout | None:
        """Every pair whose table was released."""
        return self.snapshot.cached("interactions", self.snapshot.interactions)

    @cached_property
    def accounts(self) -> Mapping[str, dict[str, Any]]:
        """The officer's account of every ledger."""
        return self.snapshot.cached("accounts", self.snapshot.accounts)

    @property
    def checked(self) -> bool:
        """Whether the accounts are there; a page waits for that only shortly."""
        return self.snapshot.ready("accounts", self.snapshot.accounts, PRIVACY_PATIENCE)

    def account(self, ledger: str) -> tuple[str, dict[str, Any] | None]:
        """Return the account of a ledger, or of the first one where there is no such ledger; and its name."""
        name = ledger if ledger in self.accounts else next(iter(self.accounts), "")
        return name, self.accounts.get(name)

    @cached_property
    def plan(self) -> Plan | None:
        """The plan in force; where nothing is collected, that of the newest release."""
        if self.collection is not None:
            return self.collection.plan
        return next((release.plan for release in reversed(self.contents.releases.values())), None)

    @cached_property
    def person_account(self) -> PersonAccount | None:
        """What the plan spends of one person, after what the collector has sealed; None without ε."""
        collected = [] if self.collection is None else self.contents.releases.values()
        sealed = [release for release in collected if release.receipt.store]
        return None if self.plan is None else person_account(self.plan, sealed)

    @cached_property
    def baseline(self) -> Baseline | None:
        """What the newest release says about shares of levels and how metrics vary."""
        newest = next(reversed(self.contents.releases.values()), None)
        with suppress(KanabError):
            return None if newest is None else baseline_from_release(newest)
        return None
