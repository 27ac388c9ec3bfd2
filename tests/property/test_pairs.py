"""All pairs at once are what counting pair by pair gives, digit for digit."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.shop import assert_same_pairs

import kanab as kb
from kanab.scan.count import counter, people_batches
from kanab.scan.count.kernel import choose_kernels
from kanab.scan.count.pair_counting import count_pairs
from kanab.scan.pair_tables import Pairs
from kanab.tally.metric import Metric

KINDS: dict[str, Any] = {
    "int": lambda arms: list(range(arms)),
    "scattered": lambda arms: [7 * arm - 9 for arm in range(arms)],
    "text": lambda arms: [f"arm {arm}" for arm in range(arms)],
    "float": lambda arms: [float(arm) for arm in range(arms)],
    "bool": lambda _arms: [False, True],
}


def column_of(rng: np.random.Generator, people: int, kind: str, arms: int, gone: float) -> list[Any]:
    names = KINDS[kind](arms)
    rare = rng.random(people) < 0.02  # the last arm may be all but empty
    places = np.where(rare, len(names) - 1, rng.integers(0, max(1, len(names) - 1), people))
    places[: len(names)] = range(len(names))
    away = rng.random(people) < gone
    away[: len(names)] = False
    return [None if out else names[place] for place, out in zip(places, away, strict=True)]


def metric_of(rng: np.random.Generator, people: int, kind: str, gone: float) -> list[Any]:
    values: dict[str, Any] = {
        "binary": lambda: rng.integers(0, 2, people),
        "money": lambda: np.round(rng.gamma(1, 30, people), 2),
        "signed": lambda: rng.integers(-50, 50, people),
        "rare": lambda: np.where(rng.random(people) < 0.05, rng.integers(1, 9, people), 0),
        "large": lambda: rng.integers(2**52 - 2000, 2**52 - 1000, people) * rng.choice([-1, 1], people),
        "middle": lambda: rng.integers(0, 2**31, people),
        "real": lambda: rng.normal(1e6, 1, people),
    }
    found = values[kind]().tolist()
    away = rng.random(people) < gone
    away[0] = False
    return [None if out else value for value, out in zip(found, away, strict=True)]


def one_by_one(rows: dict[str, list[Any]], names: tuple[str, str], metrics: tuple[Metric, ...]) -> kb.Tally:
    """The table of one pair by grouping the people who are in both."""
    both = [place for place in range(len(rows[names[0]])) if None not in (rows[names[0]][place], rows[names[1]][place])]
    table = {name: [column[place] for place in both] for name, column in rows.items()}
    return kb.count_columns(table, arm=list(names), metrics={metric.name: metric for metric in metrics}, squares="arm")


def assert_like_grouping(pairs: Pairs, rows: dict[str, list[Any]]) -> None:
    metrics = tuple(part.metric for part in pairs.moments)
    names = [factor.name for factor in pairs.experiments]
    for i, j in combinations(range(len(names)), 2):
        found = pairs.tally(i, j)
        if found.people.sum() == 0:
            continue
        expected = one_by_one(rows, (names[i], names[j]), metrics)
        assert found == found.empty() + expected, (names[i], names[j])  # arms without people in both stay
    for i, name in enumerate(names):
        own = kb.count_columns(
            {key: [value for value, arm in zip(column, rows[name], strict=True) if arm is not None]
             for key, column in rows.items()},
            arm=name, metrics={metric.name: metric for metric in metrics},
        )  # fmt: skip
        block = pairs.slice_of(i)
        assert np.diag(pairs.people[block, block]).tolist() == own.people.tolist()
        for part in pairs.moments:
            expected_part = own.moments_of(part.metric.name)
            squares = expected_part.squares_by((name,), (name,))
            assert part.squares[block, i].tolist() == squares.tolist()
            assert np.diag(part.sums[block, block]).tolist() == expected_part.sums.tolist()
            assert np.diag(part.counts[block, block]).tolist() == expected_part.counts.tolist()


experiments = st.lists(
    st.tuples(st.sampled_from(sorted(KINDS)), st.integers(2, 8), st.sampled_from([0.0, 0.0, 0.2, 0.9])),
    min_size=2,
    max_size=7,
)
measures = st.lists(
    st.tuples(
        st.sampled_from(["binary", "money", "signed", "rare", "large", "middle", "real"]),
        st.sampled_from([0.0, 0.3]),
        st.sampled_from(["zero", "exclude"]),
        st.booleans(),
    ),
    max_size=3,
)


@pytest.mark.slow
@pytest.mark.parametrize("loops", ["numpy", "numba"])
@settings(max_examples=100)
@given(st.integers(0, 2**32), st.integers(20, 300), experiments, measures)
def test_any_mix_of_arms_gaps_and_metrics_is_like_grouping_every_pair(
    loops: str, seed: int, people: int, tests: list[Any], wanted: list[Any]
) -> None:
    rng = np.random.default_rng(seed)
    rows = {f"t{place}": column_of(rng, people, *one) for place, one in enumerate(tests)}
    names = list(rows)
    bounds, missing = {}, {}
    for place, (kind, gone, rule, clamp) in enumerate(wanted):
        rows[f"y{place}"] = metric_of(rng, people, kind, gone)
        missing[f"y{place}"] = rule
        if clamp:
            bounds[f"y{place}"] = (-20, 31.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counter, "choose_kernels", lambda: choose_kernels(loops))
        patch.setattr(people_batches, "ROWS", 64)
        pairs = count_pairs(rows, names, list(missing), bounds=bounds, missing=missing)
    assert_like_grouping(pairs, rows)
    inside = [any(rows[name][place] is not None for name in names) for place in range(people)]
    assert pairs.total == sum(inside)
    for name in missing:
        assert pairs.missing[name] == sum(
            there and value is None for there, value in zip(inside, rows[name], strict=True)
        )


@pytest.mark.slow
@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(1, 400), st.integers(1, 3), st.booleans())
def test_batches_of_any_size_and_any_number_of_threads_give_the_same(
    seed: int, size: int, workers: int, full: bool
) -> None:
    rng = np.random.default_rng(seed)
    rows = {f"t{place}": column_of(rng, 400, "text", 2 + place % 3, 0.3 * (place % 2)) for place in range(9)}
    names = list(rows)
    rows |= {"y": metric_of(rng, 400, "middle", 0.2), "z": metric_of(rng, 400, "binary", 0.2)}
    expected = count_pairs(rows, names, ["y", "z"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(people_batches, "ROWS", size)
        patch.setattr(people_batches, "_workers", lambda: workers)
        if full:  # as if 64 bits were used up after every batch
            patch.setattr(counter, "_FULL", 1)
        assert_same_pairs(count_pairs(rows, names, ["y", "z"]), expected)


@settings(max_examples=60)
@given(st.lists(st.sampled_from([0, 0, 0, 1, 5, -3, 2**40, 2**51]), min_size=12, max_size=80), st.booleans())
def test_people_off_the_commonest_value_are_never_overstated(values: list[int], exclude: bool) -> None:
    rows = {"a": [0, 1] * 100, "b": [0, 0, 1, 1] * 50, "y": [*values, *[None] * (200 - len(values))]}
    pairs = count_pairs(rows, ["a", "b"], ["y"], missing={"y": "exclude" if exclude else "zero"})
    present = values if exclude else [*values, *[0] * (200 - len(values))]
    assert pairs.unusual["y"] == len(present) - max(present.count(value) for value in present)
