"""Things that must not be found, in every way in which a program might have written them, and the search."""

import base64
import hashlib
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np
from tests.collector.collector_process import every_file

SHORTEST = 5
"""Fewer bytes would be found by chance in ciphertext."""

_STEP = 1 << 22

HASHES = ("md5", "sha1", "sha256", "sha512", "blake2b")


def text_forms(text: str) -> dict[str, bytes]:
    """How a text may have been written: encodings, and what common hashes make of it."""
    raw = text.encode()
    found = {
        "utf-8": raw,
        "utf-16-le": text.encode("utf-16-le"),
        "utf-16-be": text.encode("utf-16-be"),
        "url": quote(text, safe="").encode(),
        "every byte percent-encoded": "".join(f"%{byte:02X}" for byte in raw).encode(),
    }
    return found | bytes_forms(raw) | _hash_forms(raw)


def bytes_forms(raw: bytes) -> dict[str, bytes]:
    """How bytes may have been written."""
    found = {"raw": raw, "hex": raw.hex().encode(), "HEX": raw.hex().upper().encode()}
    for pad in range(3):
        whole = base64.b64encode(bytes(pad) + raw)
        found[f"base64 +{pad}"] = piece = whole[(0, 2, 3)[pad] : (pad + len(raw)) * 8 // 6]
        found[f"base64url +{pad}"] = piece.translate(bytes.maketrans(b"+/", b"-_"))
    return found


def _hash_forms(raw: bytes) -> dict[str, bytes]:
    found = {}
    for name in HASHES:
        digest = hashlib.new(name, raw).digest()
        found |= {name: digest, f"{name} hex": digest.hex().encode(), f"{name} base64": base64.b64encode(digest)[:-4]}
    return found


def number_forms(steps: int, per_unit: int) -> dict[str, bytes]:
    """How a number may have been written: as decimal text, as a float, as fixed point."""
    value = steps / per_unit
    found = {f"decimal, {how}": form for how, form in text_forms(f"{value:.{len(str(per_unit)) - 1}f}").items()}
    found |= {f"fixed point, {how}": form for how, form in text_forms(str(steps)).items()}
    found |= {"float64 LE": struct.pack("<d", value), "float64 BE": struct.pack(">d", value), "varint": _varint(steps)}
    length = (steps.bit_length() + 7) // 8  # wider ones hold these bytes between zeros
    return found | {"integer LE": steps.to_bytes(length, "little"), "integer BE": steps.to_bytes(length, "big")}


def _varint(steps: int) -> bytes:
    found = bytearray()
    while steps > 127:
        found.append(steps & 127 | 128)
        steps >>= 7
    return bytes([*found, steps])


def address_forms(address: str) -> dict[str, bytes]:
    """How an IPv4 address may have been written; four bytes alone would be found by chance."""
    packed = bytes(map(int, address.split(".")))
    return text_forms(address) | {"mapped": b"\xff\xff" + packed, "hex": packed.hex().encode()}


class Needles:
    """Everything that must not be found, searched for at once."""

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}

    def __len__(self) -> int:
        return len(self._names)

    def add(self, what: str, forms: dict[str, bytes]) -> None:
        for how, form in forms.items():
            if len(form) >= SHORTEST:
                self._names.setdefault(form, f"{what} ({how})")

    def names(self) -> set[str]:
        return set(self._names.values())

    def found_in(self, *every: bytes) -> list[set[str]]:
        """What is found in each, as it is and inside everything that can be decompressed."""
        search = _Search(list(self._names))
        return [
            {self._names[form] for piece in (data, *_inflated(data)) for form in search.hits(piece)} for data in every
        ]


class _Search:
    """A table of first bytes leaves few places to look at, however many forms there are."""

    def __init__(self, forms: list[bytes]) -> None:
        self._forms: dict[int, list[bytes]] = {}
        for form in forms:
            self._forms.setdefault(int.from_bytes(form[:SHORTEST], "big"), []).append(form)
        self._prefixes = np.array(sorted(self._forms), dtype=np.uint64)
        self._starts = np.zeros(1 << 24, dtype=bool)
        self._starts[(self._prefixes >> np.uint64(16)).astype(np.int64)] = True

    def hits(self, data: bytes) -> Iterator[bytes]:
        for begin in range(0, len(data), _STEP):
            window = np.frombuffer(data[begin : begin + _STEP + SHORTEST - 1] + bytes(SHORTEST), dtype=np.uint8)
            wide = window.astype(np.uint32)
            triples = wide[:-4] << 16 | wide[1:-3] << 8 | wide[2:-2]
            likely = np.flatnonzero(self._starts[triples])
            keys = triples[likely].astype(np.uint64) << np.uint64(16) | (wide[likely + 3] << 8 | wide[likely + 4])
            sure = np.isin(keys, self._prefixes)
            for place, key in zip(likely[sure].tolist(), keys[sure].tolist(), strict=True):
                yield from (form for form in self._forms[key] if data.startswith(form, begin + place))


def _inflated(data: bytes) -> Iterator[bytes]:
    view = memoryview(data)
    for mark in (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda", b"\x1f\x8b\x08"):
        at = data.find(mark)
        while at >= 0:
            try:
                piece = zlib.decompressobj(47).decompress(view[at : at + (1 << 20)], 1 << 22)
            except zlib.error:
                piece = b""
            if len(piece) >= SHORTEST:
                yield piece
            at = data.find(mark, at + 1)


def scan(root: Path, needles: Needles, pid: int | None = None) -> dict[str, set[str]]:
    """What is found in every file under a folder, in what a process holds open, and in names of files."""
    files = {str(path.relative_to(root)): data for path, data in every_file(root).items()}
    names = "\n".join(str(path) for path in root.rglob("*")).encode()
    held = written_files(pid) if pid is not None else {}
    every = files | {"names of files": names} | {f"held open: {name}": data for name, data in held.items()}
    found = needles.found_in(*every.values())
    return {name: hits for name, hits in zip(every, found, strict=True) if hits}


def written_files(pid: int) -> dict[str, bytes]:
    """The regular files that a process may write to, deleted ones too, and what is in them."""
    found = {}
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            name = os.readlink(f"/proc/{pid}/fd/{number}")
            flags = int(Path(f"/proc/{pid}/fdinfo/{number}").read_text().split("flags:")[1].split()[0], 8)
            handle = Path(f"/proc/{pid}/fd/{number}")
            if handle.is_file() and flags & 3:
                found[name] = handle.read_bytes()
        except OSError:
            continue
    return found
