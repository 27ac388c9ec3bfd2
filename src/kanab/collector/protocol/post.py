"""Reads the bytes of a post into its nonce and lines, strictly, in the text form or the JSON form, without the plan.

    kanab/1 00079b70…                            the format, a nonce, and the epoch of the store unless it is the first
    checkout/tier:B:3@2026-W46                   enrolled
    checkout/tier:B:3@2026-W46:minutes:0>4       a running total moved from 0 to 4

Errors name the line and never repeat what stands in it.
"""

import math
import re
from contextlib import suppress
from typing import NamedTuple

import msgspec

from kanab.collector.protocol.encoding import encode, spell
from kanab.collector.protocol.limits import MOST_POST_BYTES, MOST_POST_LINES
from kanab.collector.protocol.nonces import read_nonce
from kanab.collector.protocol.reasons import Reason, refused
from kanab.errors import MessageError
from kanab.tally.factor import as_level

Value = float | tuple[float, float]
"""A running total as it was written; for a ratio, the totals of both parts."""

Line = tuple[str, Value | None, Value | None]
"""The prefix (everything before the totals), the old total (None: there was none), the new (None: an enrollment)."""

_FIRST = "kanab/1 "
_EPOCH = re.compile("[0-9a-f]{8}")
_DIGITS = "0123456789.+-eE"


class Post(NamedTuple):
    """The content of one POST: a nonce, lines in the order in which they were written, the epoch of their totals."""

    nonce: bytes
    lines: list[Line]
    json: bool = False
    epoch: str = ""

    def place(self, position: int) -> str:
        """Return where a line stands, for an error."""
        return f"$.messages[{position}]" if self.json else f"line {position + 2}"


def read_post(body: bytes, content_type: str | None = None) -> Post:
    """Read the post in a body of text (the default) or JSON; raises `MessageError` where it cannot be read."""
    if len(body) > MOST_POST_BYTES:
        raise refused(Reason.SIZE, "a post has too many bytes", f"Send at most {MOST_POST_BYTES:,}.")
    if content_type is None or content_type == "text/plain":
        return _read_text(body)
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "text/plain":
        return _read_text(body)
    if kind == "application/json":
        return _read_json(body)
    raise refused(Reason.CONTENT_TYPE, "a post is neither text nor JSON", "Send it as text/plain or application/json.")


def _read_text(body: bytes) -> Post:
    text = None
    with suppress(UnicodeDecodeError):  # which would repeat the body
        text = body.decode()
    if text is None:
        raise refused(Reason.ENCODING, "a post is not UTF-8 text", "Percent-encode names.")
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    first, *lines = text.split("\n")
    if not first.startswith(_FIRST):
        raise refused(Reason.FORMAT, "a post must begin with kanab/1 and a nonce", at="line 1")
    digits, space, epoch = first[len(_FIRST) :].partition(" ")
    nonce = read_nonce(digits, "line 1")
    if space:
        _check_epoch(epoch, "line 1")
    if lines and not lines[-1]:
        lines.pop()  # the newline after the last line
    _check_lines(len(lines))
    return Post(nonce, _read_lines(lines), epoch=epoch)


def _check_epoch(epoch: str, at: str) -> None:
    if not _EPOCH.fullmatch(epoch):
        raise refused(Reason.FORMAT, "an epoch is not 8 hex digits", "Write the one of the config, or none.", at)


def _check_lines(count: int) -> None:
    if count > MOST_POST_LINES:
        raise refused(Reason.SIZE, "a post has too many lines", f"Send at most {MOST_POST_LINES} messages in one post.")
    if not count:
        raise refused(Reason.FORMAT, "a post has no message", "Write one to a line, after the nonce.")


def _read_lines(lines: list[str]) -> list[Line]:
    read: list[Line] = []
    for line in lines:
        prefix, _, totals = line.rpartition(":")
        old, arrow, new = totals.partition(">")
        try:
            read.append((prefix, _total(old) if old else None, _total(new)) if arrow else (line, None, None))
        except ValueError:
            break  # Python's own error repeats the text: ours is raised where that one is gone
    else:
        return read
    at = f"line {len(read) + 2}"
    raise refused(Reason.NUMBER, "a total is not a finite number", "Write old>new, such as 0>4.", at)


def _total(text: str) -> Value:
    """Read a number, or two numbers with a slash between them; raises ValueError for anything else."""
    if "/" not in text:
        return read_number(text)
    first, second = text.split("/")
    return read_number(first), read_number(second)


def read_number(text: str) -> float:
    """Read a finite number in decimal digits; raises ValueError for what else Python would read (inf, 1_000)."""
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
    epoch: str = ""


_JSON = msgspec.json.Decoder(_Body)


def _read_json(body: bytes) -> Post:
    content: _Body | None = None
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # theirs may repeat what was sent
        content = _JSON.decode(body)
    if content is None:
        raise refused(Reason.FORMAT, "the JSON is not that of a post", "docs/how-to/messages.md shows one.")
    if content.kanab != 1:
        raise refused(Reason.FORMAT, "the JSON is of an unknown version", 'Write "kanab": 1.', "$.kanab")
    nonce = read_nonce(content.nonce, "$.nonce")
    _check_lines(len(content.messages))
    if content.epoch:
        _check_epoch(content.epoch, "$.epoch")
    lines = [_json_line(message, position) for position, message in enumerate(content.messages)]
    return Post(nonce, lines, json=True, epoch=content.epoch)


def _json_line(message: _Message, position: int) -> Line:
    """Return the same line as text would give, names in their one spelling."""
    table = "/".join(map(encode, message.linkage))
    prefix = ":".join([table, *(encode(spell(as_level(level, "the plan"))) for level in message.levels)])
    if message.cohort is not None:
        prefix += f"@{encode(message.cohort)}"
    named = message.metric is not None, message.ratio is not None
    if all(named) or any(named) != (message.new is not None) or (message.old is not None and message.new is None):
        raise _unreadable(position)
    if any(named):
        names = message.ratio or (message.metric or "",)
        prefix += ":" + "/".join(map(encode, names))
    return prefix, message.old, message.new


def _unreadable(position: int) -> MessageError:
    return refused(
        Reason.LINE,
        "a message cannot be read",
        "An enrollment has a linkage, levels and a cohort; a total also its metric or ratio, old and new.",
        f"$.messages[{position}]",
    )
