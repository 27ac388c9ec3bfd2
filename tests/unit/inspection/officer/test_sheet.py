from __future__ import annotations

from html.parser import HTMLParser

import pytest

from kanab.errors import PlanError
from kanab.inspection.officer.sheet import data_sheet, sheet_html
from kanab.plan.file import parse_plan, plan_digest, plan_to_dict
from kanab.plan.model import SHEET_ENTRIES

PLAN = """
k = 20
nonce_life = "12h"
origins = ["https://shop.example"]
[cohorts]
every = "7d"
window = "14d"
seal = "7d"
[covariates]
tier = [1, 2, 3]
[metrics]
bought = { kind = "binary" }
ill = { kind = "binary", sensitive = true }
spend = { bounds = [0, 500], resolution = 0.01 }
[experiments.checkout]
arms = { A = 1, B = 1 }
adjust = ["tier"]
"""
SHEET = """
[sheet]
controller = "Shop Ltd, 1 <Main> Street"
legal_basis = "legitimate interest"
keep = "25 months"
"""


def test_every_field_that_may_be_stored_is_listed_with_its_limits_and_its_purpose() -> None:
    fields = {row[0]: row[1:] for row in data_sheet(parse_plan(PLAN))["fields"]}
    assert fields["checkout (arms)"] == ("A, B", "drawn at random", "effect: how do the arms of checkout differ?")
    assert fields["tier (covariate)"] == (
        "1, 2, 3",
        "declared in the plan",
        "adjustment: a more precise effect, comparing people who are alike in tier",
    )
    assert fields["spend (metric)"][1].startswith("values are cut to 0 … 500, in steps of 0.01")
    assert "sensitive: in no class everybody has the greatest value" in fields["ill (metric)"][1]
    assert len(fields) == 5


def test_it_names_k_or_epsilon_but_not_both() -> None:
    exact = sheet_html(data_sheet(parse_plan(PLAN)))
    noisy = sheet_html(data_sheet(parse_plan(PLAN + "[privacy]\nepsilon = 2\n")))
    assert "Every released class holds nobody or at least 20 people." in exact
    assert "ε" not in exact
    assert "all releases together keep to ε = 2." in noisy
    assert "at least 20 people." not in noisy


def test_both_ways_of_counting_say_where_data_are_as_the_report_does() -> None:
    page = sheet_html(data_sheet(parse_plan(PLAN)))
    assert page.count("Forever: what has been handed out cannot be taken back.") == 2
    assert "Until the seal: then records are deleted and the key is erased" in page
    assert "Rows: as the curator&#x27;s own rules say." in page


def test_what_people_say_is_on_the_page_escaped_and_what_they_do_not_say_is_a_line_to_write_on() -> None:
    page = sheet_html(data_sheet(parse_plan(PLAN + SHEET)))
    assert "Shop Ltd, 1 &lt;Main&gt; Street" in page
    said = {"controller", "legal_basis", "keep"}
    signature = 2  # who reviewed it, and when
    assert page.count("………………………………") == len(SHEET_ENTRIES) - len(said) + signature
    HTMLParser().feed(page)


def test_the_sheet_is_in_no_release_and_changes_no_digest() -> None:
    plan = parse_plan(PLAN + SHEET)
    assert "sheet" not in plan_to_dict(plan)
    assert plan_digest(plan) == plan_digest(parse_plan(PLAN))
    assert plan == parse_plan(PLAN)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('controler = "x"', "sheet.controler is an unknown key; did you mean 'controller'"),
        ("keep = 25", "sheet.keep must be a text"),
        ('keep = " "', "sheet.keep must be a text"),
    ],
)
def test_mistakes_in_the_sheet_are_named(line: str, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        parse_plan(f"{PLAN}\n[sheet]\n{line}\n")
