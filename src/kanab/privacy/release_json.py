"""A release as plain data and back, and the hash that chains it."""

from __future__ import annotations

import hashlib
import json
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
    """How the levels of a covariate were merged: [new, [old, …]], and the scores of merged numbers.

    Levels too rare to be named: numbers go by ``cuts``, texts to "other" (``rest``).
    """

    covariate: str
    groups: list[tuple[_Level, list[_Level]]]
    scores: list[tuple[_Level, float]] = []
    cuts: list[float] | None = None
    rest: bool = False


class BatchEntry(_ReleasePart):
    """The cohorts of a batch."""

    every: str
    after: str | None
    through: str
    column: str


class NoiseEntry(_ReleasePart):
    """The promise of a release with noise, its account, and the standard deviation of the noise."""

    epsilon: float
    delta: float
    total: float
    spent: float
    left: float
    scales: dict[str, dict[str, float]]
    mechanism: str


class ReceiptEntry(_ReleasePart):
    """The receipt of the gate."""

    k: int
    smallest_class: int
    classes: int
    effective_k: int | None = None
    effective_k_within: Literal["", "experiment"] = ""
    homogeneous: int = 0
    not_enumerated: int = 0
    narrowest: float | None = None
    left_out: dict[str, str] = {}
    deviations: list[str] = []
    clamped: dict[str, int] = {}
    missing: dict[str, int] = {}
    excluded: int = 0
    outside: int = 0
    where: str = ""
    choices: dict[str, str] | None = None
    ledger: str = ""
    store: str = ""
    people: dict[str, dict[str, int]] = {}
    shapes: dict[str, dict[str, tuple[float, float]]] = {}
    cohorts: BatchEntry | None = None
    noise: NoiseEntry | None = None
    checked: tuple[str, ...] = ()
    repeats: tuple[str, ...] = ()


class ReleaseEntry(_ReleasePart):
    """The whole file. The salt keeps whoever has the hash alone from trying out what was released."""

    format: Literal["kanab-release/1"]
    plan_digest: str
    plan: dict[str, Any]
    receipt: ReceiptEntry
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


def release_to_dict(release: Release) -> dict[str, Any]:
    """Return a release as plain data. The same release gives the same bytes."""
    refuse_own_rows(release)
    batch = release.receipt.batch
    cohorts = None if batch is None else BatchEntry(**_fields(batch, BatchEntry))
    noise = release.receipt.noise
    stated = None if noise is None else NoiseEntry(**_fields(noise, NoiseEntry))
    entries = {}
    for name, levels in release.receipt.maps.items():
        groups = [(new, list(olds)) for new, olds in levels.groups]
        cuts = None if levels.cuts is None else list(levels.cuts)
        entries[name] = MapEntry(levels.covariate, groups, list(levels.scores.items()), cuts, levels.rest)
    entry = ReleaseEntry(
        "kanab-release/1",
        plan_digest(release.plan),
        plan_to_dict(release.plan),
        ReceiptEntry(**_fields(release.receipt, ReceiptEntry), cohorts=cohorts, noise=stated),
        entries,
        {name: tally.to_dict() for name, tally in release.tables.items()},
        release.previous,
        "",
        release.salt,
    )
    plain: dict[str, Any] = msgspec.to_builtins(entry)
    defaults = msgspec.to_builtins(ReceiptEntry(0, 0, 0))
    fields = plain["receipt"].items()
    plain["receipt"] = {name: value for name, value in fields if name in _FIRST_FIELDS or value != defaults[name]}
    if not release.salt:
        del plain["salt"]
    return plain | {"hash": hash_of(plain)}


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
    except msgspec.ValidationError as problem:
        fact, _, path = str(problem).partition(" - at ")
        if not isinstance(data, dict) or "format" not in data:
            fact = "this is not a release"
        raise SourceError(fact, "Give a file that kanab release wrote.", at=path.strip("`")) from None
    if hash_of(data) != entry.hash:
        raise SourceError("the release has been changed since it was made", "Take the original file.", at="$.hash")
    plan = plan_from_dict(entry.plan)
    settled = settle_missing(plan)
    tables = _tables(settled, entry)
    if plan_digest(plan) != entry.plan_digest or plan.k != entry.receipt.k or not tables:
        raise SourceError("the plan of this release has been changed", "Release it again.")
    receipt = _receipt(entry.receipt, entry.levels)
    return Release(settled, tables, receipt, previous=entry.previous, salt=entry.salt)


def _tables(plan: Plan, entry: ReleaseEntry) -> dict[str, Tally]:
    if entry.receipt.noise is None:
        return {name: Tally.from_dict(table) for name, table in entry.tables.items()}
    scales = stated_noise(plan, NoiseReceipt(**_fields(entry.receipt.noise, NoiseEntry)))
    maps = _receipt(entry.receipt, entry.levels).maps
    parts = {name: read(table) for name, table in entry.tables.items()}
    check_levels(plan, {name: table.factors for name, table in parts.items()}, maps)
    return {name: Tally(*table, noise_of(plan, name, scales, table.factors, maps)) for name, table in parts.items()}


def _receipt(entry: ReceiptEntry, levels: dict[str, MapEntry]) -> Receipt:
    maps = {
        name: LevelMap(
            merged.covariate, tuple((new, tuple(olds)) for new, olds in merged.groups), dict(merged.scores),
            None if merged.cuts is None else tuple(merged.cuts), merged.rest,
        )
        for name, merged in levels.items()
    }  # fmt: skip
    batch = None if entry.cohorts is None else Batch(**_fields(entry.cohorts, BatchEntry))
    noise = None if entry.noise is None else NoiseReceipt(**_fields(entry.noise, NoiseEntry))
    fields = _fields(entry, ReceiptEntry) | {"deviations": tuple(entry.deviations)}
    return Receipt(**fields, maps=maps, batch=batch, noise=noise)


def _fields(value: object, entry: type[_ReleasePart]) -> dict[str, Any]:
    """Return the values that an entry and what it is written from have under the same names."""
    return {name: getattr(value, name) for name in entry.__struct_fields__ if name not in ("cohorts", "noise")}


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
