from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.collector.http.conftest import PLAN, RunningService, ask

from kanab.collector.http.app import Collector

HOST = {"Host": "collect.shop.example"}


@pytest.mark.parametrize(
    ("headers", "unnamed", "named"),
    [
        ({}, 204, 204),
        ({"Sec-Fetch-Site": "none"}, 204, 204),
        ({"Sec-Fetch-Site": "cross-site"}, 403, 403),
        ({"Origin": "https://shop.example", "Sec-Fetch-Site": "same-site"}, 204, 204),
        ({"Origin": "https://shop.example", "Sec-Fetch-Site": "cross-site"}, 403, 204),
        ({"Origin": "https://other.example", "Sec-Fetch-Site": "cross-site"}, 403, 403),
        ({"Origin": "https://other.example"}, 403, 403),
        ({"Origin": "https://collect.shop.example:8443"}, 204, 403),
        ({"Origin": "https://collect.shop.example.other.example"}, 403, 403),
        ({"Origin": "http://localhost:3000", "Sec-Fetch-Site": "cross-site"}, 403, 403),
        ({"Origin": "http://localhost:3000", "Sec-Fetch-Site": "cross-site", "Host": "127.0.0.1:8000"}, 204, 403),
        ({"Origin": "null", "Sec-Fetch-Site": "cross-site"}, 403, 403),
        ({"Origin": "null", "Host": ""}, 403, 403),
        ({"Origin": ""}, 403, 403),
    ],
)
def test_pages_of_other_sites_may_post_only_where_the_plan_names_them(
    open_service: Callable[..., RunningService], headers: dict[str, str], unnamed: int, named: int
) -> None:
    for origins, status in (((), unnamed), (("https://shop.example",), named)):
        running = open_service(replace(PLAN, origins=origins))
        assert ask(Collector(running.service), "POST", "/v1/t", running.enroll(), HOST | headers).status == status


def test_who_names_no_origins_is_told_once_that_pages_are_refused(open_service: Callable[..., RunningService]) -> None:
    running = open_service(replace(PLAN, origins=()))
    for _ in range(3):
        headers = HOST | {"Origin": "https://qzvxkwjy.example"}
        assert ask(Collector(running.service), "POST", "/v1/t", running.enroll(), headers).status == 403
    told = [sentence for sentence in running.said if "origins" in sentence]
    assert len(told) == 1
    assert 'origins = ["https://shop.example"]' in told[0]
    assert "qzvxkwjy" not in told[0]
