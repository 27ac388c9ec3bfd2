"""The promise, tried: what a distinguisher learns from releases of two neighbouring sets of people."""

import random
from typing import Any

import numpy as np
import pytest
from tests.unit.privacy.epsilon.distinguisher import evidence_of, halfway, least_rho, neighbours
from tests.unit.privacy.epsilon.shop import counted, people

import kanab as kb
from kanab.plan.model import Budget
from kanab.privacy.epsilon import mechanism, noisy_release
from kanab.privacy.epsilon.mechanism import Scale
from kanab.privacy.epsilon.rho import epsilon_of, rho_of

pytest.importorskip("opendp")

BUDGET = Budget(10.0)
RUNS = 400


def learned() -> float:
    """The least ε that a mechanism must have that lets so much be learned."""
    both = neighbours()
    without, with_person = (evidence_of(each, BUDGET, RUNS) for each in both)
    return epsilon_of(least_rho(without, with_person, halfway(both, BUDGET)), BUDGET.delta)


@pytest.mark.slow
def test_a_distinguisher_learns_something_and_no_more_than_is_promised() -> None:
    assert 4 < learned() < BUDGET.epsilon


@pytest.mark.slow
def test_noise_that_is_too_small_by_a_factor_of_2_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = mechanism.draw

    def too_small(size: int, scale: Scale) -> list[int]:
        return draw(size, Scale(scale.unit, scale.influence, scale.deviation / 2)) if size else []

    monkeypatch.setattr(mechanism, "draw", too_small)
    assert learned() > BUDGET.epsilon


EXTREMES = {
    "spend": (-9, 500), "orders": (0, 99), "before": (-70, 999), "latency": (np.nan, 0, 1e6), "cancelled": (0, 1),
}  # fmt: skip
"""The ends of every metric, beyond its bounds where it has any."""


def asked_of(rows: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Scale]]:
    """Every exact array that noise would be added to in one release, with its scale; all answers are constants."""
    arrays: list[tuple[Any, Scale]] = []

    def noted(cells: Any, scale: Scale) -> Any:
        arrays.append((cells, scale))
        return np.full(cells.shape, 5_000 if scale.influence == 1 else 0, dtype=object)

    with monkeypatch.context() as patched:
        patched.setattr(noisy_release, "add_noise", noted)
        kb.release(counted(rows))
    return arrays


@pytest.mark.parametrize("seed", range(6))
def test_whoever_is_added_costs_at_most_what_the_release_promises(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """ρ is the sum of half the squared distance of both answers over the variance of the noise, over all arrays."""
    draw = random.Random(seed)
    rows = people(300)
    newcomer = {name: draw.choice(values) for name, values in EXTREMES.items()}
    newcomer |= {name: draw.choice(list(rows[name])) for name in rows.keys() - newcomer.keys()}
    more = {name: np.append(values, newcomer[name]) for name, values in rows.items()}
    before, after = asked_of(rows, monkeypatch), asked_of(more, monkeypatch)
    assert len(before) == len(after) > 40
    spent = 0.0
    for (old, scale), (new, same) in zip(before, after, strict=True):
        assert scale == same
        moved = [(int(b) - int(a)) / scale.unit for a, b in zip(old.ravel(), new.ravel(), strict=True)]
        spent += sum(step**2 for step in moved) / (2 * scale.deviation**2)
    promised = rho_of(3, 1e-6)
    assert 0.3 * promised < spent <= promised * (1 + 1e-9)
