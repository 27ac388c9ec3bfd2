import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.approved import assert_approved
from tests.described import as_values
from tests.unit.cli.program import Program, transcript

import kanab as kb
from kanab.cli.main import cli
from kanab.datasets import shop_rows
from kanab.description import Mean
from kanab.errors import KanabError, SourceError
from kanab.plan.model import make_plan
from kanab.privacy.release_json import release_to_dict
from kanab.scan.scan import scan_interactions

ROWS = shop_rows(1_003, 7)


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, ["attack", *arguments])
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


ATTACKED = """
ours.release.json
ours.release.json --known people.csv
ours.release.json --known strangers.csv
ours.release.json --k 200
earlier.release.json ours.release.json
changed.json
"""


def test_a_release_of_ours_gives_nothing_away_and_exits_with_0(
    tmp_path: Path, ours: str, people: str, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    release_file(tmp_path / "earlier.release.json", 1_000)
    (tmp_path / "strangers.csv").write_text("variant,tier,country\nA,1,DE\n,2,\n")
    data = json.loads(Path(ours).read_text())
    data["tables"]["variant/tier"]["classes"][0]["people"] = 4
    (tmp_path / "changed.json").write_text(json.dumps(data))
    with pytest.raises(KanabError):
        kb.read_release(tmp_path / "changed.json")
    assert_approved("cli/attack.txt", transcript(program, "attack", ATTACKED))


def test_values_that_the_attacker_knows_are_read_from_the_same_file(tmp_path: Path, ours: str) -> None:
    file = tmp_path / "people.csv"
    names = ("variant", "tier", "country", "bought", "spend")
    lines = zip(*(ROWS[name].tolist() for name in names), strict=True)
    file.write_text("\n".join([",".join(names), *(",".join(map(str, line)) for line in lines)]), encoding="utf-8")
    done = run(ours, "--known", str(file))
    assert done.exit_code == 0, done.output
    assert "not tried" not in done.output
    assert "contributors: learnt nothing" in done.output


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
