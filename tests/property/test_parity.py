"""From classes exactly as from rows: kanab against statsmodels and SciPy on the people themselves.

Values are drawn on the metric's grid, so that both sides see the same numbers.
"""

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.anova import anova_lm

from kanab import Metric, count_columns
from kanab.errors import DesignError
from kanab.stats import contrast, fit, plain_means, pooled_f

TOLERANCE = 1e-9
SCALE = 100
ARMS = np.array(["A", "B", "C", "D", "E"])
DEVICES = np.array(["pc", "phone", "tv", "watch"])

quick = settings(max_examples=60, derandomize=True, deadline=None)


@dataclass(frozen=True)
class World:
    """People of one experiment, as rows and as a tally of the same people."""

    rows: pd.DataFrame
    tally: object

    @property
    def there(self):
        """The people who have a value."""
        return self.rows[self.rows["y"].notna()].reset_index(drop=True)


def values(rng, kind, mean):
    """Heavy tails, counts, yes/no or plain noise about a mean, on the grid."""
    n = len(mean)
    y = {
        "plain": lambda: mean + rng.normal(size=n),
        "heavy": lambda: mean + rng.standard_t(2.2, n) * 5,
        "amounts": lambda: np.exp(rng.normal(0, 1.5, n)) * (rng.uniform(size=n) < 0.5) + np.abs(mean),
        "counts": lambda: rng.poisson(np.abs(mean) + 0.3),
        "yes/no": lambda: rng.uniform(size=n) < 0.3 + 0.4 / (1 + np.exp(-mean)),
    }[kind]()
    return np.rint(np.asarray(y, dtype=float) * SCALE) / SCALE


@st.composite
def worlds(draw, least_arms=2, holes=True):
    """Random arms, levels, imbalance, empty classes, kinds of values and missing values."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    arms, tiers, devices = draw(st.integers(least_arms, 5)), draw(st.integers(2, 5)), draw(st.integers(1, 4))
    n = draw(st.integers(60, 400))
    uneven = draw(st.sampled_from([50.0, 2.0, 0.7]))
    arm, tier, device = (rng.choice(k, n, p=rng.dirichlet([uneven] * k)) for k in (arms, tiers, devices))
    if holes and draw(st.booleans()):
        gone = rng.uniform(size=(arms, tiers)) < 0.25
        keep = ~gone[arm, tier]
        keep[:20] = True
        arm, tier, device = arm[keep], tier[keep], device[keep]
    scores = np.sort(rng.choice([-3, -1, 0, 1, 2, 2.5, 4, 7, 10], tiers, replace=False))
    mean = rng.normal(size=arms)[arm] + rng.normal(size=(arms, tiers))[arm, tier] + rng.normal(size=devices)[device]
    rows = pd.DataFrame({"arm": ARMS[arm], "tier": scores[tier], "device": DEVICES[device]})
    rows["y"] = values(rng, draw(st.sampled_from(["plain", "heavy", "amounts", "counts", "yes/no"])), mean)
    if draw(st.booleans()):
        rows.loc[rng.uniform(size=len(rows)) < 0.15, "y"] = np.nan
    metric = Metric("y", SCALE, missing="exclude")
    return World(rows, count_columns(rows, arm="arm", covariates=["tier", "device"], metrics={"y": metric}))


def near(found, expected, size=0.0):
    """Within 1e-9 of the expected number, or of the size of what it is compared with."""
    room = TOLERANCE * np.maximum(np.abs(expected), size) + 1e-300
    worst = np.max(np.abs(np.asarray(found) - expected) / room)
    assert worst <= 1, f"{worst * TOLERANCE:.2e} relative"


def statsmodels_fit(formula, rows):
    """OLS on rows; None where its design has not full rank or nobody is left over."""
    model = smf.ols(f"y ~ {formula}", rows)
    scaled = model.exog / np.maximum(np.linalg.norm(model.exog, axis=0), 1e-300)
    singular = np.linalg.svd(scaled, compute_uv=False)
    if singular[-1] < 1e-7 or model.exog.shape[0] <= model.exog.shape[1]:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # statsmodels divides by a zero total where nothing varies
        return model.fit()


FORMULAS = [
    "arm", "arm + tier", "arm + C(tier)", "arm * tier", "arm * C(tier)", "arm + tier + device", "tier + tier:arm + arm",
    "arm * device + C(tier)", "C(tier)", "arm * tier * device",
]  # fmt: skip


@pytest.mark.slow
@quick
@given(world=worlds(), formula=st.sampled_from(FORMULAS))
def test_a_fit_from_classes_is_the_fit_from_rows(world, formula):
    theirs = statsmodels_fit(formula, world.there)
    if theirs is None or len(set(world.there["arm"])) < 2:
        return
    ours = fit(world.tally, formula, confidence=0.9)
    order = matching(ours, theirs)
    assert (ours.n, ours.df) == (theirs.nobs, theirs.df_resid)
    if theirs.ssr < 1e-18 * max(theirs.centered_tss, 1e-9):
        return  # nothing is left to estimate an error from
    b, se = theirs.params.to_numpy()[order], theirs.bse.to_numpy()[order]
    near(ours.b, b, se)
    near(ours.se, se)
    near(ours.t, theirs.tvalues.to_numpy()[order], 1)
    near(ours.p, theirs.pvalues.to_numpy()[order], np.abs(theirs.pvalues.to_numpy()[order]) * (1 + ours.t**2))
    near(ours.intervals, theirs.conf_int(0.1).to_numpy()[order], se[:, None])
    near(ours.rss, theirs.ssr)
    near(ours.covariance, theirs.cov_params().to_numpy()[np.ix_(order, order)], np.outer(se, se))
    if theirs.df_model:
        near(ours.r2, theirs.rsquared, 1)
        near(ours.anova.F, theirs.fvalue, 1)
        near(ours.anova.p, theirs.f_pvalue, theirs.f_pvalue * (1 + theirs.df_model * theirs.fvalue))
        near(ours.anova.ss, [theirs.ess, theirs.ssr, theirs.centered_tss], theirs.ssr)


def matching(ours, theirs):
    """Where our coefficients stand among theirs: the columns mean the same whatever they are called."""
    names = {
        name.replace("[T.", "[").replace("C(tier)", "tier"): place for place, name in enumerate(theirs.params.index)
    }
    names = {"Intercept" if name == "Intercept" else plain(name): place for name, place in names.items()}
    return [names[plain(name)] for name in ours.names]


def plain(name):
    parts = sorted(part.replace(".0]", "]") for part in name.split(":"))
    return ":".join(parts)


@pytest.mark.slow
@quick
@given(world=worlds(), formula=st.sampled_from(FORMULAS))
def test_a_design_is_refused_exactly_when_the_rows_cannot_identify_it(world, formula):
    people = world.there
    model = smf.ols(f"y ~ {formula}", people)
    rank = np.linalg.matrix_rank(model.exog / np.maximum(np.linalg.norm(model.exog, axis=0), 1e-300), tol=1e-8)
    identified = rank == model.exog.shape[1] < len(people)
    try:
        found = fit(world.tally, formula)
    except DesignError:
        assert not identified
    else:
        # A single arm or level makes no column here and none there.
        assert found.df == len(people) - rank
        assert identified


@quick
@given(world=worlds(), side=st.sampled_from(["two-sided", "greater", "less"]))
def test_a_difference_in_means_is_welchs(world, side):
    groups = {arm: part.to_numpy() for arm, part in world.there.groupby("arm")["y"]}
    usable = [arm for arm, part in groups.items() if len(part) > 1]
    if len(usable) < 2:
        return
    tally = world.tally.select_arms(usable)
    means = plain_means(tally)
    for arm in usable[1:]:
        ours = contrast(means, {arm: 1, usable[0]: -1}, alternative=side)
        near(ours.estimate, groups[arm].mean() - groups[usable[0]].mean(), ours.se)
        if np.ptp(groups[arm]) == np.ptp(groups[usable[0]]) == 0:
            assert not ours.testable
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # SciPy warns where one of the groups does not vary
            theirs = stats.ttest_ind(groups[arm], groups[usable[0]], equal_var=False, alternative=side)
        near([ours.t, ours.df], [theirs.statistic, theirs.df], 1)
        near(ours.p, theirs.pvalue, theirs.pvalue * (1 + ours.t**2))
        ends = [place for place in (0, 1) if np.isfinite(ours.interval[place])]
        near(np.array(ours.interval)[ends], np.array(theirs.confidence_interval(0.95))[ends], ours.se)


@pytest.mark.slow
@quick
@given(world=worlds(), covariate=st.sampled_from(["tier", "device"]))
def test_a_pooled_f_is_the_anova_of_the_rows_even_with_empty_classes(world, covariate):
    people = world.there
    main, full = (smf.ols(f"y ~ C(arm) {sign} C({covariate})", people) for sign in "+*")
    ours = pooled_f(world.tally, covariate)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # statsmodels warns of the empty classes' columns
        main, full = main.fit(), full.fit()
        q, df = full.df_model - main.df_model, full.df_resid
        cells = people.groupby(["arm", covariate])["y"]
        within = float(((people["y"] - cells.transform("mean")) ** 2).sum())
        if q < 1 or df < 1 or within < 1e-12:
            assert ours.F is None
            return
        table = anova_lm(main, full)
        f, p, extra = full.compare_f_test(main)
    assert ours.df == (q, df)
    # statsmodels subtracts two sums of squares; its own rounding is that of the larger one.
    rounding = main.ssr / full.ssr * df / q * 1e-14 / TOLERANCE
    near(ours.F, f, 1 + rounding)
    near(ours.F, table["F"].iloc[1], 1 + rounding)
    near(ours.p, p, p * (1 + ours.F * q) + rounding)
    assert extra == q
