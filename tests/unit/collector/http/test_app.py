"""Every status of the collector, and that no answer repeats what was sent."""

import asyncio
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.collector.http.conftest import NOON, RunningService, ask

import kanab
from kanab.collector.http.addresses import Proxies, network
from kanab.collector.http.app import CONNECTIONS, FAST_POST, PROXIES, Buckets, Collector, OpenConnections
from kanab.collector.http.server import bind
from kanab.collector.protocol.config import config_part, public_config
from kanab.collector.protocol.limits import MOST_POST_BYTES
from kanab.collector.readiness import Problem
from kanab.errors import StoreError
from kanab.plan.file import parse_plan
from kanab.plan.model import Cohorts, ExperimentPlan, MetricPlan, Plan

SECRET = "zq7secret"
TEXT = {"Content-Type": "text/plain"}
HOME = "https://shop.example"


def drops(running: RunningService) -> dict[str, int]:
    return {reason: count for reason, count in running.service.drops.floored(1).items() if count}


def test_every_answer_to_a_post_says_in_a_header_what_became_of_it(app: Collector, running: RunningService) -> None:
    again = running.enroll()
    full = Collector(running.service, buckets=Buckets(rate=0.0, burst=0))
    posts: list[tuple[Collector, str, bytes, dict[str, str], int, str]] = [
        (app, "POST", again, TEXT, 204, "counted"),
        (app, "POST", again, TEXT, 204, "duplicate"),
        (app, "POST", running.body("retired:B@2026-W46"), TEXT, 204, "experiment"),
        (app, "POST", running.body("checkout/tier:B:3@2026-W40:minutes:0>4"), TEXT, 204, "late"),
        (app, "POST", running.body("checkout/tier:B:9@2026-W46"), TEXT, 400, "level"),
        (app, "POST", running.enroll(week="2026-W45"), TEXT, 410, "untimely"),
        (app, "POST", b"x" * 17_000, TEXT, 413, "size"),
        (app, "POST", running.enroll(), {"Origin": "https://other.example"}, 403, "origin"),
        (full, "POST", running.enroll(), TEXT, 429, "rate"),
        (app, "GET", b"", {}, 405, "format"),
    ]
    for collector, method, body, headers, status, reason in posts:
        answer = ask(collector, method, "/v1/t", body, headers, client=("192.0.2.7", 1))
        assert (answer.status, answer.headers["kanab-answer"]) == (status, reason)


def test_what_lies_in_the_future_is_to_be_sent_again(app: Collector, running: RunningService) -> None:
    line = "checkout/tier:B:3@2026-W46"
    for body in (running.body(line, now=NOON.replace(year=2027)), running.body(line.replace("46", "47"))):
        answer = ask(app, "POST", "/v1/t", body)
        assert (answer.status, answer.headers["kanab-answer"], answer.headers["retry-after"]) == (503, "ahead", "2")


def test_the_store_may_know_better_how_old_a_nonce_is(app: Collector, running: RunningService) -> None:
    running.service.store.forget_nonces(10**7)
    assert ask(app, "POST", "/v1/t", running.enroll()).status == 410


def test_a_post_of_another_epoch_is_refused_and_told_the_one_of_the_store(
    app: Collector, running: RunningService
) -> None:
    before = running.service.digest
    body = running.enroll()
    running.service.store.begin_epoch(2966, lambda _: b"a note", "5f3a9c01")
    answer = ask(app, "POST", "/v1/t", body, TEXT)
    assert (answer.status, answer.headers["kanab-epoch"]) == (410, "5f3a9c01")
    assert b"enrolled" in answer.body
    assert drops(running) == {"epoch": 1}
    assert running.service.digest != before
    config = ask(app, "GET", f"/v1/config/{running.service.digest}.json")
    assert json.loads(config.body)["epoch"] == "5f3a9c01"
    first, rest = body.split(b"\n", 1)
    assert ask(app, "POST", "/v1/t", first + b" 5f3a9c01\n" + rest, TEXT).status == 204
    assert running.service.store.sizes() == {2966: 1}


@pytest.mark.parametrize("length", [str(MOST_POST_BYTES + 1), "9" * 30, "-1", "many"])
def test_a_declared_length_that_is_too_much_is_refused_before_reading(
    app: Collector, running: RunningService, length: str
) -> None:
    answer = ask(app, "POST", "/v1/t", b"", {"Content-Length": length})
    assert answer.status == 413
    assert answer.headers["connection"] == "close"
    assert answer.body == b"a post has at most 16,384 bytes.\n"


def test_an_undeclared_length_ends_where_it_is_too_much(app: Collector) -> None:
    assert ask(app, "POST", "/v1/t", [b"x" * 9_000, b"x" * 9_000, b"x" * 9_000]).status == 413


def test_whoever_leaves_before_the_end_gets_no_answer_and_counts_nothing(
    app: Collector, running: RunningService
) -> None:
    for events in ([], [{"type": "http.request", "body": b"kanab/1", "more_body": True}]):
        pending = [*events, {"type": "http.disconnect"}]
        sent: list[Any] = []

        async def receive(pending: list[Any] = pending) -> Any:
            return pending.pop(0)

        async def send(message: Any, sent: list[Any] = sent) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/v1/t", "headers": [], "client": None}
        asyncio.run(app(scope, receive, send))
        assert sent == []
    assert drops(running) == {}


def test_a_declared_page_may_read_the_answer_also_when_it_is_a_refusal(app: Collector, running: RunningService) -> None:
    for body, status in ((running.enroll(), 204), (b"", 400)):
        answer = ask(app, "POST", "/v1/t", body, {"Origin": HOME})
        assert answer.status == status
        assert (answer.headers["access-control-allow-origin"], answer.headers["vary"]) == (HOME, "origin")
        assert answer.headers["access-control-expose-headers"] == "kanab-answer, kanab-epoch"


def test_a_preflight_is_for_declared_pages_only(app: Collector) -> None:
    asked = {"Origin": HOME, "Access-Control-Request-Method": "POST"}
    answer = ask(app, "OPTIONS", "/v1/t", b"", asked)
    assert answer.status == 204
    assert answer.headers["access-control-allow-origin"] == HOME
    assert answer.headers["access-control-allow-methods"] == "POST"
    assert answer.headers["access-control-allow-headers"] == "content-type"
    assert ask(app, "OPTIONS", "/v1/t", b"", asked | {"Origin": "https://other.example"}).status == 405
    assert ask(app, "OPTIONS", "/v1/t").status == 405


def test_a_store_that_cannot_write_is_told_to_clients_and_once_to_the_operator(
    app: Collector, running: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        raise StoreError("the disk of the store is full", "Free some room.")

    with monkeypatch.context() as broken:
        broken.setattr(running.service.store, "append", full)
        for _ in range(3):
            answer = ask(app, "POST", "/v1/t", running.enroll(), {"Origin": HOME})
            assert (answer.status, answer.headers["retry-after"]) == (503, "2")
            assert answer.headers["kanab-answer"] == "busy"
            assert answer.headers["access-control-allow-origin"] == HOME
        assert ask(app, "GET", "/healthz").status == 503
    assert running.said == ["kanab: the disk of the store is full. Free some room."]
    assert drops(running) == {"busy": 3}
    assert ask(app, "POST", "/v1/t", running.enroll()).status == 204
    assert ask(app, "GET", "/healthz").status == 200


def test_a_mistake_of_the_program_is_not_told_in_its_own_words(
    app: Collector, running: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: Any) -> Any:
        raise ValueError(f"{given}")

    monkeypatch.setattr(running.service._acceptor, "accept", broken)
    answer = ask(app, "POST", "/v1/t", SECRET.encode())
    assert answer.status == 503
    assert SECRET not in repr(answer)


# ── reading ────────────────────────────────────────────────────────────────────────────────────


def test_the_config_has_the_name_of_its_digest(app: Collector, running: RunningService) -> None:
    answer = ask(app, "GET", "/v1/config.json")
    assert answer.status == 307
    assert answer.headers["location"] == f"/v1/config/{running.service.digest}.json"
    assert answer.headers["cache-control"] == "no-cache"
    config = ask(app, "GET", answer.headers["location"])
    assert config.status == 200
    assert config.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert config.headers["access-control-allow-origin"] == "*"
    assert json.loads(config.body)["experiments"]["checkout"]["arms"] == [["A", 1], ["B", 1]]
    assert int(config.headers["content-length"]) == len(config.body)


def test_a_config_of_some_experiments_holds_these_and_what_is_decided_with_them(
    open_service: Callable[..., RunningService],
) -> None:
    texts = [f"[experiments.e{number}]\narms = {{ A = 1, B = 1 }}\n" for number in range(6)]
    texts[1] += 'adjust = ["tier"]\ninteractions = ["e2"]\n'
    texts[3] += 'exclude_with = ["e2"]\n'
    texts[5] = texts[5].replace("e5", '"a,b/c"')
    head = "k = 10\n[covariates]\ntier = [1, 2]\n[metrics]\nminutes = { bounds = [0, 600] }\n"
    app = Collector(open_service(parse_plan(head + "".join(texts))).service)

    def part(query: str) -> Any:
        answer = ask(app, "GET", "/v1/config.json", query=query)
        assert SECRET not in repr(answer)
        assert answer.headers["cache-control"] == "no-cache"
        path, _, only = answer.headers["location"].partition("?")
        config = ask(app, "GET", path, query=only)
        assert (config.status, config.headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
        return json.loads(config.body)

    whole = part("")
    assert len(whole["experiments"]) == 6
    assert part("experiments=e0") == whole | {
        "experiments": {"e0": whole["experiments"]["e0"]},
        "pairs": [],
        "covariates": {},
    }
    assert {*part("v=1&experiments=e3,e3")["experiments"]} == {"e1", "e2", "e3"}  # by e2, which is counted with e1
    assert part("experiments=e1")["pairs"] == [["e1", "e2"]]
    assert {*part(f"experiments=a%2Cb%2Fc,{SECRET}")["experiments"]} == {"a,b/c"}
    assert part("experiments=")["experiments"] == {}


def test_the_config_of_two_among_a_thousand_experiments_is_small() -> None:
    experiments = tuple(ExperimentPlan(f"e{number}", (("A", 1), ("B", 1)), "A") for number in range(1000))
    metric = MetricPlan("minutes", (0, 600), 1)
    whole = public_config(Plan((metric,), experiments, cohorts=Cohorts()))
    part = config_part(whole, ["e17", "e400"])
    assert [*json.loads(part)["experiments"]] == ["e17", "e400"]
    assert (len(part) < 500, len(whole) > 50_000) == (True, True)
    grown = public_config(Plan((metric,), experiments), {"e3": ()})  # began before the metric: who tracks has to know
    assert {*json.loads(config_part(grown, ["e17"]))["experiments"]} == {"e3", "e17"}


def test_health_is_for_everybody(app: Collector) -> None:
    for path in ("/livez", "/readyz", "/healthz", "/readyz/posts"):
        answer = ask(app, "GET", path, client=("192.0.2.7", 1))
        assert (answer.status, answer.body, answer.headers["cache-control"]) == (200, b"ok\n", "no-cache")
        assert ask(app, "HEAD", path).status == 200
        assert ask(app, "POST", path).status == 405


def test_a_collector_with_problems_lives_but_is_not_ready_and_names_each(
    app: Collector, running: RunningService
) -> None:
    running.service.readiness.set(Problem.SEAL, wrong=True)
    running.service.readiness.set(Problem.CLOCK, wrong=True)
    for path in ("/readyz", "/healthz"):
        answer = ask(app, "GET", path)
        assert (answer.status, answer.body.decode()) == (503, f"{Problem.CLOCK.line}\n{Problem.SEAL.line}\n")
    assert ask(app, "GET", "/livez").status == 200


@pytest.mark.parametrize("problem", Problem)
def test_whoever_divides_posts_is_told_of_problems_that_stop_posts_only(
    app: Collector, running: RunningService, problem: Problem
) -> None:
    """An overdue seal on all collectors must not leave visitors without any."""
    running.service.readiness.set(problem, wrong=True)
    answer = ask(app, "GET", "/readyz/posts")
    assert answer.status == (503 if problem in (Problem.CLOCK, Problem.STORE, Problem.EPOCH) else 200)
    assert answer.body.decode().endswith(f"{problem.line}\n")


def test_it_can_be_mounted_in_another_application(app: Collector, running: RunningService) -> None:
    assert ask(app, "POST", "/v1/t", running.enroll(), root="/kanab").status == 204
    place = ask(app, "GET", "/v1/config.json", root="/kanab").headers["location"]
    assert place == f"/kanab/v1/config/{running.service.digest}.json"
    assert ask(app, "GET", place.removeprefix("/kanab"), root="/kanab").status == 200


def test_websockets_are_closed_and_the_lifespan_starts_and_stops_the_service(
    app: Collector, running: RunningService
) -> None:
    sent: list[Any] = []
    pending = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    async def receive() -> Any:
        return pending.pop(0)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    asyncio.run(app({"type": "websocket"}, receive, send))
    state: dict[str, Any] = {}
    asyncio.run(app({"type": "lifespan", "state": state}, receive, send))
    assert sent == ["websocket.close", "lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert isinstance(state.pop(CONNECTIONS), OpenConnections)
    assert state == {FAST_POST: app.fast_post, PROXIES: app._access.proxies}
    assert ask(app, "POST", "/v1/t", running.enroll()).status == 503  # it takes nothing more


# ── the rate limit ──────────────────────────────────────────────────────────────────────────────


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def taken(buckets: Buckets, address: str | None, times: int) -> int:
    return sum(buckets.take(address) for _ in range(times))


@pytest.mark.parametrize(
    ("addresses", "taken_by_each"),
    [
        (["192.0.2.7", "192.0.2.8", "a pipe"], [3, 3, 3]),
        (["2001:db8::1", "2001:db8::ffff", "2001:db8:0:1::1"], [3, 0, 3]),  # whoever has an address has its /64
        (["::ffff:192.0.2.7", "::ffff:192.0.2.8", "192.0.2.7"], [3, 3, 0]),  # as a socket of --host :: shows IPv4
        (["127.0.0.1", "::1", "localhost", None, "::ffff:127.0.0.1"], [9] * 5),
        (["10.1.2.3", "::ffff:10.1.2.3", "2001:db8::7", "2001:db8::8", "11.1.2.3"], [9, 9, 9, 3, 3]),  # and proxies
    ],
)
def test_each_place_has_a_bucket_but_this_machine_and_your_proxies(
    addresses: list[str | None], taken_by_each: list[int]
) -> None:
    proxies = Proxies([network("10.0.0.0/8"), network("2001:db8::7")])
    buckets = Buckets(rate=0, burst=3, clock=Clock(), proxies=proxies)
    assert [taken(buckets, address, 9) for address in addresses] == taken_by_each


def test_a_place_may_post_again_as_time_passes() -> None:
    buckets = Buckets(rate=1, burst=2, clock=(clock := Clock()))
    assert taken(buckets, "192.0.2.7", 3) == 2
    clock.now = 1.0
    assert taken(buckets, "192.0.2.7", 3) == 1


def test_an_address_has_so_many_posts_a_day_however_they_are_spread(running: RunningService) -> None:
    often, daily = Buckets(rate=100, burst=100, clock=Clock()), Buckets(rate=0, burst=3, clock=Clock())
    app = Collector(running.service, buckets=often, daily=daily)
    visitors = ["192.0.2.7"] * 5 + ["192.0.2.8"]
    found = [ask(app, "POST", "/v1/t", running.enroll(), client=(visitor, 1)).status for visitor in visitors]
    assert found == [204, 204, 204, 429, 429, 204]


def test_no_address_is_kept_and_a_flood_of_addresses_neither_grows_the_table_nor_frees_those_who_flood() -> None:
    buckets = Buckets(rate=0, burst=2, clock=Clock())
    before = len(buckets._tokens), len(buckets._since)
    assert taken(buckets, "192.0.2.7", 3) == 2
    assert sum(buckets.take(f"10.{number >> 8}.{number & 255}.1") for number in range(5_000)) > 4_900
    assert taken(buckets, "192.0.2.7", 3) == 0
    assert (len(buckets._tokens), len(buckets._since)) == before
    assert "192.0.2.7" not in repr(vars(buckets))


def test_the_client_is_served_as_it_is_written(app: Collector) -> None:
    answer = ask(app, "GET", "/kanab.js")
    assert answer.status == 200
    assert answer.body == (Path(kanab.__file__).parent / "static" / "kanab.js").read_bytes()
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["cache-control"] == "public, max-age=3600"
    assert ask(app, "POST", "/kanab.js").status == 405


def test_the_address_of_ipv6_hears_both_kinds_of_visitors() -> None:
    try:
        listening = bind("::", 0)
    except Exception:
        pytest.skip("this machine has no IPv6")
    with listening:
        listening.listen()
        port = listening.getsockname()[1]
        for host in ("127.0.0.1", "::1"):
            with socket.create_connection((host, port), 5):
                connection, (address, *_) = listening.accept()
                connection.close()
                assert address in ("::ffff:127.0.0.1", "::1")
