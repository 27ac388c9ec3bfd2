"""Who bought, by the sum of a known number over the buyers: it is searched for, on our releases in vain."""

from __future__ import annotations

from itertools import combinations
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kanab as kb
from kanab.inspection.attack.background import Background, place_people
from kanab.inspection.attack.examples.catalogue import example
from kanab.inspection.attack.published import published_from_dict
from kanab.inspection.attack.subset_sums import find_subset_sums, only_group
from kanab.privacy import gate
from kanab.privacy.release import Release
from kanab.privacy.release_json import release_to_dict


@settings(max_examples=60)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=9), st.integers(0, 5), st.integers(0, 10_000))
def test_the_only_group_is_that_of_all_groups(x: list[int], few: int, seed: int) -> None:
    few = min(few, len(x))
    picked = np.random.default_rng(seed).permutation(len(x))[:few]
    total = sum(x[place] for place in picked)
    fits = [group for group in combinations(range(len(x)), few) if sum(x[place] for place in group) == total]
    found = only_group(np.array(x), few, total)
    assert found is None or (found,) == tuple(fits)
    if few and len(fits) == 1 and len(x) < 5 and max(x) > 20:
        assert found == fits[0]


@pytest.mark.slow
def test_the_bad_example_names_every_buyer() -> None:
    bad = example("numbers-add-up")
    assert bad.background is not None
    named = [
        int(number)
        for finding in find_subset_sums(bad.background, 10)
        for number in finding.learnt.removeprefix("persons ").split(" are")[0].split(", ")
    ]
    assert sorted(named) == (np.flatnonzero(bad.people["bought"]) + 1).tolist()


def shop(seed: int, buyers: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    bought = np.concatenate([rng.permutation(np.repeat([1, 0], [buyers, 40 - buyers])) for _ in range(2)])
    predicted = (rng.choice([0.3, 0.7], 80) + rng.uniform(0, 0.1, 80)).round(12)
    return {"variant": np.repeat(["A", "B"], 40), "predicted": predicted, "bought": bought}


def released(rows: dict[str, Any]) -> Release:
    return kb.release(
        kb.count(
            rows, arm="variant", metrics=["bought"], adjust=["predicted"], bounds={"predicted": (0, 1)},
            resolution={"predicted": 1e-12},
        )
    )  # fmt: skip


def known(rows: dict[str, Any], made: Release) -> Background:
    return place_people({name: rows[name] for name in ("variant", "predicted")},
                        [published_from_dict(release_to_dict(made), "shown")])  # fmt: skip


@pytest.mark.parametrize("buyers", [10, 30])
@pytest.mark.slow
def test_buyers_or_those_who_did_not_buy_are_named_without_the_rule_and_not_on_our_releases(buyers: int) -> None:
    rows = shop(3, buyers)
    with patch.object(gate, "withhold_searchable", lambda *_: {}):
        broken = find_subset_sums(known(rows, released(rows)), 10)
    assert len(broken) == 2
    assert all(("have" if buyers == 10 else "lack") in finding.learnt for finding in broken)
    assert find_subset_sums(known(rows, released(rows)), 10) == []


def test_nothing_is_known_where_numbers_are_not() -> None:
    rows = shop(4, 10)
    shown = published_from_dict(release_to_dict(released(rows)), "shown")
    assert find_subset_sums(place_people({"variant": rows["variant"]}, [shown]), 10) == []
