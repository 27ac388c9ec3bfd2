"""Real shops on three frameworks, real parallel requests, a real collector: sums are the truth that the driver kept."""

from __future__ import annotations

import http.client
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.closing import Keep
from tests.collector.collector_process import HOST, Place, Server, free_port
from tests.unit.collector.counting.tables_of_counters import tables

from kanab import count
from kanab.collector.counting.counters import Counters, add_counters
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.stores.sqlite import SqliteStore
from kanab.plan.file import parse_plan
from kanab.tally.tally import Tally

EXAMPLES = Path(__file__).parents[2] / "examples"
PLAN_TEXT = """
[cohorts]
every = "7d"

[covariates]
tier = [1, 2, 3]

[metrics]
bought = { kind = "binary" }
minutes = { bounds = [0, 600], resolution = 0.01 }

[experiments.checkout]
arms = { A = 1, B = 1 }
adjust = ["tier"]
"""
PLAN = parse_plan(PLAN_TEXT)
KEY = "5a" * 32


class Shop:
    """One of the examples in a process of its own."""

    def __init__(self, name: str, collector: Server, folder: Path, **more: str) -> None:
        self.port = free_port()
        self._err = folder / f"{name}-{self.port}.err"
        variables = {"KANAB_URL": f"http://{HOST}:{collector.port}/", "KANAB_COOKIE_KEY": KEY} | more
        with self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, str(EXAMPLES / f"{name}_shop.py"), str(self.port)],
                env=os.environ | variables, stdout=subprocess.DEVNULL, stderr=err,
            )  # fmt: skip

    def wait_ready(self) -> Shop:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            with suppress(OSError, http.client.HTTPException):
                if self.ask("GET", "/checkout", None, {"Sec-GPC": "1"})[0] == 200:
                    return self
            time.sleep(0.05)
        raise AssertionError(f"the shop did not start: {self._err.read_text()}")

    def ask(
        self, method: str, path: str, cookie: str | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, str, str | None]:
        """Status, text and the cookie that was set, if any."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=20)
        try:
            more = {} if cookie is None else {"Cookie": f"kanab={cookie}"}
            connection.request(method, path, b"" if method == "POST" else None, (headers or {}) | more)
            answer = connection.getresponse()
            text = answer.read().decode()
            return answer.status, text, answer.getheader("Set-Cookie")
        finally:
            connection.close()

    @property
    def errors(self) -> str:
        """What it has logged."""
        return self._err.read_text()

    def stop(self) -> None:
        """An end in order, which delivers what waits."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(20)
        assert "Traceback" not in self._err.read_text()

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(10)


@dataclass
class Visitor:
    """A browser, and what is true about whoever sits before it."""

    tier: int
    arm: str = ""
    cookie: str | None = None
    bought: int = 0
    minutes: Decimal = field(default_factory=Decimal)

    def open(self, shop: Shop) -> None:
        status, text, set_cookie = shop.ask("GET", f"/checkout?tier={self.tier}", self.cookie)
        assert status == 200
        assert self.arm in ("", text)
        self.arm = text
        self._keep(set_cookie)

    def buy(self, shop: Shop, minutes: Decimal, cookie: str | None = None) -> None:
        status, text, set_cookie = shop.ask("POST", f"/buy?minutes={minutes}", cookie or self.cookie)
        assert (status, text) == (200, "thank you")
        self.bought = 1
        self.minutes += minutes
        self._keep(set_cookie)

    def buy_at_once(self, shops: list[Shop], amounts: list[Decimal]) -> None:
        """Parallel requests with one and the same cookie; the answer that comes last leaves its own."""
        cookie = self.cookie
        with ThreadPoolExecutor(len(amounts)) as pool:
            place = [shops[number % len(shops)] for number in range(len(amounts))]
            list(pool.map(lambda each: self.buy(*each, cookie), zip(place, amounts, strict=True)))

    def _keep(self, set_cookie: str | None) -> None:
        if set_cookie is not None:
            self.cookie = set_cookie.partition("=")[2].partition(";")[0]


def collected(place: Place) -> dict[str, Tally]:
    store, cipher, found = SqliteStore(place.data / "store.db"), RecordCipher(Keyring.from_file(place.key)), Counters()
    for record in store.records():
        add_counters(found, cipher.decrypt(record.cohort, record.ciphertext))
    store.close()
    return tables(PLAN, found)


def truth(visitors: list[Visitor]) -> dict[str, Tally]:
    rows: dict[str, list[Any]] = {"checkout": [one.arm for one in visitors], "tier": [one.tier for one in visitors]}
    rows |= {"bought": [one.bought for one in visitors], "minutes": [float(one.minutes) for one in visitors]}
    return dict(count(rows, plan=PLAN).tallies)


def amounts(rng: random.Random, size: int) -> list[Decimal]:
    return [Decimal(rng.randrange(1, 4000)) / 100 for _ in range(size)]


@pytest.fixture
def collector(place: Place, closing: Keep) -> Server:
    return closing(Server(place, "--plan", place.plan(PLAN_TEXT), "--data", place.data)).start()


@pytest.mark.parametrize("name", ["starlette", "flask", "django"])
def test_parallel_requests_to_a_shop_all_count_though_its_collector_is_killed(
    name: str, collector: Server, place: Place, closing: Keep
) -> None:
    shop = closing(Shop(name, collector, place.root)).wait_ready()
    rng = random.Random(name)
    visitors = [Visitor(rng.choice([1, 2, 3])) for _ in range(24)]

    def visit(one: Visitor) -> None:
        one.open(shop)
        one.buy_at_once([shop], amounts(random.Random(id(one)), 3))
        one.open(shop)
        one.buy(shop, Decimal("1.5"))

    with ThreadPoolExecutor(6) as pool:
        coming = [pool.submit(visit, one) for one in visitors]
        time.sleep(0.1)
        collector.kill()  # in the middle of it; the shop does not notice
        collector.start()
        for one in coming:
            one.result(60)
    _wait_for(place, visitors)
    visitors += _private(shop, lambda *more: _wait_for(place, [*visitors, *more]))
    shop.stop()
    assert len({one.arm for one in visitors}) == 2
    assert collected(place) == truth(visitors)
    assert "Traceback" not in collector.stderr


def _wait_for(place: Place, visitors: list[Visitor]) -> None:
    """Wait until everything about them has arrived."""
    end = time.monotonic() + 15
    while collected(place) != truth(visitors) and time.monotonic() < end:
        time.sleep(0.05)
    assert collected(place) == truth(visitors)


def _private(shop: Shop, wait_for: Callable[..., None]) -> list[Visitor]:
    """Two who are enrolled and then do not want to be counted: of them nothing more is."""
    one, other = Visitor(1), Visitor(2)
    _, one.arm, cookie = shop.ask("GET", "/checkout?tier=1")
    other.open(shop)
    wait_for(one, other)  # what has not left yet would be taken back
    assert cookie is not None
    value, *attributes = cookie.split("; ")
    found = {word.partition("=")[0].lower(): word.partition("=")[2] for word in attributes}
    assert {"httponly", "secure", "samesite", "path", "max-age"} <= set(found)
    assert (found["samesite"].lower(), found["path"]) == ("lax", "/")
    assert 7 * 86_400 <= int(found["max-age"]) <= 14 * 86_400
    signal = {"Sec-GPC": "1"}
    _, _, gone = shop.ask("POST", "/buy?minutes=5", value.removeprefix("kanab="), signal)
    assert gone is not None
    assert "max-age=0" in gone.lower()
    status, text, out = shop.ask("POST", "/opt-out", other.cookie)
    assert (status, text) == (200, "forgotten")
    other._keep(out)
    assert shop.ask("POST", "/buy?minutes=5", other.cookie) == (200, "thank you", None)
    assert shop.ask("GET", "/checkout?tier=3", other.cookie)[1:] == ("A", None)
    return [one, other]


def test_two_processes_with_one_key_may_serve_the_same_people(collector: Server, place: Place, closing: Keep) -> None:
    """In turn everything counts; at once everybody counts once, one of two amounts does, and the log says so."""
    shops = [closing(Shop("flask", collector, place.root)) for _ in range(2)]
    for shop in shops:
        shop.wait_ready()
    rng = random.Random(7)
    visitors = [Visitor(rng.choice([1, 2, 3])) for _ in range(20)]
    for turn in range(4):
        for number, one in enumerate(visitors):
            shop = shops[(turn + number) % 2]
            if turn:
                one.buy(shop, *amounts(rng, 1))
            else:
                one.open(shop)
    _wait_for(place, visitors)
    in_turn = truth(visitors)["checkout/tier"].moments_of("minutes").sums.sum()
    others = [Visitor(rng.choice([1, 2, 3])) for _ in range(20)]
    sent = []
    for one in others:
        one.open(shops[0])
        sent.append(amounts(rng, 2))
        one.buy_at_once(shops, sent[-1])
    for shop in shops:
        shop.stop()
    found, whole = collected(place)["checkout/tier"], truth([*visitors, *others])["checkout/tier"]
    assert (found.people == whole.people).all()
    assert (found.moments_of("bought").sums == whole.moments_of("bought").sums).all()
    least, most = (sum(int(pick(pair) * 100) for pair in sent) for pick in (min, max))
    assert least <= found.moments_of("minutes").sums.sum() - in_turn <= most
    assert any("two processes went on from one state" in shop.errors for shop in shops)
