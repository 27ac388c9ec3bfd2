import re
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.bad_releases import BOUGHT, tabulate, whole_numbers

from kanab.inspection.attack.known_people import Background, KnownPeople, place_people
from kanab.inspection.attack.published import AttackedRelease, Axis
from kanab.inspection.attack.run import play_attacker
from kanab.inspection.attack.whole_numbers import find_whole_numbers
from kanab.tally.metric import Metric

ORDERS = Metric("orders", 1, (0.0, 3.0))


def known(people: dict[str, Any], metric: Metric, values: Any, *links: tuple[str, ...]) -> Background:
    made = [
        tabulate("/".join(link), people, [Axis(name, tuple(sorted(set(people[name])))) for name in link],
                 {metric: np.asarray(values)}, [])
        for link in links
    ]  # fmt: skip
    return place_people(KnownPeople(people), [AttackedRelease("r", tuple(made))])


def test_the_bad_release_gives_people_away_and_every_total_is_right() -> None:
    bad = whole_numbers()
    assert bad.known is not None
    findings = find_whole_numbers(place_people(bad.known, bad.releases), 10, sensitive=True).findings
    assert sum(finding.people for finding in findings) >= 10
    table = np.column_stack([bad.people[name] for name in ("variant", "tier", "device", "region")])
    for finding in findings:
        person = int(re.findall(r"person (\d+)", finding.learnt)[0]) - 1
        like = (table == table[person]).all(axis=1)
        total = int(re.findall(r"bought = (\d+)", finding.learnt)[0])
        assert (int(like.sum()), int(bad.people["bought"][like].sum())) == (finding.people, total)


def test_only_of_sensitive_metrics_it_breaks_the_promise() -> None:
    bad = whole_numbers()
    plain = AttackedRelease("shop", bad.releases[0].tables)
    report = play_attacker([plain], bad.known)
    assert not report.broken
    assert len(report.beyond) > 0
    assert "whole numbers: LEARNT" in str(report)
    assert "which k does not cover" in str(report)
    assert f"Beyond that, something was, {len(report.beyond)} times; ε prevents it." in str(report)
    assert play_attacker(bad.releases, bad.known).broken


def test_large_systems_are_too_much_work_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = whole_numbers()
    monkeypatch.setattr("kanab.inspection.attack.whole_numbers.MOST_ENTRIES", 10)
    assert find_whole_numbers(place_people(bad.known or KnownPeople({}), bad.releases), 10, sensitive=True).unsettled


def test_a_class_in_which_everybody_is_at_a_bound_is_no_search() -> None:
    people = {"arm": ["A"] * 20 + ["B"] * 20, "tier": ([1] * 10 + [2] * 10) * 2}
    bought = np.array([0] * 20 + [1, 0] * 10)
    findings = find_whole_numbers(known(people, BOUGHT, bought, ("arm",), ("tier",)), 11, sensitive=False).findings
    assert [finding.learnt.split(" in every")[0] for finding in findings] == [
        "the 10 people who are like person 21",
        "the 10 people who are like person 31",
    ]


@pytest.mark.slow
@given(st.integers(0, 10**6), st.sampled_from([BOUGHT, ORDERS]))
@settings(max_examples=40)
def test_whoever_is_named_can_have_no_other_total_by_brute_force(seed: int, metric: Metric) -> None:
    rng = np.random.default_rng(seed)
    people = {name: rng.choice(["x", "y"], 7).tolist() for name in ("a", "b", "c")}
    high = 1 if metric is BOUGHT else 3
    values = (rng.random(7) < rng.uniform(0.1, 0.9)) * rng.integers(1, high + 1, 7)
    links = (("a", "b"), ("b", "c"), ("a", "c"))
    background = known(people, metric, values, *links)
    (design,) = background.designs
    matrix, sums = design.rows
    fits = [
        totals
        for totals in product(*(range(high * n + 1) for n in design.people.tolist()))
        if np.array_equal(matrix @ totals, sums)
    ]
    pinned = {place: totals for place, totals in enumerate(zip(*fits, strict=True)) if len(set(totals)) == 1}
    for finding in find_whole_numbers(background, 7, sensitive=False).findings:
        place = [design.name(place) for place in range(len(design.people))].index(finding.learnt.split(" ha")[0])
        assert finding.learnt.split(" = ")[1].split()[0] == str(pinned[place][0])
