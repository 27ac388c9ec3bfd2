"""What effects amount to: decided once, in plain data, for every text and picture."""

from __future__ import annotations

from typing import Any

import numpy as np

import kanab as kb


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


def test_without_an_adjustment_the_plain_row_carries_it() -> None:
    readout = kb.readout(rows(), arm="variant", metrics=["minutes"])
    assert [(row.verdict, row.carries_verdict) for row in readout.effects] == [("up", True)]


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
