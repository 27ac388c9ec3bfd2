"""The services of deploy/compose.yaml as plain processes: two collectors on one PostgreSQL behind a real Caddy."""

from __future__ import annotations

import asyncio
import http.client
import ssl
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.collector.collector_process import HOST, Place, Server, free_port
from tests.collector.many_visitors import PLAN_TEXT, Visitors, collected
from tests.collector.test_hand_over import while_posting

from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.stores.postgres import PostgresStore

CADDYFILE = Path(__file__).parents[2] / "deploy" / "Caddyfile"
TOKEN = "0123456789abcdef"


@dataclass
class Caddy:
    """deploy/Caddyfile with its site on loopback: one port with TLS by Caddy's own authority, and one without."""

    place: Place
    program: str
    collectors: list[Server]

    def start(self) -> Caddy:
        self.plain, self.port = free_port(), free_port()
        own = self.place.root / "Caddyfile"
        own.write_text(f"{{\n admin off\n skip_install_trust\n auto_https disable_redirects\n}}\nimport {CADDYFILE}\n")
        settings = {
            "KANAB_SITE": f"https://localhost:{self.port} http://:{self.plain}",
            "KANAB_COLLECTORS": " ".join(f"{HOST}:{server.port}" for server in self.collectors),
            "XDG_DATA_HOME": str(self.place.root / "caddy"),
            "XDG_CONFIG_HOME": str(self.place.root / "caddy"),
        }
        with (self.place.root / "caddy.err").open("wb") as err:
            command = [self.program, "run", "--config", str(own), "--adapter", "caddyfile"]
            self.process = subprocess.Popen(command, env=self.place.env | settings, stderr=err)
        end = time.monotonic() + 60
        while time.monotonic() < end and self.process.poll() is None:
            with suppress(OSError, http.client.HTTPException):
                if self.ask("GET", "/kanab.js")[0] == 200:
                    return self
            time.sleep(0.05)
        raise AssertionError((self.place.root / "caddy.err").read_text())

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        """One request by TLS."""
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection("localhost", self.port, timeout=20, context=trusting)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            try:
                return answer.status, answer.read()
            except http.client.IncompleteRead as cut:  # older Caddy breaks off the answer to a body that it broke off
                return answer.status, cut.partial
        finally:
            connection.close()

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture
def services(place: Place, postgres_url: str, caddy: str, closing: Callable[[Any], Any]) -> Caddy:
    """Secrets as files, as the compose file and the chart hand them over."""
    files = {"token": TOKEN, "store": postgres_url}
    for name, text in files.items():
        (place.root / name).write_text(text)
    place.variables = {
        "KANAB_PLAN": str(place.plan(PLAN_TEXT)),
        "KANAB_STORE_FILE": str(place.root / "store"),
        "KANAB_TOKEN_FILE": str(place.root / "token"),
        "KANAB_KEY_FILE": str(place.key),
    }
    one, two = (closing(Server(place, name=name)) for name in ("one", "two"))
    one.start(wait=False)
    two.start(wait=False)  # at once: one of them makes the key and the tables, and both have them
    one.wait_ready()
    two.wait_ready()
    return closing(Caddy(place, caddy, [one, two]).start())


@pytest.mark.slow
def test_visitors_reach_what_they_need_through_caddy_and_numbers_stay_inside(services: Caddy) -> None:
    visitors = Visitors(31)
    for _ in range(4):
        post = visitors.next_post(visitors.join())
        assert services.ask("POST", "/v1/t", post.body, **{"Content-Type": "text/plain"}) == (204, b"")
    assert services.ask("GET", "/v1/config.json")[0] == 307
    assert b"kanab" in services.ask("GET", "/kanab.js")[1]
    for path in ("/", "/metrics", "/readyz", "/readyz/posts", "/livez", "/healthz", "/v1/experiments", "/v1/t/"):
        for headers in ({}, {"Authorization": f"Bearer {TOKEN}"}):
            assert services.ask("GET", path, **headers) == (404, b"")
    for server in services.collectors:
        status, _, page = server.ask("GET", "/", headers={"Authorization": f"Bearer {TOKEN}"})
        assert (status, b"<title>Experiments" in page) == (200, True)
        assert server.ask("GET", "/metrics")[0] == 401
        assert server.ask("GET", "/metrics", headers={"Authorization": f"Bearer {TOKEN}"})[0] == 200


@pytest.mark.slow
def test_posts_that_are_too_large_close_no_collector_to_others(services: Caddy) -> None:
    """Caddy counts a body that it cut off among the failures of a collector; it must draw no conclusion."""
    visitors = Visitors(34)
    for _ in range(4):
        assert services.ask("POST", "/v1/t", b"x" * 20_000)[0] in (413, 502)  # newer and older Caddy
        assert services.ask("POST", "/v1/t", visitors.next_post(visitors.join()).body)[0] == 204


@pytest.mark.slow
def test_a_rolling_restart_behind_caddy_loses_and_doubles_nothing(services: Caddy, postgres_url: str) -> None:
    def roll() -> None:
        for server in services.collectors:
            assert server.stop() == 0
            server.start()

    visitors = Visitors(32)
    seen = asyncio.run(while_posting(visitors, services.plain, roll))
    assert seen <= {204, 502, 503, 0}, seen  # a connection that a collector closes in the same instant is tried again
    assert set(asyncio.run(visitors.replay([services.plain]))) == {204}
    for server in services.collectors:
        assert server.stop() == 0
    store = PostgresStore(postgres_url)
    assert collected(store, RecordCipher(Keyring.from_file(services.place.key))) == visitors.tallies()
    store.close()


@pytest.mark.slow
def test_all_posts_go_to_the_other_collector_once_caddy_has_noticed_that_one_is_killed(services: Caddy) -> None:
    services.collectors[0].kill()
    visitors, in_a_row, end = Visitors(33), 0, time.monotonic() + 60
    while in_a_row < 12:
        assert time.monotonic() < end
        status = services.ask("POST", "/v1/t", visitors.next_post(visitors.join()).body)[0]
        assert status in (204, 502)  # until then some meet a closed port, and send again
        in_a_row = in_a_row + 1 if status == 204 else 0
