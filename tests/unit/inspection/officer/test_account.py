from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kanab.counted import Counted
from kanab.counting.columns import count_columns
from kanab.counting.in_memory import count_rows
from kanab.errors import LedgerError, SourceError
from kanab.inspection.auditor import check_chain, check_differences, check_release
from kanab.inspection.officer.account import privacy_account
from kanab.inspection.officer.officer_page import privacy_html
from kanab.inspection.officer.statements import TESTS, deviations
from kanab.inspection.officer.table_facts import fields_of, purposes
from kanab.inspection.promises import NOT_COVERED, WITHIN_AN_EXPERIMENT
from kanab.plan.model import Cohorts, CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.plan.periods import Span
from kanab.privacy.gate import release
from kanab.privacy.ledger import Ledger, read_ledger
from kanab.privacy.release import COLLECTORS_CLOCK, Batch, Receipt, Release
from kanab.privacy.release_json import release_to_dict
from kanab.tally.tally import Tally

ROOT = Path(__file__).parents[4]
FORBIDDEN = re.compile(r"(?<!k-)anonymous|compliant|no personal data", re.IGNORECASE)
PLAN = Plan(
    (
        MetricPlan("bought", binary=True),
        MetricPlan("spend", (0, 120), 0.01, of="bought"),
        MetricPlan("rating", (1, 5), 1, missing="exclude"),
        MetricPlan("cancelled", binary=True, sensitive="both"),
    ),
    (
        ExperimentPlan("checkout", (("A", 1), ("B", 1)), adjust=("tier",), segments=("tier", "city")),
        ExperimentPlan("banner", (("off", 1), ("on", 1)), interactions=("checkout",)),
    ),
    (CovariatePlan("tier", (1, 2, 3, 4)), CovariatePlan("city")),
)
SIZES = Plan(
    (MetricPlan("spend", (0, 120), 0.01),),
    (ExperimentPlan("checkout", segments=("size",)),),
    (CovariatePlan("size", bins=(165.0, 175.0)),),
)


def people(n: int = 3000, seed: int = 3) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    spend = np.round(np.where(rng.random(n) < 0.3, rng.gamma(2, 20, n), 0), 2)
    cities = ["Oslo", "Bergen", "Hamar", "the house of Kari Nordmann"]
    return {
        "checkout": rng.choice(["A", "B"], n),
        "banner": rng.choice(["off", "on", None], n, p=[0.4, 0.4, 0.2]),
        "tier": rng.choice([1, 2, 3, 4], n, p=[0.5, 0.3, 0.195, 0.005]),
        "city": np.array([cities[i] for i in rng.choice(4, n, p=[0.6, 0.39, 0.0085, 0.0015])]),
        "size": np.round(rng.normal(170, 10, n), 1),
        "spend": spend,
        "rating": np.where(rng.random(n) < 0.5, rng.integers(1, 6, n), np.nan),
        "cancelled": rng.random(n) < 0.3,
        "bought": spend > 0,
    }


def counted(plan: Plan = PLAN, **more: Any) -> Counted:
    return count_rows(people(**more), plan)


@pytest.fixture(scope="module")
def checkout() -> Release:
    return release(counted())


@pytest.fixture(scope="module")
def chained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Release, Release, Ledger]:
    """Two releases about the same people, and their ledger."""
    path = tmp_path_factory.mktemp("chain") / "kanab.ledger"
    first = release(count_rows(people(), SIZES), ledger=path, new_ledger=True)
    again = count_rows(people(), replace(SIZES, experiments=(ExperimentPlan("banner"),)), earlier=(SIZES,))
    second = release(again, ledger=path)
    return first, second, read_ledger(path)


@pytest.fixture
def leaky() -> Release:
    """The paper's class of three with squares by class: what a gate that slept would have let through."""
    table = count_columns(
        {"treatment": ["A"] * 3 + ["B"] * 9, "tier": [1] * 12, "minutes": [2.17, 0.0, 0.0] + [1.0, 2.0, 4.0] * 3},
        arm="treatment", metrics=["minutes"], covariates=["tier"], bounds={"minutes": (0, 10)},
        resolution={"minutes": 0.01}, squares="class",
    )  # fmt: skip
    plan = Plan(
        (MetricPlan("minutes", (0, 10), 0.01, squares="class"),),
        (ExperimentPlan("treatment", segments=("tier",)),),
        k=3,
    )
    return Release(plan, {"treatment/tier": table}, Receipt(3, 3, 2, effective_k=3))


def test_the_verdict_is_one_paragraph_of_rule_audit_and_risks(checkout: Release) -> None:
    verdict = privacy_account({"shop.json": checkout})["verdict"]
    assert verdict["state"] == "passed"
    assert verdict["broken"] == []
    assert verdict["says"] == (
        "k-anonymous at k = 10; audit passed; not evaluated: ledger; residual risks: a release outside any ledger, "
        "the curator's rows, who counts as a person, and 5 more."
    )
    assert verdict["says"].startswith(verdict["short"])


def test_the_account_never_says_that_data_are_anonymous(
    checkout: Release, leaky: Release, chained: tuple[Release, Release, Ledger]
) -> None:
    first, second, ledger = chained
    for found in (
        privacy_account({"a": checkout}),
        privacy_account({"a": leaky}),
        privacy_account({"a": first, "b": second}, ledger),
    ):
        assert not FORBIDDEN.search(json.dumps(found))


def test_every_table_says_what_it_holds_and_why(checkout: Release) -> None:
    tables = {one["table"]: one for one in fields_of(checkout)}
    assert list(tables) == ["checkout/tier", "checkout/city", "banner", "banner/checkout"]
    assert tables["checkout/tier"]["why"] == [
        "adjustment: a more precise effect, comparing people who are alike in tier",
        "segments: does the effect differ by tier?",
    ]
    assert tables["banner"]["why"] == ["effect: how do the arms of banner differ?"]
    assert tables["banner/checkout"]["why"] == ["interaction: do banner and checkout interfere with each other?"]
    assert purposes("checkout", PLAN) == ["effect: arm totals of what the tables by class do not carry"]
    tier = tables["checkout/tier"]
    assert tier["arms"] == [{"name": "checkout", "levels": ["A", "B"], "declared": True}]
    assert tier["covariate"] == {
        "name": "tier",
        "kind": "numeric",
        "levels": ["1", "2", "3 … 4"],
        "declared": True,
        "origin": "declared in the plan",
        "merged": {"3 … 4": ["3", "4"]},
    }
    spend = next(one for one in tier["metrics"] if one["name"] == "spend")
    assert (spend["bounds"], spend["resolution"], spend["of"]) == ([0, 120], 0.01, "bought")
    assert spend["squares"] == [["checkout"], ["tier"]]
    assert spend["limits"] == [
        "values are cut to 0 … 120, in steps of 0.01",
        "no value counts as 0",
        "bought tells who has any: nobody or at least 3 of a class",
    ]
    table = checkout.tables["checkout/tier"]
    assert (tier["classes"], tier["smallest_class"]) == (6, int(table.people.min()))
    assert tier["degrees_of_freedom"] == table.total - 6


def test_binary_sensitive_and_missing_metrics_are_told_apart(checkout: Release) -> None:
    metrics = {one["name"]: one for table in fields_of(checkout) for one in table["metrics"]}
    assert metrics["cancelled"]["limits"] == [
        "only 0 or 1",
        "no value counts as 0",
        "sensitive: in no class everybody has the greatest, or the least, value",
        "nobody or at least 10 people of a class have it, and nobody or as many lack it",
    ]
    assert (metrics["cancelled"]["least_events"], metrics["bought"]["least_events"]) == (10, None)
    assert metrics["cancelled"]["squares"] == []
    assert metrics["rating"]["limits"][1] == "people without a value are not in it"
    yes = replace(checkout, plan=replace(PLAN, metrics=(MetricPlan("cancelled", binary=True, sensitive="yes"),)))
    told = [one["limits"] for table in fields_of(yes) for one in table["metrics"] if one["name"] == "cancelled"]
    assert told[0][-2] == "sensitive: in no class everybody has the greatest value"


def test_names_that_few_people_have_are_rarer_ones(checkout: Release) -> None:
    found = privacy_account({"shop.json": checkout})
    city = next(one["covariate"] for one in found["releases"][0]["tables"] if one["table"] == "checkout/city")
    assert city["merged"] == {"other": ["Bergen", "Hamar", "rarer ones"]}
    assert city["declared"] is False
    assert "Kari" not in json.dumps(found)


@pytest.mark.parametrize(
    ("covariate", "said"),
    [
        (CovariatePlan("size", bins=3), "numbers, cut into 3 ranges with about as many people in each"),
        (CovariatePlan("size", bins=(165.0, 175.0)), "numbers, cut at edges that the plan declares"),
        (CovariatePlan("city", top=2), "the 2 commonest in the data; all others are other"),
    ],
)
def test_levels_say_where_they_come_from(covariate: CovariatePlan, said: str) -> None:
    plan = replace(
        SIZES, covariates=(covariate,), experiments=(ExperimentPlan("checkout", segments=(covariate.name,)),)
    )
    made = release(count_rows(people(), plan))
    assert fields_of(made)[0]["covariate"]["origin"] == said
    assert any(said in text for text in deviations(made)) == (not isinstance(covariate.bins, tuple))


def test_what_was_withheld_is_listed_with_its_reason(checkout: Release) -> None:
    why = "rating is withheld in checkout/city: fewer than k people could be told by having a value"
    told = replace(checkout, receipt=replace(checkout.receipt, left_out={"checkout/city: rating": why}))
    gone = privacy_account({"shop.json": told})["releases"][0]["left_out"]
    assert gone == [{"what": "checkout/city: rating", "why": why}]


def test_page_one_has_the_two_promises_four_rules_and_what_k_does_not_cover(checkout: Release) -> None:
    account = privacy_account({"shop.json": checkout})
    assert [(each["promise"], each["made"]) for each in account["promises"]] == [("k", True), ("ε", False)]
    assert [(rule["rule"], rule["holds"]) for rule in account["rules"]] == [
        ("k per class", True),
        ("combinations of class sums", True),
        ("contributors and dominance", True),
        ("sensitive values", True),
    ]
    assert [(each["what"], each["example"]) for each in account["not_covered"]] == list(NOT_COVERED)
    assert account["within"] is None
    page = unescape(privacy_html(account))
    assert all(example in page for _, example in NOT_COVERED)
    before = replace(checkout, receipt=replace(checkout.receipt, checked=()))
    assert [rule["holds"] for rule in privacy_account({"a": before})["rules"]] == [True, True, None, True]


def test_deviations_are_those_of_the_receipt_and_of_the_plan() -> None:
    plan = replace(SIZES, metrics=(replace(SIZES.metrics[0], squares="class"),))
    made = release(replace(count_rows(people(), plan), where="age < 99"), 4, override="pilot among colleagues")
    assert deviations(made) == [
        "k = 4: pilot among colleagues",
        "released without a ledger: what else was released about these people was not checked",
        "only some people were counted, those where age < 99",
        "squares of spend may be kept by class",
        "arms and shares of checkout were not declared; equal shares are assumed",
    ]
    told = replace(made, receipt=replace(made.receipt, deviations=("not chained: nobody looked",)))
    assert [text for text in deviations(told) if "looked" in text] == ["not chained: nobody looked"]
    assert deviations(replace(told, bounds_declared=False))[3] == "bounds were taken from the data"


@pytest.mark.parametrize(("k", "said"), [(7, "k = 7, weaker than"), (20, "k = 20, stricter than")])
def test_another_k_than_the_default_is_a_deviation(k: int, said: str) -> None:
    assert deviations(release(count_rows(people(), SIZES), k))[0] == f"{said} the default of 10"


def test_figures_are_those_of_what_was_published(checkout: Release) -> None:
    one = privacy_account({"shop.json": checkout})["releases"][0]
    receipt = checkout.receipt
    assert (one["k"], one["smallest_class"], one["classes"]) == (10, receipt.smallest_class, receipt.classes)
    assert one["effective_k"] == receipt.effective_k
    assert one["hash"] == release_to_dict(checkout)["hash"]
    assert one["missing"]["rating"] % 10 == 0
    assert one["degrees_of_freedom"] == min(table.total - np.count_nonzero(table.people) for table in _tables(checkout))
    narrowest = [table["narrowest"]["share"] for table in one["tables"] if table["narrowest"]]
    assert one["narrowest"]["share"] == min(narrowest) >= one["narrowest"]["least"] == 0.25
    assert one["cohorts"] is None


def _tables(release: Release) -> list[Tally]:
    return list(release.tables.values())


def test_a_release_of_0_1_metrics_has_no_narrowest_interval() -> None:
    made = release(count_rows(people(), replace(SIZES, metrics=(MetricPlan("bought", binary=True),))))
    assert privacy_account({"a": made})["releases"][0]["narrowest"] is None


def test_effective_k_is_that_of_the_whole_ledger(chained: tuple[Release, Release, Ledger]) -> None:
    first, second, ledger = chained
    assert first.receipt.effective_k is not None
    assert second.receipt.effective_k is not None
    alone = privacy_account({"a": first}, ledger)
    assert alone["verdict"]["effective_k"] == second.receipt.effective_k < first.receipt.effective_k
    assert alone["verdict"]["state"] == "passed"
    assert alone["verdict"]["not_evaluated"] == []
    entries = alone["ledger"]["entries"]
    assert [one["file"] for one in entries] == ["a", None]
    assert [one["hash"] for one in entries] == list(ledger.hashes)
    foreign = replace(ledger, entries=ledger.entries[1:], hashes=ledger.hashes[1:])
    assert privacy_account({"a": first}, foreign)["verdict"]["effective_k"] == first.receipt.effective_k


def test_files_outside_a_ledger_have_no_common_effective_k(chained: tuple[Release, Release, Ledger]) -> None:
    first, second, ledger = chained
    found = privacy_account({"a": first, "b": replace(second, previous=None)}, ledger)
    assert found["verdict"]["effective_k"] is None
    singled = found["questions"][0]
    assert singled["state"] == "in part"
    assert singled["holds"][1] == (
        "A file is outside any ledger, so what the files give away together was not evaluated."
    )


def test_with_a_ledger_singling_out_is_covered_and_the_rest_in_part(chained: tuple[Release, Release, Ledger]) -> None:
    first, second, ledger = chained
    found = privacy_account({"a": first, "b": second}, ledger)
    assert [(one["question"], one["state"]) for one in found["questions"]] == [
        ("singling out", "covered"), ("linkability", "in part"), ("inference", "in part"),
    ]  # fmt: skip
    assert [one["rule"] for one in found["together"]] == ["chain", "differences"]
    assert all(one["holds"] for one in found["together"])


def test_every_rule_of_the_auditor_bears_on_a_question(chained: tuple[Release, Release, Ledger]) -> None:
    first, second, ledger = chained
    rules = {
        one.rule
        for one in (*check_release(first), check_chain(first, ledger), *check_differences({"a": first, "b": second}))
    }
    found = privacy_account({"a": first, "b": second}, ledger)
    assert {rule for one in found["questions"] for rule in one["rules"]} == rules


def test_the_tests_that_it_names_exist() -> None:
    assert all((ROOT / test).is_file() for tests in TESTS.values() for test in tests)


def test_a_ledger_that_does_not_hold_the_file_breaks_the_verdict(chained: tuple[Release, Release, Ledger]) -> None:
    first, *_ = chained
    verdict = privacy_account({"a": first}, Ledger())["verdict"]
    assert verdict["state"] == "broken"
    assert verdict["short"] == "BROKEN: ledger in a."
    assert verdict["says"].startswith("BROKEN: ledger in a. Do not use these files before that is fixed.")


def test_a_ledger_that_cannot_be_verified_breaks_the_verdict(
    checkout: Release, chained: tuple[Release, Release, Ledger]
) -> None:
    problem = LedgerError("entry 2 of kanab.ledger has been changed", "Take the ledger from a backup.")
    found = privacy_account({"a": chained[0], "b": checkout}, problem)
    assert found["verdict"]["broken"] == ["chain between the files"]
    assert found["together"][0]["remedy"] == (
        "entry 2 of kanab.ledger has been changed. Take the ledger from a backup."
    )
    assert found["ledger"] == {
        "verified": False,
        "name": None,
        "entries": [],
        "refused": [],
        "reviews": [],
        "voided": [],
        "scans": [],
    }
    assert [one["says"] for one in found["releases"][0]["checks"] if one["rule"] == "ledger"] == [
        "its ledger could not be verified"
    ]


def test_what_an_attacker_learns_breaks_the_verdict_and_is_not_repeated(leaky: Release) -> None:
    found = privacy_account({"paper.json": leaky})
    assert found["verdict"]["broken"] == ["sensitive values in paper.json", "attack by closed forms"]
    learnt = [one for one in found["attacks"]["tried"] if one["state"] == "learnt something"]
    assert [(one["attack"], one["where"]) for one in learnt] == [("closed forms", ["paper.json, treatment/tier"])]
    assert learnt[0]["times"] >= 1
    assert found["attacks"]["broken"] is True
    assert "2.17" not in json.dumps(found)
    assert found["questions"][2]["state"] == "broken"


def test_attacks_that_need_more_knowledge_say_so(checkout: Release) -> None:
    tried = privacy_account({"a": checkout})["attacks"]["tried"]
    assert {one["state"] for one in tried if one["why_not"] is None} == {"learnt nothing"}
    assert [one["attack"] for one in tried if one["why_not"]][:3] == ["leverage", "least squares", "contributors"]


def test_rules_that_were_not_evaluated_say_what_to_do(checkout: Release) -> None:
    unknown = replace(checkout, receipt=replace(checkout.receipt, effective_k=None))
    found = privacy_account({"a": unknown})
    open_ = {one["rule"]: one["remedy"] for one in found["releases"][0]["checks"] if one["holds"] is None}
    assert list(open_) == ["overlap", "ledger"]
    assert all(open_.values())
    assert found["verdict"]["not_evaluated"] == ["overlap", "ledger"]
    assert "tables whose overlap is not known" in [one["risk"] for one in found["risks"]]
    assert found["questions"][0]["holds"][1].startswith("How the tables overlap is not known")


def test_without_effective_k_nothing_is_claimed_about_the_counting(checkout: Release) -> None:
    unknown = replace(checkout, receipt=replace(checkout.receipt, effective_k=None))
    assert [one["step"] for one in privacy_account({"a": checkout})["flow"]] == [
        "Rows of people", "One GROUP BY", "Classes in memory", "Privacy gate", "Release file", "Analyst",
    ]  # fmt: skip
    step = privacy_account({"a": unknown})["flow"][1]
    assert (step["step"], step["says"]) == ("Counting", "adds people up; how is not on record")


def test_risks_of_these_files_come_before_those_of_all(chained: tuple[Release, Release, Ledger]) -> None:
    first, second, ledger = chained
    found = privacy_account({"a": first, "b": second}, ledger)
    standing = [one["risk"] for one in found["risks"]]
    assert standing[0] == "the curator's rows"
    assert len(standing) == 7
    alike = {"arm": ["A", "B"] * 40, "bought": [1, 0] * 40}
    made = release(count_rows(alike, Plan((MetricPlan("bought", binary=True),), (ExperimentPlan("arm"),))))
    found = privacy_account({"a": made})
    assert found["risks"][0]["risk"] == "a release outside any ledger"
    assert found["questions"][2]["gaps"][1].endswith("and classes where everybody is alike (here 2 times).")


def test_cohorts_are_named_by_their_periods(chained: tuple[Release, Release, Ledger]) -> None:
    first, *_ = chained
    batch = replace(first, receipt=replace(first.receipt, batch=Batch("7d", None, "2026-03-02")))
    found = privacy_account({"a": batch})
    assert found["releases"][0]["cohorts"] == {"every": "7d", "after": None, "through": "2026-03-02"}


def test_the_least_k_of_several_files_is_the_verdicts(checkout: Release) -> None:
    strict = release(counted(seed=4), 20)
    first = replace(checkout, receipt=replace(checkout.receipt, batch=Batch("7d", None, "1")))
    second = replace(strict, receipt=replace(strict.receipt, batch=Batch("7d", "1", "2")))
    found = privacy_account({"a": first, "b": second})
    assert found["verdict"]["k"] == 10
    assert found["verdict"]["short"] == "k-anonymous at k = 10 or more; audit passed"


def test_the_same_release_is_not_reported_twice(checkout: Release) -> None:
    with pytest.raises(SourceError, match="the same release is given twice"):
        privacy_account({"a": checkout, "b": checkout})
    with pytest.raises(SourceError, match="no release"):
        privacy_account({})


def test_the_same_releases_give_the_same_account(checkout: Release) -> None:
    again = replace(release(counted()), salt=checkout.salt)
    assert json.dumps(privacy_account({"a": checkout})) == json.dumps(privacy_account({"a": again}))


def test_no_count_below_k_is_in_the_account(checkout: Release) -> None:
    """Numbers of people are floors, classes, or those of the rule; the smallest is k or 0."""
    one = privacy_account({"a": checkout})["releases"][0]
    people_counted = [one["smallest_class"], one["excluded"], one["outside"], *one["clamped"].values()]
    people_counted += [*one["missing"].values(), *(table["smallest_class"] for table in one["tables"])]
    assert all(n == 0 or n >= 10 for n in people_counted)


def test_a_covariate_that_is_only_adjusted_for_is_no_segment() -> None:
    plan = replace(SIZES, experiments=(ExperimentPlan("checkout", adjust=("size",)),))
    assert purposes("checkout/size", plan) == [
        "adjustment: a more precise effect, comparing people who are alike in size"
    ]


def test_a_metric_whose_bounds_nobody_declared_claims_none() -> None:
    made = release(count_rows(people(), replace(SIZES, metrics=(MetricPlan("spend"),))))
    spend = fields_of(made)[0]["metrics"][0]
    assert (spend["bounds"], spend["limits"]) == (None, ["no value counts as 0"])
    assert "bounds were taken from the data" in deviations(made)


# ── a collector's batches ──────────────────────────────────────────────────────────────────────


def batch(*, evaluated: bool = True, plan: Plan = PLAN) -> Release:
    """A batch as a collector seals it."""
    made = counted(replace(plan, cohorts=Cohorts()))
    assert made.signatures is not None
    signatures = replace(
        made.signatures, within="experiment", present=None, metrics=(), unknown=() if evaluated else ("checkout",)
    )
    return release(replace(made, signatures=signatures, span=Span(COLLECTORS_CLOCK, "7d", None, "2026-W46")))


def test_a_collectors_batch_has_the_collectors_way_and_places() -> None:
    account = privacy_account({"batch": batch()})
    assert [step["step"] for step in account["flow"]] == [
        "Browser or app", "Collector", "Encrypted records", "Seal", "Sealed batch", "Analyst",
    ]  # fmt: skip
    assert [step["side"] for step in account["flow"]] == ["visitor", *["curator"] * 3, *["outside"] * 2]
    assert [place["place"] for place in account["places"]] == [
        "in flight", "in memory", "at rest, encrypted", "sealed", "released",
    ]  # fmt: skip
    words = json.dumps(account, ensure_ascii=False)
    for of_warehouses in ("GROUP BY", "Rows of people", "the curator's rows", "--unit", "Count from rows"):
        assert of_warehouses not in words
    assert account["releases"][0]["collector"] is True
    assert "within one experiment, rests on fewer than" in words
    page = unescape(privacy_html(account))
    assert "With the visitor" in page
    assert "behind any combination of one metric's sums released up to then, within each experiment" in page
    assert WITHIN_AN_EXPERIMENT in page
    assert "In flight, in memory, at rest, encrypted, sealed, released" in page


def test_a_collectors_residual_risks_are_its_own() -> None:
    risks = [risk["risk"] for risk in privacy_account({"batch": batch()})["risks"]]
    for own in (
        "who has a value at all", "one human with several clients", "invented clients",
        "operators with the store and its key", "people who object later", "a ledger cut short",
    ):  # fmt: skip
        assert own in risks
    assert not {"the curator's rows", "who counts as a person", "changes that cancel out"} & set(risks)
    assert "batches whose overlap was not evaluated" not in risks
    one = replace(PLAN, metrics=tuple(metric for metric in PLAN.metrics if metric.name == "bought"))
    alone = [risk["risk"] for risk in privacy_account({"batch": batch(plan=one)})["risks"]]
    assert "who has a value at all" not in alone


def test_batches_of_an_earlier_version_are_named_as_a_risk_with_what_to_do() -> None:
    account = privacy_account({"batch": batch(evaluated=False)})
    assert account["verdict"]["effective_k"] is None
    assert "batches whose overlap was not evaluated" in [risk["risk"] for risk in account["risks"]]
    (overlap,) = [check for check in account["releases"][0]["checks"] if check["rule"] == "overlap"]
    assert (overlap["holds"], overlap["remedy"][:22]) == (None, "Update every collector")


@pytest.mark.parametrize("checked", [("contributors",), ()])
def test_of_a_batch_nothing_is_claimed_that_a_collector_did_not_check(checked: tuple[str, ...]) -> None:
    made = batch()
    account = privacy_account({"batch": replace(made, receipt=replace(made.receipt, checked=checked))})
    (inference,) = [question for question in account["questions"] if question["question"] == "inference"]
    assert not any("mostly on one" in claim for claim in inference["holds"])
    assert any("a collector keeps no largest value" in gap.lower() for gap in inference["gaps"])
    (amounts,) = [check for check in account["releases"][0]["checks"] if check["rule"] == "contributors"]
    assert ("contributors are merged" in amounts["says"]) == bool(checked)


def test_of_rows_the_officer_may_claim_that_no_amount_rests_on_few(checkout: Release) -> None:
    (inference,) = privacy_account({"rows": checkout})["questions"][2:]
    assert "No amount rests on fewer than 3 people, or mostly on one." in inference["holds"]
    assert not any("largest value" in gap for gap in inference["gaps"])


def test_batches_beside_a_release_of_rows_have_the_risks_of_both(checkout: Release) -> None:
    account = privacy_account({"batch": batch(), "rows": checkout})
    risks = [risk["risk"] for risk in account["risks"]]
    assert {"one human with several clients", "who counts as a person"} <= set(risks)
    assert account["flow"][0]["step"] == "Rows of people"
