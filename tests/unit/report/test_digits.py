from typing import Any

import pytest

from kanab.report.digits import (
    figures_of,
    fixed,
    is_share,
    spoken_p,
)

Readout = dict[str, Any]


@pytest.mark.parametrize(
    ("interval", "decimals"),
    [
        ([-0.5, 0.5], 2),
        ([-1.2, 1.2], 1),
        ([-12, 12], 1),  # an effect of 0.5 is no 0
        ([-1234, 1234], 1),
        ([-0.0996, 0.0996], 2),
        ([-0.0994, 0.0994], 3),
        ([0.3, None], 2),
        ([None, 0.7], 2),
        (None, None),
        ([None, None], None),
        ([0.5, 0.5], None),
    ],
)
def test_a_table_shows_two_digits_of_the_half_width(effect: Any, interval: Any, decimals: int | None) -> None:
    assert figures_of([effect(interval=interval)], share=False).decimals == decimals


def test_an_interval_that_stops_short_of_zero_does_not_show_zero_as_its_end(effect: Any) -> None:
    row = effect(interval=[0.004, 1.0], estimate=0.5)
    assert figures_of([row], share=False).between(row["interval"]) == "0.004 to 1.000"


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (None, 2, "–"),
        (float("nan"), 2, "–"),
        (float("inf"), 2, "–"),
        (-0.001, 2, "0.00"),
        (-1.5, 1, "−1.5"),
        (12345.678, 2, "12,345.68"),
        (0.5, None, "0.5000"),
        (-3e-9, 10, "−3.00e-09"),
        (2e15, 0, "2.00e+15"),
    ],
)
def test_numbers_have_a_true_minus_and_no_negative_zero(value: float | None, decimals: int | None, text: str) -> None:
    assert fixed(value, decimals) == text


@pytest.mark.parametrize(("p", "text"), [(0.0, "p < 1e-100"), (1e-99, "p = 1.00e-99"), (float("nan"), "p unknown")])
def test_a_p_value_is_never_zero(p: float, text: str) -> None:
    assert spoken_p(p) == text


def test_a_metric_of_zeros_and_ones_is_known_by_its_variance(hillstrom: Readout) -> None:
    assert is_share(hillstrom, "visit")
    assert not is_share(hillstrom, "spend")
    assert not is_share(hillstrom, "unknown")


@pytest.mark.parametrize("change", [{"se": 0.00339}, {"se": 0.0}, {"mean_arm": 1.2}, {"mean_control": None}])
def test_anything_else_is_shown_as_plain_numbers(hillstrom: Readout, change: dict[str, Any]) -> None:
    hillstrom["effects"][0] |= change
    assert not is_share(hillstrom, "visit")


def test_missing_values_make_a_share_a_plain_number(hillstrom: Readout) -> None:
    hillstrom["arms"]["No E-Mail"] += 10
    assert not is_share(hillstrom, "visit")


def test_a_small_effect_keeps_a_digit_beside_a_wide_interval() -> None:
    row = {"estimate": 0.0002, "interval": [-0.011, 0.0114]}
    assert figures_of([row], share=True).change(0.0002, signed=True) == "+0.02 points"
    assert figures_of([row | {"estimate": 1e-9}], share=True).decimals == 3
    assert figures_of([row | {"estimate": 0.002}], share=True).change(0.002) == "0.2 points"
