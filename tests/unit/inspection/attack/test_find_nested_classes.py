from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from kanab.inspection.attack.background import place_people
from kanab.inspection.attack.examples.catalogue import example
from kanab.inspection.attack.examples.making import SPEND, arm_axis, tabulate
from kanab.inspection.attack.findings import Finding
from kanab.inspection.attack.nested_classes import find_nested_classes
from kanab.inspection.attack.published import AttackedRelease, Axis
from kanab.privacy.merging import LevelMap
from kanab.tally.metric import Metric

BOUGHT = Metric("bought", 1, (0.0, 1.0))


def amounts(finding: Finding) -> tuple[str, str, float]:
    match = re.search(r"variant = (\w), region = (\w+), without .* spend = (.+)$", finding.learnt)
    assert match is not None
    return match[1], match[2], float(match[3])


def test_a_region_without_its_countries_gives_lone_buyers_to_the_cent() -> None:
    bad = example("nested-levels")
    findings = find_nested_classes(bad.releases, 10)
    assert [finding.people for finding in findings] == [1, 2]
    people = bad.people
    for finding in findings:
        arm, region, spend = amounts(finding)
        rest = (people["variant"] == arm) & (people["region"] == region) & (people["country"] == "other")
        assert rest.sum() >= 10
        assert (people["spend"][rest] > 0).sum() == finding.people
        assert round(people["spend"][rest].sum() / 100, 2) == spend


def test_without_the_table_of_both_it_needs_to_know_which_country_is_where() -> None:
    bad = example("nested-levels")
    (places,) = bad.releases
    blind = replace(places, tables=places.tables[:2])
    assert find_nested_classes([blind], 10) == []
    known = place_people({name: bad.people[name] for name in ("variant", "region", "country")}, [blind])
    assert [finding.people for finding in find_nested_classes([blind], 10, known)] == [1, 2]


def test_levels_merged_differently_in_two_releases_need_no_knowledge() -> None:
    tier = np.repeat([1, 2, 3], [60, 15, 60])
    people = {"variant": np.full(135, "A"), "tier": tier}
    spend = np.where(tier == 2, 0, 1_000)
    spend[60] = 7_346
    values = {BOUGHT: (spend > 0).astype(np.int64), SPEND: spend}
    low = LevelMap("tier", (("1 or 2", (1, 2)), (3, (3,))), {})
    sides = Axis("tier", ("1 or 2", 3), "covariate", low), Axis("tier", (1, 2, 3))
    arms = arm_axis("variant", "A")
    merged = tabulate("variant/tier", people, (arms, sides[0]), values, [])
    high = LevelMap("tier", ((1, (1,)), ("2 or 3", (2, 3))), {})
    other = tabulate("variant/tier", people, (arms, Axis("tier", (1, "2 or 3"), "covariate", high)), values, [])
    releases = [AttackedRelease(name, (table,), contributors={"spend": "bought"})
                for name, table in (("may", merged), ("june", other))]  # fmt: skip
    findings = find_nested_classes(releases, 10)
    assert {finding.people for finding in findings} == {1}
    assert all(finding.learnt.endswith("alone has spend = 73.46") for finding in findings)
    batches = [replace(release, cohorts=release.name) for release in releases]
    assert find_nested_classes(batches, 10) == []


def test_a_blacked_out_class_cannot_be_subtracted() -> None:
    bad = example("nested-levels")
    (places,) = bad.releases
    regions, countries, both = places.tables
    black = np.zeros(countries.hidden.shape, dtype=bool)
    black[:, :6] = True
    hidden = replace(places, tables=(regions, replace(countries, hidden=black), both))
    assert find_nested_classes([hidden], 10) == []
