import csv
import errno
import json
import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from tests.approved import assert_approved
from tests.unit.cli.program import Program, transcript

import kanab as kb
from kanab.cli.main import cli
from kanab.errors import LedgerError, PlanError, PrivacyError, SourceError
from kanab.plan.model import settle_missing
from kanab.privacy.ledger import read_ledger
from kanab.privacy.release_json import read_release

FLAGS = ("--arm", "variant", "--metric", "spend,bought", "--bounds", "spend=0:500", "--resolution", "spend=0.01")
PLAN = """
[metrics]
bought = { kind = "binary" }
spend = { bounds = [0, 500], resolution = 0.01 }
[covariates]
device = ["phone", "desktop", "tablet"]
[experiments.variant]
arms = { A = 1, B = 1 }
adjust = ["device"]
"""


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words), catch_exceptions=True)


def beginning(*words: str) -> tuple[str, ...]:
    return ("release", *words, "--new-ledger")


def done(*words: str) -> str:
    result = run(*words)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def write(path: Path, rows: dict[str, Any]) -> str:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(rows)
        writer.writerows(zip(*(column.tolist() for column in rows.values()), strict=True))
    return str(path)


def shop(n: int = 1200, seed: int = 1, first: str = "2026-09-07", days: int = 28) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    start = datetime.fromisoformat(first)
    moments = [start + timedelta(minutes=int(minute)) for minute in rng.integers(0, days * 1440, n)]
    return {
        "variant": rng.choice(["A", "B"], n),
        "device": rng.choice(["phone", "desktop", "tablet"], n),
        "tier": rng.choice([1, 2, 3], n),
        "spend": np.round(rng.gamma(2, 10, n), 2),
        "bought": (rng.random(n) < 0.3).astype(int),
        "enrolled": np.array([moment.isoformat(" ") for moment in moments]),
    }


@pytest.fixture
def source(tmp_path: Path) -> str:
    return write(tmp_path / "visits.csv", shop())


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


HEAD = "--arm variant --metric spend --bounds spend=0:500 --resolution spend=0.01"
RELEASED = f"""
visits.csv {HEAD} --covariate device,age --bin age=3 -o a.json --new-ledger
visits.csv {HEAD} --covariate tier,age --bin age=30:50 -o b.json
more.csv {HEAD} --covariate tier -o none.json
few.csv {HEAD} -o none.json --new-ledger --ledger few.ledger
visits.csv {HEAD} -o none.json --ledger diary.ledger
visits.csv {HEAD} --no-ledger -o alone.json
visits.csv {" ".join(FLAGS)} --covariate device --min-events bought=200 -o events.json --no-ledger
cities.csv {HEAD} --covariate city,name --top name=1 -o cities.json --no-ledger
"""


def test_what_a_release_says_and_leaves_behind(
    tmp_path: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    age = np.random.default_rng(5).integers(18, 80, 1201)
    write(tmp_path / "visits.csv", shop() | {"age": age[1:]})
    write(tmp_path / "more.csv", shop(1201) | {"age": age})
    write(tmp_path / "few.csv", shop(40) | {"variant": np.array(["A"] * 35 + ["B"] * 5)})
    level = np.random.default_rng(1).choice(15, 1200, p=[0.3, 0.25, 0.2] + [0.25 / 12] * 12)
    spend = np.round(20 + 4 * (level % 3) + np.random.default_rng(2).normal(0, 2, 1200), 1)
    people = {"spend": spend, "city": np.array([f"city {place:02d}" for place in level]), "name": np.arange(1200)}
    write(tmp_path / "cities.csv", shop() | people)
    (tmp_path / "diary.ledger").write_text("dear diary\n")
    there = names(tmp_path)
    assert_approved("cli/release.txt", transcript(program, "release", RELEASED))
    files = {f"{name}.json" for name in ("a", "b", "alone", "events", "cities")}
    assert names(tmp_path) == there | files | {"kanab.ledger", "few.ledger"}
    assert (tmp_path / "diary.ledger").read_text() == "dear diary\n"
    ledger = read_ledger(tmp_path / "kanab.ledger")
    first, second, alone = (read_release(tmp_path / f"{name}.json") for name in ("a", "b", "alone"))
    assert (first.chained, second.chained, alone.chained) == (True, True, False)
    assert second.previous == ledger.hashes[0]
    assert json.loads((tmp_path / "b.json").read_text())["hash"] == ledger.hashes[1]
    assert [len(ledger.hashes), len(ledger.notes)] == [3, 1]
    assert [note.says for note in read_ledger(tmp_path / "few.ledger").notes] == [
        "an arm of variant holds fewer than k = 10 people"
    ]
    assert "bought" not in read_release(tmp_path / "events.json").tables["variant/device"].metric_names
    shown = done("analyze", str(tmp_path / "alone.json"))
    assert "In no ledger: what else was released about these people was not checked." in shown
    costs = json.loads(done("analyze", str(tmp_path / "cities.json"), "--json"))["privacy"]["costs"]
    assert [cost for cost in costs if "wider than without merging" in cost]


@pytest.mark.slow
def test_a_ledger_that_grew_meanwhile_is_noticed(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import kanab.cli.release as command  # noqa: PLC0415

    original = command.counted_source

    def slow(*words: Any, **more: Any) -> Any:
        counted = original(*words, **more)
        monkeypatch.setattr(command, "counted_source", original)
        done(*beginning(source, *FLAGS, "-o", str(tmp_path / "b.json")))
        return counted

    monkeypatch.setattr(command, "counted_source", slow)
    result = run(*beginning(source, *FLAGS, "-o", str(tmp_path / "a.json")))
    assert isinstance(result.exception, LedgerError)
    assert "has grown while the source was counted" in str(result.exception)
    assert not (tmp_path / "a.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("failing", [1, 2])
def test_a_full_disk_leaves_neither_file_nor_entry(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    calls = 0
    fsync = os.fsync

    def full(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", full)
    result = run(*beginning(source, *FLAGS, "-o", str(tmp_path / "a.json")))
    assert isinstance(result.exception, SourceError)
    assert names(tmp_path) == {"visits.csv"}


MISTAKES = """
--ledger x.ledger --no-ledger
--no-ledger --cohort enrolled --window 7d
--every 7d
--as-of 2026-10-01
--cohort enrolled
--cohort enrolled --window 7d --as-of soon
--cohort enrolled --window 7d --new-ledger
--no-ledger --new-ledger
--ledger a.json
--json
--dry-run --new-ledger
--min-events bought=2.5
--min-events spend=5
--min-events bought
"""


def test_contradicting_flags_are_refused(
    source: str, tmp_path: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = transcript(program, f"release visits.csv {' '.join(FLAGS)} -o a.json", MISTAKES)
    assert_approved("cli/release_mistakes.txt", said + program("release", source, *FLAGS).err)
    assert names(tmp_path) == {"visits.csv"}


@pytest.fixture
def plan(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "kanab.toml").write_text(PLAN, encoding="utf-8")
    return ("--plan", str(tmp_path / "kanab.toml"), "--cohort", "enrolled", "--every", "7d", "--window", "7d")


@pytest.mark.slow
def test_ripe_cohorts_become_one_batch_after_the_other(source: str, plan: tuple[str, ...], tmp_path: Path) -> None:
    """Four weeks from 2026-W37; a week is ripe when the week after it is over."""
    first = done(*beginning(source, *plan, "--as-of", "2026-09-28", "-o", str(tmp_path / "1.json")))
    assert "- People who enrolled through 2026-W38." in first
    assert "- Deviation: cohorts as of 2026-09-28, not as of the clock." in first
    result = run("release", source, *plan, "--as-of", "2026-10-04", "-o", str(tmp_path / "2.json"))
    assert isinstance(result.exception, PrivacyError)
    assert str(result.exception).startswith("no further cohort is ripe")
    second = done("release", source, *plan, "--as-of", "2026-10-12", "-o", str(tmp_path / "2.json"))
    assert "- People who enrolled after 2026-W38 and through 2026-W40." in second
    plan_of_batches = settle_missing(kb.read_plan(tmp_path / "kanab.toml"), "exclude")  # one rule, whoever is in them
    everybody = kb.count(source, plan_of_batches).tallies["variant/device"]
    tables = [read_release(tmp_path / f"{name}.json").tables["variant/device"] for name in "12"]
    assert tables[0] + tables[1] == everybody
    shown = json.loads(done("analyze", str(tmp_path / "kanab.ledger"), "--json"))
    assert shown["people"] == 1200
    assert shown["privacy"]["cohorts"] == {"every": "7d", "after": None, "through": "2026-W40"}
    assert shown == json.loads(done("analyze", str(tmp_path / "1.json"), str(tmp_path / "2.json"), "--json"))


@pytest.mark.slow
def test_sealed_batches_do_not_change_and_late_rows_are_left_out(
    source: str, plan: tuple[str, ...], tmp_path: Path
) -> None:
    done(*beginning(source, *plan, "--as-of", "2026-09-28", "-o", str(tmp_path / "1.json")))
    sealed = (tmp_path / "1.json").read_bytes()
    rows = shop()
    late = shop(50, seed=9, days=7)
    changed = {name: np.concatenate([rows[name], late[name]]) for name in rows}
    changed["spend"] = changed["spend"] + 1
    write(Path(source), changed)
    done("release", source, *plan, "--as-of", "2026-10-12", "-o", str(tmp_path / "2.json"))
    assert (tmp_path / "1.json").read_bytes() == sealed
    assert json.loads(done("analyze", str(tmp_path / "kanab.ledger"), "--json"))["people"] == 1200


@pytest.mark.slow
def test_a_batch_whose_arms_are_too_small_waits_for_the_next_tick(plan: tuple[str, ...], tmp_path: Path) -> None:
    early, later = shop(8, days=7), shop(600, first="2026-09-14", days=7)
    source = write(tmp_path / "visits.csv", {name: np.concatenate([early[name], later[name]]) for name in early})
    result = run(*beginning(source, *plan, "--as-of", "2026-09-21", "-o", str(tmp_path / "1.json")))
    assert isinstance(result.exception, PrivacyError)
    assert read_ledger(tmp_path / "kanab.ledger").releases == ()
    output = done("release", source, *plan, "--as-of", "2026-09-28", "-o", str(tmp_path / "1.json"))
    assert "through 2026-W38" in output
    assert json.loads(done("analyze", str(tmp_path / "1.json"), "--json"))["people"] == 608


@pytest.mark.slow
def test_a_ledger_of_releases_about_the_same_people_is_not_added_up(source: str, tmp_path: Path) -> None:
    done(*beginning(source, *FLAGS, "--covariate", "device", "-o", str(tmp_path / "a.json")))
    ledger = str(tmp_path / "kanab.ledger")
    assert json.loads(done("analyze", ledger, "--json"))["people"] == 1200
    done("release", source, *FLAGS, "--covariate", "device", "-o", str(tmp_path / "b.json"))
    assert isinstance(run("analyze", ledger).exception, PlanError)
    result = run("analyze", str(tmp_path / "a.json"), str(tmp_path / "b.json"))
    assert isinstance(result.exception, PrivacyError)
    assert "about the same people" in str(result.exception)


@pytest.mark.slow
def test_a_batch_of_nobody_is_refused_like_one_of_a_few(plan: tuple[str, ...], tmp_path: Path) -> None:
    texts = set()
    for number in (0, 1, 9):
        rows = shop(600, first="2026-09-14", days=7)
        early = shop(max(number, 1), days=7)
        kept = {name: np.concatenate([early[name][:number], rows[name]]) for name in rows}
        source = write(tmp_path / "visits.csv", kept)
        result = run(*beginning(source, *plan, "--as-of", "2026-09-21", "-o", str(tmp_path / "1.json")))
        assert isinstance(result.exception, PrivacyError)
        texts.add(str(result.exception))
    assert len(texts) == 1


@pytest.mark.slow
def test_a_metric_keeps_the_rule_for_missing_values_that_its_ledger_has(tmp_path: Path) -> None:
    rows = shop()
    rows["spend"] = np.where(np.arange(1200) % 4 == 0, "", rows["spend"].astype(str))
    source = write(tmp_path / "visits.csv", rows)
    done(*beginning(source, *FLAGS, "--missing", "spend=zero", "-o", str(tmp_path / "1.json")))
    done("release", source, *FLAGS, "--covariate", "device", "-o", str(tmp_path / "2.json"))
    done(*beginning(source, *FLAGS, "--ledger", str(tmp_path / "other.ledger"), "-o", str(tmp_path / "3.json")))
    rules = [read_release(tmp_path / f"{name}.json").plan.metrics[0].missing for name in "123"]
    assert rules == ["zero", "zero", "exclude"]
    result = run("release", source, *FLAGS, "--missing", "spend=exclude", "-o", str(tmp_path / "4.json"))
    assert isinstance(result.exception, PrivacyError)
    assert "another rule for missing" in str(result.exception)
