"""Clients whose collector counts in this process."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.closing import Keep
from tests.unit.client.counting_collector import Clock, CountingCollector, plan

from kanab.client import Client


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def collector(clock: Clock) -> CountingCollector:
    return CountingCollector(plan(), clock)


@pytest.fixture
def closing() -> Iterator[Keep]:
    opened: list[Any] = []

    def keep(one: Any) -> Any:
        opened.append(one)
        return one

    yield keep
    for one in opened:
        one.close(0)


@pytest.fixture
def client(collector: CountingCollector, clock: Clock, closing: Keep) -> Client:
    return closing(Client(collector.plan, collector, clock=clock))
