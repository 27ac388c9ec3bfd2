"""No class of anything published has one or two people in whom two published metrics differ."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import kanab as kb
from kanab.inspection.attack.metric_differences import find_by_products, find_metric_differences
from kanab.inspection.attack.published import published_from_dict
from kanab.privacy.release import Release
from kanab.privacy.release_json import release_to_dict

AMOUNTS = ("gross", "net", "capped", "later")


def shop(seed: int) -> dict[str, NDArray[Any]]:
    """People with four amounts in cents that are nearly alike, a subscription at one price, and a 0/1 metric."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(400, 3_000))
    gross = np.where(rng.random(n) < rng.uniform(0.1, 0.6), 500 + rng.gamma(2, 1_500, n).astype(int), 0)
    gross = np.minimum(gross, 50_000)
    few = rng.choice([0.001, 0.005, 0.02, 0.2])
    ordered = gross > 0
    price = np.where(ordered, 999, 0)
    return {
        "arm": rng.choice(["A", "B"], n), "tier": rng.integers(1, rng.integers(3, 8), n),
        "region": rng.choice(list("nesw"), n), "gross": gross,
        "net": np.where(rng.random(n) < few, gross // 2, gross),
        "capped": np.minimum(gross, int(np.quantile(gross, 1 - few))),
        "later": gross + np.where(rng.random(n) < few, 1_250, 0),
        "paid": np.where(rng.random(n) < few, price + 500 * ordered, price),
        "ordered": np.where(rng.random(n) < few / 4, ~ordered, ordered).astype(int),
    }  # fmt: skip


def released(rows: dict[str, NDArray[Any]]) -> Release:
    metrics = [*AMOUNTS, "paid", "ordered"]
    amounts = {name: (0, 60_000) for name in metrics if name != "ordered"}
    choices = {"bounds": amounts, "resolution": dict.fromkeys(amounts, 1), "ratios": ["gross/ordered", "net/gross"]}
    return kb.release(kb.count(rows, arm="arm", metrics=metrics, covariates=["tier", "region"], **choices))


def multiples(y: NDArray[Any], z: NDArray[Any]) -> set[Fraction]:
    """1, and the commonest ratio of those who have both, if half of them share it."""
    ratios = Counter(Fraction(int(a), int(b)) for a, b in zip(y, z, strict=True) if a and b)
    commonest, times = ratios.most_common(1)[0]
    return {Fraction(1), commonest} if 2 * times >= ratios.total() and commonest.denominator <= 10**6 else {Fraction(1)}


def classes(rows: dict[str, NDArray[Any]], made: Release, name: str) -> NDArray[Any]:
    """Everybody's class in a published table."""
    columns = []
    for axis in made.tables[name].axes:
        levels = made.receipt.maps.get(name)
        values = rows[axis].tolist()
        merged = levels is not None and levels.covariate == axis
        columns.append([str(levels.target(value)) if merged else str(value) for value in values])
    return np.array(["/".join(each) for each in zip(*columns, strict=True)])


@pytest.mark.parametrize("seed", range(12))
def test_nowhere_do_two_published_metrics_differ_for_one_or_two_people(seed: int) -> None:
    rows = shop(seed)
    made = released(rows)
    everything = {name: set(table.metric_names) for name, table in made.tables.items()}
    published = {metric for metrics in everything.values() for metric in metrics}
    places = [(rows["arm"], published), *((classes(rows, made, name), metrics) for name, metrics in everything.items())]
    for place, metrics in places:
        for first, second in combinations(sorted(metrics - {"ordered"}), 2):
            for times in multiples(rows[first], rows[second]):
                differ = rows[first] * times.denominator != rows[second] * times.numerator
                _, people = np.unique(place[differ], return_counts=True)
                assert not np.isin(people, (1, 2)).any(), (first, second, times)
        if {"paid", "ordered"} <= metrics:
            _, people = np.unique(place[rows["paid"] != 999 * rows["ordered"]], return_counts=True)
            assert not np.isin(people, (1, 2)).any()
    for cross in (cross for table in made.tables.values() for cross in table.crosses):
        if cross.pair == ("gross", "ordered"):
            for side in (0, 1):
                some = (rows["ordered"] == side) & (rows["gross"] != 0)
                _, people = np.unique(rows["arm"][some], return_counts=True)
                assert not np.isin(people, (1, 2)).any()


@pytest.mark.parametrize("seed", range(12))
def test_subtracting_metrics_and_cutting_arms_by_products_tell_nothing_of_what_is_released(seed: int) -> None:
    attacked = published_from_dict(release_to_dict(released(shop(seed))), "ours")
    assert find_metric_differences([attacked], attacked.k) == []
    assert find_by_products([attacked], attacked.k) == []
