"""Releases with ε under attack: noise is not taken for a fact, and who knows all people but one learns little."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.stats import norm
from tests.unit.privacy.epsilon.test_accountant import ROWS, counted

import kanab as kb
from kanab.inspection.attack.all_but_one import ALL_BUT_ONE, try_all_but_one
from kanab.inspection.attack.background import place_people
from kanab.inspection.attack.published import AttackedRelease, published_from_dict
from kanab.inspection.attack.run import DOES, ONLY_NOISE, play_attacker
from kanab.privacy.epsilon.account import rho_of
from kanab.privacy.release_json import release_to_dict


def attacked(released: kb.Release) -> AttackedRelease:
    return published_from_dict(release_to_dict(released), "shop.json")


def test_with_epsilon_no_attack_takes_noise_for_a_fact() -> None:
    made = attacked(kb.release(counted("epsilon = 1")))
    assert made.noise == (1, 1e-6)
    known = place_people({"variant": ROWS["variant"], "device": ROWS["device"]}, [made])
    assert not known.tables
    report = play_attacker([made], known, exact=True)
    assert not report.broken
    assert {attempt.attack: attempt.not_tried for attempt in report.attempts} == {
        **dict.fromkeys(DOES, ONLY_NOISE),
        ALL_BUT_ONE: "",
    }


def test_who_knows_all_but_one_guesses_as_often_as_the_noise_allows() -> None:
    right = norm.cdf(np.sqrt(2 * rho_of(1, 1e-6)) / 2)
    assert f"right in {100 * right:.1f} % of cases; a coin does in 50 %" in try_all_but_one([noisy(1)]).does
    assert right < np.exp(1) / (1 + np.exp(1)) + 1e-6  # what ε alone allows
    twice = try_all_but_one([noisy(1), noisy(1)])
    assert f"right in {100 * norm.cdf(np.sqrt(4 * rho_of(1, 1e-6)) / 2):.1f} %" in twice.does
    weeks = [replace(noisy(1), cohorts=f"2026-W{week}") for week in (37, 38)]
    assert try_all_but_one(weeks).does == try_all_but_one([noisy(1)]).does


def test_a_large_epsilon_is_broken() -> None:
    assert [finding.people for finding in try_all_but_one([noisy(60)]).findings] == [1]
    assert not try_all_but_one([noisy(2)]).findings


def noisy(epsilon: float) -> AttackedRelease:
    return AttackedRelease("shop.json", (), noise=(epsilon, 1e-6))


def test_a_release_that_only_says_that_it_has_noise_is_attacked_as_it_is() -> None:
    exact = release_to_dict(kb.release(kb.count(ROWS, kb.make_plan("variant", ["bought"], adjust=["device"]))))
    exact["tables"]["variant"] = kb.count(ROWS, kb.make_plan("variant", ["bought"])).tallies["variant"].to_dict()
    exact["receipt"]["noise"] = {"epsilon": 1, "delta": 1e-6}
    assert published_from_dict(exact, "shop.json").noise is None


def test_exact_releases_beside_are_attacked_as_ever() -> None:
    plain = attacked(kb.release(kb.count(ROWS, kb.make_plan("variant", ["bought"]))))
    alone, both = play_attacker([plain]), play_attacker([plain, attacked(kb.release(counted("epsilon = 1")))])
    assert both.attempts[:-1] == alone.attempts
    assert both.attempts[-1].attack == ALL_BUT_ONE
