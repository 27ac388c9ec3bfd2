"""Calls that a function cannot take are one sentence with a remedy, never a traceback of our insides."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pandas as pd
import pytest
from tests.approved import assert_approved

import kanab as kb
from kanab.arguments import ORIGINS, check_arguments
from kanab.datasets import shop_rows
from kanab.errors import ArgumentError, KanabError
from kanab.plan.periods import Span

planning, portfolio, scan, stats = kb.planning, kb.portfolio, kb.scan, kb.stats
APIS = (kb, kb.counting, kb.plan, kb.planning, kb.portfolio, kb.privacy, kb.scan, kb.stats, kb.tally)

ROWS = shop_rows(600)
FRAME = pd.DataFrame(ROWS)
TALLY = kb.count_columns(
    ROWS, arm="variant", metrics=["bought", "spend"], covariates=["tier"], products=[("spend", "bought")]
)
COUNTED = kb.count(ROWS, arm="variant", metrics=["bought"], adjust=["tier"], segments=["tier"])
RELEASE = kb.release(COUNTED)
OTHER = kb.release(kb.count(shop_rows(900), arm="variant", metrics=["bought"]))
BINNED = stats.BinnedPeople((0.0, 1.0), (1, 1, 1))
RELEASE_IN_BINS = kb.release(
    kb.count(ROWS, arm="variant", metrics=["spend", kb.Quantile("spend", at=0.5, bins=[0, 5, 10, 20, 40])])
)
MEANS = stats.plain_means(TALLY, "bought")
EFFECT = stats.difference_in_means(TALLY, "bought")
SPREAD = planning.spread_of_rate(0.1)
CELLS = planning.crossed_spread({"A": 1, "B": 1}, {"a": 1, "b": 1}, sd=1.0)
SPEND = {"arm": "variant", "metrics": ["bought"]}

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]

CALLS: list[Call] = [
    (kb.analyze, (RELEASE,), {}),
    (kb.readout, (ROWS,), SPEND),
    (kb.count, (ROWS,), SPEND),
    (kb.count_columns, (ROWS,), SPEND),
    (kb.release, (COUNTED,), {}),
    (kb.fit, (RELEASE, "arm"), {}),
    (kb.make_plan, ("variant", ["bought"]), {}),
    (kb.power, (None,), {"rate": 0.1, "effect": 0.01}),
    (kb.add_releases, ([RELEASE],), {}),
    (kb.attack, (RELEASE,), {}),
    (kb.audit, (RELEASE,), {}),
    (kb.read_ledger, ("missing.ledger",), {}),
    (kb.read_plan, ("missing.toml",), {}),
    (kb.read_release, ("missing.json",), {}),
    (kb.write_release, (RELEASE, "missing/missing.json"), {}),
    (kb.Looks, ("spending",), {}),
    (kb.Margin, ("superiority", 1), {}),
    (kb.Metric, ("spend",), {}),
    (kb.Prior, (0, 1), {}),
    (kb.tally.Factor, ("tier", (1, 2)), {}),
    (kb.counting.read_classes, ({"arm": ["A", "B"], "count": [20, 20], "y": [1, 2]},), {}),
    (kb.plan.parse_plan, ("",), {}),
    (kb.plan.plan_digest, (kb.make_plan("variant", ["bought"]),), {}),
    (scan.scan_interactions, (ROWS, ["variant", "device"], ["bought"]), {}),
    (scan.scan_segments, (ROWS, ["variant"], ["bought"], ["tier"]), {}),
    (stats.additive_means, ([TALLY], "bought"), {}),
    (stats.additive_ratio_means, ([TALLY], "spend", "bought"), {}),
    (stats.adjusted_effect, (TALLY, "bought"), {}),
    (stats.adjusted_means, (TALLY, "bought"), {}),
    (stats.adjusted_ratio_means, (TALLY, "spend", "bought"), {}),
    (stats.against_control, (MEANS,), {}),
    (stats.against_margin, (EFFECT, kb.Margin("superiority", 0.1)), {}),
    (stats.any_time_look, (EFFECT, 100), {}),
    (stats.boundaries, ([0.5, 1.0],), {}),
    (stats.best_arm, (MEANS, kb.Prior(0, 1)), {}),
    (stats.changed_shares, ([TALLY],), {}),
    (stats.clamped_values, ({"bought": 0}, 100), {}),
    (stats.cluster_means, (TALLY, "spend", "bought"), {}),
    (stats.contrast, (MEANS, {"A": -1, "B": 1}), {}),
    (stats.correct, ([0.1, 0.2],), {}),
    (stats.difference_in_means, (TALLY, "bought"), {}),
    (stats.fit, (TALLY, "variant", "spend"), {}),
    (stats.effect_differs, (TALLY, "tier", "bought"), {}),
    (stats.follow_ups, (TALLY, "tier", "bought"), {}),
    (stats.segment_effects, (TALLY, "tier", "bought"), {"confidence": 0.9}),
    (stats.joint_contrasts, (MEANS, [{"A": -1, "B": 1}]), {}),
    (stats.looked_early, (2, False), {}),
    (stats.many_to_one, (MEANS,), {}),
    (stats.metric_cautions, (TALLY, "bought"), {}),
    (stats.nested_f, (TALLY, "variant", "variant * tier", "spend"), {}),
    (stats.omnibus, (MEANS,), {}),
    (stats.count_nonmodal, (TALLY, "bought"), {}),
    (stats.plain_means, (TALLY, "bought"), {}),
    (stats.planned_look, (EFFECT, [100]), {"looks": 2}),
    (stats.pooled_f, (TALLY, "tier", "bought"), {}),
    (stats.posterior, (EFFECT, kb.Prior(0, 1)), {}),
    (stats.ratio_means, (TALLY, "spend", "bought"), {}),
    (stats.BinnedPeople, ((0, 1), (1, 1, 1)), {}),
    (stats.quantile_effect, (BINNED, BINNED, 0.5), {}),
    (stats.propose_edges, ([BINNED],), {}),
    (planning.propose_bins, (RELEASE_IN_BINS, "spend"), {}),
    (stats.received_effect, (TALLY, "spend", "bought"), {}),
    (stats.relative_delta, (MEANS, EFFECT), {}),
    (stats.odds_ratio, (EFFECT,), {}),
    (stats.relative_effect, (MEANS, EFFECT), {}),
    (stats.robust_f, (TALLY, "tier", "bought"), {}),
    (stats.check_balance, ([TALLY],), {}),
    (stats.check_balance_any_time, ([TALLY],), {}),
    (stats.sample_ratio, (TALLY,), {}),
    (stats.sample_ratio_any_time, (TALLY,), {}),
    (stats.simultaneous_intervals, ([EFFECT],), {}),
    (planning.PlannedTest, (), {}),
    (planning.baseline_from_release, (RELEASE,), {}),
    (planning.crossed_spread, ({"A": 1, "B": 1}, {"a": 1, "b": 1}), {"sd": 1.0}),
    (planning.crossed_spread_of, (TALLY, "tier", "bought"), {}),
    (planning.forecast_plan, (kb.make_plan("variant", ["bought"], arms={"A": 1, "B": 1}),), {}),
    (planning.interaction_power, (CELLS,), {"people": 1000, "power": 0.8}),
    (planning.spread_of_amounts, (1.0,), {}),
    (planning.spread_of_means, (MEANS,), {}),
    (planning.spread_of_rows, (ROWS, "spend"), {}),
    (planning.spread_of_rate, (0.1,), {}),
    (planning.power_curve, (SPREAD,), {"people": [1000], "effect": 0.1}),
    (planning.solve_power, (SPREAD,), {"people": 1000, "power": 0.8}),
    (portfolio.combine, ([RELEASE, OTHER],), {}),
    (portfolio.meta_analysis, ([1.0, 2.0], [1.0, 1.0]), {}),
    (portfolio.read_portfolio, ([RELEASE, OTHER, RELEASE],), {}),
    (portfolio.shrink, ([1.0, 2.0, 4.0], [1.0, 1.0, 1.0]), {}),
]

WRONG = [
    5, 0, None, "x", 0.1, -3, FRAME, TALLY, RELEASE, COUNTED, kb.Ledger, [], {}, [1], ["x"], object(), b"x",
    np.zeros(3),
]  # fmt: skip


def name(call: Call) -> str:
    return call[0].__name__


def public_functions() -> list[Callable[..., Any]]:
    things = [getattr(api, word) for api in APIS for word in api.__all__]
    return [thing for thing in things if inspect.isfunction(thing)]


def test_every_public_function_is_called_here() -> None:
    called = {call[0] for call in CALLS}
    assert [function.__name__ for function in public_functions() if function not in called] == []


SLOW = (kb.readout, scan.scan_interactions, scan.scan_segments)


@pytest.mark.parametrize(
    "call",
    [pytest.param(call, marks=pytest.mark.slow if call[0] in SLOW else ()) for call in CALLS],
    ids=map(name, CALLS),
)
def test_no_wrong_argument_ends_in_a_traceback(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some of the wrong arguments are names of files
    function, args, named = call
    signature = inspect.signature(function)
    right = signature.bind(*args, **named).arguments
    for word in signature.parameters:
        for wrong in WRONG:
            try:
                function(**right | {word: wrong})
            except KanabError as problem:
                assert problem.remedy or problem.at or len(problem.fact) > 10


@pytest.mark.parametrize("function", public_functions(), ids=lambda function: function.__name__)
def test_a_signature_names_every_keyword_and_its_type(function: Callable[..., Any]) -> None:
    parameters = inspect.signature(function).parameters.values()
    assert not [one.name for one in parameters if one.kind is one.VAR_KEYWORD]
    assert set(get_type_hints(function)) >= {one.name for one in parameters} | {"return"}


WRONG_CALLS = r"""
kb.readout(ROWS, arm="variant", metrcs=["bought"])
kb.count(ROWS, arm="variant", segment=["tier"])
kb.analyze(RELEASE, confidense=0.9)
kb.analyze(RELEASE, cuped="one")
kb.readout(ROWS, arm="variant", winsorize=0.01)
kb.count(ROWS, arm="variant", filter="x > 1")
kb.readout(ROWS, arm="variant", ratios=["a/b"])
kb.readout(ROWS, arm="variant", quantiles={})
kb.readout(ROWS, arm="variant", covariates=["tier"])
kb.readout(ROWS, arm="variant", shares={"A": 9})
kb.Mean("spend", winsorize=5)
kb.Reading(sequential="always")
kb.analyze(RELEASE, reading={"confidence": 0.9})
kb.Looks("spending", loks=5)
kb.release()
kb.release(COUNTED, 10, "why")
kb.count(ROWS, zzz=1)
kb.Reading(looks=5)
kb.Reading(margins=0.1)
kb.Reading(margins={"bought": 0.1})
kb.Reading(prior=0)
kb.Reading(pool=["B", "C"])
kb.Reading(contrasts="B - C")
kb.Reading(confidence="high", test="t", looks=5)
kb.analyze(RELEASE, reading=kb.Reading(contrasts=[1]))
kb.analyze("checkout.json")
kb.analyze(FRAME)
kb.Reading(correction=FRAME)
kb.count(ROWS, arm="variant", metrics=5)
kb.Mean("bought", bounds=5)
kb.count(ROWS, "kanab.toml")
kb.release(COUNTED, ledger=kb.Ledger)
kb.release(TALLY)
kb.add_releases(RELEASE)
kb.read_release(RELEASE)
kb.write_release("file.json", RELEASE)
stats.difference_in_means(FRAME)
stats.difference_in_means(RELEASE)
stats.contrast(TALLY, {"A": 1})
stats.posterior(EFFECT, 0.1)
stats.simultaneous_intervals([1, 2])
planning.solve_power(0.1, people=100, power=0.8)
scan.scan_segments(ROWS, experiment=["variant"])
kb.analyze(RELEASE, sequential="always-valid")
kb.readout(ROWS, treatment="variant")
kb.count(ROWS, group="variant")
kb.power(rate=0.1, mde=0.01)
kb.readout(ROWS, arm="variant", assigned_by="shop")
"""


def test_a_wrong_call_is_one_sentence_with_a_remedy() -> None:
    said = []
    for code in WRONG_CALLS.strip().splitlines():
        with pytest.raises(KanabError) as problem:
            eval(code)
        said += [code, f"    {problem.value}"]
    assert_approved("arguments.txt", "\n".join(said) + "\n")


def test_an_argument_error_is_a_type_error_too() -> None:
    with pytest.raises(TypeError):
        kb.Reading(looks=5)


def test_every_hint_names_a_class_and_functions_that_exist() -> None:
    names = {word for api in APIS for word in dir(api)}
    for origin, hint in ORIGINS.items():
        assert {origin, *re.findall(r"(\w+)\(", hint)} <= names


@check_arguments(skip=("odd",))
def take(
    number: float, span: Span | None = None, spans: dict[str, Span] | None = None, odd: int = 0, *, flag: bool = False
) -> str:
    """Take things."""
    return f"{number}{len('x' + odd)}" if isinstance(odd, str) and flag else str(number + len(odd))  # type: ignore[arg-type]


def test_what_fits_goes_in_as_it_is() -> None:
    span = Span("day", "7d", None, "2026-W46")
    assert take(1, span, {"a": span}, "xy", flag=True) == "13"  # type: ignore[arg-type]
    assert take(np.float64(1), odd=(), flag=np.True_) == "1.0"  # type: ignore[arg-type]
    assert str(inspect.signature(take)).startswith("(number: 'float', span: 'Span | None' = None")
    assert take.__doc__ == "Take things."


def test_a_type_error_inside_the_function_stays_what_it_is() -> None:
    with pytest.raises(TypeError, match="has no len") as problem:
        take(1, odd=3)
    assert not isinstance(problem.value, ArgumentError)


def test_items_of_our_own_classes_are_checked_and_others_left_to_the_function() -> None:
    with pytest.raises(ArgumentError, match=r"^spans of take\(\) must be a dict of Span, not a dict of int\.$"):
        take(1, spans={"a": 1})  # type: ignore[dict-item]
    with pytest.raises(ArgumentError, match=r"^number of take\(\) must be a number, not None\.$"):
        take(None)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"^span of take\(\) must be a Span, not a list\. For example span=Span\("):
        take(1, [])  # type: ignore[arg-type]
