import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kanab.collector.counting.plan_versions import Change, Version, Versions
from kanab.collector.stores.sqlite import SqliteStore
from kanab.collector.stores.store import StoredPlan
from kanab.errors import PlanError, StoreError
from kanab.plan.budget import epsilon_shares
from kanab.plan.file import parse_plan, plan_digest, plan_to_dict
from kanab.plan.model import Budget, Plan

TEXT = """
k = 10
[cohorts]
every = "7d"
window = "7d"
[covariates]
tier = [1, 2, 3]
device = ["phone", "desktop"]
[metrics]
bought = { kind = "binary" }
spend = { bounds = [0, 500], resolution = 0.01, of = "bought" }
[experiments.checkout]
arms = { A = 1, B = 1 }
adjust = ["tier"]
[experiments.banner]
arms = { off = 9, on = 1 }
interactions = ["checkout"]
"""
PLAN = parse_plan(TEXT)
MENU = '\n[experiments.menu]\narms = { old = 1, new = 1 }\nsegments = ["device"]\ninteractions = ["checkout"]\n'
MINUTES = "minutes = { bounds = [0, 600], resolution = 1 }\n"


def changed(old: str, new: str) -> Plan:
    assert old in TEXT
    return parse_plan(TEXT.replace(old, new))


def with_minutes(text: str = TEXT) -> Plan:
    return parse_plan(text.replace("[metrics]\n", "[metrics]\n" + MINUTES))


WITHOUT_BANNER = parse_plan(TEXT[: TEXT.index("[experiments.banner]")])
OTHER_SHARES = changed("A = 1, B = 1", "A = 9, B = 1")


def check_change(old: Plan, new: Plan) -> Change:
    """What a new plan changes, for a collector that began with the old one."""
    return Versions((Version(0, old),)).adopt(new, 1)[1]


NEW_PHASE = "experiments.checkout has a new phase with other shares"
LATER = "is counted by experiments that begin with it or later; the others keep the metrics they began with"


@pytest.mark.parametrize(
    ("plan", "at_once", "next_period"),
    [
        (parse_plan(TEXT), "", ""),
        (changed("A = 1, B = 1", "A = 2, B = 2"), "", ""),
        (parse_plan(TEXT + MENU), "experiments.menu begins", ""),
        (OTHER_SHARES, "", NEW_PHASE),
        (changed('adjust = ["tier"]', 'adjust = ["tier"]\nholdout = 0.1'), "", NEW_PHASE),
        (WITHOUT_BANNER, "", "experiments.banner ends"),
        (with_minutes(), f"metrics.minutes {LATER}", ""),
        (changed("k = 10", "k = 20"), "k changes", ""),
        (changed("k = 10", 'k = 10\norigins = ["https://shop.example"]'), "origins changes", ""),
        (changed("k = 10", 'k = 10\nnonce_life = "12h"'), "nonce_life changes", ""),
        (changed('window = "7d"', 'window = "7d"\nseal = "7d"'), "cohorts.seal changes", ""),
        (
            changed("A = 1, B = 1 }", 'A = 1, B = 1 }\nprimary = ["bought"]'),
            "experiments.checkout.primary changes: results are read so from the next seal on", "",
        ),
        (changed('every = "7d"', 'every = "1w"'), "", ""),  # from here on: what only the analysis reads
        (changed("arms = { A = 1, B = 1 }", 'arms = { B = 1, A = 1 }\ncontrol = "A"'), "", ""),
        (changed("arms = { A = 1, B = 1 }", "arms = { A = 1, B = 1 }\ntolerance = 0.5"), "", ""),
        (changed("bought = {", "bought = { sensitive = true, "), "", ""),
        (changed("bought = {", "bought = { least_events = 5, "), "", ""),
    ],
)  # fmt: skip
def test_what_changes_and_when_is_said(plan: Plan, at_once: str, next_period: str) -> None:
    said = check_change(PLAN, plan)
    assert said == Change((at_once,) if at_once else (), (next_period,) if next_period else ())


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (changed("bought = {", "bought = { least_events = 5, "), PLAN, "bought.least_events may not become smaller"),
        (changed("bought = {", 'bought = { sensitive = "both", '), PLAN, "bought.sensitive may only become stricter"),
        (
            changed('interactions = ["checkout"]', ""),
            changed('interactions = ["checkout"]', 'exclude_with = ["checkout"]'),
            "experiments.banner.exclude_with may not change",
        ),
        (
            PLAN, parse_plan("\n".join(line for line in TEXT.splitlines() if "spend" not in line)),
            "metrics.spend may not be removed while an experiment that began with it runs",
        ),
    ],
)  # fmt: skip
def test_what_may_not_become_weaker_is_refused(before: Plan, after: Plan, reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        check_change(before, after)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("k = 10", "k = 9", "k may not become smaller"),
        ("k = 10", 'k = 10\nnonce_life = "25h"', "nonce_life may not become longer"),
        ("k = 10", 'k = 10\ndurability = "memory"', "durability may not change"),
        ('every = "7d"', 'every = "14d"', "cohorts.every may not change"),
        ('window = "7d"', 'window = "8d"', "cohorts.window may not change"),
        ('[cohorts]\nevery = "7d"\nwindow = "7d"\n', "", "cohorts may not be added or removed"),
        ("tier = [1, 2, 3]", "tier = [1, 2, 3, 4]", "covariates.tier may not change"),
        ('["phone", "desktop"]', '["desktop", "phone"]', "covariates.device may not change"),
        ("[0, 500]", "[0, 600]", "metrics.spend.bounds may not change"),
        ("0.01", "0.1", "metrics.spend.resolution may not change"),
        ('of = "bought"', 'missing = "exclude"', "metrics.spend.missing may not change"),
        (', of = "bought"', "", "metrics.spend.of may not change"),
        (', of = "bought"', ', squares = "class"', "metrics.spend.squares may not change"),
        ('kind = "binary"', "bounds = [0, 9]", "metrics.bought.kind may not change"),
        ("A = 1, B = 1", "A = 1, C = 1", "experiments.checkout.arms may not be added, removed or renamed"),
        ("A = 1, B = 1", "A = 1, B = 1, C = 1", "experiments.checkout.arms may not be added, removed or renamed"),
        ('adjust = ["tier"]', "", "the table checkout would begin"),
        ('adjust = ["tier"]', 'adjust = ["tier", "device"]', "the table checkout/device would begin"),
        (
            'adjust = ["tier"]',
            'segments = ["tier"]',
            "the table checkout/tier is counted already, and would end or hold",
        ),
        ('interactions = ["checkout"]', "", "the table banner/checkout is counted already, and would end"),
        ('adjust = ["tier"]', 'adjust = ["tier"]\nsalt = "x"', "experiments.checkout.salt may not change"),
        ('adjust = ["tier"]', 'adjust = ["tier"]\nlooks = 3', "experiments.checkout.looks may not change"),
    ],
)
def test_what_would_mix_meanings_is_refused_with_its_path(old: str, new: str, reason: str) -> None:
    text = TEXT.replace(old, new)
    if 'kind = "binary"' in old:
        text = text.replace(', of = "bought"', "")
    with pytest.raises(PlanError, match=r"mistakes? in the changed plan") as caught:
        check_change(PLAN, parse_plan(text))
    assert reason in str(caught.value)


def test_every_reason_is_given_at_once() -> None:
    with pytest.raises(PlanError, match="3 mistakes in the changed plan") as caught:
        check_change(PLAN, replace(changed("[0, 500]", "[0, 600]"), k=5, nonce_life="2d"))
    assert len(str(caught.value).splitlines()) == 4


def test_without_cohorts_nothing_can_wait_for_the_next_period() -> None:
    alone = replace(PLAN, cohorts=None)
    with pytest.raises(PlanError, match=r"experiments.checkout.arms: other shares .* without cohorts there is none"):
        check_change(alone, replace(OTHER_SHARES, cohorts=None))
    with pytest.raises(PlanError, match=r"experiments.banner ends with a period"):
        check_change(alone, replace(WITHOUT_BANNER, cohorts=None))
    assert check_change(alone, replace(parse_plan(TEXT + MENU), cohorts=None)).at_once == ("experiments.menu begins",)


# ── versions ────────────────────────────────────────────────────────────────────────────────────


def adopted(*plans: tuple[int, Plan]) -> Versions:
    versions = Versions()
    for period, plan in plans:
        versions, _ = versions.adopt(plan, period, replaces=len(versions.entries))
    return versions


def shares(plan: Plan) -> Any:
    return dict(plan.experiment("checkout").shares or ())


def test_a_version_is_in_force_at_once_or_from_the_next_period() -> None:
    versions = adopted((7, PLAN))
    assert versions.in_force(6) == versions.in_force(8) == PLAN
    assert versions.adopt(parse_plan(TEXT), 9) == (versions, Change())
    grown = adopted((7, PLAN), (9, parse_plan(TEXT + MENU)))
    assert [len(grown.in_force(period).experiments) for period in (8, 9, 10)] == [2, 3, 3]
    moved = adopted((7, PLAN), (9, OTHER_SHARES))
    assert [shares(moved.in_force(period))["A"] for period in (8, 9, 10)] == [1, 1, 9]
    ended = adopted((7, PLAN), (9, WITHOUT_BANNER))
    assert [len(ended.in_force(period).experiments) for period in (9, 10)] == [2, 1]
    with pytest.raises(PlanError, match="no plan yet"):
        Versions().in_force(3)
    unused = adopted((7, PLAN), (9, with_minutes()), (11, PLAN), (12, OTHER_SHARES))  # nobody began with the metric
    assert unused.in_force(13) == OTHER_SHARES


def test_several_changes_in_one_period_add_up() -> None:
    """Shares change, then an experiment is added, then another ends: all in one period."""
    both = parse_plan(TEXT.replace("A = 1, B = 1", "A = 9, B = 1") + MENU)
    last = replace(both, experiments=tuple(one for one in both.experiments if one.name != "banner"))
    versions = adopted((7, PLAN), (9, OTHER_SHARES), (9, both), (9, last))
    during, after = versions.in_force(9), versions.in_force(10)
    assert (shares(during), sorted(one.name for one in during.experiments)) == (
        {"A": 1, "B": 1},
        ["banner", "checkout", "menu"],
    )
    assert after == last


def test_running_experiments_keep_the_metrics_they_began_with() -> None:
    versions = adopted((7, PLAN), (9, with_minutes()), (9, with_minutes(TEXT + MENU)))
    assert versions.metrics("checkout") == ("bought", "spend")
    assert versions.metrics("menu") == ("minutes", "bought", "spend")
    assert versions.metrics("menu", "checkout") == ("bought", "spend")
    assert versions.metrics("unknown") == ()


def test_an_experiment_that_ended_does_not_come_back_as_another_one() -> None:
    versions = adopted((7, PLAN), (9, WITHOUT_BANNER))
    with pytest.raises(PlanError, match=r"experiments.banner.arms may not be added, removed or renamed"):
        versions.adopt(changed("off = 9, on = 1", "off = 9, low = 1"), 20)
    assert versions.adopt(PLAN, 20, replaces=2)[1] == Change(("experiments.banner begins",))


def test_a_plan_that_a_newer_one_replaced_is_refused_with_the_way_back() -> None:
    """Also written otherwise, and although the newer one has what the older one lacks."""
    versions = adopted((7, PLAN), (9, parse_plan(TEXT + MENU)))
    sentence = r"this plan is version 1 of the store's, and version 2 has replaced it. .* add --replace-plan 2\."
    for text in (TEXT, "\n# yesterday's\n" + TEXT.replace(" = ", "  =  ")):
        for replaces in (None, 1, 3):  # 3: the newest one is meant to be another one than it is
            with pytest.raises(PlanError, match=sentence):
                versions.adopt(parse_plan(text), 9, replaces=replaces)
    again, change = versions.adopt(PLAN, 9, replaces=2)
    assert (again.newest, change.next_period) == (PLAN, ("experiments.menu ends",))


def test_two_files_that_alternate_stop_at_the_newest() -> None:
    """A number that stays in a unit file goes back once, and never again."""
    versions = adopted((7, PLAN), (8, OTHER_SHARES), (9, PLAN))
    assert versions.adopt(PLAN, 10, replaces=2) == (versions, Change())
    with pytest.raises(PlanError, match="this plan is version 2 of the store's, and version 3 has replaced it"):
        versions.adopt(OTHER_SHARES, 10, replaces=1)
    later, _ = versions.adopt(parse_plan(TEXT + MENU), 10)
    with pytest.raises(PlanError, match="this plan is version 3 of the store's, and version 4 has replaced it"):
        later.adopt(PLAN, 10, replaces=2)


def test_collectors_that_start_together_with_the_same_new_plan_agree(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.sqlite")
    first, _ = Versions.read(store).record(store, PLAN, 7)
    assert first.record(store, OTHER_SHARES, 9)[0] == first.record(store, OTHER_SHARES, 9)[0]
    with pytest.raises(StoreError, match="another collector changed the plan at the same moment"):
        first.record(store, parse_plan(TEXT + MENU), 9)
    assert len(store.versions()) == 2
    store.close()


def test_a_clock_that_went_back_is_noticed() -> None:
    with pytest.raises(PlanError, match=r"later period than this one. Check the clock"):
        adopted((7, PLAN), (6, OTHER_SHARES))


def test_versions_come_back_from_a_store(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.sqlite")
    versions, _ = Versions.read(store).record(store, PLAN, 7)
    versions, _ = versions.record(store, PLAN, 8)
    versions, change = versions.record(store, OTHER_SHARES, 9)
    assert change.next_period == ("experiments.checkout has a new phase with other shares",)
    assert Versions.read(store) == versions == Versions((Version(7, PLAN), Version(9, OTHER_SHARES)))
    assert [one.digest for one in store.versions()] == [plan_digest(PLAN), plan_digest(OTHER_SHARES)]
    with pytest.raises(PlanError):
        versions.record(store, replace(PLAN, k=5), 10)
    assert len(store.versions()) == 2
    store.close()


@pytest.mark.parametrize("damage", ["digest", "json", "plan"])
def test_a_plan_that_was_changed_in_the_store_is_noticed(tmp_path: Path, damage: str) -> None:
    document = json.dumps(plan_to_dict(PLAN)).encode()
    document = {"digest": document.replace(b"500", b"900"), "json": document[:-1], "plan": b"[]"}[damage]
    store = SqliteStore(tmp_path / "store.sqlite")
    store.add_version(0, StoredPlan(7, plan_digest(PLAN), document))
    with pytest.raises(StoreError, match="a plan in the store has been changed"):
        Versions.read(store)
    store.close()


def test_what_epsilon_promises_does_not_change_while_people_are_counted() -> None:
    noisy = parse_plan(f"{TEXT}[privacy]\nepsilon = 1\n")
    for old, new in ((PLAN, noisy), (noisy, PLAN), (noisy, parse_plan(f"{TEXT}[privacy]\nepsilon = 2\n"))):
        with pytest.raises(PlanError, match="privacy may not change: people enrolled under what it promised"):
            check_change(old, new)
    more = parse_plan(
        TEXT.replace("[experiments.checkout]", f"{MINUTES}[experiments.checkout]") + "[privacy]\nepsilon = 1\n"
    )
    with pytest.raises(PlanError, match=r"metrics may not be added to a plan with privacy\.epsilon"):
        check_change(noisy, more)


WEEKLY = """
[cohorts]
every = "7d"
window = "7d"
[metrics]
bought = { kind = "binary" }
"""


def weekly(shares: str, *names: str, more: str = "") -> Plan:
    experiments = "".join(f"[experiments.{name}]\narms = {{ A = 1, B = 1 }}\n{more}" for name in names)
    return parse_plan(f"{WEEKLY}{experiments}[privacy]\nepsilon = 1\nshares = {{ {shares} }}\n")


def parts(plan: Plan) -> dict[str, float]:
    return {name: round(share, 6) for name, share in epsilon_shares(plan).items()}


def test_experiments_that_ended_have_spent_their_part_of_epsilon() -> None:
    versions = adopted((7, weekly("a = 0.6", "a")), (9, weekly("b = 0.3", "b")))
    assert parts(versions.over(7, 10)) == parts(versions.known) == {"b": 0.3, "a": 0.6}
    said = r"1\.1 times as much would be told; 0\.1 of it is left for new ones \(privacy\.shares\)"
    with pytest.raises(PlanError, match=said):
        versions.adopt(weekly("c = 0.2", "c"), 11)
    assert parts(versions.adopt(weekly("c = 0.1", "c"), 11)[0].known) == {"c": 0.1, "b": 0.3, "a": 0.6}


def test_a_renamed_experiment_adds_up_and_one_that_ended_does_not_begin_again() -> None:
    versions = adopted((7, weekly("a = 0.6", "a")), (9, weekly("b = 0.3", "b")))
    with pytest.raises(PlanError, match=r"1\.2 times as much"):
        adopted((7, weekly("a = 0.6", "a"))).adopt(weekly("a2 = 0.6", "a2"), 9)
    with pytest.raises(PlanError, match=r"experiments\.a ended, and people may be in it: with ε, begin"):
        versions.adopt(weekly("a = 0.6", "a"), 11, replaces=2)


def test_what_an_experiment_began_with_stays_when_others_end_or_begin() -> None:
    both = adopted((7, weekly("", "a", "b")))
    later, _ = both.adopt(weekly("", "a"), 9)
    assert [parts(later.in_force(period)) for period in (8, 9, 10)] == [
        {"a": 0.5, "b": 0.5}, {"a": 0.5, "b": 0.5}, {"a": 0.5},
    ]  # fmt: skip
    with pytest.raises(PlanError, match=r"privacy\.shares: that of 'a' may not change: people enrolled under it"):
        both.adopt(weekly("a = 0.4", "a", "b"), 9)
    with pytest.raises(PlanError, match=r"1\.33 times as much would be told; 0 of it is left"):
        both.adopt(weekly("", "a", "b", "c"), 9)


def test_experiments_that_exclude_each_other_end_together() -> None:
    first = weekly("", "a", "b")
    apart = replace(first, experiments=(replace(first.experiments[0], exclude_with=("b",)), first.experiments[1]))
    versions = adopted((7, apart))
    assert parts(versions.known) == {"a": 1, "b": 1}
    with pytest.raises(PlanError, match=r"experiments\.a may not end before 'b', which would then take its people"):
        versions.adopt(weekly("", "b"), 9)
    assert len(versions.adopt(replace(apart, experiments=(*apart.experiments,)), 9)[0].entries) == 1


def test_weights_of_tables_stay_and_new_ones_have_their_own() -> None:
    weighed = replace(weekly("a = 0.5", "a"), budget=Budget(1.0, shares={"a": 0.5}, weights={"a": 2.0}))
    versions = adopted((7, weighed))
    with pytest.raises(PlanError, match=r"privacy\.weights: that of 'a' may not change"):
        versions.adopt(weekly("a = 0.5, b = 0.2", "a", "b"), 9)
    later, _ = versions.adopt(weekly("b = 0.2", "b"), 9)
    assert later.known.budget == Budget(1.0, shares={"a": 0.5, "b": 0.2}, weights={"a": 2.0})
