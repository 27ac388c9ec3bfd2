"""Ledgers: all releases about one population, and the attempts that were refused, chained by hash.

One line per entry, after a line that names the format. A line that was edited no longer has its
own hash; a line that was removed or moved breaks the chain. That the last lines are missing only
shows against the files: `kanab audit` compares them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import msgspec

from kanab.arguments import check_arguments
from kanab.atomicfile import write_whole
from kanab.errors import KanabError, LedgerError, SourceError, listed
from kanab.plan.model import Plan
from kanab.privacy.release import Release, new_salt, refuse_own_rows
from kanab.privacy.release_json import hash_of, release_from_dict, release_to_dict

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


def void_sentence(note: LedgerNote) -> str:
    """Say which cohorts were voided, when and why."""
    through, at = note.asked.get("through", EVERYTHING), note.asked.get("at", "an unknown time")
    cohorts = "the open cohorts" if through == EVERYTHING else f"open cohorts through {through}"
    why = note.says.rstrip(". ")
    if note.kind == "kept":
        return f"{cohorts} were kept at {at} with what was left of them, and nobody of them is counted further: {why}"
    if "epoch" in note.asked:
        return f"{cohorts} were voided at {at}, and nobody who had enrolled until then is in a batch: {why}"
    return f"{cohorts} were voided at {at}, and nobody of them is in a batch: {why}"


def scan_sentence(note: LedgerNote) -> str:
    """Say what a shared scan told of."""
    metrics = [name for name, spent in note.asked.items() if spent]
    experiments = [name for name, spent in note.asked.items() if not spent]
    return f"a scan of {note.says} was shared: {listed(metrics)} of {listed(experiments)}"


def asked_text(asked: Mapping[str, str]) -> str:
    """Return what was asked in one line.

    >>> asked_text({"metrics": "spend", "where": "tier > 1"})
    'metrics: spend; where: tier > 1'
    """
    return "; ".join(f"{name.replace('_', ' ')}: {text}" for name, text in asked.items())


FORMAT = "kanab-ledger/1"
_HEADER = json.dumps({"format": FORMAT})
_UNKNOWN = "Give a ledger that kanab release wrote, or another name for a new one."


@dataclass(frozen=True, eq=False)
class Ledger:
    """Releases and notes in their order, and the hash of each; ``name`` is that of the file."""

    entries: tuple[Release | LedgerNote, ...] = ()
    hashes: tuple[str, ...] = ()
    name: str = ""

    @property
    def releases(self) -> tuple[Release, ...]:
        """What was released."""
        return tuple(entry for entry in self.entries if isinstance(entry, Release))

    @property
    def notes(self) -> tuple[LedgerNote, ...]:
        """Attempts that were refused, reviews of them, and what was voided."""
        return tuple(entry for entry in self.entries if isinstance(entry, LedgerNote))

    @property
    def unreviewed(self) -> tuple[LedgerNote, ...]:
        """Attempts that were refused since the last review."""
        last = max((place for place, note in enumerate(self.notes) if note.kind == "reviewed"), default=-1)
        return tuple(note for note in self.notes[last + 1 :] if note.kind == "refused")

    @property
    def head(self) -> str:
        """The hash of the last entry; empty before the first."""
        return self.hashes[-1] if self.hashes else ""

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans that have to be counted again before a further release about the same people."""
        exact = () if self.noisy else self.releases
        return tuple(release.plan for release in exact if release.receipt.batch is None)

    @property
    def noisy(self) -> tuple[Release, ...]:
        """The releases with ε."""
        return tuple(release for release in self.releases if release.receipt.noise is not None)


@check_arguments()
def read_ledger(path: str | PathLike[str]) -> Ledger:
    """Read and verify a ledger; one that does not exist yet is empty. Raises `LedgerError` where it was changed."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Ledger(name=file.name)
    except UnicodeDecodeError:
        raise LedgerError(f"{file.name} is not a ledger", _UNKNOWN) from None
    except OSError as problem:
        raise LedgerError(f"{file.name} cannot be read: {problem.strerror}", "Check the path.") from None
    first, *lines = text.split("\n")
    if first != _HEADER:
        raise LedgerError(f"{file.name} is not a ledger", _UNKNOWN)
    if not text.endswith("\n"):
        raise LedgerError(f"the end of {file.name} is missing", "Take it from a backup.")
    return replace(verified_entries(lines[:-1], file.name), name=file.name)


def verified_entries(lines: Iterable[str | bytes], name: str) -> Ledger:
    """Return a ledger from its entries. Raises `LedgerError` where an entry was changed, removed or moved."""
    entries: list[Release | LedgerNote] = []
    hashes: list[str] = []
    for number, line in enumerate(lines, start=1):
        try:
            entry, digest = read_entry(line)
        except (ValueError, RecursionError, KanabError):
            raise LedgerError(
                f"entry {number} of {name} has been changed", "Take the ledger from a backup; do not release into it."
            ) from None
        if entry.previous != (hashes[-1] if hashes else ""):
            raise LedgerError(
                f"entry {number} of {name} does not follow the one before it: an entry was removed or moved",
                "Take the ledger from a backup; do not release into it.",
            )
        entries.append(entry)
        hashes.append(digest)
    return Ledger(tuple(entries), tuple(hashes))


def read_entry(line: str | bytes) -> tuple[Release | LedgerNote, str]:
    """Read one entry of a ledger, and its hash. Raises `KanabError` or `ValueError` where it is none."""
    plain = json.loads(line)
    is_note = isinstance(plain, dict) and plain.get("format") == "kanab-ledger-note/1"
    entry = note_from_dict(plain) if is_note else release_from_dict(plain)
    return entry, str(plain["hash"])


@contextmanager
def hold_ledger(path: str | PathLike[str]) -> Iterator[Ledger]:
    """Lock a ledger and yield it verified, with an entry that a killed process had written whole but not yet renamed.

    Raises `LedgerError` where it was changed, is an older copy, or another process holds it.
    """
    file = Path(path)
    with _locked(file.with_name(f".{file.name}.lock"), file.name):
        ledger = _taken_up(file, read_ledger(file))
        check_witness(ledger.hashes, ledger.name)
        if ledger.noisy:
            note_witness(ledger.hashes)
        yield ledger


def _taken_up(file: Path, ledger: Ledger) -> Ledger:
    """Return a ledger with the entry that a killed process left beside it, if it is whole: it may have been seen."""
    left = file.with_name(_next_name(file))
    if not left.exists():
        return ledger
    try:
        longer = read_ledger(left)
    except LedgerError:
        longer = ledger
    if longer.hashes[:-1] != ledger.hashes:
        left.unlink(missing_ok=True)
        return ledger
    left.replace(file)
    return replace(longer, name=file.name)


def _next_name(file: Path) -> str:
    return f".{file.name}.next"


def append_release(path: str | PathLike[str], ledger: Ledger, release: Release) -> Ledger:
    """Add a release to a ledger that is held, whole or not at all. Raises `LedgerError` where it does not follow."""
    refuse_own_rows(release)
    if release.previous != ledger.head:
        raise LedgerError("the release was made for another state of the ledger", "Release it again.")
    return _append(path, ledger, release)


def append_note(path: str | PathLike[str], ledger: Ledger, note: LedgerNote) -> Ledger:
    """Add a note to a ledger that is held; the same attempt is noted once."""
    if note.kind == "refused" and any(note.same(old) for old in ledger.unreviewed):
        return ledger
    return _append(path, ledger, replace(note, previous=ledger.head))


def _append(path: str | PathLike[str], ledger: Ledger, entry: Release | LedgerNote) -> Ledger:
    longer = replace(ledger, entries=(*ledger.entries, entry), hashes=(*ledger.hashes, _entry_to_dict(entry)["hash"]))
    write_whole(path, ledger_text(longer), _next_name(Path(path)))
    if longer.noisy:
        note_witness(longer.hashes)
    return longer


def ledger_text(ledger: Ledger) -> str:
    """Return the text of a ledger's file."""
    return "\n".join((_HEADER, *map(entry_text, ledger.entries))) + "\n"


def entry_text(entry: Release | LedgerNote) -> str:
    """Return the line of an entry."""
    return json.dumps(_entry_to_dict(entry), ensure_ascii=False, allow_nan=False)


def _entry_to_dict(entry: Release | LedgerNote) -> dict[str, Any]:
    return note_to_dict(entry) if isinstance(entry, LedgerNote) else release_to_dict(entry)


@contextmanager
def _locked(lock: Path, name: str) -> Iterator[None]:
    """Let one process in at a time; the lock goes with the process, also when it is killed."""
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as problem:
        raise LedgerError(f"{name} cannot be opened: {problem.strerror}", "Check the folder.") from None
    try:
        _take(handle, lock, name)
        try:
            yield
        finally:
            with suppress(OSError):
                lock.unlink()
    finally:
        os.close(handle)


def _take(handle: int, lock: Path, name: str) -> None:
    busy = LedgerError(f"another release into {name} is under way", "Try again when it has finished.")
    try:
        import fcntl  # noqa: PLC0415 - not on Windows
    except ImportError:
        import msvcrt  # noqa: PLC0415

        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError:
            raise busy from None
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        same_file = os.fstat(handle).st_ino == lock.stat().st_ino  # whoever had it may have removed it
    except OSError:
        raise busy from None
    if not same_file:
        raise busy


# ── the witness ────────────────────────────────────────────────────────────────────────────────
#
# A copy of a ledger with ε that is put back would forget what was spent since, and spend it again. So this machine
# notes, in the user's folder for state, the number and the hash of a ledger's last entry; nothing about people. A
# ledger that has not come as far, or went another way, is not the one that was last released into.

_WITNESS_FORMAT = "kanab-ledger-witness/1"


def witness_folder() -> Path:
    """Return where witnesses are kept: kanab/ledgers in $XDG_STATE_HOME, by default ~/.local/state."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "kanab" / "ledgers"


def ready_witness() -> None:
    """Make the folder. Raises `LedgerError` where nothing can be written there, before anything is drawn."""
    folder = witness_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        raise LedgerError(
            "what was spent cannot be noted apart from the ledger, so that an older copy would go unnoticed",
            "Set XDG_STATE_HOME to a folder that can be written and that stays.",
        )


def check_witness(hashes: Sequence[str], name: str) -> None:
    """Compare the hashes of a ledger's entries with its witness, if it has one.

    Raises `LedgerError` where the ledger is an older copy, or the witness cannot be read.
    """
    file = _witness_of(hashes)
    if file is None or not file.exists():
        return
    try:
        form, number, last = file.read_text(encoding="ascii").split()
        place = int(number)
    except (OSError, ValueError):
        form, place, last = "", 0, ""
    if form != _WITNESS_FORMAT or place < 1:
        raise LedgerError(
            f"the witness of {name} is damaged",
            f"If {name} is the newest copy of the ledger, delete kanab/ledgers/{file.name} in the state folder.",
        )
    if len(hashes) < place or hashes[place - 1] != last:
        raise LedgerError(
            f"{name} is an older copy: entries that followed it are missing, and what they spent",
            "Put the newest copy in its place. Without it nobody knows what is left, and nothing more may be released.",
        )


def note_witness(hashes: Sequence[str]) -> None:
    """Note how far a ledger has come. Raises `LedgerError` where that cannot be written."""
    file = _witness_of(hashes)
    if file is None:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, f"{_WITNESS_FORMAT} {len(hashes)} {hashes[-1]}\n")
    except (OSError, SourceError):
        raise LedgerError(
            "what was spent stands in the ledger, and could not be noted apart from it",
            "Set XDG_STATE_HOME to a folder that can be written, and ask again: it is the same release.",
        ) from None


def _witness_of(hashes: Sequence[str]) -> Path | None:
    return witness_folder() / hashes[0] if hashes else None
