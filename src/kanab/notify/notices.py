"""What there is to tell about a sealed batch, from what was sealed alone: the same batch, the same notices."""

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import quote

from kanab.analysis.decision import decision_words
from kanab.dashboard.experiment_list import ExperimentSummary, ListFilter, summarize
from kanab.dashboard.next_seal import CollectionStatus
from kanab.dashboard.releases import RawSource, read_contents
from kanab.dashboard.results import Computed, ExperimentReadout, Snapshot
from kanab.plan.model import Plan
from kanab.plan.notify_plan import Event, NotifyPlan
from kanab.privacy.ledger import read_entry
from kanab.privacy.release import Release, promise
from kanab.report.words import alarmed, headlines, metrics_of, sample_ratio_sentence, verdicts
from kanab.stats.srm import LIVE_SAMPLE_RATIO_ALARM

MOST_EXPERIMENTS = 50
"""So many experiments are in one message, those that need attention first."""

MOST_EFFECTS = 20
"""So many effects of one experiment are in it, those of primary metrics first."""


@dataclass(frozen=True)
class NoticeEntry:
    """One experiment in a notice: its name, its sentences, and the same as plain data."""

    name: str
    sentences: tuple[str, ...]
    data: dict[str, Any]
    link: str = ""


@dataclass(frozen=True)
class Notice:
    """Something to tell. The same event always has the same ``id``, so that who gets it twice can tell."""

    id: str
    kind: Event | Literal["test"]
    title: str
    sentences: tuple[str, ...] = ()
    experiments: tuple[NoticeEntry, ...] = ()
    left_out: int = 0
    through: str | None = None
    epsilon: float | None = None
    link: str = ""


class Notices:
    """Makes the notices of the entries of a ledger."""

    def __init__(self, notify: NotifyPlan, plan: Plan, entries: Sequence[bytes]) -> None:
        self._notify, self._entries = notify, entries
        self._collection = CollectionStatus(plan)
        self._computed = Computed()
        self._snapshots: dict[int, Snapshot] = {}
        self._made: dict[int, list[Notice]] = {}

    def of(self, at: int) -> list[Notice]:
        """Return what an entry brought: a seal, alarms that are new with it, experiments that may stop since then."""
        if at not in self._made:
            entry, digest = read_entry(self._entries[at])
            made = self._of_batch(at, entry, digest) if isinstance(entry, Release) else []  # or a note: nothing to tell
            self._made[at] = [notice for notice in made if notice.kind in self._notify.events]
        return self._made[at]

    def of_alarms(self, alarms: Iterable[str]) -> list[Notice]:
        """Return the alarms of people who are not sealed yet, but for experiments whose sealed people raised it."""
        if "sample-ratio" not in self._notify.events:
            return []
        last = len(self._entries) - 1
        digest = read_entry(self._entries[last])[1] if self._entries else ""
        says = (
            f"People do not arrive in the planned shares (p below {LIVE_SAMPLE_RATIO_ALARM:g}), counted in "
            "steps of k before the seal. Find the cause before it is sealed."
        )
        notices = []
        for name in sorted(alarms):
            if not self._is_alarmed(self._readout(last, name)):
                link, own = self._link(name), _id(digest, "sample-ratio", "live", name)
                entry = NoticeEntry(name, (), {"name": name}, link)
                title = f"{name}: sample ratio alarm"
                notices.append(Notice(own, "sample-ratio", title, (says,), (entry,), link=link))
        return notices

    def _of_batch(self, at: int, release: Release, digest: str) -> list[Notice]:
        names = [name for name in release.plan.experiment_names if release.tables_of(name)]
        summaries = {name: summarize(name, self._readout(at, name), self._collection) for name in names}
        ordered = ListFilter().select(summaries.values())
        batch, noise = release.receipt.batch, release.receipt.noise
        through = None if batch is None else batch.through
        epsilon = None if noise is None else noise.epsilon
        common = Notice("", "seal", "", through=through, epsilon=epsilon, link=self._notify.url or "")
        rule = f"k-anonymous at k = {release.receipt.k}" if noise is None else f"With {promise(noise)}"
        listed = {line.name: self._entry_of(line, self._readout(at, line.name)) for line in ordered[:MOST_EXPERIMENTS]}
        seal = replace(
            common,
            id=_id(digest, "seal"),
            title=f"Sealed {'everything' if through is None else f'the cohorts through {through}'}",
            sentences=(f"{rule}.", *(f"{why}." for why in release.why_left_out().values())),
            experiments=tuple(listed.values()),
            left_out=len(ordered) - len(listed),
        )
        return [seal, *self._news(at, digest, common, ordered, f"{rule}.")]

    def _news(
        self, at: int, digest: str, common: Notice, ordered: Sequence[ExperimentSummary], rule: str
    ) -> Iterable[Notice]:
        """Yield the alarms and the ends that this batch brought, and the one before it had not."""
        for line in ordered:
            readout = self._readout(at, line.name)
            about = replace(common, experiments=(self._entry_of(line, readout),), link=self._link(line.name))
            if self._is_alarmed(readout) and not self._is_alarmed(self._readout(at - 1, line.name)):
                says = sample_ratio_sentence(readout.data) if readout is not None else ""
                yield replace(
                    about, id=_id(digest, "sample-ratio", line.name), kind="sample-ratio",
                    title=f"{line.name}: sample ratio alarm", sentences=(says, rule),
                )  # fmt: skip
            if line.verdict == "may stop" and self._verdict(at - 1, line.name) != "may stop":
                yield replace(
                    about, id=_id(digest, "may-stop", line.name), kind="may-stop",
                    title=f"{line.name} may stop ({line.look})", sentences=(rule,),
                )  # fmt: skip

    def _entry_of(self, line: ExperimentSummary, readout: ExperimentReadout | None) -> NoticeEntry:
        facts: dict[str, Any] = {
            "name": line.name, "health": line.health, "why": line.why, "look": line.look, "verdict": line.verdict,
            "decision": None if line.decision is None else dict(line.decision), "effects": [],
        }  # fmt: skip
        sentences = [] if line.health == "fine" else [f"{line.health.capitalize()}: {line.why}."]
        if readout is not None and readout.readout is not None:
            data = readout.data
            facts |= {name: data[name] for name in ("control", "control_chosen")}
            rows = [row for metric in metrics_of(data) for row in headlines(data, metric)]
            rows.sort(key=lambda row: row.get("role") != "primary")
            facts["effects"] = [_effect(row) for row in rows[:MOST_EFFECTS]]
            said = {id(v.row): v.sentence for metric in metrics_of(data) for v in verdicts(data, metric)}
            early = [caution["sentence"] for caution in data["cautions"] if caution["kind"] == "looked-early"]
            effects = [said[id(row)] for row in rows[:MOST_EFFECTS]]
            sentences = [*_decided(line.decision, effects), *sentences, *effects, *early]
        if line.verdict:
            sentences.insert(0, f"{line.look.capitalize()}: {line.verdict}.")
        return NoticeEntry(line.name, tuple(sentences), facts, self._link(line.name))

    def _readout(self, at: int, name: str) -> ExperimentReadout | None:
        """Return what was known of an experiment after an entry; None where nothing was."""
        if at < 0:
            return None
        if at not in self._snapshots:
            source = RawSource("the store", tuple(self._entries[: at + 1]), ledger=True)
            self._snapshots[at] = Snapshot(read_contents([source]), self._computed)
        readouts = self._snapshots[at].readouts_of(name)
        return readouts[-1] if readouts else None

    def _is_alarmed(self, readout: ExperimentReadout | None) -> bool:
        return readout is not None and readout.readout is not None and alarmed(readout.data)

    def _verdict(self, at: int, name: str) -> str:
        return summarize(name, self._readout(at, name), self._collection).verdict

    def _link(self, name: str) -> str:
        return "" if self._notify.url is None else f"{self._notify.url.rstrip('/')}/experiments/{quote(name, safe='')}"


def _decided(decision: Mapping[str, Any] | None, effects: Sequence[str]) -> list[str]:
    """Return what to do and why, without effects that are told in full beside it."""
    if decision is None:
        return []
    because = [why for why in decision["because"] if not any(effect.startswith(why.rstrip(".")) for effect in effects)]
    return [" ".join([f"Decision: {decision_words(decision)}.", *because])]


def trial_notice(url: str | None) -> Notice:
    """Return a message that says nothing but that messages arrive."""
    says = ("This is a test. Nothing was sealed.",)
    return Notice(
        _id("test", str(time.time_ns())), "test", "Messages of this collector arrive here", says, link=url or ""
    )


def _id(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _effect(row: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("metric", "arm", "control", "role", "verdict", "estimate", "interval", "relative", "relative_interval", "p")
    return {key: row.get(key) for key in keys}
