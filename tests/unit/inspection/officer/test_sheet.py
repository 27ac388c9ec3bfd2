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


def test_purposes_begin_with_the_effect_and_name_every_table() -> None:
    assert data_sheet(parse_plan(PLAN))["purposes"] == [
        {"table": "checkout", "asks": ["effect: how do the arms A, B differ in bought, ill, spend?"]},
        {
            "table": "checkout/tier",
            "asks": ["adjustment: a more precise effect, comparing people who are alike in tier"],
        },
    ]


def test_every_field_that_may_be_stored_is_listed_with_its_category() -> None:
    fields = {row["field"]: (row["category"], row["says"]) for row in data_sheet(parse_plan(PLAN))["fields"]}
    assert fields["checkout"] == ("assignment", "the arm that was drawn: A, B")
    assert fields["tier"] == ("known beforehand", "one of: 1, 2, 3")
    assert fields["spend"][1].startswith("values are cut to 0 … 500, in steps of 0.01")
    assert fields["ill"][0] == "behaviour, marked sensitive"
    assert set(fields) == {"checkout", "tier", "bought", "ill", "spend"}


def test_retention_is_read_off_the_plan() -> None:
    kept = {row["where"]: row["how_long"] for row in data_sheet(parse_plan(PLAN + SHEET))["retention"]}
    assert "14d after the period of enrollment" in kept["on the device"]
    assert "12h" in kept["random numbers of messages"]
    assert "every 7d" in kept["open counters, encrypted"]
    assert kept["sealed batches and releases"] == "25 months"


def test_who_gets_messages_about_results_is_named() -> None:
    mail = '[notify.mail]\nserver = "mail.example"\nfrom = "kanab@shop.example"\nto = "team@shop.example"\n'
    text = f'{PLAN}[notify.slack]\n[notify.json]\nto = "https://hooks.example/kanab?key=x"\n{mail}'
    told = "Slack or another chat, the webhook at hooks.example, team@shop.example by mail"
    assert data_sheet(parse_plan(text))["retention"][-1] == {
        "where": f"messages about results: {told}",
        "how_long": "What was sealed, in sentences; as long as who gets them keeps them.",
    }


def test_a_plan_that_is_sealed_by_hand_says_so() -> None:
    kept = {
        row["where"]: row["how_long"] for row in data_sheet(parse_plan(PLAN.replace('seal = "7d"', "")))["retention"]
    }
    assert kept["open counters, encrypted"].startswith("Until kanab seal is run")


def test_safeguards_name_k_or_epsilon_but_not_both() -> None:
    exact = " ".join(data_sheet(parse_plan(PLAN))["safeguards"])
    noisy = " ".join(data_sheet(parse_plan(PLAN + "[privacy]\nepsilon = 2\n"))["safeguards"])
    assert "at least 20 people" in exact
    assert "ε" not in exact
    assert "ε = 2 (δ = 1e-06)" in noisy
    assert "at least 20 people" not in noisy


def test_what_people_say_is_on_the_page_escaped_and_what_they_do_not_say_is_a_line_to_write_on() -> None:
    page = sheet_html(data_sheet(parse_plan(PLAN + SHEET)))
    assert "Shop Ltd, 1 &lt;Main&gt; Street" in page
    said = {"controller", "legal_basis", "keep"}
    signature = 2  # who reviewed it, and when
    assert page.count('<span class="blank">') == len(SHEET_ENTRIES) - len(said) + signature
    HTMLParser().feed(page)


def test_the_sheet_is_in_no_release_and_changes_no_digest() -> None:
    plan = parse_plan(PLAN + SHEET)
    assert "sheet" not in plan_to_dict(plan)
    assert plan_digest(plan) == plan_digest(parse_plan(PLAN))
    assert plan == parse_plan(PLAN)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('controler = "x"', "sheet.controler is an unknown key; nearest: controller"),
        ("keep = 25", "sheet.keep must be a text"),
        ('keep = " "', "sheet.keep must be a text"),
    ],
)
def test_mistakes_in_the_sheet_are_named(line: str, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        parse_plan(f"{PLAN}\n[sheet]\n{line}\n")
