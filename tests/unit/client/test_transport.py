"""HTTP to a collector: little is said, connections are kept, configs are fetched in the background."""

import logging
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.closing import Keep
from tests.unit.client.counting_collector import SHOP, CountingCollector, plan

from kanab.client import Client, Http, PostAnswer
from kanab.client.client import ConfigWatch
from kanab.client.client_config import read_config
from kanab.client.state import OVER, State, pack_state, unpack_state
from kanab.collector.protocol.config import config_part, public_config
from kanab.errors import KanabError


class Handler(BaseHTTPRequestHandler):
    """Remembers requests, and answers as the test says."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Any

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.path, dict(self.headers), body, self.client_address))
        status, headers = self.server.answers.pop(0) if self.server.answers else (204, {"kanab-answer": "counted"})
        self._reply(status, headers, b"" if status == 204 else b"no\n")

    def do_GET(self) -> None:
        self.server.seen.append((self.path, dict(self.headers), b"", self.client_address))
        self._reply(*self.server.pages.get(self.path, (404, {}, b"nothing\n")))

    def _reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if headers.get("X-Then") == "close":
            self.close_connection = True


@pytest.fixture
def server() -> Iterator[Any]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as one:
        one.daemon_threads = True
        one.seen, one.answers, one.pages = [], [], {}  # type: ignore[attr-defined]
        thread = threading.Thread(target=one.serve_forever, daemon=True)
        thread.start()
        yield one
        one.shutdown()


@pytest.fixture
def http(server: Any) -> Iterator[Http]:
    one = Http(url(server))
    yield one
    one.close()


def url(server: Any, path: str = "/") -> str:
    return f"http://127.0.0.1:{server.server_port}{path}"


@pytest.mark.slow
def test_a_post_says_nothing_but_its_length_and_type(server: Any) -> None:
    http = Http(url(server, "/collect"))
    assert http.post(b"kanab/1 x\n") == PostAnswer(204, answer="counted")
    path, headers, body, _ = server.seen[0]
    assert (path, body) == ("/collect/v1/t", b"kanab/1 x\n")
    http.close()
    assert set(headers) == {"Host", "Accept-Encoding", "Content-Length", "Content-Type"}
    assert headers["Content-Type"] == "text/plain"


@pytest.mark.slow
def test_connections_are_kept_and_made_again_when_they_were_closed(server: Any, http: Http) -> None:
    server.answers = [(204, {}), (204, {"X-Then": "close"}), (204, {}), (400, {}), (204, {"Connection": "close"})]
    assert [http.post(b"x").status for _ in range(6)] == [204, 204, 204, 400, 204, 204]
    ports = [address[1] for _, _, _, address in server.seen]
    assert ports[0] == ports[1] != ports[2] == ports[3] == ports[4] != ports[5]


@pytest.mark.slow
def test_a_collector_may_say_how_long_to_wait(server: Any, http: Http) -> None:
    server.answers = [(503, {"Retry-After": "7"}), (429, {"Retry-After": "tomorrow"})]
    assert [http.post(b"x"), http.post(b"x")] == [PostAnswer(503, 7.0, ""), PostAnswer(429, 0.0, "")]


def test_nobody_there_is_no_answer() -> None:
    with pytest.raises(OSError, match="refused"):
        Http("http://127.0.0.1:9", patience=1).post(b"x")


@pytest.mark.parametrize("address", ["", "collect.example.com", "ftp://x/", "https://", "https://x/?q=1", "file:///x"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(KanabError, match="no address of a collector"):
        Http(address)


@pytest.mark.slow
def test_https_is_spoken_where_asked(server: Any) -> None:
    with pytest.raises(OSError, match="SSL"):
        Http(url(server).replace("http:", "https:")).post(b"x")


@pytest.mark.slow
def test_a_client_may_ask_for_some_experiments_and_forgets_nothing_of_the_others(server: Any, closing: Keep) -> None:
    whole = public_config(plan(SHOP + '[experiments."a, b"]\narms = { A = 1, B = 1 }\n'))
    server.pages["/v1/config.json?experiments=a%2C%20b"] = 307, {"Location": "/v1/config/abc.json?experiments=x"}, b""
    server.pages["/v1/config/abc.json?experiments=x"] = 200, {}, config_part(whole, ["a, b"])
    client = closing(Client(url(server), experiments=["a, b"]))
    assert client.ready(10)
    assert client.config is not None
    assert {*client.config.experiments} == {"a, b"}
    assert len(config_part(whole, ["a, b"])) < len(whole)
    over = State(arms={"checkout": "B", "gone": "A"}, units={"checkout": OVER, "gone": OVER})
    kept = unpack_state(client.person(pack_state(over)).save())
    assert (kept.arms, kept.units) == (over.arms, over.units)
    fixed = closing(Client(config_part(whole, ["a, b"]), Http(url(server))))  # which knows of no others
    assert unpack_state(fixed.person(pack_state(over)).save()).arms == {}


@pytest.mark.slow
def test_a_known_config_is_not_fetched_again(server: Any, http: Http) -> None:
    config = public_config(plan())
    server.pages["/v1/config.json"] = 307, {"Location": "/v1/config/abc.json"}, b""
    server.pages["/v1/config/abc.json"] = 200, {}, config
    assert [http.config() for _ in range(3)] == [config] * 3
    assert [path for path, *_ in server.seen].count("/v1/config/abc.json") == 1
    server.pages["/v1/config.json"] = 307, {"Location": "/v1/config/new.json"}, b""
    with pytest.raises(KanabError, match="gave no config"):
        http.config()
    server.pages["/v1/config.json"] = 200, {}, config
    assert http.config() == config


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xff", b"[]", b"{}", b'{"format": "kanab-config/1"}',
        b'{"format": "kanab-config/2", "nonce_life": 24, "metrics": {}, "experiments": {}}',
        b'{"format": "kanab-config/1", "nonce_life": 24, "metrics": {},'
        b' "experiments": {"a": {"arms": [], "control": ""}}}',
        b'{"format": "kanab-config/1", "nonce_life": 24, "metrics": {}, "experiments": {}, "pairs": [["a", "b"]]}',
        b'{"format": "kanab-config/1", "nonce_life": 24, "metrics": {}, "experiments": {}, "ratios": [["a", "b"]]}',
    ],
)  # fmt: skip
def test_what_is_no_config_is_refused(data: bytes) -> None:
    with pytest.raises(KanabError, match="no config of a collector"):
        read_config(data)


def test_unknown_keys_of_a_later_config_are_passed_over() -> None:
    later = public_config(plan())[:-1] + b', "colour": "blue"}'
    assert set(read_config(later).experiments) == {"checkout", "banner"}


@pytest.mark.slow
def test_a_config_is_waited_for_only_by_whoever_asks(collector: CountingCollector, closing: Keep) -> None:
    collector.down = True
    client = closing(Client("http://127.0.0.1:9", collector))
    assert client.config is None
    assert not client.ready(0.05)
    collector.down = False
    assert client.ready(5)
    assert client.config is not None
    assert client.person(id="user-1").variant("checkout") == "B"


def test_a_changed_plan_is_noticed_and_an_unreachable_one_stays(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[bytes | None] = [None, public_config(plan()), None, public_config(plan().__class__((), ()))]

    def fetch() -> bytes:
        found = answers.pop(0)
        if found is None:
            raise OSError
        return found

    watch = ConfigWatch(fetch)
    with caplog.at_level(logging.WARNING, "kanab.client"):
        assert [watch.fetch() for _ in range(4)] == [2, 300, 300, 300]
    assert caplog.messages == ["the config cannot be read (OSError): everybody sees the control"]
    watch.close()
    assert watch.current is not None
    assert watch.current.experiments == {}
    assert watch._thread is None  # once closed, none is started


def test_a_client_that_nobody_holds_leaves_no_thread(collector: CountingCollector) -> None:
    before = set(threading.enumerate())
    client = Client("http://127.0.0.1:9", collector)
    client.ready(5)
    watching = set(threading.enumerate()) - before
    assert len(watching) == 1
    client.close()
    client._watch.close()
    end = time.monotonic() + 5
    while set(threading.enumerate()) & watching and time.monotonic() < end:
        time.sleep(0.01)
    assert not set(threading.enumerate()) & watching


def test_a_plan_alone_does_not_say_where_its_collector_is() -> None:
    with pytest.raises(KanabError, match="needs to know where its collector is"):
        Client(plan())


@pytest.mark.parametrize(
    "data", [None, b"", b"x", b"\x01", b"\x01nonsense", b"\x01" + __import__("zlib").compress(b'{"id": 7}')]
)
def test_bytes_that_are_no_state_are_somebody_new(data: bytes | None) -> None:
    state = unpack_state(data)
    assert (state.blank, len(state.version)) == (True, 24)
