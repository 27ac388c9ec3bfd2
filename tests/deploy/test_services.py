"""The services of deploy/compose.yaml as plain processes: two collectors on one PostgreSQL behind a real Caddy.

And one behind a real nginx with deploy/nginx.conf. Visitors have addresses of loopback, 127.0.0.2 and so on.
"""

from __future__ import annotations

import asyncio
import http.client
import re
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.closing import Keep
from tests.collector.collector_process import HOST, Place, Server, every_file, free_port
from tests.collector.many_visitors import PLAN_TEXT, Visitors, check_collected
from tests.collector.test_exactly_once import while_posting
from tests.programs import need_program

from kanab.collector.protocol.limits import MOST_CONNECTIONS
from kanab.collector.stores.postgres import PostgresStore

CADDYFILE = Path(__file__).parents[2] / "deploy" / "Caddyfile"
NGINX_CONF = CADDYFILE.with_name("nginx.conf")
NAMED_PAGES = 'origins = ["https://shop.example"]\n' + PLAN_TEXT
MOST_TRIES = 5_000
"""Posts of one visitor at most until one is refused: a burst for each of two collectors, and what comes meanwhile."""
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
def services(place: Place, postgres_url: str, caddy: str, closing: Keep) -> Caddy:
    """Secrets as files, as the compose file and the chart hand them over."""
    files = {"token": TOKEN, "store": postgres_url}
    for name, text in files.items():
        (place.root / name).write_text(text)
    place.variables = {
        "KANAB_PLAN": str(place.plan(NAMED_PAGES)),
        "KANAB_TRUST": "127.0.0.1",
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
    check_collected(services.place, visitors.tallies(), PostgresStore(postgres_url))


@pytest.mark.slow
def test_all_posts_go_to_the_other_collector_once_caddy_has_noticed_that_one_is_killed(services: Caddy) -> None:
    services.collectors[0].kill()
    visitors, in_a_row, end = Visitors(33), 0, time.monotonic() + 60
    while in_a_row < 12:
        assert time.monotonic() < end
        status = services.ask("POST", "/v1/t", visitors.next_post(visitors.join()).body)[0]
        assert status in (204, 502)  # until then some meet a closed port, and send again
        in_a_row = in_a_row + 1 if status == 204 else 0


# ── rates ──────────────────────────────────────────────────────────────────────────────────────


def flood(port: int, address: str, most: int = MOST_TRIES, **headers: str) -> int:
    """Post nonsense from an address, on one connection, until it is refused for its rate; return the last status."""
    line = http.client.HTTPConnection(HOST, port, timeout=20, source_address=(address, 0))
    status = 0
    for _ in range(most):
        line.request("POST", "/v1/t", b"x", headers)
        answer = line.getresponse()
        answer.read()
        status = answer.status
        if status == 429:
            break
    line.close()
    return status


def post_once(port: int, visitors: Visitors, address: str, **headers: str) -> int:
    line = http.client.HTTPConnection(HOST, port, timeout=20, source_address=(address, 0))
    line.request("POST", "/v1/t", visitors.next_post(visitors.join()).body, headers)
    status = line.getresponse().status
    line.close()
    return status


@pytest.mark.slow
def test_behind_caddy_one_address_is_limited_and_others_are_not(services: Caddy) -> None:
    claim = {"X-Forwarded-For": "192.0.2.7"}  # which nobody believes
    assert flood(services.plain, "127.0.0.2", **claim) == 429
    visitors = Visitors(35)
    for _ in range(4):
        assert post_once(services.plain, visitors, "127.0.0.3", **claim) == 204
    written = every_file(services.place.root)
    assert not [path for path, data in written.items() if re.search(rb"127\.0\.0\.[23]\b", data)]


def open_files(server: Server) -> int:
    """Open files and connections of a collector."""
    text = server.ask("GET", "/metrics", headers={"Authorization": f"Bearer {TOKEN}"})[2].decode()
    return int(float(text.partition("\nprocess_open_fds ")[2].split()[0]))


@pytest.mark.slow
def test_behind_caddy_one_address_has_so_many_posts_under_way_and_others_have_theirs(
    place: Place, caddy: str, closing: Keep
) -> None:
    """Connections of Caddy's are not limited: what is counted is for whom they are."""
    place.variables = {"KANAB_TOKEN": TOKEN}
    options = ("--plan", place.plan(NAMED_PAGES), "--data", place.data, "--trust", HOST)
    server = closing(Server(place, *options)).start()
    front = closing(Caddy(place, caddy, [server]).start())
    before, end = open_files(server), time.monotonic() + 8  # then the collector gives slow senders up
    with ExitStack() as stack:
        for _ in range(MOST_CONNECTIONS + 100):
            half = stack.enter_context(socket.create_connection((HOST, front.plain), 20, ("127.0.0.2", 0)))
            half.sendall(b"POST /v1/t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\nkanab/1 ")
        assert post_once(front.plain, Visitors(38), "127.0.0.3") == 204
        while open_files(server) < before + MOST_CONNECTIONS:
            assert time.monotonic() < end
            time.sleep(0.05)
        time.sleep(0.5)
        assert open_files(server) <= before + MOST_CONNECTIONS + 10


@pytest.fixture
def nginx(request: pytest.FixtureRequest, place: Place, closing: Keep) -> Iterator[tuple[int, Server]]:
    """deploy/nginx.conf without TLS; whoever comes from 127.0.0.9 may say that it is somebody else."""
    program = need_program("nginx", package="--no-install-recommends nginx-light")
    server = closing(Server(place, "--plan", place.plan(NAMED_PAGES), "--data", place.data)).start()
    port, folder = free_port(), place.root / "nginx"
    folder.mkdir()
    shipped = NGINX_CONF.read_text().replace("listen 443 ssl;", f"listen {HOST}:{port};")
    for shorter in getattr(request, "param", ()):
        assert shorter[0] in shipped
        shipped = shipped.replace(*shorter)
    shipped = re.sub(r"\n *ssl_certificate.*", "", shipped).replace("127.0.0.1:8000", f"{HOST}:{server.port}")
    paths = [f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")]
    playing = "set_real_ip_from 127.0.0.9; real_ip_header X-Forwarded-For;"
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log /dev/null;\n"
        f"events {{}}\nhttp {{ {' '.join(paths)} {playing}\n{shipped}\n}}\n"
    )
    with (folder / "err").open("wb") as err:
        process = subprocess.Popen([program, "-c", str(folder / "nginx.conf"), "-p", str(folder)], stderr=err)
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        with suppress(OSError):
            socket.create_connection((HOST, port), 1).close()
            break
        time.sleep(0.05)
    assert process.poll() is None, (folder / "err").read_text()
    yield port, server
    process.terminate()
    process.wait(20)


@pytest.mark.slow
def test_behind_nginx_one_address_is_limited_and_others_are_not(nginx: tuple[int, Server]) -> None:
    port, server = nginx
    visitors = Visitors(36)
    assert flood(port, "127.0.0.2", **{"X-Forwarded-For": "192.0.2.7"}) == 429
    assert post_once(port, visitors, "127.0.0.3") == 204
    assert flood(port, "127.0.0.9", **{"X-Forwarded-For": "2001:db8::1"}) == 429
    spoken = {"2001:db8::ffff:0:2": 429, "2001:db8:0:1::1": 400, "192.0.2.8": 400}  # half a burst of nonsense each
    for address, status in spoken.items():
        assert flood(port, "127.0.0.9", 100, **{"X-Forwarded-For": address}) == status
    written = every_file(server.place.root)
    assert not [path for path, data in written.items() if b"192.0.2.8" in data or b"127.0.0.3" in data]


@pytest.mark.slow
@pytest.mark.parametrize("nginx", [[("burst=200000 ", "burst=40 ")]], indirect=True)
def test_behind_nginx_one_address_has_so_many_posts_a_day(nginx: tuple[int, Server]) -> None:
    """With a day of 41 posts, well below the burst of a moment."""
    port, _ = nginx
    assert flood(port, "127.0.0.2", 100) == 429
    assert post_once(port, Visitors(39), "127.0.0.3") == 204


@pytest.mark.slow
def test_pages_of_other_sites_are_refused_through_both_proxies(services: Caddy, nginx: tuple[int, Server]) -> None:
    for port in (services.plain, nginx[0]):
        for headers in ({"Origin": "https://other.example"}, {"Sec-Fetch-Site": "cross-site"}):
            assert post_once(port, Visitors(37), HOST, **headers) == 403
        assert post_once(port, Visitors(37), HOST, Origin="https://shop.example") == 204
