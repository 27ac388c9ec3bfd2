"""What somebody reads who mistypes a flag: each sentence says what is wrong, and what to write instead."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.approved import assert_approved
from tests.unit.cli.program import Program, transcript

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


@pytest.fixture(autouse=True)
def _beside_them(visits: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(visits).parent)
    Path("kanab.toml").write_text("[metrics]\nbought = {}\n[experiments.variant]\n", encoding="utf-8")
    Path("empty.csv").write_text("variant,bought\n", encoding="utf-8")


MISTAKES = """
visits.csv --shares A=1
visits.csv --shares 1:1
visits.csv --shares A
visits.csv --shares A=half,B=half
visits.csv --shares A=50%,B=1
visits.csv --shares A=50%,B=40%
visits.csv --shares A=0.5,B=0.4
visits.csv --shares A=50%,A=50%
visits.csv --shares A=1,B=-1
visits.csv --adjust tier --bin tier=x
visits.csv --adjust tier --bin tier=2.5
visits.csv --bounds spend=5
visits.csv --resolution spend=x
visits.csv --confidence 95
visits.csv --control Z
visits.csv --adjust country --top country=2000
visits.csv --adjust country --top country=2.5
visits.csv --top country=3
visits.csv --metric variant
visits.csv --metric device
visits.csv --arm varian
visits.csv --adjust bought
visits.csv --metric spend --bin spend=0:10:20 --quantile sepnd=0.5
visits.csv --adjust tier --missing tier=zero
visits.csv --treatment-received bought
visits.csv --window 7d
visits.csv --events visits.csv --unit user_id --window 0d
visits.csv --events visits.csv --unit user_id
visits.csv --events visits.csv --window 7d
visits.csv --table a --exposures b
visits.csv --where "from = 1"
visits.csv --where "contry = 'US'"
visits.csv --where 'device = "phone"'
visits.csv --where "device = = 1"
visits.csv --join visits.csv
visits.csv --adjust user_id
visits.csv --arm user_id
visits.csv visits.csv
empty.csv
nothing.csv
nothing.json
.
postgresql://localhost:1/shop --table t
"""


@pytest.mark.slow
def test_a_mistaken_flag_is_told_with_what_to_write(program: Program) -> None:
    said = transcript(program, f"analyze {' '.join(FLAGS)}", MISTAKES)
    assert_approved("cli/analyze_mistakes.txt", said)
    assert "2,000" not in said.replace("country=2000", "")  # how many levels there are


BESIDE_A_PLAN = """
--bin age=5
--top country=3
--resolution spend=1
--missing spend=zero
--min-events bought=10
--adjust device
--segment device
--metric spend
"""


def test_single_choices_beside_a_plan_are_an_error_not_ignored(program: Program) -> None:
    assert_approved("cli/beside_a_plan.txt", transcript(program, "analyze visits.csv --plan kanab.toml", BESIDE_A_PLAN))


@pytest.mark.slow
@pytest.mark.parametrize("shares", ["A=50%,B=50%", "A=0.5,B=0.5", "A=50,B=50"])
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


@pytest.mark.slow
def test_reserved_words_and_a_leading_where_are_read(visits: str, program: Program) -> None:
    for where in ('"from" = 1', "group = 1", 'WHERE tier > 0 AND "group" = 1'):
        assert "variant: 1,000 people" in program("analyze", visits, *FLAGS, "--where", where).out


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


ARM_MISTAKES = """
--shares A=1,B=1,C=1
--shares a=1,b=1
--arms x,y
--arms A
--arms A,B --shares A=1,C=1
--control C
"""


@pytest.mark.slow
def test_a_mistaken_arm_is_told_by_names_that_may_be_shown(
    strays: str, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(strays).parent)
    said = transcript(program, f"analyze visits.csv {' '.join(FLAGS)}", ARM_MISTAKES)
    assert_approved("cli/arm_mistakes.txt", said)
    assert "slip" not in said


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


JOIN_MISTAKES: list[dict[str, list[Any]]] = [
    {"user_id": [1, 1, 2], "region": ["n", "s", "n"]},
    {"user_id": [-1], "region": ["n"]},
    {"user_id": [1], "tier": [1]},
    {"user_id": ["u1"], "region": ["n"]},
    {"user": [1], "region": ["n"]},
]


def test_a_table_that_cannot_be_joined_says_why(program: Program) -> None:
    said = []
    for rows in JOIN_MISTAKES:
        write_csv(Path("other.csv"), rows)
        said += [str(rows), program("analyze", "visits.csv", *FLAGS, "--join", "other.csv", "--on", "user_id").err]
    assert_approved("cli/join_mistakes.txt", "\n".join(said))


def test_frames_are_joined_in_python(people: dict[str, Any]) -> None:
    regions = {"user_id": list(range(2_000)), "region": ["north", "south"] * 1_000}
    made = kb.count(
        people, arm="variant", metrics=["bought"], segments=["region"], rows=kb.Rows(join=regions, on="user_id")
    )
    whole = kb.count(people | {"region": regions["region"]}, arm="variant", metrics=["bought"], segments=["region"])
    assert made.tallies["variant/region"].to_dict() == whole.tallies["variant/region"].to_dict()


# ── what is said in vain ───────────────────────────────────────────────────────────────────────


COUNTING = ("--arm variant", "--where x", "--unit user_id", "--sep ;", "--shares A=1", "--segment device", "--show-sql")


@pytest.mark.slow
def test_a_release_takes_no_flag_that_says_what_to_count(tmp_path: Path, program: Program) -> None:
    out = str(tmp_path / "out.json")
    assert program("release", "visits.csv", *FLAGS, "--no-ledger", "-o", out).code == 0
    for flags in COUNTING:
        done = program("analyze", out, *flags.split())
        assert (done.code, done.out) == (2, "")
        assert f"a release already says what was counted. Leave out {flags.split()[0]}." in done.err
    assert program("analyze", out, "--control", "B").code == 0


def test_rows_in_a_json_file_are_no_release(people: dict[str, Any], tmp_path: Path, program: Program) -> None:
    names = ("variant", "bought")
    rows = [dict(zip(names, row, strict=True)) for row in zip(*(people[name] for name in names), strict=True)]
    (tmp_path / "rows.json").write_text(json.dumps(rows), encoding="utf-8")
    assert "variant: 2,000 people" in program("analyze", str(tmp_path / "rows.json"), *FLAGS).out
    assert "Give --arm and --metric" in program("analyze", str(tmp_path / "rows.json")).err
