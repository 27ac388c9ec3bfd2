"""Does the effect differ? Pooled, robust and nested F, in the open and at the edges."""

from dataclasses import replace

import numpy as np
import pytest
from tests.described import as_values
from tests.unit.stats.noisy_tables import noisy_shop, restated, shop, stated_noise

import kanab as kb
from kanab import Metric, count_columns
from kanab.datasets import count_eighteen, eighteen, eighteen_rows
from kanab.errors import AnalysisError, FormulaError, LevelError
from kanab.stats import fit, nested_f, pooled_f, robust_f
from kanab.stats.ftest import two_way


def table(cells, *, squares="class", scale=1):
    """A tally of {(arm, level): values}."""
    rows = {
        "arm": [arm for (arm, _), values in cells.items() for _ in values],
        "level": [level for (_, level), values in cells.items() for _ in values],
        "y": [value for values in cells.values() for value in values],
    }
    metrics = {"y": Metric("y", scale)}
    return count_columns(rows, arm="arm", covariates=["level"], metrics=metrics, squares=squares)


def filled(pattern, n=4, seed=1):
    """Cells of random whole numbers: a pattern such as "110/011", one row per arm."""
    rng = np.random.default_rng(seed)
    return {
        ("ABCDE"[row], "uvwxyz"[column]): rng.integers(-9, 9, n).tolist()
        for row, marks in enumerate(pattern.split("/"))
        for column, mark in enumerate(marks)
        if mark == "1"
    }


def f_of(test):
    return test.F


UNEVEN = {
    ("A", "u"): [1, 2, 4, 7],
    ("A", "v"): [0, 0, 1, 5, 9, 3],
    ("B", "u"): [20, 40, 10],
    ("B", "v"): [-7, 3, 12, 1, 0],
}


def test_the_finest_squares_choose_the_kind_of_variance():
    kinds = {
        squares: robust_f(count_eighteen(eighteen_rows(), squares=squares)) for squares in ("arm", "marginals", "class")
    }
    assert [kinds[squares].variance for squares in ("arm", "marginals", "class")] == [
        "by_arm", "two_marginals", "by_class",
    ]  # fmt: skip
    assert kinds["class"].note == kinds["marginals"].note == ""
    assert str(kinds["arm"]) == (
        "minutes: treatment × tier (by arm) F(2, 11.6026) = 41.7046, p = 5.04e-06; assumes equal variance across levels"
    )


@pytest.mark.parametrize(
    ("pattern", "q"),
    [
        ("111/111", 2),
        ("110/111", 1),
        ("110/011", 0),
        ("100/011", 0),
        ("1111/1111/1111", 6),
        ("1100/1100/0011", 1),
        ("1100/1100/0011/0011", 2),
        ("1110/0111/1011", 3),
        ("10/01", 0),
    ],
)
def test_q_is_cells_minus_rows_plus_columns_minus_components(pattern, q):
    cells = filled(pattern)
    edges = [(arm, level) for arm, level in cells]
    nodes = {node for edge in edges for node in edge}
    parent = {node: node for node in nodes}

    def root(node):
        return node if parent[node] == node else root(parent[node])

    for arm, level in edges:
        parent[root(arm)] = root(level)
    components = len({root(node) for node in nodes})
    assert len(cells) - (len(nodes) - components) == q
    tally = table(cells)
    assert two_way(tally).q == q
    for test in (pooled_f(tally), robust_f(tally)):
        assert (test.df[0] if test.df else 0) == q
        if q == 0:
            assert (test.F, test.p, test.df) == (None, None, None)
            assert test.note == "too few combinations hold people"


@pytest.mark.parametrize("large", [20_000, 0])
def test_a_disconnected_table_is_tested_piece_by_piece(large, monkeypatch):
    monkeypatch.setattr("kanab.stats.ftest.LARGE", large)
    cells = filled("1100/1100/0011/0011", n=6)
    blocks = [{key: values for key, values in cells.items() if key[0] in arms} for arms in ("AB", "CD")]
    pieces = [two_way(table(block)) for block in blocks]
    extra = sum(float(piece.classes.n @ piece.residuals(piece.classes.n) ** 2) for piece in pieces)
    rss = sum(float(np.var(values) * len(values)) for values in cells.values())
    assert f_of(pooled_f(table(cells))) == pytest.approx((extra / 2) / (rss / (8 * 6 - 8)), rel=1e-12)


def test_no_more_people_than_classes_is_not_testable():
    test = pooled_f(table(filled("11/11", n=1)))
    assert (test.F, test.p, test.note) == (None, None, "there are no more people than classes")


def test_nothing_varies_within_the_classes_is_not_testable():
    tally = table({(arm, level): [k] * 3 for k, (arm, level) in enumerate(UNEVEN)})
    pooled = pooled_f(tally)
    assert (pooled.F, pooled.note) == (None, "nothing varies within the classes")
    for kind in ("by_class", "two_marginals", "by_arm"):
        test = robust_f(tally, variance=kind)
        assert (test.F, test.df, test.p) == (None, None, None)
        assert test.note == "nothing varies in a class, an arm or a level"


def test_other_covariates_are_collapsed():
    rows = eighteen_rows() | {"device": ["pc", "tv"] * 9}
    tally = count_columns(rows, arm="treatment", covariates=["device", "tier"], metrics=["minutes"],
                          resolution={"minutes": 1e-9})  # fmt: skip
    assert f_of(pooled_f(tally, "tier")) == pytest.approx(41.7046498028901, rel=1e-13)
    assert pooled_f(tally, "device").between == "treatment × device"
    with pytest.raises(AnalysisError, match=r"name the covariate to test\. This tally has: device, tier\."):
        pooled_f(tally)
    with pytest.raises(AnalysisError, match=r"name the covariate to test\. This tally has: none\."):
        pooled_f(tally.keep())


def pair(squares="marginals"):
    rng = np.random.default_rng(8)
    n = 80
    rows = {
        "one": rng.choice(list("AB"), n),
        "two": rng.choice(list("XYZ"), n),
        "tier": rng.integers(1, 3, n),
        "y": rng.integers(0, 50, n),
    }
    return rows, count_columns(rows, arm=["one", "two"], covariates=["tier"], metrics=["y"], squares=squares)


def test_a_pair_takes_no_covariate():
    with pytest.raises(AnalysisError, match=r"between two experiments, or between one and a covariate\. Collapse"):
        pooled_f(pair()[1], "tier")


def test_the_experiment_is_no_covariate_and_unknown_names_are_refused():
    for name in ("arm", "treatment"):
        with pytest.raises(LevelError, match="'treatment' is the experiment itself"):
            pooled_f(eighteen(), name)
    with pytest.raises(LevelError, match="unknown arm column or covariate"):
        robust_f(eighteen(), "device")
    with pytest.raises(LevelError, match="unknown metric"):
        pooled_f(eighteen(), "tier", "spend")
    with pytest.raises(AnalysisError, match="nobody has been counted"):
        pooled_f(eighteen().empty())


@pytest.mark.parametrize("variance", ["pooled", "hc3", "", 5, []])
def test_unknown_kinds_of_variance_are_refused_with_the_known_ones(variance):
    with pytest.raises(AnalysisError, match=r"unknown kind of variance. Use one of: by_class, two_marginals, by_arm\."):
        robust_f(eighteen(), variance=variance)


@pytest.mark.parametrize(("variance", "marginal"), [("by_class", "treatment × tier"), ("two_marginals", "tier")])
def test_squares_that_were_not_kept_are_named(variance, marginal):
    with pytest.raises(AnalysisError, match=f"no squares by {marginal} were kept"):
        robust_f(eighteen(), variance=variance)


def test_large_designs_are_compared_like_small_ones():
    rng = np.random.default_rng(2)
    arm, level = rng.integers(0, 2, 900), rng.integers(0, 60, 900)
    rows = {"arm": np.array(["A", "B"])[arm], "level": level, "y": rng.integers(0, 99, 900) + 7 * arm + level // 9}
    tally = count_columns(rows, arm="arm", covariates=["level"], metrics=["y"])
    test, found = nested_f(tally, "level", "arm + level"), fit(tally, "arm + level")
    assert (test.F, test.p) == pytest.approx((found.t[1] ** 2, found.p[1]), rel=1e-11)
    assert f_of(nested_f(tally, "arm + C(level)", "arm * C(level)")) == pytest.approx(pooled_f(tally).F, rel=1e-11)


def test_formulas_that_do_not_nest_are_refused():
    for main, full in (("arm + C(tier)", "arm + tier"), ("arm", "tier"), ("arm * tier", "arm")):
        with pytest.raises(FormulaError, match=r"the first formula is not contained in the second\. Give nested"):
            nested_f(eighteen(), main, full)


# ── a few people far out ───────────────────────────────────────────────────────────────────────


def tailed(n=4_000):
    rng = np.random.default_rng(1)
    variant, device = rng.choice(["A", "B"], n), rng.choice(["phone", "desktop", "tablet"], n, p=[0.7, 0.25, 0.05])
    there = (variant == "B") & (device == "tablet")
    bought = rng.random(n) < 0.1 + 0.1 * there
    spend = np.round(rng.lognormal(1, 2, n) + 15 * there)
    return {"variant": variant, "device": device, "bought": bought, "spend": spend.clip(0, 5_000)}


@pytest.mark.parametrize(
    ("metric", "choices"),
    [
        ("bought", {"bounds": {"bought": (0, 1)}, "resolution": {"bought": 1}}),
        ("spend", {"bounds": {"spend": (0, 5_000)}, "resolution": {"spend": 1}}),
        ("spend", {"bounds": {"spend": (0, 1e9)}, "resolution": {"spend": 1}}),
    ],
)
def test_a_readout_and_a_scan_of_rows_test_segments_alike(metric, choices):
    rows = tailed()
    data = kb.readout(rows, **as_values("readout", arm="variant", metrics=[metric], segments=["device"], **choices))
    (test,) = [row for row in data.results["segments"].tables["segments"] if row.decides]
    lines = kb.scan.scan_segments(
        rows,
        ["variant"],
        **as_values("scan_segments", metrics=[metric], covariates=["device"], correction="none", **choices),
    ).scan.lines
    assert test.p == pytest.approx(float(lines.p_robust[0]), rel=1e-9)


# ── numbers with noise ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("by_class", [False, True])
@pytest.mark.parametrize("metric", ["bought", "spend"])
def test_noise_of_hardly_any_size_leaves_the_robust_test_as_it_is(metric, by_class):
    exact = shop(3_000, np.random.default_rng(5), by_class=by_class)
    stated = robust_f(restated(replace(exact, noise=stated_noise(exact)), 1e-9), "tier", metric)
    plain = robust_f(exact, "tier", metric)
    assert (stated.F, stated.p) == pytest.approx((plain.F, plain.p), rel=1e-4)
    assert stated.df == pytest.approx(plain.df, rel=1e-3)
    assert stated.variance == plain.variance


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["bought", "spend"])
def test_the_robust_test_of_noisy_numbers_keeps_its_size_and_one_that_ignores_noise_does_not(metric):
    known, ignored = [], []
    for seed in range(150):
        table = noisy_shop(seed, rho=0.002)
        known.append(robust_f(table, "tier", metric).p)
        ignored.append(robust_f(restated(table, 1e-9), "tier", metric).p)
    assert abs(np.mean(np.array(known) < 0.05) - 0.05) < 0.05
    assert np.mean(np.array(ignored) < 0.05) > 0.2


@pytest.mark.parametrize(("people", "rho"), [(3_000, 1e-5), (40, 0.01)])
def test_classes_that_noise_hides_are_too_noisy_to_tell(people, rho):
    test = robust_f(noisy_shop(3, people=people, rho=rho), "tier", "bought")
    assert (test.F, test.p, test.note) == (None, None, "too noisy to tell")
    assert "not testable: too noisy to tell" in str(test)


def test_there_is_no_pooled_test_of_numbers_with_noise_and_it_says_why():
    test = pooled_f(noisy_shop(1), "tier", "bought")
    assert test.F is None
    assert str(test) == (
        "bought: arm × tier (pooled) not testable: noise differs between classes, so that only the robust test is made"
    )


def test_a_class_that_noise_has_emptied_is_too_noisy_to_tell():
    table = noisy_shop(1)
    people = table.people.copy()
    people[1, 2] = -4
    parts = tuple(replace(part, counts=people) for part in table.moments)
    assert robust_f(replace(table, people=people, moments=parts), "tier", "bought").note == "too noisy to tell"


@pytest.mark.parametrize("variance", ["by_class", "two_marginals", "by_arm"])
@pytest.mark.parametrize("empty", [(), (3, 77, 120), range(0, 180, 2)])
def test_many_levels_are_taken_out_one_by_one_and_give_the_figures_of_the_design_written_down(
    variance, empty, monkeypatch
):
    rng = np.random.default_rng(4)
    arm, level = rng.choice(3, 9_000, p=[0.5, 0.3, 0.2]), rng.integers(0, 60, 9_000)
    kept = ~np.isin(arm * 60 + level, list(empty))
    rows = {"arm": arm[kept], "level": level[kept]}
    rows["y"] = (rng.gamma(2, 5 + arm + level % 7).round() + 3 * level)[kept]
    rows["bought"] = (rng.random(9_000) < 0.2 + level / 100)[kept].astype(int)
    table = count_columns(rows, arm="arm", covariates=["level"], metrics=["y", "bought"], squares="class")
    kinds = {"y": variance, "bought": "by_class"}

    def tests():
        return [
            (test.F, *test.df, test.p)
            for metric, kind in kinds.items()
            for test in (pooled_f(table, "level", metric), robust_f(table, "level", metric, variance=kind))
        ]

    monkeypatch.setattr("kanab.stats.ftest.LARGE", 1e9)
    written = tests()
    monkeypatch.setattr("kanab.stats.ftest.LARGE", 0)
    monkeypatch.setattr("kanab.stats.ftest.solve", None)
    np.testing.assert_allclose(tests(), written, rtol=1e-9)
