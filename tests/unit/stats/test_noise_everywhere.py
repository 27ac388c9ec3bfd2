"""Every statistic of a tally knows its noise, or refuses numbers that carry some: none looks surer than it is."""

import inspect
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.stats.noisy_tables import restated, shop, stated_noise, with_noise

import kanab.stats
from kanab.errors import AnalysisError
from kanab.tally.cell_arrays import marginal
from kanab.tally.moments import Cross

FORMULA = "arm + C(tier)"
CALLS = {
    "additive_means": lambda stats, t: stats.additive_means([t], "spend", ["tier"]),
    "additive_ratio_means": lambda stats, t: stats.additive_ratio_means([t], "spend", "bought", ["tier"]),
    "adjusted_effect": lambda stats, t: stats.adjusted_effect(t, "spend"),
    "adjusted_means": lambda stats, t: stats.adjusted_means(t, "spend"),
    "adjusted_ratio_means": lambda stats, t: stats.adjusted_ratio_means(t, "spend", "bought"),
    "changed_shares": lambda stats, t: stats.changed_shares([t, uneven(t)]),
    "check_balance": lambda stats, t: stats.check_balance([t]),
    "check_balance_any_time": lambda stats, t: stats.check_balance_any_time([t]),
    "cluster_means": lambda stats, t: stats.cluster_means(t, "spend", "bought"),
    "difference_in_means": lambda stats, t: stats.difference_in_means(t, "spend"),
    "fit": lambda stats, t: stats.fit(t, FORMULA, "spend"),
    "follow_ups": lambda stats, t: stats.follow_ups(t, "tier", "spend"),
    "metric_cautions": lambda stats, t: stats.metric_cautions(t, "bought"),
    "nested_f": lambda stats, t: stats.nested_f(t, "arm", FORMULA, "spend"),
    "count_nonmodal": lambda stats, t: stats.count_nonmodal(t, "spend"),
    "plain_means": lambda stats, t: stats.plain_means(t, "spend"),
    "effect_differs": lambda stats, t: stats.effect_differs(t, "tier", "spend"),
    "pooled_f": lambda stats, t: stats.pooled_f(t, "tier", "spend"),
    "ratio_means": lambda stats, t: stats.ratio_means(t, "spend", "bought"),
    "received_effect": lambda stats, t: stats.received_effect(t, "spend", "bought"),
    "robust_f": lambda stats, t: stats.robust_f(t, "tier", "spend"),
    "sample_ratio": lambda stats, t: stats.sample_ratio(t),
    "sample_ratio_any_time": lambda stats, t: stats.sample_ratio_any_time(t, {"A": 3, "B": 1}),
    "segment_effects": lambda stats, t: stats.segment_effects(t, "tier", "spend"),
}  # fmt: skip
REFUSED = {
    "cluster_means", "fit", "nested_f",
}  # fmt: skip


def uneven(tally):
    """Return a batch of other shares."""
    people = tally.people.copy()
    people[0] = people[0] * 7 // 8
    return replace(tally, people=people)


def noisy():
    """Return two arms by three tiers with noise in everything, products of two metrics too."""
    rng = np.random.default_rng(1)
    exact = shop(6_000, rng)
    table = with_noise(exact, stated_noise(exact), rng)
    spend, bought = (table.moments_of(name) for name in ("spend", "bought"))
    by = ("arm",)
    n, s, b = (marginal(cells, table.axes, by) for cells in (spend.counts, spend.sums, bought.sums))
    cross = Cross(("spend", "bought"), by, n, (s, b), (table.squares("spend"), b), s // 5)
    products = {(("spend", "bought"), by): np.full(2, 1e3, dtype=object)}
    return replace(table, crosses=(cross,), noise=replace(table.noise, products=products))


def numbers(value):
    """Return everything that a result says, as text."""
    if isinstance(value, (list, tuple)):
        return [numbers(part) for part in value]
    fields = getattr(value, "__dataclass_fields__", None)
    return {name: numbers(getattr(value, name)) for name in fields} if fields else repr(value)


def taking_tallies():
    for name in kanab.stats.__all__:
        function = getattr(kanab.stats, name)
        if inspect.isfunction(function) and "Tally" in str(inspect.signature(function)):
            yield name


def test_every_statistic_of_a_tally_is_asked():
    assert {*taking_tallies()} == {*CALLS}


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_statistic_knows_how_large_noise_is_or_refuses_it(name):
    tally = noisy()
    if name in REFUSED:
        with pytest.raises(AnalysisError, match="numbers with noise"):
            CALLS[name](kanab.stats, tally)
        return
    louder = 3_000 if name == "metric_cautions" else 30
    soft, loud = (CALLS[name](kanab.stats, restated(tally, factor)) for factor in (0.01, louder))
    if name == "pooled_f":  # there is none, and it says why
        assert "noise" in soft.note
        return
    assert numbers(soft) != numbers(loud)
