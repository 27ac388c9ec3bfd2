"""People are told about a seal after its commit, and at least once, whenever the process is killed."""

import asyncio
import json
import signal
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from tests.closing import Keep
from tests.collector.collector_process import HOST, Done, ForkServer, Place, Server, every_file, free_port, turn, until
from tests.collector.many_visitors import PLAN_TEXT, Filled, Visitors, after_everything
from tests.unit.notify.receivers import Receiver

from kanab.collector.stores.sqlite import SqliteStore

SECRET, TOKEN = "SECRET-THAT-SIGNS-MESSAGES", "/services/T0/TOKEN-IN-THE-PATH"
WEEKLY = PLAN_TEXT.replace('window = "7d"', 'window = "7d"\nseal = "7d"')

SEALS = '\n[notify]\nevents = ["seal"]\n'  # a few visitors may arrive in odd shares


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with closing(Receiver()) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _answers(receiver: Receiver) -> None:
    receiver.got.clear()
    receiver.answered.set()
    receiver.status = 200


@pytest.fixture
def copied(filled: Filled, tmp_path: Path, fork_server: ForkServer, receiver: Receiver) -> Callable[[], Place]:
    """Copies of that folder, with a plan that tells the webhook."""

    def copy() -> Place:
        place = filled.copy(tmp_path / str(len(list(tmp_path.iterdir()))), fork_server)
        place.variables = {"KANAB_NOTIFY_SECRET": SECRET}
        place.plan(f'{PLAN_TEXT}{SEALS}[notify.json]\nto = "{receiver.url}/kanab"\n')
        return place

    return copy


def run(place: Place, command: str, *words: str, die_at: int | None = None) -> Done:
    return place.run(command, "--plan", place.root / "kanab.toml", "--data", place.data, *words, die_at=die_at)


def seal(place: Place, die_at: int | None = None) -> Done:
    return run(place, "seal", "--as-of", after_everything(), die_at=die_at)


def batches(place: Place) -> int:
    with closing(SqliteStore(place.data / "store.db")) as store:
        return len(store.sealed())


def doctor(place: Place) -> dict[str, str]:
    findings = json.loads(run(place, "doctor", "--json").out)["findings"]
    (found,) = (each for each in findings if each["about"] == "notifications")
    return dict(found)


@pytest.mark.slow
def test_a_seal_that_is_killed_at_any_step_after_its_commit_is_told_by_the_next_command_and_never_before_it(
    copied: Callable[[], Place], receiver: Receiver
) -> None:
    def committed(step: int) -> bool:
        return bool(seal(place := copied(), die_at=step).code == 0 or batches(place))

    first = bisect_left(range(300), True, key=committed)  # the first crash after the commit
    receiver.got.clear()
    assert seal(place := copied(), die_at=first - 1).code == -signal.SIGKILL
    assert (batches(place), receiver.got) == (0, [])  # nothing is told before the commit
    step, told_twice = first, 0
    while (done := seal(place := copied(), die_at=step)).code == -signal.SIGKILL:
        called = len(receiver.got)
        assert batches(place) == 1
        assert run(place, "notify").code == 0
        assert {request.data["kind"] for request in receiver.got} == {"seal"}
        assert len({request.data["id"] for request in receiver.got}) == 1
        assert called + 1 >= len(receiver.got) >= 1
        told_twice += len(receiver.got) == 2
        receiver.got.clear()
        step += 2  # fewer statements than note that it was told
    assert done.code == 0
    assert len(receiver.got) == 1  # nobody was killed, and it was told once
    assert told_twice >= 1  # killed between the call and its mark: at least once is not once


def test_a_collector_that_is_killed_during_the_call_makes_it_again_after_its_start(
    place: Place, closing: Keep, receiver: Receiver
) -> None:
    place = Place(place.root, place.fork_server, {"KANAB_NOTIFY_SLACK": f"{receiver.url}{TOKEN}"})
    plan = place.plan(f'{WEEKLY}{SEALS}url = "https://ab.shop.example"\n[notify.slack]\n')
    clock = turn(place.root / "clock")
    server = closing(Server(place, "--plan", plan, "--data", place.data, clock=clock)).start()
    asyncio.run(Visitors(14).for_a_while([server.port], 60, most=300))
    receiver.answered.clear()  # from now on nobody gets an answer
    turn(clock, timedelta(days=28))
    until(lambda: len(receiver.got) == 1)
    assert batches(place) == 1  # it was committed before the call
    assert server.post(b"not a message") == 400  # and posts are answered meanwhile
    server.kill()
    assert doctor(place) == {
        "about": "notifications",
        "state": "warning",
        "says": f"slack ({HOST}:{receiver.port}) was not told of everything that was sealed",
        "remedy": "The collector's log says why. Try it: kanab notify --test.",
    }
    receiver.answered.set()
    server.start()
    until(lambda: len(receiver.got) == 2)
    until(lambda: doctor(place)["state"] == "ok")
    first, second = receiver.got
    assert first.body == second.body
    assert first.data["text"].startswith("Sealed the cohorts through ")
    assert server.stop() == 0
    assert len(receiver.got) == 2
    written = b"".join(data for path, data in every_file(place.root).items() if path.name != "environ")
    assert b"TOKEN" not in written
    assert f"slack ({HOST}:{receiver.port}) was told: seal." in server.stderr


def test_two_collectors_of_one_store_tell_a_seal_once_though_one_of_them_reaches_nobody(
    place: Place, postgres_url: str, closing: Keep, receiver: Receiver
) -> None:
    clock = turn(place.root / "clock")
    plan = place.plan(f"{WEEKLY}{SEALS}[notify.slack]\n")
    options = ("--plan", plan, "--store", postgres_url, "--key", place.key)
    nowhere = f"http://{HOST}:{free_port()}"
    one, two = (
        closing(
            Server(Place(place.root, place.fork_server, {"KANAB_NOTIFY_SLACK": f"{to}{TOKEN}"}), *options, clock=clock)
        ).start()
        for to in (receiver.url, nowhere)
    )
    asyncio.run(Visitors(16).for_a_while([one.port, two.port], 60, most=300))
    turn(clock, timedelta(days=28))
    until(lambda: receiver.got != [])
    until(lambda: two.ask("GET", "/readyz")[2] == b"ok\n", seconds=180)  # what the other told is told
    assert len(receiver.got) == 1
    assert (one.stop(), two.stop()) == (0, 0)


def test_a_seal_by_hand_tells_or_says_who_will(copied: Callable[[], Place], receiver: Receiver) -> None:
    place = copied()
    receiver.status = 500
    done = seal(place)
    assert done.code == 0  # what is sealed is sealed
    assert "Sealed through " in done.out
    assert "json was not told: " in done.err
    assert "A running collector, the next kanab seal or kanab notify tries again." in done.err
    assert run(place, "notify").code == 2
    receiver.status = 200
    again = run(place, "notify")
    assert (again.code, again.out) == (0, "Everything that was sealed was told.\n")
    assert len({request.data["id"] for request in receiver.got}) == 1
    assert SECRET not in done.err + done.out + again.err
