"""What effects amount to: decided once, in plain data, for every text and picture."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.unit.stats.noisy_tables import shop, stated_noise, with_noise

import kanab as kb
from kanab.analysis.compare import carriers
from kanab.analysis.effect_rows import EffectRow
from kanab.errors import DesignError
from kanab.privacy.epsilon.combined import combine_arms
from kanab.stats.adjust import adjusted_means
from kanab.stats.effect import contrast, plain_means


def rows(people: int = 3_000) -> dict[str, Any]:
    """Two arms; B raises minutes, and nothing else."""
    rng = np.random.default_rng(5)
    variant, tier = rng.choice(["A", "B"], people), rng.integers(1, 4, people)
    minutes = np.round(rng.gamma(2, 5, people) + 2 * tier + 2.4 * (variant == "B"), 1)
    return {"variant": variant, "tier": tier, "minutes": minutes, "clicks": rng.poisson(3, people)}


def spend(people: int = 2_000, *, seed: int = 4, factor: float = 1.0) -> dict[str, Any]:
    """One in ten is treated, one in ten pays, and a few pay much."""
    rng = np.random.default_rng(seed)
    variant = np.where(rng.random(people) < 0.1, "B", "A")
    paid = np.exp(1.5 * rng.standard_normal(people)) * (rng.random(people) < 0.1)
    return {"variant": variant, "spend": np.round(np.where(variant == "B", factor, 1.0) * paid, 2)}


def test_a_rate_that_is_to_be_watched_has_no_bound_to_declare() -> None:
    data = {"variant": ["B"] * 30 + ["A"] * 270, "bought": [1] * 2 + [0] * 28 + [1] * 2 + [0] * 268}
    readout = kb.readout(
        data,
        arm="variant",
        metrics=["bought"],
        arms={"A": 9, "B": 1},
        reading=kb.Reading(guardrails="bought", lower_is_better="bought"),
    )
    (row,) = readout.effects
    assert row.verdict == "watch"
    assert row.interval[0] <= 0 < row.interval[1]
    text = " ".join(str(readout).split())
    assert "by the score test alone, which a few people can mislead: wait for more people." in text
    assert "Declare a bound" not in text


def noisy_pair(seed: int, *, people: int = 1_200, rho: float = 0.01, metric: str = "spend") -> list[EffectRow]:
    """The plain and the adjusted effect of an experiment without one, from tables with noise; seldom fewer."""
    rng = np.random.default_rng(seed)
    exact = shop(people, rng)
    arms, tiers = (with_noise(table, stated_noise(table, rho), rng) for table in (exact.keep(), exact))
    totals = combine_arms(arms, [tiers])
    means = [plain_means(totals, metric), adjusted_means(tiers, metric, totals=totals)]
    return [EffectRow(contrast(each, {"B": 1.0, "A": -1.0}), None, None) for each in means]


def restated(row: EffectRow, **changes: Any) -> EffectRow:
    return replace(row, effect=replace(row.effect, **changes))


def test_the_plain_effect_carries_the_verdict_where_adjusting_adds_a_twentieth_of_its_variance_in_noise() -> None:
    plain, adjusted = noisy_pair(1)
    plain = restated(plain, se_population=1.0, se_noise=0.5)
    for added, place in ((0.049, 1), (0.051, 0)):
        noisier = restated(adjusted, se_noise=math.sqrt(0.25 + added))
        assert carriers([plain, noisier]) == [place]
        # neither the sign nor p nor the error with chance in it decides
        for changes in ({"p": 1e-9}, {"p": 0.9}, {"estimate": -adjusted.effect.estimate}, {"se_population": 0.2}):
            assert carriers([plain, restated(noisier, **changes)]) == [place]
    assert carriers([restated(plain, se_noise=0.0), restated(adjusted, se_noise=0.0)]) == [1]


def test_all_arms_of_a_metric_are_read_by_the_same_method() -> None:
    plain, adjusted = noisy_pair(1)
    rows = []
    for arm, added in (("B", 0.04), ("C", 0.09)):
        other = ((arm, 1.0), ("A", -1.0))
        rows.append(restated(plain, contrast=other, se_population=1.0, se_noise=0.5))
        rows.append(restated(adjusted, contrast=other, se_noise=math.sqrt(0.25 + added)))
    assert carriers(rows) == [0, 2]


@pytest.mark.slow
def test_choosing_by_noise_rings_no_oftener_where_nothing_differs() -> None:
    chosen, places = [], []
    for seed in range(350):
        try:
            rows = noisy_pair(seed, people=700, rho=0.004, metric="bought")
        except DesignError:  # a class of fewer people than noise could make
            continue
        (place,) = carriers(rows)
        places.append(place)
        chosen.append(rows[place].effect.p is not None and rows[place].effect.p < 0.05)
    assert len(chosen) > 250
    assert 0.1 < np.mean(places) < 0.9
    assert np.mean(chosen) < 0.05 + 3 * math.sqrt(0.05 * 0.95 / len(chosen))
