from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kanab.collector.protocol.reasons import Drops, Reason


def test_every_reason_has_one_of_the_answers_of_a_collector() -> None:
    assert {reason.status for reason in Reason} == {204, 400, 403, 410, 413, 429, 503}
    assert [reason for reason in Reason if reason.status == 204] == [Reason.EXPERIMENT, Reason.LATE, Reason.DUPLICATE]


def test_several_threads_count_every_time() -> None:
    drops = Drops()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: [drops.add(Reason.RATE) for _ in range(1000)], range(8)))
    assert drops.floored(1)["rate"] == 8000


def test_the_page_on_messages_names_every_reason() -> None:
    page = (Path(__file__).parents[4] / "docs" / "how-to" / "messages.md").read_text(encoding="utf-8")
    assert [reason for reason in Reason if f"`{reason}`" not in page] == []
