"""Frozen cases on disk, and how what was frozen is compared with what is found.

A case is a line of JSON in a compressed file: its id, the call, what was given, and what was answered. The same cases
give the same bytes.
"""

import gzip
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "data"
KINDS = ("readouts", "grid", "rows", "files", "plans", "others", "collectors")
"""The files of cases. What was answered in words is in others of the same names."""
RELATIVE = 1e-9
"""Numbers may differ by this share: kernels of BLAS add in other orders on other machines (7e-13 is the most seen)."""

Data = dict[str, Any]


def plain(value: Any) -> Any:
    """Return a value as JSON gives it back: tuples are lists, and keys are texts."""
    return json.loads(json.dumps(value))


def read_lines(name: str) -> list[Data]:
    """Read the lines of a file of frozen data."""
    text = gzip.decompress((FOLDER / f"{name}.jsonl.gz").read_bytes()).decode()
    return [json.loads(line) for line in text.split("\n") if line]


def write_lines(name: str, lines: Iterable[Data]) -> None:
    """Write a file of frozen data, without its name or the time in it."""
    text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.jsonl.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def differences(expected: Any, found: Any, path: str = "", *, keys_in_order: bool = True) -> Iterator[str]:
    """Yield where two values differ: numbers by more than their last digits, and everything else at all."""
    if isinstance(expected, dict) and isinstance(found, dict):
        yield from (f"{path}.{key} is gone" for key in expected if key not in found)
        yield from (f"{path}.{key} is new" for key in found if key not in expected)
        shared = [key for key in expected if key in found]
        if keys_in_order and shared != [key for key in found if key in expected]:
            yield f"{path} has its keys in another order: {', '.join(found)}"
        for key in shared:
            yield from differences(expected[key], found[key], f"{path}.{key}", keys_in_order=keys_in_order)
    elif isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            yield f"{path} has {len(found)} entries, and had {len(expected)}"
        for place, (before, now) in enumerate(zip(expected, found, strict=False)):
            yield from differences(before, now, f"{path}[{place}]", keys_in_order=keys_in_order)
    elif not _alike(expected, found):
        yield f"{path} is {found!r}, and was {expected!r}"


def _alike(expected: Any, found: Any) -> bool:
    if type(expected) is not type(found):  # 1 is neither 1.0 nor true
        return False
    if isinstance(expected, float):
        return math.isclose(expected, found, rel_tol=RELATIVE)
    return bool(expected == found)
