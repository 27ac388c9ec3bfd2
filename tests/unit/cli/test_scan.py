import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from tests.approved import assert_approved
from tests.unit.cli.program import Program, transcript

from kanab.cli.main import cli
from kanab.errors import AnalysisError, KanabError, LedgerError
from kanab.privacy.ledger import read_ledger

FLAGS = ("--bounds", "revenue=0:500", "--resolution", "revenue=0.01")
PLAN = """
[metrics]
revenue = { bounds = [0, 500], resolution = 0.01 }
[experiments.test_00]
arms = { off = 1, on = 1 }
interactions = ["test_01"]
[experiments.test_01]
arms = { off = 1, on = 1 }
"""


def run(*words: str) -> Result:
    result = CliRunner().invoke(cli, list(words))
    if isinstance(result.exception, KanabError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> str:
    rng = np.random.default_rng(3)
    n = 5_000
    rows: dict[str, Any] = {f"test_{i:02d}": rng.choice(["off", "on"], n) for i in range(5)}
    both = (rows["test_01"] == "on") & (rows["test_03"] == "on")
    rows["revenue"] = np.round(rng.gamma(2, 10, n) + 4 * both, 2)
    rows["bought"] = (rng.random(n) < 0.2).astype(int)
    rows["device"] = rng.choice(["phone", "desktop"], n)
    path = tmp_path_factory.mktemp("scan") / "users.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(rows)
        writer.writerows(zip(*(column.tolist() for column in rows.values()), strict=True))
    return str(path)


@pytest.mark.slow
def test_a_pattern_scans_every_pair(users: str) -> None:
    shown = run("scan", users, "--experiments", "test_*", "--metric", "revenue,bought", *FLAGS).output
    assert shown.startswith("5 experiments, 10 pairs, 2 metrics (revenue, bought); at least 5,000 people.")
    assert "interference" in shown
    assert "Internal: computed on personal data you may already read." in shown


def test_a_scan_is_internal_unless_it_is_noted_in_a_ledger(users: str, tmp_path: Path) -> None:
    words = ("scan", users, "--experiments", "test_*", "--metric", "bought", "--segment", "device", "--json")
    internal = json.loads(run(*words).output)
    assert internal["scope"] == internal["segment_scan"]["scope"] == "own-rows"
    ledger = ("--ledger", str(tmp_path / "shop.ledger"))
    with pytest.raises(LedgerError, match="there is no ledger"):
        run(*words, *ledger)
    shared = json.loads(run(*words, *ledger, "--new-ledger").output)
    assert "scope" not in {*shared, *shared["segment_scan"]}
    assert shared["pairs"] == internal["pairs"]
    assert [note.says for note in read_ledger(tmp_path / "shop.ledger").notes] == ["pairs", "segments"]
    audited = CliRunner().invoke(cli, ["audit", str(tmp_path / "shop.ledger")]).output
    assert "shop.ledger: a scan of pairs was shared: bought of test_00, test_01, test_02, test_03, test_04." in audited
    assert json.loads(run(*words, *ledger).output) == shared  # the same again spends nothing
    assert len(read_ledger(tmp_path / "shop.ledger").notes) == 2


def test_pairs_are_shown_where_nothing_is_left_for_segments(users: str, tmp_path: Path) -> None:
    words = ("scan", users, "--experiments", "test_*", "--metric", "bought", "--where", "revenue < 6", "--json")
    shared = json.loads(
        run(*words, "--segment", "device", "--ledger", str(tmp_path / "shop.ledger"), "--new-ledger").output
    )
    assert len(shared["pairs"]) == 10
    assert "segment_scan" not in shared
    assert shared["notes"][0].startswith("By segment: bought is left out: with earlier scans there would be too many")


@pytest.mark.slow
def test_segments_are_judged_by_the_same_rules_as_pairs(users: str) -> None:
    flags = ("--metric", "revenue", *FLAGS, "--segment", "device", "--alpha", "0.01", "--family", "all", "--json")
    data = json.loads(
        run("scan", users, "--experiments", "test_00,test_01", *flags, "--tolerance", "revenue=50").output
    )
    assert (data["alpha"], data["family"], data["correction"]) == (0.01, "all", "holm")
    segments = data["segment_scan"]
    assert (segments["alpha"], segments["family"], segments["correction"]) == (0.01, "all", "bh")
    assert {row["verdict"] for row in segments["segments"]} == {"clear within tolerance"}


def test_a_report_is_written_whole(users: str, tmp_path: Path) -> None:
    file = tmp_path / "scan.html"
    shown = run("scan", users, "--experiments", "test_*", "--metric", "revenue", *FLAGS, "--html", str(file)).output
    assert shown.endswith(f"Report: {file}\n")
    text = file.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "http" not in text.replace("http://www.w3.org", "").replace("http-equiv", "")
    assert [path.name for path in tmp_path.iterdir()] == ["scan.html"]


@pytest.mark.slow
def test_stored_tables_are_scanned_by_the_covariates_that_are_named(users: str, tmp_path: Path) -> None:
    covariates = '[covariates]\ndevice = ["phone", "desktop"]\nbought = [0, 1]\n'
    plan = PLAN.replace("[metrics]", f"{covariates}[metrics]", 1)
    plan = plan.replace('interactions = ["test_01"]', 'interactions = ["test_01"]\nsegments = ["device", "bought"]')
    (tmp_path / "kanab.toml").write_text(plan, encoding="utf-8")
    run("release", users, "--plan", str(tmp_path / "kanab.toml"), "-o", str(tmp_path / "pair.json"), "--new-ledger")
    data = json.loads(run("scan", str(tmp_path / "pair.json"), "--segment", "device", "--json").output)
    assert {row["covariate"] for row in data["segment_scan"]["segments"]} == {"device"}
    with pytest.raises(AnalysisError, match=r"no table is left of covariate 'devise'\. There are: device, bought\."):
        run("scan", str(tmp_path / "pair.json"), "--segment", "devise")


MISTAKES = """
users.csv --metric revenue
users.csv --experiments none_* --metric revenue
users.csv --experiments test_00 --metric revenue
users.csv --experiments test_00,test_00 --metric revenue
users.csv --experiments test_00,revenue --metric bought
users.csv --experiments test_* --metric device
users.csv --experiments test_* --metric revenue --first-by day
users.csv --experiments test_* --metric revenue --joint-shares checkout=0/off:1
users.csv --experiments test_* --metric revenue --joint-shares checkout/search=0:1
users.csv --experiments test_* --metric revenue --joint-shares checkout/search
users.csv --experiments test_* --metric revenue --joint-shares checkout/search=0/off:many
users.csv users.csv --experiments test_* --metric revenue
"""


def test_bad_input_is_one_clear_error(users: str, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(users).parent)
    assert_approved("cli/scan_mistakes.txt", transcript(program, "scan", MISTAKES))


def test_joint_shares_are_declared_on_the_command_line(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    arms = ["0,off", "0,on", "1,off", "1,on"]
    cells = rng.choice(4, 4000, p=[0.4, 0.2, 0.2, 0.2])
    lines = [f"{arms[cell]},{y:.2f}" for cell, y in zip(cells, rng.random(4000), strict=True)]
    path = tmp_path / "users.csv"
    path.write_text("\n".join(["checkout,search,y", *lines]), encoding="utf-8")
    words = ("scan", str(path), "--experiments", "checkout,search", "--metric", "y", "--bounds", "y=0:1", "--json")
    assert json.loads(run(*words).output)["verdicts"] == {"assignment broken": 1}
    declared = ("--joint-shares", "checkout/search=0/off:0.4,0/on:0.2,1/off:0.2,1/on:0.2")
    assert json.loads(run(*words, *declared).output)["verdicts"] == {"nothing found": 1}


@pytest.mark.slow
def test_people_with_several_rows_are_scanned_by_their_first_segment(users: str, tmp_path: Path) -> None:
    with Path(users).open(encoding="utf-8", newline="") as stream:
        first = [row | {"person": str(place), "day": "2026-11-01"} for place, row in enumerate(csv.DictReader(stream))]
    later = [row | {"day": "2026-11-02", "device": "tablet", "revenue": "0", "bought": "0"} for row in first]
    with (tmp_path / "rows.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(first[0]))
        writer.writeheader()
        writer.writerows(later + first)
    flags = ("--experiments", "test_*", "--metric", "revenue", *FLAGS, "--json")
    unit = (*flags, "--unit", "person", "--aggregate", "revenue=sum", "--first-by", "day")
    taken = json.loads(run("scan", str(tmp_path / "rows.csv"), *unit, "--segment", "device").output)
    assert taken == json.loads(run("scan", users, *flags, "--segment", "device").output)
