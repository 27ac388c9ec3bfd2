"""All experiments × covariates × metrics at once."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.stats.noisy_tables import shop, stated_noise

from kanab import Metric, count_columns
from kanab.errors import AnalysisError, LevelError
from kanab.scan.stats.scan_kinds import scan_covariates, scan_pairs
from kanab.scan.stats.scan_verdicts import Rules
from kanab.stats import correct, effect_differs, follow_ups, pooled_f

METRICS = {"spend": Metric("spend", 100, (0, 100)), "bought": Metric("bought", 1, (0, 1))}


def people(seed=1, size=6_000):
    rng = np.random.default_rng(seed)
    rows = {
        "checkout": rng.choice(["A", "B"], size),
        "banner": rng.choice(["on", "off", "big"], size),
        "tier": rng.integers(1, 4, size),
        "device": rng.choice(["phone", "desk"], size, p=[0.7, 0.3]),
    }
    stronger = (rows["checkout"] == "B") & (rows["tier"] == 3)
    rows["spend"] = np.clip(rng.normal(40, 10, size) + 4 * stronger, 0, 100)
    rows["bought"] = (rng.random(size) < 0.3).astype(int)
    return rows


def table(rows, arm, *covariates, squares="marginals", metrics=METRICS):
    return count_columns(rows, arm=arm, covariates=list(covariates), metrics=metrics, squares=squares)


def four_tables(rows):
    return [table(rows, arm, covariate) for arm in ("checkout", "banner") for covariate in ("tier", "device")]


def test_every_row_has_the_tests_of_its_own_table():
    tables = four_tables(people())
    scan = scan_covariates(tables)
    assert len(scan.rows) == 8
    for row in scan:
        own = next(one for one in tables if one.axes == (row.experiment, row.covariate))
        pooled, robust = pooled_f(own, metric=row.metric), effect_differs(own, metric=row.metric)
        assert (row.F, row.p) == pytest.approx((pooled.F, pooled.p), rel=1e-11)
        assert (row.F_robust, row.p_robust) == pytest.approx((robust.F, robust.p), rel=1e-11)
        assert (row.df, row.df_robust) == (pytest.approx(pooled.df), pytest.approx(robust.df))


def test_p_values_are_corrected_by_false_discovery_over_a_metric():
    scan = scan_covariates(four_tables(people()))
    assert (scan.rules.correction, scan.families) == ("bh", {"spend": 4, "bought": 4})
    for metric in METRICS:
        rows = [row for row in scan if row.metric == metric]
        assert [row.p_adjusted for row in rows] == pytest.approx(correct([row.p_robust for row in rows], "bh"))


def test_survivors_are_followed_up_and_nothing_else():
    tables = four_tables(people())
    scan = scan_covariates(tables)
    (found,) = scan.flagged
    assert (found.experiment, found.covariate, found.metric, found.verdict) == ("checkout", "tier", "spend", "differs")
    assert found.follow_ups == follow_ups(tables[0], "tier", "spend")
    assert max(found.follow_ups, key=lambda one: abs(one.t)).level == 3
    assert all(row.follow_ups == () for row in scan if row != found)
    first = scan.rows[0].to_dict()
    assert json.loads(json.dumps(first)) == first
    assert list(first)[:3] == ["experiment", "covariate", "metric"]
    assert len(first["follow_ups"]) == 3


def test_a_table_with_several_covariates_is_tested_for_each():
    rows = people()
    together = scan_covariates([table(rows, "checkout", "tier", "device")])
    apart = scan_covariates([table(rows, "checkout", "tier"), table(rows, "checkout", "device")])
    assert [row.to_dict() for row in together] == [row.to_dict() for row in apart]


def test_squares_by_arm_alone_are_said_to_assume_equal_variances():
    scan = scan_covariates([table(people(), "banner", "tier", squares="arm")])
    assert [row.variance for row in scan] == ["by_arm", "by_class"]
    assert [row.note for row in scan] == ["assumes equal variance across levels", ""]


def test_a_covariate_that_the_arm_changed_is_broken_assignment():
    rows = people()
    rows["tier"] = np.where(rows["checkout"] == "B", np.minimum(rows["tier"] + 1, 3), rows["tier"])
    scan = scan_covariates([table(rows, "checkout", "tier"), table(rows, "banner", "device")])
    assert [row.verdict for row in scan] == ["assignment broken", "assignment broken", "nothing found", "nothing found"]
    assert scan.rows[0].note == "the arms of checkout are not spread alike over tier"
    assert scan.rows[0].follow_ups == ()


def test_a_tolerance_makes_segments_clear():
    scan = scan_covariates([table(people(), "banner", "device")], Rules(correction="bh", tolerance={"spend": 20.0}))
    assert [row.verdict for row in scan] == ["clear within tolerance", "nothing found"]


def test_what_cannot_be_compared_is_refused():
    rows = people()
    with pytest.raises(AnalysisError, match="no covariates"):
        scan_covariates([table(rows, "checkout")])
    with pytest.raises(AnalysisError, match="one experiment at a time"):
        scan_covariates([table(rows, ["checkout", "banner"])])
    with pytest.raises(LevelError, match="Counted metrics: spend, bought"):
        scan_covariates(four_tables(rows), metrics=["clicks"])


def test_numbers_with_noise_are_not_scanned():
    exact = shop(2_000, np.random.default_rng(1))
    noisy = replace(exact, noise=stated_noise(exact))
    with pytest.raises(AnalysisError, match="these carry noise"):
        scan_covariates([noisy])
    factors = (noisy.factors[0], replace(noisy.factors[1], role="arm"))
    with pytest.raises(AnalysisError, match="these carry noise"):
        scan_pairs({("arm", "tier"): replace(noisy, factors=factors)})


def test_what_varies_at_no_level_says_so():
    rows = people() | {"spend": np.full(6_000, 5.0)}
    (row,) = scan_covariates([table(rows, "checkout", "tier")], metrics=["spend"]).rows
    assert (row.verdict, row.F_robust, row.p_robust) == ("not testable", None, None)
    assert row.note == "nothing varies in a class, an arm or a level"
