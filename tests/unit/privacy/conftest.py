from collections.abc import Callable
from typing import Any

import pytest
from tests.described import as_values
from tests.unit.cli.conftest import program as program

from kanab.counted import Counted
from kanab.counting.in_memory import count_rows
from kanab.plan.model import Plan, make_plan

Counting = Callable[..., Counted]


@pytest.fixture(scope="session")
def counting() -> Counting:
    """Count a dict of columns by a plan, or with the covariates that it names; nothing is checked."""

    def count(people: dict[str, Any], plan: Plan | None = None, **choices: Any) -> Counted:
        return count_rows(people, plan or make_plan("arm", **as_values("make_plan", metrics=["y"], **choices)))

    return count
