from __future__ import annotations

from typing import Any

import pytest

from kanab.report.noise_words import account, noise_sentences, noise_table, price, promise, widened

NOISE = {
    "epsilon": 1.0, "delta": 1e-6, "mechanism": "discrete Gaussian", "total": 2.0, "spent": 1.0, "left": 0.6,
    "scales": {"checkout": {"people by checkout": 8.5}},
}  # fmt: skip


def row(metric: str, error: float, noise: float, *, carries: bool = True) -> dict[str, Any]:
    return {"metric": metric, "se_population": error, "se_noise": noise, "carries_verdict": carries}


@pytest.mark.parametrize(
    ("epsilon", "factor"), [(0.1, "1.11"), (1.0, "2.7"), (2.0, "7.4"), (5.0, "148"), (10.0, "22,026")]
)
def test_the_promise_is_a_factor_that_people_can_repeat(epsilon: float, factor: str) -> None:
    assert f"by at most a factor of {factor}, but for one chance in 1,000,000." in promise(
        {**NOISE, "epsilon": epsilon}
    )


def test_what_is_spent_and_left_is_said() -> None:
    assert account(NOISE) == "Spent: ε = 1 of 2 in all; left: 0.6, for one more release."
    assert account({**NOISE, "left": 0.0}).endswith("left: nothing.")


def test_the_price_of_noise_is_said_once_for_all_metrics() -> None:
    rows = [
        row("spend", 1.25, 0.75),
        row("spend", 1.0, 0.1),
        row("bought", 1.0, 0.1),
        row("beside", 1, 0.9, carries=False),
    ]
    assert widened(rows) == pytest.approx({"spend": 0.25, "bought": 0.00504}, abs=1e-5)
    assert price({"effects": rows}) == (
        "Noise makes intervals 0.5 % to 25 % wider than they would be without (bought least, spend most): "
        "as if up to 36 % fewer people had come."
    )


def test_noise_that_hardly_matters_is_not_made_to_sound_dear() -> None:
    assert price({"effects": [row("bought", 1.0, 0.02)]}) == (
        "Noise makes intervals 0.0 % wider than they would be without (bought)."
    )


def test_without_an_error_there_is_no_price_and_every_scale_is_a_row() -> None:
    assert price({"effects": [row("spend", 0.5, 0.5)]}) == ""
    data = {"effects": [], "privacy": {"k": 10, "noise": NOISE}}
    assert len(noise_sentences(data)) == 3
    assert noise_table(data).rows == (("checkout", "people by checkout", "8.5"),)
