import re
import subprocess
import sys
from functools import cache
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from tests.bad_releases import BAD_RELEASES, BadRelease, outlier_in_number
from tests.described import as_values

import kanab as kb
from kanab.datasets import shop_rows
from kanab.inspection.attack.findings import AttackReport, Attempt, Finding
from kanab.inspection.attack.known_people import KnownPeople, place_people
from kanab.inspection.attack.published import AttackedRelease, published_from_dict
from kanab.inspection.attack.reconstruct import find_leverage
from kanab.inspection.attack.run import DOES, NEEDS_KNOWLEDGE, NEEDS_VALUES, NOTHING_KNOWN, TOO_MUCH_WORK, play_attacker
from kanab.inspection.auditor import check_release
from kanab.inspection.officer.account import privacy_account
from kanab.plan.model import make_plan
from kanab.privacy import gate
from kanab.privacy.numbers.rule import WeighedNumbers
from kanab.privacy.recoding import Recoded
from kanab.privacy.release import Release
from kanab.privacy.release_json import release_to_dict


def example(name: str) -> BadRelease:
    return BAD_RELEASES[name]()


@cache
def attacked(name: str) -> AttackReport:
    bad = example(name)
    return play_attacker(bad.releases, bad.known)


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
        ("daily_dashboard", {"differences"}),
        ("two_cuts", {"differences"}),
        ("suppressed", {"linked tables"}),
        ("class_squares", {"closed forms"}),
        ("paper", {"closed forms"}),
        ("pair_scan", {"leverage", "least squares"}),
        ("pair_scan_sparse", {"leverage", "whole numbers"}),
        ("blind_seal", {"leverage", "least squares"}),
        ("whole_numbers", {"whole numbers"}),
        ("rare_in_one_arm", {"whole numbers"}),
        ("arms_only", {"whole numbers"}),
        ("unusual_price", {"contributors"}),
        ("nested_levels", {"linked tables"}),
        ("two_experiments", {"leverage", "least squares"}),
        ("products", {"contributors"}),
        ("outlier_in_number", {"leverage", "contributors"}),
    ],
)
def test_every_bad_release_is_broken_by_the_attack_that_it_is_about(name: str, attacks: set[str]) -> None:
    played = attacked(name)
    assert played.broken
    assert {finding.attack for finding in played.findings} == attacks
    assert all(int(n) >= played.k for release in example(name).releases for table in release.tables
               for n in table.people[~table.hidden] if n)  # fmt: skip


def test_two_metrics_that_differ_for_a_few_are_told_for_information() -> None:
    played = attacked("metric_differences")
    assert not played.broken
    assert "Sums of gross and net together can be combined so that 100 % of the result" in str(played)
    assert set(BAD_RELEASES) >= {"metric_differences"}


def test_the_dashboard_gives_away_every_class_that_grew_by_fewer_than_k() -> None:
    bad = example("daily_dashboard")
    days = [release.tables[0].people for release in bad.releases]
    grew = [int(n) for one, two in pairwise(days) for n in (two - one).ravel()][:252]
    small, single = sum(0 < n < 10 for n in grew), sum(n == 1 for n in grew)
    assert (small, single) == (190, 19)
    next_day = [one for one in found_by(attacked("daily_dashboard"), "differences") if _is_next_day(one.table)]
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
    bad = example("daily_dashboard")
    last = [one for one in found_by(attacked("daily_dashboard"), "differences") if "day 15 → day 16" in one.table]
    assert [one.people for one in last] == [1]
    now = int(bad.people["spend"][np.argmax(bad.people["spend"] > 0)])
    assert last[0].learnt.endswith(f"one person's spend went from {(now - 2_350) / 100:g} to {now / 100:g}")


@pytest.mark.slow
def test_blacked_out_classes_are_found_with_their_exact_counts_and_sums() -> None:
    bad = example("suppressed")
    people = bad.people
    found = found_by(attacked("suppressed"), "linked tables")
    assert [one.people for one in found] == [8, 9, 5, 2]
    (shown, *_) = bad.releases[0].tables
    assert all(int(shown.hidden[:, town].sum()) != 1 for town in range(8))
    for one in found:
        arm, town, count = parts(r"variant = (\w), town = (town \d) holds exactly (\d) people;", one)
        inside = (people["variant"] == arm) & (people["town"] == town)
        assert int(inside.sum()) == int(count) == one.people
        assert one.learnt.endswith(f"their spend adds up to {people['spend'][inside].sum() / 100:.15g}")


def test_class_squares_pin_values_that_people_have() -> None:
    people = example("class_squares").people
    found = found_by(attacked("class_squares"), "closed forms")
    assert len(found) >= 10
    for one in found:
        arm, shop, low, high = parts(r"variant = (\w), shop = (shop \d) lies in \[(.+), (.+)\]", one)
        inside = (people["variant"] == arm) & (people["shop"] == shop)
        largest = people[one.metric][inside].max() / (100 if one.metric == "spend" else 1)
        assert float(low) <= largest <= float(high)


@pytest.mark.slow
def test_the_pair_scan_gives_everybodys_spend_to_the_cent() -> None:
    bad = example("pair_scan")
    found = found_by(attacked("pair_scan"), "least squares")
    values = {int(one.learnt.split()[1]): float(one.learnt.rpartition(" = ")[2]) for one in found}
    assert values == {i + 1: cents / 100 for i, cents in enumerate(bad.people["spend"].tolist())}
    assert len(values) == 300


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pair_scan_sparse", "arms_only", "rare_in_one_arm"])
def test_few_people_with_a_sensitive_value_are_named(name: str) -> None:
    bad = example(name)
    named = {finding.learnt for finding in found_by(attacked(name), "whole numbers")}
    buyers = np.flatnonzero(bad.people["bought"]) + 1
    if name == "rare_in_one_arm":  # hundreds of B bought, and hide each other
        buyers = np.flatnonzero((bad.people["variant"] == "A") & (bad.people["bought"] == 1)) + 1
    assert len(buyers) >= 1
    assert {text for text in named if text.endswith("= 1")} == {f"person {person} has bought = 1" for person in buyers}


# ── our own releases do not ────────────────────────────────────────────────────────────────────


def ours(rows: dict[str, Any], covariates: list[str], **more: Any) -> AttackedRelease:
    plan = make_plan(
        "variant",
        **as_values(
            "make_plan",
            metrics=["bought", "spend"],
            segments=covariates,
            bounds={"bought": (0, 1), "spend": (0, 500)},
            resolution={"bought": 1, "spend": 0.01},
            **more,
        ),
    )
    return published_from_dict(release_to_dict(kb.release(kb.count(rows, plan))), "ours")


def knowing(rows: dict[str, Any]) -> KnownPeople:
    """Everybody's classes, and even their values."""
    values = {name: np.asarray(rows[name], dtype=np.float64) for name in ("bought", "spend")}
    return KnownPeople({name: rows[name] for name in ("variant", "tier", "device", "country")}, values)


@pytest.mark.parametrize("rule", ["merge_jointly", "recode"])
def test_with_a_rule_switched_off_the_attacker_breaks_ours(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = shop_rows(1_000, 3)
    if rule == "recode":
        monkeypatch.setattr(gate, "recode", lambda _counted, drafts, _earlier: Recoded(drafts, {}, {}))
        attacks = {"contributors"}
    else:
        rows["country"] = np.where(np.arange(1_000) == 5, 1 + rows["tier"] % 3, rows["tier"])  # one person differs
        assert not play_attacker([ours(rows, ["tier", "device", "country"])], knowing(rows)).broken
        monkeypatch.setattr("kanab.privacy.joint_rules.holds", lambda *_: True)
        attacks = {"leverage", "least squares"}
    played = play_attacker([ours(rows, ["tier", "device", "country"])], knowing(rows))
    assert attacks <= {finding.attack for finding in played.findings}


# ── what is said ───────────────────────────────────────────────────────────────────────────────


def test_attacks_that_need_knowledge_say_so() -> None:
    bad = example("two_cuts")
    played = play_attacker(bad.releases)
    assert [attempt.attack for attempt in played.attempts] == list(DOES)
    assert {attempt.attack: attempt.not_tried for attempt in played.attempts if attempt.not_tried} == dict.fromkeys(
        ["leverage", "least squares", "contributors", "whole numbers", "several metrics"], NEEDS_KNOWLEDGE
    )
    nobody = play_attacker(bad.releases, KnownPeople({"variant": ["A"]}))
    assert {attempt.not_tried for attempt in nobody.attempts if attempt.not_tried} == {NOTHING_KNOWN}
    classes = {name: bad.people[name] for name in ("variant", "tier")}
    without = play_attacker(bad.releases, KnownPeople(classes))
    assert {attempt.attack for attempt in without.attempts if attempt.not_tried == NEEDS_VALUES} == {
        "contributors", "several metrics",
    }  # fmt: skip


def test_what_was_too_much_work_is_said_of_every_attack_that_left_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = example("blind_seal")
    assert bad.known is not None
    known = KnownPeople(bad.known.levels, {"spend": bad.people["spend"] / 100})
    monkeypatch.setattr("kanab.privacy.leverage.BUDGET", 1)
    monkeypatch.setattr("kanab.inspection.attack.known_people.MOST_ENTRIES", 10)
    says = {attempt.attack: attempt.says for attempt in play_attacker(bad.releases, known).attempts}
    for attack in ("leverage", "least squares", "contributors", "whole numbers"):
        assert says[attack] == (TOO_MUCH_WORK,), attack


def test_k_is_the_largest_of_the_files_unless_said_otherwise() -> None:
    bad = example("two_cuts")
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


@pytest.mark.slow
def test_the_attacker_loads_no_solver_before_it_needs_one() -> None:
    code = (
        "import sys, kanab; import kanab.inspection.attack.run; "
        "print(sorted(m for m in sys.modules if m.startswith(('scipy.optimize', 'scipy.sparse'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ── somebody who knows everybody's number ────────────────────────────────────────────────────────


def shop(people: int, seed: int, largest: float) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    before = np.round(rng.gamma(1.5, 20, people), 2)
    spend = np.round(rng.gamma(1, 30, people), 2)
    before[7], spend[7] = largest, 431.5
    return {
        "variant": rng.choice(["A", "B"], people),
        "tier": rng.choice([1, 2, 3], people),
        "device": rng.choice(["app", "web"], people),
        "before": before,
        "spend": spend,
    }


def released(rows: dict[str, Any], adjust: tuple[str, ...] = ("tier", "device", "before")) -> Release:
    ends = {"spend": (0, 500), "before": (0, 20_000)}
    return kb.release(
        kb.count(rows, **as_values("count", arm="variant", metrics=["spend"], adjust=list(adjust), bounds=ends))
    )


def without_the_rule(rows: dict[str, Any]) -> Release:
    with patch.object(gate, "weigh_numbers", lambda *_: WeighedNumbers()):
        return released(rows)


def known(rows: dict[str, Any], release: Release) -> tuple[AttackedRelease, KnownPeople]:
    shown = published_from_dict(release_to_dict(release), "shown")
    return shown, KnownPeople({name: rows[name] for name in ("variant", "tier", "device")}, {"before": rows["before"]})


def found(people: KnownPeople, release: AttackedRelease, k: int) -> list[Finding]:
    """What leverage finds about what is not known."""
    return [finding for finding in find_leverage(place_people(people, [release]), k) if finding.metric == "spend"]


@pytest.mark.slow
@pytest.mark.parametrize(("people", "largest"), [(400, 420), (2_000, 950), (8_000, 1_900)])
def test_an_outlier_in_a_number_is_exposed_without_the_rule_and_not_on_our_releases(
    people: int, largest: float
) -> None:
    rows = shop(people, 1, largest)
    bad, people_known = known(rows, without_the_rule(rows))
    (finding,) = found(people_known, bad, 10)
    assert (finding.metric, finding.people) == ("spend", 1)
    assert "person 8" in finding.learnt
    release, people_known = known(rows, released(rows))
    assert not play_attacker([release], people_known).broken


@pytest.mark.parametrize(("people", "seed"), [(400, 4), (2_000, 5), (8_000, 6)])
def test_what_our_releases_publish_of_numbers_tells_nobody(people: int, seed: int) -> None:
    rows = shop(people, seed, largest=60)
    made = released(rows)
    assert any(table.crosses for table in made.tables.values()) == (people > 400)
    release, people_known = known(rows, made)
    played = play_attacker([release], people_known)
    assert not played.broken, str(played)


def test_the_fewest_people_that_sums_rest_on_are_those_of_the_receipt() -> None:
    rows = shop(3_000, 7, largest=60)
    release, people_known = known(rows, made := released(rows))
    effective = made.receipt.effective_k or 0
    assert found(people_known, release, effective) == []
    (finding,) = found(people_known, release, 2 * effective)
    assert finding.people >= effective


def test_numbers_that_are_not_these_peoples_say_nothing() -> None:
    bad = outlier_in_number()
    assert bad.known is not None
    others = {name: values + 1 for name, values in bad.known.values.items()}
    assert len(found(bad.known, bad.releases[0], 10)) == 1
    assert found(KnownPeople(bad.known.levels, others), bad.releases[0], 10) == []
    assert found(KnownPeople(bad.known.levels), bad.releases[0], 10) == []


def test_auditor_and_officer_name_the_numbers_that_weigh_sums() -> None:
    made = released(shop(3_000, 7, largest=60))
    (overlap,) = [check for check in check_release(made) if check.rule == "overlap"]
    assert overlap.says.startswith(
        "no combination of published sums of one metric, also those weighted by before, rests on fewer"
    )
    tables = privacy_account({"shop": made})["releases"][0]["tables"]
    assert {"metrics": ["before", "spend"], "by": ["variant"]} in tables[0]["products"]
    assert "adjustment: for before as it is, by its products with every metric" in tables[0]["why"]
