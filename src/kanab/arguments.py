"""Check the arguments of public functions: names against the signature, kinds against its annotations.

Whoever mistypes a keyword or passes the wrong kind of thing reads one sentence with a remedy, not a traceback.
"""

from __future__ import annotations

import difflib
import inspect
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache, wraps
from numbers import Real
from os import PathLike
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from kanab.errors import ArgumentError, listed

Target = TypeVar("Target", bound=Callable[..., Any])

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

    Editors and ``inspect.signature`` see the signature as it is written. Parameters in ``skip``
    are left to the function, which says more about them than their kind; so are ``confidence``,
    whose range every function checks, and choices among a few texts, which it lists.

    >>> @check_arguments()
    ... def area(width: float, height: float = 1.0) -> float:
    ...     return width * height
    >>> area(2, hight=3)
    Traceback (most recent call last):
    kanab.errors.ArgumentError: area() has no argument 'hight'. Did you mean 'height'?
    >>> area("2")
    Traceback (most recent call last):
    kanab.errors.ArgumentError: width of area() must be a number, not a str.
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
    def kinds() -> dict[str, Any]:
        """Resolve annotations at the first call: they may name what is imported later."""
        hints = get_type_hints(function)
        return {
            word: kind
            for word, kind in hints.items()
            if word not in ("return", "confidence", *skip) and kind is not Any
        }

    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        expected = kinds()
        for word, value in (*zip(positional, args, strict=False), *named.items()):
            kind = expected.get(word)
            if kind is not None and not _fits(value, kind):
                raise _wrong_kind(name, word, value, kind)
        try:
            return function(*args, **named)
        except TypeError as problem:
            if problem.__traceback__ is not None and problem.__traceback__.tb_next is not None:
                raise  # from inside the function
            raise _wrong_call(function, name, named, problem) from None

    return call


def _fits(value: Any, kind: Any) -> bool:
    """Check whether a value is of the kind that an annotation names; own classes also inside containers."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return any(_fits(value, alternative) for alternative in inside)
    if kind is None or kind is type(None):
        return value is None
    if origin is Literal:
        return type(value).__module__ == "builtins"  # a frame cannot even be compared with the choices
    if kind in (int, float):
        return isinstance(value, Real)
    if kind is bool:
        return isinstance(value, Real) or type(value).__name__.startswith("bool")
    if origin is PathLike:
        return isinstance(value, PathLike)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and _hold(value.values(), kind)
    if origin is Iterable and isinstance(value, Iterator):
        return True  # looking inside would use it up
    if isinstance(origin, type) and issubclass(origin, Iterable):
        listable = isinstance(value, Iterable) and not isinstance(value, (str, bytes)) and not hasattr(value, "columns")
        return listable and _hold(value, kind)
    if origin is Callable or kind is Callable:
        return callable(value)
    return isinstance(value, kind) if isinstance(kind, type) and kind is not Any and origin is None else True


def _hold(items: Iterable[Any], kind: Any) -> bool:
    """Check what is inside a container where that must be of an own class; generators would be used up, and are not."""
    if not any(_own_classes(kind)):
        return True
    return isinstance(items, Collection) and all(_fits(item, get_args(kind)[-1]) for item in items)


def _wrong_kind(name: str, word: str, value: Any, kind: Any) -> ArgumentError:
    """Return the error that says which kind is needed, and how to get it."""
    needed = list(dict.fromkeys(_words(kind)))
    fact = f"{word} of {name}() must be {' or '.join(needed)}, not {_described(value)}"
    if word in EXAMPLES:
        return ArgumentError(fact, f"For example {word}={EXAMPLES[word]}.")
    origins = [f"{ORIGINS[own]}." for own in dict.fromkeys(_own_classes(kind)) if own in ORIGINS]
    return ArgumentError(fact, " ".join(origins))


def _words(kind: Any) -> Iterator[str]:
    """Name the kinds of an annotation as people say them; None goes without saying."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        for alternative in get_args(kind):
            yield from _words(alternative)
    elif kind in (int, float):
        yield "a number"
    elif kind is bool:
        yield "true or false"
    elif origin is Literal:
        yield f"one of {', '.join(map(repr, get_args(kind)))}"
    elif kind is str:
        yield "a text"
    elif origin is PathLike:
        yield "a path"
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        yield " of ".join(["a dict", *_inside(kind)])
    elif isinstance(origin, type) and issubclass(origin, Iterable):
        yield " of ".join(["a list", *_inside(kind)])
    elif isinstance(kind, type) and kind is not type(None):
        yield _with_article(kind.__name__)
    elif origin is Callable:
        yield "a function"


def _inside(kind: Any) -> list[str]:
    """Name the own classes that a container must hold, if any."""
    names = dict.fromkeys(_own_classes(kind))
    return [" or ".join(names)] if names else []


def _own_classes(kind: Any) -> Iterator[str]:
    if isinstance(kind, type) and kind.__module__.startswith("kanab."):
        yield kind.__name__
    for inner in get_args(kind):
        yield from _own_classes(inner)


def _described(value: Any) -> str:
    """Name the kind of a value, never the value."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, (list, tuple, Mapping)) and value:
        inner = value.values() if isinstance(value, Mapping) else value
        return f"{_with_article(type(value).__name__)} of {listed(sorted({type(item).__name__ for item in inner}))}"
    return _with_article(type(value).__name__)


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
    near = [other] if other in words else difflib.get_close_matches(unknown[0], words, n=1, cutoff=0.6)
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
        if near := difflib.get_close_matches(word, fields, n=1, cutoff=cutoff):
            field = fields[near[0]]
            value = f"[{cls.__name__}(…, {field}=…)]" if cls in in_lists else f"{cls.__name__}({field}=…)"
            return f"Write {parameter}={value}."
    return ""
