"""Telling people: after the commit, at least once, and beside the collecting."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.unit.collector.http.conftest import PLAN as SMALL_PLAN
from tests.unit.collector.http.conftest import RunningService, ask, open_service  # noqa: F401
from tests.unit.collector.http.test_service import RIPE, post_people
from tests.unit.dashboard.shop_releases import PLAN, entries
from tests.unit.notify.receivers import Mailbox, Receiver

from kanab.collector.http.app import Collector
from kanab.collector.log import Level
from kanab.collector.readiness import Problem
from kanab.collector.stores.sqlite import SqliteStore
from kanab.collector.stores.store import Store
from kanab.errors import StoreError
from kanab.notify import notifier as notifier_module
from kanab.notify.channels import Channel, Mail, Slack, Webhook
from kanab.notify.notifier import Notifier, unsent_batches
from kanab.plan.notify_plan import MailPlan, NotifyPlan

NOTIFY = NotifyPlan(slack=True)
HOOK = "/services/TOKEN-IN-THE-PATH"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(tmp_path / "store.db")) as opened:
        yield opened


def seal(store: Store, *batches: bytes) -> None:
    for batch in batches:
        store.seal(store.sealed_through() + 1, lambda _records, _entries, batch=batch: batch)  # type: ignore[misc]


def begun(store: Store, *channels: Channel, said: list[str] | None = None) -> Notifier:
    def say(sentence: str, _level: Level = Level.INFO, /) -> None:
        if said is not None:
            said.append(sentence)

    notifier = Notifier(store, NOTIFY, channels, say)
    notifier.begin()
    return notifier


def tell(notifier: Notifier, store: Store, alarms: Sequence[str] = ()) -> bool:
    return notifier.tell(store.sealed(), alarms, PLAN)


def titles(receiver: Receiver) -> list[str]:
    return [request.data["text"].split("\n")[0] for request in receiver.got]


@pytest.mark.slow
def test_what_is_sealed_from_now_on_is_told_once_also_after_a_restart(store: SqliteStore, receiver: Receiver) -> None:
    first, second, third = entries()
    seal(store, first)
    assert unsent_batches(store, "slack") is None
    notifier = begun(store, Slack(receiver.url + HOOK))
    assert tell(notifier, store)
    assert receiver.got == []  # it was sealed before anybody was to be told
    seal(store, second)
    assert unsent_batches(store, "slack") == 1
    assert tell(notifier, store)
    expected = ["Sealed the cohorts through 2026-W37", "checkout may stop (look 2 of 3)"]
    assert titles(receiver) == expected
    assert unsent_batches(store, "slack") == 0
    again = begun(store, Slack(receiver.url + HOOK))  # as after a restart
    assert tell(again, store)
    assert titles(receiver) == expected
    seal(store, third)
    assert tell(again, store)
    assert titles(receiver) == [*expected, "Sealed the cohorts through 2026-W38"]


@pytest.mark.slow
def test_what_could_not_be_told_is_told_later_with_the_same_id_and_other_channels_go_on(
    store: SqliteStore, receiver: Receiver, mailbox: Mailbox, mail_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    secret = "SECRET-THAT-SIGNS"
    plan = MailPlan("127.0.0.1", mail_port, "kanab@shop.example", ("team@shop.example",), "none")
    webhook = Webhook(receiver.url + HOOK, secret)
    notifier = begun(store, webhook, Mail(plan), said=said)
    seal(store, *entries()[:2])
    receiver.status = 500
    assert not tell(notifier, store)
    assert notifier.failing
    assert [request.data["kind"] for request in receiver.got] == ["seal"]  # one at a time: the others would fail, too
    (mail,) = mailbox.got  # all of them in one mail
    assert (mail.content or b"").count(b"\nNotice ") == 4  # type: ignore[arg-type,union-attr]
    assert (unsent_batches(store, "json"), unsent_batches(store, "mail")) == (2, 0)
    assert not tell(notifier, store)  # it waits a while
    assert (len(receiver.got), len(mailbox.got)) == (1, 1)
    monkeypatch.setattr(notifier_module.time, "monotonic", lambda: time.time() + 1e6)
    receiver.status = 200
    assert tell(notifier, store)
    assert not notifier.failing
    assert [request.data["kind"] for request in receiver.got[1:]] == ["seal", "sample-ratio", "seal", "may-stop"]
    assert receiver.got[0].headers["Kanab-Notice"] == receiver.got[1].headers["Kanab-Notice"]
    assert len(mailbox.got) == 1
    assert said[0] == (
        f"kanab: json was not told: 127.0.0.1:{receiver.port} answers 500: it cannot take messages now. "
        "See its own log. It is tried again."
    )
    assert "TOKEN" not in " ".join(said)
    assert secret not in " ".join(said)


@pytest.mark.slow
def test_a_channel_that_fails_is_tried_at_growing_intervals_of_at_most_an_hour(
    store: SqliteStore, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(notifier_module.time, "monotonic", lambda: now[0])
    receiver.status = 503
    notifier = begun(store, Slack(receiver.url + HOOK))
    seal(store, entries()[0])
    waits: list[float] = []
    for _ in range(11):
        before, tries = now[0], len(receiver.got)
        while len(receiver.got) == tries:
            tell(notifier, store)
            now[0] += 5 if len(waits) < 5 else 300
        waits.append(now[0] - before)
    assert waits[:5] == [5, 15, 30, 60, 120]
    assert waits[-2:] == [3600, 3600]
    receiver.headers = {"Retry-After": "7200"}
    notifier._retry_at.clear()
    tell(notifier, store)
    assert notifier._retry_at["slack"] - now[0] == 3600


@pytest.mark.slow
def test_a_message_that_is_refused_by_itself_holds_no_other_up(store: SqliteStore, receiver: Receiver) -> None:
    receiver.refuses = lambda request: "through 2026-W36" in request.data["text"]
    notifier = begun(store, Slack(receiver.url + HOOK))
    seal(store, *entries()[:2])
    assert not tell(notifier, store)
    assert len(receiver.got) == 4
    receiver.got.clear()
    notifier._retry_at.clear()
    assert not tell(notifier, store)
    assert titles(receiver) == ["Sealed the cohorts through 2026-W36"]


def test_live_alarms_are_told_once_for_every_state_of_the_ledger(store: SqliteStore, receiver: Receiver) -> None:
    notifier = begun(store, Slack(receiver.url + HOOK))
    for _ in range(2):
        assert tell(notifier, store, ["banner"])
        assert titles(receiver) == ["banner: sample ratio alarm"]
    assert tell(begun(store, Slack(receiver.url + HOOK)), store, ["banner"])
    assert len(receiver.got) == 1


@pytest.mark.slow
def test_a_store_that_cannot_note_what_was_told_means_that_it_is_told_again(
    store: SqliteStore, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    notifier = begun(store, Slack(receiver.url + HOOK))
    seal(store, entries()[2])  # the third batch alone tells of a seal and an alarm

    def full(_marks: object) -> None:
        raise StoreError("the disk of the store is full", "Free some room.")

    with monkeypatch.context() as patch:
        patch.setattr(store, "mark_sent", full)
        assert not tell(notifier, store)
    sent = len(receiver.got)
    notifier._retry_at.clear()
    assert tell(notifier, store)
    assert receiver.got[sent].body == receiver.got[0].body


@pytest.mark.slow
def test_a_collector_that_stops_leaves_a_call_that_hangs_to_the_next_start(
    store: SqliteStore, receiver: Receiver, tmp_path: Path
) -> None:
    said: list[str] = []
    notifier = begun(store, Slack(receiver.url + HOOK), said=said)
    seal(store, entries()[0])
    receiver.answered.clear()
    notifier.offer(store.sealed(), (), PLAN)
    while not receiver.got:
        time.sleep(0.01)
    notifier.stop(0.05)
    store.close()
    receiver.answered.set()
    notifier.wait(20)
    assert said == []  # nobody can tell whether it was told
    with closing(SqliteStore(tmp_path / "store.db")) as again:
        assert tell(begun(again, Slack(receiver.url + HOOK)), again)
    assert receiver.got[0].body == receiver.got[1].body
    assert len(receiver.got) == 3  # the seal twice, and its alarm


# ── beside a collector ─────────────────────────────────────────────────────────────────────────


@pytest.fixture
def open_told(
    open_service: Callable[..., RunningService],  # noqa: F811
    receiver: Receiver,
) -> Callable[..., RunningService]:
    """Opens a service that tells a webhook."""

    def open_one(**changes: object) -> RunningService:
        running = open_service(replace(SMALL_PLAN, **changes))  # type: ignore[arg-type]
        notifier = Notifier(running.service.store, NOTIFY, [Slack(receiver.url + HOOK)], running.service._say)
        notifier.begin()
        running.service._notifier = notifier
        running.service.readiness.watch(Problem.NOTIFY, lambda: notifier.failing)
        return running

    return open_one


def wait(running: RunningService) -> None:
    assert running.service._notifier is not None
    running.service._notifier.wait(20)


def test_a_webhook_that_is_down_is_noted_and_the_collector_stays_ready(
    open_told: Callable[..., RunningService], receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = open_told()
    receiver.status = 404
    post_people(running, 240)
    running.now = RIPE
    running.service.check_clock()
    wait(running)
    assert running.service.readiness.problems() == [Problem.NOTIFY]
    answer = ask(Collector(running.service), "GET", "/readyz")
    assert (answer.status, answer.body.decode()) == (200, f"ok\n{Problem.NOTIFY.line}\n")
    shown = " ".join(running.said) + running.service.metrics() + answer.body.decode()
    assert 'kanab_problem{problem="notify"} 1' in shown
    assert "TOKEN" not in shown
    receiver.status = 204
    monkeypatch.setattr(notifier_module.time, "monotonic", lambda: time.time() + 1e6)
    running.service.check_clock()
    wait(running)
    assert running.service.readiness.problems() == []


def test_a_live_alarm_is_told_before_anything_is_sealed_and_without_a_count(
    open_told: Callable[..., RunningService], receiver: Receiver
) -> None:
    running = open_told()
    post_people(running, 117, only="A")
    running.service.check_clock()
    wait(running)
    assert running.service.store.sealed() == []
    (request,) = receiver.got
    assert request.data["text"].startswith("checkout: sample ratio alarm\nPeople do not arrive in the planned shares")
    assert "11" not in request.data["text"]
    running.now += timedelta(hours=2)
    post_people(running, 30, only="A")
    running.service.check_clock()
    wait(running)
    assert len(receiver.got) == 1
