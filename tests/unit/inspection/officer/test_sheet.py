from html.parser import HTMLParser

import pytest
from tests.approved import assert_approved
from tests.unit.inspection.officer.test_account import told

from kanab.errors import PlanError
from kanab.inspection.officer.sheet import data_sheet, sheet_html
from kanab.plan.file import parse_plan, plan_digest, plan_to_dict

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


def test_the_sheet_is_as_approved_and_what_people_say_is_escaped() -> None:
    """Every field with its limits and purpose, both ways of counting, what people say, and lines to write on."""
    page = sheet_html(data_sheet(parse_plan(PLAN + SHEET)))
    assert_approved("officer/sheet.txt", told(page))
    assert "Shop Ltd, 1 &lt;Main&gt; Street" in page
    HTMLParser().feed(page)


def test_it_names_k_or_epsilon_but_not_both() -> None:
    noisy = sheet_html(data_sheet(parse_plan(PLAN + "[privacy]\nepsilon = 2\n")))
    assert "all releases together keep to ε = 2." in noisy
    assert "at least 20 people." not in noisy


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
