"""Releases as JSON files that a person can read."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path

import msgspec

from kanab.arguments import check_arguments
from kanab.atomicfile import read_text, write_whole
from kanab.errors import KanabError, PrivacyError, SourceError
from kanab.privacy.release import Release, refuse_own_rows
from kanab.privacy.release_json import release_from_dict, release_to_dict


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
