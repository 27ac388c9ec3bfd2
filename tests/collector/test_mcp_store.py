"""kanab mcp over collectors that share a PostgreSQL database: what was sealed is answered, nothing else."""

import sys
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from tests.closing import Keep
from tests.unit.cli.several.test_mcp import START
from tests.unit.dashboard.shop_releases import entries

from kanab.agents.answers import NOTHING_YET, Answers
from kanab.cli.stores import Place
from kanab.collector.stores.postgres import PostgresStore
from kanab.dashboard.release_sources import StoreReleases
from kanab.errors import StoreError


@pytest.mark.slow
def test_batches_of_a_shared_database_are_answered(postgres_url: str, closing: Keep) -> None:
    store = closing(PostgresStore(postgres_url))
    answers = Answers(StoreReleases(Place(None, postgres_url).read))
    assert answers.list_experiments().text == NOTHING_YET
    for number, batch in enumerate(entries()):
        store.seal(number, lambda *_, batch=batch: batch)
    assert answers.readout("checkout").data["people"] == 3010
    assert answers.readout("checkout").data["alarms"] == []

    async def ask() -> Any:
        server = StdioServerParameters(command=sys.executable, args=[*START, "--store", postgres_url])
        async with Client(server) as client:
            return await client.call_tool("readout", {"experiment": "checkout"})

    assert anyio.run(ask).structured_content == answers.readout("checkout").data


def test_a_database_that_is_not_there_is_said_at_the_start() -> None:
    with pytest.raises(StoreError):
        StoreReleases(Place(None, "postgresql://127.0.0.1:1/nothing").read)
