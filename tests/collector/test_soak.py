"""Short forms of what `make soak` does for hours; kills and malformed requests have tests of their own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.soak.clock import pass_a_day
from tests.soak.faults import cut_connections, fail_disks


@pytest.mark.skipif(shutil.which("cc") is None, reason="what makes a disk fail is compiled, and there is no C compiler")
def test_a_disk_that_fails_now_and_then_loses_and_doubles_nothing(tmp_path: Path) -> None:
    assert fail_disks(tmp_path, rounds=2).endswith("none lost, none doubled")


def test_connections_that_are_cut_in_the_middle_lose_and_double_nothing(tmp_path: Path) -> None:
    assert cut_connections(tmp_path, seconds=2).endswith("none lost, none doubled")


def test_hourly_restarts_while_nonces_are_forgotten_lose_and_double_nothing(tmp_path: Path) -> None:
    assert pass_a_day(tmp_path, seconds=2, hours=6).endswith("none lost, none doubled")
