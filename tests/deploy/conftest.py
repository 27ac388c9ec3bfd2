"""Collectors and a PostgreSQL as those of tests/collector, and a real Caddy before them."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from tests.collector.conftest import closing, fork_server, place, postgres_server, postgres_url

__all__ = ["closing", "fork_server", "place", "postgres_server", "postgres_url"]


@pytest.fixture(scope="session")
def caddy() -> str:
    """Caddy's program: the system's, or Debian's, where this is Debian and we may install it."""
    if shutil.which("caddy") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        for command in (["update"], ["install", "-y", "--no-install-recommends", "caddy"]):
            subprocess.run(["apt-get", *command], capture_output=True, check=False)
    program = shutil.which("caddy")
    if program is None:
        pytest.skip("no Caddy to stand before collectors. Install it (Debian: apt-get install caddy)")
    return program
