"""Short forms of what `make soak` does for hours; kills and malformed requests have tests of their own."""

from __future__ import annotations

from pathlib import Path

from tests.programs import need_program
from tests.soak.clock import pass_a_day
from tests.soak.faults import cut_connections, fail_disks
from tests.soak.forged import forge


def test_a_disk_that_fails_now_and_then_loses_and_doubles_nothing(tmp_path: Path) -> None:
    need_program("cc", package="gcc libc6-dev")  # what makes a disk fail is compiled
    assert fail_disks(tmp_path, rounds=2).endswith("none lost, none doubled")


def test_connections_that_are_cut_in_the_middle_lose_and_double_nothing(tmp_path: Path) -> None:
    assert cut_connections(tmp_path, seconds=2).endswith("none lost, none doubled")


def test_hourly_restarts_while_nonces_are_forgotten_lose_and_double_nothing(tmp_path: Path) -> None:
    assert pass_a_day(tmp_path, seconds=1, hours=5).endswith("none lost, none doubled")


def test_forged_posts_between_kills_cost_the_metric_that_they_name_and_nothing_else(tmp_path: Path) -> None:
    assert forge(tmp_path, seconds=2).endswith("all else exact")
