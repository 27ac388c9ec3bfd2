"""The promise, tried: what a distinguisher learns from releases of two neighbouring sets of people."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.privacy.epsilon.distinguisher import evidence_of, halfway, least_rho, neighbours

from kanab.plan.model import Budget
from kanab.privacy.epsilon import mechanism
from kanab.privacy.epsilon.account import epsilon_of
from kanab.privacy.epsilon.mechanism import Scale

pytest.importorskip("opendp")

BUDGET = Budget(10.0)
RUNS = 400


def learned() -> float:
    """The least ε that a mechanism must have that lets so much be learned."""
    both = neighbours()
    without, with_person = (evidence_of(counted, BUDGET, RUNS) for counted in both)
    return epsilon_of(least_rho(without, with_person, halfway(both, BUDGET)), BUDGET.delta)


def test_a_distinguisher_learns_something_and_no_more_than_is_promised() -> None:
    assert 4 < learned() < BUDGET.epsilon


def test_noise_that_is_too_small_by_a_factor_of_2_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = mechanism.draw

    def too_small(size: int, scale: Scale) -> list[int]:
        return draw(size, Scale(scale.unit, scale.influence, scale.deviation / 2)) if size else []

    monkeypatch.setattr(mechanism, "draw", too_small)
    assert learned() > BUDGET.epsilon


def test_the_bound_knows_the_divergence_of_normal_samples() -> None:
    """A threshold halfway tells 2 / π of the divergence of two normals that are close, and never more than all."""
    rng = np.random.default_rng(5)
    for rho in (0.05, 0.2):
        shift = np.sqrt(2 * rho)
        bound = least_rho(rng.normal(0, 1, 200_000), rng.normal(shift, 1, 200_000), shift / 2)
        assert 0.5 * rho < bound < 0.65 * rho
    assert least_rho(rng.normal(0, 1, 1000), rng.normal(0, 1, 1000), 0.0) == 0.0
