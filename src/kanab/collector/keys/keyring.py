"""Keys of open cohorts: a chain that moves forward only.

Period n has a state. Two things are derived from it, one way: the key of that period's records, and
the state of period n + 1. Whoever has forgotten the states through n can make the keys of later
periods and of no earlier one. Sealing a cohort therefore ends with forgetting its state.

    state 0 ──next──► state 1 ──next──► state 2 ──next──► …
       │                 │                 │
    records           records           records         and once, from state 0: the key of nonce hashes,
       ▼                 ▼                 ▼            which decrypts nothing
     key 0             key 1             key 2

The key file holds the state twice, in lines of equal length. Moving on overwrites them in place, one after the other,
each followed by a sync: a crash leaves one line whole, and in the end the old bytes are gone.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from kanab.errors import MissingExtraError, StoreError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

LAST_PERIOD = 200_000
"""The last period that has a key: days for five hundred years."""

_SECRET = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True, order=True)
class KeyChain:
    """The state of one period, with it the keys of this and all later ones, and the key of nonce hashes."""

    period: int
    state: bytes = field(repr=False)
    nonce_key: bytes = field(repr=False)

    @classmethod
    def new(cls) -> KeyChain:
        """Return a chain that begins with random bytes."""
        return cls._first(os.urandom(32))

    @classmethod
    def from_secret(cls, text: str) -> KeyChain:
        """Return the chain that 64 hexadecimal digits begin: the same on every machine that has them."""
        if not _SECRET.fullmatch(text.strip()):
            raise StoreError("the secret is not 64 hexadecimal digits", "Make one with: openssl rand -hex 32")
        return cls._first(bytes.fromhex(text.strip()))

    @classmethod
    def _first(cls, state: bytes) -> KeyChain:
        return cls(0, state, _derived(state, b"nonces"))

    @property
    def fingerprint(self) -> bytes:
        """Which chain this is, without a way back to any key; it stays when the chain moves."""
        return hmac.digest(self.nonce_key, b"kanab/1 store", "sha256")[:16]

    def key(self, period: int) -> bytes:
        """Return the key of a period's records; raises `StoreError` if it has been erased."""
        return _derived(self.forward(period).state, b"records")

    def forward(self, period: int) -> KeyChain:
        """Return the chain as it is in a later period; raises `StoreError` for an earlier one."""
        if period < self.period:
            raise StoreError(
                "the key of a cohort has been erased, as it is after a seal",
                "Nothing reads its records again; sealed batches need no key.",
            )
        if period > LAST_PERIOD:
            raise StoreError("a cohort lies too far in the future", "Check the clock of this machine.")
        state = self.state
        for _ in range(period - self.period):
            state = _derived(state, b"next")
        return KeyChain(period, state, self.nonce_key)


class Keyring:
    """The chain in use, with the keys derived so far, and the file from which keys are erased too.

    Safe to use from several threads. Without a file (a secret from the environment) forgetting
    ends with the process: whoever still has the secret can make every key again.
    """

    def __init__(self, chain: KeyChain, path: str | PathLike[str] | None = None) -> None:
        self._chain = chain
        self.path = None if path is None else Path(path)
        self._keys: dict[int, bytes] = {}
        self._nonces = hashlib.blake2b(key=chain.nonce_key, digest_size=16)
        self._lock = threading.Lock()

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Keyring:
        """Read the chain of a key file; raises `StoreError` where there is none."""
        return cls(read_key_file(Path(path)), path)

    @classmethod
    def create(cls, path: str | PathLike[str]) -> Keyring:
        """Write a new chain into a new file, or read the file that is already there."""
        create_key_file(Path(path), KeyChain.new())
        return cls.from_file(path)

    @property
    def erasable(self) -> bool:
        """Whether a seal destroys its key: not where the secret comes from the environment."""
        return self.path is not None

    @property
    def period(self) -> int:
        """The first period whose key can still be made."""
        return self._chain.period

    @property
    def fingerprint(self) -> bytes:
        """Which chain this is."""
        return self._chain.fingerprint

    def nonce_hash(self, nonce: bytes) -> bytes:
        """Return what a store remembers of a nonce: 16 bytes that tell nothing without the key."""
        digest = self._nonces.copy()
        digest.update(nonce)
        return digest.digest()

    def key(self, period: int) -> bytes:
        """Return the key of a period's records; raises `StoreError` if it has been erased."""
        with self._lock:
            key = self._keys.get(period)
            if key is None:
                key = self._keys[period] = self._chain.key(period)
            return key

    def forget(self, through: int) -> None:
        """Erase what the keys of all periods through this one could be made from; also from the file."""
        with self._lock:
            if through < self._chain.period:
                return
            chain = self._chain.forward(through + 1)
            if self.path is not None:
                move_key_file(self.path, chain)
            self._chain = chain
            self._keys = {period: key for period, key in self._keys.items() if period > through}


def cipher_of(secret: bytes, salt: bytes = b"", *, label: bytes, what: str, extra: str) -> AESGCM:
    """Return AES-256-GCM under a key that label and salt make out of a secret; ``what`` needs an ``extra``."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - only where it is used
    except ImportError:
        raise MissingExtraError(what, extra) from None
    return AESGCM(hmac.digest(secret, b"kanab/1 " + label + salt, "sha256"))


def _derived(state: bytes, purpose: bytes) -> bytes:
    """Derive 32 bytes by one step of HKDF: states are uniform already, so nothing has to be extracted first."""
    try:
        from cryptography.hazmat.primitives import hashes  # noqa: PLC0415 - only collectors need it
        from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("keeping open cohorts", "server") from None
    return HKDFExpand(hashes.SHA256(), 32, b"kanab/1 " + purpose).derive(state)


_LINE = re.compile(rb"kanab-key/1 (\d{12}) ([0-9a-f]{64}) ([0-9a-f]{64}) ([0-9a-f]{16})\n")
_WIDTH = len("kanab-key/1") + 1 + 12 + 1 + 64 + 1 + 64 + 1 + 16 + 1
_KEEP_A_COPY = "Keep a copy apart from the backups of the store; without it open cohorts are lost, sealed ones are not."


def key_beside(data: Path) -> Path:
    """Return where the key of a data directory is kept by default: beside it, so that copying one leaves the other."""
    return data.with_name(f"{data.name}.key")


def check_apart(path: Path, data: Path) -> None:
    """Check that a key file lies outside the data directory, or whoever copies that would have both."""
    if path.resolve().is_relative_to(data.resolve()):
        raise StoreError("the key file lies in the data directory", "Keep it beside or elsewhere (--key FILE).")


def read_key_file(path: Path) -> KeyChain:
    """Read the newest whole line, and overwrite an older one that a crash left beside it."""
    with _open(path) as handle:
        newest = _newest(handle, path)
        _write(handle, newest)
        return newest


def peek_key_file(path: Path) -> KeyChain:
    """Read the newest whole line and write nothing; raises `StoreError` as `read_key_file` does."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError as problem:
        raise StoreError(f"the key file {path.name!r} cannot be read: {problem.strerror}", _KEEP_A_COPY) from None
    try:
        _check_private(handle, path)
        return _newest(handle, path)
    finally:
        os.close(handle)


def create_key_file(path: Path, state: KeyChain) -> None:
    """Write a new file with mode 0600; one that is already there stays as it is."""
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
        try:
            _write(handle, state)
        finally:
            os.close(handle)
        with suppress(FileExistsError):
            os.link(temporary, path)  # unlike a rename it never replaces a file
        _sync_folder(path.parent)
    except OSError as problem:
        raise StoreError(f"{path.name} cannot be written: {problem.strerror}", "Check the folder.") from None
    finally:
        if temporary:
            with suppress(OSError):
                Path(temporary).unlink()


def move_key_file(path: Path, state: KeyChain) -> None:
    """Overwrite the file by a later state, unless another process wrote an even later one."""
    with _open(path) as handle:
        newest = _newest(handle, path)
        if newest.nonce_key != state.nonce_key:
            raise StoreError(f"{path.name} now holds the key of another store", "Put the right key file back.")
        _write(handle, max(newest, state))


def _newest(handle: int, path: Path) -> KeyChain:
    states = [state for _, state in _read_lines(handle) if state is not None]
    if not states:
        raise StoreError(f"{path.name} is not a key file, or is damaged", _KEEP_A_COPY)
    return max(states)


def _read_lines(handle: int) -> list[tuple[int, KeyChain | None]]:
    """Return the offsets of both lines, with the state that each holds."""
    return [(offset, _parse(os.pread(handle, _WIDTH, offset))) for offset in (0, _WIDTH)]


def _write(handle: int, state: KeyChain) -> None:
    """Write a state into both lines, first where nothing or the older one is."""
    text = f"kanab-key/1 {state.period:012d} {state.state.hex()} {state.nonce_key.hex()}"
    line = f"{text} {_checksum(text.encode())}\n".encode()
    for offset, before in sorted(_read_lines(handle), key=lambda at: (at[1] is not None, at[1] or (), at[0])):
        if before != state:
            os.pwrite(handle, line, offset)
            os.fsync(handle)


def _parse(line: bytes) -> KeyChain | None:
    match = _LINE.fullmatch(line)
    if match is None or _checksum(line[:-18]) != match[4].decode():
        return None
    return KeyChain(int(match[1]), bytes.fromhex(match[2].decode()), bytes.fromhex(match[3].decode()))


def _checksum(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]


@contextmanager
def _open(path: Path) -> Iterator[int]:
    """Open the file, locked against other processes, if nobody else may read it."""
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        raise StoreError(f"there is no key file {path.name!r}", _KEEP_A_COPY) from None
    except OSError as problem:
        raise StoreError(
            f"{path.name} cannot be opened for writing: {problem.strerror}", "A seal has to erase keys from it."
        ) from None
    try:
        _check_private(handle, path)
        with suppress(ImportError):
            import fcntl  # noqa: PLC0415 - not on Windows, where one collector has the file

            fcntl.flock(handle, fcntl.LOCK_EX)  # goes with the handle, also when the process is killed
        yield handle
    except OSError as problem:
        raise StoreError(f"{path.name} cannot be written: {problem.strerror}", "Check the disk.") from None
    finally:
        os.close(handle)


def _check_private(handle: int, path: Path) -> None:
    if os.name == "posix" and stat.S_IMODE(os.fstat(handle).st_mode) & 0o077:
        raise StoreError(f"others may read the key file {path.name!r}", f"Run: chmod 600 {path.name}")


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
