"""Every number of the paper's worked examples, recomputed without its misprints.

The figures come from ``statistics.md`` §6 (full precision) and from the paper's tables (as printed). A figure given
as text must agree to half a unit of its last digit; beside that, coefficients and residual sums of squares must equal
the rational solution of the normal equations to a few units in the last place of a double.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

import kanab as kb
from kanab.datasets import eighteen, eighteen_rows

MAIN, FULL = "arm + C(tier)", "arm * C(tier)"
STEPS = 10**9
ULPS = 1e-14  # what the last digits of a double may differ by between machines


def to_its_digits(text: str) -> Any:
    """Equal to half a unit of the last digit given."""
    exponent = Decimal(text).as_tuple().exponent
    assert isinstance(exponent, int)
    return pytest.approx(float(text), rel=ULPS, abs=0.5000001 * 10.0**exponent)


def all_to_their_digits(text: str) -> list[Any]:
    return [to_its_digits(part) for part in text.split()]


def exactly(value: Fraction) -> Any:
    return pytest.approx(float(value), rel=ULPS, abs=0)


@pytest.fixture(scope="module")
def tally() -> kb.Tally:
    return eighteen()


@pytest.fixture(scope="module")
def altered() -> kb.Tally:
    return eighteen(altered=True)


@pytest.fixture(scope="module")
def demeaned(altered: kb.Tally) -> kb.Tally:
    """The paper's Table 6B: the covariate's values minus their pooled mean, 35/18."""
    return altered.coarsen("tier", {}, scores={tier: tier - 35 / 18 for tier in (1, 2, 3)})


# ── Tables 1 to 3: rows, classes, squares ──────────────────────────────────────────────────────


def test_table_1_is_the_paper_s_in_the_order_of_users():
    rows = eighteen_rows()
    assert rows["treatment"] == ["A"] * 9 + ["B"] * 9
    assert rows["tier"] == [1, 2, 3] * 6
    assert rows["minutes"] == [
        1.035051833, 2.052761778, 0.818065309, 0.445755940, 2.192969747, 1.351287088, 0.690041547, 1.965163288,
        0.885217757, 0.836158231, 0.224290470, 2.689670150, 0.286027328, 0.668558807, 2.138392457, 0.300483978,
        0.816659567, 2.406463861,
    ]  # fmt: skip


def test_table_2_has_six_classes_of_three_people_with_these_sums(tally):
    assert tally.people.tolist() == [[3, 3, 3], [3, 3, 3]]
    # R4 is printed as 1.422669536; Table 1 adds up to …537
    assert tally.moments_of("minutes").sums.tolist() == [
        [2170849320, 6210894813, 3054570154],
        [1422669537, 1709508844, 7234526468],
    ]


@pytest.mark.parametrize(("arm", "place", "squares", "printed"), [
    ("A", 0, "17.9098200898989", "17.910"),
    ("B", 1, "19.6335889126438", "19.634"),
])  # fmt: skip
def test_table_3_has_these_squares_per_arm(tally, arm, place, squares, printed):
    found = tally.squares("minutes")[place] / STEPS**2
    assert tally.factor("arm").levels[place] == arm
    assert found == to_its_digits(squares)
    assert found == to_its_digits(printed)


def test_pooled_squares_are_their_sum(tally):
    assert kb.stats.fit(tally, MAIN).tss == to_its_digits("37.5434090025428")


def test_squares_of_class_r1_are_not_the_hypothetical_ones():
    per_class = kb.count_columns(
        eighteen_rows(), arm="treatment", covariates=["tier"], metrics=["minutes"], resolution={"minutes": 1e-9},
        squares="class",
    )  # fmt: skip
    assert per_class.squares("minutes", ("arm", "tier"))[0, 0] / STEPS**2 == to_its_digits("1.7462")


def test_the_printed_tables_2_and_3_are_read_as_the_same_tally(tally):
    table2 = {
        "Treatment": list("AAABBB"), "Covariate": [1, 2, 3] * 2, "Count": [3] * 6,
        "Sum Time on App": [2.170849320, 6.210894813, 3.054570154, 1.422669536, 1.709508844, 7.234526468],
    }  # fmt: skip
    table3 = {"Treatment": ["A", "B"], "Time on App²": ["17.9098200898989", "19.6335889126438"]}
    read = kb.counting.read_classes(table2, table3)
    assert read.metrics[0].name == "Time on App"
    assert read.people.tolist() == tally.people.tolist()
    sums = read.moments_of().sums / read.metrics[0].scale
    assert sums.ravel().tolist() == pytest.approx((tally.moments_of().sums / STEPS).ravel().tolist(), rel=0, abs=1.1e-9)
    f = kb.stats.pooled_f(read).F
    assert f == pytest.approx(41.7046498, rel=1e-7, abs=0)


# ── §3: a visitor arrives, spends 4, comes back and spends 2 more ──────────────────────────────


def _visitor(tally: kb.Tally, minutes: float) -> kb.Tally:
    row = {"treatment": ["B"], "tier": [3], "minutes": [minutes]}
    return kb.count_columns(
        row, arm="treatment", covariates=["tier"], metrics={"minutes": tally.metrics[0]}, squares="arm"
    )


def test_a_visitor_who_spends_4_makes_r6_four_people_and_b_s_squares_35_634(tally):
    after = tally + _visitor(tally, 4.0)
    assert after.people[1, 2] == 4
    assert after.moments_of().sums[1, 2] / STEPS == to_its_digits("11.23")
    assert after.squares()[1] / STEPS**2 == to_its_digits("35.634")


def test_the_same_visitor_spending_2_more_raises_squares_by_20(tally):
    first = tally + _visitor(tally, 4.0)
    second = first - _visitor(tally, 4.0) + _visitor(tally, 6.0)
    assert second.people.tolist() == first.people.tolist()
    assert second.squares()[1] - first.squares()[1] == 20 * STEPS**2


# ── §6 and §7: main effects ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("what", "figures"), [
    ("b", "0.658342556056 -0.118845493111 0.721147466667 1.115929627500"),
    ("se", "0.338716133705 0.338716133705 0.414840847613 0.414840847613"),
    ("t", "1.943640974094 -0.350870482050 1.738371403917 2.690018675649"),
    ("b", "0.6583 -0.1188 0.7211 1.1159"),
    ("se", "0.3387 0.3387 0.4148 0.4148"),
    ("t", "1.9436 -0.3509 1.7384 2.6900"),
    ("p", "0.0723 0.7309 0.1041 0.0176"),
])  # fmt: skip
def test_main_effects_have_the_reference_and_the_printed_figures(tally, what, figures):
    assert getattr(kb.stats.fit(tally, MAIN), what).tolist() == all_to_their_digits(figures)


def test_main_effects_gram_matrix_its_inverse_xty_and_rss_are_the_printed_ones(tally):
    fitted = kb.stats.fit(tally, MAIN)
    assert (fitted.n, fitted.df) == (18, 14)
    assert fitted.rss == to_its_digits("7.22790301161416")
    assert fitted.rss / fitted.df == to_its_digits("0.5163")
    assert fitted.xtx.tolist() == [[18, 9, 6, 6], [9, 9, 3, 3], [6, 3, 6, 0], [6, 3, 0, 6]]  # made of counts
    assert fitted.xty.tolist() == all_to_their_digits("21.8030 10.3667 7.9204 10.2891")  # made of sums
    assert fitted.xty.tolist() == [
        exactly(Fraction(value, STEPS)) for value in (21803019136, 10366704849, 7920403657, 10289096622)
    ]
    inverse = fitted.covariance / (fitted.rss / fitted.df)
    printed = [
        "0.2222 -0.1111 -0.1667 -0.1667",
        "-0.1111 0.2222 0.0000 0.0000",
        "-0.1667 0.0000 0.3333 0.1667",
        "-0.1667 0.0000 0.1667 0.3333",
    ]
    assert inverse.tolist() == [all_to_their_digits(row) for row in printed]


def test_table_5_anova_is_about_the_mean(tally):
    fitted = kb.stats.fit(tally, MAIN)
    anova = fitted.anova
    assert anova.df == (3, 14, 17)
    assert list(anova.ss) == all_to_their_digits("3.9060 7.2279 11.1339")
    assert [ss / df for ss, df in zip(anova.ss[:2], anova.df[:2], strict=True)] == all_to_their_digits("1.3020 0.5163")
    assert [anova.F, anova.p] == all_to_their_digits("2.5219 0.1000")
    # the footnote: Excel's total is Σ y² minus (Σ y)²/n
    assert fitted.tss - fitted.xty[0] ** 2 / fitted.n == pytest.approx(anova.ss[2], rel=1e-14, abs=0)


# ── §8: the full model and the partial F ───────────────────────────────────────────────────────


def test_full_model_is_the_printed_one(tally):
    fitted = kb.stats.fit(tally, FULL)
    assert (fitted.n, fitted.df) == (18, 12)
    assert fitted.rss == to_its_digits("0.909081572737122")
    for figures in (
        "0.72361644 -0.24939326 1.34668183 0.29457361 -1.25106873 1.64271203",
        "0.7236 -0.2494 1.3467 0.2946 -1.2511 1.6427",
    ):
        assert fitted.b.tolist() == all_to_their_digits(figures)
    assert fitted.xty.tolist() == all_to_their_digits("21.8030 10.3667 7.9204 10.2891 1.7095 7.2345")
    assert fitted.xtx.tolist() == [
        [18, 9, 6, 6, 3, 3],
        [9, 9, 3, 3, 3, 3],
        [6, 3, 6, 0, 3, 0],
        [6, 3, 0, 6, 0, 3],
        [3, 3, 3, 0, 3, 0],
        [3, 3, 0, 3, 0, 3],
    ]


@pytest.mark.parametrize(("formula", "explained"), [(MAIN, "30.316"), (FULL, "36.634")])
def test_regression_sums_of_squares_about_zero_are_the_printed_ones(tally, formula, explained):
    fitted = kb.stats.fit(tally, formula)
    assert fitted.b @ fitted.xtx @ fitted.b == to_its_digits(explained)
    assert fitted.tss - fitted.rss == to_its_digits(explained)


@pytest.mark.parametrize("how", ["classes", "nested formulas", "two fits", "a pair of experiments"])
def test_partial_f_is_41_7046_however_it_is_asked_for(tally, how):
    if how == "two fits":
        main, full = kb.stats.fit(tally, MAIN), kb.stats.fit(tally, FULL)
        f, df, p = (main.rss - full.rss) / 2 / (full.rss / 12), (main.df - full.df, full.df), None
    else:
        pair = kb.count_columns(
            eighteen_rows(), arm=["treatment", "tier"], metrics=["minutes"], resolution={"minutes": 1e-9}
        )
        test = {
            "classes": lambda: kb.stats.pooled_f(tally),
            "nested formulas": lambda: kb.stats.nested_f(tally, MAIN, FULL),
            "a pair of experiments": lambda: kb.stats.pooled_f(pair),
        }[how]()
        f, df, p = test.F, test.df, test.p
    assert f == to_its_digits("41.7046498028901")
    assert f == to_its_digits("41.705")
    assert df == (2, 12)
    assert p is None or p == to_its_digits("3.95861467139e-6")


def test_robust_f_by_arm_is_the_golden_one(tally):
    test = kb.stats.robust_f(tally)
    assert test.variance == "by_arm"
    assert test.note == "assumes equal variance across levels"
    assert [test.F, *test.df, test.p] == all_to_their_digits("41.70464980289008 2 11.602611174621845 5.0364e-6")


def _dummies(*, full: bool) -> list[list[int]]:
    rows = []
    for b in (0, 1):
        for tier in (1, 2, 3):
            two, three = int(tier == 2), int(tier == 3)
            rows.append([1, b, two, three, *([b * two, b * three] if full else [])])
    return rows


@pytest.mark.parametrize(("formula", "full"), [(MAIN, False), (FULL, True)])
@pytest.mark.parametrize("moved", [False, True])
def test_fits_are_the_rational_solution_to_the_last_digits(exact_ols, formula, full, moved):
    tally = eighteen(altered=moved)
    part = tally.moments_of()
    sums = [Fraction(value, STEPS) for value in part.sums.ravel()]
    squares = Fraction(int(tally.squares().sum()), STEPS**2)
    b, rss = exact_ols(_dummies(full=full), tally.people.ravel().tolist(), sums, squares)
    fitted = kb.stats.fit(tally, formula)
    assert fitted.b.tolist() == [exactly(value) for value in b]
    assert fitted.rss == exactly(rss)


def test_partial_f_is_the_rational_one_to_the_last_digits(tally, exact_ols):
    sums = [Fraction(value, STEPS) for value in tally.moments_of().sums.ravel()]
    squares = Fraction(int(tally.squares().sum()), STEPS**2)
    main, full = (exact_ols(_dummies(full=full), [3] * 6, sums, squares)[1] for full in (False, True))
    f = kb.stats.pooled_f(tally).F
    assert f == exactly((main - full) / 2 / (full / 12))


# ── §10: regression adjustment on the altered table ────────────────────────────────────────────


def test_table_6a_has_moved_user_9_to_level_2(altered):
    assert altered.people.tolist() == [[3, 4, 2], [3, 3, 3]]
    sums = (altered.moments_of().sums / STEPS).ravel().tolist()
    printed = [
        2.17084932005864,
        7.09611256990949,
        2.16935239750738,
        1.42266953605589,
        1.70950884373810,
        7.23452646813504,
    ]
    assert sums == pytest.approx(printed, rel=0, abs=2e-9)  # the paper's Table 1 has nine decimals
    assert sums[1] == to_its_digits("7.10")  # printed once as 7.01


def test_pooled_mean_of_the_covariate_is_1_9444(altered):
    people = altered.people_by("tier")
    assert Fraction(sum(tier * n for tier, n in people.items()), altered.total) == Fraction(35, 18)


@pytest.mark.parametrize(("arm", "xtx", "xty", "b", "squares", "rss"), [
    (
        "A", ["9 -0.5", "-0.5 4.9167"], ["11.436314287 0.633853870722", "11.436 0.6339"],
        ["1.285124367722 0.259610045", "1.285 0.2596"], "17.9098 14.8616 3.0482", "3.04817909084",
    ),  # two misprints: 0.256 for the slope, and one in X'y
    (
        "B", ["9 0.5", "0.5 6.0278"], ["10.366704849 6.387784978167", "10.367 6.388"],
        ["1.098042604231 0.968642821833", "1.098 0.969"], "19.6336 17.5706 2.0630", "2.06302325643",
    ),
])  # fmt: skip
def test_each_arm_has_the_reference_and_the_printed_fit_without_misprints(demeaned, arm, xtx, xty, b, squares, rss):
    fitted = kb.stats.fit(demeaned.select_arms([arm]), "tier")
    assert fitted.xtx.tolist() == [all_to_their_digits(row) for row in xtx]
    for figures in xty:
        assert fitted.xty.tolist() == all_to_their_digits(figures)
    for figures in b:
        assert fitted.b.tolist() == all_to_their_digits(figures)
    assert fitted.rss == to_its_digits(rss)
    explained = fitted.b @ fitted.xtx @ fitted.b
    assert [fitted.tss, explained, fitted.rss] == all_to_their_digits(squares)


def test_adjusted_effect_is_minus_0_187_with_the_sample_and_population_variances(altered):
    effect = kb.stats.adjusted_effect(altered, variance="paper")
    assert effect.estimate == to_its_digits("-0.187081763490741")
    assert effect.se**2 == to_its_digits("0.0811301959885")
    assert effect.se**2 == to_its_digits("0.08113")
    assert effect.se == to_its_digits("0.2848")
    assert effect.estimate / effect.se == to_its_digits("-0.656810659619506")
    assert effect.estimate / effect.se == to_its_digits("-0.6568")
    assert effect.se_population**2 == to_its_digits("0.0991108265784")
    assert effect.se_population**2 == to_its_digits("0.09911")
    assert effect.se_population == to_its_digits("0.31482")
    assert effect.t == to_its_digits("-0.594252347450371")
    assert effect.t == to_its_digits("-0.5943")


def test_the_population_part_of_the_variance_is_v_tau(altered):
    effect = kb.stats.adjusted_effect(altered, variance="paper")
    assert effect.se_population**2 - effect.se**2 == to_its_digits("0.0179806305899")
    assert effect.se_population**2 - effect.se**2 == to_its_digits("0.01798")
    slopes = kb.stats.adjusted_means(altered).slopes.ravel()
    # the square belongs to the slopes' difference alone
    sxx = 197 / 18
    assert sxx == to_its_digits("10.9444")
    assert (slopes[1] - slopes[0]) ** 2 == to_its_digits("0.502727479")
    assert sxx * (slopes[1] - slopes[0]) ** 2 / (18 * 17) == to_its_digits("0.0179806305899")


def _arm_fit(exact_ols: Any, altered: kb.Tally, place: int) -> tuple[list[Fraction], Fraction, list[Fraction]]:
    """Coefficients, rss and the covariate's first two moments about its pooled mean, of one arm, in fractions."""
    counts = altered.people[place].tolist()
    about = [tier - Fraction(35, 18) for tier in (1, 2, 3)]
    sums = [Fraction(value, STEPS) for value in altered.moments_of().sums[place]]
    squares = Fraction(altered.squares()[place], STEPS**2)
    b, rss = exact_ols([[1, x] for x in about], counts, sums, squares)
    moments = [sum((n * x**power for n, x in zip(counts, about, strict=True)), Fraction(0)) for power in (1, 2)]
    return b, rss, moments


def test_adjusted_effect_is_the_rational_one_to_the_last_digits(altered, exact_ols):
    (a, rss_a, (_, xx_a)), (b, rss_b, (_, xx_b)) = (_arm_fit(exact_ols, altered, place) for place in (0, 1))
    sample = rss_a / 63 + rss_b / 63
    population = (xx_a + xx_b) * (b[1] - a[1]) ** 2 / (18 * 17)
    effect = kb.stats.adjusted_effect(altered, variance="paper")
    assert effect.estimate == exactly(b[0] - a[0])
    assert effect.se**2 == exactly(sample)
    assert effect.se_population**2 == exactly(sample + population)
    assert effect.df == exactly(sample**2 / ((rss_a / 63) ** 2 / 7 + (rss_b / 63) ** 2 / 7))


def test_exact_variance_adds_the_arms_distance_from_the_common_mean(altered, exact_ols):
    sample = Fraction(0)
    for place in (0, 1):
        _, rss, (x, xx) = _arm_fit(exact_ols, altered, place)
        sample += rss / 7 * xx / (9 * xx - x**2)
    ding, exact = (kb.stats.adjusted_effect(altered, variance=kind) for kind in ("paper", "exact"))
    assert exact.se**2 == exactly(sample)
    assert (ding.se, exact.se) == (to_its_digits("0.2848"), to_its_digits("0.2856"))
    assert exact.estimate == ding.estimate
    assert exact.se_population**2 - exact.se**2 == pytest.approx(ding.se_population**2 - ding.se**2, rel=1e-13, abs=0)


@pytest.mark.parametrize(("what", "figures"), [
    ("b", "1.2851 -0.1871 0.2596 0.7090"),
    ("se", "0.2020 0.2856 0.2733 0.3681"),
    ("t", "6.3627 -0.6551 0.9500 1.9260"),
])  # fmt: skip
def test_table_7_is_the_interacted_model_with_pooled_errors(demeaned, what, figures):
    assert getattr(kb.stats.fit(demeaned, "arm * tier"), what).tolist() == all_to_their_digits(figures)


def test_the_printed_table_6a_gives_the_same_adjusted_effect():
    table = {
        "Treatment": list("AAABBB"), "Covariate": [1, 2, 3] * 2, "Count": [3, 4, 2, 3, 3, 3],
        "Sum Time on App": [
            "2.17084932005864", "7.09611256990949", "2.16935239750738",
            "1.42266953605589", "1.70950884373810", "7.23452646813504",
        ],
    }  # fmt: skip
    squares = {"Treatment": ["A", "B"], "squares": ["17.9098200898989", "19.6335889126438"]}
    effect = kb.stats.adjusted_effect(kb.counting.read_classes(table, squares), variance="paper")
    assert effect.estimate == pytest.approx(-0.187081763490741, rel=1e-8, abs=0)
    assert effect.se**2 == pytest.approx(0.0811301959885, rel=1e-7, abs=0)
