import gzip
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest
from tests.described import as_values

from kanab.counted import Counted
from kanab.counting import dispatch
from kanab.counting.dispatch import count
from kanab.description import Covariate, Mean, Rows
from kanab.errors import LevelError, MissingExtraError, PlanError, SourceError
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan, make_plan
from kanab.plan.periods import Span

# Ibis 12 still calls DuckDB by a name that DuckDB 2 is about to drop.
pytestmark = pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")

ROWS: dict[str, list[Any]] = {
    "variant": ["A", "B", "A", "B", "A", "B"],
    "tier": [1, 2, 3, 1, 2, 3],
    "device": ["phone", "tv", "phone", None, "tv", "phone"],
    "spend": [1.25, 0.0, 3.5, 2.0, 2.0, 7.0],
}
CSV = "variant,tier,device,spend\nA,1,phone,1.25\nB,2,tv,0\nA,3,phone,3.5\nB,1,,2\nA,2,tv,2\nB,3,phone,7\n"


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which the [sql] extra is not installed."""
    monkeypatch.setattr(dispatch, "_installed", lambda _: False)


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    file = tmp_path / "visits.csv"
    file.write_text(CSV, encoding="utf-8")
    return file


def same(first: Counted, second: Counted) -> bool:
    return dict(first.tallies) == dict(second.tallies)


# ── plan or flags ──────────────────────────────────────────────────────────────────────────────


def test_flags_build_the_plan_that_is_counted() -> None:
    metrics = [Mean("spend", bounds=(0, 5), resolution=0.5, missing="exclude")]
    choices: dict[str, Any] = {"adjust": [Covariate("tier", bins=[2])], "segments": [Covariate("device", top=1)]}
    choices |= {"arms": {"B": 1, "A": 2}, "control": "A", "k": 7}
    counted = count(ROWS, arm="variant", metrics=metrics, **choices)
    assert counted.plan == make_plan("variant", metrics, **choices)
    assert list(counted.tallies) == ["variant/tier", "variant/device"]
    assert counted.tallies["variant/tier"].factor("tier").levels == ("< 2", "≥ 2")
    assert counted.clamped == {"spend": 1}


@pytest.mark.parametrize(
    "flags", [{"arm": "variant"}, {"metrics": ["spend"]}, {"covariates": ["tier"]}, {"control": 10}, {"k": 5}]
)
def test_a_plan_and_flags_together_are_refused(flags: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="a plan and single choices are given"):
        count(ROWS, make_plan("variant", []), **as_values("count", **flags))


def test_without_a_plan_the_arm_must_be_named() -> None:
    with pytest.raises(PlanError, match=r"the column that holds the arm is not named\. Name it: arm=…"):
        count(ROWS, metrics=["spend"])


def test_a_single_name_is_a_list_of_one() -> None:
    one = count(ROWS, arm="variant", metrics=Mean("spend"), adjust="tier", segments=Covariate("tier"))
    assert same(one, count(ROWS, arm="variant", metrics="spend", adjust=["tier"], segments=["tier"]))


@pytest.mark.parametrize("plan", ["kanab.toml", {"k": 10}])
def test_what_is_no_plan_is_refused(plan: Any) -> None:
    with pytest.raises(PlanError, match=r"a plan is needed\. Read one with read_plan"):
        count(ROWS, plan)


# ── the control ────────────────────────────────────────────────────────────────────────────────


def test_a_control_is_found_by_its_text_and_spelled_as_in_the_table() -> None:
    rows = {"variant": [0, 1, 1]}
    assert count(rows, arm="variant", control="1").plan.experiment().control == 1
    truths = {"variant": [False, True, True]}
    assert count(truths, arm="variant", control="true").plan.experiment().control is True


def test_a_control_that_is_no_arm_is_refused() -> None:
    with pytest.raises(LevelError, match=r"unknown arm of 'variant'\. Check its name\."):
        count(ROWS, arm="variant", control="C")


# ── frames ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_frames_are_counted_without_importing_an_engine() -> None:
    code = (
        "import sys; from kanab.counting.dispatch import count; count({'v': ['A', 'B']}, arm='v');"
        "print(sorted({'ibis', 'duckdb', 'pandas', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_nobody_in_the_declared_arms_names_those_that_k_people_are_in() -> None:
    rows = {"variant": ["A", "B"] * 20 + ["s3cr3t"] * 9}
    with pytest.raises(SourceError, match=r"Declared: old, new\. Column 'variant' holds: A, B\.") as refused:
        count(rows, arm="variant", arms=["old", "new"])
    assert "s3cr3t" not in str(refused.value)


# ── files, with the core alone ─────────────────────────────────────────────────────────────────

FLAGS: dict[str, Any] = {"arm": "variant", "metrics": ["spend"], "adjust": ["tier"], "segments": ["device"]}


@pytest.mark.parametrize("spelling", [str, Path, lambda file: str(file).replace("visits", "vis*")])
def test_a_csv_file_needs_no_extra(spelling: Any, visits: Path, bare: None) -> None:
    assert same(count(spelling(visits), **as_values("count", **FLAGS)), count(ROWS, **as_values("count", **FLAGS)))


def test_compressed_files_and_several_of_them_are_one_table(tmp_path: Path, bare: None) -> None:
    header, *lines = CSV.splitlines(keepends=True)
    for name, part in (("a", lines[:2]), ("b", lines[2:])):
        with gzip.open(tmp_path / f"{name}.csv.gz", "wt", encoding="utf-8") as file:
            file.write(header + "".join(part))
    assert same(count(tmp_path / "*.csv.gz", **as_values("count", **FLAGS)), count(ROWS, **as_values("count", **FLAGS)))


def test_a_missing_file_or_a_pattern_without_files_is_refused_by_its_name(tmp_path: Path, bare: None) -> None:
    with pytest.raises(SourceError, match=r"^there is no file 'visits\.csv'\. Check the path\.$"):
        count(tmp_path / "visits.csv", **as_values("count", **FLAGS))
    with pytest.raises(SourceError, match=r"^no file matches '\*\.csv'\. Check the path\.$"):
        count(tmp_path / "*.csv", **as_values("count", **FLAGS))


@pytest.mark.parametrize("place", ["visits.parquet", "postgresql://db/shop", "s3://bucket/visits.csv"])
def test_other_files_and_connections_name_the_extra(place: str, bare: None) -> None:
    with pytest.raises(MissingExtraError, match=r"needs an extra\. Run: pip install 'kanab\[sql\]'"):
        count(place, **as_values("count", **FLAGS))


@pytest.mark.parametrize("choice", [{"unit": "tier"}, {"where": "1 = 1"}, {"sql": "select 1"}, {"aggregate": "max"}])
def test_choosing_rows_without_the_extra_names_it(choice: dict[str, Any], visits: Path, bare: None) -> None:
    for source, told in ((visits, "where"), (ROWS, r"Run: pip install 'kanab\[sql\]'")):
        with pytest.raises(MissingExtraError, match=told):
            count(source, **as_values("count", arm="variant", **choice))


# ── earlier plans and cohorts ──────────────────────────────────────────────────────────────────

OLD = make_plan("variant", [Mean("spend", missing="zero")], adjust=["device"], control="B")
COHORTS = Plan(
    (MetricPlan("spend", (0, 10), 0.01, missing="zero"),),
    (ExperimentPlan("variant", (("A", 1), ("B", 1)), adjust=("tier",)),),
    (CovariatePlan("tier", (1, 2, 3)),),
)
DAYS = ["2026-11-08", "2026-11-09", "2026-11-15T23:59", "2026-11-16", None, "2026-11-15T23:59-01:00"]
WEEK = Span("day", "7d", "2026-W45", "2026-W46")


@pytest.mark.slow
def test_earlier_plans_are_counted_again_with_controls_of_their_own(visits: Path) -> None:
    for source in (ROWS, visits):
        counted = count(source, arm="variant", metrics=["spend"], adjust=["tier"], earlier=[OLD, OLD])
        assert [older.plan for older in counted.earlier] == [replace(OLD, covariates=(CovariatePlan("device"),))] * 2
        assert same(counted.earlier[1], count(ROWS, OLD))
        assert same(counted, count(ROWS, arm="variant", metrics=["spend"], adjust=["tier"]))
        assert counted.plan.metrics[0].missing == "zero"
        assert counted.signatures.people.tolist() == counted.earlier[0].signatures.people.tolist() == [1] * 6


@pytest.mark.parametrize("choices", [{}, {"cluster": "shop"}], ids=["people", "clusters"])
def test_a_column_of_earlier_releases_that_rows_lack_is_said_to_be_the_ledgers(choices: dict[str, Any]) -> None:
    people = range(400)
    rows = {
        "shop": [each // 10 for each in people],
        "arm": [each // 10 % 2 for each in people],
        "y": [each % 7 for each in people],
    }
    earlier = [make_plan("arm", ["bought", "y"])]
    with pytest.raises(SourceError) as problem:
        count(rows, **as_values("count", arm="arm", metrics=["y"], earlier=earlier, **choices))
    assert problem.value.fact == "there is no column 'bought', which earlier releases of the ledger were counted by"
    assert "another one (--ledger FILE --new-ledger)" in problem.value.remedy
    with pytest.raises(SourceError) as problem:
        count(rows, **as_values("count", arm="arm", metrics=["bought"], **choices))
    assert problem.value.remedy == f"There are: shop, arm, y{', people' if choices else ''}."


@pytest.mark.parametrize("earlier", [OLD, "plan.toml", [OLD, "plan.toml"], [None]])
def test_earlier_plans_are_plans(earlier: Any) -> None:
    with pytest.raises(PlanError, match="plan"):
        count(ROWS, COHORTS, earlier=earlier)


def test_earlier_plans_are_checked_like_any_other() -> None:
    with pytest.raises(PlanError, match="at least 2"):
        count(ROWS, COHORTS, earlier=[replace(OLD, k=1)])


@pytest.mark.slow
def test_only_the_cohorts_of_a_span_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "dated.csv"
    lines = [f"{line},{day}" for line, day in zip(CSV.splitlines(), ["day", *(day or "" for day in DAYS)], strict=True)]
    file.write_text("\n".join(lines), encoding="utf-8")
    rows = ROWS | {"day": DAYS}
    expected = {"variant": ["B", "A"], "tier": [2, 3], "device": ["tv", "phone"], "spend": [0.0, 3.5]}
    for source in (rows, pd.DataFrame(rows), pl.DataFrame(rows), file):
        counted = count(source, COHORTS, earlier=[COHORTS], rows=Rows(span=WEEK))
        assert same(counted, count(expected, COHORTS))
        assert (counted.span, counted.earlier[0].span, counted.outside) == (WEEK, WEEK, 0)
    monkeypatch.setattr(dispatch, "_installed", lambda _: False)
    assert same(count(file, COHORTS, rows=Rows(span=WEEK)), count(expected, COHORTS))
    with pytest.raises(MissingExtraError):
        count(file, COHORTS, rows=Rows(span=WEEK, unit="tier"))
    with pytest.raises(PlanError, match="something other than a Span"):
        count(ROWS, COHORTS, rows=Rows(span=("day", "7d", None, "2026-W46")))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("covariate", "words"),
    [
        (None, r"covariates\.tier takes its levels from the data; declare levels, or the edges of bins"),
        (CovariatePlan("tier", bins=3), r"covariates\.tier takes its levels"),
        (CovariatePlan("tier", top=2), r"covariates\.tier takes its levels"),
    ],
)
def test_what_batches_would_choose_differently_is_refused(covariate: CovariatePlan | None, words: str) -> None:
    open_plan = replace(COHORTS, covariates=(covariate,) if covariate else ())
    for plan, earlier in ((open_plan, []), (COHORTS, [open_plan])):
        with pytest.raises(PlanError, match=words):
            count(ROWS | {"day": DAYS}, plan, earlier=earlier, rows=Rows(span=WEEK))


def test_cohorts_need_declared_arms_and_may_have_given_bins() -> None:
    rows = ROWS | {"day": DAYS}
    with pytest.raises(
        PlanError, match=r"experiments\.variant takes its arms from the data; declare them \(--shares\)"
    ):
        count(rows, replace(COHORTS, experiments=(ExperimentPlan("variant"),)), rows=Rows(span=WEEK))
    unruled = replace(COHORTS, metrics=(MetricPlan("spend", (0, 10), 0.01),))  # batches have one rule, whoever lacks it
    rules = [count(rows, unruled, rows=Rows(span=span)).plan.metrics[0].missing for span in (WEEK, None)]
    assert rules == ["exclude", "zero"]
    binned = replace(COHORTS, covariates=(CovariatePlan("tier", bins=(2.5,)),))
    assert count(rows, binned, rows=Rows(span=WEEK)).tallies["variant/tier"].factor("tier").levels == ("< 2.5", "≥ 2.5")


def test_the_statement_of_several_plans_can_be_shown(visits: Path) -> None:
    text = dispatch.explain(
        visits, COHORTS, dispatch.SourceOptions(), [replace(COHORTS, covariates=(CovariatePlan("tier", bins=2),))]
    )
    assert '"level1"' in text
    assert '"arm1"' not in text
    with pytest.raises(SourceError, match="no column 'tiers'"):
        dispatch.explain(visits, COHORTS, dispatch.SourceOptions(), [make_plan("variant", [], adjust=["tiers"])])


def test_a_small_csv_file_is_read_into_memory_and_a_large_one_by_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "visits.csv"
    people = "".join(f"{number // 2},{'AB'[number // 2 % 2]},{number % 3},{number % 7}.5\n" for number in range(400))
    file.write_text(f"user_id,variant,tier,spend\n{people}", encoding="utf-8")
    asked: list[Any] = []
    by_engine = dispatch._by_engine
    monkeypatch.setattr(dispatch, "_by_engine", lambda *call: asked.append(call) or by_engine(*call))
    small = count(file, arm="variant", metrics=["spend"], adjust=["tier"])
    assert not asked
    for size, choices in ((file.stat().st_size - 1, {}), (file.stat().st_size, {"where": "tier >= 0"})):
        monkeypatch.setattr(dispatch, "SMALL_CSV", size)
        large = count(file, **as_values("count", arm="variant", metrics=["spend"], adjust=["tier"], **choices))
        assert same(small, large)
        assert small.repeats == large.repeats == ("user_id",)
    assert len(asked) == 2
