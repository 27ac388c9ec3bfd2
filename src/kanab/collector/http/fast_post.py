"""Posts of messages as browsers send them, recognised by their bytes at one glance.

Only what is beyond doubt is recognised: HTTP/1.1 to the one address, every line of the head well formed, a
single Content-Length, nothing that changes how the body or the connection is meant. Everything else is left
to a real HTTP parser, so this one can only be too strict.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kanab.collector.protocol.post import MOST_BYTES

FIRST_LINE = b"POST /v1/t HTTP/1.1\r\n"

MOST_HEAD = 16_384
"""Bytes of address and headers: no browser sends more."""

_HEAD = re.compile(rb"POST /v1/t HTTP/1\.1(?:\r\n[-!#$%&'*+.^_`|~0-9A-Za-z]+:[^\r]*)+\r\n\r\n")
_IN_WORDS = bytes([9, *range(32, 127), *range(128, 256)])
_TOLD = re.compile(
    rb"\r\n((?i:content-length|content-type|origin|connection|expect|upgrade|transfer-encoding)):[ \t]*([^\r]*)"
)
_DIGITS = 5


class PlainHead(NamedTuple):
    """What is read of a head: what kind of body follows and from which page; where it begins, where it ends."""

    kind: str | None
    origin: bytes | None
    start: int
    end: int


def plain_head(data: bytes) -> PlainHead | None:
    r"""The head of a plain post at the beginning of what came; None if it is not whole, or unusual in any way.

    >>> plain_head(b"POST /v1/t HTTP/1.1\r\nContent-Length: 4\r\nContent-Type: text/plain\r\n\r\nwhat")
    PlainHead(kind='text/plain', origin=None, start=68, end=72)
    >>> plain_head(b"POST /v1/t HTTP/1.1\r\nContent-Length : 4\r\n\r\nwhat")
    """
    found = _HEAD.match(data)
    if found is None or (start := found.end()) > MOST_HEAD:
        return None
    head = data[: start - 2]
    if head.translate(None, _IN_WORDS) != b"\r\n" * head.count(b"\n"):
        return None  # a control character, or half of a line's end
    told: dict[bytes, bytes] = {}
    for written, value in _TOLD.findall(head):
        name = written.lower()
        if name in told:
            return None
        told[name] = value
    length = told.pop(b"content-length", b"")
    kind, origin = told.pop(b"content-type", None), told.pop(b"origin", None)
    if told and (told.pop(b"connection", b"keep-alive").lower() != b"keep-alive" or told):
        return None
    if not length.isdigit() or len(length) > _DIGITS or (size := int(length)) > MOST_BYTES:
        return None
    return PlainHead(None if kind is None else kind.decode("latin-1"), origin, start, start + size)
