from __future__ import annotations

from dataclasses import replace

import numpy as np

import kanab as kb
from kanab.inspection.attack.background import place_people
from kanab.inspection.attack.examples.catalogue import example
from kanab.inspection.attack.examples.making import BOUGHT, arm_axis, tabulate
from kanab.inspection.attack.metric_differences import (
    find_by_products,
    find_metric_differences,
    with_differences,
)
from kanab.inspection.attack.published import AttackedRelease, Axis, published_from_dict
from kanab.inspection.attack.reconstruct import find_sparse_values
from kanab.inspection.attack.run import play_attacker
from kanab.privacy.release_json import release_to_dict
from kanab.tally.metric import Metric
from kanab.tally.moments import Cross

GROSS, NET = (Metric(name, 100, (0.0, 500.0)) for name in ("gross", "net"))


def test_gross_less_net_tells_the_amounts_of_single_people_and_links_two_tables() -> None:
    bad = example("metric-differences")
    left = np.asarray(bad.people["gross"]) - np.asarray(bad.people["net"])
    findings = find_metric_differences(bad.releases, 10)
    assert len(findings) == 3 == np.count_nonzero(left)
    for finding in findings:
        assert "so that these are one person's" in finding.learnt
        assert any(f"gross − net is {amount / 100:g} in" in finding.learnt for amount in left[left > 0])


def test_squares_prove_that_one_person_differs_and_tell_both_values() -> None:
    bad = example("metric-differences")
    gross, net = (np.asarray(bad.people[name]) for name in ("gross", "net"))
    (only,) = np.flatnonzero((gross != net) & (np.asarray(bad.people["variant"]) == "B"))
    learnt = [finding.learnt for finding in find_metric_differences(bad.releases, 10)]
    proof = f"one person's by the squares: gross = {gross[only] / 100:g}, net = {net[only] / 100:g};"
    assert sum(proof in text for text in learnt) == 1


def test_products_tell_the_revenue_of_the_only_person_without_an_order() -> None:
    (finding,) = find_by_products(example("products").releases, 10)
    assert finding.learnt == (
        "the revenue of people without bought in variant = B is 173.46: one person's, if one has any"
    )


def test_what_everybody_pays_is_found_from_the_tables_themselves() -> None:
    people = {"arm": ["A", "B"] * 60, "tier": [1, 1, 2, 2, 3, 3] * 20}
    bought = np.array([1, 1, 0, 1] * 30)
    paid = 999 * bought
    paid[0] = 1_999
    axes = arm_axis("arm", "AB"), Axis("tier", (1, 2, 3))
    table = tabulate("arm/tier", people, axes, {Metric("paid", 100, (0.0, 50.0)): paid, BOUGHT: bought}, [])
    (finding,) = find_metric_differences([AttackedRelease("shop", (table,))], 10)
    assert finding.metric == "paid − 9.99 × bought"
    assert finding.learnt.startswith("paid − 9.99 × bought is 10 in arm = A, tier = 1 and 0 in most other classes")


def test_a_metric_of_a_later_release_is_subtracted_from_one_before() -> None:
    people = {"arm": ["A", "B"] * 60, "tier": [1, 1, 2, 2, 3, 3] * 20}
    gross = np.arange(120) * 10
    net = gross.copy()
    net[7] -= 35
    axes = arm_axis("arm", "AB"), Axis("tier", (1, 2, 3))
    first, second = (
        AttackedRelease(name, (tabulate("arm/tier", people, axes, {metric: values}, []),))
        for name, metric, values in (("monday", GROSS, gross), ("tuesday", NET, net))
    )
    (finding,) = find_metric_differences([first, second], 10)
    assert "net − gross is -0.35 in arm = B, tier = 1" in finding.learnt


def test_unrelated_metrics_tell_nothing_by_their_difference() -> None:
    rng = np.random.default_rng(1)
    people = {"arm": ["A", "B"] * 60, "tier": [1, 1, 2, 2, 3, 3] * 20}
    axes = arm_axis("arm", "AB"), Axis("tier", (1, 2, 3))
    values = {GROSS: rng.integers(0, 5_000, 120), NET: rng.integers(0, 5_000, 120)}
    table = tabulate("arm/tier", people, axes, values, [])
    assert find_metric_differences([AttackedRelease("shop", (table,))], 10) == []


def test_who_knows_everybody_solves_for_the_few_who_differ() -> None:
    bad = example("metric-differences")
    known = {name: bad.people[name] for name in ("variant", "tier", "region")}
    background = with_differences(place_people(known, bad.releases))
    assert {equations.metric.name for equations in background.equations} == {"gross", "net", "gross − net"}
    exposed = [finding for finding in find_sparse_values(background, 200) if finding.metric == "gross − net"]
    assert any(finding.learnt.endswith("have gross − net = 17.99 between them") for finding in exposed)


def test_a_table_of_two_0_1_metrics_with_a_cell_of_one_person_is_a_finding() -> None:
    n = np.array([100, 100], dtype=object)
    y, z = np.array([30, 30], dtype=object), np.array([20, 20], dtype=object)
    both = np.array([15, 19], dtype=object)
    values = {Metric(name, 1, (0.0, 1.0)): np.ones(200, dtype=np.int64) for name in ("seen", "paid")}
    table = tabulate("arm", {"arm": ["A", "B"] * 100}, [arm_axis("arm", "AB")], values, [])
    cut = Cross(("seen", "paid"), ("arm",), n, (y, z), (y, z), both)
    findings = find_by_products([AttackedRelease("r", (replace(table, crosses=(cut,)),))], 10)
    assert [(finding.people, finding.learnt) for finding in findings] == [
        (5, "5 people of arm = A have paid and no seen"),
        (1, "one person of arm = B has paid and no seen"),
    ]


def test_the_same_people_released_by_the_gate_tell_nothing() -> None:
    for name, choices in (
        ("metric-differences", {"metrics": ["gross", "net"], "covariates": ["tier", "region"]}),
        ("products", {"metrics": ["revenue", "bought"], "ratios": ["revenue/bought"]}),
    ):
        people = {key: np.asarray(values) for key, values in example(name).people.items()}
        made = kb.release(kb.count(people, arm="variant", **choices))
        report = play_attacker([published_from_dict(release_to_dict(made), "ours")])
        assert not report.broken, str(report)
