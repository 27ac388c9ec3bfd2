"""Looks at effects and sample ratios: verdicts, p-values and intervals that agree, and false alarms over all looks."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, optimize, stats
from tests.benchmarks import load_benchmark
from tests.unit.stats.shaped_means import arms_of, rates_of

from kanab import count_columns
from kanab.datasets import eighteen
from kanab.errors import AnalysisError
from kanab.stats import count_nonmodal, difference_in_means
from kanab.stats.sequential import (
    any_time_f_p,
    any_time_look,
    chance_of_finding,
    log_evidence,
    log_evidence_of_counts,
    mixture_z,
    not_stopping,
    planned_f_p,
    planned_look,
    sample_ratio_any_time,
    tuning,
)
from kanab.stats.spending import boundaries
from kanab.stats.srm import log_evidence_with_noise


def effect(shift=0.0, n=2000, seed=1, **choices):
    rng = np.random.default_rng(seed)
    arm = np.repeat(["A", "B"], n // 2)
    rows = {"arm": arm, "y": rng.normal(size=n) + shift * (arm == "B")}
    return difference_in_means(count_columns(rows, arm="arm", metrics=["y"], resolution={"y": 1e-6}), **choices)


# ── planned looks ──────────────────────────────────────────────────────────────────────────────


def test_a_planned_look_has_the_boundary_of_its_design():
    look = planned_look(effect(), [400, 800, 1200], looks=5)
    third = boundaries([0.2, 0.4, 0.6, 0.8, 1.0])[2]
    assert (look.look, look.looks, look.fraction) == (3, 5, 0.6)
    assert (look.z, look.nominal, look.spent) == pytest.approx((third.z, third.nominal, third.spent), rel=1e-12)


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
@pytest.mark.parametrize("shift", [-0.3, -0.12, 0.0, 0.1, 0.12, 0.3])
def test_verdict_p_and_interval_of_a_look_agree(alternative, shift):
    seen = effect(shift, alternative=alternative)
    for look in (
        planned_look(seen, [1000, 2000], looks=3),
        planned_look(seen, [1000, 2000], looks=3, spending="pocock"),
        any_time_look(seen, 2000),
    ):
        low, high = look.interval
        assert (look.verdict == "may stop") == (look.p <= 0.05) == (low > 0 or high < 0) == (seen.p <= look.nominal)
        assert low <= seen.estimate <= high
        assert look.p >= seen.p


def test_what_does_not_vary_is_not_testable():
    rows = {"arm": ["A", "A", "B", "B"], "y": [2, 2, 2, 2]}
    flat = difference_in_means(count_columns(rows, arm="arm", metrics=["y"]))
    for look in (planned_look(flat, [4], looks=2), any_time_look(flat, 4)):
        assert (look.p, look.interval, look.verdict) == (None, None, "keep going")
        assert "not testable, nothing varies; keep going" in str(look)


def test_a_look_that_may_spend_nothing_says_nothing():
    look = planned_look(effect(0.5), [1, 2000], planned=10**7)
    assert look.nominal < 1e-300
    assert look.verdict == "keep going"
    assert planned_look(effect(0.5), [1], planned=10**7).interval == (-math.inf, math.inf)


def test_a_p_of_zero_still_has_a_sequential_p():
    seen = replace(effect(5.0), p=0.0)
    assert 0 < planned_look(seen, [400], looks=5).p < 1e-50
    assert 0 < any_time_look(seen, 2000).p < 1e-150
    assert any_time_look(replace(effect(-5.0, alternative="greater"), p=1.0), 2000).p == 1.0


@pytest.mark.parametrize(
    ("people", "design", "fact"),
    [
        ([100, 200, 300], {"looks": 2}, "more looks than planned"),
        ([100, 300], {"planned": 250}, "more people than planned"),
        ([100, 300, 400], {"planned": 250, "last": True}, "more people than planned"),
        ([300, 200], {"looks": 5}, "people do not grow"),
        ([200, 200], {"looks": 5}, "people do not grow"),
        ([10_000, 10_001], {"looks": 5}, "more looks than information"),
        ([], {"looks": 5}, "people must be positive numbers"),
        ([100], {}, "number of looks or its number of people"),
        ([100], {"looks": 5, "planned": 1000}, "number of looks or its number of people"),
        ([100], {"looks": 0}, "number of looks or its number of people"),
        ([100], {"planned": 99.5}, "number of looks or its number of people"),
        ([100], {"looks": 5, "spending": "all"}, "unknown spending function"),
    ],
)
def test_impossible_designs_are_refused_with_a_remedy(people, design, fact):
    with pytest.raises(AnalysisError, match=fact) as problem:
        planned_look(effect(), people, **design)
    assert problem.value.remedy
    assert "300" not in str(problem.value)


def test_planned_looks_read_as_sentences():
    assert str(planned_look(effect(), [400, 800], looks=5)).endswith("; keep going until look 3")
    assert str(planned_look(effect(), [400], planned=20_000)).endswith(
        "keep going until the planned 20,000 people, or an earlier look"
    )
    assert str(planned_look(effect(1.0), [400, 800], looks=5)).startswith("look 2 of 5: p = ")
    assert str(planned_look(effect(1.0), [400, 800], looks=5)).endswith("; you may stop")
    assert str(planned_look(effect(), [400], looks=1)).endswith("; the design has ended without a finding")


# ── at any time ────────────────────────────────────────────────────────────────────────────────


def test_the_interval_is_narrowest_compared_with_the_ordinary_one_where_it_is_tuned():
    z = {n: any_time_look(effect(), n).z for n in (1_000, 5_000, 10_000, 20_000, 100_000)}
    assert min(z, key=z.get) == 10_000
    assert z[10_000] == pytest.approx(3.0351, abs=1e-4)
    assert any_time_look(effect(), 50_000, optimal_at=50_000).z == pytest.approx(z[10_000], rel=1e-12)


def test_the_people_it_would_take_are_those_at_which_the_effect_reaches_the_boundary():
    seen = effect(0.1, seed=3)
    look = any_time_look(seen, 2000)
    assert (look.verdict, look.until) == ("keep going", 6100)
    there = replace(seen, se_population=seen.se_population * math.sqrt(2000 / look.until))
    later = any_time_look(there, look.until)
    assert later.interval[0] == pytest.approx(0, abs=0.02 * seen.estimate)
    assert str(look).endswith("; keep going, about 6,100 people if the effect stays as it is")


def test_an_effect_near_zero_has_no_forecast():
    look = any_time_look(replace(effect(), p=0.999), 2000)
    assert look.until is None
    assert str(look).endswith("; keep going")
    assert any_time_look(effect(-0.2, alternative="greater"), 2000).until is None


@pytest.mark.parametrize("people", [0, -5, 2.5, True])
def test_people_are_whole_numbers(people):
    with pytest.raises(AnalysisError, match="people must be a positive whole number"):
        any_time_look(effect(), people)
    with pytest.raises(AnalysisError, match="optimal_at must be a positive whole number"):
        any_time_look(effect(), 2000, optimal_at=people)


@pytest.mark.parametrize(("events", "begun"), [((400, 19), False), ((400, 20), True), ((9, 400), False)])
def test_any_time_does_not_begin_before_each_arm_has_twenty_people_off_the_commonest_value(events, begun):
    tally = rates_of(A=(events[0], 4_000), B=(events[1], 2_000))
    fewest = min(count_nonmodal(tally).values())
    seen = difference_in_means(tally)
    look = any_time_look(seen, 6_000, nonmodal=fewest)
    assert seen.p < 1e-6
    assert look.begun == begun
    if begun:
        assert look == any_time_look(seen, 6_000)
    else:
        assert (look.p, look.interval, look.nominal, look.verdict, look.until) == (1.0, None, 0.0, "keep going", None)
        assert str(look) == (
            "at any time: p = 1.000; not yet, at least 20 people with another value than the commonest are needed "
            "in each arm"
        )


def test_nothing_varies_before_it_begins_either():
    flat = difference_in_means(rates_of(A=(0, 50), B=(0, 50)), test="welch")
    assert any_time_look(flat, 100, nonmodal=0.0).p is None


@pytest.mark.slow
def test_at_one_percent_in_a_small_arm_any_time_rings_in_less_than_one_study_of_twenty():
    """50 looks up to 50,000 people, a tenth of them in B; without the twenty people it rings in 18 of 100."""
    rng = np.random.default_rng(2)
    studies, looks = 60, 50
    people = np.stack([np.arange(1, looks + 1) * 900, np.arange(1, looks + 1) * 100], axis=1)
    ones = np.stack([rng.binomial(n, 0.01, (studies, looks)).cumsum(axis=1) for n in (900, 100)], axis=2)
    rang = 0
    for events in ones.tolist():
        tallies = [rates_of(A=(now[0], n[0]), B=(now[1], n[1])) for now, n in zip(events, people.tolist(), strict=True)]
        rang += any(
            any_time_look(difference_in_means(tally), tally.total, nonmodal=min(count_nonmodal(tally).values())).verdict
            == "may stop"
            for tally in tallies
        )
    assert rang <= 3


# ── F tests ────────────────────────────────────────────────────────────────────────────────────


def test_an_f_of_one_degree_of_freedom_is_read_at_any_time_as_its_effect_is():
    seen = effect(0.15)
    assert any_time_f_p(seen.p, 1, 2000, confidence=0.95) == pytest.approx(any_time_look(seen, 2000).p, rel=1e-9)
    assert any_time_f_p(1.0, 4, 2000, confidence=0.95) == 1.0
    assert 0 < any_time_f_p(0.0, 4, 2000, confidence=0.95) < 1e-150


@pytest.mark.parametrize("df", [1, 3, 8])
def test_an_f_rings_over_five_looks_or_at_any_time_no_more_than_it_may(df):
    """20,000 experiments without effect: a χ² of Brownian motions in df directions."""
    rng = np.random.default_rng(df)
    paths = rng.normal(size=(20_000, 5, df)).cumsum(axis=1)
    p = stats.chi2.sf((paths**2).sum(axis=2) / np.arange(1, 6), df)
    people = (np.arange(5) + 1) * 2000
    for spending in ("pocock", "obrien-fleming"):
        levels = [
            optimize.brentq(
                lambda level, n=n, spending=spending: planned_f_p(
                    math.exp(level), people[: n + 1].tolist(), looks=5, spending=spending
                )
                - 0.05,
                math.log(1e-12), math.log(0.05),
            )
            for n in range(5)
        ]  # fmt: skip
        assert 0.02 < np.mean((p <= np.exp(levels)).any(axis=1)) < 0.05
    grid = np.geomspace(1e-9, 0.05, 400)
    limits = [
        max((level for level in grid if any_time_f_p(level, df, n, confidence=0.95) <= 0.05), default=0.0)
        for n in people.tolist()
    ]
    assert np.mean((p <= limits).any(axis=1)) < 0.05


# ── the sample ratio ───────────────────────────────────────────────────────────────────────────


def test_the_sample_ratio_at_any_time_is_more_cautious_than_chi_square():
    ratio = sample_ratio_any_time(arms_of(A=5200, B=4800))
    assert ratio.now.p < 1e-4 < ratio.p < 0.01
    assert ratio.p == pytest.approx(math.exp(-ratio.log_evidence))
    assert str(ratio) == "sample ratio at any time against equal shares (none were declared): p = 0.00221"


# ── false alarms over all looks ────────────────────────────────────────────────────────────────


bench = load_benchmark("bench_sequential")
ROOM = 3.5 * np.sqrt(0.05 * 0.95 / 1000)


@pytest.mark.slow
def test_the_ratio_of_noisy_people_rings_rarely_over_all_batches_and_not_if_noise_is_ignored():
    rng, variance, batches = np.random.default_rng(3), 300.0, 20
    shares, concentration, rings = np.array([0.5, 0.5]), 2_000 / tuning(0.01, 2), {True: 0, False: 0}
    for _ in range(150):
        people = rng.multinomial(500, shares, batches) + np.rint(rng.normal(0, math.sqrt(variance), (batches, 2)))
        for known in rings:
            evidence = [
                log_evidence_with_noise(row, shares, np.full(2, variance * (place + 1) * known), concentration)
                for place, row in enumerate(people.cumsum(axis=0))
            ]
            rings[known] += max(evidence) > math.log(20)
    assert rings[True] <= 7
    assert rings[False] > 30


@pytest.mark.parametrize("case", [bench.CASES[0], bench.CASES[1], bench.CASES[4]], ids=lambda case: case.name)
def test_looking_96_times_rings_falsely_as_planned_and_not_as_with_every_p(case):
    sizes = bench.sizes(case, 1000, seed=7)
    assert sizes["every p"] > 0.25
    assert sizes["O'Brien-Fleming"] == pytest.approx(0.05, abs=ROOM)
    assert sizes["Pocock"] == pytest.approx(0.05, abs=ROOM)
    assert sizes["any time"] < 0.05


# ── mixtures: evidence that is valid at any time ────────────────────────────────────────────────────


@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize("share", [0.05, 1.0, 30.0])
def test_the_expected_evidence_is_one_where_there_is_no_effect(sides, share):
    found, _ = integrate.quad(
        lambda z: math.exp(log_evidence(z, share, 0.05, sides) + stats.norm.logpdf(z)), -200, 200, points=[0], limit=200
    )
    assert found == pytest.approx(1, abs=1e-7)


def test_the_boundary_is_the_published_confidence_sequence():
    # Waudby-Smith et al. (2024): width σ sqrt(2 (tρ² + 1) / (t²ρ²) · log(sqrt(tρ² + 1) / α)).
    alpha, t, best = 0.05, np.array([50.0, 500.0, 5000.0]), 500.0
    rho2 = tuning(alpha, 2) / best
    published = np.sqrt(2 * (t * rho2 + 1) / (t**2 * rho2) * np.log(np.sqrt(t * rho2 + 1) / alpha))
    assert mixture_z(t / best, alpha, 2) / np.sqrt(t) == pytest.approx(published, rel=1e-13)


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.9, 0.1), (0.5, 0.3, 0.2)])
def test_the_evidence_of_counts_is_exactly_fair(shares):
    n = 7
    total = math.fsum(
        stats.multinomial.pmf(counts, n, shares) * math.exp(log_evidence_of_counts(counts, shares, 25.0))
        for counts in itertools.product(range(n + 1), repeat=len(shares))
        if sum(counts) == n
    )
    assert total == pytest.approx(1, rel=1e-12)


def test_looks_with_noise_drawn_anew_have_what_is_newly_spent_and_keep_their_size():
    effect = difference_in_means(eighteen())
    usual, anew = (planned_look(effect, [10, 20, 40], looks=3, spending="pocock", anew=each) for each in (False, True))
    first = planned_look(effect, [10], looks=3, spending="pocock", anew=True)
    assert first.nominal == pytest.approx(planned_look(effect, [10], looks=3, spending="pocock").nominal)
    assert anew.nominal < usual.nominal
    earlier = planned_look(effect, [10, 20], looks=3, spending="pocock").spent
    assert anew.nominal == pytest.approx(anew.spent - earlier)
    assert planned_look(replace(effect, p=anew.nominal), [10, 20, 40], looks=3, spending="pocock", anew=True).p == (
        pytest.approx(0.05)
    )
    assert planned_look(replace(effect, p=None), [10, 20], looks=3, anew=True).p is None
    rng, runs = np.random.default_rng(3), 40_000
    times = np.array([0.25, 0.5, 0.75, 1.0])
    drifting = np.cumsum(rng.normal(0, 0.5, (runs, 4)), axis=1)
    z = np.abs(drifting + rng.normal(0, 1, (runs, 4))) / np.sqrt(times + 1)  # half of the last variance is noise
    looks = {each: [planned_look(effect, [*range(1, n + 1)], looks=4, anew=each).z for n in (1, 2, 3, 4)]
             for each in (False, True)}  # fmt: skip
    assert np.mean((z > looks[True]).any(axis=1)) <= 0.05
    assert np.mean((z > looks[False]).any(axis=1)) > 0.055


# ── how it ends, and when the rest can hardly change anything ──────────────────────────────────


def chance_by_integration(z, t, c, sides, mean):
    """Integrate over where z may be at the end, given where it is and the mean that it would have there."""

    def density(end):
        return stats.norm.pdf(end, z * math.sqrt(t) + mean * (1 - t), math.sqrt(1 - t))

    above = integrate.quad(density, c, c + 30, limit=200)[0]
    return above + (integrate.quad(density, -c - 30, -c, limit=200)[0] if sides == 2 else 0.0)


@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize(("z", "t", "c"), [(0.5, 0.5, 1.96), (1.4, 0.25, 2.02), (0.0, 0.75, 2.9), (2.1, 0.9, 2.4)])
def test_the_chance_of_a_finding_is_the_integral_over_all_ends(z, t, c, sides):
    for mean in (1.0, 2.8):
        expected = chance_by_integration(z, t, c, sides, mean)
        assert chance_of_finding(z, t, c, sides, mean) == pytest.approx(expected, abs=1e-9)
    known = stats.norm(z / math.sqrt(t), 1 / math.sqrt(t))  # of the mean at the end, where nothing was expected before

    def weighed(mean):
        return known.pdf(mean) * chance_by_integration(z, t, c, sides, mean)

    middle, reach = known.mean(), 8 * known.std()
    expected = integrate.quad(weighed, middle - reach, middle + reach, limit=200)[0]
    assert chance_of_finding(z, t, c, sides) == pytest.approx(expected, abs=1e-6)


def test_a_planned_look_knows_the_last_boundary_of_its_design():
    seen = effect(0.02)
    z, error = -stats.norm.ppf(seen.p / 2), seen.se_population
    last_z = boundaries([0.2, 0.4, 0.6, 0.8, 1.0])[-1].z
    predictive = planned_look(seen, [1000, 2000], looks=5).chance
    assert predictive == pytest.approx(chance_of_finding(z, 0.4, last_z, 2), rel=1e-9)
    conditional = planned_look(seen, [1000, 2000], looks=5, worth=0.1).chance
    expected = chance_of_finding(z, 0.4, last_z, 2, 0.1 / (error * math.sqrt(0.4)))
    assert conditional == pytest.approx(expected, rel=1e-9)
    by_people = planned_look(seen, [1000, 2000], planned=5000).chance  # of which no look but the last is known
    alone = boundaries([0.2, 0.4, 1.0])[-1].z
    assert by_people == pytest.approx(chance_of_finding(z, 0.4, alone, 2), rel=1e-9)


def test_the_chance_of_a_finding_is_of_looks_that_are_left_and_can_be_tested():
    seen = effect(0.02)
    assert planned_look(seen, [1000, 2000], looks=2).chance is None
    assert planned_look(seen, [2000], looks=5, last=True).chance is None
    assert planned_look(seen, [1999], planned=2000).chance is None  # no look could follow so soon
    assert planned_look(seen, [2000], looks=5, anew=True).chance is None
    assert planned_look(replace(seen, p=None), [2000], looks=5).chance is None
    for worth in (0.0, -0.1, math.inf):
        with pytest.raises(AnalysisError, match="worth must be a positive number"):
            planned_look(seen, [2000], looks=5, worth=worth)


def test_any_time_reading_ends_with_the_planned_people_or_by_word():
    seen = effect(0.08, seed=3)
    going = any_time_look(seen, 2000, planned=8000)
    assert (going.verdict, going.until, going.fraction) == ("keep going", None, 0.25)
    assert str(going).endswith("; keep going until the planned 8,000 people, or an earlier look")
    z, last_z = -stats.norm.ppf(seen.p / 2), float(mixture_z(np.array(0.8), 0.05, 2))
    assert going.chance == pytest.approx(1.4 * chance_of_finding(z, 0.25, last_z, 2), rel=1e-9)
    for ended in (any_time_look(seen, 2000, planned=2000), any_time_look(seen, 2000, last=True)):
        assert (ended.verdict, ended.until, ended.fraction, ended.chance) == ("ended", None, 1.0, None)
        assert (ended.p, ended.interval) == (going.p, going.interval)
        assert str(ended).endswith("; the design has ended without a finding")
    assert any_time_look(seen, 9000, planned=8000).verdict == "ended"
    clear = effect(0.5)
    assert any_time_look(clear, 2000, planned=2000).verdict == "may stop"
    assert not_stopping(any_time_look(clear, 2000, planned=2000)).verdict == "ended"
    assert not_stopping(any_time_look(clear, 2000, planned=8000)).verdict == "keep going"
    rare = any_time_look(seen, 2000, planned=2000, nonmodal=3)
    assert (rare.verdict, rare.begun, rare.interval) == ("ended", False, None)
    with pytest.raises(AnalysisError, match="planned must be a positive whole number"):
        any_time_look(seen, 2000, planned=0)


def test_any_time_reading_ends_when_all_that_is_possible_is_less_than_what_is_worth_having():
    seen = effect()
    low, high = any_time_look(seen, 2000).interval
    reach = max(-low, high)
    ended = any_time_look(seen, 2000, worth=reach * 1.001)
    assert (ended.verdict, ended.until) == ("ended", None)
    assert not_stopping(ended).verdict == "ended"
    assert any_time_look(seen, 2000, worth=reach * 0.999).verdict == "keep going"
    clear = effect(0.3)
    assert any_time_look(clear, 2000, worth=1.0).verdict == "may stop"
