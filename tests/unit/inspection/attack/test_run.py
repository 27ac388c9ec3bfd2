from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import kanab as kb
from kanab.datasets import shop_rows
from kanab.errors import SourceError
from kanab.inspection.attack.background import Background, place_people
from kanab.inspection.attack.examples.catalogue import EXAMPLES, example
from kanab.inspection.attack.findings import AttackReport, Attempt, Finding
from kanab.inspection.attack.published import AttackedRelease, published_from_dict
from kanab.inspection.attack.run import DOES, NEEDS_EXACT, NEEDS_KNOWLEDGE, NOTHING_KNOWN, play_attacker
from kanab.plan.model import make_plan
from kanab.privacy.release_json import release_to_dict


@cache
def attacked(name: str) -> AttackReport:
    bad = example(name)
    return play_attacker(bad.releases, bad.background, exact=bad.exact)


def found_by(played: AttackReport, attack: str) -> tuple[Finding, ...]:
    return next(one.findings for one in played.attempts if one.attack == attack)


def parts(pattern: str, finding: Finding) -> tuple[str, ...]:
    found = re.search(pattern, finding.learnt)
    assert found is not None
    return found.groups()


# ── bad examples break ─────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "attacks"),
    [
        ("daily-dashboard", {"differences"}),
        ("two-cuts", {"differences"}),
        ("suppressed", {"bounds on counts", "nested classes"}),
        ("class-squares", {"closed forms"}),
        ("pair-scan", {"leverage", "least squares"}),
        ("pair-scan-sparse", {"leverage", "sparse values"}),
        ("scan-statistics", {"scan statistics"}),
        ("blind-seal", {"leverage", "least squares", "nested classes"}),
        ("whole-numbers", {"whole numbers"}),
        ("nested-levels", {"nested classes"}),
        ("two-experiments", {"experiment differences"}),
        ("rare-in-one-arm", {"sparse values"}),
        ("arms-only", {"sparse values"}),
        ("unusual-price", {"sparse values"}),
        ("paper", {"closed forms"}),
        ("metric-differences", {"metric differences"}),
        ("products", {"products"}),
        ("outlier-in-number", {"weights"}),
        ("numbers-add-up", {"subset sums"}),
    ],
)
def test_every_bad_example_is_broken_by_the_attack_that_it_is_about(name: str, attacks: set[str]) -> None:
    played = attacked(name)
    assert played.broken
    assert {one.attack for one in played.findings} == attacks
    assert all(int(n) >= played.k for release in example(name).releases for table in release.tables
               for n in table.people[~table.hidden] if n)  # fmt: skip


def test_the_list_of_bad_examples_is_closed() -> None:
    assert set(EXAMPLES) == {
        "daily-dashboard", "two-cuts", "suppressed", "class-squares", "pair-scan", "pair-scan-sparse",
        "scan-statistics", "blind-seal", "whole-numbers", "paper", "nested-levels", "two-experiments",
        "metric-differences", "products",
        "rare-in-one-arm", "arms-only", "unusual-price", "outlier-in-number", "numbers-add-up",
    }  # fmt: skip
    with pytest.raises(SourceError, match="There are: daily-dashboard, two-cuts"):
        example("nonsense")


def test_the_dashboard_gives_away_every_class_that_grew_by_fewer_than_k() -> None:
    bad = example("daily-dashboard")
    days = [release.tables[0].people for release in bad.releases]
    grew = [int(n) for one, two in pairwise(days) for n in (two - one).ravel()][:252]
    small, single = sum(0 < n < 10 for n in grew), sum(n == 1 for n in grew)
    assert (small, single) == (190, 19)
    next_day = [one for one in found_by(attacked("daily-dashboard"), "differences") if _is_next_day(one.table)]
    assert sum("differs by" in one.learnt for one in next_day) == small
    assert sum("differs by one person" in one.learnt for one in next_day) == single
    spent = set((bad.people["spend"] / 100).tolist())
    for one in next_day:
        if "that person's spend" in one.learnt:
            assert float(one.learnt.rpartition(" is ")[2]) in spent


def _is_next_day(title: str) -> bool:
    before, after = (int(text) for text in re.findall(r"day (\d+)", title))
    return after == before + 1


def test_the_dashboard_gives_away_a_value_that_changes_when_nobody_joins() -> None:
    bad = example("daily-dashboard")
    last = [one for one in found_by(attacked("daily-dashboard"), "differences") if "day 15 → day 16" in one.table]
    assert [one.people for one in last] == [1]
    now = int(bad.people["spend"][np.argmax(bad.people["spend"] > 0)])
    assert last[0].learnt.endswith(f"one person's spend went from {(now - 2_350) / 100:g} to {now / 100:g}")


def test_two_cuts_give_three_people_away_to_the_cent() -> None:
    bad = example("two-cuts")
    played = attacked("two-cuts")
    spends = sorted(float(one.learnt.rpartition(" is ")[2]) for one in played.findings)
    assert spends == sorted((bad.people["spend"][1_000:] / 100).tolist())
    assert all(one.people == 1 for one in played.findings)


@pytest.mark.slow
def test_blacked_out_classes_are_found_with_their_exact_counts_and_sums() -> None:
    bad = example("suppressed")
    people = bad.people
    found = found_by(attacked("suppressed"), "bounds on counts")
    assert [one.people for one in found] == [8, 9, 5, 2]
    (shown, *_) = bad.releases[0].tables
    assert all(int(shown.hidden[:, town].sum()) != 1 for town in range(8))
    for one in found:
        arm, town, count = parts(r"variant = (\w), town = (town \d) holds exactly (\d) people;", one)
        inside = (people["variant"] == arm) & (people["town"] == town)
        assert int(inside.sum()) == int(count) == one.people
        assert one.learnt.endswith(f"their spend adds up to {people['spend'][inside].sum() / 100:.15g}")


def test_class_squares_pin_values_that_people_have() -> None:
    people = example("class-squares").people
    found = found_by(attacked("class-squares"), "closed forms")
    assert len(found) >= 10
    for one in found:
        arm, shop, low, high = parts(r"variant = (\w), shop = (shop \d) lies in \[(.+), (.+)\]", one)
        inside = (people["variant"] == arm) & (people["shop"] == shop)
        largest = people[one.metric][inside].max() / (100 if one.metric == "spend" else 1)
        assert float(low) <= largest <= float(high)


@pytest.mark.slow
def test_the_pair_scan_gives_everybodys_spend_to_the_cent() -> None:
    bad = example("pair-scan")
    found = found_by(attacked("pair-scan"), "least squares")
    values = {int(one.learnt.split()[1]): float(one.learnt.rpartition(" = ")[2]) for one in found}
    assert values == {i + 1: cents / 100 for i, cents in enumerate(bad.people["spend"].tolist())}
    assert len(values) == 300


@pytest.mark.slow
def test_the_sparse_pair_scan_names_every_buyer() -> None:
    bad = example("pair-scan-sparse")
    found = found_by(attacked("pair-scan-sparse"), "sparse values")
    named = sorted(int(one.learnt.split()[1]) - 1 for one in found)
    assert named == np.flatnonzero(bad.people["bought"]).tolist()
    assert len(named) > 10


def test_the_only_person_of_an_arm_with_a_value_is_named_whatever_the_other_arm_has() -> None:
    bad = example("rare-in-one-arm")
    (finding,) = found_by(attacked("rare-in-one-arm"), "sparse values")
    (person,) = np.flatnonzero((bad.people["variant"] == "A") & (bad.people["bought"] == 1)) + 1
    assert finding.learnt == f"person {person} has bought = 1"


def test_the_arm_totals_of_many_experiments_name_the_few_who_bought() -> None:
    bad = example("arms-only")
    named = [finding.learnt for finding in found_by(attacked("arms-only"), "sparse values")]
    buyers = np.flatnonzero(bad.people["bought"]) + 1
    assert sorted(named) == sorted(f"person {person} has bought = 1" for person in buyers)


@pytest.mark.slow
def test_who_does_not_pay_what_everybody_pays_is_named_with_the_price_and_odd_cents_are_seen() -> None:
    bad = example("unusual-price")
    named = {finding.learnt for finding in found_by(attacked("unusual-price"), "sparse values")}
    (odd,) = np.flatnonzero(bad.people["fee"] % 100) + 1
    cheap = np.flatnonzero(bad.people["price"] == 499) + 1
    whole = f"person {odd} is 0.37 off the steps of 1 that all other fee is in"
    assert {whole, *(f"person {person} has price = 4.99" for person in cheap)} <= named


def test_the_papers_value_lies_between_itself_and_itself() -> None:
    (found,) = attacked("paper").findings
    assert "[2.17, 2.17]" in found.learnt


# ── our own releases do not ────────────────────────────────────────────────────────────────────


def ours(rows: dict[str, Any], covariates: list[str], **more: Any) -> AttackedRelease:
    plan = make_plan("variant", ["bought", "spend"], segments=covariates, bounds={"bought": (0, 1), "spend": (0, 500)},
                     resolution={"bought": 1, "spend": 0.01}, **more)  # fmt: skip
    return published_from_dict(release_to_dict(kb.release(kb.count(rows, plan))), "ours")


def knowing(rows: dict[str, Any], *releases: AttackedRelease) -> Background:
    return place_people({name: rows[name] for name in ("variant", "tier", "device", "country")}, releases)


@pytest.mark.parametrize(("people", "seed"), [(200, 1), (500, 2), (1_000, 3), (3_000, 4), (20_000, 5)])
def test_releases_of_ours_are_not_broken_even_if_everybodys_classes_are_known(people: int, seed: int) -> None:
    rows = shop_rows(people, seed)
    release = ours(rows, ["tier", "device", "country"])
    known = knowing(rows, release)
    assert len(known.tables) == len(release.tables) >= 3
    played = play_attacker([release], known, exact=True)
    assert not played.broken, str(played)
    assert not any(one.not_tried for one in played.attempts)


def test_two_releases_about_the_same_people_are_not_broken() -> None:
    rows = shop_rows(4_000, 6)
    first, second = ours(rows, ["tier"]), ours(rows, ["device", "country"])
    assert not play_attacker([first, second], knowing(rows, first, second)).broken


def test_growing_data_released_twice_without_cohorts_is_broken() -> None:
    rows = shop_rows(1_003, 7)
    start = {name: values[:1_000] for name, values in rows.items()}
    played = play_attacker([ours(start, ["tier"]), ours(rows, ["tier"])])
    assert {one.attack for one in played.findings} == {"differences"}
    assert 1 <= min(one.people for one in played.findings) <= 3


# ── what is said ───────────────────────────────────────────────────────────────────────────────


def test_attacks_that_need_knowledge_say_so() -> None:
    bad = example("two-cuts")
    played = play_attacker(bad.releases)
    assert [one.attack for one in played.attempts] == list(DOES)
    assert {one.attack: one.not_tried for one in played.attempts if one.not_tried} == dict.fromkeys(
        ["leverage", "least squares", "sparse values", "scan statistics", "weights", "subset sums"], NEEDS_KNOWLEDGE
    ) | {"whole numbers": NEEDS_EXACT}
    assert play_attacker(bad.releases, exact=True).attempts[-1].not_tried == NEEDS_KNOWLEDGE
    nobody = place_people({"variant": ["A"]}, bad.releases)
    assert play_attacker(bad.releases, nobody, exact=True).attempts[-1].not_tried == NOTHING_KNOWN


def test_k_is_the_largest_of_the_files_unless_said_otherwise() -> None:
    bad = example("two-cuts")
    first, second = bad.releases
    higher = AttackedRelease(second.name, second.tables, k=30)
    assert play_attacker([first, higher]).k == 30
    assert play_attacker([first, higher], k=5).k == 5


def test_the_text_names_the_fewest_first_and_sums_up() -> None:
    findings = tuple(Finding("differences", f"t{n}", "spend", n, f"{n} things") for n in (9, 3, 1, 12, 4, 5))
    played = AttackReport(("a", "b", "c", "d", "e"), 10, (Attempt("differences", "Subtracts.", findings),))
    assert str(played) == (
        "Attacked: a, b, … e (5 in all). The rule to break: k = 10.\n\n"
        "differences: LEARNT 6 things\n  Subtracts.\n"
        "  - t1: 1 things\n  - t3: 3 things\n  - t4: 4 things\n  - t5: 5 things\n  - … and 2 more\n\n"
        "BROKEN: something was learnt about fewer than 10 people, 5 times; the worst is about one person."
    )
    assert len(played.findings) == 5


def test_a_failure_to_break_is_no_proof_and_says_so() -> None:
    played = AttackReport(("a",), 10, (Attempt("differences", "Subtracts."),))
    assert not played.broken
    assert str(played).endswith(
        "Nothing was learnt about fewer than 10 people.\nThat is what these attacks could do, with what they know; "
        "it is no proof that no other can do more."
    )


def test_one_finding_about_several_people_reads_well() -> None:
    finding = Finding("differences", "t", "", 3, "x")
    played = AttackReport(("a",), 10, (Attempt("differences", "Subtracts.", (finding,)),))
    assert "differences: LEARNT one thing" in str(played)
    assert str(played).endswith("fewer than 10 people, once; the worst is about 3 people.")
    assert finding.to_dict() == {"attack": "differences", "table": "t", "metric": None, "people": 3, "learnt": "x"}


def test_plain_data_has_every_finding() -> None:
    played = attacked("daily-dashboard")
    plain = json.loads(json.dumps(played.to_dict()))
    assert plain["broken"] is True
    assert plain["k"] == 10
    assert len(plain["releases"]) == 16
    assert [one["attack"] for one in plain["attacks"]] == list(DOES)
    assert sum(len(one["findings"]) for one in plain["attacks"]) == len(played.findings)
    assert plain["attacks"][-2]["not_tried"] == NEEDS_KNOWLEDGE


@pytest.mark.slow
def test_the_attacker_loads_no_solver_before_it_needs_one() -> None:
    code = (
        "import sys, kanab; import kanab.inspection.attack.run, kanab.inspection.attack.examples.catalogue; "
        "print(sorted(m for m in sys.modules if m.startswith(('scipy.optimize', 'scipy.sparse'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
