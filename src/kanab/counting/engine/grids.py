"""Grid steps in an engine: the rule of ``kanab.tally.metric.grid_steps`` as SQL, and products of steps in 64 bits."""

from __future__ import annotations

from typing import Any

import ibis

from kanab.counting.grids import HALF, Products


@ibis.udf.scalar.builtin(name="floor")  # type: ignore[untyped-decorator]
def floor(value: float) -> float:  # type: ignore[empty-body]
    """Return FLOOR as a double; Ibis' own casts to an integer, which infinities and NaN cannot pass."""


def grid_steps(value: Any, scale: int) -> Any:
    """Return the whole grid steps of a number column, not yet clamped, as doubles."""
    return floor(value.cast("float64") * float(scale) + 0.5)


def product_terms(first: Any, second: Any, products: Products) -> tuple[Any, ...]:
    """Return the terms whose sums give Σ of a product: 64-bit integers, never wider."""
    first, second = first.cast("int64"), second.cast("int64")
    if products.centre:
        first, second = first - products.centre, second - products.centre
    if not products.halves:
        return (first * second,)
    (y1, y0), (z1, z0) = _halves(first), _halves(second)
    return y1 * z1, y1 * z0 + y0 * z1, y0 * z0


def _halves(steps: Any) -> tuple[Any, Any]:
    high = floor(steps.cast("float64") / float(HALF)).cast("int64")  # exact: steps have 52 bits
    return high, steps - high * HALF
