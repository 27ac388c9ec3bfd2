"""Several --adjust are one joint adjustment: the same numbers as one regression per arm on the rows."""

import inspect
import json
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.described import as_values

import kanab as kb

Rows = dict[str, Any]
VARIANCE = inspect.signature(kb.stats.adjusted_means).parameters["variance"].default


def shop(n: int, seed: int, arms: str = "AB") -> Rows:
    rng = np.random.default_rng(seed)
    variant = rng.choice(list(arms), n, p=[0.6, 0.4] if len(arms) == 2 else [0.5, 0.3, 0.2])
    device = rng.choice(["phone", "desktop", "tablet"], n, p=[0.5, 0.3, 0.2])
    country = np.where(device == "phone", rng.choice(["NO", "SE"], n), rng.choice(["NO", "SE", "DK"], n))
    tier = rng.choice(["gold", "silver", "basic"], n, p=[0.3, 0.3, 0.4])
    y = 3 * (device == "phone") + 2 * (tier == "gold") * (1 + (variant == "B")) + (country == "SE")
    return {
        "variant": variant, "device": device, "country": country, "tier": tier,
        "spend": np.rint(10 * (y + rng.gamma(2, 1 + (variant == "B"), n))) / 10,
        "bought": (rng.random(n) < 0.1 + 0.2 * (tier == "gold")).astype(int),
        "visits": 1 + rng.poisson(1 + (device == "phone"), n),
    }  # fmt: skip


def lin(rows: Rows, names: list[str], y: np.ndarray, arm: str, variance: str) -> dict[str, float]:
    """One regression per arm on the rows, dummies about their mean over everyone: effect, SATE and PATE errors, df."""
    people = pd.DataFrame({name: rows[name] for name in names})
    columns = pd.get_dummies(people, columns=names, drop_first=True).astype(float)
    centred = (columns - columns.mean()).to_numpy()
    n, total = {}, len(y)
    estimate, sample, parts, slopes = {}, {}, {}, {}
    for side in ("A", arm):
        inside = rows["variant"] == side
        data = pd.DataFrame(centred[inside], columns=[f"x{i}" for i in range(centred.shape[1])])
        data["y"] = y[inside]
        fit = smf.ols("y ~ " + " + ".join(f"x{i}" for i in range(centred.shape[1])), data).fit()
        n[side] = int(inside.sum())
        estimate[side] = fit.params["Intercept"]
        slopes[side] = fit.params.drop("Intercept").to_numpy()
        exact = fit.bse["Intercept"] ** 2
        sample[side] = exact if variance == "exact" else fit.ssr / fit.df_resid / n[side]
        parts[side] = (sample[side], fit.df_resid)
    gap = slopes[arm] - slopes["A"]
    drawn = gap @ (centred.T @ centred) @ gap / (total * (total - 1))
    small = sample["A"] + sample[arm]
    return {
        "estimate": estimate[arm] - estimate["A"], "se": small**0.5, "se_population": (small + drawn) ** 0.5,
        "df": small**2 / sum(v**2 / df for v, df in parts.values()),
    }  # fmt: skip


@given(
    seed=st.integers(0, 10_000),
    arms=st.sampled_from(["AB", "ABC"]),
    names=st.sampled_from([["device", "tier"], ["tier", "country", "device"]]),
)
@settings(max_examples=12, deadline=None)
def test_joint_adjustment_through_the_gate_is_lins_regression_on_the_rows(
    seed: int, arms: str, names: list[str]
) -> None:
    rows = shop(3_000, seed, arms)
    found = kb.readout(
        rows, **as_values("readout", arm="variant", metrics=["spend", "bought"], adjust=names, ratios=["spend/visits"])
    )
    assume(not found.receipt.maps)  # levels as they are in the rows
    adjusted = [row.effect for row in found.effects if row.effect.method == "adjusted"]
    assert {effect.covariates for effect in adjusted} == {tuple(sorted(names))}
    assert len(adjusted) == (len(arms) - 1) * 4
    for effect in adjusted:
        if "/" not in effect.metric:
            y = np.asarray(rows[effect.metric], dtype=float)
            expected = lin(rows, sorted(names), y, str(effect.arm), VARIANCE)
            for name, value in expected.items():
                assert getattr(effect, name) == pytest.approx(value, rel=1e-9), name


def test_joint_adjustment_of_a_ratio_is_lins_regression_of_its_linear_part() -> None:
    rows = shop(4_000, 5)
    found = kb.readout(rows, arm="variant", metrics=["bought", kb.Ratio("spend", "visits")], adjust=["tier", "device"])
    (effect,) = [
        row.effect for row in found.effects if row.effect.metric == "spend/visits" and row.effect.method == "adjusted"
    ]
    parts, ratios = np.zeros(4_000), {}
    for arm in "AB":
        inside = rows["variant"] == arm
        y, z = rows["spend"][inside], rows["visits"][inside]
        ratios[arm] = y.sum() / z.sum()
        parts[inside] = ratios[arm] + (y - ratios[arm] * z) / z.mean()
    expected = lin(rows, ["device", "tier"], parts, "B", VARIANCE)
    for name, value in expected.items():
        assert getattr(effect, name) == pytest.approx(value, rel=1e-9), name


def test_the_order_in_which_covariates_are_typed_changes_nothing() -> None:
    rows = shop(2_000, 3)
    found = {
        json.dumps(
            kb.readout(rows, arm="variant", metrics=["spend"], adjust=list(names), segments=["device"]).to_dict()
        )
        for names in permutations(["device", "tier", "country"])
    }
    assert len(found) == 1
