"""States in a cookie that only the server can read: AES-256-GCM, HttpOnly, Secure, SameSite, gone with the window.

A cookie is a version byte, 16 random bytes that make its own key out of one of the server's keys, 12 random bytes, and
the sealed text, padded so that its length tells little. Keys rotate: the first one seals, all of them open.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from kanab.client.client import Client, Person
from kanab.collector.keys.keyring import cipher_of
from kanab.errors import KanabError

VARIABLE = "KANAB_COOKIE_KEY"
"""The environment variable with the keys."""

MOST_COOKIE = 3800
"""Characters; browsers take about 4,000."""

_FORM = b"\x01"
_SALT, _NONCE, _TAG, _KEY = 16, 12, 16, 32
_HEAD = len(_FORM) + _SALT + _NONCE
_STEP = 128
_cipher = partial(cipher_of, label=b"cookie", what="a state in a cookie", extra="client")
_log = logging.getLogger("kanab.client")


def read_keys(text: str | None = None, *, file: str | Path | None = None) -> tuple[bytes, ...]:
    """Read keys of 64 hex digits, newest first, with spaces or lines between them.

    They come from a text, a file, or the variable KANAB_COOKIE_KEY; ``openssl rand -hex 32`` makes one.
    Raises `KanabError` where there is no key or one is malformed.

    >>> [len(key) for key in read_keys("00" * 32 + " " + "ff" * 32)]
    [32, 32]
    """
    if file is not None:
        try:
            text = Path(file).read_text("ascii")
        except (OSError, UnicodeDecodeError):
            raise KanabError("the file with the cookie's keys cannot be read", "Check its name and rights.") from None
    if text is None:
        text = os.environ.get(VARIABLE, "")
    try:
        keys = tuple(bytes.fromhex(word) for word in text.split())
    except ValueError:
        keys = ()
    if not keys or any(len(key) != _KEY for key in keys):
        raise KanabError("cookies need keys of 64 hex digits", f"Put one into {VARIABLE}: openssl rand -hex 32.")
    return keys


class Cookies:
    """Reads people from cookies, and writes them back.

    >>> from kanab.plan.model import ExperimentPlan, MetricPlan, Plan
    >>> plan = Plan((MetricPlan("bought", binary=True),), (ExperimentPlan("checkout", (("A", 1), ("B", 1))),))
    >>> from kanab.client.transport import Http
    >>> cookies = Cookies(Client(plan, Http("http://localhost:8000")), read_keys("00" * 32))
    >>> person = cookies.person(None)
    >>> arm = person.variant("checkout")
    >>> cookie = cookies.save(person)                 # response.set_cookie(**cookie), in every framework
    >>> cookie["key"], cookie["httponly"], cookie["secure"], cookie["samesite"], cookie["max_age"]
    ('kanab', True, True, 'Lax', 7776000)
    >>> cookies.person(cookie["value"]).variant("checkout") == arm
    True
    """

    def __init__(
        self,
        client: Client,
        keys: Sequence[bytes] | None = None,
        *,
        name: str = "kanab",
        path: str = "/",
        samesite: Literal["Lax", "Strict"] = "Lax",
    ) -> None:
        self.client, self.name = client, name
        self._keys = tuple(read_keys() if keys is None else keys)
        if not self._keys or any(len(key) != _KEY for key in self._keys):
            raise KanabError("cookies need keys of 32 bytes", "read_keys reads them from the environment or a file.")
        self._path, self._samesite = path, samesite
        _cipher(self._keys[0], b"")

    def person(self, value: str | None, *, id: str | None = None, opted_out: bool = False) -> Person:
        """Return the person with this cookie; a new one without it, or if it cannot be opened."""
        return self.client.person(self.open(value) if value else None, id=id, opted_out=opted_out)

    def save(self, person: Person) -> dict[str, Any] | None:
        """Return the arguments of the framework's ``response.set_cookie``; None if the cookie need not change."""
        state = person.save()
        if state == person.given:
            return None
        lasts = int(person.lasts)
        value = self.seal(state) if state and lasts > 0 else ""
        if len(value) > MOST_COOKIE:
            value = self.seal(person.brief())
        if len(value) > MOST_COOKIE:
            _log.warning("a state is too long for a cookie; hold it yourself, or plan fewer experiments at once")
            return None
        return {
            "key": self.name, "value": value, "max_age": lasts if value else 0, "path": self._path,
            "httponly": True, "secure": True, "samesite": self._samesite,
        }  # fmt: skip

    def seal(self, state: bytes) -> str:
        """Return a state as the text of a cookie."""
        salt, nonce = os.urandom(_SALT), os.urandom(_NONCE)
        text = len(state).to_bytes(4, "big") + state
        padded = text.ljust(-(-len(text) // _STEP) * _STEP, b"\0")
        sealed = _cipher(self._keys[0], salt).encrypt(nonce, padded, self.name.encode())
        return base64.urlsafe_b64encode(_FORM + salt + nonce + sealed).rstrip(b"=").decode()

    def open(self, value: str) -> bytes | None:
        """Return the state in a cookie; None if none of the keys opens it."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - only cookies need it

        try:
            data = base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        if data[:1] != _FORM or len(data) < _HEAD + _TAG:
            return None
        salt, nonce = data[1 : 1 + _SALT], data[1 + _SALT : _HEAD]
        for key in self._keys:
            try:
                text = _cipher(key, salt).decrypt(nonce, data[_HEAD:], self.name.encode())
            except InvalidTag:
                continue
            return text[4 : 4 + int.from_bytes(text[:4], "big")]
        return None
