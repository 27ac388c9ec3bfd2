from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.described import as_values

import kanab as kb
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.privacy.costs import costs_of, merging_costs, wider_by
from kanab.privacy.release_json import release_from_dict, release_to_dict

BOUNDS: dict[str, Any] = {"bounds": {"y": (-500, 500)}, "resolution": {"y": 0.01}}
SIZES = np.array([0.3, 0.25, 0.2] + [0.25 / 12] * 12)


def people(rng: np.random.Generator, spread: float, n: int = 1_200) -> dict[str, Any]:
    """Fifteen levels whose means differ by so many standard deviations; twelve of them are rare."""
    level = rng.choice(len(SIZES), n, p=SIZES / SIZES.sum())
    means = rng.normal(0, spread, len(SIZES))
    return {
        "arm": rng.choice(["A", "B"], n),
        "x": np.array([f"x{place:02d}" for place in level]),
        "y": np.round(means[level] + rng.normal(0, 1, n), 2),
    }


def released(rows: dict[str, Any]) -> kb.Release:
    return kb.release(counted(rows))


def counted(rows: dict[str, Any]) -> kb.Counted:
    return kb.count(rows, **as_values("count", arm="arm", metrics=["y"], adjust=["x"], **BOUNDS))


def spread_within(tally: kb.Tally) -> float:
    """The standard deviation that is left within classes."""
    part = tally.moments_of("y")
    squares = part.squares_by((tally.axes[0],), tally.axes)
    assert squares is not None
    n, s = part.counts.astype(float), part.sums.astype(float)
    filled = n > 0
    left = float(squares.sum()) - float((s[filled] ** 2 / n[filled]).sum())
    return float(np.sqrt(left / (n.sum() - filled.sum())))


def said_and_true(draw: Callable[[], dict[str, Any]], runs: int) -> tuple[list[float], list[float]]:
    """How much wider an interval is said to be because levels are merged, and how much wider it really is."""
    said, true = [], []
    for _ in range(runs):
        exact = counted(draw())
        made = kb.release(exact)
        table = made.tables["arm/x"]
        share = wider_by(table, made.receipt.maps["arm/x"], table.moments_of("y"))
        assert share is not None
        said.append(share)
        true.append(spread_within(table) / spread_within(exact.tallies["arm/x"]) - 1)
    return said, true


@pytest.mark.parametrize(("spread", "least", "most"), [(0.0, 0.0, 0.02), (0.5, 0.01, 0.05), (1.0, 0.05, 0.14)])
@pytest.mark.slow
def test_the_cost_of_merging_is_near_what_the_unmerged_table_would_have_shown(spread, least, most) -> None:
    rng = np.random.default_rng(3)
    said, true = said_and_true(lambda: people(rng, spread), 60)
    assert np.median(said) == pytest.approx(np.median(true), abs=max(0.005, 0.25 * np.median(true)))
    assert least <= np.median(said) <= most


@pytest.mark.slow
def test_neighbouring_numbers_cost_what_their_trend_says() -> None:
    rng = np.random.default_rng(1)

    def ages() -> dict[str, Any]:
        age = rng.integers(18, 78, 900)
        return {"arm": rng.choice(["A", "B"], 900), "x": age, "y": np.round(age / 18 + rng.normal(0, 1, 900), 2)}

    said, true = said_and_true(ages, 40)
    assert np.mean(said) == pytest.approx(np.mean(true), abs=0.005)


def test_the_cost_follows_from_the_file_alone_and_says_nothing_of_what_was_merged() -> None:
    rng = np.random.default_rng(5)
    rows = people(rng, 1.0)
    made = released(rows)
    assert costs_of(release_from_dict(release_to_dict(made))) == costs_of(made)
    swapped = dict(rows)  # other people, and other means, behind the same merged level
    levels = made.receipt.maps["arm/x"]
    merged = np.array([levels.target(level) == "other" for level in rows["x"]])
    for arm in ("A", "B"):
        inside = np.flatnonzero(merged & (rows["arm"] == arm))
        swapped["x"] = swapped["x"].copy()
        swapped["x"][inside] = rng.permutation(swapped["x"][inside])
    again = released(swapped)
    assert again.tables["arm/x"] == made.tables["arm/x"]
    assert costs_of(again) == costs_of(made)


def test_a_wider_interval_is_said_with_its_share() -> None:
    (sentence,) = costs_of(released(people(np.random.default_rng(5), 1.5)))
    assert sentence.startswith("the interval of y adjusted for x is about ")
    wider = int(sentence.split("about ")[1].split(" %")[0])
    fewer = int(sentence.split("as if ")[1].split(" %")[0])
    assert 10 <= wider <= 50
    assert fewer / 100 == pytest.approx(1 - 1 / (1 + wider / 100) ** 2, abs=0.01)
    assert sentence.endswith(
        f" % wider than without merging, as if {fewer} % fewer people had come, if merged levels differ as much as the "
        "others do"
    )


def test_of_several_experiments_every_sentence_says_which_one_it_is_of() -> None:
    rng = np.random.default_rng(5)
    experiments = (ExperimentPlan("arm", adjust=("x",)), ExperimentPlan("other"))
    plan = Plan((MetricPlan("y", (-500, 500), 0.01),), experiments, (CovariatePlan("x"),))
    rows = people(rng, 0.0) | {"other": rng.choice(["on", "off"], 1_200)}
    made = kb.release(kb.count(rows, plan))
    assert costs_of(made)[0].startswith("arm: merging levels of x makes ")
    gone = {"other": "other is held back", "other: y": "y is withheld altogether", "arm: y": "y is withheld altogether"}
    made = replace(made, receipt=replace(made.receipt, left_out=gone))
    named = ["other is held back", "other: y is withheld altogether", "arm: y is withheld altogether"]
    assert [*made.why_left_out().values()] == named
    left_out = kb.analyze(made, "arm").to_dict()["privacy"]["left_out"]
    assert [*left_out.values()] == [*named[:2], "y is withheld altogether"]


def test_nothing_merged_costs_nothing() -> None:
    rows = {"arm": ["A", "B"] * 200, "x": ["a", "a", "b", "b"] * 100, "y": np.arange(400) % 7}
    assert costs_of(released(rows)) == []


def test_what_is_left_out_or_withheld_is_named_by_what_can_no_longer_be_asked() -> None:
    rng = np.random.default_rng(2)
    n = 600
    bought = np.zeros(n, dtype=int)
    bought[:3] = 1
    rows = {
        "arm": np.array(["A", "B"] * (n // 2)),
        "alone": np.array([f"p{place}" for place in range(n)]),  # everybody's own level
        "x": rng.choice(["a", "b"], n),
        "spend": bought * np.array([400.0, 90.0, 20.0] + [0.0] * (n - 3)),
        "minutes": np.round(rng.gamma(2, 3, n), 1),
    }
    plan = Plan(
        (MetricPlan("spend", (0, 500), 0.01), MetricPlan("minutes", (0, 240), 0.1)),
        (ExperimentPlan("arm", adjust=("x",), segments=("alone", "x")),),
        (CovariatePlan("alone", top=1), CovariatePlan("x")),
    )
    made = kb.release(kb.count(rows, plan))
    sentences = costs_of(made)
    assert "arm has no segments by alone" in sentences
    assert any(sentence in sentences for sentence in (
        "arm has no effect on spend",
        "the effect of arm on spend is not adjusted for x and not told by segments of x; the plain one stays",
    ))  # fmt: skip
    assert not any("minutes" in sentence for sentence in sentences)
    assert merging_costs(made, made.plan.experiments[0]) == []
