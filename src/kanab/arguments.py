"""Check the arguments of public functions: names against the signature, kinds against its annotations.

Whoever mistypes a keyword or passes the wrong kind of thing reads one sentence with a remedy, not a traceback.
"""

import inspect
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache, partial, wraps
from numbers import Real
from os import PathLike
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from kanab.errors import ArgumentError, closest, listed

Target = TypeVar("Target", bound=Callable[..., Any])
Alternatives = Iterable[tuple[str, Callable[[Any], bool]]]
"""What a value may be: how people say it, and what checks for it."""

EXAMPLES = {
    "adjust": "['tier']",
    "arms": "['A', 'B']",
    "metrics": "['spend']",
    "segments": "['device']",
    "span": "Span('enrolled_at', '7d', None, '2026-W46')",
    "tolerance": "{'revenue': 0.5}",
}
"""What to write for arguments of these names, whatever function takes them."""

OTHER_WORDS = {
    "treatment": "arm", "variant": "arm", "group": "arm", "treatments": "arms", "variants": "arms", "groups": "arms",
    "outcome": "metrics", "outcomes": "metrics", "kpi": "metrics", "dimensions": "segments", "mde": "effect",
    "sample_size": "people", "n": "people",
}  # fmt: skip
"""The field's words for arguments, beside those for fields of values."""

ORIGINS = {
    "ArmMeans": "plain_means(tally) and adjusted_means(tally) return one",
    "BinnedPeople": "BinnedPeople((0, 100, 200), (0, 50, 30, 20)) is one",
    "Baseline": "baseline_from_release(released) returns one",
    "Counted": "count(source, …) returns one",
    "CrossedSpread": "crossed_spread(rows, columns, sd=30) and crossed_spread_of(tally) return one",
    "Effect": "difference_in_means(tally) and adjusted_effect(tally) return one",
    "Margin": "Margin('non-inferiority', 0.1) is one",
    "Spread": "spread_of_rate(0.1), spread_of_amounts(30), spread_of_rows(…) and spread_of_means(means) return one",
    "Plan": "make_plan(…) and read_plan(path) return one",
    "PlannedTest": "PlannedTest(confidence=0.9) is one",
    "Prior": "Prior(0, 0.01) is one",
    "Reading": "Reading(confidence=0.9) is one",
    "Rows": "Rows(unit='user_id') is one",
    "Release": "release(counted) and read_release(path) return one",
    "Tally": "count_columns(…) returns one, and a Release holds some in its tables",
}
"""How to get one of these, wherever it is needed."""


def check_arguments(skip: tuple[str, ...] = ()) -> Callable[[Target], Target]:
    """Return a decorator that raises `ArgumentError` for calls that a function or a class cannot take.

    Parameters in ``skip`` are left to the function, which says more about them than their kind; so are ``confidence``,
    whose range every function checks, and choices among a few texts, which it lists.
    """

    def decorate(target: Target) -> Target:
        if isinstance(target, type):
            target.__init__ = _checked(target.__init__, target.__name__, skip)  # type: ignore[misc]
            return target
        checked: Target = _checked(target, target.__name__, skip)
        return checked

    return decorate


def _checked(function: Any, name: str, skip: tuple[str, ...]) -> Any:
    """Wrap a function so that its arguments are checked before it runs."""
    code = function.__code__
    positional = code.co_varnames[: code.co_argcount]

    @cache
    def kinds() -> dict[str, tuple[Any, Alternatives]]:
        """Resolve annotations at the first call: they may name what is imported later."""
        hints = get_type_hints(function).items()
        left = ("return", "confidence", *skip)
        return {word: (kind, tuple(_alternatives(kind))) for word, kind in hints if word not in left}

    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        expected = kinds()
        for word, value in (*zip(positional, args, strict=False), *named.items()):
            if word in expected and not _fits(value, expected[word][1]):
                raise _wrong_kind(name, word, value, *expected[word])
        try:
            return function(*args, **named)
        except TypeError as problem:
            if problem.__traceback__ is not None and problem.__traceback__.tb_next is not None:
                raise  # from inside the function
            raise _wrong_call(function, name, named, problem) from None

    return call


def _alternatives(kind: Any) -> Alternatives:
    """Yield what a value of an annotation may be, as people say it, and what checks for it; None goes without saying.

    Own classes are also looked for in containers; whatever else is in them is left to the function.
    """
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        for alternative in get_args(kind):
            yield from _alternatives(alternative)
    elif kind in (None, type(None)):
        yield "", lambda value: value is None
    elif origin is Literal:  # a frame cannot even be compared with the choices
        yield f"one of {', '.join(map(repr, get_args(kind)))}", lambda value: type(value).__module__ == "builtins"
    elif kind in (int, float):
        yield "a number", lambda value: isinstance(value, Real)
    elif kind is bool:
        yield "true or false", lambda value: isinstance(value, Real) or type(value).__name__.startswith("bool")
    elif origin is PathLike:
        yield "a path", lambda value: isinstance(value, PathLike)
    elif isinstance(origin, type) and issubclass(origin, Iterable):
        names = dict.fromkeys(_own_classes(kind))
        words = "a dict" if issubclass(origin, Mapping) else "a list"
        yield f"{words} of {' or '.join(names)}" if names else words, partial(_holds, kind, origin)
    elif Callable in (kind, origin):
        yield "a function", callable
    elif isinstance(kind, type) and origin is None and kind is not Any:
        yield "a text" if kind is str else _with_article(kind.__name__), lambda value: isinstance(value, kind)
    else:
        yield "", lambda _: True


def _fits(value: Any, alternatives: Alternatives) -> bool:
    return any(fits(value) for _, fits in alternatives)


def _holds(kind: Any, origin: type, value: Any) -> bool:
    """Check a container, and what it holds where that must be of an own class; generators would be used up."""
    if issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            return False
        value = value.values()
    elif isinstance(value, (str, bytes)) or hasattr(value, "columns") or not isinstance(value, Iterable):
        return False
    if not any(_own_classes(kind)) or (origin is Iterable and isinstance(value, Iterator)):
        return True
    inside = tuple(_alternatives(get_args(kind)[-1]))
    return isinstance(value, Collection) and all(_fits(item, inside) for item in value)


def _own_classes(kind: Any) -> Iterator[str]:
    if isinstance(kind, type) and kind.__module__.startswith("kanab."):
        yield kind.__name__
    for inner in get_args(kind):
        yield from _own_classes(inner)


def _wrong_kind(name: str, word: str, value: Any, kind: Any, alternatives: Alternatives) -> ArgumentError:
    """Return the error that says which kind is needed, and how to get it."""
    needed = dict.fromkeys(words for words, _ in alternatives if words)
    fact = f"{word} of {name}() must be {' or '.join(needed)}, not {_described(value)}"
    if word in EXAMPLES:
        return ArgumentError(fact, f"For example {word}={EXAMPLES[word]}.")
    own = [name for name in dict.fromkeys(_own_classes(kind)) if name in ORIGINS]
    return ArgumentError(fact, " ".join(f"{ORIGINS[name]}." for name in own))


def _described(value: Any) -> str:
    """Name the kind of a value, never the value."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    kind = _with_article(type(value).__name__)
    if isinstance(value, (list, tuple, Mapping)) and value:
        inner = value.values() if isinstance(value, Mapping) else value
        return f"{kind} of {listed(sorted({type(item).__name__ for item in inner}))}"
    return kind


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0].lower() in 'aeio' else 'a'} {noun}"


def _wrong_call(function: Any, name: str, named: Mapping[str, Any], problem: TypeError) -> ArgumentError:
    """Return the error for a name that the signature does not have, or for one that is missing."""
    words = [word for word in inspect.signature(function).parameters if word != "self"]
    unknown = [word for word in named if word not in words]
    if not unknown:
        told = str(problem).partition("() ")[2]
        return ArgumentError(f"{name}() {told}" if told else str(problem), f"It takes: {listed(words, most=50)}.")
    other = OTHER_WORDS.get(unknown[0])
    near = [other] if other in words else closest(unknown[0], words)
    hint = _in_a_value(unknown[0], words, cutoff=1.0) or (f"Did you mean {near[0]!r}?" if near else "")
    hint = hint or _in_a_value(unknown[0], words, cutoff=0.8) or f"It takes: {listed(words, most=50)}."
    return ArgumentError(f"{name}() has no argument {unknown[0]!r}", hint)


def _in_a_value(word: str, parameters: Collection[str], cutoff: float) -> str:
    """Return in which value of a call a word belongs, where it is a field of one, another word for it, or the value."""
    from kanab import description as known  # noqa: PLC0415 - it checks arguments, too
    from kanab.fields import described, spellings  # noqa: PLC0415

    in_lists = {known.Mean: "metrics", known.Ratio: "metrics", known.Quantile: "metrics"}
    in_lists |= {known.Covariate: "adjust", known.Number: "adjust"}
    for cls, parameter in {known.Reading: "reading", known.Rows: "rows", **in_lists}.items():
        if parameter not in parameters:
            continue
        if word == f"{cls.__name__.lower()}s" and cls in in_lists:
            return f"Write {parameter}=[{cls.__name__}(…)]."
        columns = [each for each in described(cls).values() if each.setting.flag != "" or cls not in in_lists]
        fields = spellings(columns)
        if near := closest(word, fields, cutoff=cutoff):
            field = fields[near[0]]
            value = f"[{cls.__name__}(…, {field}=…)]" if cls in in_lists else f"{cls.__name__}({field}=…)"
            return f"Write {parameter}={value}."
    return ""
