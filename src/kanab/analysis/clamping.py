"""From a source to a release that is only read here: extreme values of a number do not cost its adjustment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kanab.counted import Counted
from kanab.errors import PrivacyError
from kanab.plan.model import Plan
from kanab.privacy.gate import release
from kanab.privacy.numbers.rule import extreme_numbers
from kanab.privacy.release import Release

_BEYOND, _MOST = 0.01, 0.25
"""The share of people beyond a bound, and what would be too many of them."""


def release_clamped(
    plan: Plan,
    count: Callable[[Plan], Counted],
    clamp: Callable[[Plan, Sequence[str], float], Plan],
    k: int | None = None,
    *,
    override: str = "",
) -> Release:
    """Count and release; once more with numbers clamped, if nobody declared bounds, their extremes tell, and it helps.

    ``clamp`` returns a plan with bounds of some numbers, beyond which a share of all people lies: 1 %, or k of them.
    They come from the data, so such a release cannot be saved. Raises `PrivacyError` where the plan has an ε: every
    further readout of the rows would spend it again.
    """
    if plan.budget is not None:
        raise PrivacyError(
            "this plan has an ε, and reading the rows would spend it each time, in no ledger",
            "Release them first (kanab release, release()), then analyze what was released.",
        )
    counted = count(plan)
    released = release(counted, k, override=override)
    extreme = extreme_numbers(counted.plan, released.receipt.left_out)
    people = next(iter(counted.tallies.values())).total
    share = max(_BEYOND, (k or counted.plan.k) / people)
    bounded = clamp(counted.plan, extreme, share) if extreme and share < _MOST else counted.plan
    if bounded == counted.plan:
        return released
    clamped = release(replace(count(bounded), bounds_declared=False), k, override=override)
    if _products(clamped) <= _products(released):
        return released
    return replace(clamped, plan=counted.plan)  # which says whose bounds nobody declared


def _products(released: Release) -> int:
    return sum(len(table.crosses) for table in released.tables.values())
