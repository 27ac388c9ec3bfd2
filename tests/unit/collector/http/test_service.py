"""What a collector does on the clock, with a clock that tests turn."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from tests.collector.collector_process import until
from tests.unit.collector.http.conftest import NOON, PLAN, RunningService, ask

from kanab.cli.operating.status import _store_lines, store_state
from kanab.collector.counting.cohorts import Calendar
from kanab.collector.http.app import Collector
from kanab.collector.http.service import Service, due_through
from kanab.collector.readiness import Problem, ready_answer
from kanab.collector.sealing import stored_ledger
from kanab.collector.stores.sqlite import MemoryStore
from kanab.errors import StoreError
from kanab.plan.model import Cohorts

W46 = 2966
RIPE = datetime(2026, 11, 30, tzinfo=UTC)  # the Monday after week 46, its window and a day


def post_people(running: RunningService, people: int, *, only: str = "") -> None:
    async def send() -> None:
        arms = only or "AB"
        bodies = [running.enroll(arms[i % len(arms)], i % 3 + 1, _week(running.now)) for i in range(people)]
        await asyncio.gather(*(running.service.take(body, None) for body in bodies))

    asyncio.run(send())


def is_ready(service: Service) -> bool:
    return ready_answer(service.readiness)[0] == 200


def _week(now: datetime) -> str:
    year, week, _ = now.isocalendar()
    return f"{year}-W{week:02}"


# ── ticks ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("now", "through"),
    [
        (datetime(2026, 11, 23, tzinfo=UTC), W46 - 1),  # Monday: week 46 still takes totals for a day
        (datetime(2026, 11, 24, 1, tzinfo=UTC), W46 - 1),  # ripe since an hour, but no tick came
        (datetime(2026, 11, 29, 23, 59, tzinfo=UTC), W46 - 1),
        (RIPE, W46),
        (RIPE + timedelta(weeks=1), W46 + 1),
        (datetime(2026, 11, 30, 1, tzinfo=timezone(timedelta(hours=2))), W46 - 1),  # still Sunday in UTC
    ],
)
def test_a_tick_seals_what_was_ripe_then_and_nothing_between_ticks(now: datetime, through: int) -> None:
    assert due_through(PLAN, Calendar(PLAN), now) == through


def test_without_ticks_only_the_operator_seals() -> None:
    for plan in (replace(PLAN, cohorts=None), replace(PLAN, cohorts=Cohorts("7d", "7d", "end"))):
        assert due_through(plan, Calendar(plan), NOON) is None


def test_the_tick_seals_one_batch_and_the_key_moves(running: RunningService) -> None:
    post_people(running, 240)
    running.service.check_clock()
    assert running.service.store.sealed() == []
    running.now = RIPE + timedelta(minutes=3)
    for _ in range(3):
        running.service.check_clock()
    (release,) = stored_ledger(running.service.store).releases
    assert release.tables["checkout/tier"].total == 240
    assert running.service.store.sizes() == {}
    assert running.said[-1] == "kanab: sealed the cohorts through 2026-W46."
    assert "kanab_sealed_batches 1.0\n" in running.service.metrics()
    with pytest.raises(StoreError, match="has been erased"):
        running.service._cipher.keyring.key(W46)


def test_forged_sums_are_told_by_the_log_the_metrics_and_the_state_of_the_store(running: RunningService) -> None:
    post_people(running, 240)
    forged = running.body("checkout/tier:B:@2026-W46:minutes:0>4")  # nobody has no tier
    asyncio.run(running.service.take(forged, None))
    assert "\nkanab_forged_total 0.0\n" in running.service.metrics()
    running.now = RIPE
    running.service.check_clock()
    why = "minutes is withheld in checkout/tier: messages do not add up, some were forged or lost"
    assert running.said[-1] == f"kanab: checkout/tier: {why}."
    assert "\nkanab_forged_total 1.0\n" in running.service.metrics()
    state = store_state(running.service.store, running.now)
    assert f"alarm: checkout/tier: {why}" in [*_store_lines(state)]
    (release,) = stored_ledger(running.service.store).releases
    assert release.totals("checkout").metric_names == ("minutes",)


def test_a_batch_that_is_held_back_is_told_once_and_waits_for_the_next_tick(running: RunningService) -> None:
    post_people(running, 9)
    running.now = RIPE
    running.said.clear()
    for _ in range(3):
        running.service.check_clock()
    expected = (
        "kanab: not sealed: an arm of checkout holds fewer than k = 10 people. These cohorts wait for the next seal."
    )
    assert running.said == [expected]
    post_people(running, 300)
    running.now += timedelta(weeks=3)
    running.service.check_clock()
    assert stored_ledger(running.service.store).releases[0].tables["checkout/tier"].total == 309


def test_an_experiment_that_ends_with_an_arm_below_k_is_alarming_before_it_is_destroyed(
    open_service: Callable[..., RunningService],
) -> None:
    banner = replace(PLAN.experiments[0], name="banner", adjust=())
    both = open_service(replace(PLAN, experiments=(*PLAN.experiments, banner)))
    post_people(both, 240)
    head = "banner:A@2026-W46"
    asyncio.run(both.service.take(both.body(head, f"{head}:minutes:0>3"), None))
    both.service.check_clock()
    assert Problem.LOSS not in both.service.readiness.problems()
    asyncio.run(both.service.stop())
    ended = open_service(PLAN)
    ended.service.check_clock()
    assert Problem.LOSS in ended.service.readiness.problems()
    assert is_ready(ended.service)
    assert ended.said[-1] == (
        "kanab: banner has ended with an arm below k, and its people would be destroyed at the seal. "
        "Put it back into the plan, or let it go."
    )
    post_people(ended, 12)
    ended.now = RIPE + timedelta(minutes=3)
    ended.service.check_clock()
    assert "kanab: banner has ended, and its people are destroyed: an arm holds fewer than k people." in ended.said
    assert 'kanab_acknowledged_people{experiment="checkout",state="published"} 250.0\n' in ended.service.metrics()
    assert Problem.LOSS not in ended.service.readiness.problems()


# ── live numbers ───────────────────────────────────────────────────────────────────────────────


def test_people_are_seen_in_steps_of_k_and_change_by_the_hour(running: RunningService) -> None:
    post_people(running, 58)  # 29 in each arm
    running.service.check_clock()
    assert running.service.live.people == {"checkout": {"A": 20, "B": 20}}
    post_people(running, 58)
    running.now += timedelta(minutes=59)
    running.service.check_clock()
    assert running.service.live.people == {"checkout": {"A": 20, "B": 20}}
    running.now += timedelta(minutes=1)
    running.service.check_clock()
    assert running.service.live.people == {"checkout": {"A": 50, "B": 50}}
    assert running.service.live.as_of == NOON + timedelta(hours=1)


def test_an_arm_that_fails_to_arrive_raises_the_alarm_once(running: RunningService) -> None:
    post_people(running, 200, only="A")
    for hour in range(3):
        running.now = NOON + timedelta(hours=hour)
        running.service.check_clock()
    assert running.said.count("kanab: people of checkout do not arrive in the planned shares (p below 0.0001).") == 1
    assert 'kanab_sample_ratio_alarm{experiment="checkout"} 1.0\n' in running.service.metrics()


def test_before_a_seal_values_change_no_byte_of_what_can_be_read(open_service: Callable[..., RunningService]) -> None:
    one = open_service()
    post_people(one, 40)
    one.service.check_clock()
    before = one.service.metrics().partition("# HELP process_")[0]
    head = "checkout/tier:B:3@2026-W46:minutes"
    asyncio.run(one.service.take(one.body(f"{head}:4>599"), None))
    one.service.live = type(one.service.live)()  # as if the hour were over
    one.service.check_clock()
    assert one.service.metrics().partition("# HELP process_")[0] == before


# ── trouble ────────────────────────────────────────────────────────────────────────────────────


def test_a_store_that_cannot_be_read_is_told_once_a_minute_and_recovers(
    running: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost() -> int:
        raise StoreError("the database cannot be reached", "Check its address.")

    running.service.check_clock()
    running.said.clear()
    with monkeypatch.context() as broken:
        broken.setattr(running.service.store, "sealed_through", lost)
        running.service.check_clock()
        running.service.check_clock()
        assert running.said == ["kanab: the database cannot be reached. Check its address."]
        assert not is_ready(running.service)
        assert "\nkanab_up 0.0\n" in running.service.metrics()
        assert '\nkanab_problem{problem="store"} 1.0\n' in running.service.metrics()
        broken.setattr("kanab.collector.http.service.REPEAT_SECONDS", 0.0)
        running.service.check_clock()
        assert len(running.said) == 2
    running.service.check_clock()
    assert is_ready(running.service)


def test_a_mistake_of_the_program_does_not_stop_the_clock_and_is_told_without_its_words(
    running: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistake(*_: Any) -> None:
        raise KeyError("person 4711")

    with monkeypatch.context() as broken:
        broken.setattr(running.service, "_refresh_live", mistake)
        running.service.check_clock()
    assert running.said[-1] == "kanab: what the clock demands failed (KeyError). It is tried again."
    running.service.check_clock()
    assert is_ready(running.service)


def test_a_clock_that_went_back_takes_nothing_until_it_is_right(running: RunningService) -> None:
    post_people(running, 240)
    running.now = RIPE
    running.service.check_clock()
    assert running.service._sealed_through == W46
    running.said.clear()
    running.now = NOON
    running.service.check_clock()
    running.service.check_clock()
    assert running.said == [
        "kanab: the last sealed cohort lies ahead of this machine's clock. "
        "Set the clock right; after a rehearsal use another store. Until then nothing is taken, and clients try again."
    ]
    app = Collector(running.service)
    assert ask(app, "POST", "/v1/t", running.enroll()).status == 503
    assert ask(app, "GET", "/healthz").status == 503
    running.now = RIPE
    running.service.check_clock()
    assert ask(app, "POST", "/v1/t", running.enroll(week="2026-W49")).status == 204


def test_a_seal_that_fails_is_named_and_posts_are_taken_meanwhile(
    running: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*_: Any) -> None:
        raise StoreError("a record cannot be read", "Take the store from a backup.")

    post_people(running, 240)
    running.now = RIPE
    with monkeypatch.context() as broken:
        broken.setattr(running.service.store, "seal", damaged)
        running.service.check_clock()
        assert running.service.readiness.problems() == [Problem.SEAL]
        post_people(running, 1)
        assert running.service.readiness.problems() == [Problem.SEAL]
    running.service.check_clock()
    assert is_ready(running.service)


def test_a_seal_is_overdue_an_hour_after_its_tick_also_at_later_ticks(
    running: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    post_people(running, 240)
    running.service.check_clock()
    running.now = RIPE + timedelta(minutes=59)
    assert running.service.seal_lag() == 59 * 60
    assert is_ready(running.service)
    running.now = RIPE + timedelta(minutes=61)  # nobody checks: the thread that would is stuck, say
    assert running.service.readiness.problems() == [Problem.SEAL]
    with monkeypatch.context() as broken:
        broken.setattr("kanab.collector.http.service.seal_due", lambda *_: 1 / 0)
        running.service.check_clock()
    running.now = RIPE + timedelta(days=7, minutes=1)
    assert running.service.seal_lag() == 7 * 86_400 + 60
    running.service.check_clock()
    assert running.service.seal_lag() == 0.0
    assert is_ready(running.service)


def test_nothing_is_overdue_where_nothing_is_ripe_or_cohorts_wait_for_more_people(running: RunningService) -> None:
    running.now = NOON + timedelta(days=3)
    assert running.service.seal_lag() == 0.0  # the store is younger than what would be ripe
    post_people(running, 8, only="A")
    running.now = RIPE + timedelta(hours=2)
    running.service.check_clock()
    assert "not sealed" in running.said[-1]
    assert running.service.seal_lag() == 0.0
    assert is_ready(running.service)


def test_a_key_that_cannot_be_erased_is_named(
    running: RunningService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kanab.collector.writer.HOUSEKEEPING_SECONDS", 0.01)
    monkeypatch.setattr("kanab.collector.writer.RETRY_AFTER", 0.0)
    post_people(running, 240)
    running.now = RIPE
    (tmp_path / "data.key").rename(tmp_path / "away.key")
    running.service.check_clock()
    running.service.check_clock()
    post_people(running, 1)
    until(lambda: running.service.readiness.problems() == [Problem.KEY])
    (tmp_path / "away.key").rename(tmp_path / "data.key")
    until(lambda: is_ready(running.service))


def test_a_check_that_does_not_end_and_a_queue_that_fills_up_are_named(
    running: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, entered = threading.Event(), threading.Event()

    def slow() -> int:
        entered.set()
        held.wait(20)
        return W46 - 1

    monkeypatch.setattr(running.service.store, "sealed_through", slow)
    monkeypatch.setattr("kanab.collector.http.service.STUCK_SECONDS", 0.05)
    checking = threading.Thread(target=running.service.check_clock)
    checking.start()
    entered.wait(20)
    until(lambda: running.service.readiness.problems() == [Problem.STORE])
    held.set()
    checking.join()
    assert is_ready(running.service)
    monkeypatch.setattr("kanab.collector.writer.NEARLY_FULL", -1.0)
    assert running.service.readiness.problems() == [Problem.QUEUE]


def test_the_clock_beats_while_it_serves(running: RunningService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kanab.collector.http.service.CHECK_SECONDS", 0.01)

    async def a_while(service: Service) -> None:
        await service.start()
        running.now = NOON + timedelta(hours=5)
        for _ in range(500):
            if service.live.as_of == running.now:
                break
            await asyncio.sleep(0.01)
        await service.stop()

    asyncio.run(a_while(running.service))
    assert running.service.live.as_of == NOON + timedelta(hours=5)


# ── epochs ─────────────────────────────────────────────────────────────────────────────────────


def test_after_a_restart_of_a_memory_those_who_were_open_are_not_counted_and_newcomers_are_counted_whole(
    open_service: Callable[..., RunningService], tmp_path: Path
) -> None:
    """Their totals would go on from what the new process has never seen."""
    plan = replace(PLAN, durability="memory")
    first = open_service(plan, store=MemoryStore(tmp_path / "data" / "store.db"))
    post_people(first, 240)
    asyncio.run(first.service.stop())
    first.service.store.close()

    again = open_service(plan, store=MemoryStore(tmp_path / "data" / "store.db"))
    assert again.said == [
        "kanab: the collector was started again, and what it kept in memory alone is lost: a new epoch begins, and "
        "people who were open are not counted any more."
    ]
    app = Collector(again.service)
    moved = again.body("checkout/tier:B:3@2026-W46:minutes:4>60")
    answer = ask(app, "POST", "/v1/t", moved)
    assert (answer.status, answer.headers["kanab-epoch"]) == (410, again.service.epoch)
    again.epoch = again.service.epoch
    for number in range(120):
        head = f"checkout/tier:{'AB'[number % 2]}:{number % 3 + 1}@2026-W46"
        assert ask(app, "POST", "/v1/t", again.body(head, f"{head}:minutes:0>{number % 20}")).status == 204
    again.now = RIPE
    again.service.check_clock()
    (release,) = stored_ledger(again.service.store).releases
    table = release.tables["checkout/tier"]
    assert table.total == 120
    assert table.moments[0].sums.sum() == 6 * sum(range(20)) * 100  # on a grid of 0.01
    assert "kept in memory alone is lost" in release.receipt.deviations[0]


def test_nothing_lost_nothing_begun(open_service: Callable[..., RunningService], tmp_path: Path) -> None:
    plan = replace(PLAN, durability="memory")
    for _ in range(3):
        running = open_service(plan, store=MemoryStore(tmp_path / "data" / "store.db"))
        assert (running.service.epoch, running.said) == ("", [])
        asyncio.run(running.service.stop())
        running.service.store.close()
