"""What a ledger holds beside releases: refused attempts, reviews of them, scans, cohorts that were destroyed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from kanab.errors import LedgerError, listed
from kanab.privacy.release import new_salt
from kanab.privacy.release_json import hash_of

NoteKind = Literal["refused", "reviewed", "scanned", "voided", "kept"]

EVERYTHING = "everything"
"""What is voided where a plan has no cohorts."""

MOST_TEXT = 1_000
"""So many characters of a text that was asked are kept."""


@dataclass(frozen=True)
class LedgerNote:
    """A release that was refused: what was ``asked``, and ``says``, the rule that refused it; never a count.

    Or a review: ``says`` is why refused attempts up to here are no reason to stop. Or open cohorts of a collector that
    were destroyed (voided): ``says`` is why, ``asked`` holds the last of them and the time. Or that they were kept
    although something of them was lost: ``says`` is what. Or a scan that was shared: ``asked`` holds the shares
    that it spent on each metric, and the experiments.
    """

    kind: NoteKind
    says: str
    asked: Mapping[str, str] = field(default_factory=dict)
    previous: str = ""
    salt: str = field(default_factory=new_salt)

    def same(self, other: LedgerNote) -> bool:
        """Tell whether two notes say the same, wherever they stand: a job that asks for every new period asks once."""
        return (self.kind, self.says, self._but_cohorts) == (other.kind, other.says, other._but_cohorts)

    @property
    def _but_cohorts(self) -> dict[str, str]:
        return {name: text for name, text in self.asked.items() if name != "cohorts"}


class NoteEntry(msgspec.Struct, forbid_unknown_fields=True):
    """One line of a ledger."""

    format: Literal["kanab-ledger-note/1"]
    kind: NoteKind
    says: str
    asked: dict[str, str]
    salt: str
    previous: str
    hash: str


def note_to_dict(note: LedgerNote) -> dict[str, Any]:
    """Return a note as plain data, with its hash."""
    asked = {name: text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]} …" for name, text in note.asked.items()}
    entry = NoteEntry("kanab-ledger-note/1", note.kind, note.says, asked, note.salt, note.previous, "")
    plain: dict[str, Any] = msgspec.to_builtins(entry)
    return plain | {"hash": hash_of(plain)}


def note_from_dict(data: Any) -> LedgerNote:
    """Read a note from plain data. Raises `LedgerError` where it was changed."""
    try:
        entry = msgspec.convert(data, NoteEntry)
    except msgspec.ValidationError:
        entry = None
    if entry is None or hash_of(data) != entry.hash:
        raise LedgerError("a note of the ledger has been changed", "Take the ledger from a backup.")
    return LedgerNote(entry.kind, entry.says, entry.asked, entry.previous, entry.salt)


def is_note(data: Any) -> bool:
    """Tell whether a line of a ledger is a note, and not a release."""
    return isinstance(data, dict) and data.get("format") == "kanab-ledger-note/1"


def void_sentence(note: LedgerNote) -> str:
    """Say which cohorts were voided, when and why.

    >>> void_sentence(LedgerNote("voided", "forged.", {"through": "2026-W45", "at": "2026-11-16T11:00:00Z"}))
    'open cohorts through 2026-W45 were voided at 2026-11-16T11:00:00Z, and nobody of them is in a batch: forged'
    """
    through, at = note.asked.get("through", EVERYTHING), note.asked.get("at", "an unknown time")
    cohorts = "the open cohorts" if through == EVERYTHING else f"open cohorts through {through}"
    why = note.says.rstrip(". ")
    if note.kind == "kept":
        return f"{cohorts} were kept at {at} with what was left of them, and nobody of them is counted further: {why}"
    if "epoch" in note.asked:
        return f"{cohorts} were voided at {at}, and nobody who had enrolled until then is in a batch: {why}"
    return f"{cohorts} were voided at {at}, and nobody of them is in a batch: {why}"


def scan_sentence(note: LedgerNote) -> str:
    """Say what a shared scan told of.

    >>> scan_sentence(LedgerNote("scanned", "pairs", {"revenue": "0.1 0.2 ab", "search": "", "banner": ""}))
    'a scan of pairs was shared: revenue of search, banner'
    """
    metrics = [name for name, spent in note.asked.items() if spent]
    experiments = [name for name, spent in note.asked.items() if not spent]
    return f"a scan of {note.says} was shared: {listed(metrics)} of {listed(experiments)}"


def asked_text(asked: Mapping[str, str]) -> str:
    """Return what was asked in one line.

    >>> asked_text({"metrics": "spend", "where": "tier > 1"})
    'metrics: spend; where: tier > 1'
    """
    return "; ".join(f"{name.replace('_', ' ')}: {text}" for name, text in asked.items())
