"""How names and levels are written in messages and in the names of counters: percent-encoded."""

from urllib.parse import quote, unquote

from kanab.tally.factor import Level, as_level


def encode(text: str) -> str:
    """Percent-encode a name: everything but letters, digits and ``_ . - ~``."""
    return quote(text, safe="")


def decode(text: str) -> str:
    """Return the name that was meant; characters that separate nothing may also stand as they are."""
    return unquote(text) if "%" in text else text


def respell(text: str) -> str:
    """Return names with slashes between them, each in its one spelling, whatever spelling they came in."""
    return "/".join(encode(decode(name)) for name in text.split("/"))


def spell(level: Level) -> str:
    """Return a level as text: true and false as in JSON, a missing one is empty."""
    if level is None:
        return ""
    return str(level).lower() if isinstance(level, bool) else str(as_level(level, "the plan"))
