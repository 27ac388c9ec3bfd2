"""How often does an experiment without any effect ring at some look? Nominal: .05 over all looks.

Simulated experiments are looked at 96 times, from 500 people to 10,000. The people's values are
not drawn one by one where a batch's sum and squares have a known distribution. Then ASOS's real
checkpoints: how often was a p below .05 on the way not confirmed at the end?
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import perf_counter

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from kanab import count_columns
from kanab.stats import adjusted_effect
from kanab.stats.cautions import FEWEST_CARRIERS
from kanab.stats.sequential import (
    OPTIMAL_AT,
    any_time_look,
    log_evidence_of_counts,
    mixture_z,
    planned_look,
    tuning,
)
from kanab.stats.spending import CLOSEST, boundaries
from kanab.stats.srm import SAMPLE_RATIO_ALARM

Floats = NDArray[np.float64]
SIMULATIONS = 10_000
BATCHES = np.array([500] + [100] * 95)
PEOPLE = BATCHES.cumsum()
METHODS = ("p at the end", "every p", "O'Brien-Fleming", "Pocock", "any time")


Draw = Callable[[np.random.Generator, tuple[int, int], NDArray[np.int64], int], tuple[Floats, Floats]]


@dataclass(frozen=True)
class Case:
    """A world without effect: the arm's share and how a batch's sums and squares are drawn."""

    name: str
    share: float
    draw: Draw
    first: int = 500
    """People at the first look."""
    bounded: bool = True
    """Nobody has less than 0, and many have 0."""

    @property
    def rate(self) -> bool:
        """Whether everybody has 0 or 1."""
        return "rate" in self.name


def normal(sd: tuple[float, float]) -> Draw:
    def draw(rng, shape, n, arm):
        sums = rng.normal(size=shape) * np.sqrt(n) * sd[arm]
        return sums, sums**2 / n + sd[arm] ** 2 * rng.chisquare(n - 1, shape)

    return draw


def rate(p: float) -> Draw:
    def draw(rng, shape, n, _arm):
        sums = rng.binomial(n, p, shape).astype(float)
        return sums, sums

    return draw


def amounts(rng, shape, n, _arm):
    """A tenth of the people spend a log-normal amount: skewness 14."""
    buyers = rng.binomial(n, 0.1, shape)
    ends = buyers.ravel().cumsum()
    values = np.append(rng.lognormal(0, 1, int(ends[-1])), 0.0)
    starts = ends - buyers.ravel()
    empty = buyers.ravel() == 0
    sums, squares = (np.where(empty, 0.0, np.add.reduceat(x, starts)) for x in (values, values**2))
    return sums.reshape(shape), squares.reshape(shape)


CASES = (
    Case("50/50, normal", 0.5, normal((1.0, 1.0)), bounded=False),
    Case("10/90, sd 3:1", 0.1, normal((1.0, 3.0)), bounded=False),
    Case("10/90, sd 1:3", 0.1, normal((3.0, 1.0)), bounded=False),
    Case("50/50, rate 10 %", 0.5, rate(0.1)),
    Case("50/50, rate 1 %", 0.5, rate(0.01)),
    Case("10/90, rate 10 %", 0.1, rate(0.1)),
    Case("10/90, rate 1 %", 0.1, rate(0.01)),
    Case("50/50, amounts", 0.5, amounts),
    Case("10/90, amounts", 0.1, amounts),
    Case("same, from 5,000 on", 0.1, amounts, first=5_000),
)


@dataclass(frozen=True)
class Seen:
    """What is seen at every look, one row per experiment; p is 1 where nothing has varied yet.

    ``p`` is Welch's. ``verdict`` is what a verdict needs: of rates the score test; of amounts a second test, with one
    variance for both arms, has to ring too. ``begun``: every arm has twenty people off the commonest value.
    """

    p: Floats
    verdict: Floats
    begun: NDArray[np.bool_]


def seen_by(case: Case, simulations: int, rng: np.random.Generator) -> Seen:
    """Draw experiments and test them at every look."""
    means, errors, freedom, within, people = [], [], [], [], []
    begun = np.ones((simulations, len(BATCHES)), dtype=bool)
    for arm, share in enumerate((1 - case.share, case.share)):
        batch = np.rint(BATCHES * share).astype(np.int64)
        sums, squares = (part.cumsum(axis=1) for part in case.draw(rng, (simulations, len(batch)), batch, arm))
        n = batch.cumsum()
        people.append(n)
        means.append(sums / n)
        within.append(squares - sums**2 / n)
        errors.append(within[-1] / (n - 1) / n)
        freedom.append(n - 1)
        if case.bounded:
            begun &= sums**2 >= FEWEST_CARRIERS * squares
    difference = np.abs(means[1] - means[0])
    together = people[0] + people[1]
    rate_of_all = (means[0] * people[0] + means[1] * people[1]) / together
    null = rate_of_all * (1 - rate_of_all) * together / (together - 1) * (1 / people[0] + 1 / people[1])
    variance = errors[0] + errors[1]
    pooled_df = freedom[0] + freedom[1]
    pooled = (within[0] + within[1]) / pooled_df * (1 / people[0] + 1 / people[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        df = variance**2 / (errors[0] ** 2 / freedom[0] + errors[1] ** 2 / freedom[1])
        welch = np.where(variance > 0, 2 * special.stdtr(df, -difference / np.sqrt(variance)), 1.0)
        second = np.where(pooled > 0, 2 * special.stdtr(pooled_df, -difference / np.sqrt(pooled)), 1.0)
        score = np.where(null > 0, 2 * special.ndtr(-difference / np.sqrt(null)), 1.0) if case.rate else welch
    return Seen(welch, score if case.rate else np.maximum(welch, second), begun)


@cache
def nominal(first: int) -> dict[str, Floats]:
    """Below which p each method stops, at every look from so many people on."""
    people = PEOPLE[first <= PEOPLE]
    fractions = (people / people[-1]).tolist()
    spending = [
        np.array([look.nominal for look in boundaries(fractions, spending=kind)])
        for kind in ("obrien-fleming", "pocock")
    ]
    any_time = 2 * special.ndtr(-mixture_z(people / OPTIMAL_AT, 0.05, 2))
    every = np.full(len(people), 0.05)
    at_the_end = every * (people == people[-1])
    return dict(zip(METHODS, (at_the_end, every, *spending, any_time), strict=True))


def sizes(case: Case, simulations: int, seed: int = 1) -> dict[str, float]:
    """The share of experiments that ring at some look, for every method."""
    rng, limits = np.random.default_rng(seed), nominal(case.first)
    ringing = dict.fromkeys(METHODS, 0)
    late = case.first <= PEOPLE
    for start in range(0, simulations, 500):
        seen = seen_by(case, min(500, simulations - start), rng)
        p = {"p at the end": seen.p, "every p": seen.p, "any time": np.where(seen.begun, seen.verdict, 1.0)}
        for method, limit in limits.items():
            ringing[method] += int((p.get(method, seen.verdict)[:, late] <= limit).any(axis=1).sum())
    return {method: count / simulations for method, count in ringing.items()}


def adjusted_sizes(simulations: int, looks: int = 20, batch: int = 250, seed: int = 1) -> dict[str, float]:
    """The same for adjusted effects, through tallies that are added up batch by batch."""
    rng = np.random.default_rng(seed)
    people = tuple(batch * number for number in range(1, looks + 1))
    limits = [look.nominal for look in boundaries([n / people[-1] for n in people])]
    ringing = {"every p": 0, "O'Brien-Fleming": 0, "any time": 0}
    for _ in range(simulations):
        found, total = set(), 0
        for place, n in enumerate(people):
            tier = rng.integers(1, 4, batch)
            rows = {"arm": rng.choice(["A", "B"], batch), "tier": tier, "y": rng.normal(tier, 1.0)}
            counted = count_columns(rows, arm="arm", covariates=["tier"], metrics=["y"], resolution={"y": 1e-4})
            total = total + counted
            effect = adjusted_effect(total)
            found |= {"every p"} if effect.p < 0.05 else set()
            found |= {"O'Brien-Fleming"} if effect.p <= limits[place] else set()
            found |= {"any time"} if any_time_look(effect, n).verdict == "may stop" else set()
        for method in found:
            ringing[method] += 1
    return {method: count / simulations for method, count in ringing.items()}


def ratio_sizes(simulations: int, shares: tuple[float, ...] = (0.5, 0.3, 0.2), seed: int = 1) -> tuple[float, float]:
    """False alarms of the sample ratio at .001 with a look every 100 people: every χ², and at any time."""
    rng = np.random.default_rng(seed)
    concentration = OPTIMAL_AT / tuning(SAMPLE_RATIO_ALARM, 2)
    rung = np.zeros(2)
    for _ in range(simulations):
        counts = rng.multinomial(100, shares, 100).cumsum(axis=0)
        expected = counts.sum(axis=1, keepdims=True) * np.array(shares)
        p = special.chdtrc(len(shares) - 1, ((counts - expected) ** 2 / expected).sum(axis=1))
        evidence = [log_evidence_of_counts(row, shares, concentration) for row in counts[::5]]
        rung += (p < SAMPLE_RATIO_ALARM).any(), max(evidence) > -np.log(SAMPLE_RATIO_ALARM)
    return float(rung[0] / simulations), float(rung[1] / simulations)


# ── ASOS ───────────────────────────────────────────────────────────────────────────────────────


def asos_series(path: Path) -> Iterator[tuple[Floats, Floats]]:
    """People and Welch's p at every checkpoint of each of ASOS's comparisons (variant × metric)."""
    rows = pd.read_csv(path).dropna()
    errors = [rows[f"variance_{arm}"] / rows[f"count_{arm}"] for arm in "ct"]
    rows = rows.assign(people=rows["count_c"] + rows["count_t"], variance=errors[0] + errors[1])
    freedom = sum(error**2 / (rows[f"count_{arm}"] - 1) for error, arm in zip(errors, "ct", strict=True))
    rows = rows.assign(df=rows["variance"] ** 2 / freedom)[rows["variance"] > 0]
    t = (rows["mean_t"] - rows["mean_c"]) / np.sqrt(rows["variance"])
    rows = rows.assign(p=2 * special.stdtr(rows["df"], -np.abs(t))).sort_values("time_since_start", kind="stable")
    for _, series in rows.groupby(["experiment_id", "variant_id", "metric_id"]):
        people, p = series["people"].to_numpy(dtype=float), series["p"].to_numpy()
        if len(people) > 1 and people[0] < people[-1]:
            yield people, p


def ten_looks(people: Floats) -> list[int]:
    """The first checkpoint at or after each tenth of the final people, the last one at the end."""
    places = [int(np.argmax(people >= people[-1] * tenth / 10)) for tenth in range(1, 10)] + [len(people) - 1]
    kept: list[int] = []
    for place in places:
        if not kept or people[place] >= people[kept[-1]] * (1 + CLOSEST):
            kept.append(place)
    if kept[-1] != places[-1]:
        kept[-1] = places[-1]
    return kept


def on_the_way(people: Floats, p: Floats) -> dict[str, bool]:
    """Did a method ring before the end?"""
    kept = ten_looks(people)
    limits = np.array([look.nominal for look in boundaries((people[kept] / people[-1]).tolist())])
    any_time = 2 * special.ndtr(-mixture_z(people / OPTIMAL_AT, 0.05, 2))
    return {
        "every p": bool((p[:-1] < 0.05).any()),
        "p at ten looks": bool((p[kept[:-1]] < 0.05).any()),
        "O'Brien-Fleming": bool((p[kept[:-1]] <= limits[:-1]).any()),
        "any time": bool((p[:-1] <= any_time[:-1]).any()),
    }


def asos(path: Path) -> dict[str, tuple[int, int]]:
    """Per method: comparisons that rang before the end, and those of them with p ≥ .05 at the end."""
    found: dict[str, tuple[int, int]] = {"all": (0, 0)}
    for people, p in asos_series(path):
        late = int(p[-1] >= 0.05)
        found["all"] = found["all"][0] + 1, found["all"][1] + late
        for method, rang in on_the_way(people, p).items():
            before = found.get(method, (0, 0))
            found[method] = before[0] + rang, before[1] + (rang and late)
    return found


def where_asos_lies() -> Path:
    beside = Path(__file__).resolve().parents[2] / "shared"
    return Path(os.environ.get("KANAB_SHARED") or beside) / "data" / "asos_digital_experiments.csv.gz"


# ── printed ────────────────────────────────────────────────────────────────────────────────────


def print_sizes(simulations: int) -> None:
    error = np.sqrt(0.05 * 0.95 / simulations)
    print(f"rang at some of {len(PEOPLE)} looks, nominal .05, {simulations:,} experiments each (s.e. {error:.4f})")
    print(f"{'case':<20}" + "".join(f"{method:>17}" for method in METHODS))
    for case in CASES:
        found = sizes(case, simulations)
        print(f"{case.name:<20}" + "".join(f"{found[method]:>17.4f}" for method in METHODS), flush=True)
    few = max(100, simulations // 20)
    found = adjusted_sizes(few)
    texts = (f"{found[method]:.3f}" if method in found else "–" for method in METHODS)
    print(f"{'adjusted, 20 looks':<20}" + "".join(f"{text:>17}" for text in texts) + f"   ({few:,} experiments)")
    every, any_time = ratio_sizes(simulations // 5)
    print(f"sample ratio, three arms, 100 looks, nominal .001: every χ² {every:.4f}, at any time {any_time:.4f}")


def print_times() -> None:
    rng = np.random.default_rng(1)
    rows = {"arm": rng.choice(["A", "B"], 4000), "y": rng.normal(size=4000)}
    effect = adjusted_effect(
        count_columns(
            rows | {"tier": rng.integers(1, 4, 4000)}, arm="arm", covariates=["tier"], metrics=["y"],
            resolution={"y": 1e-4},
        )
    )  # fmt: skip
    for name, work in (
        ("boundaries of 5 looks", lambda n: boundaries([0.2, 0.4, 0.6, 0.8, 1 - n * 1e-6])),
        ("look 3 of 5, with its p", lambda n: planned_look(effect, [1000 + n, 2000, 4000], looks=5)),
        ("a look at any time", lambda n: any_time_look(effect, 4000 + n)),
    ):
        start = perf_counter()
        for number in range(1, 21):
            work(number)
        print(f"{name:<26}{(perf_counter() - start) / 20 * 1e3:8.2f} ms")


def print_asos(path: Path) -> None:
    if not path.is_file():
        print("ASOS is not here: set KANAB_SHARED to the folder that holds data/")
        return
    found = asos(path)
    total, not_clear = found.pop("all")
    print(f"ASOS: {total} comparisons, {total - not_clear} with p < .05 at the end")
    for method, (rang, lost) in found.items():
        print(
            f"{method:<18} rang before the end in {rang:>4}, of which {lost:>4} ({lost / rang:.0%}) were not confirmed"
        )


def main(simulations: int = SIMULATIONS) -> None:
    print_sizes(simulations)
    print()
    print_asos(where_asos_lies())
    print()
    print_times()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else SIMULATIONS)
