"""The officer's account and its page: whole outputs of every kind of release are approved, figures are recomputed."""

import base64
import copy
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from difflib import ndiff
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.approved import assert_approved
from tests.unit.privacy.epsilon.test_accountant import counted as noisy_counted

import kanab as kb
from kanab.counted import Counted
from kanab.counting.columns import count_columns
from kanab.counting.in_memory import count_rows
from kanab.errors import LedgerError, PlanError, SourceError
from kanab.inspection.auditor import check_chain, check_differences, check_release
from kanab.inspection.officer.account import privacy_account
from kanab.inspection.officer.officer_page import MOST_ENTRIES, privacy_html
from kanab.inspection.officer.sheet import data_sheet, sheet_html
from kanab.inspection.officer.statements import TESTS, deviations
from kanab.inspection.officer.table_facts import fields_of, purposes
from kanab.inspection.promises import NOT_COVERED
from kanab.plan.file import parse_plan, plan_digest, plan_to_dict
from kanab.plan.model import Cohorts, CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.plan.periods import Span
from kanab.privacy.epsilon import mechanism
from kanab.privacy.gate import release
from kanab.privacy.ledger import Ledger, read_ledger
from kanab.privacy.release import COLLECTORS_CLOCK, Batch, Receipt, Release
from kanab.privacy.release_json import release_to_dict

Account = dict[str, Any]
Chain = tuple[Release, Release, Ledger]

ROOT = Path(__file__).parents[4]
EVIL = '<script>alert("x")</script>&'
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


def receipt(made: Release, **changes: Any) -> Release:
    return replace(made, receipt=replace(made.receipt, **changes))


def batch(*, evaluated: bool = True, plan: Plan = PLAN) -> Release:
    """A batch as a collector seals it."""
    made = counted(replace(plan, cohorts=Cohorts()))
    assert made.signatures is not None
    signatures = replace(
        made.signatures, within="experiment", present=None, metrics=(), unknown=() if evaluated else ("checkout",)
    )
    return release(replace(made, signatures=signatures, span=Span(COLLECTORS_CLOCK, "7d", None, "2026-W46")))


@pytest.fixture(autouse=True)
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw noise of 0, so that the same levels are merged each time."""
    monkeypatch.setattr(mechanism, "draw", lambda size, _: [0] * size)


@pytest.fixture(scope="module")
def checkout() -> Release:
    return release(counted())


@pytest.fixture(scope="module")
def chained(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """Two releases about the same people, and their ledger."""
    path = tmp_path_factory.mktemp("chain") / "kanab.ledger"
    first = release(count_rows(people(), SIZES), ledger=path, new_ledger=True)
    again = count_rows(people(), replace(SIZES, experiments=(ExperimentPlan("banner"),)), earlier=(SIZES,))
    second = release(again, ledger=path)
    return first, second, read_ledger(path)


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


def noisy(budget: str = "epsilon = 1") -> Counted:
    return noisy_counted(budget)


UNREADABLE = LedgerError("entry 2 of kanab.ledger has been changed", "Take the ledger from a backup.")
ALIKE = {"arm": ["A", "B"] * 40, "bought": [1, 0] * 40}
BOUGHT = Plan((MetricPlan("bought", binary=True),), (ExperimentPlan("arm"),))
COHORTS = Batch("7d", None, "2026-W10", COLLECTORS_CLOCK)

CASES: dict[str, Callable[[Release, Chain], Account]] = {
    "rows": lambda checkout, _: privacy_account({"shop.json": checkout}),
    "two files and their ledger": lambda _, chain: privacy_account({"a": chain[0], "b": chain[1]}, chain[2]),
    "one of two files outside the ledger": lambda _, chain: privacy_account(
        {"a": chain[0], "b": replace(chain[1], previous=None)}, chain[2]
    ),
    "a ledger without the file": lambda _, chain: privacy_account({"a": chain[0]}, Ledger()),
    "a ledger that was changed": lambda checkout, chain: privacy_account({"a": chain[0], "b": checkout}, UNREADABLE),
    "squares by class of three people": lambda *_: privacy_account({"paper.json": leaky()}),
    "everybody alike": lambda *_: privacy_account({"a": release(count_rows(ALIKE, BOUGHT))}),
    "overlap not known": lambda checkout, _: privacy_account({"a": receipt(checkout, effective_k=None)}),
    "of before contributors were checked": lambda checkout, _: privacy_account({"a": receipt(checkout, checked=())}),
    "another k": lambda checkout, _: privacy_account(
        {
            "a": receipt(checkout, batch=Batch("7d", None, "1")),
            "b": receipt(release(counted(seed=4), 20), batch=Batch("7d", "1", "2")),
        }
    ),
    "a batch": lambda *_: privacy_account({"batch": batch()}),
    "a batch of a binary metric": lambda *_: privacy_account(
        {"batch": batch(plan=replace(PLAN, metrics=PLAN.metrics[:1]))}
    ),
    "a batch of before": lambda *_: privacy_account({"batch": receipt(batch(evaluated=False), checked=())}),
    "a batch beside rows": lambda checkout, _: privacy_account({"batch": batch(), "rows": checkout}),
    "epsilon": lambda *_: privacy_account({"shop.json": kb.release(noisy())}),
    "a batch with epsilon": lambda *_: privacy_account({"shop.json": receipt(kb.release(noisy()), batch=COHORTS)}),
}


def outline(account: Account) -> str:
    """What an account decides: the verdict, states, checks that do not hold, and the names of everything else."""
    verdict = account["verdict"]
    lines = [f"{verdict['state']}: {verdict['says']}", f"effective k: {verdict['effective_k']}; k: {verdict['k']}"]
    lines += [f"rule {rule['rule']}: {rule['holds']}" for rule in account["rules"]]
    lines += [f"{part['question']}: {part['state']} ({', '.join(part['rules'])})" for part in account["questions"]]
    lines += [f"  holds: {text}" for part in account["questions"] for text in part["holds"]]
    lines += [f"  gap: {text}" for part in account["questions"] for text in part["gaps"]]
    for where in [*account["releases"], {"file": "together", "checks": account["together"]}]:
        lines += [
            f"{where['file']}: {check['rule']} {check['holds']}: {check['says']}. {check['remedy']}"
            for check in where["checks"]
            if not check["holds"]
        ]
    lines += [f"attack {each['attack']}: {each['state']} {each['where']}" for each in account["attacks"]["tried"]]
    lines.append(f"flow: {'; '.join(step['step'] for step in account['flow'])}")
    lines.append(f"places: {'; '.join(place['place'] for place in account['places'])}")
    lines.append(f"risks: {'; '.join(risk['risk'] for risk in account['risks'])}")
    return "\n".join(lines)


def told(html: str) -> str:
    """The text of a page, a line per block, without hashes."""
    body = re.sub(r"<style>.*?</style>", "", html[html.index("<header") :], flags=re.DOTALL)
    lines = re.sub(r"</(p|h\d|li|tr|dd|div|caption)>", "\n", re.sub(r"</t[hd]>", " | ", body.replace("\n", " ")))
    text = unescape(re.sub(r"<[^>]+>", "", lines)).replace("\N{NO-BREAK SPACE}", " ")
    text = re.sub(r"[0-9a-f]{64}", "HASH", text)
    return "\n".join(line for line in (re.sub(r"\s+", " ", line).strip() for line in text.split("\n")) if line) + "\n"


# ── the account ────────────────────────────────────────────────────────────────────────────────


def test_verdicts_states_and_risks_of_every_kind_of_release_are_as_approved(checkout: Release, chained: Chain) -> None:
    accounts = {name: make(checkout, chained) for name, make in CASES.items()}
    outlines = {name: outline(each) for name, each in accounts.items()}
    rows = outlines.pop("rows")
    texts = [f"# rows\n{rows}"]
    for name, text in outlines.items():
        apart = [line for line in ndiff(rows.split("\n"), text.split("\n")) if line.startswith(("+ ", "- "))]
        texts.append("\n".join([f"# {name}, where it is not as rows are", *apart]))
    assert_approved("officer/outlines.txt", "\n\n".join(texts) + "\n")
    plain = json.dumps(accounts)
    assert not re.search(r"(?<!k-)anonymous|compliant|no personal data", plain, re.IGNORECASE)
    assert "2.17" not in plain  # what an attacker learnt is not repeated
    assert "Kari" not in plain


@pytest.mark.parametrize("name", ["rows", "a batch", "a batch with epsilon"])
def test_the_page_of_rows_batches_and_noise_is_as_approved(name: str, checkout: Release, chained: Chain) -> None:
    assert_approved(f"officer/{name.replace(' ', '_')}.txt", told(privacy_html(CASES[name](checkout, chained))))


def test_figures_are_those_of_what_was_published(checkout: Release) -> None:
    (found,) = privacy_account({"shop.json": checkout})["releases"]
    made = checkout.receipt
    assert (found["k"], found["smallest_class"], found["classes"]) == (10, made.smallest_class, made.classes)
    assert (found["effective_k"], found["hash"]) == (made.effective_k, release_to_dict(checkout)["hash"])
    freedom = [table.total - np.count_nonzero(table.people) for table in checkout.tables.values()]
    assert found["degrees_of_freedom"] == min(freedom)
    narrowest = [table["narrowest"]["share"] for table in found["tables"] if table["narrowest"]]
    assert found["narrowest"]["share"] == min(narrowest) >= found["narrowest"]["least"] == 0.25
    floors = [found["excluded"], found["outside"], *found["clamped"].values(), *found["missing"].values()]
    assert all(n % 10 == 0 for n in floors)
    for table, shown in zip(found["tables"], checkout.tables.values(), strict=True):
        assert table["smallest_class"] == min(n for n in shown.people.ravel() if n) >= 10
    (epsilon,) = privacy_account({"shop.json": kb.release(noisy())})["releases"]
    for part in (epsilon, *epsilon["tables"]):
        assert [part[name] for name in ("smallest_class", "degrees_of_freedom", "narrowest")] == [None] * 3


def test_a_sensitive_metric_and_a_table_of_arm_totals_say_what_they_are_for(checkout: Release) -> None:
    yes = replace(checkout, plan=replace(PLAN, metrics=(MetricPlan("cancelled", binary=True, sensitive="yes"),)))
    limits = [m["limits"] for table in fields_of(yes) for m in table["metrics"] if m["name"] == "cancelled"]
    assert limits[0][-2] == "sensitive: in no class everybody has the greatest value"
    assert purposes("checkout", PLAN) == ["effect: arm totals of what the tables by class do not carry"]


@pytest.mark.parametrize(
    ("covariate", "origin"),
    [
        (CovariatePlan("size", bins=3), "numbers, cut into 3 ranges with about as many people in each"),
        (CovariatePlan("size", bins=(165.0, 175.0)), "numbers, cut at edges that the plan declares"),
        (CovariatePlan("city", top=2), "the 2 commonest in the data; all others are other"),
    ],
)
def test_levels_say_where_they_come_from(covariate: CovariatePlan, origin: str) -> None:
    experiments = (ExperimentPlan("checkout", segments=(covariate.name,)),)
    made = release(count_rows(people(), replace(SIZES, covariates=(covariate,), experiments=experiments)))
    assert fields_of(made)[0]["covariate"]["origin"] == origin
    assert any(origin in text for text in deviations(made)) == (not isinstance(covariate.bins, tuple))


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
    own = receipt(made, deviations=("not chained: nobody looked",))
    assert [text for text in deviations(own) if "looked" in text] == ["not chained: nobody looked"]
    for k, side in ((7, "weaker"), (20, "stricter")):
        assert deviations(release(count_rows(people(), SIZES), k))[0] == f"k = {k}, {side} than the default of 10"
    undeclared = release(count_rows(people(), replace(SIZES, metrics=(MetricPlan("spend"),))))
    assert "bounds were taken from the data" in deviations(undeclared)
    assert fields_of(undeclared)[0]["metrics"][0]["limits"] == ["no value counts as 0"]


def test_effective_k_is_that_of_the_whole_ledger(chained: Chain) -> None:
    first, second, ledger = chained
    assert first.receipt.effective_k is not None
    alone = privacy_account({"a": first}, ledger)
    assert alone["verdict"]["effective_k"] == second.receipt.effective_k < first.receipt.effective_k
    assert [(one["file"], one["hash"]) for one in alone["ledger"]["entries"]] == [
        ("a", ledger.hashes[0]), (None, ledger.hashes[1]),
    ]  # fmt: skip
    foreign = replace(ledger, entries=ledger.entries[1:], hashes=ledger.hashes[1:])
    assert privacy_account({"a": first}, foreign)["verdict"]["effective_k"] == first.receipt.effective_k


def test_every_rule_of_the_auditor_bears_on_a_question_and_the_tests_that_are_named_exist(chained: Chain) -> None:
    first, second, ledger = chained
    checks = (*check_release(first), check_chain(first, ledger), *check_differences({"a": first, "b": second}))
    account = privacy_account({"a": first, "b": second}, ledger)
    assert {rule for part in account["questions"] for rule in part["rules"]} == {check.rule for check in checks}
    assert all((ROOT / test).is_file() for tests in TESTS.values() for test in tests)
    page = unescape(privacy_html(account))
    assert all(example in page for _, example in NOT_COVERED)


def test_the_same_release_is_not_reported_twice_and_the_same_one_gives_the_same_account(checkout: Release) -> None:
    with pytest.raises(SourceError, match="the same release is given twice"):
        privacy_account({"a": checkout, "b": checkout})
    with pytest.raises(SourceError, match="no release"):
        privacy_account({})
    account = privacy_account({"a": checkout})
    again = json.loads(json.dumps(privacy_account({"a": replace(release(counted()), salt=checkout.salt)})))
    assert json.dumps(account) == json.dumps(again)
    assert privacy_html(account) == privacy_html(again)


def test_what_a_ledger_with_epsilon_spent_and_has_left_is_added_up_again(tmp_path: Path) -> None:
    kb.release(noisy("epsilon = 1\nper_release = 0.5"), ledger=tmp_path / "shop.ledger", new_ledger=True)
    ledger = read_ledger(tmp_path / "shop.ledger")
    account = privacy_account({"shop.json": ledger.releases[0]}, ledger)
    assert account["verdict"]["short"] == "differential privacy at ε = 0.5 of 1 in all, δ = 1e-06; audit passed"
    assert {question["state"] for question in account["questions"]} == {"covered"}
    assert account["ledger"]["noise"]["spent"] == pytest.approx(0.5)
    text = told(privacy_html(account))
    assert "its release with ε has spent ε = 0.5 of 1 at δ = 1e-06. Left: ε = 0.843" in text
    assert "changes the chance of any result by at most a factor of 1.65" in text
    files = {"a.json": kb.release(noisy()), "b.json": kb.release(noisy())}
    assert "ε = 1 instead" in told(privacy_html(privacy_account(files)))


# ── the page ───────────────────────────────────────────────────────────────────────────────────


class Outline(HTMLParser):
    """Every tag in order, and whether each was closed where it was opened."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.stack: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag


@pytest.fixture
def account(checkout: Release) -> Account:
    return copy.deepcopy(privacy_account({"shop.release.json": checkout}))


def test_the_page_is_well_formed_and_asks_nothing_of_the_network(account: Account) -> None:
    page = privacy_html(account)
    outline = Outline(page)
    assert outline.stack == []
    levels = [int(tag[1]) for tag, _ in outline.tags if re.fullmatch(r"h\d", tag)]
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    sections = [attributes["id"] for tag, attributes in outline.tags if tag == "h2"]
    assert [attributes["href"] for tag, attributes in outline.tags if tag == "a"] == [f"#{name}" for name in sections]
    bare = page.replace('xmlns="http://www.w3.org/2000/svg"', "").replace("http-equiv", "")
    assert not re.search(r"http|//|url\(|@import|\ssrc=|<link|<script|<img|<iframe| style=|\son\w+=", bare)
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style.group(1).encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'" in page
    own = account["releases"][0]["hash"]
    assert own in page


def entries(number: int) -> list[dict[str, Any]]:
    return [{"entry": n + 1, "hash": f"{n:064d}", "file": None, "cohorts": None} for n in range(number)]


def ledger_of(number: int, **more: Any) -> dict[str, Any]:
    return {"verified": True, "name": "shop.ledger", "entries": entries(number), "refused": [], "reviews": []} | more


def crowded(account: Account) -> Account:
    """Two files, the first with what one release in many has, and everything broken that can be."""
    first = account["releases"][0]
    second = copy.deepcopy(first) | {"file": "b.json", "experiments": ["banner"], "shapes": [], "narrowest": None}
    second |= {"left_out": [], "costs": [], "deviations": [], "effective_k": None}
    first |= {
        "narrowest": {"table": "t", "metric": "spend", "share": 0.4712, "least": 0.25},
        "clamped": {"spend": 30, "bought": 0},
        "excluded": 20,
        "left_out": [
            {"what": "a/zip", "why": "zip is left out: too sparse"},
            {"what": "a/tier: spend", "why": "spend is withheld in a/tier"},
        ],
        "costs": ["effects are not adjusted for zip"],
        "cohorts": {"every": "7d", "after": "2026-03-02", "through": "2026-03-16"},
    }
    first["tables"][0]["products"] = [{"metrics": ["revenue", "orders"], "by": ["checkout"]}]
    first["checks"][0] |= {"holds": False, "classes": 3, "remedy": "Release it again."}
    account["verdict"] |= {"state": "broken", "short": "BROKEN: k in a.", "says": "BROKEN: k in a. Do not use it."}
    account["releases"].append(second)
    account["questions"][0]["state"] = "broken"
    account["attacks"] |= {"broken": True}
    account["attacks"]["tried"][0] |= {"state": "learnt something", "times": 2, "where": ["a, checkout"]}
    account["ledger"] = ledger_of(MOST_ENTRIES + 5)
    account["ledger"]["entries"][2] |= {"file": "shop.json"}
    return account


def test_a_crowded_and_broken_report_is_as_approved(account: Account) -> None:
    html = privacy_html(crowded(account))
    assert_approved("officer/crowded.txt", told(html))
    assert '<p class="call verdict alarm" role="alert"><strong>BROKEN: k in a.</strong> Do not use it.</p>' in html
    identifiers = re.findall(r'\sid="([^"]*)"', html)
    assert len(identifiers) == len(set(identifiers))
    account["ledger"] = {"verified": False, "entries": []}
    assert "The ledger could not be verified." in privacy_html(account)


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
    refused = [{"asked": {"where": "tier > 1"}, "rule": "other people", "reviewed": True}]
    account["ledger"] = ledger_of(3, refused=refused, reviews=["looked at"])
    html = privacy_html(poisoned(account))
    assert html.count("&lt;script&gt;") > 150
    assert "<script" not in html
    assert Outline(html).stack == []
    assert f"spend{EVIL} (metric)" in told(html)


# ── the sheet of a plan ──────────────────────────────────────────────────────────────────────────

SHEET_PLAN = """
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
    page = sheet_html(data_sheet(parse_plan(SHEET_PLAN + SHEET)))
    assert_approved("officer/sheet.txt", told(page))
    assert "Shop Ltd, 1 &lt;Main&gt; Street" in page
    HTMLParser().feed(page)


def test_it_names_k_or_epsilon_but_not_both() -> None:
    noisy = sheet_html(data_sheet(parse_plan(SHEET_PLAN + "[privacy]\nepsilon = 2\n")))
    assert "all releases together keep to ε = 2." in noisy
    assert "at least 20 people." not in noisy


def test_the_sheet_is_in_no_release_and_changes_no_digest() -> None:
    plan = parse_plan(SHEET_PLAN + SHEET)
    assert "sheet" not in plan_to_dict(plan)
    assert plan_digest(plan) == plan_digest(parse_plan(SHEET_PLAN))
    assert plan == parse_plan(SHEET_PLAN)


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
        parse_plan(f"{SHEET_PLAN}\n[sheet]\n{line}\n")
