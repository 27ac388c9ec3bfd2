"""How long does an analysis take, once there is a tally? Every method, best of many, in milliseconds.

Two arms by five levels, or four arms, of made-up people: how many there were does not matter to a tally. "Everything
at once" is seven metrics and a ratio of three arms: adjusted for two numbers and two covariates, segments of 2 and 30
levels, receiving, windows, three quantiles. The target is 300 ms.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import combinations
from time import perf_counter
from typing import Any

import numpy as np
from tests.described import as_values

import kanab as kb
from kanab.datasets import shop_rows
from kanab.stats.arms import many_to_one, omnibus
from kanab.stats.margins import Margin, against_margin
from kanab.stats.multiplicity import simultaneous_intervals
from kanab.stats.posteriors import Prior, best_arm
from kanab.stats.relative import relative_delta
from kanab.stats.sequential import any_time_look, planned_look

Question = Callable[[], Any]
LIMIT = 1.0
"""Milliseconds; the joint t and a first planned look may take longer."""


def effects() -> dict[str, Question]:
    """One effect of one metric, from tables of the made-up shop."""
    rows = shop_rows(40_000)
    bounds, steps = {"spend": (0.0, 500.0)}, {"spend": 0.01}

    def counted(*covariates: str, squares: Any = "marginals") -> kb.Tally:
        return kb.count_columns(
            rows, arm="variant", covariates=covariates, metrics=["spend", "bought"], bounds=bounds, resolution=steps,
            squares=squares, products=[("spend", "bought")],
        )  # fmt: skip

    one, classes = counted("tier"), counted("tier", squares="class")
    pairs = [counted(*pair) for pair in combinations(("tier", "device", "country"), 2)]
    means = kb.stats.plain_means(one, "spend")
    effect = kb.stats.against_control(means)
    return {
        "difference in means (Welch)": lambda: kb.stats.difference_in_means(one, "spend"),
        "adjusted effect, five levels": lambda: kb.stats.adjusted_effect(one, "spend"),
        "... with the exact variance": lambda: kb.stats.adjusted_effect(one, "spend", variance="exact"),
        "additive, three covariates": lambda: kb.stats.additive_means(pairs, "spend"),
        "ratio": lambda: kb.stats.against_control(kb.stats.ratio_means(one, "spend", "bought")),
        "ratio, adjusted": lambda: kb.stats.against_control(kb.stats.adjusted_ratio_means(one, "spend", "bought")),
        "relative effect, Fieller": lambda: kb.stats.relative_effect(means, effect),
        "relative effect, delta": lambda: relative_delta(means, effect),
        "margin, equivalence": lambda: against_margin(effect, Margin("equivalence", 0.5)),
        "any time": lambda: any_time_look(effect, 40_000),
        "planned look 3 of 5": lambda: planned_look(effect, [10_000, 20_000, 40_000], looks=5),
        "OLS, arm + tier": lambda: kb.stats.fit(one, "arm + tier", "spend"),
        "HC3, arm + tier": lambda: kb.stats.fit(classes, "arm + tier", "spend", errors="HC3"),
        "pooled F, arm x tier": lambda: kb.stats.pooled_f(one, "tier", "spend"),
        "robust F, two marginals": lambda: kb.stats.robust_f(one, "tier", "spend"),
        "sample ratio": lambda: kb.stats.sample_ratio(one, {"A": 1, "B": 1}),
        "intervals of ten effects, BH": lambda: simultaneous_intervals([effect] * 10, "bh"),
    }


def arms() -> dict[str, Question]:
    """Four arms, and five: from there on adjusted effects share more than the control."""
    rng = np.random.default_rng(4)
    tier = rng.integers(1, 6, 4_000)
    rows = {"arm": rng.choice(list("ABCDE"), 4_000), "tier": tier, "y": rng.normal(4 + 0.5 * tier, 2).round(3)}
    five = kb.count_columns(rows, arm="arm", covariates=["tier"], metrics={"y": kb.Metric("y", 1_000)})
    plain, adjusted = kb.stats.plain_means(five.select_arms(list("ABCD"))), kb.stats.adjusted_means(five)
    return {
        "omnibus of four arms": lambda: omnibus(plain),
        "best of four arms (joint normal)": lambda: best_arm(plain, Prior(0, 0.1)),
        "four arms, Dunnett (joint t, quadrature)": lambda: many_to_one(plain),
        "five arms adjusted, Dunnett (joint t, lattice)": lambda: many_to_one(adjusted),
    }


def plans() -> dict[str, Question]:
    """Before anybody has come."""
    noise, three = kb.planning.spread_of_rate(0.05), kb.planning.spread_of_amounts(20, shares={"A": 1, "B": 1, "C": 1})
    cells = kb.planning.crossed_spread({"A": 1, "B": 1}, {"x": 3, "y": 2, "z": 1}, sd=10)
    dunnett = kb.planning.PlannedTest(correction="dunnett")
    return {
        "people for an effect": lambda: kb.planning.solve_power(noise, effect=0.005, power=0.8),
        "effect for people": lambda: kb.planning.solve_power(noise, people=20_000, power=0.8),
        "people for an interaction": lambda: kb.planning.interaction_power(cells, effect=1, power=0.8),
        "people, three arms, Dunnett (joint t)": lambda: kb.planning.solve_power(
            three, effect=1, power=0.8, test=dunnett
        ),
    }


def whole() -> dict[str, Question]:
    """A readout of two metrics, plain and adjusted, with segments, checks and all."""
    world = shop_rows(40_000)
    released = kb.release(
        kb.count(world, arm="variant", metrics=["spend", "bought"], adjust=["tier"], segments=["device"])
    )
    full = everything()
    return {
        "analyze() of two metrics, one covariate, one segment": lambda: kb.analyze(released),
        "analyze() of everything at once, three arms": lambda: kb.analyze(full),
    }


def everything() -> kb.Release:
    """A release with all that tables hold: numbers, levels, segments, a ratio, quantiles, receiving, windows."""
    people, rng = 40_000, np.random.default_rng(1)
    arm = rng.choice(["A", "B", "C"], people)
    before = np.round(np.minimum(rng.lognormal(3, 1, people), 200), 2)
    weeks = [np.round(rng.gamma(1, 5, people) + before / 10, 2) for _ in range(2)]
    opened = (arm != "A") & (rng.random(people) < 0.4)
    rows = {
        "variant": arm,
        "tier": rng.integers(1, 6, people),
        "country": rng.choice(["DE", "FR", "ES"], people),
        "device": rng.choice(["phone", "desktop"], people),
        "area": rng.integers(0, 30, people),
        "spent_before": before,
        "visits_before": rng.poisson(4, people).clip(0, 12),
        "spend@0d..7d": weeks[0],
        "spend@7d..14d": weeks[1],
        "spend": np.round(weeks[0] + weeks[1] + 2 * opened, 2),
        "visits": 1 + rng.poisson(3, people),
        "bought": rng.integers(0, 2, people),
        "opened": opened.astype(int),
        "latency": np.round(np.exp(rng.normal(5, 0.6, people)), 2),
    }
    bounds = dict.fromkeys(("spend", "spend@0d..7d", "spend@7d..14d"), (0, 500))
    bounds |= {"visits": (0, 50), "latency": (0, 5_000), "spent_before": (0, 200), "visits_before": (0, 12)}
    return kb.release(
        kb.count(
            rows,
            **as_values(
                "count",
                arm="variant",
                metrics=["spend@0d..7d", "spend@7d..14d", "spend", "visits", "bought", "latency"],
                adjust=["tier", "country", "spent_before", "visits_before"],
                segments=["device", "area"],
                quantiles={"latency": [0.5, 0.9, 0.99]},
                bins={"latency": [0, *range(20, 600, 20), 700, 800, 1_000, 1_500]},
                bounds=bounds,
                ratios=["spend/visits"],
                treatment_received="opened",
            ),
        )
    )


def milliseconds(question: Question, times: int) -> float:
    question()
    best = float("inf")
    for _ in range(times):
        start = perf_counter()
        question()
        best = min(best, perf_counter() - start)
    return 1e3 * best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=200)
    times = parser.parse_args().times
    over = []
    for title, questions in (("an effect", effects()), ("arms", arms()), ("a plan", plans()), ("whole", whole())):
        print(f"\n{title}")
        for what, question in questions.items():
            found = milliseconds(question, times if title in ("an effect", "arms") else max(5, times // 10))
            print(f"  {what:<54}{found:>9.3f} ms", flush=True)
            if title in ("an effect", "arms") and found > LIMIT:
                over.append(what)
    print(f"\nover {LIMIT:g} ms: {', '.join(over) or 'none'}")


if __name__ == "__main__":
    main()
