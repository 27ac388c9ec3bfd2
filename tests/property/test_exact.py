"""Where floating point is not good enough the oracle is exact: rational arithmetic on the rows.

Large means, and levels millions of standard deviations apart, must cost no digits.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import isqrt

import numpy as np
import pytest

from kanab import Metric, count_columns
from kanab.stats import adjusted_effect, difference_in_means, fit, follow_ups, nested_f, pooled_f, robust_f

TOLERANCE = 1e-11
STEPS = 1024  # steps per unit and per standard deviation; a power of two, so that rows are exact doubles

MEANS = [0, 10**3, 10**6, 10**9, 10**12]
GAPS = [0, 10**3, 10**6, 10**9, 10**12]
WORLDS = [(mean, 0) for mean in MEANS] + [(0, gap) for gap in GAPS[1:]] + [(10**9, 10**9), (10**12, 10**12)]


@dataclass(frozen=True)
class World:
    """People: arms 0/1, tiers 0/1/2 and values in steps (whole numbers)."""

    arm: tuple[int, ...]
    tier: tuple[int, ...]
    y: tuple[int, ...]

    def tally(self):
        rows = {
            "arm": np.array(["A", "B"])[list(self.arm)],
            "tier": np.array(self.tier),
            "y": np.array(self.y, dtype=np.int64) / STEPS,
        }
        return count_columns(rows, arm="arm", covariates=["tier"], metrics={"y": Metric("y", STEPS)}, squares="class")

    def cells(self):
        found = {}
        for arm, tier, y in zip(self.arm, self.tier, self.y, strict=True):
            found.setdefault((arm, tier), []).append(y)
        return {key: found[key] for key in sorted(found)}


@cache
def world(mean, gap, n=150, seed=1, levels=3):
    """Sd 1 about a mean; levels a gap apart; the arm's effect and the interaction are a fraction of the sd."""
    rng = np.random.default_rng(seed)
    arm, tier = (rng.uniform(size=n) < 0.35).astype(int), rng.integers(0, levels, n)
    noise = np.rint(rng.normal(size=n) * STEPS + 0.3 * STEPS * arm + 0.2 * STEPS * arm * (tier == 2)).astype(int)
    y = tuple(int(e) + STEPS * (mean + gap * int(level)) for e, level in zip(noise, tier, strict=True))
    return World(tuple(arm.tolist()), tuple(tier.tolist()), y)


def columns(people, formula):
    """The rows of a design, in whole numbers."""
    rows = []
    for a, t in zip(people.arm, people.tier, strict=True):
        rows.append(
            {
                "1": [1],
                "C(tier)": [1, t == 1, t == 2],
                "arm": [1, a],
                "arm + tier": [1, a, t],
                "arm * tier": [1, a, t, a * t],
                "arm + C(tier)": [1, a, t == 1, t == 2],
                "arm * C(tier)": [1, a, t == 1, t == 2, a * (t == 1), a * (t == 2)],
            }[formula]
        )
    return [[int(x) for x in row] for row in rows]


def inverse(matrix):
    """Gauss and Jordan, in fractions."""
    size = len(matrix)
    work = [[Fraction(x) for x in row] + [Fraction(int(i == j)) for j in range(size)] for i, row in enumerate(matrix)]
    for i in range(size):
        pivot = next(j for j in range(i, size) if work[j][i])
        work[i], work[pivot] = work[pivot], work[i]
        work[i] = [x / work[i][i] for x in work[i]]
        for j in range(size):
            if j != i and work[j][i]:
                work[j] = [x - work[j][i] * z for x, z in zip(work[j], work[i], strict=True)]
    return [row[size:] for row in work]


def least_squares(x, y, weights=None):
    """b, residuals' weighted squares, and (X'WX)⁻¹, exactly."""
    weights = weights or [1] * len(y)
    size = len(x[0])
    xtx = [[sum(w * r[i] * r[j] for r, w in zip(x, weights, strict=True)) for j in range(size)] for i in range(size)]
    xty = [sum(w * r[i] * v for r, v, w in zip(x, y, weights, strict=True)) for i in range(size)]
    inv = inverse(xtx)
    b = [sum(p * q for p, q in zip(row, xty, strict=True)) for row in inv]
    rss = sum(
        w * (v - sum(p * q for p, q in zip(r, b, strict=True))) ** 2 for r, v, w in zip(x, y, weights, strict=True)
    )
    return b, rss, inv


@cache
def exact_fit(people, formula):
    return least_squares(columns(people, formula), [Fraction(v, STEPS) for v in people.y])


def off(found, expected):
    """Relative error of a float, against the exact number."""
    return float(abs(Fraction(float(found)) - expected) / abs(expected))


def root_off(found, squared):
    """Relative error of a float that should be a square root."""
    digits = 10**40
    return off(found, Fraction(isqrt(squared.numerator * digits**2 // squared.denominator), digits))


def worst(*errors):
    return max(errors, default=0.0)


@pytest.mark.parametrize("formula", ["arm", "arm + tier", "arm * tier", "arm + C(tier)", "arm * C(tier)"])
@pytest.mark.parametrize(("mean", "gap"), WORLDS)
def test_coefficients_errors_and_residual_squares_of_a_fit_are_exact(mean, gap, formula):
    people = world(mean, gap)
    ours = fit(people.tally(), formula)
    b, rss, inv = exact_fit(people, formula)
    assert off(ours.rss, rss) <= TOLERANCE
    assert worst(*(off(x, exact) for x, exact in zip(ours.b, b, strict=True))) <= TOLERANCE
    assert worst(*(root_off(se, inv[i][i] * rss / ours.df) for i, se in enumerate(ours.se))) <= TOLERANCE


@pytest.mark.parametrize("formula", ["arm", "arm * tier", "arm * C(tier)"])
@pytest.mark.parametrize(("mean", "gap"), WORLDS)
def test_the_anova_of_a_fit_is_exact(mean, gap, formula):
    people = world(mean, gap)
    ours = fit(people.tally(), formula).anova
    _, rss, _ = exact_fit(people, formula)
    _, total, _ = exact_fit(people, "1")
    assert off(ours.ss[0], total - rss) <= TOLERANCE
    assert off(ours.F, (total - rss) / ours.df[0] / (rss / ours.df[1])) <= TOLERANCE


@pytest.mark.parametrize(("mean", "gap"), [(0, 0), (10**9, 0), (0, 1), (0, 10**3), (0, 10**6), (0, 10**9)])
def test_fits_of_fifty_levels_are_exact(mean, gap):
    people = world(mean, gap, n=600, levels=50)
    ours = fit(people.tally(), "arm * tier")
    b, rss, inv = exact_fit(people, "arm * tier")
    assert off(ours.rss, rss) <= TOLERANCE
    assert worst(*(off(x, exact) for x, exact in zip(ours.b[1:], b[1:], strict=True))) <= TOLERANCE
    assert worst(*(root_off(se, inv[i][i] * rss / ours.df) for i, se in enumerate(ours.se))) <= TOLERANCE


@pytest.mark.parametrize(("mean", "gap"), [(0, 0), (10**9, 0), (0, 1), (0, 10**3), (0, 10**6), (0, 10**9)])
def test_comparisons_and_adjusted_effects_of_fifty_levels_are_exact(mean, gap):
    people = world(mean, gap, n=600, levels=50)
    (_, main, _), (_, full, _) = (exact_fit(people, formula) for formula in ("arm + tier", "arm * tier"))
    test = nested_f(people.tally(), "arm + tier", "arm * tier")
    assert off(test.F, (main - full) / (full / int(test.df[1]))) <= TOLERANCE
    ours = adjusted_effect(people.tally(), covariates="tier")
    estimate, sample, population = exact_adjusted(people, "tier")
    assert off(ours.estimate, estimate) <= TOLERANCE
    assert worst(root_off(ours.se, sample), root_off(ours.se_population, population)) <= TOLERANCE


@pytest.mark.parametrize(("mean", "gap"), WORLDS)
def test_the_pooled_f_is_exact(mean, gap):
    people = world(mean, gap)
    _, main, _ = exact_fit(people, "arm + C(tier)")
    _, full, _ = exact_fit(people, "arm * C(tier)")
    assert off(pooled_f(people.tally()).F, (main - full) / 2 / (full / (len(people.y) - 6))) <= TOLERANCE


@pytest.mark.parametrize(
    "pair",
    [("arm + tier", "arm * tier"), ("arm + C(tier)", "arm * C(tier)"), ("arm", "arm + tier"), ("1", "arm * C(tier)"),
     ("arm", "arm * C(tier)"), ("C(tier)", "arm + C(tier)")],
)  # fmt: skip
@pytest.mark.parametrize(("mean", "gap"), WORLDS)
def test_the_nested_f_is_exact(mean, gap, pair):
    people = world(mean, gap)
    ours = nested_f(people.tally(), *pair)
    (_, main, _), (_, full, _) = (exact_fit(people, formula) for formula in pair)
    q, df = ours.df
    assert off(ours.F, (main - full) / int(q) / (full / int(df))) <= TOLERANCE


def exact_robust(people, by):
    """The recipe of the robust F in fractions; M_cc and M_cc'² are rational though M is not."""
    cells = people.cells()
    n = {key: len(ys) for key, ys in cells.items()}
    mean = {key: Fraction(sum(ys), n[key]) for key, ys in cells.items()}
    within = {key: sum((y - mean[key]) ** 2 for y in ys) for key, ys in cells.items()}
    group = {key: key if by == "by_class" else key[0] for key in cells}
    blocks = {v: [key for key in cells if group[key] == v] for v in group.values()}
    freedom = {v: sum(n[key] - 1 for key in keys) for v, keys in blocks.items()}
    variance = {v: sum(within[key] for key in keys) / freedom[v] for v, keys in blocks.items()}
    weight = {key: n[key] / variance[group[key]] for key in cells}
    x = {(a, t): [1, a, int(t == 1), int(t == 2)] for a, t in cells}
    _, j, inv = least_squares(list(x.values()), list(mean.values()), list(weight.values()))
    q = len(cells) - 4

    def hat(c, d):
        return sum(x[c][i] * inv[i][k] * x[d][k] for i in range(4) for k in range(4))

    t = {v: sum(1 - weight[c] * hat(c, c) for c in keys) for v, keys in blocks.items()}
    u = {
        v: sum((int(c == d) - 2 * int(c == d) * weight[c] * hat(c, c) + weight[c] * weight[d] * hat(c, d) ** 2)
               for c in keys for d in keys)
        for v, keys in blocks.items()
    }  # fmt: skip
    h1, h2 = (sum(part[v] / freedom[v] for v in blocks) for part in ({v: t[v] ** 2 for v in t}, u))
    return j / q / (1 + 2 * (q * h2 - h1) / (q * (q + 2))), q * (q + 2) / (h1 + 2 * h2)


@pytest.mark.parametrize("by", ["by_class", "by_arm"])
@pytest.mark.parametrize(("mean", "gap"), WORLDS)
def test_the_robust_f_is_exact(mean, gap, by):
    people = world(mean, gap)
    ours = robust_f(people.tally(), variance=by)
    f, df = exact_robust(people, by)
    assert worst(off(ours.F, f), off(ours.df[1], df)) <= TOLERANCE


@pytest.mark.parametrize(("mean", "gap"), WORLDS)
def test_the_difference_in_means_is_exact(mean, gap):
    people = world(mean, gap)
    ours = difference_in_means(people.tally())
    groups = [[Fraction(y, STEPS) for y, a in zip(people.y, people.arm, strict=True) if a == arm] for arm in (0, 1)]
    means = [sum(ys) / len(ys) for ys in groups]
    parts = [sum((y - m) ** 2 for y in ys) / (len(ys) * (len(ys) - 1)) for ys, m in zip(groups, means, strict=True)]
    df = sum(parts) ** 2 / sum(part**2 / (len(ys) - 1) for part, ys in zip(parts, groups, strict=True))
    assert off(ours.estimate, means[1] - means[0]) <= TOLERANCE
    assert root_off(ours.se, sum(parts)) <= TOLERANCE
    assert off(ours.df, df) <= TOLERANCE


def exact_adjusted(people, covariate, variance="exact"):
    """Estimate, sample and population variance of Lin's effect, in fractions."""
    coded = {"tier": lambda t: [t], "C(tier)": lambda t: [int(t == 1), int(t == 2)]}[covariate]
    z = [coded(t) for t in people.tier]
    n, p = len(z), len(z[0])
    centre = [Fraction(sum(row[i] for row in z), n) for i in range(p)]
    about = [[row[i] - centre[i] for i in range(p)] for row in z]
    sxx = [[sum(row[i] * row[j] for row in about) for j in range(p)] for i in range(p)]
    alpha, slopes, own = [], [], []
    for arm in (0, 1):
        inside = [i for i in range(n) if people.arm[i] == arm]
        x, y = [[1, *about[i]] for i in inside], [Fraction(people.y[i], STEPS) for i in inside]
        b, rss, inverse = least_squares(x, y)
        alpha.append(b[0])
        slopes.append(b[1:])
        share = inverse[0][0] if variance == "exact" else Fraction(1, len(inside))
        own.append(rss * share / (len(inside) - 1 - p))
    gap = [two - one for one, two in zip(*slopes, strict=True)]
    drawn = sum(gap[i] * sxx[i][j] * gap[j] for i in range(p) for j in range(p)) / (n * (n - 1))
    return alpha[1] - alpha[0], sum(own), sum(own) + drawn


@pytest.mark.parametrize("covariate", ["tier", "C(tier)"])
@pytest.mark.parametrize(("mean", "gap"), WORLDS)
def test_the_adjusted_effect_and_its_sample_error_are_exact(mean, gap, covariate):
    people = world(mean, gap)
    for variance in ("exact", "paper"):
        ours = adjusted_effect(people.tally(), covariates=covariate, variance=variance)
        estimate, sample, _ = exact_adjusted(people, covariate, variance)
        assert off(ours.estimate, estimate) <= TOLERANCE
        assert root_off(ours.se, sample) <= TOLERANCE


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("covariate", ["tier", "C(tier)"])
@pytest.mark.parametrize(("mean", "gap"), WORLDS)
def test_the_population_error_of_the_adjusted_effect_is_exact(mean, gap, covariate, seed):
    people = world(mean, gap, seed=seed)
    ours = adjusted_effect(people.tally(), covariates=covariate)
    _, _, population = exact_adjusted(people, covariate)
    assert root_off(ours.se_population, population) <= TOLERANCE


def exact_follow_ups(people):
    """Per level: the effect there and the effect in the rest."""
    cells = people.cells()
    means = {key: Fraction(sum(ys), len(ys) * STEPS) for key, ys in cells.items()}
    effect = {t: means[1, t] - means[0, t] for t in (0, 1, 2)}
    size = {t: len(cells[1, t]) + len(cells[0, t]) for t in (0, 1, 2)}
    total = sum(size[t] * effect[t] for t in effect)
    return {t: (effect[t], (total - size[t] * effect[t]) / (sum(size.values()) - size[t])) for t in effect}


@pytest.mark.parametrize(("mean", "gap"), WORLDS)
def test_effects_of_follow_ups_and_their_differences_are_exact(mean, gap):
    people = world(mean, gap)
    expected = exact_follow_ups(people)
    for comparison in follow_ups(people.tally()):
        here, rest = expected[comparison.level]
        found = (comparison.effect, comparison.rest, comparison.difference)
        assert worst(*map(off, found, (here, rest, here - rest))) <= TOLERANCE


def digits(tally):
    """Every number that is computed from a tally, as text."""
    found = [fit(tally, formula) for formula in ("arm + tier", "arm * C(tier)")]
    numbers = [repr((one.b.tolist(), one.se.tolist(), one.p.tolist(), one.rss, one.anova.F)) for one in found]
    tests = [pooled_f(tally), *(robust_f(tally, variance=kind) for kind in ("by_class", "two_marginals", "by_arm"))]
    effects = [difference_in_means(tally), adjusted_effect(tally), adjusted_effect(tally, covariates="C(tier)")]
    return [*numbers, repr(tests), repr(effects), repr(follow_ups(tally)), repr(nested_f(tally, "arm", "arm + tier"))]


@pytest.mark.parametrize("mean", MEANS[1:])
def test_a_common_shift_never_changes_a_digit_of_an_error_a_test_or_an_effect(mean):
    before, after = world(0, 0).tally(), world(mean, 0).tally()
    one, two = fit(before, "arm * C(tier)"), fit(after, "arm * C(tier)")
    assert (one.se.tolist(), one.rss, one.b[1:].tolist()) == (two.se.tolist(), two.rss, two.b[1:].tolist())
    assert digits(before)[2:] == digits(after)[2:]
