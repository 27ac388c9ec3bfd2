"""Forty varied experiments, each with the answer of somebody who did not write the rule, given before it was read.

The judge saw what an experimenter sees: the data, here drawn anew with a seed for each, and what was declared.
"""

from typing import Any

import numpy as np
import pytest
from tests.described import readout_of

import kanab as kb

Rows = dict[str, Any]
N = 20_000


class Draw:
    """People of an experiment, made up."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def arms(self, n: int = N, names: str = "A B", p: Any = None) -> Any:
        return self.random.choice(names.split(), n, p=p)

    def buy(self, n: int = N, names: str = "A B", p: Any = None, **effects: float) -> Rows:
        """People who buy at a rate of 10 %, and at that and its effect in an arm."""
        arms = self.arms(n, names, p)
        return {"arm": arms, "y": self.random.random(n) < [0.1 + effects.get(arm, 0) for arm in arms]}

    def guarded(self, z: float, worse: float = 0.0, gain: float = 0.02, n: int = N) -> Rows:
        rows = self.buy(n, B=gain)
        return rows | {"z": self.random.random(n) < z + worse * (rows["arm"] == "B")}

    def timed(self, factor: float, n: int = 2 * N, gain: float = 0.02, sd: float = 0.5) -> Rows:
        rows = self.buy(n, B=gain)
        return rows | {"z": self.spend(n, sd=sd)["y"] * np.where(rows["arm"] == "B", factor, 1)}

    def spend(self, n: int, p: Any = None, sd: float = 1.5, pay: float = 1.0, factor: float = 1.0) -> Rows:
        arms = self.arms(n, p=p)
        amounts = np.exp(3 + sd * self.random.standard_normal(n)) * np.where(arms == "B", factor, 1)
        return {"arm": arms, "y": np.round(amounts * (self.random.random(n) < pay), 2)}

    def first(self, number: int, value: float, y: Any) -> Rows:
        """Some people of B have an own value."""
        arms = self.arms(len(y))
        y[np.flatnonzero(arms == "B")[:number]] = value
        return {"arm": arms, "y": y}

    def by_device(self, even: float, *effects: float) -> Rows:
        """Phones and desktops, with a share of A and an effect each."""
        device = self.arms(names="phone desktop")
        phone = device == "phone"
        arms = np.where(self.random.random(N) < np.where(phone, 1 - even, even), "A", "B")
        rates = 0.1 + (arms == "B") * np.where(phone, *effects)
        return {"arm": arms, "device": device, "y": self.random.random(N) < rates}

    def lacking(self, in_a: float, in_b: float, **effects: float) -> Rows:
        rows = self.buy(**effects)
        gone = self.random.random(N) < np.where(rows["arm"] == "B", in_b, in_a)
        return rows | {"y": np.where(gone, np.nan, rows["y"])}

    def visits(self) -> Rows:
        visitor, arms = np.repeat(np.arange(2_000), 10), self.arms(2_000)
        own = self.random.normal(20, 3, 2_000)[visitor]
        return {"arm": arms[visitor], "visitor": visitor.astype(str), "y": self.random.normal(own, 3).round(2)}


def claim(kind: Any, size: float) -> Rows:
    return {"margins": {"y": kb.Margin(kind, size)}}


def within(share: float) -> Rows:
    return GUARD | {"margins": {"z": kb.Margin("non-inferiority", share, relative=True)}}


GUARD: Rows = {"metrics": ["y", "z"], "primary": ["y"], "guardrails": ["z"]}
LESS = GUARD | {"lower_is_better": ["z"]}
BOTH: Rows = {"metrics": ["y", "z"]}
PAIR: Rows = {"metrics": ["y", "z"], "primary": ["y", "z"]}
DEVICE: Rows = {"covariates": ["device"]}
PLAN: Rows = {"decision": {"people": N}}
SMALL: Rows = {"shares": {"A": 9, "B": 1}}
TINY: Rows = {"shares": {"A": 19, "B": 1}}
FIRST: Rows = {"looks": kb.Looks("spending", planned=N, earlier=[])}
SECOND: Rows = {"looks": kb.Looks("spending", planned=N, earlier=[N // 2])}
FEWER: Rows = {"arm": ["B"] * 12 + ["A"] * 488}
NI, MORE, SAME = "non-inferiority", "superiority", "equivalence"
FEW, OUT = "Far too few people", "are ruled out"

CASES: dict[str, tuple[str | None, Any, Rows, str]] = {
    "nothing": ("inconclusive", lambda x: x.buy(), {}, OUT),
    "nothing, 400 people": ("inconclusive", lambda x: x.buy(400), {}, FEW),
    "nothing, spend": ("inconclusive", lambda x: x.spend(N, pay=0.1), {}, ""),
    "nothing, four arms": ("inconclusive", lambda x: x.buy(names="A B C D"), {}, OUT),
    "nothing, heavy tail, small arm": ("inconclusive", lambda x: x.spend(N, [0.95, 0.05], 2), TINY, FEW),
    "gain": ("ship B", lambda x: x.buy(B=0.02), {}, "B raises y"),
    "harm": ("stop B", lambda x: x.buy(B=-0.02), {}, "B lowers y"),
    "latency falls": ("ship B", lambda x: x.spend(N, sd=0.5, factor=0.95), {"lower_is_better": ["y"]}, "B lowers y"),
    "old and new": ("ship new", lambda x: x.buy(names="old new", new=0.02), {}, ""),
    "blue and red": (None, lambda x: x.buy(names="blue red", red=0.02), {}, ""),
    "blue against red": ("stop blue", lambda x: x.buy(names="blue red", red=0.02), {"control": "red"}, ""),
    "gain, refunds worse": ("stop B", lambda x: x.guarded(0.03, 0.01), LESS, "although it raises y"),
    "gain, refunds better": ("ship B", lambda x: x.guarded(0.04, -0.01), LESS, "Not shown to be worse"),
    "gain, refunds alike": ("ship B", lambda x: x.guarded(0.04), LESS, "Not shown to be worse, without a margin"),
    "gain, margin too narrow": ("inconclusive", lambda x: x.timed(1, 3_000, 0.05, 1.5), within(0.05), "is not shown"),
    "gain, margin kept": ("ship B", lambda x: x.timed(1), within(0.1), "Its guardrail holds"),
    "gain, worse within its margin": ("ship B", lambda x: x.timed(0.98), within(0.05), "at most 5 % worse"),
    "no gain, refunds worse": ("stop B", lambda x: x.guarded(0.03, 0.012, 0), LESS, "Guardrail z is clearly worse"),
    "not inferior": ("ship B", lambda x: x.buy(2 * N), claim(NI, 0.01), "at most 1 point worse"),
    "not inferior, too few": ("inconclusive", lambda x: x.buy(2_000), claim(NI, 0.01), "is not shown"),
    "not inferior, but worse": ("ship B", lambda x: x.buy(2 * N, B=-0.01), claim(NI, 0.02), "although it lowers y"),
    "inferior": ("stop B", lambda x: x.buy(2 * N, B=-0.03), claim(NI, 0.01), "is not shown"),
    "better, not by the margin": ("inconclusive", lambda x: x.buy(2 * N, B=0.01), claim(MORE, 0.01), "is not shown"),
    "better by the margin": ("ship B", lambda x: x.buy(2 * N, B=0.03), claim(MORE, 0.01), "is shown"),
    "equivalent": ("ship B", lambda x: x.buy(2 * N), claim(SAME, 0.01), "B is equivalent to A on y (within 1 point"),
    "52 to 48": ("broken", lambda x: x.buy(p=[0.52, 0.48], B=0.02), {}, "did not arrive as planned"),
    "90 to 10, as declared": ("ship B", lambda x: x.buy(p=[0.9, 0.1], B=0.03), SMALL, ""),
    "uneven by device": ("broken", lambda x: x.by_device(0.54, 0, 0), DEVICE, "device is spread unevenly"),
    "early gain": ("keep going", lambda x: x.buy(6_000, B=0.03), PLAN, "So far y is higher with B"),
    "early harm": ("keep going", lambda x: x.buy(6_000, B=-0.03), PLAN, "B looks worse so far: a warning"),
    "planned look, large gain": ("ship B", lambda x: x.buy(N // 2, B=0.04), FIRST, ""),
    "planned look, nothing": ("keep going", lambda x: x.buy(18_000), SECOND, ""),
    "at any time, ended": ("inconclusive", lambda x: x.buy(), PLAN | {"looks": kb.Looks("always-valid")}, OUT),
    "harm and gain": ("ship C", lambda x: x.buy(30_000, "A B C", B=-0.02, C=0.02), {}, "B lowers y"),
    "two gains": ("ship C", lambda x: x.buy(30_000, "A B C", B=0.02, C=0.04), {}, "B also qualifies"),
    "0 against 7 events": ("ship B", lambda x: x.first(7, 1, np.zeros(2_000)), {}, ""),
    "spend, harm, small arm": ("inconclusive", lambda x: x.spend(2_000, [0.9, 0.1], pay=0.1, factor=0.7), SMALL, FEW),
    "one large buyer": ("inconclusive", lambda x: x.first(1, 60_000, x.spend(2_000, sd=0.7)["y"]), {}, FEW),
    "visits, not people": ("broken", lambda x: x.visits(), {}, "rows are not people"),
    "missing unevenly": ("broken", lambda x: x.lacking(0.05, 0.25), {}, "have a value of y less often"),
    "missing alike": ("ship B", lambda x: x.lacking(0.1, 0.1, B=0.02), {}, ""),
    "no primary metric": (None, lambda x: x.guarded(0.2), BOTH, ""),
    "one up, one down": ("stop B", lambda x: x.guarded(0.2, -0.025), PAIR, "B lowers z"),
    "phones gain, others lose": ("ship B", lambda x: x.by_device(0.5, 0.05, -0.02), DEVICE, "But it differs by device"),
    "12 people in an arm": ("inconclusive", lambda x: x.buy(500) | FEWER, {"shares": {"A": 488, "B": 12}}, FEW),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_that_of_the_judge(name: str) -> None:
    answer, draw, choices, words = CASES[name]
    rows = draw(Draw(100 + [*CASES].index(name)))
    decision = readout_of(rows, arm="arm", **{"metrics": ["y"]} | choices).to_dict()["decision"]
    named = {"ship": "ship {arm}", "stop": "stop {arm}"}
    assert (decision and named.get(decision["answer"], decision["answer"]).format(**decision)) == answer
    assert words in " ".join((decision or {"because": []})["because"])
    assert (words == FEW) <= (OUT not in str(decision))
