"""The ledger, exported after each seal."""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.unit.collector.http.conftest import PLAN, RunningService, ask, open_service  # noqa: F401
from tests.unit.collector.http.test_service import RIPE, post_people

from kanab.collector.export import write_address
from kanab.collector.http.app import Collector
from kanab.collector.readiness import Problem
from kanab.errors import PlanError, SourceError
from kanab.plan.file import parse_plan, plan_digest, plan_to_dict
from kanab.privacy.ledger import read_ledger

Opener = Callable[..., RunningService]
PLAN_TEXT = """
[metrics]
minutes = { bounds = [0, 600] }
[experiments.checkout]
arms = { A = 1, B = 1 }
[export]
"""


def seal(running: RunningService) -> None:
    post_people(running, 240)
    running.now = RIPE
    running.service.check_clock()
    running.service._export.wait(20)  # type: ignore[union-attr]


def test_the_plan_says_where_to_and_no_release_or_version_holds_it() -> None:
    plan, other = (parse_plan(f'{PLAN_TEXT}to = "{to}"') for to in ("exports", "s3://bucket/kanab"))
    assert (plan.export, other.export) == ("exports", "s3://bucket/kanab")
    assert plan == other
    assert plan_digest(plan) == plan_digest(other)
    assert "export" not in plan_to_dict(plan)
    with pytest.raises(PlanError, match=r"export\.folder is an unknown key"):
        parse_plan(f'{PLAN_TEXT}folder = "exports"')
    with pytest.raises(PlanError, match=r"export\.to is missing"):
        parse_plan(PLAN_TEXT)


def test_after_a_seal_the_ledger_lies_in_the_folder(open_service: Opener, tmp_path: Path) -> None:  # noqa: F811
    folder = tmp_path / "to" / "exports"
    running = open_service(replace(PLAN, export=str(folder)))
    running.service.check_clock()
    assert not folder.exists()  # nothing is sealed
    seal(running)
    ledger = read_ledger(folder / "kanab.ledger")
    assert [release.receipt.batch.through for release in ledger.releases if release.receipt.batch] == ["2026-W46"]
    assert [path.name for path in folder.iterdir()] == ["kanab.ledger"]
    assert running.said[-1] == "kanab: the ledger was exported."
    running.service.check_clock()
    assert running.said.count("kanab: the ledger was exported.") == 1
    (folder / "kanab.ledger").unlink()
    again = open_service(replace(PLAN, export=str(folder)), RIPE, running.service.store)  # as after a restart
    again.service.check_clock()
    again.service._export.wait(20)  # type: ignore[union-attr]
    assert (folder / "kanab.ledger").exists()


def test_an_export_that_fails_is_noted_and_tried_again_and_the_seal_is_done(
    open_service: Opener,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocked = tmp_path / "exports"
    blocked.write_text("a file stands where the folder should be")
    running = open_service(replace(PLAN, export=str(blocked)))
    seal(running)
    assert len(running.service.store.sealed()) == 1
    assert running.said[-1].startswith("kanab: the ledger was not exported: kanab.ledger cannot be written: ")
    assert running.service.readiness.problems() == [Problem.EXPORT]
    answer = ask(Collector(running.service), "GET", "/readyz")
    assert (answer.status, answer.body.decode()) == (200, f"ok\n{Problem.EXPORT.line}\n")
    assert "\nkanab_up 1.0\n" in running.service.metrics()
    said = len(running.said)
    running.service.check_clock()  # not before a minute is over
    assert len(running.said) == said
    blocked.unlink()
    monkeypatch.setattr("kanab.collector.export.RETRY_SECONDS", 0.0)
    running.service.check_clock()
    running.service._export.wait(20)  # type: ignore[union-attr]
    assert running.service.readiness.problems() == []
    assert (blocked / "kanab.ledger").exists()


def test_an_export_that_hangs_holds_nothing_up(open_service: Opener, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "exports").mkdir()
    pipe = tmp_path / "exports" / "kanab.ledger"
    os.mkfifo(pipe)  # nobody reads: whoever writes waits
    running = open_service(replace(PLAN, export=str(pipe.parent)))
    post_people(running, 240)
    running.now = RIPE
    began = time.monotonic()
    running.service.check_clock()
    running.now += timedelta(hours=1)
    running.service.check_clock()
    asyncio.run(running.service.take(running.enroll(week="2026-W49"), None))
    assert len(running.service.store.sealed()) == 1
    assert time.monotonic() - began < 20
    assert pipe.read_text().startswith("{")


def test_without_the_package_an_address_is_refused_at_the_start(
    open_service: Opener,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(SourceError, match=r"writing to s3:// needs a package. Run: pip install fsspec s3fs"):
        open_service(replace(PLAN, export="s3://bucket/kanab"))


def test_addresses_are_written_through_fsspec(open_service: Opener, tmp_path: Path) -> None:  # noqa: F811
    import fsspec  # noqa: PLC0415 - as the collector does

    running = open_service(replace(PLAN, export="memory://bucket/kanab/"))
    seal(running)
    exported = fsspec.filesystem("memory").cat("/bucket/kanab/kanab.ledger").decode()
    (tmp_path / "copy.ledger").write_text(exported)
    assert len(read_ledger(tmp_path / "copy.ledger").releases) == 1
    write_address(f"file://{tmp_path}/deep/kanab.ledger", exported)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["kanab.ledger"]
    (tmp_path / "file").write_text("")
    with pytest.raises(SourceError, match=r"the file cannot be written to file:// \(\w+\). Check address and rights."):
        write_address(f"file://{tmp_path}/file/kanab.ledger", exported)
    with pytest.raises(SourceError, match=r"nowhere:// cannot be opened"):
        write_address("nowhere://x/kanab.ledger", exported)
