"""The decision line: by the rule that docs/how-to/deciding.md prints, from the data of a readout alone."""

from collections.abc import Callable
from typing import Any

import pytest

from kanab.analysis.decision import STILL_RUNS, decide, rule_sentences
from kanab.report.words import colour_key, tone

Readout = dict[str, Any]
Maker = Callable[..., Readout]
RULE = {"primary": "any", "guardrails": "not-worse", "people": None, "worth": None}
DOWN = {"estimate": -0.5, "interval": [-0.7, -0.3], "relative": -0.05, "relative_interval": [-0.07, -0.03]}


@pytest.fixture
def experiment(small: Maker, effect: Maker) -> Maker:
    """Effects of B (and others) with their roles, guardrails as read, and a rule."""

    def make(*rows: Readout, guardrails: tuple[Readout, ...] = (), rule: Readout | None = None, **more: Any) -> Readout:
        effects = [effect(**{"role": "primary", "better": "higher", "sequential": None} | row) for row in rows]
        return small(*effects, guardrails=list(guardrails), rule=RULE | (rule or {}), **more)

    return make


def latency(**changes: Any) -> Readout:
    """The effect on a guardrail."""
    return {"metric": "latency", "role": "guardrail", "better": "lower", "verdict": "up"} | changes


UNCLEAR = {"p": 0.4, "p_adjusted": 0.4}


def answer(data: Readout, **now: Any) -> str:
    decision = decide(data, **now)
    assert decision is not None
    return str(decision["answer"])


def test_secondary_metrics_decide_nothing(experiment: Maker) -> None:
    assert answer(experiment({}, DOWN | {"metric": "visits", "role": "secondary"})) == "ship"
    assert answer(experiment(UNCLEAR, {"metric": "visits", "role": "secondary"})) == "inconclusive"


def test_one_of_several_primary_metrics_is_enough_unless_the_rule_says_all(experiment: Maker) -> None:
    rows = ({}, UNCLEAR | {"metric": "visits"})
    assert answer(experiment(*rows)) == "ship"
    every = experiment(*rows, rule={"primary": "all"})
    decision = decide(every)
    assert decision is not None
    assert (decision["answer"], decision["because"][0][:15]) == ("inconclusive", "No clear effect")
    assert "every primary metric is clearly better" in rule_sentences(every | {"decision": decision})[0]
    assert answer(experiment({}, {"metric": "visits"}, rule={"primary": "all"})) == "ship"
    assert answer(experiment({}, DOWN | {"metric": "visits"})) == "stop"


def test_what_still_runs_without_looks_or_people_goes_on(experiment: Maker) -> None:
    decision = decide(experiment({}), running=True)
    assert decision is not None
    assert (decision["answer"], decision["because"][-1]) == ("keep going", STILL_RUNS)
    assert answer(experiment(DOWN), running=True) == "keep going"
    assert answer(experiment(DOWN), running=False) == "stop"
    assert answer(experiment({}, rule={"people": 900}), running=True) == "ship"
    look = {"sequential": {"verdict": "may stop"}}
    assert answer(experiment(look), running=True) == "ship"


def test_a_guardrail_that_a_few_people_could_have_made_worse_ships_nothing(experiment: Maker) -> None:
    watched = {"metric": "latency", "arm": "B", "reading": "watch", "margin": None, "relative": None}
    decision = decide(experiment({}, guardrails=(watched,)))
    assert decision is not None
    said = "Guardrail latency is worse with B, but a few people could have made it."
    assert (decision["answer"], decision["because"][-1]) == ("inconclusive", said)


def test_colours_say_better_and_worse_where_less_is_better(small: Maker, effect: Maker) -> None:
    rise, fall = effect(better="lower"), effect(**DOWN, metric="visits")
    assert [tone(row) for row in (rise, fall, effect(**UNCLEAR))] == ["worse", "worse", "unclear"]
    assert tone(effect() | {"verdict": None}) == "beside"
    assert colour_key(small(fall)) == "Blue is clearly more than the control, orange clearly less, grey neither."
    assert colour_key(small(rise, fall)).endswith("orange clearly worse, grey neither; less is better for spend.")


def test_cautions_about_looks_reach_the_decision(experiment: Maker) -> None:
    early = decide(experiment({}, cautions=[{"kind": "looked-early", "metric": None, "sentence": "2 batches."}]))
    assert early is not None
    assert (early["answer"], early["because"][-1]) == ("ship", "That holds if nobody looked before the last batch.")


def test_other_experiments_that_interfere_on_a_primary_metric_are_named(experiment: Maker) -> None:
    alarms = [{"experiment": "banner", "metric": "spend"}, {"experiment": "search", "metric": "visits"}]
    decision = decide(experiment({}, interferes=alarms))
    assert decision is not None
    assert decision["because"][1:] == ["It interferes with banner on spend: read it within the arms of banner."]
