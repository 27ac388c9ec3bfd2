"""Recognises the posts of messages that browsers and clients usually send, by their bytes.

Only what is beyond doubt is recognised: HTTP/1.1 to the one address, every line of the head well formed, a
single Content-Length, nothing that changes how the body or the connection is meant. Everything else is left
to a real HTTP parser, so this one can only be too strict.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kanab.collector.protocol.limits import MOST_HEAD_BYTES, MOST_POST_BYTES

FIRST_LINE = b"POST /v1/t HTTP/1.1\r\n"

_HEAD = re.compile(rb"POST /v1/t HTTP/1\.1(?:\r\n[-!#$%&'*+.^_`|~0-9A-Za-z]+:[\t -~\x80-\xff]*)+\r\n\r\n")
_MEANINGFUL = re.compile(
    rb"\r\n((?i:content-length|content-type|origin|connection|expect|upgrade|transfer-encoding)):[ \t]*([^\r]*)"
)
_DIGITS = len(str(MOST_POST_BYTES))


class PlainHead(NamedTuple):
    """The content type and the origin in a head, and where the body begins and ends."""

    kind: str | None
    origin: bytes | None
    start: int
    end: int


def plain_head(data: bytes) -> PlainHead | None:
    r"""Return the head of a plain post at the beginning of the data; None if it is not whole, or unusual in any way.

    >>> plain_head(b"POST /v1/t HTTP/1.1\r\nContent-Length: 4\r\nContent-Type: text/plain\r\n\r\nwhat")
    PlainHead(kind='text/plain', origin=None, start=68, end=72)
    >>> plain_head(b"POST /v1/t HTTP/1.1\r\nContent-Length : 4\r\n\r\nwhat")
    """
    match = _HEAD.match(data)
    if match is None or (start := match.end()) > MOST_HEAD_BYTES:
        return None
    headers: dict[bytes, bytes] = {}
    for written, value in _MEANINGFUL.findall(data, 0, start):
        name = written.lower()
        if name in headers:
            return None
        headers[name] = value
    length = headers.pop(b"content-length", b"")
    kind, origin = headers.pop(b"content-type", None), headers.pop(b"origin", None)
    if headers and (headers.pop(b"connection", b"keep-alive").lower() != b"keep-alive" or headers):
        return None
    if not length.isdigit() or len(length) > _DIGITS or (size := int(length)) > MOST_POST_BYTES:
        return None
    return PlainHead(None if kind is None else kind.decode("latin-1"), origin, start, start + size)
