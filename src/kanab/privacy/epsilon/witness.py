"""The witness: how far ledgers with ε had come, kept apart from them.

A copy of a ledger that is put back would forget what was spent since, and spend it again. So this machine notes, in the
user's folder for state, the number and the hash of a ledger's last entry; nothing about people. A ledger that has not
come as far, or went another way, is not the one that was last released into.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kanab.atomicfile import write_whole
from kanab.errors import LedgerError, SourceError

_FORMAT = "kanab-ledger-witness/1"


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
    file = _file(hashes)
    if file is None or not file.exists():
        return
    try:
        form, number, last = file.read_text(encoding="ascii").split()
        place = int(number)
    except (OSError, ValueError):
        form, place, last = "", 0, ""
    if form != _FORMAT or place < 1:
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
    file = _file(hashes)
    if file is None:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, f"{_FORMAT} {len(hashes)} {hashes[-1]}\n")
    except (OSError, SourceError):
        raise LedgerError(
            "what was spent stands in the ledger, and could not be noted apart from it",
            "Set XDG_STATE_HOME to a folder that can be written, and ask again: it is the same release.",
        ) from None


def _file(hashes: Sequence[str]) -> Path | None:
    return witness_folder() / hashes[0] if hashes else None
