"""The real OpenFeature SDK on top of the client: flags are experiments, events are metrics."""

import asyncio
import importlib
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from openfeature import api
from openfeature.client import OpenFeatureClient
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import ErrorCode
from openfeature.flag_evaluation import Reason
from openfeature.provider import ProviderStatus
from openfeature.track import TrackingEventDetails
from tests.unit.client.counting_collector import Clock, CountingCollector, plan

import kanab.openfeature
from kanab.client import Client
from kanab.errors import MissingExtraError
from kanab.openfeature import KanabProvider

TEXT = """
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

[experiments.banner]
arms = { off = 1, on = 1 }

[experiments.rows]
arms = [[10, 1], [20, 1]]

[experiments.zoom]
arms = [[1.5, 1], [2.5, 1]]
"""
ANNA = EvaluationContext("user-1", {"tier": 3, "name": "Anna"})


@pytest.fixture
def collector() -> CountingCollector:
    return CountingCollector(plan(TEXT), Clock())


@pytest.fixture
def client(collector: CountingCollector) -> Client:
    return Client(collector.plan, collector, clock=collector.clock)


@pytest.fixture
def provider(client: Client) -> Iterator[KanabProvider]:
    one = KanabProvider(client)
    api.set_provider_and_wait(one)
    yield one
    api.clear_providers()


@pytest.fixture
def flags(provider: KanabProvider) -> OpenFeatureClient:
    return api.get_client()


def test_a_flag_is_the_arm_by_split(flags: OpenFeatureClient) -> None:
    details = flags.get_string_details("checkout", "A", ANNA)
    assert (details.value, details.variant, details.reason) == ("B", "B", Reason.SPLIT)
    assert api.get_provider_metadata().name == "kanab"


def test_arms_are_read_as_what_is_asked_for(flags: OpenFeatureClient, client: Client) -> None:
    arms = {name: client.person(id="user-1").variant(name) for name in ("banner", "rows", "zoom")}
    assert flags.get_boolean_value("banner", False, ANNA) is (arms["banner"] == "on")
    assert flags.get_integer_value("rows", 0, ANNA) == int(arms["rows"] or 0)
    assert flags.get_float_value("zoom", 0.0, ANNA) == float(arms["zoom"] or 0)
    assert flags.get_float_value("rows", 0.5, ANNA) == float(arms["rows"] or 0)


@pytest.mark.parametrize(
    ("ask", "flag", "default", "code"),
    [
        ("get_boolean_details", "checkout", True, ErrorCode.TYPE_MISMATCH),
        ("get_integer_details", "zoom", 7, ErrorCode.TYPE_MISMATCH),
        ("get_float_details", "banner", 7.5, ErrorCode.TYPE_MISMATCH),
        ("get_object_details", "banner", {"a": 1}, ErrorCode.TYPE_MISMATCH),
        ("get_string_details", "basket", "A", ErrorCode.FLAG_NOT_FOUND),
    ],
)
def test_mistakes_give_the_default(flags: OpenFeatureClient, ask: str, flag: str, default: Any, code: Any) -> None:
    details = getattr(flags, ask)(flag, default, ANNA)
    assert (details.value, details.reason, details.error_code) == (default, Reason.ERROR, code)


def test_evaluating_for_a_person_enrolls_and_events_are_metrics(
    provider: KanabProvider, flags: OpenFeatureClient, client: Client, collector: CountingCollector
) -> None:
    person = client.person(id="user-1")
    with provider.serving(person):
        assert flags.get_string_value("checkout", "A", ANNA) == "B"
        flags.track("bought")
        flags.track("minutes", tracking_event_details=TrackingEventDetails(4))
        flags.track("minutes", tracking_event_details=TrackingEventDetails(2.5))
        flags.track("miles", tracking_event_details=TrackingEventDetails(2.5))
    flags.track("minutes", ANNA, TrackingEventDetails(100))  # nobody is served: nobody is counted
    person.flush(5)
    assert collector.lines() == [
        "checkout/tier:B:3@2026-W46",
        "checkout/tier:B:3@2026-W46:bought:0>1",
        "checkout/tier:B:3@2026-W46:minutes:0>6.5",
    ]


def test_without_a_person_a_targeting_key_shows_arms_and_counts_nobody(
    flags: OpenFeatureClient, client: Client, collector: CountingCollector
) -> None:
    assert flags.get_string_value("checkout", "A", ANNA) == "B"
    details = flags.get_string_details("checkout", "A")
    assert (details.value, details.error_code) == ("A", ErrorCode.TARGETING_KEY_MISSING)
    assert client.flush(1)
    assert collector.received == []


def test_a_drawn_arm_stays_with_the_state_of_the_person(
    provider: KanabProvider, flags: OpenFeatureClient, client: Client
) -> None:
    person = client.person()
    with provider.serving(person):
        arm = flags.get_string_value("checkout", "-")
    with provider.serving(client.person(person.save())):
        assert [flags.get_string_value("checkout", "-") for _ in range(5)] == [arm] * 5


def test_evaluation_need_not_be_enrollment(client: Client, collector: CountingCollector) -> None:
    provider = KanabProvider(client, enroll=False)
    api.set_provider_and_wait(provider, "shop")
    try:
        person = client.person(id="user-1")
        with provider.serving(person):
            assert api.get_client("shop").get_string_value("checkout", "A", ANNA) == "B"
        person.flush(5)
        assert collector.received == []
    finally:
        api.clear_providers()


def test_threads_and_tasks_serve_their_own_people(
    provider: KanabProvider, flags: OpenFeatureClient, client: Client
) -> None:
    truth = {f"user-{number}": client.person(id=f"user-{number}").variant("checkout") for number in range(40)}

    def thread(id: str) -> str:
        with provider.serving(client.person(id=id)):
            return flags.get_string_value("checkout", "-")

    async def task(id: str) -> str:
        with provider.serving(client.person(id=id)):
            await asyncio.sleep(0.001)
            return await flags.get_string_value_async("checkout", "-")

    async def tasks() -> list[str]:
        return await asyncio.gather(*map(task, truth))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(thread, truth)) == list(truth.values())
    assert asyncio.run(tasks()) == list(truth.values())


def test_without_a_config_defaults_are_shown(collector: CountingCollector) -> None:
    collector.down = True
    provider = KanabProvider(Client("http://127.0.0.1:9", collector), patience=0.05)
    with pytest.raises(Exception, match="config cannot be read"):
        api.set_provider_and_wait(provider)
    flags = api.get_client()
    assert flags.get_provider_status() is ProviderStatus.ERROR
    details = flags.get_string_details("checkout", "A", ANNA)
    assert (details.value, details.error_code) == ("A", ErrorCode.PROVIDER_NOT_READY)
    early = provider._client.person(id="user-1")
    collector.down = False
    provider._client._watch._soon = 0.01
    provider._client._watch.fetch()
    with provider.serving(early):
        assert flags.get_string_details("checkout", "A", ANNA).error_code is ErrorCode.PROVIDER_NOT_READY
    assert flags.get_string_value("checkout", "A", ANNA) == "B"
    api.clear_providers()


def test_without_its_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openfeature.provider", None)
    with pytest.raises(MissingExtraError, match=r"kanab\[openfeature\]"):
        importlib.reload(kanab.openfeature)
