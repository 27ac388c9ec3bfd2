"""What ρ adds up to for one person, and what it is as ε."""

from __future__ import annotations

import math

import pytest

from kanab.plan.model import Budget
from kanab.privacy.epsilon.rho import SpentRho, epsilon_of, release_rho, rho_of, rho_per_person

TWO_OF_THREE = frozenset({frozenset("ab"), frozenset("bc")})
BATCHES = [SpentRho({"a": 0.1}, 0, 2), SpentRho({"a": 0.3}, 1, 3), SpentRho({"a": 0.2}, 3, 4)]


@pytest.mark.parametrize(
    ("releases", "rho"),
    [
        # of one experiment the cohort counts that costs most, and one of two batches pays for both
        ([SpentRho({"a": 0.1}, 0, 1), SpentRho({"a": 0.3}, 1, 2), SpentRho({"a": 0.2}, 2, 3)], 0.3),
        (BATCHES, 0.4),
        ([*BATCHES, SpentRho({"a": 0.05})], 0.45),  # about everybody
        # experiments and tables of two add up over other cohorts
        ([SpentRho({"a": 0.1, "b": 0.2, "a/b": 0.05}, 0, 1), SpentRho({"a": 0.2, "b": 0.1, "a/b": 0.05}, 1, 2)], 0.45),
        # of experiments that exclude each other the largest counts
        ([SpentRho({"a": 0.1, "b": 0.3, "c": 0.2}, apart=TWO_OF_THREE)], 0.5),
        ([SpentRho({"a": 0.1, "b": 0.3, "c": 0.2}, apart=TWO_OF_THREE | {frozenset("ac")})], 0.3),
        # what ended and began again adds up
        ([SpentRho({"a": 0.1}, 0, 1), SpentRho({"b": 0.1}, 1, 2), SpentRho({"a": 0.1}, 2, 3)], 0.3),
        # exact numbers of the same people cost everything
        ([SpentRho({"a": math.inf}), SpentRho({"a": 0.1})], math.inf),
    ],
)
def test_what_releases_cost_one_person(releases: list[SpentRho], rho: float) -> None:
    assert rho_per_person(releases) == pytest.approx(rho)


def test_ten_experiments_of_epsilon_1_are_3_point_5_to_whoever_is_in_all_of_them() -> None:
    rho = rho_of(1, 1e-6)
    weekly = [SpentRho({f"week{week}": rho}, week - 1, week) for week in range(10)]
    assert epsilon_of(rho_per_person(weekly), 1e-6) == pytest.approx(3.49, abs=0.01)
    assert epsilon_of(math.inf, 1e-6) == math.inf


def test_stores_share_the_total_and_a_release_may_have_less_of_it() -> None:
    assert release_rho(Budget(1.0, stores=4)) == pytest.approx(rho_of(1, 1e-6) / 4)
    assert release_rho(Budget(1.0, per_release=0.5)) == rho_of(0.5, 1e-6)
