"""What an interaction looks like."""

import numpy as np
import pytest
from scipy import stats

from kanab import Metric, count_columns
from kanab.errors import AnalysisError
from kanab.scan.stats.scan_kinds import effects_within


def people(seed=1, size=900):
    rng = np.random.default_rng(seed)
    rows = {"price": rng.choice(["control", "low", "high"], size), "banner": rng.choice(["off", "on"], size)}
    rows["y"] = np.rint(rng.normal(20, 3, size) + 2 * ((rows["price"] == "low") & (rows["banner"] == "on"))) / 10
    return rows


def table(rows, squares="class"):
    return count_columns(rows, arm=["price", "banner"], metrics={"y": Metric("y", 10)}, squares=squares)


def values(rows, price, banner):
    return rows["y"][(rows["price"] == price) & (rows["banner"] == banner)]


def test_means_are_those_of_the_classes():
    rows = people()
    found = effects_within(table(rows))
    assert (found.metric, found.experiments) == ("y", ("price", "banner"))
    prices, banners = found.arms
    expected = [[values(rows, price, banner).mean() for banner in banners] for price in prices]
    assert np.array(found.means) == pytest.approx(np.array(expected), rel=1e-12)


def test_effects_are_welchs_within_each_arm_of_the_other_experiment():
    rows = people()
    found = effects_within(table(rows))
    own = {(one.arm, one.level): one for one in found.effects if one.experiment == "price"}
    assert own.keys() == {(arm, level) for arm in ("low", "high") for level in ("off", "on")}
    for (arm, level), one in own.items():
        welch = stats.ttest_ind(values(rows, arm, level), values(rows, "control", level), equal_var=False)
        low, high = welch.confidence_interval(0.95)
        assert one.control == "control"
        assert one.effect / one.se == pytest.approx(welch.statistic, rel=1e-9)
        assert one.interval == pytest.approx((low, high), rel=1e-9)


def test_both_experiments_are_told():
    found = effects_within(table(people()))
    other = [one for one in found.effects if one.experiment == "banner"]
    assert [(one.arm, one.control, one.within, one.level) for one in other] == [
        ("on", "off", "price", price) for price in found.arms[0]
    ]


def test_an_empty_class_has_no_mean_and_no_effect():
    rows = people()
    keep = ~((rows["price"] == "high") & (rows["banner"] == "on"))
    found = effects_within(table({name: column[keep] for name, column in rows.items()}))
    assert found.means[found.arms[0].index("high")][found.arms[1].index("on")] is None
    assert not any(one.arm == "high" and one.level == "on" for one in found.effects)
    assert not any(one.experiment == "banner" and one.level == "high" for one in found.effects)


def test_margins_of_squares_are_enough():
    rows = people(size=20_000)
    fine, coarse = (effects_within(table(rows, squares)) for squares in ("class", "marginals"))
    assert [one.effect for one in fine.effects] == [one.effect for one in coarse.effects]
    assert [one.se for one in fine.effects] == pytest.approx([one.se for one in coarse.effects], rel=0.05)


def test_only_a_pair_has_effects_within_arms():
    rows = people()
    with pytest.raises(AnalysisError):
        effects_within(count_columns(rows, arm="price", covariates=["banner"], metrics={"y": Metric("y", 10)}))
    rows["y"] = np.ones_like(rows["y"])
    with pytest.raises(AnalysisError, match="not testable"):
        effects_within(table(rows))
