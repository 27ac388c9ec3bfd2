"""Arm totals of several tables with noise, combined by inverse variances."""

import numpy as np
import pytest
from tests.unit.privacy.epsilon.shop import SHOP, SMALL, counted, few, people, silent
from tests.unit.privacy.epsilon.test_noisy_release import scores

from kanab.counting.dispatch import count
from kanab.plan.file import parse_plan
from kanab.privacy.epsilon.combined import combine_arms
from kanab.privacy.gate import release
from kanab.tally.noise import twice_centre

__all__ = ["silent"]  # a fixture

pytest.importorskip("opendp")

ALONE = SMALL.replace('adjust = ["tier"]\nsegments = ["tier"]\n', "").replace(
    "[covariates]\ntier = { levels = [1, 2] }\n", ""
)


@pytest.mark.usefixtures("silent")
def test_tables_that_agree_stay_as_they_are() -> None:
    made = release(counted(people()))
    own = made.tables_of("checkout")
    combined = combine_arms(own["checkout"], own.values())
    assert combined == own["checkout"]
    assert [cross.products.tolist() for cross in combined.crosses] == [
        cross.products.tolist() for cross in own["checkout"].crosses
    ]


def test_a_single_table_is_its_own_combination() -> None:
    made = release(count(few(), parse_plan(ALONE)))
    assert made.totals("variant") is made.tables["variant"]


@pytest.mark.slow
def test_combined_totals_are_right_on_average_and_vary_as_stated_less_than_any_table() -> None:
    text = SMALL.replace('missing = "zero"', 'missing = "exclude"').replace("epsilon = 3", "epsilon = 10")
    text = text.replace("[covariates]", '[metrics.hit]\nkind = "binary"\nmissing = "zero"\n[covariates]')
    rows = few() | {"hit": [0, 1, 1, 0, 0] * 80, "spend": [0, 7, None, 1, 1] * 80}
    exact = count(rows, parse_plan(text))
    whole = exact.tallies["variant/tier"].keep()
    errors: dict[str, list[float]] = {}
    for _ in range(100):
        made = release(exact)
        totals, alone = made.totals("variant"), made.tables["variant"]
        noise = totals.noise
        assert noise is not None
        assert alone.noise is not None
        assert np.all(noise.people < alone.noise.people)
        for key, values in scores(totals, whole).items():
            errors.setdefault(key, []).extend(values)
    assert errors.keys() == {"people", "sums", "counts", "squares"}
    for key, values in errors.items():
        assert abs(np.mean(values)) < 5 / np.sqrt(len(values)), key
        assert abs(np.var(values) - 1) < 5 * np.sqrt(2 / len(values)), key


def test_people_weigh_tables_by_the_inverse_of_their_noise() -> None:
    made = release(count(few(), parse_plan(SMALL)))
    alone, tier = made.tables["variant"], made.tables["variant/tier"].keep()
    assert alone.noise is not None
    assert tier.noise is not None
    v, w = float(alone.noise.people[0]), float(tier.noise.people[0])
    expected = (alone.people / v + tier.people / w) / (1 / v + 1 / w)
    totals = made.totals("variant")
    assert np.all(np.abs(totals.people - expected) <= 0.5 + 1e-9)
    assert totals.noise is not None
    assert float(totals.noise.people[0]) == pytest.approx(1 / (1 / v + 1 / w) + 1 / 12)


def test_products_are_those_about_the_middles_whatever_the_combined_sums_are() -> None:
    made = release(counted(people(), SHOP))
    totals, alone = made.totals("checkout"), made.tables["checkout"]
    assert totals.moments_of("spend").sums.tolist() != alone.moments_of("spend").sums.tolist()
    for cross in alone.crosses:
        new = totals.cross(*cross.pair)
        g, h = (twice_centre(alone.moments_of(name).metric) for name in cross.pair)
        about = [4 * c.products - 2 * h * c.sums[0] - 2 * g * c.sums[1] + g * h * c.counts for c in (cross, new)]
        assert np.all(np.abs(about[0] - about[1]) <= 2)
