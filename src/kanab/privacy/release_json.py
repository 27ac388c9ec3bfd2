"""A release as plain data and back, and the hash that chains it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import msgspec

from kanab.arguments import check_arguments
from kanab.atomicfile import read_text, write_whole
from kanab.errors import KanabError, PrivacyError, SourceError
from kanab.plan.file import plan_digest, plan_from_dict, plan_to_dict
from kanab.plan.model import Plan, settle_missing
from kanab.privacy.epsilon.split import check_levels, noise_of, stated_noise
from kanab.privacy.merging import LevelMap
from kanab.privacy.release import Batch, NoiseReceipt, Receipt, Release, refuse_own_rows
from kanab.tally.plain import read
from kanab.tally.tally import Tally

_Level = str | int | float | bool | None


class _ReleasePart(msgspec.Struct, forbid_unknown_fields=True):
    pass


class MapEntry(_ReleasePart):
    """How the levels of a covariate were merged: [new, [old, …]], and the scores of merged numbers."""

    covariate: str
    groups: list[tuple[_Level, list[_Level]]]
    scores: list[tuple[_Level, float]] = []
    cuts: list[float] | None = None
    rest: bool = False


class ReleaseEntry(_ReleasePart):
    """The whole file. The salt keeps whoever has the hash alone from trying out what was released."""

    format: Literal["kanab-release/1"]
    plan_digest: str
    plan: dict[str, Any]
    receipt: dict[str, Any]
    levels: dict[str, MapEntry]
    tables: dict[str, Any]
    previous: str | None
    hash: str
    salt: str = ""


_FIRST_FIELDS = frozenset(
    "k smallest_class classes effective_k homogeneous not_enumerated narrowest left_out deviations clamped missing "
    "excluded outside where cohorts".split()
)
"""The fields of the first receipts. Later ones are written where they differ from their defaults, so that a release of
before keeps its hash."""

_FIELDS = {"cohorts" if name == "batch" else name: name for name in Receipt.__dataclass_fields__ if name != "maps"}
"""The fields of a receipt by their keys in files; maps of levels stand beside it."""

_NOTHING_DONE = Receipt(0, 0, 0)


def release_to_dict(release: Release) -> dict[str, Any]:
    """Return a release as plain data. The same release gives the same bytes."""
    refuse_own_rows(release)
    entries = {}
    for name, levels in release.receipt.maps.items():
        groups = [(new, list(olds)) for new, olds in levels.groups]
        cuts = None if levels.cuts is None else list(levels.cuts)
        entries[name] = MapEntry(levels.covariate, groups, list(levels.scores.items()), cuts, levels.rest)
    entry = ReleaseEntry(
        "kanab-release/1",
        plan_digest(release.plan),
        plan_to_dict(release.plan),
        _receipt_to_dict(release.receipt),
        entries,
        {name: tally.to_dict() for name, tally in release.tables.items()},
        release.previous,
        "",
        release.salt,
    )
    plain: dict[str, Any] = msgspec.to_builtins(entry)
    if not release.salt:
        del plain["salt"]
    return plain | {"hash": hash_of(plain)}


def _receipt_to_dict(receipt: Receipt) -> dict[str, Any]:
    plain = {}
    for key, name in _FIELDS.items():
        value = getattr(receipt, name)
        if key in _FIRST_FIELDS or value != getattr(_NOTHING_DONE, name):
            plain[key] = asdict(value) if isinstance(value, (Batch, NoiseReceipt)) else value
    return plain


def hash_of(plain: dict[str, Any]) -> str:
    """Return the SHA-256 of a release's plain data, all but its own hash, in canonical JSON."""
    rest = {key: value for key, value in plain.items() if key != "hash"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def release_from_dict(data: Any) -> Release:
    """Read a release from plain data, checked again.

    Raises `SourceError` where it was changed, `PrivacyError` where a class is below k, or where it is internal.
    """
    refuse_own_rows(data)
    try:
        entry = msgspec.convert(data, ReleaseEntry)
        receipt = _receipt(entry.receipt, entry.levels)
    except msgspec.ValidationError as problem:
        fact, _, path = str(problem).partition(" - at ")
        if not isinstance(data, dict) or "format" not in data:
            fact = "this is not a release"
        raise SourceError(fact, "Give a file that kanab release wrote.", at=path.strip("`")) from None
    if hash_of(data) != entry.hash:
        raise SourceError("the release has been changed since it was made", "Take the original file.", at="$.hash")
    plan = plan_from_dict(entry.plan)
    settled = settle_missing(plan)
    tables = _tables(settled, entry.tables, receipt)
    if plan_digest(plan) != entry.plan_digest or plan.k != receipt.k or not tables:
        raise SourceError("the plan of this release has been changed", "Release it again.")
    return Release(settled, tables, receipt, previous=entry.previous, salt=entry.salt)


def _tables(plan: Plan, tables: Mapping[str, Any], receipt: Receipt) -> dict[str, Tally]:
    if receipt.noise is None:
        return {name: Tally.from_dict(table) for name, table in tables.items()}
    scales = stated_noise(plan, receipt.noise)
    parts = {name: read(table) for name, table in tables.items()}
    check_levels(plan, {name: table.factors for name, table in parts.items()}, receipt.maps)
    return {
        name: Tally(*table, noise_of(plan, name, scales, table.factors, receipt.maps)) for name, table in parts.items()
    }


def _receipt(plain: dict[str, Any], levels: dict[str, MapEntry]) -> Receipt:
    """Read a receipt and the maps beside it. Raises `msgspec.ValidationError` where it is none."""
    parts = (
        (plain, _FIELDS),
        (plain.get("cohorts"), Batch.__annotations__),
        (plain.get("noise"), NoiseReceipt.__annotations__),
    )
    for part, known in parts:
        if isinstance(part, dict) and not part.keys() <= known.keys():
            raise msgspec.ValidationError("Object contains an unknown field - at `$.receipt`")
    receipt = msgspec.convert({_FIELDS[key]: value for key, value in plain.items()}, Receipt)
    maps = {
        name: LevelMap(
            merged.covariate, tuple((new, tuple(olds)) for new, olds in merged.groups), dict(merged.scores),
            None if merged.cuts is None else tuple(merged.cuts), merged.rest,
        )
        for name, merged in levels.items()
    }  # fmt: skip
    return replace(receipt, maps=maps)


# ── files ────────────────────────────────────────────────────────────────────────────────────────


@check_arguments(skip=("release",))
def write_release(release: Release, path: str | PathLike[str]) -> None:
    """Write a release to a file, whole or not at all. Raises `PrivacyError` where it may not be written."""
    write_whole(path, release_text(release))


def release_text(release: Release) -> str:
    """Return the text of a release's file. Raises `PrivacyError` where bounds were taken from the data."""
    refuse_own_rows(release)
    if not isinstance(release, Release):
        raise PrivacyError("only a Release can be written", "Call release() on what count() returned.")
    if not release.bounds_declared:
        raise PrivacyError(
            "bounds were taken from the data, and a file would give them away",
            "Declare them: --bounds spend=0:500, or in the plan.",
        )
    if release.parts and release.receipt.noise is not None:
        raise PrivacyError(
            "a sum of releases with ε is not a release of its own", "Write each of them, and add them again."
        )
    return msgspec.json.format(msgspec.json.encode(release_to_dict(release)), indent=1).decode("utf-8") + "\n"


@check_arguments()
def read_release(path: str | PathLike[str]) -> Release:
    """Read a release from its file, checked again.

    Raises `SourceError` where the file cannot be read or was changed, `PrivacyError` where a class is below k.
    """
    name, no_json = Path(path).name, ("is not a JSON file", "Give a file that kanab release wrote.")
    text = read_text(path, otherwise=no_json)
    try:
        return release_from_dict(json.loads(text))
    except (json.JSONDecodeError, RecursionError):
        raise SourceError(f"{name} {no_json[0]}", no_json[1]) from None
    except KanabError as problem:
        place = f"{name} {problem.at}".strip()
        raise type(problem)(problem.fact, problem.remedy, at=place) from None
