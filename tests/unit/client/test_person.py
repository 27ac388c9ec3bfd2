"""What people do is counted as their final rows would be, digit for digit."""

import logging
import random
from decimal import Decimal
from typing import Any

import pytest
from tests.closing import Keep
from tests.unit.client.counting_collector import SHOP, Clock, CountingCollector, plan

from kanab import count
from kanab.client import Client
from kanab.client.client_config import read_config
from kanab.client.state import OPTED_OUT, pack_state, unpack_state
from kanab.collector.protocol.config import public_config


def visit(client: Client, state: bytes = b"", tier: Any = 3, device: Any = "phone", **options: Any) -> Any:
    person = client.person(state, **options)
    person.enroll("checkout", {"tier": tier, "device": device})
    return person


def test_the_state_is_arm_levels_cohort_totals_and_outbox_and_nothing_else(client: Client) -> None:
    person = visit(client, id="user-1")
    person.track("minutes", 4)
    state = unpack_state(person.save())
    (unit,) = state.units.values()
    assert state.arms == {"checkout": "B"}
    assert unit.classes == ("checkout/tier:B:3@2026-W46", "checkout/device:B:phone@2026-W46")
    assert (unit.cohort, unit.totals, unit.sent) == ("2026-W46", {"minutes": "4.0"}, {"minutes": 400})
    assert [post.count("\n") for post in unit.outbox] == [7]
    assert b"user-1" not in person.save()
    person.flush(5)
    assert unpack_state(person.save()).units["checkout"].outbox == ()


@pytest.mark.slow
def test_everybody_together_gives_the_tallies_of_their_rows(
    client: Client, collector: CountingCollector, clock: Clock
) -> None:
    """Many people, many visits each, states handed from visit to visit; corrections and missing levels too."""
    rng = random.Random(5)
    rows: dict[str, list[Any]] = {name: [] for name in ("checkout", "banner", "tier", "device", "bought", "minutes")}
    rows |= {"orders": [], "rating": []}
    states = [b""] * 120
    truth: list[dict[str, Any]] = [{} for _ in states]
    for _ in range(700):
        who = rng.randrange(len(states))
        person, known = client.person(states[who]), truth[who]
        if not known:
            known |= {"tier": rng.choice([1, 2, 3, None]), "device": rng.choice(["phone", "desktop"]), "bought": 0}
            known |= {"minutes": Decimal(0), "orders": 0, "rating": None}
            known |= {name: person.variant(name) for name in ("checkout", "banner")}
            for name in rng.sample(["checkout", "banner"], 2):  # in one visit, so that all totals begin together
                person.enroll(name, {"tier": known["tier"], "device": known["device"]})
        assert [person.variant(name) for name in ("checkout", "banner")] == [known["checkout"], known["banner"]]
        for _ in range(rng.randrange(3)):
            more = Decimal(rng.randrange(-20_000, 40_000)) / 100  # totals leave the bounds, and come back
            known["minutes"] += more
            person.track("minutes", float(more))
        if rng.random() < 0.2:
            known["orders"] += 1
            known["bought"] = 1
            person.track("orders")
            person.track("bought")
        if rng.random() < 0.2:
            stars = rng.randrange(1, 3)
            known["rating"] = (known["rating"] or 0) + stars
            person.track("rating", stars)
        states[who] = person.save()
        clock.pass_by(minutes=rng.choice([0, 1, 2]))
    assert client.flush(20)
    for known in truth:
        for name, column in rows.items():
            if known:
                value = known[name]
                column.append(float(value) if isinstance(value, Decimal) else value)
    assert collector.refusals == []
    assert len(rows["checkout"]) > 110
    found = collector.tallies()
    assert found == dict(count(rows, plan=collector.plan).tallies)
    assert set(found) == {"checkout/tier", "checkout/device", "banner", "banner/checkout"}


def test_nothing_moves_nothing_is_sent(client: Client, collector: CountingCollector) -> None:
    person = visit(client)
    person.flush(5)
    before = len(collector.received)
    person.track("minutes", 0)
    person.enroll("checkout", {"tier": 1})
    person.flush(5)
    assert len(collector.received) == before


def test_only_what_comes_after_enrollment_counts(client: Client, collector: CountingCollector) -> None:
    person = client.person(None, id="user-1")
    person.track("minutes", 30)
    person.enroll("checkout", {"tier": 3, "device": "phone"})
    person.track("minutes", 1)
    person.enroll("banner")
    person.track("minutes", 2)
    person.flush(5)
    arm = client.person(None, id="user-1").variant("banner")
    assert {line for line in collector.lines() if "minutes:" in line} == {
        "checkout/tier:B:3@2026-W46:minutes:0>3",
        "checkout/device:B:phone@2026-W46:minutes:0>3",
        f"banner:{arm}@2026-W46:minutes:0>2",
        f"banner/checkout:{arm}:B@2026-W46:minutes:0>2",
    }


@pytest.mark.parametrize(
    ("given", "sent"),
    [(3, "3"), ("3", "3"), (3.0, "3"), (7, ""), (None, ""), ("", ""), (float("nan"), ""), (object(), "")],
)
def test_levels_that_are_not_declared_are_missing(
    client: Client, collector: CountingCollector, given: Any, sent: str
) -> None:
    visit(client, id="user-1", tier=given, device="fridge").flush(5)
    assert {f"checkout/tier:B:{sent}@2026-W46", "checkout/device:B:other@2026-W46"} <= {*collector.lines()}


def test_with_an_id_an_arm_is_remembered_only_for_people_who_are_counted(client: Client) -> None:
    person = client.person(None, id="user-1")
    assert person.variant("checkout") == "B"
    assert person.save() == b""
    person.enroll("checkout", {"tier": 3})
    assert client.person(person.save(), id="another").variant("checkout") == "B"


def test_opting_out_forgets_everything_and_stops(client: Client, collector: CountingCollector) -> None:
    collector.down = True
    person = visit(client)
    person.track("minutes", 4)
    state = person.save()
    person = client.person(state)
    person.opt_out()
    out = person.save()
    assert out == pack_state(OPTED_OUT)
    collector.down = False
    assert client.flush(5)
    again = client.person(out)
    again.enroll("checkout", {"tier": 3})
    again.track("minutes", 4)
    again.flush(5)
    assert again.variant("checkout") == "A"
    assert (again.save(), collector.received) == (out, [])
    assert client.person(state).save() == out  # a request that was under way with the old state


def test_whoever_signals_privacy_sees_the_control_and_is_forgotten(
    client: Client, collector: CountingCollector
) -> None:
    state = visit(client, id="user-1").save()
    client.flush(5)
    before = len(collector.received)
    person = client.person(state, id="user-1", opted_out=True)
    assert person.variant("checkout") == "A"
    person.enroll("banner")
    person.track("minutes", 4)
    assert (person.flush(1), person.save(), person.lasts) == (True, b"", 0.0)
    assert len(collector.received) == before


def test_without_a_config_nothing_happens_and_nothing_is_lost(
    collector: CountingCollector, client: Client, closing: Keep
) -> None:
    state = visit(client, id="user-1").save()
    collector.down = True
    lonely = closing(Client("http://127.0.0.1:9", collector))
    person = lonely.person(state, id="user-1")
    assert person.variant("checkout") is None
    person.enroll("checkout")
    person.track("minutes", 4)
    assert person.flush(1)
    assert (person.save(), person.lasts, lonely.ready(0.05)) == (state, 0.0, False)


def test_development_says_mistakes_aloud_and_production_does_not(
    collector: CountingCollector, closing: Keep, caplog: pytest.LogCaptureFixture
) -> None:
    for development in (False, True):
        client = closing(Client(public_config(collector.plan), collector, development=development))
        with caplog.at_level(logging.WARNING, "kanab.client"):
            person = client.person()
            assert person.variant("basket") is None
            person.enroll("basket")
            person.track("miles", 3)
            person.track("minutes", float("nan"))
            person.track("minutes", "many")  # type: ignore[arg-type]
            person.enroll("checkout", {"tier": 99})
        assert len(caplog.messages) == (6 if development else 0)
    assert caplog.messages[0] == "unknown name among experiments. The plan has: banner, checkout."
    assert caplog.messages[-1] == "unknown level for 'tier'. Declared: 1, 2, 3."
    assert not any("99" in one or "many" in one or "miles" in one for one in caplog.messages)


def test_a_person_who_came_before_the_plan_changed_is_drawn_only_for_what_is_new(
    collector: CountingCollector, clock: Clock, closing: Keep
) -> None:
    old = closing(Client(collector.plan, collector, clock=clock))
    text = SHOP.replace("[experiments.banner]", "[experiments.menu]\narms = { x = 1, y = 1 }\n[experiments.banner]")
    new = closing(Client(plan(text.replace("B = 1", "C = 1")), collector, clock=clock))
    for _ in range(20):
        person = old.person()
        arms = {name: person.variant(name) for name in ("checkout", "banner")}
        changed = new.person(person.save())
        assert changed.variant("banner") == arms["banner"]
        assert changed.variant("menu") in ("x", "y")
        assert changed.variant("checkout") in ("A", "C")  # B is no arm any more
        state = changed.save()
        assert set(unpack_state(state).arms) == {"banner", "checkout", "menu"}
        assert new.person(state).variant("menu") == changed.variant("menu")
        assert old.person(state).variant("banner") == arms["banner"]


def test_a_metric_that_has_gone_meanwhile_is_passed_over(
    client: Client, collector: CountingCollector, clock: Clock, closing: Keep
) -> None:
    person = visit(client, id="user-1")
    person.track("bought")
    person.track("minutes", 2)
    fewer = read_config(public_config(plan(SHOP.replace('bought = { kind = "binary" }', ""))))
    client._fixed = fewer
    assert person.flush(5)
    assert [line for line in collector.lines() if "tier" in line and ":minutes:" in line]
    assert not any("bought" in line for line in collector.lines())


# ── time ───────────────────────────────────────────────────────────────────────────────────────


def test_people_are_measured_until_the_window_of_their_cohort_is_over(
    client: Client, collector: CountingCollector, clock: Clock
) -> None:
    person = visit(client, id="user-1")
    state = person.save()
    assert person.lasts == (4.5 * 24 - 0.5 + 7 * 24) * 3600  # the rest of the week, and a week
    client.flush(5)
    clock.pass_by(days=11)
    person = client.person(state, id="user-1")
    person.track("minutes", 4)
    state = person.save()
    assert client.flush(5)
    clock.pass_by(hours=14)  # the window is over, the life of a message is not
    person = client.person(state, id="user-1")
    person.track("minutes", 4)
    person.flush(5)
    assert [line for line in collector.lines() if "tier" in line and "minutes:" in line] == [
        "checkout/tier:B:3@2026-W46:minutes:0>4"
    ]
    clock.pass_by(days=2)
    assert [unit.over for unit in unpack_state(client.person(state, id="user-1").save()).units.values()] == [True]


def test_nothing_is_kept_of_an_experiment_that_is_over_and_out_of_the_plan(
    client: Client, collector: CountingCollector, clock: Clock, closing: Keep
) -> None:
    person = visit(client)
    person.enroll("banner")
    state = person.save()
    client.flush(5)
    other = closing(Client(plan(SHOP.partition("[experiments.banner]")[0]), collector, clock=clock))
    kept = unpack_state(other.person(state).save())
    assert {*kept.units} == {"checkout", "banner", "banner/checkout"}  # their window is open: totals are due
    clock.pass_by(days=30)
    kept = unpack_state(other.person(state).save())
    assert ({*kept.units}, {*kept.arms}) == ({"checkout"}, {"checkout"})  # it runs on: nobody is counted twice


def test_a_later_experiment_has_its_own_cohort_and_the_pair_that_of_the_later_one(
    client: Client, collector: CountingCollector, clock: Clock
) -> None:
    state = visit(client, id="user-1").save()
    client.flush(5)
    clock.pass_by(days=7)
    person = client.person(state, id="user-1")
    arm = person.variant("banner")
    person.enroll("banner")
    person.track("bought")
    person.flush(5)
    assert set(collector.lines()[2:]) == {
        "checkout/tier:B:3@2026-W46:bought:0>1", "checkout/device:B:phone@2026-W46:bought:0>1",
        f"banner:{arm}@2026-W47", f"banner:{arm}@2026-W47:bought:0>1",
        f"banner/checkout:{arm}:B@2026-W47", f"banner/checkout:{arm}:B@2026-W47:bought:0>1",
    }  # fmt: skip
    assert person.lasts > 7 * 86_400


def test_without_cohorts_there_are_no_labels_and_no_end(clock: Clock, closing: Keep) -> None:
    text = '[metrics]\nbought = { kind = "binary" }\n[experiments.shop]\narms = { A = 1, B = 1 }\n'
    collector = CountingCollector(plan(text), clock)
    client = closing(Client(collector.plan, collector, clock=clock))
    person = client.person(id="user-1")
    person.enroll("shop")
    person.flush(5)
    assert collector.lines() == [f"shop:{person.variant('shop')}"]
    assert person.lasts == 90 * 86_400


# ── many of everything ─────────────────────────────────────────────────────────────────────────


def test_a_person_reports_at_most_twenty_pairs_drawn_once(clock: Clock, closing: Keep) -> None:
    names = [f"e{number}" for number in range(8)]
    parts = ['[metrics]\nbought = { kind = "binary" }']
    for place, name in enumerate(names):
        parts.append(f"[experiments.{name}]\narms = {{ A = 1, B = 1 }}\ninteractions = {names[:place]}")
    collector = CountingCollector(plan("\n".join(parts)), clock)
    client = closing(Client(collector.plan, collector, clock=clock))
    assert len(client.config.pairs) == 28
    chosen = set()
    for id in (None, "user-1"):
        state = b""
        for name in names:
            person = client.person(state, id=id)
            person.variant(name)
            person.enroll(name)
            state = person.save()
        pairs = {name for name in unpack_state(state).units if "/" in name}
        assert len(pairs) == 20
        chosen.add(frozenset(pairs))
    client.flush(10)
    assert collector.refusals == []
    assert len(chosen) == 2


def test_posts_with_too_many_lines_are_divided_and_the_sums_stay_right(clock: Clock, closing: Keep) -> None:
    covariates = [f"c{number}" for number in range(15)]
    metrics = [f"m{number}" for number in range(12)]
    parts = ["[covariates]", *(f"{name} = [1, 2]" for name in covariates)]
    parts += ["[metrics]", *(f"{name} = {{ bounds = [0, 10], resolution = 1 }}" for name in metrics)]
    parts += ["[experiments.shop]", "arms = { A = 1, B = 1 }", f"adjust = {covariates}"]
    collector = CountingCollector(plan("\n".join(parts)), clock)
    client = closing(Client(collector.plan, collector, clock=clock))
    person = client.person(id="user-1")
    arm = person.variant("shop")
    person.enroll("shop", dict.fromkeys(covariates, 2))
    for place, name in enumerate(metrics):
        person.track(name, place % 10 + 1)
    person.flush(5)
    assert collector.refusals == []
    assert len(collector.received) == 3
    rows = {"shop": [arm]} | {name: [2] for name in covariates}
    rows |= {name: [place % 10 + 1] for place, name in enumerate(metrics)}
    assert collector.tallies() == dict(count(rows, plan=collector.plan).tallies)


def test_metrics_that_came_after_an_experiment_began_are_not_counted_by_it(
    collector: CountingCollector, clock: Clock, closing: Keep
) -> None:
    config = public_config(collector.plan, {"checkout": ["minutes"], "banner": ["minutes", "bought"]})
    client = closing(Client(config, collector, clock=clock))
    person = visit(client, id="user-1")
    person.enroll("banner")
    person.track("bought")
    person.track("minutes", 2)
    person.flush(5)
    arm = person.variant("banner")
    assert [line for line in collector.lines() if "bought" in line] == [f"banner:{arm}@2026-W46:bought:0>1"]
    assert collector.refusals == []


def test_enrollments_of_a_first_request_travel_in_one_post(client: Client) -> None:
    person = client.person(None, id="user-1")
    person.enroll("checkout", {"tier": 3, "device": "phone"})
    person.enroll("banner")
    person.track("minutes", 4)
    state = person.save()
    posts = {post for unit in unpack_state(state).units.values() for post in unit.outbox}
    (post,) = posts
    assert {line.partition(":")[0] for line in post.split("\n")[1:-1]} >= {"checkout/tier", "checkout/device", "banner"}
