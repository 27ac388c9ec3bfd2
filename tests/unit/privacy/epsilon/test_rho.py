"""What ρ adds up to for one person, and what it is as ε."""

from __future__ import annotations

import math

import pytest

from kanab.plan.model import Budget
from kanab.privacy.epsilon.rho import SpentRho, epsilon_of, release_rho, rho_of, rho_per_person


def test_ten_experiments_of_epsilon_1_are_3_point_5_to_whoever_is_in_all_of_them() -> None:
    rho = rho_of(1, 1e-6)
    weekly = [SpentRho({f"week{week}": rho}, week - 1, week) for week in range(10)]
    assert epsilon_of(rho_per_person(weekly), 1e-6) == pytest.approx(3.49, abs=0.01)
    tenth = [SpentRho({f"week{week}": rho / 10}, week - 1, week) for week in range(10)]
    assert epsilon_of(rho_per_person(tenth), 1e-6) == pytest.approx(1)


def test_of_one_experiment_the_cohort_counts_that_costs_most() -> None:
    assert rho_per_person([SpentRho({"a": 0.1}, 0, 1), SpentRho({"a": 0.3}, 1, 2), SpentRho({"a": 0.2}, 2, 3)]) == 0.3


def test_a_cohort_that_is_in_two_batches_pays_for_both() -> None:
    batches = [SpentRho({"a": 0.1}, 0, 2), SpentRho({"a": 0.3}, 1, 3), SpentRho({"a": 0.2}, 3, 4)]
    assert rho_per_person(batches) == pytest.approx(0.4)
    assert rho_per_person([*batches, SpentRho({"a": 0.05})]) == pytest.approx(0.45)  # about everybody


def test_experiments_and_tables_of_two_add_up_over_other_cohorts() -> None:
    batches = [SpentRho({"a": 0.1, "b": 0.2, "a/b": 0.05}, 0, 1), SpentRho({"a": 0.2, "b": 0.1, "a/b": 0.05}, 1, 2)]
    assert rho_per_person(batches) == pytest.approx(0.45)


def test_of_experiments_that_exclude_each_other_the_largest_counts() -> None:
    apart = frozenset({frozenset("ab"), frozenset("bc")})
    assert rho_per_person([SpentRho({"a": 0.1, "b": 0.3, "c": 0.2}, apart=apart)]) == pytest.approx(0.5)
    three = apart | {frozenset("ac")}
    assert rho_per_person([SpentRho({"a": 0.1, "b": 0.3, "c": 0.2}, apart=three)]) == pytest.approx(0.3)


def test_what_ended_and_began_again_adds_up() -> None:
    again = [SpentRho({"a": 0.1}, 0, 1), SpentRho({"b": 0.1}, 1, 2), SpentRho({"a": 0.1}, 2, 3)]
    assert rho_per_person(again) == pytest.approx(0.3)


def test_exact_numbers_of_the_same_people_cost_everything() -> None:
    assert rho_per_person([SpentRho({"a": math.inf}), SpentRho({"a": 0.1})]) == math.inf
    assert epsilon_of(math.inf, 1e-6) == math.inf


def test_stores_share_the_total_and_a_release_may_have_less_of_it() -> None:
    assert release_rho(Budget(1.0, stores=4)) == pytest.approx(rho_of(1, 1e-6) / 4)
    assert release_rho(Budget(1.0, per_release=0.5)) == rho_of(0.5, 1e-6)
