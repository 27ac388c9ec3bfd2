"""How names and levels are written in messages and in the names of counters: percent-encoded."""

from urllib.parse import quote, unquote

from kanab.tally.factor import Level, as_level


def encode(text: str) -> str:
    """Percent-encode a name: everything but letters, digits and ``_ . - ~``.

    >>> encode("time on app"), encode("a/b:c|d@e>f")
    ('time%20on%20app', 'a%2Fb%3Ac%7Cd%40e%3Ef')
    """
    return quote(text, safe="")


def decode(text: str) -> str:
    """Return the name that was meant; characters that separate nothing may also stand as they are.

    >>> decode("time%20on app")
    'time on app'
    """
    return unquote(text) if "%" in text else text


def respell(text: str) -> str:
    """Return names with slashes between them, each in its one spelling, whatever spelling they came in.

    >>> respell("check%6Fut/time on app")
    'checkout/time%20on%20app'
    """
    return "/".join(encode(decode(name)) for name in text.split("/"))


def spell(level: Level) -> str:
    """Return a level as text: true and false as in JSON, a missing one is empty.

    >>> spell(3.0), spell(True), spell(None), spell("phone")
    ('3', 'true', '', 'phone')
    """
    if level is None:
        return ""
    return str(level).lower() if isinstance(level, bool) else str(as_level(level, "the plan"))
