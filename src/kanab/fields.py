"""Fields that describe themselves: what a constructor checks, flags, and the reference are made from them.

Nothing is computed here, so that help of commands stays quick.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from numbers import Real
from typing import Any, TypeVar, cast, dataclass_transform, get_args

from kanab.errors import ArgumentError, closest

T = TypeVar("T")


class WrongValueError(Exception):
    """What a value must be, in words that follow its name."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value: how it is read, what the text of a flag means, how help calls and shows it, how files hold it.

    ``names`` says that it is a list of names; ``choices`` are the only words that it may be.
    """

    read: Callable[[Any], Any]
    text: Callable[[str], Any] = str
    metavar: str | None = None
    show: Callable[[Any], str] = str
    names: bool = False
    choices: tuple[Any, ...] = ()
    write: Callable[[Any], Any] = lambda value: value


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known of a field besides its type: a line of help, its kind, an example, its flag, other words for it.

    ``flag`` is made of the name where it is None; an empty one says that there is none. ``of`` is the column of the
    example, where a flag names one: --top country=20. ``key`` is its key in files, where that is not its name.
    """

    help: str
    kind: Kind
    example: Any = None
    flag: str | None = None
    words: tuple[str, ...] = ()
    of: str = "spend"
    key: str = ""


@dataclass(frozen=True, slots=True)
class Described:
    """A field with its name, setting and default."""

    name: str
    setting: Setting
    default: Any

    @property
    def flag(self) -> str:
        """The flag, such as --min-events."""
        made = f"--{self.name.replace('_', '-')}"
        return made if self.setting.flag is None else self.setting.flag

    @property
    def key(self) -> str:
        """The key in files, such as least_events."""
        return self.setting.key or self.name

    @property
    def keyed_example(self) -> str:
        """An example of its flag where that names a column, such as --bounds spend=0:500."""
        return f"{self.flag} {self.setting.of}={self.setting.kind.show(self.setting.example)}"

    @property
    def such_as(self) -> str:
        """An example, as the end of a sentence."""
        example = self.setting.example
        return "" if example is None else f", for example {self.name}={example!r}"

    def read(self, value: Any) -> Any:
        """Return a value as the field holds it; its default goes without reading."""
        return value if value is self.default else self.setting.kind.read(value)


def setting(help: str, kind: Kind, example: Any = None, *, default: Any = MISSING, **more: Any) -> Any:
    """Return a field of a described class."""
    return field(default=default, metadata={"setting": Setting(help, kind, example, **more)})


def key(kind: Kind, default: Any = None, name: str = "", *, words: tuple[str, ...] = (), **more: Any) -> Any:
    """Return a field of a class that a table of a file is read as; ``name`` is its key, where the field has another."""
    more |= {"default_factory": dict} if default == {} else {"default": default}
    return field(metadata={"setting": Setting("", kind, words=words, key=name)}, **more)


@cache
def described(cls: Any) -> Mapping[str, Described]:
    """Return the fields of a class by their names, in order."""
    known = [each for each in fields(cls) if "setting" in each.metadata]
    defaults = [each.default if each.default_factory is MISSING else each.default_factory() for each in known]
    return {
        each.name: Described(each.name, each.metadata["setting"], default)
        for each, default in zip(known, defaults, strict=True)
    }


@dataclass_transform(frozen_default=True, field_specifiers=(setting,))
def describes(cls: type[T]) -> type[T]:
    """Make a frozen dataclass whose constructor names everything that is wrong with a call at once."""
    made = dataclass(frozen=True)(cls)
    plain = made.__init__
    lines = (f"    {each.name}: {each.setting.help}" for each in described(cast(Any, made)).values())
    made.__doc__ = "\n".join([f"{made.__doc__}\n", *lines])

    def checked_init(self: Any, *args: Any, **named: Any) -> None:
        known = described(cast(Any, made))
        given = dict(zip(known, args, strict=False)) | named
        values, wrong = _checked(made, given)
        if len(args) > len(known):
            wrong.append(f"it takes {len(known)} arguments, not {len(args)}")
        if wrong:
            raise ArgumentError(f"{cls.__name__}(): {'; '.join(wrong)}")
        plain(self, **values)

    checked_init.__wrapped__ = plain  # type: ignore[attr-defined]  # help() and inspect.signature see the fields
    made.__init__ = checked_init  # type: ignore[method-assign]
    return made


def _checked(cls: type, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the values that can be read, and a sentence for each that cannot, is unknown or is missing."""
    known = described(cls)
    values: dict[str, Any] = {}
    wrong: list[str] = []
    for name, value in given.items():
        if name not in known:
            wrong.append(f"there is no {name!r}; {meant(name, known)}")
            continue
        try:
            values[name] = known[name].read(value)
        except WrongValueError as problem:
            wrong.append(f"{name} {problem}{known[name].such_as}")
    wrong += [
        f"{name} is missing{each.such_as}"
        for name, each in known.items()
        if each.default is MISSING and name not in given
    ]
    return values, wrong


def spellings(known: Iterable[Described]) -> dict[str, str]:
    """Return the names of fields by all words for them, their own first."""
    words: dict[str, str] = {}
    for each in known:
        words |= dict.fromkeys((each.name, *each.setting.words), each.name)
    return words


def meant(name: str, known: Mapping[str, Described]) -> str:
    """Say which field was perhaps meant, by its spelling or by another word for it, or which there are."""
    words = spellings(known.values())
    near = closest(name, words)
    return f"did you mean {words[near[0]]!r}?" if near else f"it takes {', '.join(known)}"


# ── kinds ──────────────────────────────────────────────────────────────────────────────────────


def unchanged(value: Any) -> Any:
    """Return a value as it is."""
    return value


def checked(fits: Callable[[Any], Any], words: str, make: Callable[[Any], Any] = unchanged) -> Callable[[Any], Any]:
    """Return what reads a value: it makes something of one that fits, and says what any other must be."""

    def read(value: Any) -> Any:
        if not fits(value):
            raise WrongValueError(words)
        return make(value)

    return read


def is_finite(value: Any) -> bool:
    """Check for a number that is one: not a truth, not a text, not infinite."""
    return isinstance(value, Real) and not isinstance(value, bool) and abs(value) < 1e300  # type: ignore[operator]


_text = checked(lambda value: isinstance(value, str) and value.strip(), "must be a text")
_number = checked(is_finite, "must be a finite number", float)
_counted = checked(lambda number: number.is_integer() and number >= 1, "must be a whole number, at least 1", int)
_pair = checked(
    lambda value: isinstance(value, (list, tuple)) and len(value) == 2,
    "must be two numbers: lower, upper",
    lambda pair: tuple(map(_number, pair)),
)
_listed = checked(
    lambda value: isinstance(value, Iterable) and not isinstance(value, Mapping),
    "must be a list of names",
    lambda names: tuple(map(_text, names)),
)


def plain_number(text: str) -> float:
    """Return the number that a flag's text is; a whole one as such."""
    value = float(text)
    return int(value) if value.is_integer() else value


def share(text: str) -> float:
    """Read a number, or a percentage as a part of 1; raise `ValueError` for anything else."""
    return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)


def one_of(literal: Any) -> Kind:
    """Return the kind of one of a few words."""
    choices = get_args(literal)
    words = (str(choice).lower() if isinstance(choice, bool) else repr(choice) for choice in choices)
    read = checked(lambda value: isinstance(value, (str, bool)) and value in choices, f"must be {' or '.join(words)}")
    return Kind(read, metavar="|".join(map(str, choices)), choices=choices)


def numbers_text(text: str) -> list[float]:
    """Return the numbers that a flag's text names: 0:500."""
    return [plain_number(part) for part in text.split(":")]


def numbers_shown(numbers: Iterable[float]) -> str:
    """Write numbers as a flag names them."""
    return ":".join(f"{number:g}" for number in numbers)


ANYTHING = Kind(unchanged)
NAME = Kind(_text, metavar="COLUMN")
TEXT = Kind(_text)
NUMBER = Kind(_number, plain_number, "NUMBER")
WHOLE = Kind(lambda value: _counted(_number(value)), plain_number, "N")
BOUNDS = Kind(_pair, numbers_text, "LOW:HIGH", numbers_shown)
NAMES = Kind(lambda value: (value,) if isinstance(value, str) else _listed(value), metavar="COLUMNS", names=True)
YES = Kind(checked(lambda value: isinstance(value, bool), "must be true or false"))


def reference(cls: type) -> str:
    """Return a class's fields as a table in Markdown, for the reference."""
    lines = [f"| field of `{cls.__name__}` | flag | default | |", "|---|---|---|---|"]
    for each in described(cls).values():
        default = "" if each.default is MISSING else f"`{each.default!r}`"
        example = "" if each.setting.example is None else f" `{each.name}={each.setting.example!r}`"
        lines.append(
            f"| `{each.name}` | {f'`{each.flag}`' if each.flag else ''} | {default} | {each.setting.help}{example} |"
        )
    return "\n".join(lines)
