"""What to do about an experiment, in one line: ship, hold, keep going or look into it; by a rule that is printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from kanab.errors import listed
from kanab.report.figures import Row
from kanab.report.words import faults, headlines, is_better, metrics_of, role_of, spoken_arm, verdicts

Data = Mapping[str, Any]
Answer = Literal["look into it", "ship", "hold", "keep going"]
ANSWERS: tuple[Answer, ...] = get_args(Answer)

STILL_RUNS = "It still runs, and its plan names neither looks nor people: an answer counts when it has ended."

IF_UNLOOKED = "That holds if nobody looked before the last batch."


@dataclass(frozen=True)
class _ArmReading:
    """One arm, as the rule sees it: its primary rows and its guardrails."""

    name: str
    primary: Sequence[Row]
    guardrails: Sequence[Row]

    def primary_rows(self, *, better: bool) -> list[Row]:
        """Return the primary metrics that are clearly better, or clearly worse."""
        return [row for row in self.primary if is_better(row) is better]

    @property
    def harmed(self) -> bool:
        """Whether something that matters is clearly worse."""
        worse = any(row["reading"] == "worse" for row in self.guardrails)
        return worse or bool(self.primary_rows(better=False))

    @property
    def doubtful(self) -> bool:
        """Whether a few people could have made what is seen."""
        return any(row["verdict"] == "watch" for row in self.primary) or any(
            row["reading"] == "watch" for row in self.guardrails
        )

    def improved(self, rule: Mapping[str, Any]) -> bool:
        """Return whether primary metrics are better as the rule demands."""
        better = self.primary_rows(better=True)
        return len(better) == len(self.primary) if rule["primary"] == "all" else bool(better)

    def ships(self, rule: Mapping[str, Any]) -> bool:
        """Return whether the rule says that this arm may be shipped."""
        return self.improved(rule) and not self.harmed and all(row["reading"] == "holds" for row in self.guardrails)


def decide(data: Data, *, running: bool = False) -> dict[str, Any] | None:
    """Return the answer, its arm, the sentences behind it and the rule; None where no metric is primary.

    ``running``: people are still being counted. Alarms come first, then harm; an arm is shipped where the rule is
    met, and where looks, people or time are left, the experiment goes on.
    """
    rule = data["rule"]
    arms = _arms(data)
    if not arms:
        return None
    only = arms[0].name if len(arms) == 1 else None
    if wrong := faults(data):
        return _answer("look into it", only, [cause_first(", and ".join(wrong))], rule)
    shipping = [arm for arm in arms if arm.ships(rule)]
    early = _early(data, running=running)
    if shipping and not early:
        best = max(shipping, key=lambda arm: _gain(arm.primary[0]))
        unlooked = [IF_UNLOOKED] * bool(_cautions(data, "looked-early"))
        return _answer("ship", best.name, [*_why_ship(data, best), *_others(shipping, best), *unlooked], rule)
    left = [arm for arm in arms if not arm.harmed]
    because = [sentence for arm in arms for sentence in _why_not(data, arm, rule)]
    if not left:
        return _answer("hold", only, because, rule)
    if early or _looks_left(left):
        going = [early] if early else ["Not all looks are made."]
        return _answer("keep going", only, [*because, *going], rule)
    if any(arm.doubtful for arm in left):
        return _answer("look into it", only, because, rule)
    return _answer("hold", only, because, rule)


def _cautions(data: Data, kind: str) -> list[str]:
    return [caution["sentence"] for caution in data.get("cautions", ()) if caution["kind"] == kind]


def cause_first(fault: str) -> str:
    """Return what stands in the way of any other answer."""
    return f"Find the cause first: {fault}."


def _answer(answer: Answer, arm: str | None, because: Sequence[str], rule: Mapping[str, Any]) -> dict[str, Any]:
    return {"answer": answer, "arm": arm, "because": list(because), "rule": dict(rule)}


def _arms(data: Data) -> list[_ArmReading]:
    rows = [row for metric in metrics_of(data) for row in headlines(data, metric) if row.get("role") == "primary"]
    return [
        _ArmReading(
            name,
            [row for row in rows if row["arm"] == name],
            [row for row in data["guardrails"] if row["arm"] == name],
        )
        for name in dict.fromkeys(row["arm"] for row in rows)
    ]


def _gain(row: Row) -> float:
    gain: float = row["estimate"] if row["better"] == "higher" else -row["estimate"]
    return gain


def _early(data: Data, *, running: bool) -> str:
    """Return why nothing may be shipped yet, if so."""
    planned = data["rule"]["people"]
    looked = any(row["sequential"] for row in data["effects"])
    if planned is not None and not looked:
        return f"{data['people']:,} of {planned:,} planned people are in." if data["people"] < planned else ""
    return STILL_RUNS if running and not looked else ""


def _looks_left(arms: Sequence[_ArmReading]) -> bool:
    return any(
        row["sequential"] is not None and row["sequential"]["verdict"] == "keep going"
        for arm in arms
        for row in arm.primary
    )


def _why_ship(data: Data, arm: _ArmReading) -> list[str]:
    sentences = [_claim(data, row) for row in arm.primary_rows(better=True)]
    if arm.guardrails:
        names = listed(f"{row['metric']} ({_held(row)})" for row in arm.guardrails)
        sentences.append(f"{'Every guardrail holds' if len(arm.guardrails) > 1 else 'Its guardrail holds'}: {names}.")
    return sentences


def _others(shipping: Sequence[_ArmReading], best: _ArmReading) -> list[str]:
    others = [spoken_arm(arm.name) for arm in shipping if arm is not best]
    if not others:
        return []
    metric = best.primary[0]["metric"]
    return [f"{listed(others)} would do, too: {spoken_arm(best.name)} has the larger effect on {metric}."]


def _why_not(data: Data, arm: _ArmReading, rule: Mapping[str, Any]) -> list[str]:
    """Return what keeps an arm from being shipped; of one that could be, what it shows."""
    worse = [_claim(data, row) for row in arm.primary_rows(better=False)]
    broken = [f"Guardrail {row['metric']} is clearly worse with {spoken_arm(arm.name)}." for row in arm.guardrails
              if row["reading"] == "worse"]  # fmt: skip
    if worse or broken:
        return [*worse, *broken]
    if not arm.improved(rule):
        return [_claim(data, row) for row in arm.primary if is_better(row) is None]
    sentences = [_claim(data, row) for row in arm.primary_rows(better=True)]
    for row in arm.guardrails:
        if row["reading"] == "watch":
            sentences.append(
                f"Guardrail {row['metric']} is worse with {spoken_arm(arm.name)}, but a few people could have made it."
            )
        elif row["reading"] == "not shown":
            limit = "worse" if row["margin"] is None else f"more than {margin_text(row)} worse"
            sentences.append(f"That guardrail {row['metric']} is not {limit} with {spoken_arm(arm.name)} is not shown.")
    return sentences


def _claim(data: Data, row: Row) -> str:
    """Return the claim of a row that carries a verdict, as a sentence."""
    verdict = next(verdict for verdict in verdicts(data, row["metric"]) if verdict.row is row)
    claim = f"{verdict.claim[:1].upper()}{verdict.claim[1:]}" if verdict.kind == "watch" else verdict.claim
    return f"{claim}."


def _held(row: Row) -> str:
    return "not clearly worse" if row["margin"] is None else f"at most {margin_text(row)} worse"


def margin_text(row: Row) -> str:
    """Return a margin as it was declared: a number, or a percentage of the control's mean."""
    return f"{100 * row['margin']:.6g} %" if row["relative"] else f"{row['margin']:.6g}"


def rule_sentences(data: Data) -> list[str]:
    """Return the rule by which the decision was made, in one sentence; nothing where there is none."""
    if data.get("decision") is None:
        return []
    rule = data["rule"]
    primary = "every primary metric is" if rule["primary"] == "all" else "a primary metric is"
    several = sum(role_of(data, metric) == "primary" for metric in metrics_of(data)) > 1
    better = f"{primary if several else 'the primary metric is'} clearly better{' and none clearly worse' * several}"
    guards = ""
    if data["guardrails"]:
        bare = any(row["margin"] is None for row in data["guardrails"])
        within = any(row["margin"] is not None for row in data["guardrails"])
        parts = ["no guardrail is clearly worse"] * bare + ["every margin is kept"] * within
        guards = f", {' and '.join(parts)}"
    people = "" if rule["people"] is None else f", not before {rule['people']:,} people"
    return [
        f"Decision rule: ship where {better}{guards}{people}; look into it after an alarm; hold what is clearly worse "
        "or, at the end, not shown; otherwise keep going."
    ]
