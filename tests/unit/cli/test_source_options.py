"""What somebody reads who mistypes a flag: each sentence says what is wrong, and what to write instead."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.cli.program import Program

import kanab as kb
from kanab.datasets import shop_rows

FLAGS = ("--arm", "variant", "--metric", "bought")


def write_csv(path: Path, rows: dict[str, Any], sep: str = ",") -> str:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, delimiter=sep)
        writer.writerow(rows)
        writer.writerows(zip(*rows.values(), strict=True))
    return str(path)


@pytest.fixture(scope="module")
def people() -> dict[str, Any]:
    rows: dict[str, Any] = {name: np.asarray(values).tolist() for name, values in shop_rows(2_000).items()}
    return rows | {"group": [1, 2] * 1_000, "from": [1, 2] * 1_000, "user_id": list(range(2_000))}


@pytest.fixture(scope="module")
def visits(people: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_csv(tmp_path_factory.mktemp("shop") / "visits.csv", people)


SHARES = {
    "one arm": ("A=1", "--shares names a single arm. Name every arm with its share: --shares A=50%,B=50%."),
    "no arm": ("1:1", "--shares cannot be read. Write --shares A=50%,B=50%."),
    "words": ("A=half,B=half", "--shares needs numbers. For example --shares A=50%,B=50%."),
    "half in percent": ("A=50%,B=1", "--shares mixes percentages and numbers. Write all of them alike: "),
    "too little": ("A=50%,B=40%", "the percentages of --shares add up to 90 %, not to 100 %. Is an arm missing?"),
    "too little in parts of 1": (
        "A=0.5,B=0.4",
        "the parts of --shares add up to 0.9, not to 1. Is an arm missing? Or write ratios: A=9,B=1.",
    ),
    "an arm twice": ("A=50%,A=50%", "--shares names A twice. Name each once."),
    "a negative one": ("A=1,B=-1", "experiments.variant.arms.B must have a positive share"),
}


@pytest.mark.parametrize(("shares", "told"), SHARES.values(), ids=SHARES)
def test_shares_that_cannot_be_meant_are_told(visits: str, program: Program, shares: str, told: str) -> None:
    done = program("analyze", visits, *FLAGS, "--shares", shares)
    assert done.code == 2
    assert told in done.err


@pytest.mark.slow
@pytest.mark.parametrize("shares", ["A=50%,B=50%", "A=0.5,B=0.5", "A=1,B=1", "A=50,B=50"])
def test_shares_may_be_percentages_parts_or_ratios(visits: str, program: Program, shares: str) -> None:
    done = program("analyze", visits, *FLAGS, "--shares", shares)
    assert done.code == 0, done.err
    assert "People arrived in the planned shares" in done.out
    assert "50.00 %" in done.out


@pytest.mark.slow
def test_rounded_percentages_need_not_add_up_to_the_last_digit(visits: str, program: Program) -> None:
    rounded = program("analyze", visits, *FLAGS, "--arm", "tier", "--shares", "1=33%,2=33%,3=33%")
    assert rounded.code == 0, rounded.err
    assert "33.33 %" in rounded.out


FLAG_MISTAKES = {
    "bin of a word": (("--adjust", "tier", "--bin", "tier=x"), "--bin needs numbers. For example --bin age=5."),
    "top too many": (
        ("--adjust", "country", "--top", "country=2000"),
        "covariates.country.top must be a whole number from 1 to 1,000",
    ),
    "top of no covariate": (
        ("--top", "country=3"),
        "--top names something that is not counted: 'country'. No covariates are named: name some in --adjust or "
        "--segment.",
    ),
    "one column, two roles": (
        ("--metric", "variant"),
        "experiments.variant has a name that is taken by metrics.variant: a column has one role; leave one out",
    ),
    "a covariate that is a metric": (
        ("--adjust", "bought"),
        "covariates.bought has a name that is taken by metrics.bought: a column has one role; leave one out",
    ),
    "bins of a metric without quantiles": (
        ("--metric", "spend", "--bin", "spend=0:10:20", "--quantile", "sepnd=0.5"),
        "bins of the metric 'spend' are for its quantiles, and none are asked for. Name it in --quantile, too "
        "(--quantile spend=0.5), or leave out its bins.",
    ),
    "missing values of a covariate": (
        ("--adjust", "tier", "--missing", "tier=zero"),
        "--missing is of metrics and numbers, and 'tier' is not said to be one. Adjust for it as it is (--number "
        "tier), or leave out --missing.",
    ),
    "received is all there is": (
        ("--treatment-received", "bought"),
        "experiments.variant.received is the only metric; name another one, which receiving may have changed.",
    ),
    "a window without events": (
        ("--window", "7d"),
        "a window says how long events count, and no events are named. Name them: events=… (--events)",
    ),
    "an empty window": (
        ("--events", "visits.csv", "--unit", "user_id", "--window", "0d"),
        "the window is empty: no event would count. Write it like 14d, 36h or 90m.",
    ),
    "events without a window": (
        ("--events", "visits.csv", "--unit", "user_id"),
        "how long events count is not said. Give window='14d' (--window 14d).",
    ),
    "events of nobody": (
        ("--events", "visits.csv", "--window", "7d"),
        "whose events they are is not said. Name the column of the person, alike in both tables: unit=… (--unit).",
    ),
    "a reserved word": (
        ("--where", "from = 1"),
        "the filter names the column 'from', which is a word of SQL itself. Write it in double quotes, and the whole "
        "in single ones: --where '\"from\" = …'",
    ),
    "a misspelled column": (
        ("--where", "contry = 'US'"),
        "the filter names a column 'contry', which is not there. Did you mean country?",
    ),
    "a text without quotes": (
        ("--where", 'device = "phone"'),
        "the filter names a column 'phone', which is not there. A text stands in single quotes: 'phone'.",
    ),
    "no condition": (
        ("--where", "device = = 1"),
        "the filter is not a condition that the engine understands. Write it as after WHERE",
    ),
}


@pytest.mark.parametrize(("flags", "told"), FLAG_MISTAKES.values(), ids=FLAG_MISTAKES)
def test_a_mistaken_flag_is_told_with_what_to_write(
    visits: str, program: Program, flags: tuple[str, ...], told: str
) -> None:
    done = program("analyze", visits, *FLAGS, *flags)
    assert (done.code, done.out) == (2, "")
    assert told in done.err


@pytest.mark.slow
def test_reserved_words_and_a_leading_where_are_read(visits: str, program: Program) -> None:
    for where in ('"from" = 1', "group = 1", 'WHERE tier > 0 AND "group" = 1'):
        assert "variant: 1,000 people" in program("analyze", visits, *FLAGS, "--where", where).out


@pytest.mark.slow
def test_too_many_levels_are_refused_without_their_number(visits: str, program: Program) -> None:
    done = program("analyze", visits, *FLAGS, "--adjust", "user_id")
    assert "'user_id' has more than 1,000 levels. Adjust for a number as it is (--number user_id)" in done.err
    done = program("analyze", visits, "--arm", "user_id", "--metric", "bought")
    assert "arm column 'user_id' has more than 1,000 arms. Name the column that holds the arm" in done.err
    assert "2,000" not in done.err


# ── arms ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def strays(people: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Visits of whom six are in an arm that is a slip."""
    arms = ["slip"] * 6 + people["variant"][6:]
    return write_csv(tmp_path_factory.mktemp("strays") / "visits.csv", people | {"variant": arms})


@pytest.mark.slow
def test_a_stray_arm_is_not_named_but_the_large_ones_are(
    strays: str, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = program("analyze", strays, *FLAGS)
    assert own.code == 0
    assert "Fewer than k = 10 people are in arm slip" in own.out
    assert "or count only the others (--arms A,B)" in " ".join(own.out.split())
    monkeypatch.setenv("KANAB_OWN_ROWS", "gated")
    done = program("analyze", strays, *FLAGS)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "kanab: an arm of variant holds fewer than k = 10 people. "
        "Its name was not declared and is not shown. Count only the arms that you mean: --arms A,B.\n"
    )


@pytest.mark.slow
def test_only_the_named_arms_are_counted_and_the_others_left_out(strays: str, program: Program) -> None:
    done = program("analyze", strays, *FLAGS, "--arms", "A,B")
    assert done.code == 0, done.err
    assert "variant: 1,994 people in 2 arms, control A" in done.out
    assert "none were declared" in done.out  # shares: naming arms plans none
    assert "slip" not in done.out
    most = program("release", strays, *FLAGS, "--arms", "B,slip", "--no-ledger", "-o", f"{strays}.json")
    assert "an arm of variant holds fewer than k = 10 people. Declared as slip: wait" in most.err


@pytest.mark.slow
def test_people_of_other_arms_are_reported_exactly_and_by_the_gate_in_steps_of_k(
    visits: str, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = program("analyze", visits, "--arm", "tier", "--metric", "bought", "--arms", "1,2")
    exact = int(own.out.split(" people are in no arm")[0].split()[-1].replace(",", ""))
    monkeypatch.setenv("KANAB_OWN_ROWS", "gated")
    done = program("analyze", visits, "--arm", "tier", "--metric", "bought", "--arms", "1,2")
    assert "tier: " in done.out
    assert "people are in no arm of the plan and are left out." in done.out
    left = int(done.out.split("At least ")[1].split(" people")[0].replace(",", ""))
    assert left == exact // 10 * 10 > 0


ARM_MISTAKES = {
    "a foreign share": (
        ("--shares", "A=1,B=1,C=1"),
        "fewer than two people are in an arm of variant (C): nothing can be compared with it. Wait for more",
    ),
    "another case": (
        ("--shares", "a=1,b=1"),
        "nobody is in an arm of the plan. Declared: a, b. Column 'variant' holds: A, B.",
    ),
    "arms that are none": (("--arms", "x,y"), "Declared: x, y. Column 'variant' holds: A, B."),
    "one arm": (("--arms", "A"), "experiments.variant.arms must name at least two arms"),
    "other shares": (
        ("--arms", "A,B", "--shares", "A=1,C=1"),
        "--arms and --shares name different arms. Give a share to each arm that is counted.",
    ),
    "an unknown control": (("--control", "C"), "unknown arm of 'variant'. It has: A, B.\n"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("flags", "told"), ARM_MISTAKES.values(), ids=ARM_MISTAKES)
def test_a_mistaken_arm_is_told_by_names_that_may_be_shown(
    strays: str, program: Program, flags: tuple[str, ...], told: str
) -> None:
    done = program("analyze", strays, *FLAGS, *flags)
    assert done.code in (1, 2)
    assert told in done.err
    assert "slip" not in done.err


@pytest.mark.slow
def test_arms_and_shares_may_say_the_same(visits: str, program: Program) -> None:
    done = program("analyze", visits, *FLAGS, "--arms", "A,B", "--shares", "A=1,B=1")
    assert "People arrived in the planned shares" in done.out


@pytest.mark.slow
def test_a_release_of_some_arms_is_read_back_with_them(strays: str, tmp_path: Path, program: Program) -> None:
    done = program("release", strays, *FLAGS, "--arms", "A,B", "-o", str(tmp_path / "out.json"), "--new-ledger")
    assert done.code == 0, done.err
    released = kb.read_release(tmp_path / "out.json")
    assert released.plan.experiment().only == ("A", "B")
    assert program("audit", str(tmp_path / "out.json")).code == 0
    assert "1,994 people" in program("analyze", str(tmp_path / "out.json")).out


def test_arms_are_an_argument_in_python(people: dict[str, Any]) -> None:
    rows = people | {"variant": ["slip"] * 6 + people["variant"][6:]}
    assert sum(kb.readout(rows, arm="variant", metrics=["bought"], arms=["A", "B"]).arms.values()) == 1_994
    with pytest.raises(kb.errors.ArgumentError, match=r"arms of readout\(\) must be a list or a dict, not a str\. For"):
        kb.readout(rows, arm="variant", metrics=["bought"], arms="A,B")


# ── a second table ─────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def regions(tmp_path: Path) -> str:
    """Regions of all but the last hundred people."""
    ids = list(range(1_900))
    return write_csv(tmp_path / "regions.tsv", {"user_id": ids, "region": ["north", "south"] * 950}, sep="\t")


def test_two_files_are_pointed_to_a_join(visits: str, regions: str, program: Program) -> None:
    done = program("analyze", visits, regions, *FLAGS)
    assert done.code == 2
    assert "'visits-*.parquet'" in done.err
    assert "is joined: --join countries.csv --on user_id." in done.err


@pytest.mark.slow
def test_a_second_file_is_joined_and_who_is_not_in_it_has_a_missing_level(
    visits: str, regions: str, program: Program
) -> None:
    flags = ("--join", regions, "--on", "user_id", "--segment", "region", "--json")
    data = json.loads(program("analyze", visits, *FLAGS, *flags).out)
    assert data["people"] == 2_000
    people = {row["level"]: row["people_control"] + row["people_arm"] for row in data["segment_effects"]}
    assert people == {"north": 950, "south": 950, "missing": 100}


@pytest.mark.slow
def test_filters_and_units_see_the_joined_columns(visits: str, regions: str, program: Program) -> None:
    flags = ("--join", regions, "--on", "user_id", "--where", "region = 'north'", "--unit", "user_id")
    done = program("analyze", visits, *FLAGS, *flags)
    assert "variant: 950 people" in done.out


JOIN_MISTAKES: dict[str, tuple[dict[str, list[Any]], str]] = {
    "twice": (
        {"user_id": [1, 1, 2], "region": ["n", "s", "n"]},
        "the joined table has several rows with one user_id. Give each once",
    ),
    "nobody": ({"user_id": [-1], "region": ["n"]}, "no user_id of the joined table is in the source."),
    "a column twice": ({"user_id": [1], "tier": [1]}, "both tables have a column tier. Rename or remove it"),
    "another kind": (
        {"user_id": ["u1"], "region": ["n"]},
        "'user_id' holds texts in one table and numbers in the other. Write it alike in both",
    ),
    "no key": ({"user": [1], "region": ["n"]}, "there is no column 'user_id'. Did you mean user?"),
}


@pytest.mark.parametrize(("rows", "told"), JOIN_MISTAKES.values(), ids=JOIN_MISTAKES)
def test_a_table_that_cannot_be_joined_says_why(
    visits: str, tmp_path: Path, program: Program, rows: dict[str, list[Any]], told: str
) -> None:
    other = write_csv(tmp_path / "other.csv", rows)
    done = program("analyze", visits, *FLAGS, "--join", other, "--on", "user_id")
    assert done.code == 2
    assert told in done.err


def test_a_join_needs_both_of_its_flags(visits: str, program: Program) -> None:
    done = program("analyze", visits, *FLAGS, "--join", visits)
    assert "a join needs a second table and the column that both name alike. Give join=… and on=… (--join" in done.err


def test_frames_are_joined_in_python(people: dict[str, Any]) -> None:
    regions = {"user_id": list(range(2_000)), "region": ["north", "south"] * 1_000}
    made = kb.count(
        people, arm="variant", metrics=["bought"], segments=["region"], rows=kb.Rows(join=regions, on="user_id")
    )
    whole = kb.count(people | {"region": regions["region"]}, arm="variant", metrics=["bought"], segments=["region"])
    assert made.tallies["variant/region"].to_dict() == whole.tallies["variant/region"].to_dict()


# ── what is said in vain ───────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [
        ("--arm", "variant"), ("--where", "tier = 1"), ("--unit", "user_id"), ("--sql", "SELECT 1"), ("--sep", ";"),
        ("--join", "regions.csv"), ("--shares", "A=1,B=1"), ("--arms", "A,B"), ("--bounds", "bought=0:1"),
        ("--segment", "device"), ("--show-sql",),
    ],
)  # fmt: skip
def test_a_release_takes_no_flag_that_says_what_to_count(
    visits: str, tmp_path: Path, program: Program, flags: tuple[str, ...]
) -> None:
    out = str(tmp_path / "out.json")
    assert program("release", visits, *FLAGS, "--no-ledger", "-o", out).code == 0
    done = program("analyze", out, *flags)
    assert (done.code, done.out) == (2, "")
    assert f"a release already says what was counted. Leave out {flags[0]}." in done.err
    assert program("analyze", out, "--control", "B").code == 0


def test_a_file_of_a_header_alone_has_no_rows(tmp_path: Path, program: Program) -> None:
    (tmp_path / "empty.csv").write_text("variant,bought\n", encoding="utf-8")
    done = program("analyze", str(tmp_path / "empty.csv"), *FLAGS)
    assert "there are no rows to count. Check the file, the query or the filter." in done.err


def test_half_a_level_cannot_be_kept(visits: str, program: Program) -> None:
    done = program("analyze", visits, *FLAGS, "--adjust", "country", "--top", "country=2.5")
    assert "--top must be a whole number, at least 1. For example --top country=20." in done.err


def test_rows_in_a_json_file_are_no_release(people: dict[str, Any], tmp_path: Path, program: Program) -> None:
    names = ("variant", "bought")
    rows = [dict(zip(names, row, strict=True)) for row in zip(*(people[name] for name in names), strict=True)]
    (tmp_path / "rows.json").write_text(json.dumps(rows), encoding="utf-8")
    assert "variant: 2,000 people" in program("analyze", str(tmp_path / "rows.json"), *FLAGS).out
    assert "Give --arm and --metric" in program("analyze", str(tmp_path / "rows.json")).err


def test_a_directory_is_no_source(tmp_path: Path, program: Program) -> None:
    done = program("analyze", str(tmp_path), *FLAGS)
    assert f"'{tmp_path.name}' is a directory" in done.err or f"{tmp_path.name} is a directory" in done.err


@pytest.mark.parametrize(
    "flags",
    [("--bin", "age=5"), ("--top", "country=3"), ("--resolution", "spend=1"), ("--missing", "spend=zero"),
     ("--min-events", "bought=10"),
     ("--adjust", "device"), ("--segment", "device"), ("--metric", "spend")],
)  # fmt: skip
def test_single_choices_beside_a_plan_are_an_error_not_ignored(
    flags: tuple[str, str], tmp_path: Path, program: Program
) -> None:
    (tmp_path / "kanab.toml").write_text("[metrics]\nbought = {}\n[experiments.variant]\n", encoding="utf-8")
    done = program("analyze", "visits.csv", "--plan", str(tmp_path / "kanab.toml"), *flags)
    assert done.code == 2
    assert done.err == f"kanab: --plan and {flags[0]} contradict each other. Change the plan file instead.\n"
