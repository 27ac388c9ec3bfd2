"""Columns of a batch of people as small codes of arms, and as numbers.

Arms are learnt on the way: a level gets the next code when it is first seen, and everything is put
in order at the end. So one pass is enough, whoever reads which batch.
"""

import importlib.util
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.counting.frames import Array, encode, get_column
from kanab.errors import SourceError
from kanab.scan.count.kernel import NOT_IN, Codes
from kanab.tally.factor import Level, as_level

MOST_ARMS = 8
"""More arms are refused: the column is something else, or the pairs are too thin to test."""


class ArmCodes:
    """The codes of one experiment's arms, in the order in which batches brought them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.levels: list[Level] = []

    def read(self, values: Any) -> Codes:
        """Return everybody's code; ``NOT_IN`` for people without an arm.

        >>> codes = ArmCodes("red")
        >>> codes.read(["on", None, "off"]).tolist(), codes.levels
        ([1, 255, 0], ['off', 'on'])
        """
        array = as_column(values)
        if not isinstance(array, np.ndarray):
            return self._arrow(array)
        if array.dtype.kind in "biuf":
            return self._plain(array)
        places, levels = encode(array, self.name)
        return np.array([self._place(level) for level in levels], dtype=np.uint8)[places]

    def _place(self, value: Any) -> int:
        """Return the code of a level, the next one if it is new."""
        level = as_level(value, self.name)
        if level is None:
            return NOT_IN
        for place, known in enumerate(self.levels):
            if known == level and isinstance(known, bool) == isinstance(level, bool):
                return place
        check_arms(self.name, [*self.levels, level])
        self.levels.append(level)
        return len(self.levels) - 1

    def _plain(self, values: Array, gone: NDArray[np.bool_] | None = None) -> Codes:
        """Read numbers or true/false: each known level is compared with everybody; ``gone`` have none."""
        if self._are_codes(values):
            codes = values.astype(np.uint8)
        else:
            codes = np.full(len(values), NOT_IN, dtype=np.uint8)
            for level in self.levels:
                if isinstance(level, bool) == (values.dtype.kind == "b") and not isinstance(level, str):
                    _set(codes, values == level, self._place(level))
            if codes.size and codes.max() == NOT_IN:
                for level in _some_others(values, codes, gone):
                    _set(codes, values == level, self._place(level))
        return codes if gone is None else _without(codes, gone)

    def _are_codes(self, values: Array) -> bool:
        """Tell whether the values 0, 1, 2 … are the codes already."""
        many = len(self.levels)
        if not many or values.dtype.kind not in "biu" or self.levels != list(range(many)):
            return False
        if (values.dtype.kind == "b") != isinstance(self.levels[0], bool):
            return False
        return bool(values.size) and int(values.min()) >= 0 and int(values.max()) < many

    def _arrow(self, values: Any) -> Codes:
        kind = _kind_of(values.type)
        if kind == "other":
            raise SourceError(
                f"column {self.name!r} holds values that are not levels",
                "Use texts, numbers or true/false; turn dates and other types into text first.",
            )
        if kind == "nothing":
            return np.full(len(values), NOT_IN, dtype=np.uint8)
        if kind in ("text", "dictionary"):
            texts = values.dictionary_encode() if kind == "text" else values
            numbered, gone = _raw(texts.indices)  # texts that are numbered already: only few names are looked at
            codes = self._numbered(numbered, texts.dictionary.to_pylist(), gone)
            return codes if gone is None else _without(codes, gone)
        return self._plain(*_raw(values.cast("float64", safe=False) if kind == "decimal" else values))

    def _numbered(self, numbered: Array, names: Sequence[Any], gone: NDArray[np.bool_] | None = None) -> Codes:
        some: Iterable[int] = range(len(names))
        if len(names) > MOST_ARMS:  # a dictionary may name what nobody here has
            some = np.unique(numbered if gone is None else numbered[~gone])[: MOST_ARMS + 1].tolist()
        codes = np.full(len(numbered), NOT_IN, dtype=np.uint8)
        for index in some:
            there = numbered == index
            if (there if gone is None else there & ~gone).any():
                _set(codes, there, self._place(names[index]))
        return codes


def check_arms(name: str, levels: list[Level]) -> None:
    """Check that levels can be the arms of an experiment. Raises `SourceError` where they cannot."""
    if any(isinstance(level, float) for level in levels):
        raise SourceError(
            f"experiment {name!r} has arms that are numbers with a fraction",
            "Name the column that holds the arm, or cut the number into a few levels first.",
        )
    if any(isinstance(level, bool) for level in levels) and any(type(level) is int for level in levels):
        raise SourceError(f"column {name!r} mixes true/false with numbers", "Use one kind of value.")
    if len(levels) > MOST_ARMS:
        raise SourceError(
            f"experiment {name!r} has more than {MOST_ARMS} arms",
            "Name the column that holds the arm, not the person; or merge arms, or leave out this experiment.",
        )


def _some_others(values: Array, codes: Codes, gone: NDArray[np.bool_] | None) -> Array:
    """Return values that have no code yet, a few more than there may be."""
    unknown = codes == NOT_IN
    if gone is not None:
        unknown &= ~gone
    rest = values[unknown]
    return np.unique(rest[~np.isnan(rest)] if values.dtype.kind == "f" else rest)[: MOST_ARMS + 1]


def _raw(values: Any) -> tuple[Array, NDArray[np.bool_] | None]:
    """Read an Arrow array of numbers or true/false without a copy, and who has none; their values mean nothing."""
    valid, data = values.buffers()
    start, end = values.offset, values.offset + len(values)
    gone = ~_unpacked(valid, start, end) if values.null_count else None
    if _kind_of(values.type) == "truth":
        return _unpacked(data, start, end), gone
    return np.frombuffer(data, dtype=values.type.to_pandas_dtype())[start:end], gone


def _unpacked(buffer: Any, start: int, end: int) -> NDArray[np.bool_]:
    first, last = start // 8, -(-end // 8)
    bits = np.unpackbits(np.frombuffer(buffer, dtype=np.uint8)[first:last], bitorder="little")
    return bits[start - 8 * first : end - 8 * first].view(bool)


def _set(codes: Codes, there: NDArray[np.bool_], place: int) -> None:
    """Give people a code whose code is still ``NOT_IN``; by subtraction, which is quicker than a mask."""
    if place != NOT_IN:
        codes -= there * np.uint8(NOT_IN - place)


def _without(codes: Codes, gone: NDArray[np.bool_]) -> Codes:
    codes |= gone * np.uint8(NOT_IN)
    return codes


@cache
def _kind_of(kind: Any) -> str:
    """Return what an Arrow type holds, in the words of this module; asked a hundred times per batch."""
    import pyarrow as pa  # noqa: PLC0415 - an extra, and whoever has such values has it

    kinds = (
        (is_text, "text"),
        (pa.types.is_dictionary, "dictionary"),
        (pa.types.is_boolean, "truth"),
        (pa.types.is_integer, "number"),
        (pa.types.is_floating, "number"),
        (pa.types.is_decimal, "decimal"),
        (pa.types.is_null, "nothing"),
    )
    return next((word for fits, word in kinds if fits(kind)), "other")


def is_text(kind: Any) -> bool:
    """Tell whether it is one of Arrow's types of text."""
    return str(kind) in ("string", "large_string", "string_view")


def as_column(values: Any) -> Any:
    """Return a NumPy array of numbers, an Arrow array, or, where neither fits, a NumPy array of objects."""
    package = type(values).__module__.partition(".")[0]
    if package == "pyarrow":
        return values.combine_chunks() if hasattr(values, "combine_chunks") else values
    if isinstance(values, np.ndarray) or package not in ("pandas", "polars"):
        return get_column({"": values}, "")
    if isinstance(values.dtype, np.dtype) and values.dtype.kind in "biuf":
        return values.to_numpy()
    return _through_arrow(values, package)


def _through_arrow(values: Any, package: str) -> Any:
    """Convert texts, categories and columns with gaps of a frame, which Arrow tells apart quickly."""
    if importlib.util.find_spec("pyarrow") is None:
        return get_column({"": values}, "")
    import pyarrow as pa  # noqa: PLC0415 - an extra

    try:
        arrow = values.to_arrow() if package == "polars" else pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError):
        return get_column({"": values}, "")
    return as_column(arrow)


def as_numbers(values: Any) -> Array:
    """Return a metric's column as an array for ``frames.numbers``: doubles, NaN where there is no value."""
    array = as_column(values)
    if isinstance(array, np.ndarray):
        return array
    if _kind_of(array.type) == "dictionary":
        array = array.cast(array.type.value_type)
    if _kind_of(array.type) == "truth":
        array = array.cast("uint8")
    elif _kind_of(array.type) in ("text", "other"):
        return np.full(len(array), "", dtype=object)  # no numbers, for the error that all sources share
    doubles: Array = array.cast("float64", safe=False).to_numpy(zero_copy_only=False)
    return doubles
