"""What somebody reads who asks what to do: the answer, and the sentence that gives the reason, for many experiments."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.approved import assert_approved
from tests.described import as_values, count_of, readout_of

import kanab as kb
from kanab.analysis.decision import decision_sentences

Rows = dict[str, Any]
N = 4_000


def bought(rates: Mapping[Any, float], people: int = N, **others: Mapping[Any, float]) -> Rows:
    """So many people per arm, of whom exactly this share has bought; other 0/1 metrics likewise, in others."""
    arms = np.repeat(np.array(list(rates), dtype=object), people)
    rng = np.random.default_rng(5)

    def exactly(share: float) -> Any:
        return rng.permutation((np.arange(people) < round(share * people)).astype(int))

    metrics = {"bought": rates, **others}
    columns = {name: np.concatenate([exactly(by_arm[arm]) for arm in rates]) for name, by_arm in metrics.items()}
    return {"variant": arms, **columns}


def spent(effect: Mapping[str, float], people: int = N, sd: float = 5.0) -> Rows:
    """Amounts with exactly these means."""
    rng = np.random.default_rng(6)
    noise = rng.normal(0, sd, people)
    noise -= noise.mean()
    arms = np.repeat(list(effect), people)
    return {"variant": arms, "spend": np.concatenate([np.round(20 + effect[arm] + noise, 3) for arm in effect])}


def by_device(phone: float, desktop: float) -> Rows:
    """Bought by 10 % of A, and by so much more of B on each device."""
    half = {"phone": bought({"A": 0.1, "B": 0.1 + phone}), "desktop": bought({"A": 0.1, "B": 0.1 + desktop})}
    rows = {name: np.concatenate([part[name] for part in half.values()]) for name in ("variant", "bought")}
    return rows | {"device": np.repeat(list(half), 2 * N)}


def skewed() -> Rows:
    """Amounts of a thin arm whose mean a few people carry: Welch's test is sure, the rule for skewed ones is not."""
    for seed in range(300):
        rng = np.random.default_rng(seed)
        variant = np.where(rng.random(600) < 0.1, "B", "A")
        rows = {"variant": variant, "spend": np.where(rng.random(600) < 0.05, np.round(rng.lognormal(3, 1.5, 600)), 0)}
        (row,) = kb.readout(rows, arm="variant", metrics=["spend"]).effects
        if (row.effect.p_usual or 1) < 0.01 and row.verdict == "unclear":
            return rows
    raise AssertionError("nothing that misleads Welch's test")  # pragma: no cover


def missing_more_often() -> Rows:
    rows = bought({"A": 0.1, "B": 0.14})
    values = rows["bought"].astype(float)
    values[np.flatnonzero(rows["variant"] == "B")[: N // 10]] = np.nan
    return rows | {"bought": values}


GUARDED: dict[str, Any] = {"primary": "bought", "guardrails": "refunds", "lower_is_better": "refunds"}
EVEN = {"A": 0.02, "B": 0.02}
CASES: dict[str, Callable[[], tuple[Rows, dict[str, Any]]]] = {
    "clearly better": lambda: (bought({"A": 0.10, "B": 0.13}), {}),
    "nothing found": lambda: (bought({"A": 0.10, "B": 0.102}), {}),
    "nothing found yet": lambda: (bought({"A": 0.10, "B": 0.102}), {"decision": {"people": 20_000}}),
    "better too early": lambda: (bought({"A": 0.10, "B": 0.13}), {"decision": {"people": 20_000}}),
    "harm": lambda: (bought({"A": 0.10, "B": 0.07}), {}),
    "harm too early": lambda: (bought({"A": 0.10, "B": 0.07}), {"decision": {"people": 20_000}}),
    "a guardrail is worse too early": lambda: (
        bought({"A": 0.10, "B": 0.13}, refunds={"A": 0.02, "B": 0.05}),
        {**GUARDED, "decision": {"people": 20_000}},
    ),
    "harm where less is better": lambda: (bought({"A": 0.10, "B": 0.13}), {"lower_is_better": "bought"}),
    "harm in one of two arms at the end": lambda: (bought({"A": 0.10, "B": 0.07, "C": 0.102}), {}),
    "harm in one of two arms, the other goes on": lambda: (
        bought({"A": 0.10, "B": 0.07, "C": 0.102}),
        {"looks": kb.Looks("spending", planned=30_000, earlier=())},
    ),
    "harm in both arms": lambda: (bought({"A": 0.10, "B": 0.07, "C": 0.06}), {}),
    "one arm harms, the other ships": lambda: (bought({"A": 0.10, "B": 0.07, "C": 0.14}), {}),
    "two winners": lambda: (bought({"A": 0.10, "B": 0.13, "C": 0.15}), {}),
    "a guardrail is worse, with a gain": lambda: (
        bought({"A": 0.10, "B": 0.13}, refunds={"A": 0.02, "B": 0.05}),
        GUARDED,
    ),
    "a guardrail is worse, without a gain": lambda: (
        bought({"A": 0.10, "B": 0.10}, refunds={"A": 0.02, "B": 0.05}),
        GUARDED,
    ),
    "a guardrail is not shown to hold": lambda: (
        bought({"A": 0.10, "B": 0.13}, refunds=EVEN),
        {**GUARDED, "margins": {"refunds": kb.Margin("non-inferiority", 0.005)}},
    ),
    "a guardrail holds within its margin": lambda: (
        bought({"A": 0.10, "B": 0.13}, refunds=EVEN),
        {**GUARDED, "margins": {"refunds": kb.Margin("non-inferiority", 0.01)}},
    ),
    "non-inferiority is shown": lambda: (
        bought({"A": 0.10, "B": 0.10}),
        {"margins": {"bought": kb.Margin("non-inferiority", 0.02)}},
    ),
    "non-inferiority is not shown": lambda: (
        bought({"A": 0.10, "B": 0.10}),
        {"margins": {"bought": kb.Margin("non-inferiority", 0.05, relative=True)}},
    ),
    "clearly worse, but not by the margin": lambda: (
        bought({"A": 0.10, "B": 0.085}),
        {"margins": {"bought": kb.Margin("non-inferiority", 0.03)}},
    ),
    "clearly worse, and perhaps by more than the margin": lambda: (
        bought({"A": 0.10, "B": 0.085}),
        {"margins": {"bought": kb.Margin("non-inferiority", 0.02)}},
    ),
    "better, but superiority by the margin is not shown": lambda: (
        bought({"A": 0.10, "B": 0.13}),
        {"margins": {"bought": kb.Margin("superiority", 0.02)}},
    ),
    "superiority where everybody spent the same": lambda: (
        spent({"A": 0, "B": 0}, sd=0),
        {"metrics": ["spend"], "margins": {"spend": kb.Margin("superiority", 1)}},
    ),
    "superiority by the margin is shown": lambda: (
        bought({"A": 0.10, "B": 0.13}),
        {"margins": {"bought": kb.Margin("superiority", 0.01)}},
    ),
    "equivalence is shown": lambda: (
        spent({"A": 0, "B": 0.05}),
        {"metrics": ["spend"], "margins": {"spend": kb.Margin("equivalence", 0.5)}},
    ),
    "people did not arrive in the planned shares": lambda: (
        {name: column[: N + N // 2] for name, column in bought({"A": 0.10, "B": 0.2}).items()},
        {},
    ),
    "people of one arm lack values": lambda: (missing_more_often(), {"missing": {"bought": "exclude"}}),
    "the arms hold other people": lambda: (
        bought({"A": 0.10, "B": 0.13}) | {"device": np.where(np.arange(2 * N) < 1.3 * N, "phone", "tv")},
        {"covariates": ["device"]},
    ),
    "a planned look that shows nothing": lambda: (
        bought({"A": 0.10, "B": 0.102}),
        {"looks": kb.Looks("spending", looks=5, earlier=(4_000,))},
    ),
    "a planned look at some of the people": lambda: (
        bought({"A": 0.10, "B": 0.102}),
        {"looks": kb.Looks("spending", planned=20_000, earlier=(4_000,))},
    ),
    "the last look shows nothing": lambda: (
        bought({"A": 0.10, "B": 0.102}),
        {"looks": kb.Looks("spending", looks=2, earlier=(4_000,))},
    ),
    "an early look that stops": lambda: (
        bought({"A": 0.10, "B": 0.15}),
        {"looks": kb.Looks("spending", looks=3, earlier=(4_000,))},
    ),
    "looks are left for a guardrail alone": lambda: (
        bought({"A": 0.10, "B": 0.15}, refunds=EVEN),
        {**GUARDED, "limits": {"refunds": (0.005, False)}, "looks": kb.Looks("spending", looks=3, earlier=(4_000,))},
    ),
    "non-inferiority over several looks": lambda: (
        bought({"A": 0.10, "B": 0.10}),
        {"limits": {"bought": (0.04, False)}, "looks": kb.Looks("spending", looks=2, earlier=(4_000,))},
    ),
    "at any time": lambda: (bought({"A": 0.10, "B": 0.118}), {"looks": kb.Looks("always-valid")}),
    "at any time, nothing in sight": lambda: (bought({"A": 0.10, "B": 0.1005}), {"looks": kb.Looks("always-valid")}),
    "segments differ": lambda: (by_device(0.145, -0.036), {"covariates": ["device"]}),
    "the control is unknown": lambda: (bought({"blue": 0.10, "green": 0.14}), {}),
    "the control is named": lambda: (bought({"blue": 0.10, "green": 0.14}), {"control": "green"}),
    "several metrics and none is primary": lambda: (bought({"A": 0.10, "B": 0.14}, refunds=EVEN), {"primary": ()}),
    "guardrails, and several metrics none of which is primary": lambda: (
        bought({"A": 0.10, "B": 0.14}, refunds=EVEN, visits=EVEN),
        {"primary": (), "guardrails": "refunds"},
    ),
    "a few people could have made it": lambda: (skewed(), {"metrics": ["spend"], "shares": {"A": 9, "B": 1}}),
    "a few people could have made it, so far": lambda: (
        skewed(),
        {"metrics": ["spend"], "shares": {"A": 9, "B": 1}, "decision": {"people": 2_000}},
    ),
    "nobody bought": lambda: (bought({"A": 0.0, "B": 0.0}), {}),
    "everybody spent the same": lambda: (spent({"A": 0, "B": 0}, sd=0), {"metrics": ["spend"]}),
    "one of two primary metrics, and all are asked for": lambda: (
        bought({"A": 0.10, "B": 0.14}, visits={"A": 0.3, "B": 0.3}),
        {"primary": ["bought", "visits"], "decision": {"primary": "all"}},
    ),
}


def read(name: str) -> kb.Readout:
    rows, asked = CASES[name]()
    how = dict(asked)
    choices = {name: how.pop(name) for name in ("metrics", "covariates", "control", "shares", "missing") if name in how}
    choices.setdefault("metrics", [name for name in rows if name in ("bought", "refunds", "visits")])
    looks, limits = how.get("looks"), how.pop("limits", {})
    if looks is None:
        return readout_of(rows, arm="variant", **choices, **how)
    counted = kb.release(count_of(rows, arm="variant", **choices))
    planned = replace(counted.plan.experiment(), non_inferiority=limits)
    return kb.analyze(
        replace(counted, plan=replace(counted.plan, experiments=(planned,))), **as_values("analyze", **how)
    )


def test_what_to_do_and_why() -> None:
    """Each case with its decision, of every arm, or with what is said where nothing is decided."""
    lines = []
    for name in CASES:
        readout = read(name)
        decision = readout.decision
        arms = "" if decision is None or len(decision.arms) < 2 else f" {dict(decision.arms)}"
        said = decision or " ".join(decision_sentences(readout.to_dict()))
        lines += [f"{name}:{arms}", f"    {said}"]
    assert_approved("readout/decisions.txt", "\n".join(lines) + "\n")


def test_an_effect_that_differs_by_many_levels_names_the_largest_and_the_smallest() -> None:
    parts = {f"shop {at}": bought({"A": 0.1, "B": 0.1 + 0.03 * at}, 1_000) for at in range(7)}
    rows = {name: np.concatenate([part[name] for part in parts.values()]) for name in ("variant", "bought")}
    rows["shop"] = np.repeat(list(parts), 2_000)
    decision = kb.readout(rows, arm="variant", metrics=["bought"], adjust=["shop"], segments=["shop"]).to_dict()[
        "decision"
    ]
    assert "But it differs by shop: shop 6 +18.0, shop 5 +15.0, shop 1 +3.0, shop 0 0.0 points." in decision["because"]


@pytest.mark.parametrize(
    ("control", "other"),
    [
        ("old", "new"), ("original", "challenger"), ("holdout", "exposed"), ("placebo", "drug"), ("Standard", "Neu"),
        ("No E-Mail", "Mens E-Mail"), ("control_v1", "b_v2"), ("Kontrolle", "B"), ("off", "on"), (0, 1),
    ],
)  # fmt: skip
def test_the_control_is_known_by_its_name_whichever_comes_first(control: Any, other: Any) -> None:
    data = kb.readout(bought({control: 0.10, other: 0.13}), arm="variant", metrics=["bought"]).to_dict()
    assert (data["control"], data["control_chosen"]) == (str(control), "word")
    assert (data["decision"]["answer"], data["decision"]["arm"]) == ("ship", str(other))


@pytest.mark.parametrize("word", ["alt", "alter", "actual", "sin", "sem", "aus", "sans"])
def test_a_word_that_means_something_else_elsewhere_names_no_control(word: str) -> None:
    data = kb.readout(bought({"main": 0.10, word: 0.13}), arm="variant", metrics=["bought"]).to_dict()
    assert (data["control_chosen"], data["decision"]) == ("unknown", None)


def test_how_the_control_was_chosen_is_said() -> None:
    rows = bought({"blue": 0.10, "green": 0.13})

    def chosen(**how: Any) -> tuple[str, str]:
        data = readout_of(rows, arm="variant", metrics=["bought"], **how).to_dict()
        return data["control"], data["control_chosen"]

    assert chosen() == ("blue", "unknown")
    assert chosen(control="green") == ("green", "named")
    assert chosen(arms=["green", "blue"]) == ("green", "declared")
    assert chosen(shares={"green": 1, "blue": 1}) == ("green", "declared")
    assert chosen(arms=["green", "blue"], control="blue") == ("blue", "named")


def test_a_declared_control_with_the_name_of_no_control_is_pointed_out() -> None:
    readout = kb.readout(bought({"new": 0.1, "old": 0.1}), arm="variant", metrics=["bought"], arms=["new", "old"])
    assert readout.control == "new"
    assert "Control is new (the first declared arm), not old; name another if that is wrong." in readout.notes


def test_a_pool_may_hold_the_first_of_the_declared_arms() -> None:
    rows = bought({"blue": 0.10, "green": 0.10, "red": 0.14})
    how: dict[str, Any] = {"arm": "variant", "metrics": ["bought"], "arms": ["green", "blue", "red"]}
    data = readout_of(rows, **how, pool={"cold": ["blue", "green"]}).to_dict()
    assert (data["control"], data["control_chosen"], data["decision"]["arm"]) == ("cold", "declared", "red")


def test_a_release_from_before_has_the_same_rule() -> None:
    released = kb.release(kb.count(bought({"new": 0.13, "old": 0.10}), arm="variant", metrics=["bought"]))
    assert released.plan.experiment().control is None
    data = kb.analyze(released).to_dict()
    assert (data["control"], data["control_chosen"]) == ("old", "word")
    assert kb.analyze(released, reading=kb.Reading(control="new")).to_dict()["control_chosen"] == "named"


def test_an_unknown_control_is_in_every_output() -> None:
    readout = kb.readout(bought({"blue": 0.10, "green": 0.13}), arm="variant", metrics=["bought"])
    for text in (str(readout), readout.to_brief(), readout.to_markdown(), readout._repr_html_(), readout.to_html()):
        assert "Which arm is the control?" in text
        assert "compared with blue" in text
