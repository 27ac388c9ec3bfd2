"""How ε is shared out: among tables by weight, in a table for the shortest interval of the plain effect."""

import copy
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2
from tests.unit.privacy.epsilon.shop import SHOP, SMALL, counted, people

from kanab.errors import SourceError
from kanab.plan.file import parse_plan
from kanab.plan.model import Budget, ExperimentPlan, MetricPlan, Plan
from kanab.privacy.epsilon import mechanism, noisy_release
from kanab.privacy.epsilon.accountant import spent_of
from kanab.privacy.epsilon.mechanism import Scale, add_noise, draw, random_bits, scale_for
from kanab.privacy.epsilon.rho import SpentRho, epsilon_of, rho_of, rho_per_person
from kanab.privacy.epsilon.split import Statistic, spent_by, split_budget, split_by_tables
from kanab.privacy.gate import release
from kanab.privacy.release_json import hash_of, release_from_dict, release_to_dict

pytest.importorskip("opendp")

PLAN = parse_plan(SHOP)


def cost(plan: Plan, rho: float = 0.3) -> dict[str, float]:
    return {name: sum(scale.rho for scale in table.values()) for name, table in split_budget(plan, rho).items()}


PAIRS = ("checkout/age/device", "checkout/age/tier", "checkout/device/tier")


def test_experiments_have_equal_shares_and_so_have_the_tables_of_each() -> None:
    shares = cost(PLAN)
    assert sum(shares.values()) == pytest.approx(0.3)
    assert shares["banner"] == pytest.approx(shares["checkout/banner"]) == pytest.approx(0.1)
    assert sum(shares[name] for name in PAIRS) == pytest.approx(shares["checkout"])
    own = {name: share for name, share in shares.items() if name.startswith("checkout") and name not in PAIRS}
    assert {round(share, 9) for name, share in own.items() if name != "checkout/banner"} == {round(0.1 / 6, 9)}
    assert spent_by(PLAN, split_budget(PLAN, 0.3)).costs == pytest.approx(
        {"checkout": 0.1, "banner": 0.1, "checkout/banner": 0.1}
    )


def test_declared_shares_go_first_and_the_others_have_what_is_left() -> None:
    budget = Budget(1.0, shares={"checkout": 0.5, "checkout/banner": 0.1})
    costs = spent_by(plan := replace(PLAN, budget=budget), split_budget(plan, 0.3)).costs
    assert costs == pytest.approx({"checkout": 0.15, "checkout/banner": 0.03, "banner": 0.12})


def test_releases_of_before_shared_it_among_all_tables_alike() -> None:
    shares = {n: sum(scale.rho for scale in table.values()) for n, table in split_by_tables(PLAN, 0.3).items()}
    assert {round(share, 9) for name, share in shares.items() if name not in PAIRS} == {round(0.3 / 8, 9)}


def test_weights_of_the_plan_share_out_what_there_is() -> None:
    budget = Budget(1.0, weights={"checkout": 3.0, "checkout/age/tier": 1.0})
    shares = cost(replace(PLAN, budget=budget))
    assert sum(shares.values()) == pytest.approx(0.3)
    assert shares["checkout"] == pytest.approx(3 * shares["checkout/tier"])
    assert shares["checkout/age/tier"] == pytest.approx(shares["checkout/tier"])
    assert shares["banner"] == pytest.approx(0.1)


def test_a_grid_that_is_coarser_than_its_bounds_still_has_noise() -> None:
    plan = Plan((MetricPlan("y", (0, 0.4), 1.0, missing="zero"),), (ExperimentPlan("x", (("A", 1), ("B", 1))),))
    assert split_budget(plan, 1.0)["x"][Statistic("sums", ("y",), ("x",))].deviation > 0


def test_squares_of_every_class_are_measured_where_a_plan_asks_for_them() -> None:
    plan = parse_plan(SMALL.replace("bounds = [0, 7]", 'bounds = [0, 7]\nsquares = "class"'))
    assert Statistic("squares", ("spend",), ("variant", "tier")) in split_budget(plan, 1.0)["variant/tier"]


def width(people: float, squares: float, *, n: int, mean: float, deviation: float, rho: float) -> float:
    """How long the interval of a plain effect is, for values between 0 and 1 and two arms of n people."""
    from scipy.stats import t  # noqa: PLC0415

    shares = np.array([people, 1.0, squares]) / (people + 1 + squares)
    of_people, of_sums, of_squares = np.array([1.0, 0.25, 1 / 16]) / (2 * rho * shares)
    off = mean - 0.5
    noise = (of_sums + off**2 * of_people) / n**2
    rss = n * deviation**2
    df = 2 * rss**2 / (2 * rss**2 / (n - 1) + of_squares + 4 * off**2 * of_sums + off**4 * of_people)
    return float(t.ppf(0.975, 2 * df) * np.sqrt(2 * (deviation**2 / n + noise)))


@pytest.mark.parametrize(("mean", "deviation"), [(0.1, 0.1), (0.1, 0.2), (0.05, 0.2)])
@pytest.mark.parametrize("n", [5_000, 25_000])
def test_the_shares_make_the_interval_nearly_as_short_as_any(n: int, mean: float, deviation: float) -> None:
    scales = split_budget(parse_plan(SMALL), 1.0)["variant"]
    costs = {statistic.kind: scale.rho for statistic, scale in scales.items()}
    people, squares = costs["people"] / costs["sums"], costs["squares"] / costs["sums"]
    case = {"n": n, "mean": mean, "deviation": deviation, "rho": 0.0244}
    tried = [width(p, s, **case) for p in np.geomspace(0.3, 3, 25) for s in np.geomspace(0.005, 2, 40)]
    assert width(people, squares, **case) < 1.02 * min(tried)


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


# ── releases that were changed ───────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def written() -> dict[str, Any]:
    return release_to_dict(release(counted(people())))


def test_a_release_is_read_whose_bins_have_nobody_without_a_value() -> None:
    made = release(counted(people(), SHOP.replace('missing = "exclude"', 'missing = "zero"')))
    read = release_from_dict(release_to_dict(made))
    assert read.tables == made.tables
    assert None not in read.tables["checkout/latency"].factor("latency").levels


def test_a_release_of_before_that_shared_its_epsilon_among_all_tables_alike_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(noisy_release, "split_budget", split_by_tables)
    made = release(counted(people()))
    read = release_from_dict(release_to_dict(made))
    assert read.tables == made.tables
    spent = spent_of(read)
    assert rho_per_person([spent]) == pytest.approx(rho_of(3, 1e-6))
    assert spent.costs["checkout"] == pytest.approx(6 * spent.costs["banner"])


GONE = object()


def pop_from_a_group(groups: list[Any]) -> list[Any]:
    return [[new, olds[:-1] if len(olds) > 1 else olds] for new, olds in groups]


@pytest.mark.parametrize(
    ("path", "new", "fact"),
    [
        (
            ("receipt", "noise", "scales", "checkout", "people by checkout"),
            1.0,
            "the noise that this release states",
        ),
        (("receipt", "noise", "epsilon"), 1.0, "the ε that this release states"),
        (("receipt", "noise", "mechanism"), "none", "the ε that this release states"),
        (("plan", "privacy"), GONE, "the ε that this release states"),
        (("levels", "checkout/tier"), GONE, "the levels of this release"),
        (("levels", "checkout/tier", "groups"), pop_from_a_group, "the levels of this release"),
        (
            ("tables", "checkout/age/tier"),
            lambda table: json.loads(json.dumps(table).replace('"A"', '"Z"')),
            "the levels of this release",
        ),
        (("tables", "checkout/tier"), GONE, "the levels of this release"),
        (("tables",), lambda tables: tables | {"elsewhere": tables["checkout"]}, "a table of this release"),
    ],
)
def test_a_release_whose_noise_is_not_that_of_its_plan_is_refused(
    written: dict[str, Any], path: tuple[str, ...], new: Any, fact: str
) -> None:
    other = copy.deepcopy(written)
    *way, last = path
    place = other
    for name in way:
        place = place[name]
    if new is GONE:
        del place[last]
    else:
        place[last] = new(place[last]) if callable(new) else new
    with pytest.raises(SourceError, match=f"^{fact} (is|are) not (those |that )?(of|in) its plan"):
        release_from_dict(other | {"hash": hash_of(other)})


# ── the sampler, and whole numbers that pass through ─────────────────────────────────────────────


@pytest.mark.parametrize("deviation", [0.7, 2.5])
def test_noise_has_the_probabilities_of_the_discrete_gaussian(deviation: float) -> None:
    size, edge = 8_000, int(3 * deviation) + 1
    values = np.array(draw(size, Scale(1, 1, deviation)))
    places = np.arange(-60, 61)
    weights = np.exp(-(places**2) / (2 * deviation**2))
    share = weights / weights.sum()
    inner = np.abs(places) < edge
    expected = size * np.array([share[places <= -edge].sum(), *share[inner], share[places >= edge].sum()])
    clipped = np.clip(values, -edge, edge)
    observed = np.array([(clipped == place).sum() for place in range(-edge, edge + 1)])
    statistic = float(((observed - expected) ** 2 / expected).sum())
    assert chi2.sf(statistic, len(expected) - 1) > 1e-6
    wrong = draw(size, Scale(1, 1, 1.2 * deviation))
    observed = np.array([(np.clip(wrong, -edge, edge) == place).sum() for place in range(-edge, edge + 1)])
    assert chi2.sf(float(((observed - expected) ** 2 / expected).sum()), len(expected) - 1) < 1e-6


def test_whole_numbers_beyond_doubles_and_64_bits_pass_through_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = np.array([[2**53 + 1, 2**70 + 3], [-(2**90) - 7, 0]], dtype=object)
    noise = iter([1, -2, 3, -4])
    monkeypatch.setattr(mechanism, "draw", lambda size, _: [next(noise) for _ in range(size)])
    noisy = add_noise(cells, Scale(1, 1, 5.0))
    assert (noisy - cells).tolist() == [[1, -2], [3, -4]]


def test_no_size_of_the_numbers_makes_drawing_fail() -> None:
    cells = np.array([2**200, -(2**200)], dtype=object)
    noisy = add_noise(cells, Scale(1, 1, 5.0))
    assert np.all(np.abs((noisy - cells).astype(float)) < 100)
    assert draw(0, Scale(1, 1, 5.0)) == []


def test_a_scale_costs_what_it_may() -> None:
    for influence in (1, 7, 10**6, 10**15, 10**30):
        scale = scale_for(influence, 0.001)
        assert scale.rho == pytest.approx(0.001)
        assert scale.deviation < 2**56
        assert scale.influence * scale.unit >= influence


def test_numbers_with_wide_bounds_are_rounded_to_units_before_noise() -> None:
    """One person more, by at most the influence, moves the rounded number by no more than is paid for."""
    scale = scale_for(10**30, 0.001)
    assert scale.unit > 1
    for value in (0, 17, 10**40 + 5):
        assert (value + 10**30) // scale.unit - value // scale.unit <= scale.influence
    noisy = add_noise(np.array([12345], dtype=object), scale)
    assert noisy[0] % scale.unit == 0
    assert scale.variance == pytest.approx((scale.deviation * scale.unit) ** 2)


def test_random_bits_are_as_many_as_asked_for() -> None:
    assert {*random_bits((50, 8), 2).ravel().tolist()} == {0, 1, 2, 3}
    assert {*random_bits((400,)).tolist()} == {0, 1}
    assert random_bits((0,)).shape == (0,)
