from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.described import as_values

import kanab as kb
from kanab.cli.attack import attack
from kanab.datasets import shop_rows
from kanab.description import Mean
from kanab.errors import KanabError, SourceError
from kanab.inspection.attack.run import DOES
from kanab.plan.model import make_plan
from kanab.privacy.release_json import release_to_dict
from kanab.scan.scan import scan_interactions

ROWS = shop_rows(1_003, 7)


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(attack, arguments)
    if isinstance(result.exception, KanabError):
        raise result.exception
    return result


def release_file(path: Path, people: int = 1_003) -> str:
    rows = {name: values[:people] for name, values in ROWS.items()}
    bounds, resolution = {"spend": (0, 500), "bought": (0, 1)}, {"spend": 0.01, "bought": 1}
    plan = make_plan(
        "variant",
        **as_values(
            "make_plan", metrics=["bought", "spend"], segments=["tier", "country"], bounds=bounds, resolution=resolution
        ),
    )
    path.write_text(json.dumps(release_to_dict(kb.release(kb.count(rows, plan)))), encoding="utf-8")
    return str(path)


@pytest.fixture
def ours(tmp_path: Path) -> str:
    return release_file(tmp_path / "ours.release.json")


@pytest.fixture
def people(tmp_path: Path) -> str:
    file = tmp_path / "people.csv"
    names = ("variant", "tier", "country", "prior_spend")
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(names)
        writer.writerows(zip(*(ROWS[name].tolist() for name in names), strict=True))
    return str(file)


def test_a_release_of_ours_gives_nothing_away_and_exits_with_0(ours: str) -> None:
    done = run(ours)
    assert done.exit_code == 0
    assert done.output.startswith("Attacked: ours.release.json. The rule to break: k = 10.")
    assert "differences: learnt nothing" in done.output
    assert "leverage: not tried" in done.output
    assert "(--known)" in done.output
    assert "Nothing was learnt about fewer than 10 people." in done.output


def test_what_the_attacker_knows_about_people_is_read_from_a_csv_file(ours: str, people: str) -> None:
    done = run(ours, "--known", people)
    assert done.exit_code == 0
    assert "leverage: learnt nothing" in done.output
    assert re.findall(r"(.+): not tried", done.output) == ["contributors", "several metrics"]


def test_values_that_the_attacker_knows_are_read_from_the_same_file(tmp_path: Path, ours: str) -> None:
    file = tmp_path / "people.csv"
    names = ("variant", "tier", "country", "bought", "spend")
    lines = zip(*(ROWS[name].tolist() for name in names), strict=True)
    file.write_text("\n".join([",".join(names), *(",".join(map(str, line)) for line in lines)]), encoding="utf-8")
    done = run(ours, "--known", str(file))
    assert done.exit_code == 0, done.output
    assert "not tried" not in done.output
    assert "contributors: learnt nothing" in done.output


def test_two_cuts_of_growing_data_exit_with_1(tmp_path: Path, ours: str) -> None:
    done = run(release_file(tmp_path / "earlier.release.json", 1_000), ours)
    assert done.exit_code == 1
    assert "differences: LEARNT" in done.output
    assert "earlier.release.json → ours.release.json, variant/country: variant = " in done.output
    assert done.output.rstrip().endswith("the worst is about one person.")


def test_batches_of_cohorts_are_not_subtracted(tmp_path: Path) -> None:
    files = []
    for name, people in (("a", 1_000), ("b", 1_003)):
        file = Path(release_file(tmp_path / f"{name}.json", people))
        data = json.loads(file.read_text())
        data["receipt"]["cohorts"] = f"batch {name}"
        file.write_text(json.dumps(data))
        files.append(str(file))
    assert run(*files).exit_code == 0


def test_a_file_that_the_gate_would_refuse_is_read_and_broken(tmp_path: Path, ours: str) -> None:
    data = json.loads(Path(ours).read_text())
    data["tables"]["variant/tier"]["classes"][0]["people"] = 4
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(data))
    with pytest.raises(KanabError):
        kb.read_release(changed)
    done = run(str(changed))
    assert done.exit_code == 1
    assert "small classes: LEARNT one thing" in done.output
    assert "variant = A, tier = 1 holds 4 people" in done.output


def test_files_of_the_same_name_are_told_apart_by_their_paths(tmp_path: Path) -> None:
    for folder in ("mon", "tue"):
        (tmp_path / folder).mkdir()
    files = [release_file(tmp_path / folder / "r.json") for folder in ("mon", "tue")]
    assert json.loads(run(*files, "--json").output)["releases"] == files


def test_json_holds_every_finding(ours: str) -> None:
    data = json.loads(run(ours, "--json").output)
    assert data["broken"] is False
    assert data["releases"] == ["ours.release.json"]
    assert len(data["attacks"]) == len(DOES)
    assert all(one["findings"] == [] for one in data["attacks"])


def test_a_scan_is_said_not_to_be_attacked(tmp_path: Path, ours: str) -> None:
    users = {name: ROWS[name] for name in ("variant", "spend")} | {"banner": ROWS["tier"] % 2}
    shared = scan_interactions(
        users,
        ["variant", "banner"],
        [Mean("spend", bounds=(0, 500), resolution=0.01)],
        ledger=tmp_path / "kanab.ledger",
        new_ledger=True,
    )
    (tmp_path / "scan.json").write_text(json.dumps(shared.to_dict()), encoding="utf-8")
    with pytest.raises(SourceError, match=r"this is a scan, and attacks do not solve F statistics - at scan\.json"):
        run(ours, str(tmp_path / "scan.json"))


def test_another_k_is_another_rule(ours: str) -> None:
    done = run(ours, "--k", "200")
    assert done.exit_code == 1
    assert "The rule to break: k = 200." in done.output


def test_a_file_is_needed() -> None:
    assert run().exit_code == 2


def test_files_that_cannot_be_read_are_said_by_name(tmp_path: Path, ours: str) -> None:
    wrong = tmp_path / "wrong.json"
    cases: list[tuple[bytes, str]] = [
        (b"{", "wrong.json is not a JSON file"),
        (b"\xff\xfe", "wrong.json is not UTF-8 text"),
        (b"[]", "this is not a release - at wrong.json"),
        (b'{"tables": {"t": 1}}', r"a table cannot be read - at wrong.json \$.tables.t"),
    ]
    for content, fact in cases:
        wrong.write_bytes(content)
        with pytest.raises(SourceError, match=fact):
            run(str(wrong))
    with pytest.raises(SourceError, match=r"there is no file 'gone.json'"):
        run(str(tmp_path / "gone.json"))
    with pytest.raises(SourceError, match="is not the data directory of a collector"):
        run(str(tmp_path))
    people = tmp_path / "people.csv"
    for text in ("", "variant,tier\n", "variant,tier\nA\n"):
        people.write_text(text)
        with pytest.raises(SourceError, match=r"people.csv is not a table of people"):
            run(ours, "--known", str(people))


def test_people_who_are_not_those_of_the_release_are_said_to_be_others(tmp_path: Path, ours: str) -> None:
    people = tmp_path / "people.csv"
    people.write_text("variant,tier,country\nA,1,DE\n,2,\n")
    done = run(ours, "--known", str(people))
    assert "The people who are known do not add up to any of the tables." in done.output


def test_a_ledger_is_attacked_as_all_of_its_releases_together(tmp_path: Path) -> None:
    bounds, resolution, earlier = {"spend": (0, 500)}, {"spend": 0.01}, []
    for covariate in ("tier", "device"):
        plan = make_plan(
            "variant",
            **as_values("make_plan", metrics=["spend"], segments=[covariate], bounds=bounds, resolution=resolution),
        )
        counted = kb.count(ROWS, plan, earlier=earlier)
        kb.release(counted, ledger=str(tmp_path / "kanab.ledger"), new_ledger=not earlier)
        earlier.append(plan)
    done = run(str(tmp_path / "kanab.ledger"))
    assert done.output.startswith("Attacked: kanab.ledger, entry 1, kanab.ledger, entry 2.")
    assert done.exit_code == 0
