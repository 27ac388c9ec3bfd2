from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kanab as kb
from kanab.counted import Counted, Signatures
from kanab.plan import Plan, make_plan

Counting = Callable[..., Counted]


@pytest.fixture(scope="session")
def counting() -> Counting:
    """Count a dict of columns by a plan, with the covariates that it names."""

    def count(people: dict[str, Any], plan: Plan | None = None, **choices: Any) -> Counted:
        plan = plan or make_plan("arm", ["y"], **choices)
        tallies = {
            link.name: kb.count_columns(
                people,
                arm=list(link.experiments),
                covariates=[link.covariate] if link.covariate else [],
                metrics={one.name: one.metric() for one in plan.metrics},
                squares="arm" if link.squares == "arm" else "margins",
            )
            for link in plan.linkages
        }
        nobody = Signatures((), np.empty((0, 0), dtype=np.int64), np.empty(0, dtype=np.int64))
        return Counted(plan, tallies, nobody)

    return count
