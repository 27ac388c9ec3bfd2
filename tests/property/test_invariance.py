"""What may not change what: no output byte depends on what was refused, is not ripe, or was withheld.

Everything runs through the real command line, in a folder of its own, and is compared byte by byte:
standard output, standard error, exit code and every file. Most runs read their CSV file without an
engine, which is quicker; what an engine makes of the same file is the same, byte by byte. The salt of a
release is random; here it is always the same.
"""

import contextlib
import csv
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
from tests.described import as_values

import kanab as kb
from kanab.cli.main import main
from kanab.inspection.auditor import check_release
from kanab.plan.model import ExperimentPlan, MetricPlan, Plan
from kanab.privacy.release_json import release_to_dict

Rows = dict[str, np.ndarray]
Change = Callable[[Rows, np.random.Generator], Rows]

PLAN = """
[metrics]
spend = { bounds = [0, 500], resolution = 0.01 }
rating = { bounds = [1, 5], resolution = 0.001, missing = "exclude" }
bought = { kind = "binary" }
[covariates]
device = ["phone", "desktop", "tablet"]
tier = [1, 2, 3, 4]
[experiments.variant]
arms = { A = 1, B = 1 }
adjust = ["device"]
segments = ["tier"]
[cohorts]
every = "7d"
window = "7d"
"""
RELEASE = ("release", "people.csv", "--plan", "plan.toml", "-o", "out.json", "--new-ledger")
COHORTS = (*RELEASE, "--cohort", "enrolled", "--as-of")
LATER = tuple(word for word in COHORTS if word != "--new-ledger")
FLAGS = ("release", "people.csv", "--arm", "variant", "--metric", "bought", "-o", "out.json", "--new-ledger")


@pytest.fixture(autouse=True)
def _one_salt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda size: "00" * size)


class Outcome(NamedTuple):
    """Everything that a command leaves behind."""

    code: int
    out: str
    err: str
    files: dict[str, bytes]


def people(n: int = 600, seed: int = 1) -> Rows:
    """Four weeks from Monday 2026-09-07 on, all values of spend and rating different."""
    rng = np.random.default_rng(seed)
    rating = np.round(rng.uniform(1, 5, n), 3)
    return {
        "variant": rng.choice(["A", "B"], n),
        "device": rng.choice(["phone", "desktop", "tablet"], n, p=[0.5, 0.3, 0.2]),
        "tier": rng.choice([1, 2, 3, 4], n, p=[0.4, 0.3, 0.2, 0.1]),
        "spend": np.round(rng.gamma(2, 20, n), 2),
        "rating": np.where(rng.random(n) < 0.3, np.nan, rating),
        "bought": (rng.random(n) < 0.4).astype(int),
        "enrolled": np.array([f"2026-{9 + d // 24:02d}-{d % 24 + 7:02d}" for d in rng.integers(0, 24, n)]),
    }


def few_in_b(n: int = 300, few: int = 7, seed: int = 1) -> Rows:
    """An arm below k."""
    rows = people(n, seed)
    return rows | {"variant": np.array(["A"] * (n - few) + ["B"] * few)}


def write(folder: Path, rows: Mapping[str, np.ndarray]) -> None:
    with (folder / "people.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(rows)
        columns = [["" if str(value) == "nan" else value for value in column.tolist()] for column in rows.values()]
        writer.writerows(zip(*columns, strict=True))


def left_behind(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.iterdir())
        if path.name not in ("people.csv", "plan.toml")
    }


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def run(folder: Path, rows: Mapping[str, np.ndarray], *words: str, engine: bool = False) -> Outcome:
    """A command over some people, as a shell would see it."""
    write(folder, rows)
    (folder / "plan.toml").write_text(PLAN, encoding="utf-8")
    out, err, code = io.StringIO(), io.StringIO(), 0
    argv, sys.argv = sys.argv, ["kanab", *words]
    try:
        with (
            inside(folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            patch("kanab.counting.dispatch._installed", lambda _: engine),
        ):
            main()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.argv = argv
    return Outcome(code, out.getvalue(), err.getvalue(), left_behind(folder))


def fresh(tmp_path: Path, ledger: bytes | None = None) -> Path:
    folder = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
    folder.mkdir()
    if ledger is not None:
        (folder / "kanab.ledger").write_bytes(ledger)
    return folder


# ── changes ────────────────────────────────────────────────────────────────────────────────────


def other_values(rows: Rows, rng: np.random.Generator) -> Rows:
    """One person, or everybody, spends something else, beyond the bounds too; ratings come and go."""
    n = len(rows["spend"])
    who = rng.choice(n, rng.choice([1, n // 2, n]), replace=False)
    spend, rating, bought = rows["spend"].copy(), rows["rating"].copy(), rows["bought"].copy()
    spend[who] = np.round(rng.uniform(-100, 10_000, len(who)), 2)
    rating[who] = np.where(rng.random(len(who)) < 0.5, np.nan, np.round(rng.uniform(0, 9, len(who)), 3))
    bought[who] = 1 - bought[who]
    return rows | {"spend": spend, "rating": rating, "bought": bought}


def other_levels(rows: Rows, rng: np.random.Generator) -> Rows:
    """Some people are of other levels."""
    who = rng.choice(len(rows["tier"]), 20, replace=False)
    device, tier = rows["device"].copy(), rows["tier"].copy()
    device[who], tier[who] = rng.choice(["phone", "desktop", "tablet"], 20), rng.choice([1, 2, 3, 4], 20)
    return rows | {"device": device, "tier": tier}


def without(rows: Rows, rng: np.random.Generator) -> Rows:
    """Somebody leaves."""
    kept = np.arange(len(rows["tier"])) != rng.integers(len(rows["tier"]))
    return {name: column[kept] for name, column in rows.items()}


def in_arm(arm: str) -> Change:
    """Somebody else enrolls."""

    def change(rows: Rows, rng: np.random.Generator) -> Rows:
        who = rng.integers(len(rows["tier"]))
        one = {name: column[[who]] for name, column in rows.items()} | {"variant": np.array([arm])}
        return {name: np.concatenate([column, one[name]]) for name, column in rows.items()}

    return change


MEMBERS: tuple[Change, ...] = (other_levels, without, in_arm("A"), in_arm("B"), in_arm("A"))


# ── a refused batch ────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("gated")
@pytest.mark.parametrize(
    "words",
    [
        RELEASE,
        (*RELEASE[:-1], "--no-ledger"),
        (*COHORTS, "2026-12-01"),
        FLAGS,
        ("analyze", "people.csv", *RELEASE[2:4]),
    ],
    ids=["release", "no ledger", "cohorts", "bounds from the data", "analyze"],
)
def test_where_an_arm_is_below_k_no_byte_depends_on_values_or_people(tmp_path: Path, words: tuple[str, ...]) -> None:
    rng = np.random.default_rng(4)
    first = run(fresh(tmp_path), few_in_b(), *words)
    assert set(first.files) == ({"kanab.ledger"} if "--new-ledger" in words else set())  # with a note of the refusal
    assert first._replace(files={}) == Outcome(
        1,
        "",
        "kanab: an arm of variant holds fewer than k = 10 people. "
        + (
            "Wait for more people, or give the arm a larger share.\n"
            if words == FLAGS
            else "Declared as B: wait for more people, or leave out what is no arm of it (--shares, --arms).\n"
        ),
        {},
    )
    for few in (1, 4, 9):
        assert run(fresh(tmp_path), other_values(few_in_b(few=few), rng), *words) == first
    for change in MEMBERS:
        assert run(fresh(tmp_path), change(few_in_b(few=5), rng), *words) == first
    assert run(fresh(tmp_path), other_values(few_in_b(few=8), rng), *words, engine=True) == first


def test_where_an_earlier_release_comes_out_differently_no_byte_tells_how(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    rows = people()
    once = run(fresh(tmp_path), rows, *RELEASE)
    ledger = once.files["kanab.ledger"]
    again = (*RELEASE[:-2], "more.json")
    found = set()
    for change in (other_values, other_values, other_levels, *MEMBERS):
        outcome = run(fresh(tmp_path, ledger), change(rows, rng), *again)
        assert outcome.files["kanab.ledger"].startswith(ledger)
        found.add((outcome.code, outcome.out, outcome.err, *outcome.files.items()))
    assert [answer[:3] for answer in found] == [
        (
            1,
            "",
            "kanab: an earlier release of the ledger comes out differently now: people or values have changed. "
            "Release growing data by cohorts (--cohort), and other people into another ledger (--ledger).\n",
        )
    ]
    same = run(fresh(tmp_path, ledger), rows, *again)
    assert same.code == 0
    assert set(same.files) == {"kanab.ledger", "more.json"}
    assert run(fresh(tmp_path, ledger), rows, *again, engine=True) == same


def test_a_small_arm_is_told_before_anything_that_values_decide(tmp_path: Path) -> None:
    """With a ledger whose tables come out differently as well, and bounds that only values could tell."""
    rng = np.random.default_rng(6)
    rows = people() | {"second": np.array(["on"] * 595 + ["off"] * 5)}
    ledger = run(fresh(tmp_path), rows, *FLAGS).files["kanab.ledger"]
    words = ("release", "people.csv", "--arm", "second", "--metric", "bought,spend", "-o", "more.json")
    first = run(fresh(tmp_path, ledger), rows, *words)
    assert first.err.startswith("kanab: an arm of second holds fewer than k = 10 people.")
    whole = rows | {"spend": np.round(rows["spend"] > 30).astype(int)}
    for other in (other_values(rows, rng), whole):
        assert run(fresh(tmp_path, ledger), other, *words) == first


# ── cohorts that are not ripe, and cohorts that are sealed ─────────────────────────────────────


def weeks(rows: Rows, *, ripe: bool, through: str) -> np.ndarray:
    return (rows["enrolled"] <= through) == ripe


def changed_where(rows: Rows, where: np.ndarray, rng: np.random.Generator) -> Rows:
    """Everything about some people is different, some are gone and others have come."""
    part = {name: column[where] for name, column in rows.items()}
    for change in (other_values, other_levels, without, without, in_arm("A"), in_arm("B")):
        part = change(part, rng)
    part["variant"] = rng.choice(["A", "B", "C", ""], len(part["tier"]))
    rest = {name: column[~where] for name, column in rows.items()}
    both = {name: np.concatenate([rest[name], part[name].astype(rest[name].dtype)]) for name in rows}
    order = rng.permutation(len(both["tier"]))
    return {name: column[order] for name, column in both.items()}


@pytest.mark.slow
def test_what_enrolled_after_the_ripe_cohorts_changes_no_byte(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    rows = people()
    first = run(fresh(tmp_path), rows, *COHORTS, "2026-09-28")
    assert first.code == 0
    assert "People who enrolled through 2026-W38." in first.out
    for _ in range(4):
        other = changed_where(rows, weeks(rows, ripe=False, through="2026-09-20"), rng)
        assert run(fresh(tmp_path), other, *COHORTS, "2026-09-28") == first
    assert run(fresh(tmp_path), other, *COHORTS, "2026-09-28", engine=True) == first


@pytest.mark.slow
def test_late_rows_and_later_changes_of_sealed_cohorts_change_no_byte(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    rows = people()
    ledger = run(fresh(tmp_path), rows, *COHORTS, "2026-09-28").files["kanab.ledger"]
    second = run(fresh(tmp_path, ledger), rows, *LATER, "2026-10-12")
    assert second.code == 0
    assert "People who enrolled after 2026-W38 and through 2026-W40." in second.out
    for _ in range(4):
        other = changed_where(rows, weeks(rows, ripe=True, through="2026-09-20"), rng)
        assert run(fresh(tmp_path, ledger), other, *LATER, "2026-10-12") == second
    assert run(fresh(tmp_path, ledger), other, *LATER, "2026-10-12", engine=True) == second


def test_before_a_further_cohort_is_ripe_nothing_is_even_counted(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    rows = people()
    ledger = run(fresh(tmp_path), rows, *COHORTS, "2026-09-28").files["kanab.ledger"]
    first = run(fresh(tmp_path, ledger), rows, *LATER, "2026-10-01")
    assert (first.code, first.files) == (1, {"kanab.ledger": ledger})
    assert first.err.startswith("kanab: no further cohort is ripe.")
    for change in (other_values, other_levels, *MEMBERS):
        assert run(fresh(tmp_path, ledger), change(rows, rng), *LATER, "2026-10-01") == first


# ── what was withheld ──────────────────────────────────────────────────────────────────────────


def test_products_of_two_metrics_are_withheld_where_one_person_has_only_one_of_the_values() -> None:
    rng = np.random.default_rng(3)
    rows: Rows = {"variant": np.array(["A", "B"] * 500)}
    rows |= {"y": np.round(rng.gamma(2, 10, 1000), 2), "z": np.round(rng.gamma(2, 3, 1000), 2)}
    rows["y"][:300], rows["z"][:150], rows["z"][300] = np.nan, np.nan, np.nan
    parts = MetricPlan("y", (0, 500), 0.01, missing="exclude"), MetricPlan("z", (0, 50), 0.01, missing="exclude")
    arms = ExperimentPlan("variant", (("A", 1.0), ("B", 1.0)))
    plan = Plan((*parts, MetricPlan("y/z", ratio=("y", "z"))), (arms,))
    found = kb.release(kb.count(rows, plan))
    table = found.tables["variant"]
    assert [metric.name for metric in table.metrics] == ["y", "z"]
    assert table.crosses == ()
    why = "fewer than k people could be told by them"
    assert found.receipt.left_out == {"variant: y and z": f"products of y and z are withheld in variant: {why}"}
    forged = replace(found, tables=kb.count(rows, plan).tallies)
    assert [one.rule for one in check_release(found) if one.holds is False] == []
    assert [one.rule for one in check_release(forged) if one.holds is False] == ["k"]
    enough = rows | {"z": np.where(np.isnan(rows["y"]), np.nan, np.nan_to_num(rows["z"], nan=1.0).clip(0, 12))}
    assert len(kb.release(kb.count(enough, plan)).tables["variant"].crosses) == 1


# ── the same people ────────────────────────────────────────────────────────────────────────────


def swapped(rows: Rows, rng: np.random.Generator) -> Rows:
    """Everybody's values go to somebody in the same classes, who has a rating as well or has none as well."""
    own = (rows["variant"], rows["device"], rows["tier"], np.isnan(rows["rating"]))
    here = np.array(["|".join(map(str, classes)) for classes in zip(*own, strict=True)])
    found = {name: column.copy() for name, column in rows.items()}
    for signature in set(here):
        alike = np.flatnonzero(here == signature)
        for name in ("spend", "rating", "bought"):
            found[name][alike] = rows[name][rng.permutation(alike)]
    return found


def test_swapping_values_among_people_of_one_signature_changes_no_byte(tmp_path: Path) -> None:
    rows, rng = people(2000), np.random.default_rng(10)
    first = run(fresh(tmp_path), rows, *RELEASE)
    assert first.code == 0
    other = swapped(rows, rng)
    assert (other["spend"] != rows["spend"]).sum() > 1500
    assert run(fresh(tmp_path), other, *RELEASE) == first
    more = (*RELEASE[:4], "--k", "20", "-o", "more.json")
    ledger = first.files["kanab.ledger"]
    assert run(fresh(tmp_path, ledger), other, *more) == run(fresh(tmp_path, ledger), rows, *more)


# ── people who are in no experiment ────────────────────────────────────────────────────────────


def with_strangers(rows: Rows, count: int, rng: np.random.Generator) -> Rows:
    """People of no arm, with levels and values that nobody else has."""
    strange: dict[str, Any] = {
        "variant": rng.choice(["", "C"], count),
        "device": np.array([f"device {i}" for i in range(count)]),
        "tier": rng.integers(50, 90, count),
        "spend": np.round(rng.uniform(500, 9000, count), 2),
        "rating": np.full(count, np.nan),
        "bought": np.full(count, 7),
        "enrolled": np.array(["2026-09-10"] * count),
    }
    return {name: np.concatenate([column, strange[name].astype(column.dtype)]) for name, column in rows.items()}


@pytest.mark.parametrize("words", [RELEASE, (*COHORTS, "2026-12-01")], ids=["everybody", "cohorts"])
def test_a_person_in_no_experiment_changes_nothing_but_the_floored_number_outside(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    rng = np.random.default_rng(13)
    rows = people()
    first = run(fresh(tmp_path), rows, *words)
    assert first.code == 0
    for count in (1, 9):
        assert run(fresh(tmp_path), with_strangers(rows, count, rng), *words) == first
    found = {}
    for count in (10, 13, 27):
        outcome = run(fresh(tmp_path), with_strangers(rows, count, rng), *words)
        assert outcome._replace(files={}) == first._replace(files={})
        found[count] = json.loads(outcome.files["out.json"])
    alike = json.loads(first.files["out.json"])
    assert [found[count]["receipt"].pop("outside") for count in (10, 13, 27)] == [10, 10, 20]
    assert alike["receipt"].pop("outside") == 0
    for one in (alike, *found.values()):
        one.pop("hash")
    assert all(one == alike for one in found.values())
    assert run(fresh(tmp_path), with_strangers(rows, 9, rng), *words, engine=True) == first


@pytest.mark.slow
def test_levels_bins_and_grids_are_not_taken_from_people_in_no_experiment(tmp_path: Path) -> None:
    """Without declared levels, in memory and by an engine."""
    rng = np.random.default_rng(14)
    rows = people(900)
    write(fresh(tmp_path), rows)
    choices: dict[str, Any] = {
        "metrics": ["spend", "bought"], "segments": ["device", "tier"], "bins": {"tier": 3},
        "bounds": {"spend": (0, 500)}, "resolution": {"spend": 0.01}, "shares": {"A": 1, "B": 1},
    }  # fmt: skip
    texts = set()
    for count in (0, 1, 9):
        strange = with_strangers(rows, count, rng)
        folder = fresh(tmp_path)
        write(folder, strange)
        for source in (strange, str(folder / "people.csv")):
            released = kb.release(kb.count(source, **as_values("count", arm="variant", **choices)))
            texts.add(json.dumps(release_to_dict(released), sort_keys=True))
    assert len(texts) == 1
