"""What effects amount to: decided once, in plain data, for every text and picture."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.described import readout_of
from tests.unit.stats.noisy_tables import shop, stated_noise, with_noise

import kanab as kb
from kanab.analysis.effect_rows import EffectRow
from kanab.analysis.verdicts import carriers
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


def test_of_each_metric_and_arm_one_row_carries_the_verdict() -> None:
    readout = kb.readout(rows(), arm="variant", metrics=["minutes", "clicks"], adjust=["tier"])
    carried = [(row.effect.metric, row.effect.method) for row in readout.effects if row.carries_verdict]
    assert carried == [("minutes", "adjusted"), ("clicks", "adjusted")]
    assert [row["verdict"] for row in readout.to_dict()["effects"] if row["carries_verdict"]] == ["up", "unclear"]


def test_the_corrected_p_decides_and_a_hint_is_clear_only_before_the_correction() -> None:
    data = rows()
    data["minutes"] = data["minutes"] - 2.4 * (data["variant"] == "B")
    for seed in range(200):
        rng = np.random.default_rng(seed)
        noise = {f"y{place}": rng.poisson(3, 3_000) for place in range(3)}
        for row in kb.readout(data | noise, arm="variant", metrics=list(noise)).to_dict()["effects"]:
            if row["p"] < 0.05 < row["p_adjusted"]:
                assert row["verdict"] == "hint"
                return
    raise AssertionError("no p was near enough")  # pragma: no cover


def spend(people: int = 2_000, *, seed: int = 4, factor: float = 1.0) -> dict[str, Any]:
    """One in ten is treated, one in ten pays, and a few pay much."""
    rng = np.random.default_rng(seed)
    variant = np.where(rng.random(people) < 0.1, "B", "A")
    paid = np.exp(1.5 * rng.standard_normal(people)) * (rng.random(people) < 0.1)
    return {"variant": variant, "spend": np.round(np.where(variant == "B", factor, 1.0) * paid, 2)}


@pytest.mark.slow
@pytest.mark.parametrize("role", ["primary", "guardrail"])
def test_a_small_arm_that_lacks_large_values_is_not_said_to_lower_them_and_a_guardrail_is_watched(role: str) -> None:
    usual, kinds = 0, []
    for seed in range(60):
        roles: dict[str, Any] = {"primary": "spend"} if role == "primary" else {"guardrails": "spend"}
        readout = readout_of(spend(seed=seed), arm="variant", metrics=["spend"], **roles)
        (row,) = readout.effects
        assert row.effect.p is not None
        assert row.effect.p_usual is not None
        assert row.p_usual_adjusted == row.effect.p_usual
        kinds.append(row.verdict)
        alone = row.effect.p_usual < 0.05 <= row.effect.p
        usual += alone
        watched = alone and role == "guardrail" and row.effect.estimate < 0
        assert (row.verdict == "watch") == watched
        if watched:
            low, high = row.interval or (1, 1)
            assert low < 0 < high
            text = " ".join(str(readout).split())
            assert "Watch: spend may be lower with B, or a few people made it: −" in text
            assert f"p = {row.effect.p:.3g}"[:8] in text
            assert "by the t-test alone, which a few people can mislead. Wait for more people, or declare" in text
            assert "near the 99 % point" in text
            assert "it shows no clear effect: watch it" in text
    assert usual >= 4  # 14 % of the time Welch alone says "lowers"
    assert kinds.count("down") + kinds.count("up") <= 3
    assert kinds.count("watch") == (usual if role == "guardrail" else 0)


@pytest.mark.parametrize("correction", ["holm", "dunnett", "bonferroni", "none"])
def test_the_usual_p_is_corrected_over_the_same_family(correction: Any) -> None:
    rng = np.random.default_rng(2)
    data = {
        "variant": np.repeat(["A", "B", "C"], [900, 80, 80]),
        "y": rng.gamma(0.3, 3, 1_060),
        "z": rng.poisson(9, 1_060),
    }
    rows = kb.readout(data, arm="variant", metrics=["y", "z"], reading=kb.Reading(correction=correction)).effects
    stepwise = "holm" if correction == "dunnett" else correction  # the joint t is about the rule's p alone
    usual = kb.stats.correct([row.effect.p_usual for row in rows], stepwise)
    assert [row.p_usual_adjusted for row in rows] == usual
    assert any(row.effect.p_usual != row.effect.p for row in rows if row.effect.metric == "y")
    assert all(row.p_adjusted >= row.p_usual_adjusted - 1e-9 for row in rows if correction != "dunnett")


@pytest.mark.slow
def test_nobody_may_stop_on_what_is_only_to_be_watched() -> None:
    watched = 0
    planned = kb.Looks("spending", looks=3, spending="pocock", earlier=(900,))
    for seed in range(60):
        data = spend(seed=seed)
        for looks in (planned, kb.Looks("always-valid", optimal_at=2_000)):
            (row,) = kb.readout(
                data, arm="variant", metrics=["spend"], reading=kb.Reading(guardrails="spend", looks=looks)
            ).effects
            assert row.look is not None
            assert row.look.p is not None
            assert (row.p, row.interval) == (row.look.p, row.look.interval)
            if row.verdict == "watch":
                watched += 1
                assert row.look.verdict == "keep going"
                assert row.p_usual_adjusted is not None
                assert row.p_usual_adjusted < 0.05 <= row.look.p
                assert row.look.interval[0] < 0 < row.look.interval[1]
    assert watched


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
