from __future__ import annotations

import base64
import copy
import hashlib
import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from kanab.counting.in_memory import count_rows
from kanab.inspection.officer.account import privacy_account
from kanab.inspection.officer.officer_page import MOST_ENTRIES, privacy_html
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.privacy.gate import release
from kanab.privacy.ledger import Ledger
from kanab.report.html_page import PageSection, card_table, filled

Account = dict[str, Any]
EVIL = '<script>alert("x")</script>&'


class Outline(HTMLParser):
    """Every tag in order, the texts, and whether each tag was closed where it was opened."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.stack: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.texts))


def made(seed: int = 3, **more: Any) -> Account:
    """The account of two releases about different people, without a ledger."""
    rng = np.random.default_rng(seed)
    n = 2000
    spend = np.round(np.where(rng.random(n) < 0.3, rng.gamma(2, 20, n), 0), 2)
    rows = {
        "checkout": rng.choice(["A", "B"], n),
        "tier": rng.choice([1, 2, 3, 4], n, p=[0.5, 0.3, 0.195, 0.005]),
        "city": rng.choice(["Oslo", "Bergen", "Hamar"], n, p=[0.6, 0.39, 0.01]),
        "spend": spend,
        "bought": spend > 0,
    }
    plan = Plan(
        (MetricPlan("bought", binary=True), MetricPlan("spend", (0, 120), 0.01, of="bought")),
        (ExperimentPlan("checkout", (("A", 1), ("B", 1)), adjust=("tier",), segments=("city",)),),
        (CovariatePlan("tier", (1, 2, 3, 4)), CovariatePlan("city")),
    )
    found: Account = privacy_account({"shop.release.json": release(count_rows(rows, plan))}, **more)
    return found


@pytest.fixture(scope="module")
def whole() -> Account:
    return made()


@pytest.fixture
def account(whole: Account) -> Account:
    return copy.deepcopy(whole)


@pytest.fixture(scope="module")
def page(whole: Account) -> str:
    return privacy_html(whole)


def test_every_tag_is_closed_and_identifiers_are_unique(page: str, account: Account) -> None:
    account["releases"] *= 2
    for html in (page, privacy_html(account)):
        assert Outline(html).stack == []
        found = re.findall(r'\sid="([^"]*)"', html)
        assert len(found) == len(set(found)) >= 7


def test_the_page_asks_nothing_of_the_network(page: str) -> None:
    bare = page.replace('xmlns="http://www.w3.org/2000/svg"', "").replace("http-equiv", "")
    assert "http" not in bare
    assert "//" not in bare
    assert not re.search(r"url\(|@import|\ssrc=|<link|<script|<img|<iframe", page)


def test_the_policy_allows_this_style_sheet_and_nothing_else(page: str) -> None:
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style.group(1).encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'" in page
    assert " style=" not in page
    assert not re.search(r"\son\w+=", page)


def test_headings_go_down_one_step_at_a_time_and_links_lead_to_them(page: str) -> None:
    tags = Outline(page).tags
    levels = [int(tag[1]) for tag, _ in tags if re.fullmatch(r"h\d", tag)]
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    sections = [attributes["id"] for tag, attributes in tags if tag == "h2"]
    assert sections == ["promises", "flow", "file-1", "questions", "attacks", "risks", "ledger"]
    assert [attributes["href"] for tag, attributes in tags if tag == "a"] == [f"#{name}" for name in sections]


def test_the_page_says_what_the_account_says(page: str, whole: Account) -> None:
    text = Outline(page).text
    one = whole["releases"][0]
    assert whole["verdict"]["says"] in text
    for sentence in (
        *(f"{risk['says']} What to do: " for risk in whole["risks"]),
        *(sentence for question in whole["questions"] for sentence in (*question["holds"], *question["gaps"])),
        *(cell for place in whole["places"] for cell in place.values()),
        *(attack["does"] for attack in whole["attacks"]["tried"]),
        *(f"{text[:1].upper()}{text[1:]}." for text in one["deviations"]),
        *(table["table"] for table in one["tables"]),
        *(why for table in one["tables"] for why in table["why"]),
        f"{one['smallest_class']:,} people (the k that was reached)",
        f"at least {one['effective_k']:,} people behind any combination",
        "other stands for Bergen, Hamar",
        "spend by checkout, by city",
        "values are cut to 0 … 120, in steps of 0.01",
        "fewer than 10 people, for every metric",
        "It was released without a ledger",
    ):
        assert sentence.replace("\N{NO-BREAK SPACE}", " ") in text.replace("\N{NO-BREAK SPACE}", " "), sentence
    assert not re.search(r"(?<!k-)anonymous|compliant|no personal data", text, re.IGNORECASE)


def test_hashes_are_whole_with_their_beginning_in_bold(page: str, whole: Account) -> None:
    own = whole["releases"][0]["hash"]
    assert f'<code class="hash"><b>{own[:12]}</b>{own[12:]}</code>' in page


def test_the_closest_inference_is_put_into_words(account: Account) -> None:
    one = account["releases"][0]
    one["narrowest"] = {"table": "checkout/city", "metric": "spend", "share": 0.4712, "least": 0.25}
    told = Outline(privacy_html(account)).text
    assert (
        "the largest or smallest spend of a class of checkout/city is known up to a range that is 47 % as wide as its "
        "distance from the average"
    ) in told
    one["narrowest"] = None
    assert "no largest or smallest value can be narrowed down" in Outline(privacy_html(account)).text


def test_counts_of_people_in_no_class_are_ranges(account: Account) -> None:
    one = account["releases"][0]
    one |= {"clamped": {"spend": 30, "bought": 0}, "excluded": 20}
    told = Outline(privacy_html(account)).text
    assert "spend: 30 to 39 people; bought: fewer than 10 people" in told
    assert "20 to 29 people" in told


def test_classes_of_skewness_are_among_what_left(account: Account) -> None:
    one = account["releases"][0]
    one["shapes"] = [{"experiment": "checkout", "metric": "spend", "skewness": 4.0, "unusual": 0.125}]
    told = Outline(privacy_html(account)).text
    assert "spend (checkout): skewness class 4, at least 12.5 % of people off the commonest value" in told
    one["shapes"] = []
    assert "not released" in Outline(privacy_html(account)).text


def test_what_is_broken_is_announced_at_the_top(account: Account) -> None:
    account["verdict"] |= {"state": "broken", "short": "BROKEN: k in a.", "says": "BROKEN: k in a. Do not use it."}
    account["releases"][0]["checks"][0] |= {"holds": False, "classes": 3, "remedy": "Release it again."}
    account["questions"][0]["state"] = "broken"
    account["attacks"] |= {"broken": True}
    account["attacks"]["tried"][0] |= {"state": "learnt something", "times": 2, "where": ["a, checkout"]}
    html = privacy_html(account)
    assert '<p class="call verdict alarm" role="alert"><strong>BROKEN: k in a.</strong> Do not use it.</p>' in html
    told = Outline(html).text
    for sentence in (
        "✕ BROKENEvery class holds nobody or at least k = 10 people, and so do those with, and without, a value "
        "(violated in 3 places).Release it again.",
        "What should hold",
        "Something was learnt about fewer than 10 people. It is not repeated here; kanab attack shows it.",
        "✕ LEARNT SOMETHING In a, checkout.",
    ):
        assert sentence in told, sentence


def test_there_is_a_column_for_what_to_do_where_there_is_something_to_do(account: Account) -> None:
    assert "what to do" in Outline(privacy_html(account)).text
    for check in account["releases"][0]["checks"]:
        check["holds"] = True
    assert "what to do" not in Outline(privacy_html(account)).text


def test_several_files_have_a_section_each_and_the_common_parts_once(account: Account) -> None:
    second = copy.deepcopy(account["releases"][0]) | {"file": "b.json", "effective_k": None, "experiments": ["banner"]}
    second["checks"][0]["holds"] = False
    account["releases"].append(second)
    html = privacy_html(account)
    tags = Outline(html).tags
    assert [attributes["id"] for tag, attributes in tags if tag == "h2"][2:4] == ["file-1", "file-2"]
    assert "<h1>checkout, banner</h1>" in html
    assert html.count("Residual risks</h2>") == 1
    overview = html[html.index('aria-label="The files"') : html.index("<nav")]
    assert re.findall(r"</span> (passed|FAILED)<", overview) == ["passed", "FAILED"]
    assert "not evaluated: how the tables overlap is not known" in html
    assert 'aria-label="The files"' not in privacy_html(account | {"releases": account["releases"][:1]})


def test_nothing_left_out_and_no_deviation_are_said_too(account: Account) -> None:
    account["releases"][0] |= {"left_out": [], "costs": [], "deviations": []}
    html = privacy_html(account)
    assert "<h3>What it cost</h3>\n<p>Nothing.</p>" in html
    assert "<h3>Left out or withheld</h3>\n<p>Nothing.</p>" in html
    assert "<h3>Deviations from defaults</h3>\n<p>None.</p>" in html


def test_what_was_left_out_names_its_table_once(account: Account) -> None:
    account["releases"][0]["left_out"] = [
        {"what": "checkout/zip", "why": "zip is left out: its levels are too sparse, merged they would be one"},
        {"what": "checkout/tier: spend", "why": "spend is withheld in checkout/tier: one or two people"},
    ]
    account["releases"][0]["costs"] = ["effects of checkout are not adjusted for zip"]
    told = Outline(privacy_html(account)).text
    assert "Effects of checkout are not adjusted for zip." in told
    assert "checkout/zip: zip is left out: its levels are too sparse, merged they would be one." in told
    assert "Spend is withheld in checkout/tier: one or two people." in told


def test_cohorts_are_told_by_their_periods(account: Account) -> None:
    account["releases"][0]["cohorts"] = {"every": "7d", "after": "2026-03-02", "through": "2026-03-16"}
    told = Outline(privacy_html(account)).text
    assert "people enrolled in periods of 7d after 2026-03-02 through 2026-03-16" in told


def entries(number: int) -> list[dict[str, Any]]:
    return [{"entry": n + 1, "hash": f"{n:064d}", "file": None, "cohorts": None} for n in range(number)]


def test_the_ledger_names_its_entries_and_files(account: Account) -> None:
    account["ledger"] = {"verified": True, "name": "shop.ledger", "entries": entries(2), "refused": [], "reviews": []}
    account["ledger"]["entries"][0]["file"] = "shop.release.json"
    account["ledger"]["entries"][1]["cohorts"] = {"every": "7d", "after": None, "through": "2026-03-02"}
    told = Outline(privacy_html(account)).text
    assert "It holds 2 releases, and its chain is unbroken. 1 entry of it is not among these files." in told
    assert "2another filepeople enrolled in periods of 7d through 2026-03-02" in told
    account["ledger"] = {"verified": False, "entries": []}
    assert "The ledger could not be verified." in privacy_html(account)


def test_a_long_ledger_shows_the_entries_of_the_files_and_its_last(account: Account) -> None:
    account["ledger"] = {
        "verified": True,
        "name": "shop.ledger",
        "entries": entries(MOST_ENTRIES + 5),
        "refused": [],
        "reviews": [],
    }
    account["ledger"]["entries"][2]["file"] = "shop.release.json"
    html = privacy_html(account)
    table = html[html.index('aria-label="Entries of the ledger"') :]
    assert re.findall(r'role="rowheader">(\d+)<', table) == ["3", "45"]
    assert "44 entries of it are not among these files." in html


def test_a_ledger_without_entries_is_a_ledger() -> None:
    html = privacy_html(made(ledger=Ledger()))
    assert "It holds 0 releases, and its chain is unbroken." in html
    assert "All files and their ledger together" in html


OURS = {"state", "side", "kind"}
"""Words that the page looks up."""
CHOSEN = {"clamped", "missing", "merged"}
"""Fields whose keys are names that people chose."""


def poisoned(value: Any, chosen: bool = False) -> Any:
    """The same account with markup in every text."""
    if isinstance(value, dict):
        return {
            key + EVIL if chosen else key: item if key in OURS else poisoned(item, key in CHOSEN)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [poisoned(item) for item in value]
    return value + EVIL if isinstance(value, str) else value


def test_markup_in_names_is_escaped_everywhere(account: Account) -> None:
    account["releases"][0]["tables"][0]["covariate"]["merged"] = {"other": ["Hamar"]}
    refused = [{"asked": {"where": "tier > 1"}, "rule": "other people", "reviewed": True}]
    account["ledger"] = {
        "verified": True, "name": "shop.ledger", "entries": entries(3), "refused": refused, "reviews": ["looked at"],
    }  # fmt: skip
    html = privacy_html(poisoned(account))
    assert html.count("&lt;script&gt;") > 150
    assert "<script" not in html
    outline = Outline(html)
    assert outline.stack == []
    assert f"spend{EVIL} (metric)" in outline.text
    assert f"other{EVIL} stands for Hamar{EVIL}" in outline.text


def test_the_way_of_the_data_is_listed_step_by_step(page: str, whole: Account) -> None:
    rows = page.split("The way of the data", 1)[1].split("</table>", 1)[0]
    places = [rows.index(step["step"]) for step in whole["flow"]]
    assert places == sorted(places)
    assert rows.count("Stays with the curator") == sum(step["side"] == "curator" for step in whole["flow"])


def test_numbers_are_aligned_right_and_words_left() -> None:
    html = card_table("People", ("arm", "people", "says"), [("A", "1,200", "x"), ("B", "9", "y")], "cards")
    assert html.count('class="n"') == 3
    assert '<td role="cell" data-label="people" class="n">1,200</td>' in html
    assert filled(PageSection("empty", "Empty", "")) == ()


def test_the_same_account_gives_the_same_bytes(whole: Account, page: str) -> None:
    assert privacy_html(json.loads(json.dumps(whole))) == page


def test_products_of_metrics_are_named(account: Account) -> None:
    account["releases"][0]["tables"][0]["products"] = [{"metrics": ["revenue", "orders"], "by": ["checkout"]}]
    assert "products of revenue and orders by checkout" in Outline(privacy_html(account)).text


def test_nothing_is_said_for_overlap_where_it_was_not_evaluated(account: Account, page: str) -> None:
    assert "The rules cover what k promises" in page
    account["verdict"]["effective_k"] = None
    assert "The rules cover what k promises" not in privacy_html(account)
