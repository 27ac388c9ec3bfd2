"""A release as one JSON file that a person can read: what leaves the building."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from kanab.errors import KanabError, PrivacyError, SourceError
from kanab.planfile import plan_digest, plan_from_dict, plan_to_dict
from kanab.privacy.gate import Receipt, Release
from kanab.privacy.levels import LevelMap
from kanab.tally import Tally

FORMAT = "kanab-release/1"
_Level = str | int | float | bool | None


class _Strict(msgspec.Struct, forbid_unknown_fields=True):
    pass


class MapEntry(_Strict):
    """Where the levels of a covariate went: [new, [old, …]], and the scores of merged numbers."""

    covariate: str
    groups: list[tuple[_Level, list[_Level]]]
    scores: list[tuple[_Level, float]] = []


class ReceiptEntry(_Strict):
    """The receipt of the gate."""

    k: int
    smallest_class: int
    classes: int
    left_out: dict[str, str] = {}
    deviations: list[str] = []
    clamped: dict[str, int] = {}
    missing: dict[str, int] = {}
    excluded: int = 0
    outside: int = 0
    where: str = ""


class ReleaseEntry(_Strict):
    """The whole file."""

    format: Literal["kanab-release/1"]
    plan_digest: str
    plan: dict[str, Any]
    receipt: ReceiptEntry
    levels: dict[str, MapEntry]
    tables: dict[str, Any]


def write_release(release: Release, path: str | PathLike[str]) -> None:
    """Write the file under a temporary name, then rename it: it is there whole or not at all."""
    if not isinstance(release, Release):
        raise PrivacyError("only a Release can be written", "Call release() on what count() returned.")
    if not release.bounds_declared:
        raise PrivacyError(
            "bounds were taken from the data, and a file would give them away",
            "Declare them: --bounds spend=0:500, or in the plan.",
        )
    text = json.dumps(release_to_dict(release), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(path, text)


def write_whole(path: str | PathLike[str], text: str) -> None:
    """Replace a file by a text, or leave it as it was."""
    target = Path(path)
    handle, temporary = None, ""
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent or ".", prefix=f".{target.name}.", text=False)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(target)
    except OSError as problem:
        raise SourceError(f"{target.name} cannot be written: {problem.strerror}", "Check the folder.") from None
    finally:
        if temporary:
            with suppress(OSError):
                Path(temporary).unlink()


def release_to_dict(release: Release) -> dict[str, Any]:
    """A release as plain data. The same release gives the same bytes."""
    receipt = release.receipt
    entry = ReleaseEntry(
        "kanab-release/1",
        plan_digest(release.plan),
        plan_to_dict(release.plan),
        ReceiptEntry(
            receipt.k, receipt.smallest_class, receipt.classes, dict(receipt.left_out), list(receipt.deviations),
            dict(receipt.clamped), dict(receipt.missing), receipt.excluded, receipt.outside, receipt.where,
        ),
        {
            name: MapEntry(one.covariate, [(new, list(olds)) for new, olds in one.groups], list(one.scores.items()))
            for name, one in receipt.maps.items()
        },
        {name: tally.to_dict() for name, tally in release.tables.items()},
    )  # fmt: skip
    plain: dict[str, Any] = msgspec.to_builtins(entry)
    return plain


def read_release(path: str | PathLike[str]) -> Release:
    """A release from its file, checked again: a class below k does not come in either."""
    file = Path(path)
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SourceError(f"there is no file {file.name!r}", "Check the path.") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise SourceError(f"{file.name} is not a JSON file", "Give a file that kanab release wrote.") from None
    except OSError as problem:
        raise SourceError(f"{file.name} cannot be read: {problem.strerror}", "Check the path.") from None
    try:
        return release_from_dict(data)
    except KanabError as problem:
        place = f"{file.name} {problem.at}".strip()
        raise type(problem)(problem.fact, problem.remedy, at=place) from None


def release_from_dict(data: Any) -> Release:
    """A release from plain data."""
    try:
        entry = msgspec.convert(data, ReleaseEntry)
    except msgspec.ValidationError as problem:
        fact, _, path = str(problem).partition(" - at ")
        known = isinstance(data, dict) and "format" in data
        fact = fact if known else "this is not a release"
        raise SourceError(fact, "Give a file that kanab release wrote.", at=path.strip("`")) from None
    plan = plan_from_dict(entry.plan)
    tables = {name: Tally.from_dict(table) for name, table in entry.tables.items()}
    one = entry.receipt
    if plan_digest(plan) != entry.plan_digest or plan.k != one.k or not tables:
        raise SourceError("the plan of this release has been changed", "Release it again.")
    for name, tally in tables.items():
        if np.any((tally.people > 0) & (tally.people < one.k)):
            raise PrivacyError(f"{name} holds a class with fewer than k = {one.k} people", "Do not use this file.")
    maps = {
        name: LevelMap(entry_.covariate, tuple((new, tuple(olds)) for new, olds in entry_.groups), dict(entry_.scores))
        for name, entry_ in entry.levels.items()
    }
    receipt = Receipt(
        one.k, one.smallest_class, one.classes, maps, one.left_out, tuple(one.deviations),
        one.clamped, one.missing, one.excluded, one.outside, one.where,
    )  # fmt: skip
    return Release(plan, tables, receipt)
