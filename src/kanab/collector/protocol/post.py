"""Bytes of a post to its nonce and lines, strictly, in the text form or the JSON form; the plan is not asked.

    kanab/1 00079b70…                            the format and a nonce
    checkout/tier:B:3@2026-W46                   enrolled
    checkout/tier:B:3@2026-W46:minutes:0>4       a running total moved from 0 to 4

Errors name the line and never repeat what stands in it.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import msgspec

from kanab.collector.protocol.encoding import encode, spell
from kanab.collector.protocol.nonces import read_nonce
from kanab.collector.protocol.reasons import Reason, refused
from kanab.errors import MessageError
from kanab.tally.factor import as_level

MOST_BYTES = 16_384
MOST_LINES = 100

Value = float | tuple[float, float]
"""A running total as it was written; for a ratio, of both parts."""

Line = tuple[str, Value | None, Value | None]
"""Everything before the totals, the old total (None: there was none) and the new (None: an enrollment)."""

_FIRST = "kanab/1 "
_DIGITS = "0123456789.+-eE"
_PLAIN, _SHORT = re.compile(r"[0-9.+\->]*"), 99
"""Totals of so few characters, and without exponents, are finite if they are numbers at all."""


class Post(NamedTuple):
    """What one POST says: a nonce, and lines in the order in which they were written."""

    nonce: bytes
    lines: list[Line]
    json: bool = False

    def place(self, position: int) -> str:
        """Where a line stands, for an error."""
        return f"$.messages[{position}]" if self.json else f"line {position + 2}"


def read_post(body: bytes, content_type: str | None = None) -> Post:
    """The post in a body of text (the default) or JSON.

    >>> post = read_post(b"kanab/1 00079b70000102030405060708090a0b\\ncheckout:B@2026-W46:minutes:0>4\\n")
    >>> post.lines
    [('checkout:B@2026-W46:minutes', 0.0, 4.0)]
    """
    if len(body) > MOST_BYTES:
        raise refused(Reason.SIZE, "a post has too many bytes", f"Send at most {MOST_BYTES:,}.")
    if content_type is None or content_type == "text/plain":
        return _read_text(body)
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "text/plain":
        return _read_text(body)
    if kind == "application/json":
        return _read_json(body)
    raise refused(Reason.CONTENT_TYPE, "a post is neither text nor JSON", "Send it as text/plain or application/json.")


def _read_text(body: bytes) -> Post:
    text = _decoded(body)
    if text is None:
        raise refused(Reason.ENCODING, "a post is not UTF-8 text", "Percent-encode names.")
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    first, *lines = text.split("\n")
    if not first.startswith(_FIRST):
        raise refused(Reason.FORMAT, "a post must begin with kanab/1 and a nonce", at="line 1")
    nonce = read_nonce(first[len(_FIRST) :], "line 1")
    if lines and not lines[-1]:
        lines.pop()  # the newline after the last line
    _check_lines(len(lines))
    return Post(nonce, _read_lines(lines))


def _decoded(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _check_lines(count: int) -> None:
    if count > MOST_LINES:
        raise refused(Reason.SIZE, "a post has too many lines", f"Send at most {MOST_LINES} messages in one post.")
    if not count:
        raise refused(Reason.FORMAT, "a post has no message", "Write one to a line, after the nonce.")


def _read_lines(lines: list[str]) -> list[Line]:
    found = _plain_lines(lines)
    return _any_lines(lines) if found is None else found


def _plain_lines(lines: list[str]) -> list[Line] | None:
    """Lines whose totals are plain numbers, as nearly all are; None if one of them is something else."""
    found: list[Line] = []
    seen = [""]
    try:
        for line in lines:
            head, _, totals = line.rpartition(":")
            old, moved, new = totals.partition(">")
            if moved:
                seen.append(totals)
                found.append((head, float(old) if old else None, float(new)))
            else:
                found.append((line, None, None))
    except ValueError:
        return None
    return found if _PLAIN.fullmatch("".join(seen)) and max(map(len, seen)) <= _SHORT else None


def _any_lines(lines: list[str]) -> list[Line]:
    found: list[Line] = []
    for line in lines:
        head, _, totals = line.rpartition(":")
        old, moved, new = totals.partition(">")
        try:
            found.append((head, _total(old) if old else None, _total(new)) if moved else (line, None, None))
        except ValueError:
            break  # Python's own error repeats the text: ours is raised where that one is gone
    else:
        return found
    at = f"line {len(found) + 2}"
    raise refused(Reason.NUMBER, "a total is not a finite number", "Write old>new, such as 0>4.", at)


def _total(text: str) -> Value:
    """A number, or two numbers with a slash between them; anything else is a ValueError."""
    if "/" not in text:
        return number(text)
    first, second = text.split("/")
    return number(first), number(second)


def number(text: str) -> float:
    """A finite number in decimal digits; what else Python would read as one (inf, 1_000) is a ValueError.

    >>> number("12.5"), number("-1e3")
    (12.5, -1000.0)
    """
    if text.strip(_DIGITS):
        raise ValueError
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


# ── JSON ───────────────────────────────────────────────────────────────────────────────────────


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    linkage: list[str]
    levels: list[str | int | float | bool | None]
    cohort: str | None = None
    metric: str | None = None
    ratio: tuple[str, str] | None = None
    old: float | tuple[float, float] | None = None
    new: float | tuple[float, float] | None = None


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    kanab: int
    nonce: str
    messages: list[_Message]


_JSON = msgspec.json.Decoder(_Body)


def _read_json(body: bytes) -> Post:
    found = _parsed(body)
    if found is None:
        raise refused(Reason.FORMAT, "the JSON is not that of a post", "docs/how-to/messages.md shows one.")
    if found.kanab != 1:
        raise refused(Reason.FORMAT, "the JSON is of an unknown version", 'Write "kanab": 1.', "$.kanab")
    nonce = read_nonce(found.nonce, "$.nonce")
    _check_lines(len(found.messages))
    return Post(nonce, [_json_line(message, position) for position, message in enumerate(found.messages)], json=True)


def _parsed(body: bytes) -> _Body | None:
    try:
        return _JSON.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _json_line(message: _Message, position: int) -> Line:
    """The same line as text would give, names in their one spelling."""
    head = "/".join(map(encode, message.linkage))
    head = ":".join([head, *(encode(spell(as_level(level, "the plan"))) for level in message.levels)])
    if message.cohort is not None:
        head += f"@{encode(message.cohort)}"
    what = message.metric is not None, message.ratio is not None
    if all(what) or any(what) != (message.new is not None) or (message.old is not None and message.new is None):
        raise _unreadable(position)
    if any(what):
        names = message.ratio or (message.metric or "",)
        head += ":" + "/".join(map(encode, names))
    return head, message.old, message.new


def _unreadable(position: int) -> MessageError:
    return refused(
        Reason.LINE,
        "a message cannot be read",
        "An enrollment has a linkage, levels and a cohort; a total also its metric or ratio, old and new.",
        f"$.messages[{position}]",
    )
