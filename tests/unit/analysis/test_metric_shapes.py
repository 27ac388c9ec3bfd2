"""What an analysis knows of the shape of its metrics: from rows, from a receipt, from sums, or nothing."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.described import count_of, readout_of

import kanab as kb
from kanab.analysis.metric_shapes import shapes_of
from kanab.plan import parse_plan
from kanab.stats.skewness import Shape, skewness_class

CHOICES: dict[str, Any] = {
    "arm": "variant", "metrics": ["spend", "bought", "balance", "orders"], "ratios": ["spend/orders"],
    "bounds": {"spend": (0, 500), "balance": (-100, 100), "orders": (0, 50)},
    "resolution": {"spend": 0.01, "balance": 1, "orders": 1},
}  # fmt: skip


def shop(people: int = 4_000, seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    bought = rng.random(people) < 0.1
    return {
        "variant": rng.choice(["A", "B"], people, p=[0.9, 0.1]), "bought": bought.astype(int),
        "spend": np.round(np.where(bought, rng.lognormal(3, 1, people), 0).clip(0, 500), 2),
        "balance": np.round(rng.normal(0, 20, people)), "orders": 1 + rng.poisson(2, people),
    }  # fmt: skip


def shapes(released: Any) -> dict[str, Shape]:
    return shapes_of(released, "variant", released.tables)


def test_a_release_says_in_classes_how_amounts_and_ratios_are_spread() -> None:
    counted = count_of(shop(), **CHOICES)
    known, exact = shapes(kb.release(counted)), counted.shapes["variant"]
    for name in ("spend", "balance", "orders", "spend/orders"):
        assert known[name].skewness == skewness_class(exact[name].skewness)
        share = exact[name].unusual / exact[name].people
        assert share / 2**0.5 < known[name].unusual <= share
    assert known["balance"].skewness == 0
    assert {name for name, shape in known.items() if shape.nonnegative} == {
        "spend", "bought", "orders", "spend/orders"
    }  # fmt: skip


def test_of_a_rate_sums_tell_the_shape() -> None:
    released = kb.release(count_of(shop(), **CHOICES))
    assert "bought" not in released.receipt.shapes["variant"]
    rate = float(np.mean(shop()["bought"]))
    assert shapes(released)["bought"].unusual == pytest.approx(rate, rel=1e-12)
    assert shapes(released)["bought"].skewness == skewness_class((1 - 2 * rate) / np.sqrt(rate * (1 - rate)))
    nobody = kb.release(count_of(shop() | {"bought": np.zeros(4_000, dtype=int)}, **CHOICES))
    assert (shapes(nobody)["bought"].skewness, shapes(nobody)["bought"].unusual) == (0, 0)


def test_a_release_of_before_knows_no_skewness_and_is_read_with_one_variance_too() -> None:
    released = kb.release(count_of(shop(), **CHOICES))
    before = replace(released, receipt=replace(released.receipt, shapes={}))
    assert shapes(before)["spend"] == Shape(None, 0.0, nonnegative=True)
    assert shapes(before)["bought"] == shapes(released)["bought"]
    now, then = (
        next(row.effect for row in kb.analyze(each).effects if row.effect.metric == "spend")
        for each in (released, before)
    )
    assert now.tilted[0] > 0
    assert (then.tilted, now.se_alike) == ((0.0, 0.0), None)
    assert then.se_alike is not None
    assert now.p_usual == then.p_usual


def test_rows_and_their_release_are_read_alike() -> None:
    rows = readout_of(shop(), **CHOICES)
    released = kb.analyze(kb.release(count_of(shop(), **CHOICES)))
    assert [row.effect for row in rows.effects] == [row.effect for row in released.effects]


@pytest.mark.slow
def test_with_noise_nothing_is_told_of_a_shape() -> None:
    pytest.importorskip("opendp")
    plan = parse_plan(
        """
        privacy = { epsilon = 9 }
        metrics.spend = { bounds = [0, 500], resolution = 0.01 }
        experiments.variant = { arms = { A = 9, B = 1 } }
        """
    )
    counted = kb.count(shop(40_000), plan)
    assert counted.shapes["variant"]["spend"].skewness > 1
    released = kb.release(counted)
    assert released.receipt.noise is not None
    assert released.receipt.shapes == {}
    assert shapes(released)["spend"] == Shape(None, 0.0, nonnegative=True)
    (row,) = kb.analyze(released).effects
    assert row.effect.se_alike is not None
