"""Collectors and a PostgreSQL as those of tests/collector, and a real Caddy before them."""

import pytest
from tests.collector.conftest import closing, fork_server, place, postgres_server, postgres_url
from tests.programs import need_program

__all__ = ["closing", "fork_server", "place", "postgres_server", "postgres_url"]


@pytest.fixture(scope="session")
def caddy() -> str:
    """Caddy's program."""
    return need_program("caddy", package="--no-install-recommends caddy")
