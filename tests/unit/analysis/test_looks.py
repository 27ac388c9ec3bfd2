"""Several looks at one experiment: which look it is, what it may decide, and when the design is over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kanab as kb

TEN = [f"metric {number}" for number in range(10)]


def null_people(seed: int, n: int = 600, metrics: list[str] = TEN) -> dict[str, Any]:
    """Return people of two arms that differ in nothing."""
    rng = np.random.default_rng(seed)
    return {"variant": rng.permutation(np.arange(n) % 2), **{name: rng.random(n) < 0.3 for name in metrics}}


# ── one may stop where the verdict is clear, and nowhere else ──────────────────────────────────


def test_on_null_data_with_ten_metrics_one_may_stop_in_about_one_study_of_twenty() -> None:
    """Without the correction it is 40 of 100."""
    looks = kb.Looks("spending", looks=1, earlier=())
    stopped = 0
    for seed in range(100):
        data = kb.readout(null_people(seed), arm="variant", metrics=TEN, looks=looks).to_dict()
        verdicts = [row["sequential"]["verdict"] for row in data["effects"]]
        assert [verdict == "may stop" for verdict in verdicts] == [row["p_adjusted"] <= 0.05 for row in data["effects"]]
        stopped += "may stop" in verdicts
    assert stopped <= 11  # 5 are expected; 12 or more have a chance of .004


@pytest.mark.parametrize(
    ("looks", "events", "advice"),
    [
        (kb.Looks("spending", looks=3, earlier=(200,)), 125, "Look 2 of 3: keep going until look 3."),
        (kb.Looks("spending", looks=2, earlier=(200,)), 120, "Look 2 of 2: the design has ended without a finding."),
        (kb.Looks("always", tuned_at=600), 130, "At any time: keep going, about 760 people if the effect stays as "),
    ],
)
def test_what_is_clear_only_before_the_correction_stops_nothing(looks: kb.Looks, events: int, advice: str) -> None:
    """90 of 300 against some more."""
    people = null_people(1)
    for arm, ones in ((0, 90), (1, events)):
        people["metric 0"][people["variant"] == arm] = np.arange(300) < ones
    alone = kb.readout(people, arm="variant", metrics=["metric 0"], looks=looks)
    assert alone.effects[0].look.verdict == "may stop"  # type: ignore[union-attr]
    among = kb.readout(people, arm="variant", metrics=TEN, looks=looks)
    row = among.to_dict()["effects"][0]
    assert row["sequential"]["p"] <= 0.05 < row["p_adjusted"]
    assert row["sequential"]["verdict"] != "may stop"
    assert advice in " ".join(str(among).split())
    assert "you may stop" not in str(among)
