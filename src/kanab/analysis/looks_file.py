"""The looks file: how many people were counted at each look at an experiment, and by which design."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec

from kanab.atomicfile import read_text, write_whole
from kanab.errors import AnalysisError, SourceError, listed

FORMAT = "kanab-looks/1"

Design = dict[str, Any]


class RecordedLook(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One look: everybody counted up to it, the day (UTC), and whether it ended the design."""

    people: int
    on: str
    last: bool = False


class RecordedLooks(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The looks at one experiment, in their order, and the design that they belong to."""

    design: Design
    looks: tuple[RecordedLook, ...] = ()

    @property
    def ended(self) -> bool:
        """Whether its last look has been."""
        planned = self.design["looks"]
        return bool(self.looks) and (self.looks[-1].last or (planned is not None and len(self.looks) >= planned))


class _File(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    format: str
    experiments: dict[str, RecordedLooks]


def read_looks(path: str | PathLike[str], experiment: str, design: Design) -> RecordedLooks:
    """Return the looks at an experiment so far, none where there is no file yet.

    Raises `SourceError` for another file, `AnalysisError` where its looks belong to another design.
    """
    recorded = _experiments(path).get(experiment, RecordedLooks(design))
    changed = [name for name in recorded.design | design if recorded.design.get(name) != design.get(name)]
    if changed:
        before = listed(f"{name} was {_spoken(recorded.design.get(name))}" for name in changed)
        raise AnalysisError(
            f"the looks at {experiment} in {Path(path).name} belong to another design: {before}",
            "Read it as it was planned; another design needs other people and a looks file of its own.",
        )
    return recorded


def recorded_design(path: str | PathLike[str], experiment: str) -> Design:
    """Return the design that an experiment's looks belong to; empty where there was none yet."""
    recorded = _experiments(path).get(experiment)
    return {} if recorded is None else recorded.design


def record_look(
    path: str | PathLike[str], experiment: str, recorded: RecordedLooks, people: int, *, last: bool
) -> None:
    """Add a look to the file, whole or not at all; one with the same people as the last is the same look.

    Raises `SourceError` where the file cannot be written, or another look was added meanwhile.
    """
    if recorded.looks and recorded.looks[-1].people == people:
        before, on = recorded.looks[:-1], recorded.looks[-1].on
    else:
        before, on = recorded.looks, datetime.now(UTC).date().isoformat()
    experiments = _experiments(path)
    if experiments.get(experiment, recorded) != recorded:
        raise SourceError(f"another look at {experiment} was added to {Path(path).name} meanwhile", "Run it again.")
    looks = (*before, RecordedLook(people, on, last))
    experiments[experiment] = RecordedLooks(recorded.design, looks)
    text = msgspec.json.format(msgspec.json.encode(_File(FORMAT, experiments)), indent=2).decode()
    write_whole(path, f"{text}\n")


def _experiments(path: str | PathLike[str]) -> dict[str, RecordedLooks]:
    if not Path(path).exists():
        return {}
    otherwise = "is not a looks file", "Name the file that --looks-file wrote, or a new one."
    try:
        file = msgspec.json.decode(read_text(path, otherwise=otherwise), type=_File)
    except msgspec.MsgspecError:
        file = None
    if file is None or file.format != FORMAT or not all("looks" in own.design for own in file.experiments.values()):
        raise SourceError(f"{Path(path).name} {otherwise[0]}", otherwise[1])
    return file.experiments


def _spoken(value: Any) -> str:
    if isinstance(value, dict):  # what was clipped: the point, not the bound that the data gave
        return listed(f"{name}={point}" for name, (point, _) in value.items())
    if isinstance(value, list):
        return listed(map(str, value)) if value else "none"
    return "not given" if value is None else str(value)


def plain_design(**parts: Any) -> Design:
    """Return a design as the file holds it: tuples are lists, names are texts."""
    plain: Mapping[str, Any] = msgspec.json.decode(msgspec.json.encode(parts))
    return dict(plain)
