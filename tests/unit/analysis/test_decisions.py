"""What somebody reads who asks what to do: the answer, and the sentence that gives the reason, for many experiments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from tests.described import as_values, count_of, readout_of

import kanab as kb
from kanab.report.decision import decision_words

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


@dataclass(frozen=True)
class Case:
    """An experiment, how it is read, what to do, and words that the reasons must have."""

    rows: Rows
    headline: str | None
    says: Sequence[str] = ()
    how: Mapping[str, Any] = field(default_factory=dict)


GUARDED: dict[str, Any] = {"primary": "bought", "guardrails": "refunds", "lower_is_better": "refunds"}
EVEN = {"A": 0.02, "B": 0.02}
CASES: dict[str, Any] = {
    "clearly better": lambda: Case(
        bought({"A": 0.10, "B": 0.13}), "ship B", ["B raises bought by 3.0 points (+30 %)."]
    ),
    "nothing found": lambda: Case(
        bought({"A": 0.10, "B": 0.102}), "inconclusive",
        ["No clear effect of B on bought", "Effects of B on bought beyond −1.1 … +1.5 points are ruled out."],
    ),
    "nothing found yet": lambda: Case(
        bought({"A": 0.10, "B": 0.102}), "keep going", ["8,000 of 20,000 planned people are in: 12,000 to go."],
        {"decision": {"people": 20_000}},
    ),
    "better too early": lambda: Case(
        bought({"A": 0.10, "B": 0.13}), "keep going", ["So far bought is higher with B", "12,000 to go"],
        {"decision": {"people": 20_000}},
    ),
    "harm": lambda: Case(bought({"A": 0.10, "B": 0.07}), "stop B", ["B lowers bought by 3.0 points (−30 %)."]),
    "harm too early": lambda: Case(
        bought({"A": 0.10, "B": 0.07}), "keep going",
        ["So far bought is lower with B: −3.0 points (−30 %). B looks worse so far: a warning", "12,000 to go"],
        {"decision": {"people": 20_000}},
    ),
    "a guardrail is worse too early": lambda: Case(
        bought({"A": 0.10, "B": 0.13}, refunds={"A": 0.02, "B": 0.05}), "keep going",
        ["So far refunds is higher with B: +3.0", "B looks worse so far: a warning, and no finding yet."],
        {**GUARDED, "decision": {"people": 20_000}},
    ),
    "harm where less is better": lambda: Case(
        bought({"A": 0.10, "B": 0.13}), "stop B", ["B raises bought"], {"lower_is_better": "bought"}
    ),
    "harm in one of two arms at the end": lambda: Case(
        bought({"A": 0.10, "B": 0.07, "C": 0.102}), "stop B",
        ["B lowers bought", "Effects of C on bought beyond −1.3 … +1.7 points are"]
    ),
    "harm in one of two arms, the other goes on": lambda: Case(
        bought({"A": 0.10, "B": 0.07, "C": 0.102}), "keep going",
        ["B lowers bought", "No clear effect of C on bought", "Stop B now.", "18,000 to go"],
        {"looks": kb.Looks("spending", planned=30_000, earlier=())},
    ),
    "harm in both arms": lambda: Case(
        bought({"A": 0.10, "B": 0.07, "C": 0.06}), "stop B, C", ["B lowers bought", "C lowers bought"]
    ),
    "one arm harms, the other ships": lambda: Case(
        bought({"A": 0.10, "B": 0.07, "C": 0.14}), "ship C", ["C raises bought", "B lowers bought"]
    ),
    "two winners": lambda: Case(
        bought({"A": 0.10, "B": 0.13, "C": 0.15}), "ship C", ["B also qualifies; C has the larger effect on bought."]
    ),
    "a guardrail is worse, with a gain": lambda: Case(
        bought({"A": 0.10, "B": 0.13}, refunds={"A": 0.02, "B": 0.05}), "stop B",
        ["Guardrail refunds is clearly worse: B raises it by 3.00 points (+150 %), although it raises bought by 3.0"],
        GUARDED,
    ),
    "a guardrail is worse, without a gain": lambda: Case(
        bought({"A": 0.10, "B": 0.10}, refunds={"A": 0.02, "B": 0.05}), "stop B",
        ["Guardrail refunds is clearly worse: B raises it by 3.00 points (+150 %)."],
        GUARDED,
    ),
    "a guardrail is not shown to hold": lambda: Case(
        bought({"A": 0.10, "B": 0.13}, refunds=EVEN), "inconclusive",
        ["B raises bought", "That guardrail refunds is not more than 0.5 points worse with B is not shown."],
        {**GUARDED, "margins": {"refunds": kb.Margin("non-inferiority", 0.005)}},
    ),
    "a guardrail holds within its margin": lambda: Case(
        bought({"A": 0.10, "B": 0.13}, refunds=EVEN), "ship B",
        ["Its guardrail holds: refunds (at most 1 point worse)."],
        {**GUARDED, "margins": {"refunds": kb.Margin("non-inferiority", 0.01)}},
    ),
    "non-inferiority is shown": lambda: Case(
        bought({"A": 0.10, "B": 0.10}), "ship B",
        ["Non-inferiority of B on bought is shown (at most 2 points worse).", "No clear effect"],
        {"margins": {"bought": kb.Margin("non-inferiority", 0.02)}},
    ),
    "non-inferiority is not shown": lambda: Case(
        bought({"A": 0.10, "B": 0.10}), "inconclusive", ["is not shown (at most 5 % worse)", "are ruled out"],
        {"margins": {"bought": kb.Margin("non-inferiority", 0.05, relative=True)}},
    ),
    "clearly worse, but not by the margin": lambda: Case(
        bought({"A": 0.10, "B": 0.085}), "ship B",
        ["is shown (at most 3 points worse), although it lowers bought by 1.5"],
        {"margins": {"bought": kb.Margin("non-inferiority", 0.03)}},
    ),
    "clearly worse, and perhaps by more than the margin": lambda: Case(
        bought({"A": 0.10, "B": 0.085}), "stop B", ["is not shown", "B lowers bought"],
        {"margins": {"bought": kb.Margin("non-inferiority", 0.02)}},
    ),
    "better, but superiority by the margin is not shown": lambda: Case(
        bought({"A": 0.10, "B": 0.13}), "inconclusive",
        ["Superiority of B on bought is not shown (more than 2 points better).", "B raises bought", "are ruled out"],
        {"margins": {"bought": kb.Margin("superiority", 0.02)}},
    ),
    "superiority where everybody spent the same": lambda: Case(
        spent({"A": 0, "B": 0}, sd=0), "inconclusive", ["Superiority of B on spend is not shown"],
        {"metrics": ["spend"], "margins": {"spend": kb.Margin("superiority", 1)}},
    ),
    "superiority by the margin is shown": lambda: Case(
        bought({"A": 0.10, "B": 0.13}), "ship B", ["Superiority of B on bought is shown"],
        {"margins": {"bought": kb.Margin("superiority", 0.01)}},
    ),
    "equivalence is shown": lambda: Case(
        spent({"A": 0, "B": 0.05}), "ship B", ["B is equivalent to A on spend (within 0.5 of A)."],
        {"metrics": ["spend"], "margins": {"spend": kb.Margin("equivalence", 0.5)}},
    ),
    "people did not arrive in the planned shares": lambda: Case(
        {name: column[: N + N // 2] for name, column in bought({"A": 0.10, "B": 0.2}).items()}, "broken",
        ["Find the cause first: people did not arrive as planned."],
    ),
    "people of one arm lack values": lambda: Case(
        missing_more_often(), "broken", ["Find the cause first: people of B have a value of bought less often."],
        {"missing": {"bought": "exclude"}},
    ),
    "the arms hold other people": lambda: Case(
        bought({"A": 0.10, "B": 0.13}) | {"device": np.where(np.arange(2 * N) < 1.3 * N, "phone", "tv")}, "broken",
        ["Find the cause first: device is spread unevenly over the arms."], {"covariates": ["device"]},
    ),
    "a planned look that shows nothing": lambda: Case(
        bought({"A": 0.10, "B": 0.102}), "keep going", ["3 of 5 looks are left."],
        {"looks": kb.Looks("spending", looks=5, earlier=(4_000,))},
    ),
    "a planned look at some of the people": lambda: Case(
        bought({"A": 0.10, "B": 0.102}), "keep going", ["8,000 of 20,000 planned people are in: 12,000 to go."],
        {"looks": kb.Looks("spending", planned=20_000, earlier=(4_000,))},
    ),
    "the last look shows nothing": lambda: Case(
        bought({"A": 0.10, "B": 0.102}), "inconclusive", ["are ruled out"],
        {"looks": kb.Looks("spending", looks=2, earlier=(4_000,))},
    ),
    "an early look that stops": lambda: Case(
        bought({"A": 0.10, "B": 0.15}), "ship B", ["B raises bought"],
        {"looks": kb.Looks("spending", looks=3, earlier=(4_000,))},
    ),
    "looks are left for a guardrail alone": lambda: Case(
        bought({"A": 0.10, "B": 0.15}, refunds=EVEN), "keep going",
        ["B raises bought", "That guardrail refunds", "1 of 3 looks is left."],
        {**GUARDED, "limits": {"refunds": (0.005, False)}, "looks": kb.Looks("spending", looks=3, earlier=(4_000,))},
    ),
    "non-inferiority over several looks": lambda: Case(
        bought({"A": 0.10, "B": 0.10}), "ship B", ["Non-inferiority of B on bought is shown (at most 4 points worse)"],
        {"limits": {"bought": (0.04, False)}, "looks": kb.Looks("spending", looks=2, earlier=(4_000,))},
    ),
    "at any time": lambda: Case(
        bought({"A": 0.10, "B": 0.118}), "keep going", ["people in all make it clear if the effect stays as it is."],
        {"looks": kb.Looks("always-valid")},
    ),
    "at any time, nothing in sight": lambda: Case(
        bought({"A": 0.10, "B": 0.1005}), "keep going", ["You may look again at any time."],
        {"looks": kb.Looks("always-valid")},
    ),
    "segments diffe": lambda: Case(
        by_device(0.145, -0.036), "ship B", ["But it differs by device: phone +14.5, desktop −3.6 points."],
        {"covariates": ["device"]},
    ),
    "the control is unknown": lambda: Case(
        bought({"blue": 0.10, "green": 0.14}), None,
        ["Which arm is the control? blue, green: --control blue (in Python control=\"blue\")", "nothing is decided"],
    ),
    "the control is named": lambda: Case(
        bought({"blue": 0.10, "green": 0.14}), "stop blue", ["blue lowers bought"], {"control": "green"}
    ),
    "several metrics and none is primary": lambda: Case(
        bought({"A": 0.10, "B": 0.14}, refunds=EVEN), None,
        ["No decision: name a primary metric, for example --primary bought."], {"primary": ()},
    ),
    "guardrails, and several metrics none of which is primary": lambda: Case(
        bought({"A": 0.10, "B": 0.14}, refunds=EVEN, visits=EVEN), None, ["for example --primary bought."],
        {"primary": (), "guardrails": "refunds"},
    ),
    "a few people could have made it": lambda: Case(
        skewed(), "inconclusive", ["No clear effect of B on spend", "Far too few people: the interval is"],
        {"metrics": ["spend"], "shares": {"A": 9, "B": 1}},
    ),
    "a few people could have made it, so fa": lambda: Case(
        skewed(), "keep going", ["No clear effect of B on spend", "1,400 to go"],
        {"metrics": ["spend"], "shares": {"A": 9, "B": 1}, "decision": {"people": 2_000}},
    ),
    "nobody bought": lambda: Case(
        bought({"A": 0.0, "B": 0.0}), "inconclusive", ["No clear effect of B on bought", "are ruled out"]
    ),
    "everybody spent the same": lambda: Case(
        spent({"A": 0, "B": 0}, sd=0), "inconclusive", ["B cannot be tested on spend: nothing varies"],
        {"metrics": ["spend"]},
    ),
    "one of two primary metrics, and all are asked for": lambda: Case(
        bought({"A": 0.10, "B": 0.14}, visits={"A": 0.3, "B": 0.3}), "inconclusive",
        ["No clear effect of B on visits", "Effects of B on visits beyond"],
        {"primary": ["bought", "visits"], "decision": {"primary": "all"}},
    ),
}  # fmt: skip


def read(case: Case) -> kb.Readout:
    how = dict(case.how)
    choices = {name: how.pop(name) for name in ("metrics", "covariates", "control", "shares", "missing") if name in how}
    choices.setdefault("metrics", [name for name in case.rows if name in ("bought", "refunds", "visits")])
    looks, limits = how.get("looks"), how.pop("limits", {})
    if looks is None:
        return readout_of(case.rows, arm="variant", **choices, **how)
    counted = kb.release(count_of(case.rows, arm="variant", **choices))
    planned = replace(counted.plan.experiment(), non_inferiority=limits)
    return kb.analyze(
        replace(counted, plan=replace(counted.plan, experiments=(planned,))), **as_values("analyze", **how)
    )


@pytest.mark.parametrize("name", CASES)
def test_what_to_do_and_why(name: str) -> None:
    case = CASES[name]()
    readout = read(case)
    decision = readout.to_dict()["decision"]
    assert (None if decision is None else decision_words(decision)) == case.headline
    text = " ".join(str(readout).split("──")[0].split())
    for words in case.says:
        assert words in (text if decision is None else " ".join(decision["because"]))
    if decision is not None:
        assert f"Decision: {case.headline}. " in text


def test_every_arm_has_its_answer() -> None:
    decision = read(CASES["one arm harms, the other ships"]()).to_dict()["decision"]
    assert (decision["arm"], decision["arms"]) == ("C", {"B": "stop", "C": "ship"})
    both = read(CASES["harm in both arms"]()).to_dict()["decision"]
    assert (both["arm"], both["arms"]) == (None, {"B": "stop", "C": "stop"})


def test_an_effect_that_differs_by_many_levels_names_the_largest_and_the_smallest() -> None:
    parts = {f"shop {at}": bought({"A": 0.1, "B": 0.1 + 0.03 * at}, 1_000) for at in range(7)}
    rows = {name: np.concatenate([part[name] for part in parts.values()]) for name in ("variant", "bought")}
    rows["shop"] = np.repeat(list(parts), 2_000)
    decision = kb.readout(rows, arm="variant", metrics=["bought"], adjust=["shop"], segments=["shop"]).to_dict()[
        "decision"
    ]
    assert "But it differs by shop: shop 6 +18.0, shop 5 +15.0, shop 1 +3.0, shop 0 0.0 points." in decision["because"]


# ── which arm is the control ───────────────────────────────────────────────────────────────────


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
