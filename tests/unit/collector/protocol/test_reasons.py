from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kanab.collector.protocol.reasons import Drops, Reason, refused


def test_every_reason_has_one_of_the_answers_of_a_collector() -> None:
    assert {reason.status for reason in Reason} == {204, 400, 403, 410, 413, 429, 503}
    assert [reason for reason in Reason if reason.status == 204] == [Reason.EXPERIMENT, Reason.LATE, Reason.DUPLICATE]


def test_a_refusal_says_fact_place_and_remedy_and_carries_its_reason() -> None:
    problem = refused(Reason.EXPIRED, "the nonce is too old", "Give it up.", "line 1")
    assert (str(problem), problem.reason, problem.status) == (
        "the nonce is too old - at line 1. Give it up.", "expired", 410,
    )  # fmt: skip


def test_counts_are_floored_to_multiples_of_k() -> None:
    drops = Drops()
    for _ in range(19):
        drops.add(Reason.LATE, "level")
    drops.add(Reason.LATE)
    found = drops.floored(10)
    assert (found["late"], found["level"], found["size"]) == (20, 10, 0)
    assert set(found) == {reason.value for reason in Reason}


def test_only_words_of_the_list_are_counted() -> None:
    with pytest.raises(ValueError, match="is not a valid Reason"):
        Drops().add("somebody's name")


def test_several_threads_count_every_time() -> None:
    drops = Drops()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: [drops.add(Reason.RATE) for _ in range(1000)], range(8)))
    assert drops.floored(1)["rate"] == 8000


def test_the_page_on_messages_names_every_reason() -> None:
    page = (Path(__file__).parents[4] / "docs" / "how-to" / "messages.md").read_text(encoding="utf-8")
    assert [reason for reason in Reason if f"`{reason}`" not in page] == []
