"""Keys of open cohorts: a chain that moves forward only.

Period n has a state. Two things are derived from it, one way: the key of that period's records, and
the state of period n + 1. Whoever has forgotten the states through n can make the keys of later
periods and of no earlier one. Sealing a cohort therefore ends with forgetting its state.

    state 0 ──next──► state 1 ──next──► state 2 ──next──► …
       │                 │                 │
    records           records           records         and once, from state 0: the key of nonce hashes,
       ▼                 ▼                 ▼            which decrypts nothing
     key 0             key 1             key 2
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import threading
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from kanab.collector.keys.keyfile import KeyState, create_key_file, move_key_file, read_key_file
from kanab.errors import MissingExtraError, StoreError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

LAST_PERIOD = 200_000
"""The last period that has a key: days for five hundred years."""

_SECRET = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True)
class KeyChain:
    """The state of one period, and with it the keys of this and all later ones."""

    period: int
    state: bytes = field(repr=False)
    nonce_key: bytes = field(repr=False)

    @classmethod
    def new(cls) -> KeyChain:
        """Return a chain that begins with random bytes."""
        return cls._first(os.urandom(32))

    @classmethod
    def from_secret(cls, text: str) -> KeyChain:
        """Return the chain that 64 hexadecimal digits begin: the same on every machine that has them.

        Raises `StoreError` for any other text.
        """
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
        self._path = None if path is None else Path(path)
        self._keys: dict[int, bytes] = {}
        self._nonces = hashlib.blake2b(key=chain.nonce_key, digest_size=16)
        self._lock = threading.Lock()

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Keyring:
        """Read the chain of a key file; raises `StoreError` where there is none."""
        return cls(KeyChain(*read_key_file(Path(path))), path)

    @classmethod
    def create(cls, path: str | PathLike[str]) -> Keyring:
        """Write a new chain into a new file, or read the file that is already there."""
        fresh = KeyChain.new()
        create_key_file(Path(path), KeyState(fresh.period, fresh.state, fresh.nonce_key))
        return cls.from_file(path)

    @property
    def erasable(self) -> bool:
        """Whether a seal destroys its key: not where the secret comes from the environment."""
        return self._path is not None

    @property
    def path(self) -> Path | None:
        """The key file, if there is one."""
        return self._path

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
            if self._path is not None:
                move_key_file(self._path, KeyState(chain.period, chain.state, chain.nonce_key))
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
