from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.approved import assert_approved
from tests.unit.cli.program import Program, transcript

from kanab.cli.main import cli
from kanab.cli.source_options import level
from kanab.errors import KanabError, PlanError, PrivacyError, SourceError

DEVICE = ("--adjust", "device", "--segment", "device", "--json")
FLAGS = ("--arm", "variant", "--metric", "bought,spend", "--bounds", "spend=0:500", "--resolution", "spend=0.01")


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("shop") / "visits.csv"
    assert run("example", str(file), "--people", "6000").output.endswith(
        "6,000 made-up people of a shop's experiment.\n"
    )
    return file


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, arguments)
    if isinstance(result.exception, KanabError):
        raise result.exception
    return result


def test_a_csv_file_is_answered_in_one_command(visits: Path, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(visits.parent)
    words = f"visits.csv {' '.join(FLAGS)} --adjust tier --segment device,country"
    said = transcript(program, "analyze", f"{words}\n{words} --brief")
    assert_approved("cli/analyze.txt", said)
    assert max(map(len, said.splitlines()[1:-12])) <= 100


@pytest.mark.slow
def test_a_release_gives_the_same_answer_as_its_source(visits: Path, tmp_path: Path) -> None:
    file = tmp_path / "checkout.json"
    done = run("release", str(visits), *FLAGS, "--covariate", "device", "-o", str(file), "--new-ledger")
    assert (
        "1 table, k-anonymous at k = 10; effective k of class sums over everything in ledger kanab.ledger: at least"
        in done.output
    )
    direct = json.loads(run("analyze", str(visits), *FLAGS, *DEVICE).output)
    stored = json.loads(run("analyze", str(file), "--json").output)
    assert stored["effects"] == direct["effects"]
    assert stored["segments"] == direct["segments"]


@pytest.mark.slow
def test_batches_are_added(tmp_path: Path) -> None:
    for seed in ("1", "2"):
        run("example", str(tmp_path / f"{seed}.csv"), "--people", "3000", "--seed", seed)
        source, file = (str(tmp_path / f"{seed}.{kind}") for kind in ("csv", "json"))
        words = (*FLAGS, "--covariate", "device,country", "--new-ledger", "--ledger", f"{file}.ledger")
        run("release", source, *words, "-o", file)
    data = json.loads(run("analyze", str(tmp_path / "1.json"), str(tmp_path / "2.json"), "--json").output)
    assert data["people"] == 6_000


@pytest.mark.slow
def test_a_plan_file_does_the_same(visits: Path, tmp_path: Path) -> None:
    plan = tmp_path / "kanab.toml"
    plan.write_text(
        """
        [metrics]
        bought = { kind = "binary" }
        spend = { bounds = [0, 500], resolution = 0.01 }
        [covariates]
        device = ["desktop", "phone", "tablet"]
        [experiments.variant]
        arms = { A = 1, B = 1 }
        adjust = ["device"]
        segments = ["device"]
        """
    )
    by_plan = json.loads(run("analyze", str(visits), "--plan", str(plan), "--json").output)
    flags = json.loads(run("analyze", str(visits), *FLAGS, *DEVICE).output)
    assert by_plan["effects"] == flags["effects"]
    with pytest.raises(PlanError, match="--plan and --arm contradict"):
        run("analyze", str(visits), "--plan", str(plan), "--arm", "variant")


@pytest.mark.slow
def test_a_report_is_one_page_without_outside_requests(visits: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    done = run("analyze", str(visits), *FLAGS, "--segment", "device", "--html", str(file))
    assert f"Report: {file}" in done.output
    page = file.read_text(encoding="utf-8")
    assert page.lower().startswith("<!doctype html>")
    assert "src=" not in page
    assert "<svg" in page


@pytest.mark.slow
def test_where_is_recorded(visits: Path) -> None:
    data = json.loads(run("analyze", str(visits), *FLAGS, "--where", "device = 'phone'", "--json").output)
    assert data["people"] < 6_000
    assert "Only people where device = 'phone'." in data["notes"]


@pytest.mark.slow
def test_exposures_and_events_count_what_happened_in_the_window(tmp_path: Path) -> None:
    exposures, events = ["user,variant,time"], ["user,time,spend"]
    for user in range(120):
        exposures.append(f"{user},{'AB'[user % 2]},2026-01-01 00:00:00")
        events += [f"{user},2026-01-0{day} 00:00:00,{value}" for day, value in ((2, 1 + user % 3), (9, 50))]
    (tmp_path / "exposures.csv").write_text("\n".join(exposures))
    (tmp_path / "events.csv").write_text("\n".join(events))
    flags = ("--arm", "variant", "--metric", "spend", "--unit", "user", "--events", str(tmp_path / "events.csv"))
    data = json.loads(run("analyze", str(tmp_path / "exposures.csv"), *flags, "--window", "7d", "--json").output)
    assert data["effects"][0]["mean_control"] == pytest.approx(2.0)
    with pytest.raises(SourceError, match="how long events count is not said"):
        run("analyze", str(tmp_path / "exposures.csv"), *flags)


@pytest.mark.slow
def test_the_statement_can_be_seen_before_it_runs(visits: Path, tmp_path: Path) -> None:
    shown = run("release", str(visits), *FLAGS, "--covariate", "device", "--show-sql", "-o", str(tmp_path / "x.json"))
    assert shown.exit_code == 0
    assert "GROUP BY" in shown.output
    assert shown.output.count("read_csv") <= 1
    assert list(tmp_path.iterdir()) == []


MISTAKES = """
visits.csv
nothing.csv
kanab.json
visits.csv --arm variant --metric spend --sequential spending
"""


def test_bad_input_is_one_line_and_exit_2(visits: Path, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(visits.parent)
    assert_approved("cli/nothing_said.txt", transcript(program, "analyze", MISTAKES))


@pytest.mark.slow
def test_k_below_5_needs_a_reason_where_own_rows_are_gated(visits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "levels merged" not in run("analyze", str(visits), *FLAGS, "--k", "3").output
    monkeypatch.setenv("KANAB_OWN_ROWS", "gated")
    with pytest.raises(PrivacyError, match="below 5"):
        run("analyze", str(visits), *FLAGS, "--k", "3")
    assert "k = 3: a rehearsal" in run("analyze", str(visits), *FLAGS, "--k", "3", "--override", "a rehearsal").output


@pytest.mark.slow
def test_several_experiments_are_answered_together_or_by_name(tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_text("a,b,y\n" + "".join(f"{i % 2},{i // 2 % 2},{i % 3 % 2}\n" for i in range(600)))
    (tmp_path / "p.toml").write_text(
        '[metrics]\ny = { kind = "binary" }\n[experiments.a]\narms = { "0" = 1, "1" = 1 }\n'
        '[experiments.b]\narms = { "0" = 1, "1" = 1 }\n'
    )
    arguments = ("analyze", str(tmp_path / "v.csv"), "--plan", str(tmp_path / "p.toml"))
    data = json.loads(run(*arguments, "--json").output)
    assert set(data["experiments"]) == {"a", "b"}
    assert json.loads(run(*arguments, "--experiment", "b", "--json").output)["experiment"] == "b"
    with pytest.raises(PlanError, match="one experiment"):
        run(*arguments, "--html", str(tmp_path / "r.html"))


@pytest.mark.parametrize(
    ("text", "found"), [("A", "A"), ("1", 1), ("0.5", 0.5), ("true", True), ("False", False), (None, None)]
)
def test_arms_on_the_command_line_are_numbers_where_they_look_like_it(text: str | None, found: Any) -> None:
    assert level(text) == found
    assert type(level(text)) is type(found)


def test_an_example_is_not_written_where_it_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be written"):
        run("example", str(tmp_path / "no folder" / "x.csv"))


@pytest.mark.slow
def test_the_order_of_adjust_changes_no_byte_of_the_answer(visits: Path) -> None:
    words = ("analyze", str(visits), "--arm", "variant", "--metric", "bought", "--json", "--adjust")
    answers = {run(*words, ",".join(names)).output for names in permutations(["device", "tier", "country"])}
    (answer,) = answers
    assert [row["covariates"] for row in json.loads(answer)["effects"]] == [[], ["country", "device", "tier"]]


@pytest.mark.slow
def test_names_are_separated_by_commas_or_given_by_several_flags(visits: Path) -> None:
    head = ("analyze", str(visits), "--arm", "variant", "--json")
    joined = run(*head, "--metric", "spend,bought", "--adjust", "tier,device")
    apart = run(*head, "--metric", "spend", "--metric", "bought", "--adjust", "tier", "--adjust", "device")
    assert {row["metric"] for row in json.loads(joined.output)["effects"]} == {"spend", "bought"}
    assert apart.output == joined.output
