"""From a source to a release that is only read here: extreme values of a number do not cost its adjustment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kanab.counted import Counted
from kanab.plan.model import Plan
from kanab.privacy.gate import release
from kanab.privacy.numbers.rule import extreme_numbers
from kanab.privacy.release import Release


def release_clamped(
    plan: Plan,
    count: Callable[[Plan], Counted],
    clamp: Callable[[Plan, Sequence[str]], Plan],
    k: int | None = None,
    *,
    override: str = "",
) -> Release:
    """Count and release; once more with clamped numbers, if nobody declared bounds and their extremes would tell.

    ``clamp`` returns a plan with bounds of some numbers. They come from the data, so such a release cannot be saved.
    """
    counted = count(plan)
    released = release(counted, k, override=override)
    extreme = extreme_numbers(counted.plan, released.receipt.left_out)
    bounded = clamp(counted.plan, extreme) if extreme else counted.plan
    if bounded == counted.plan:
        return released
    return release(replace(count(bounded), bounds_declared=False), k, override=override)
