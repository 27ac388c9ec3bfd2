"""No way around the gate: whatever leaves is made from a Release, and errors say nothing about the data.

What is read on the screen of whoever holds the rows is tested in tests/unit/analysis/test_own_rows.py.
"""

import ast
import contextlib
import copy
import csv
import io
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.described import as_values

import kanab as kb
from kanab.analysis import sections
from kanab.analysis.sections import report_html
from kanab.cli.main import cli, main
from kanab.counted import Counted
from kanab.counting import read_classes
from kanab.errors import KanabError, PrivacyError
from kanab.inspection.officer import officer_page
from kanab.inspection.officer.account import privacy_account
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan, make_plan
from kanab.plan.periods import Span
from kanab.privacy.ledger import Ledger, append_release
from kanab.privacy.release import Release
from kanab.privacy.release_json import release_from_dict, release_text, release_to_dict
from kanab.report import words
from kanab.tally.tally import Tally

SRC = Path(kb.__file__).parent

# ── every public name has its place ────────────────────────────────────────────────────────────

MAKE_TALLIES = {"count", "count_columns", "read_classes"}
DECLARE = {"Factor", "Looks", "Metric", "Plan", "Span", "make_plan", "parse_plan", "plan_digest", "read_plan"}
DECLARE |= {"Covariate", "Mean", "Number", "Quantile", "Ratio", "Reading", "Rows"}
MAKE_RELEASES = {"release"}
WITHIN_THE_PROCESS = {"Counted", "Tally", "fit"}
READ_RELEASES = {
    "Ledger", "PairReadout", "Readout", "Receipt", "Release", "SegmentReadout", "add_releases", "analyze",
    "attack", "audit",
    "Combined", "CombinedEffect", "Portfolio", "PortfolioEffect", "combine",
    "propose_bins", "read_ledger", "read_portfolio", "read_release",
    "readout", "scan_segments", "scan_interactions", "write_release",
}  # fmt: skip
BEFORE_ANYBODY_CAME = {"Forecast", "Baseline", "forecast_plan", "baseline_from_release"}


NUMBERS_ONLY = (
    "kanab.stats.",
    "kanab.errors",
    *(f"kanab.planning.{name}" for name in ("calculator", "power", "spread", "interactions")),
    "kanab.portfolio.meta",
)


def test_every_public_name_is_before_or_behind_the_gate() -> None:
    """A new name fails here until somebody has thought about it; statistics stay within the process, as tallies do."""
    apis = (kb, kb.counting, kb.plan, kb.planning, kb.portfolio, kb.privacy, kb.scan, kb.tally)
    homes = {name: getattr(package, name).__module__ for package in apis for name in package.__all__}
    thought_of = {name for name, home in homes.items() if not home.startswith(NUMBERS_ONLY)}
    sides = (
        MAKE_TALLIES, DECLARE, MAKE_RELEASES, WITHIN_THE_PROCESS, READ_RELEASES, BEFORE_ANYBODY_CAME,
    )  # fmt: skip
    assert set().union(*sides) == thought_of
    assert sum(map(len, sides)) == len(thought_of)


def test_every_command_is_known() -> None:
    """Some read rows on their holder's screen, one takes them through the gate, some read what came out of it."""
    count_and_show, count_and_pass = {"analyze", "scan"}, {"release"}
    read_releases = {"audit", "attack", "privacy-report", "power", "plan", "dashboard", "combine", "portfolio", "mcp"}
    collect_and_pass = {"serve", "seal", "export", "restore", "void", "notify"}
    look_after_collectors = {"status", "doctor", "drill"}
    about_nobody = {"init", "demo", "example"}
    counting = count_and_show | count_and_pass
    assert set(cli.commands) == counting | read_releases | collect_and_pass | look_after_collectors | about_nobody


def people(n: int = 400) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        "variant": rng.choice(["A", "B"], n),
        "tier": rng.choice([1, 2, 3], n),
        "spend": np.round(rng.gamma(2, 10, n), 2),
    }


def counted(n: int = 400) -> Counted:
    return kb.count(
        people(n), arm="variant", metrics=[kb.Mean("spend", bounds=(0, 500), resolution=0.01)], adjust=["tier"]
    )


def kind(thing: Any) -> str:
    return type(thing).__name__


def not_released() -> list[Any]:
    found = counted()
    tally = found.tallies["variant/tier"]
    return [
        tally, found, tally.to_dict(), {"variant/tier": tally}, [tally], tally.tables(), vars(found), people(), None,
        found.signatures, kb.stats.difference_in_means(tally), Ledger(),
    ]  # fmt: skip


@pytest.mark.parametrize("thing", not_released(), ids=kind)
def test_only_a_release_leaves_and_only_what_was_counted_becomes_one(thing: Any, tmp_path: Path) -> None:
    """Pages and texts take the plain data of readouts, which a tally is not; scans count for themselves."""
    file, ledger = tmp_path / "out.json", tmp_path / "kanab.ledger"
    for use in (
        kb.analyze, lambda one: kb.write_release(one, file), release_text,
        lambda one: kb.add_releases([one]), lambda one: kb.add_releases([one, one]),
    ):  # fmt: skip
        with pytest.raises(PrivacyError, match=r"only a Release|only releases"):
            use(thing)
    for use in (
        kb.scan.scan_interactions, kb.scan.scan_segments, sections.readout_text, sections.readout_markdown,
        sections.readout_html, report_html, sections.readout_sections, words.summary, officer_page.privacy_html,
        release_to_dict, release_from_dict, lambda one: privacy_account({"one": one}),
        lambda one: append_release(ledger, Ledger(), one), kb.read_release,
    ):  # fmt: skip
        with pytest.raises((KanabError, TypeError, KeyError, AttributeError)):
            use(thing)
    for into in () if isinstance(thing, Counted) else (None, ledger):
        with pytest.raises(PrivacyError, match="only what count"):
            kb.release(thing, ledger=into, new_ledger=into is not None)
    assert list(tmp_path.iterdir()) == []


# ── in the source itself ───────────────────────────────────────────────────────────────────────


@cache
def all_calls() -> dict[str, set[str]]:
    """In which modules something is called, by its name."""
    found: dict[str, set[str]] = {}
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                found.setdefault(name, set()).add(path.relative_to(SRC).with_suffix("").as_posix())
    return found


def calls(*names: str) -> dict[str, set[str]]:
    """In which modules something of these names is called."""
    return {name: set(all_calls()[name]) for name in names if name in all_calls()}


@pytest.mark.slow
def test_releases_are_made_by_the_gate_added_or_read_again() -> None:
    makers = {"privacy/gate", "privacy/epsilon/noisy_release"}
    assert calls("Release") == {"Release": makers | {"privacy/batches", "privacy/release_json"}}


@pytest.mark.slow
def test_files_are_written_in_one_place_and_on_behalf_of_few() -> None:
    found = calls("write_whole", "staged", "write_text", "write_bytes", "mkstemp", "fdopen", "dump", "to_csv")
    whole = found.pop("write_whole") - {
        "collector/keys/store_witness",  # numbers
        "collector/export",  # sealed batches
        "dashboard/access_guard",  # which logins ended
        "report/figure",  # a picture
        "report/html_page",  # a page
        "dataframes",  # rows of a result, as CSV and Excel
    }
    assert {name.split("/")[0] for name in whole} == {"analysis", "cli", "demo", "privacy"}
    assert {name for name in calls("write_whole")["write_whole"] if name.startswith(("privacy", "analysis"))} == {
        "analysis/looks", "analysis/readout", "privacy/ledger", "privacy/release_json",
    }  # fmt: skip
    assert found == {
        "staged": {"atomicfile", "cli/release"},
        "mkstemp": {"atomicfile", "collector/keys/keyring"},
        "fdopen": {"atomicfile"},
        "write_bytes": {"atomicfile"},
    }


@pytest.mark.slow
def test_only_commands_and_a_tally_on_purpose_print() -> None:
    found = calls("print", "echo", "show")
    assert found["print"] == {"tally/tally", "collector/log"}  # our own sentences
    assert {name.split("/")[0] for name in found["echo"]} == {"cli"}
    logging_modules = set().union(*calls("getLogger", "warn", "warning", "info", "debug").values())
    logging_modules -= {"collector/log"}  # our own sentences, and of others' only their kind and place
    logging_modules -= {"agents/mcp_server"}  # kanab mcp has that log take over: of a mistake its kind and place
    assert {name.split("/")[0] for name in logging_modules} == {"client"}  # on the caller's own server, no values


# ── looks ──────────────────────────────────────────────────────────────────────────────────────

PEOPLE = 3 * 1223
"""A number of people, and a value, that stand nowhere but in the data."""
SENTINEL = 48151623.42


def marked() -> Counted:
    """As many people in every class as no text would mention by chance, and one value that nobody else has."""
    n = PEOPLE
    rows = {
        "variant": np.array(["A", "B", "C"] * (n // 3)),
        "tier": np.array(["low"] * (n // 3) + ["high"] * (n - n // 3)),
        "spend": np.full(n, 0.25),
    }
    rows["spend"][7] = SENTINEL
    return kb.count(rows, arm="variant", metrics=["spend"], segments=["tier"])


def numbers_of(found: Counted) -> set[str]:
    """Every count, sum and square of three digits or more."""
    tally = found.tallies["variant/tier"]
    part = tally.moments_of("spend")
    cells = [tally.people, tally.keep().people, part.sums, part.counts, *part.squares.values()]
    numbers = {str(abs(int(value))) for one in cells for value in one.ravel()} | {str(PEOPLE), f"{SENTINEL}"}
    return {number for number in numbers if len(number) > 2}


def looks_of(thing: Any) -> Iterator[str]:
    yield from (repr(thing), str(thing), f"{thing}", f"{thing!r:>10}", ascii(thing), f"{[thing]}", str({"a": thing}))
    if hasattr(thing, "_repr_html_"):
        yield thing._repr_html_()
    stream = io.StringIO()
    logger = logging.getLogger("test_what_leaves")
    logger.addHandler(logging.StreamHandler(stream))
    logger.warning("counted %s and %r", thing, thing)
    yield stream.getvalue()


def test_looking_at_what_was_counted_shows_no_count_and_no_sum() -> None:
    found = marked()
    numbers = numbers_of(found)
    assert len(numbers) > 6
    tally = found.tallies["variant/tier"]
    for thing in (found, tally, tally.keep(), tally + tally, kb.release(found)):
        for look in looks_of(thing):
            assert not [number for number in numbers if number in re.sub(r"[,_ ]", "", look)], look
    assert any(number in str(table) for table in tally.tables() for number in numbers)  # on purpose


# ── errors ─────────────────────────────────────────────────────────────────────────────────────

NAME = "Wolpertinger"


def told(problem: BaseException | None) -> str:
    """Everything that a traceback would say about a problem, but for the lines of code."""
    texts = []
    while problem is not None:
        texts.append(f"{type(problem).__name__}: {problem}")
        problem = problem.__cause__ or (None if problem.__suppress_context__ else problem.__context__)
    return "\n".join(texts)


def rows(n: int, **other: Any) -> dict[str, Any]:
    """People among whom one has a name and values of their own."""
    rng = np.random.default_rng(n)
    found: dict[str, Any] = {
        "id": np.arange(n),
        "variant": rng.choice(["A", "B"], n).astype(object),
        "x": rng.choice(["u", "v"], n).astype(object),
        "z": rng.integers(0, 4, n).astype(float),
        "spend": np.round(rng.gamma(2, 5, n), 2),
        "day": np.array(["2026-09-01"] * n, dtype=object),
    }
    found["x"][3], found["z"][3], found["spend"][3], found["id"][3] = NAME, SENTINEL, SENTINEL, int(SENTINEL)
    return found | {name: np.array([value] * n, dtype=object) for name, value in other.items()}


def plan(**choices: Any) -> Plan:
    return make_plan(
        "variant",
        **as_values(
            "make_plan", metrics=["spend"], **{"bounds": {"spend": (0, 500)}, "shares": {"A": 1, "B": 1}} | choices
        ),
    )


DECLARED = Plan(
    (MetricPlan("spend", (0, 500)),), (ExperimentPlan("variant", adjust=("x",)),), (CovariatePlan("x", ("u", "v")),)
)
ARMS = Span("day", "7d", None, "2026-W40")

COUNTING: dict[str, Callable[[int], Any]] = {
    "a metric of texts": lambda n: kb.count(rows(n, spend=f"{NAME} {SENTINEL}"), plan()),
    "a metric of texts, by an engine": lambda n: kb.count(
        rows(n, spend=f"{NAME} {SENTINEL}"), plan(), rows=kb.Rows(where="1 = 1")
    ),
    "infinite values": lambda n: kb.count(rows(n, spend=np.inf), plan()),
    "values beyond every grid": lambda n: kb.count(rows(n, spend=SENTINEL * 1e12), plan(bounds=None)),
    "a grid too fine": lambda n: kb.count(rows(n), plan(bounds=None, resolution={"spend": 1e-12})),
    "zeros outside the bounds": lambda n: kb.count(
        rows(n, spend=np.nan), plan(bounds={"spend": (1, 500)}, missing={"spend": "zero"})
    ),
    "an undeclared level": lambda n: kb.count(rows(n), DECLARED),
    "an undeclared level, by an engine": lambda n: kb.count(rows(n), DECLARED, rows=kb.Rows(where="1 = 1")),
    "bins of texts": lambda n: kb.count(rows(n), plan(adjust=["x"], bins={"x": 3})),
    "bins of texts, by an engine": lambda n: kb.count(
        rows(n), plan(adjust=["x"], bins={"x": 3}), rows=kb.Rows(where="1 = 1")
    ),
    "bins of infinite numbers": lambda n: kb.count(rows(n, z=np.inf), plan(adjust=["z"], bins={"z": 3})),
    "levels that are no levels": lambda n: kb.count(rows(n) | {"x": [[SENTINEL]] * n}, plan(adjust=["x"])),
    "one arm": lambda n: kb.count(rows(n, variant=NAME), plan(shares=None)),
    "nobody": lambda n: kb.count(rows(n, variant=NAME), plan()),
    "no points in time": lambda n: kb.count(rows(n, day=NAME), plan(), rows=kb.Rows(span=ARMS)),
    "numbers for times": lambda n: kb.count(rows(n, day=int(SENTINEL)), plan(), rows=kb.Rows(span=ARMS)),
    "an unknown column": lambda n: kb.count(rows(n), plan(adjust=["y"])),
    "columns of several lengths": lambda n: kb.count(rows(n) | {"spend": [SENTINEL]}, plan()),
    "people in two arms": lambda n: kb.count(rows(n, id=int(SENTINEL)), plan(), rows=kb.Rows(unit="id")),
    "a filter that is no condition": lambda n: kb.count(rows(n), plan(), rows=kb.Rows(where="nothing > 3")),
    "a filter that fails on a value": lambda n: kb.count(rows(n), plan(), rows=kb.Rows(where="cast(x as integer) > 3")),
    "a value that cannot be averaged": lambda n: kb.count(
        rows(n), plan(), rows=kb.Rows(unit="id", aggregate={"spend": "median"})
    ),
}


def tally(n: int = 400) -> Tally:
    return kb.count(rows(n), plan(bounds={"spend": (0, SENTINEL)}, adjust=["x"])).tallies["variant/x"]


def changed(n: int, **other: Any) -> dict[str, Any]:
    """The plain data of a tally whose first class says something else."""
    plain = copy.deepcopy(tally(n).to_dict())
    plain["classes"][0] |= other
    return plain


WORKING: dict[str, Callable[[int], Any]] = {
    "taking out people who are not in it": lambda n: tally(n).empty() - tally(n),
    "adding other covariates": lambda n: tally(n) + tally(n).keep(),
    "an unknown metric": lambda n: tally(n).moments_of("nothing"),
    "an unknown factor": lambda n: tally(n).factor("nothing"),
    "a formula with an unknown name": lambda n: kb.stats.fit(tally(n), "variant + nothing"),
    "no formula": lambda n: kb.stats.fit(tally(n), "variant +* x"),
    "shares of other arms": lambda n: kb.stats.sample_ratio(tally(n), {"A": 1, "C": 1}),
    "segments of nothing": lambda n: kb.stats.robust_f(tally(n), "nothing"),
    "a negative count": lambda n: Tally.from_dict(changed(n, people=-int(SENTINEL))),
    "more people with a value than people": lambda n: Tally.from_dict(changed(n, people=0)),
    "a sum that no people have": lambda n: Tally.from_dict(changed(n, sums={"spend": str(10**40)})),
    "a sum that is no number": lambda n: Tally.from_dict(changed(n, sums={"spend": NAME})),
    "a key that nobody knows": lambda n: Tally.from_dict(changed(n, total=int(SENTINEL))),
    "no tally": lambda n: Tally.from_dict({"people": {NAME: n}}),
    "counts that are no numbers": lambda n: read_classes({"arm": ["A", "B"], "count": [n, NAME], "y": [1, 2]}),
    "counts below zero": lambda n: read_classes({"arm": ["A", "B"], "count": [n, -n], "y": [1, 2]}),
    "a class twice": lambda n: read_classes({"arm": ["A", "A"], "count": [n, n], "y": [SENTINEL, 2]}),
    "squares below what sums need": lambda n: read_classes(
        {"arm": ["A", "B"], "count": [n, n], "y": [SENTINEL, 2]}, {"arm": ["A", "B"], "y": [1, 2]}
    ),
}


def unlike(release: Release, **other: Any) -> dict[str, Any]:
    return release_to_dict(release) | other


RELEASING: dict[str, Callable[[int], Any]] = {
    "an arm below k": lambda n: kb.release(kb.count(rows(n, variant="A"), plan())),
    "k below 5": lambda n: kb.release(counted(n), 3),
    "k that is no number": lambda n: kb.release(counted(n), NAME),  # type: ignore[arg-type]
    "an unknown experiment": lambda n: kb.analyze(kb.release(counted(n)), "nothing"),
    "an unknown control": lambda n: kb.analyze(kb.release(counted(n)), reading=kb.Reading(control="nothing")),
    "confidence beyond 1": lambda n: kb.analyze(kb.release(counted(n)), reading=kb.Reading(confidence=SENTINEL)),
    "a contrast of nothing": lambda n: kb.analyze(
        kb.release(counted(n)), reading=kb.Reading(contrasts=["A - nothing"])
    ),
    "a pool of one arm": lambda n: kb.analyze(kb.release(counted(n)), reading=kb.Reading(pool={"any": ["A"]})),
    "a margin of nothing": lambda n: kb.analyze(
        kb.release(counted(n)), reading=kb.Reading(margins={"x": kb.Margin("superiority", 1)})
    ),
    "a prior of nothing": lambda n: kb.analyze(kb.release(counted(n)), reading=kb.Reading(prior={"x": kb.Prior(0, 1)})),
    "assigned by nothing": lambda n: kb.readout(
        rows(n), arm="variant", metrics=["spend"], rows=kb.Rows(cluster="nothing")
    ),
    "bounds from the data in a file": lambda n: release_text(kb.release(kb.count(rows(n), plan(bounds=None)))),
    "a changed release": lambda n: release_from_dict(unlike(kb.release(counted(n)), previous=NAME)),
    "a release of nothing": lambda n: release_from_dict({"format": "kanab-release/1", "tables": {NAME: n}}),
    "the same people twice": lambda n: kb.add_releases([kb.release(counted(n))] * 2),
    "releases by different plans": lambda n: kb.add_releases(
        [kb.release(counted(n)), kb.release(kb.count(people(n), arm="variant", metrics=["tier"]))]
    ),
}


@pytest.mark.parametrize(
    "provoke", [*COUNTING.values(), *WORKING.values(), *RELEASING.values()], ids=[*COUNTING, *WORKING, *RELEASING]
)
def test_an_error_is_the_same_whatever_the_data_are(provoke: Callable[[int], Any]) -> None:
    """Neither a number of people nor a value nor a name of anybody is in it, also not in what a traceback shows."""
    found = set()
    for n in (419, 523):
        with pytest.raises(KanabError) as problem:
            provoke(n)
        found.add(told(problem.value))
    (said,) = found
    assert NAME not in said
    assert not re.search(r"4815162|419|523|e\+1|\b10{9,}", said)


# ── commands ───────────────────────────────────────────────────────────────────────────────────

FLAGS = ("--arm", "variant", "--metric", "spend", "--bounds", "spend=0:500", "--resolution", "spend=0.01")


def run(*words_: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    argv, sys.argv = sys.argv, ["kanab", *words_]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.argv = argv
    return code, out.getvalue(), err.getvalue()


def write(path: Path, columns: dict[str, Any]) -> str:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True))
    return str(path)


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("command", ["analyze", "audit", "attack", "privacy-report"])
def test_commands_that_read_releases_take_no_tally(command: str, tmp_path: Path) -> None:
    """Neither its plain data, nor several in one file, nor a release that somebody made of it."""
    one = counted().tallies["variant/tier"].to_dict()
    small = counted(60).tallies["variant/tier"].to_dict()
    made = json.loads(release_text(kb.release(counted())))
    forged = made | {"tables": {"variant/tier": small}}
    output = ("-o", str(tmp_path / "page.html")) if command == "privacy-report" else ()
    for place, plain in enumerate((one, {"variant/tier": one}, [one], forged)):
        if command == "attack" and plain is forged:
            continue  # the attacker also reads what the gate would have refused
        file = tmp_path / f"{place}.json"
        file.write_text(json.dumps(plain), encoding="utf-8")
        code, out, err = run(command, str(file), *output)
        assert code in (1, 2), (command, place, out)
        assert not re.search(r"\bpeople in\b|Sample ratio", out)
        assert "Traceback" not in err
    assert files(tmp_path) == {"0.json", "1.json", "2.json", "3.json"} - ({"3.json"} if command == "attack" else set())


def test_the_file_never_takes_the_place_of_its_ledger(tmp_path: Path) -> None:
    source = write(tmp_path / "people.csv", people())
    assert run("release", source, *FLAGS, "-o", str(tmp_path / "out.json"), "--new-ledger")[0] == 0
    before = (tmp_path / "kanab.ledger").read_bytes()
    code, _, err = run("release", source, *FLAGS, "-o", str(tmp_path / "kanab.ledger"))
    assert (code, err) == (2, "kanab: the file and the ledger are the same. Give -o another name.\n")
    assert (tmp_path / "kanab.ledger").read_bytes() == before
