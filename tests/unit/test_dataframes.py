"""Every list that a result has as plain data is a DataFrame by its name."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

import numpy as np
import pytest

import kanab as kb
from kanab.analysis.options import Looks
from kanab.dataframes import flat_rows
from kanab.datasets import experiments_rows, shop_rows
from kanab.errors import AnalysisError, ArgumentError
from kanab.inspection.attack.run import play_attacker
from kanab.planning import Baseline, forecast_plan, power_curve, spread_of_rate
from kanab.portfolio import combine, read_portfolio
from kanab.scan import scan_interactions, scan_segments
from kanab.scan.scan_readout import PairRows, SegmentRows

PEOPLE = 3_000


def shop() -> dict[str, Any]:
    """Three arms, so that there is an omnibus test, with everything that can be asked of people."""
    rng = np.random.default_rng(3)
    rows = shop_rows(PEOPLE)
    arm = rng.choice(["A", "B", "C"], PEOPLE)
    opened = ((arm == "B") & (rng.random(PEOPLE) < 0.7)).astype(int)
    rating = [None if value < 0.1 else round(5 * value) for value in rng.random(PEOPLE)]
    return rows | {"variant": arm, "opened": opened, "rating": rating}


@pytest.fixture(scope="module")
def readout() -> kb.Readout:
    return kb.readout(
        shop(),
        arm="variant",
        metrics=[
            "bought",
            kb.Mean("spend", bounds=(0, 500)),
            kb.Mean("rating", missing="exclude"),
            kb.Quantile("spend", at=[0.5, 0.9], bins=[1, 25, 50, 100]),
        ],
        adjust=["tier", "country"],
        segments=["device", "country"],
        k=10,
        treatment_received="opened",
        reading=kb.Reading(
            contrasts=["B - C"],
            margins={"spend": kb.Margin("non-inferiority", 1)},
            prior={"bought": kb.Prior(0, 0.01)},
            primary=["bought"],
            guardrails=["spend"],
        ),
    )


@pytest.fixture(scope="module")
def releases() -> dict[str, kb.Release]:
    rng = np.random.default_rng(4)

    def released(effect: float) -> kb.Release:
        arm = rng.choice(["A", "B"], 600)
        rows = {"checkout": arm, "spend": rng.poisson(4 + effect * (arm == "B"))}
        return kb.release(kb.count(rows, arm="checkout", metrics=[kb.Mean("spend", bounds=(0, 100))]))

    return {name: released(effect) for name, effect in (("de", 1.0), ("fr", 0.8), ("it", 0.9))}


def lists(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    """Yield every list of plain data with where it stands."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from lists(inner, (*path, str(name)))
    elif isinstance(value, list | tuple):
        yield path, list(value)
        for inner in value:
            yield from lists(inner, path)


def check_every_list_is_a_frame(result: Any) -> None:
    frames = {name: result.to_pandas(name, details=True) for name in result._tables()}
    for path, rows in lists(result.to_dict()):
        if rows and isinstance(rows[0], Mapping):
            names = {name for name, value in rows[0].items() if isinstance(value, str | float | int)}
            fits = [name for name, frame in frames.items() if names <= {*frame.columns} and len(frame) >= len(rows)]
            assert fits, f"{'.'.join(path)}: {names}"
        elif rows and len(path) == 1 and path != ("shares",):
            assert frames[path[0]].iloc[:, 0].tolist() == rows
    for name, frame in frames.items():
        other = result.to_polars(name, details=True)
        assert (other.columns, other.height) == (list(frame.columns), len(frame))
        assert not any(isinstance(cell, Mapping) for column in frame for cell in frame[column]), name


@pytest.mark.slow
def test_every_list_of_a_readout_is_a_frame(readout: kb.Readout) -> None:
    check_every_list_is_a_frame(readout)
    empty = {name for name in readout._tables() if readout.to_pandas(name).empty}
    assert empty <= {"pooled", "noise", "left_out", "costs", "cautions", "claims", "follow_ups"}


def test_sections_that_hold_arms_and_bins_become_rows(readout: kb.Readout) -> None:
    data = readout.to_dict()
    arms = readout.to_pandas("arms")
    assert arms["arm"].tolist() == ["A", "B", "C"]
    assert arms["control"].tolist() == [True, False, False]
    assert arms["people"].sum() == PEOPLE
    assert arms["residual"].tolist() == list(data["sample_ratio"]["residuals"].values())
    bins = readout.to_pandas("distributions")
    assert bins["people"].sum() == PEOPLE
    assert bins.groupby("arm").size().nunique() == 1
    assert readout.to_pandas("sample_ratio")["p"].tolist() == [data["sample_ratio"]["p"]]
    best = readout.to_pandas("bayes_arms").groupby("method")["best"].sum()
    assert best.to_dict() == pytest.approx({"difference": 1, "adjusted": 1}, abs=0.001)
    assert set(readout.to_pandas("missing")["metric"]) == {"rating"}
    assert readout.to_pandas("contrasts")[["contrast_B", "contrast_C"]].iloc[0].tolist() == [1, -1]


def test_a_planned_look_is_a_column_for_each_of_its_numbers() -> None:
    looks = Looks("spending", looks=4, earlier=[])
    looked = kb.readout(shop_rows(2_000), arm="variant", metrics=["bought"], reading=kb.Reading(looks=looks))
    frame = looked.to_polars(details=True)
    assert frame["sequential_looks"].to_list() == [4]
    assert frame["sequential_p"].to_list() == [looked.to_dict()["effects"][0]["sequential"]["p"]]
    assert {"sequential_interval_low", "sequential_interval_high"} <= set(frame.columns)


@pytest.mark.slow
def test_every_list_of_a_scan_is_a_frame() -> None:
    rows = experiments_rows(4, 2_000)
    pairs = scan_interactions(rows, "test_*", ["revenue"])
    check_every_list_is_a_frame(pairs)
    assert tuple(pairs._tables()) == get_args(PairRows)
    assert len(pairs.to_pandas()) == len(pairs.to_pandas("pairs")) == 6
    assert pairs.to_pandas("verdicts")["tests"].sum() == 6
    segments = scan_segments(rows, [f"test_{number}" for number in range(1, 5)], ["bought"], ["device"])
    check_every_list_is_a_frame(segments)
    assert tuple(segments._tables()) == get_args(SegmentRows)
    assert len(segments.to_pandas("segments")) == 4


@pytest.mark.slow
def test_every_list_of_what_reads_several_releases_is_a_frame(releases: dict[str, kb.Release]) -> None:
    combined, portfolio = combine(releases), read_portfolio(releases)
    check_every_list_is_a_frame(combined)
    assert combined.to_pandas("parts")["weight"].sum() == pytest.approx(1)
    check_every_list_is_a_frame(portfolio)
    assert portfolio.to_pandas("effects")["release"].tolist() == ["de", "fr", "it"]
    attacked = play_attacker(list(releases.values()))
    check_every_list_is_a_frame(attacked)
    assert len(attacked.to_pandas("attacks")) == len(attacked.attempts)


def test_every_list_of_a_forecast_is_a_frame() -> None:
    plan = kb.make_plan(arm="checkout", metrics=["bought"], adjust=["tier"], arms={"A": 1, "B": 1})
    forecast = forecast_plan(plan, per_day=500, days=14, baseline=Baseline(rates={"bought": 0.1}))
    check_every_list_is_a_frame(forecast)
    assert forecast.to_pandas()["effect"].tolist() == [forecast.effects[0].detectable.effect]
    curve = power_curve(spread_of_rate(0.1), people=[1_000, 4_000], power=0.8)
    check_every_list_is_a_frame(curve)
    assert curve.to_pandas()["effect"].tolist() == [point.effect for point in curve]
    assert curve.to_polars("arms")["people"].to_list() == [500, 500, 2_000, 2_000]


def test_an_unknown_table_is_told_the_names_that_there_are(readout: kb.Readout) -> None:
    with pytest.raises(AnalysisError, match=r"no rows of that name\. Use one of: effects, .*, notes\."):
        readout.to_pandas("level")  # type: ignore[arg-type]
    with pytest.raises(AnalysisError, match="Use one of: effects"):
        readout.to_polars(["effects"])  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="Did you mean 'rows'"):
        readout.to_pandas(row="effects")  # type: ignore[call-arg]


def test_rows_that_lack_a_part_have_none_in_its_columns() -> None:
    rows = [{"df": None, "look": None}, {"df": [1, 2], "look": {"p": 0.5}}]
    assert flat_rows(rows) == [
        {"df_numerator": None, "df_denominator": None, "look_p": None},
        {"df_numerator": 1, "df_denominator": 2, "look_p": 0.5},
    ]
