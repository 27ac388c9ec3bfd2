"""A collector whose plan has an ε: noise is drawn at the seal, and nothing exact is shown before it."""

import asyncio
import json
import re
import shutil
import signal
from bisect import bisect_left
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from tests.collector.collector_process import ForkServer, Place, Server
from tests.collector.many_visitors import PLAN_TEXT, Visitors
from tests.collector.test_sealed_once import seal, state

from kanab import analyze
from kanab.collector.http.metrics import COUNTS
from kanab.collector.keys.keyring import read_key_file
from kanab.privacy.ledger import entry_text
from kanab.tally.tally import Tally

NOISY = f"{PLAN_TEXT}\n[privacy]\nepsilon = 4\n"


class Filled(NamedTuple):
    """A folder in which a collector has collected, the truth, and what it showed meanwhile."""

    root: Path
    tallies: dict[str, Tally]
    metrics: str
    pages: dict[str, str]
    log: str


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> Filled:
    place = Place(tmp_path_factory.mktemp("filled") / "place", fork_server)
    server = Server(place, "--plan", place.plan(NOISY), "--data", place.data).start()
    visitors = Visitors(11)
    asyncio.run(visitors.for_a_while([server.port], 60, most=500))
    metrics = server.ask("GET", "/metrics")[2].decode()
    paths = ("/", "/experiments/checkout", "/privacy", "/v1/experiments", "/v1/experiments/checkout")
    pages = {path: server.ask("GET", path)[2].decode() for path in paths}
    server.kill()
    return Filled(place.root, visitors.tallies(), metrics, pages, server.stderr)


def test_nothing_that_counts_messages_is_shown_before_a_seal(filled: Filled) -> None:
    names = {line.split()[2] for line in filled.metrics.splitlines() if line.startswith("# TYPE")}
    assert not names & COUNTS
    assert "kanab_noisy 1" in filled.metrics
    assert {"kanab_up", "kanab_sealed_batches"} <= names


def test_pages_of_an_open_cohort_say_that_nothing_can_be_read_and_show_no_number_of_people(filled: Filled) -> None:
    for path in ("/experiments/checkout", "/privacy"):
        assert "The plan has an ε: before a seal nothing about people can be read." in filled.pages[path], path
        assert "multiples of 10" not in filled.pages[path]
    people = {count for tally in filled.tallies.values() for count in tally.people.ravel().tolist()}
    told = {*people, *(tally.total for tally in filled.tallies.values())}
    told |= {count // 10 * 10 for count in told}
    arms = json.loads(filled.pages["/v1/experiments"])["experiments"]
    assert [row["arms"] for row in arms] == [{}, {}]
    for text in (filled.pages["/v1/experiments/checkout"], filled.log):
        assert not {int(number) for number in re.findall(r"(?<![\d.:\w-])\d{3,}(?![\d.:\w-])", text)} & {
            count for count in told if count > 99
        }


def test_a_killed_seal_publishes_one_draw_with_the_stated_noise(
    filled: Filled, tmp_path: Path, fork_server: ForkServer
) -> None:
    def copied(name: str) -> Place:
        return Place(shutil.copytree(filled.root, tmp_path / name), fork_server)

    def committed(step: int) -> bool:
        seal(place := copied(f"looked-{step}"), die_at=step)
        return bool(state(place)[1])

    before_commit, after_commit = 0, 0
    commit = bisect_left(range(200), True, key=committed)  # the first crash after it
    for step in (0, commit // 2, *range(commit - 3, commit + 6), 10_000):  # every step around it, and none
        place = copied(str(step))
        first = seal(place, die_at=step)
        assert first.code in (0, -signal.SIGKILL), first.err
        records, batches, _ = state(place)
        assert (records > 0) != (len(batches) > 0)  # all of it, or nothing
        before_commit, after_commit = before_commit + (records > 0), after_commit + (records == 0)
        if first.code:
            assert seal(place).code == (1 if batches else 0)
        records, (release,), through = state(place)
        assert records == 0
        assert not batches or entry_text(release) == entry_text(batches[0])
        assert read_key_file(place.key).period == through + 1
    assert before_commit >= 1
    assert after_commit >= 1
    assert any("not as of the clock" in deviation for deviation in release.receipt.deviations)
    noise = release.receipt.noise
    assert noise is not None
    assert (noise.epsilon, noise.left) == (4, 0)
    assert release.receipt.batch is not None
    table, truth = release.tables["checkout"], next(iter(filled.tallies.values())).keep()
    deviation = float(table.noise.people.flat[0]) ** 0.5 if table.noise is not None else 0.0
    assert np.abs(table.people - truth.people).max() < 6 * deviation
    assert analyze(release, "checkout").effects
