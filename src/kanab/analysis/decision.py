"""What to do about an experiment, in one line: ship, stop, inconclusive, keep going or broken; by a printed rule."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from kanab.errors import flag, listed
from kanab.report.digits import Digits, Row, figures_of, is_share, metric_figures
from kanab.report.words import (
    counted_units,
    faults,
    headlines,
    is_better,
    metrics_of,
    moves_by,
    role_of,
    spoken_arm,
    summary,
    title,
    verdict_rows,
    verdicts,
)
from kanab.stats.sequential import FUTILE, stop_advice

Data = Mapping[str, Any]
Answer = Literal["broken", "stop", "ship", "keep going", "inconclusive"]
ANSWERS: tuple[Answer, ...] = get_args(Answer)

STILL_RUNS = "It still runs, and its plan names neither looks nor people: an answer counts when it has ended."

WARNING = (
    "a warning, and no finding yet. To be able to stop early, read it over several looks (--sequential always-valid)."
)

IF_UNLOOKED = "That holds if nobody looked before the last batch."

MOST_LEVELS = 4
"""Of a covariate with more levels, so many of those where the effect is largest and smallest are named."""

FAR = 0.3
"""An interval wider than so far to both sides, as a share of the control's mean, rules out what nobody expects."""

FARTHEST = 10
"""An effect that would take more than so many times the people of now is not waited for."""


@dataclass(frozen=True)
class Decision:
    """What to do about an experiment, the arm that it is about (None: several), and why; ``arms`` by their answers."""

    answer: Answer
    arm: str | None
    arms: Mapping[str, Answer]
    because: Sequence[str]
    rule: Data

    def __str__(self) -> str:
        words = decision_words(vars(self))
        return f"{words[:1].upper()}{words[1:]}. {' '.join(self.because)}"


@dataclass(frozen=True)
class _ArmReading:
    """One arm: its primary rows, the claims about them, its guardrails as they are read, and the effects on these."""

    name: str
    primary: Sequence[Row]
    claims: Sequence[Row]
    guardrails: Sequence[Row]
    guarding: Sequence[Row]

    def reading(self, row: Row) -> bool | None:
        """Return whether a primary metric is as good as it has to be: a claim decides, else whether it is better."""
        shown = [claim["reading"] == "holds" for claim in self.claims if claim["metric"] == row["metric"]]
        if shown and all(shown):
            return True
        return None if shown and is_better(row) else is_better(row)

    def primary_rows(self, reading: bool | None) -> list[Row]:
        """Return the primary metrics that are read so."""
        return [row for row in self.primary if self.reading(row) is reading]

    def next_look(self) -> Mapping[str, Any] | None:
        """Return a look after which more are to come; None where there are none."""
        looks = [row["sequential"] for row in (*self.primary, *self.guarding)]
        return next((look for look in looks if look is not None and look["verdict"] == "keep going"), None)

    def answer(self, rule: Mapping[str, Any], *, early: bool) -> Answer:
        """Return what to do about this arm."""
        readings = [self.reading(row) is True for row in self.primary]
        guardrails = {guardrail["reading"] for guardrail in self.guardrails}
        if early:
            return "keep going"
        if self.primary_rows(False) or "worse" in guardrails:
            return "stop"
        enough = all(readings) if rule["primary"] == "all" else any(readings)
        held = {*guardrails, *(claim["reading"] for claim in self.claims)} <= {"holds"}
        if enough and held:
            return "ship"
        return "keep going" if self.next_look() else "inconclusive"


def decide(data: Data, *, running: bool = False) -> dict[str, Any] | None:
    """Return the answer, its arm, the answers of all arms, the sentences behind them and the rule.

    None where no metric is primary, or the control is not known. ``running``: people are still being counted. Alarms
    come first, then the best arm that may be shipped; an arm that does harm is stopped, while others are waited for.
    Before the planned people are in, or while it runs without a plan, p holds for no look: nothing is stopped, either.
    """
    rule, arms = data["rule"], _arms(data)
    if not arms or data.get("control_chosen") == "unknown":
        return None
    if wrong := faults(data):
        return broken(data, ", and ".join(wrong))
    early = _early(data, running=running)
    answers = {arm.name: arm.answer(rule, early=bool(early)) for arm in arms}
    precedence: tuple[Answer, ...] = ("ship", "keep going", "stop", "inconclusive")
    answer = next(each for each in precedence if each in answers.values())
    about = [arm for arm in arms if answers[arm.name] == answer]
    if answer == "ship":
        about.sort(key=lambda arm: _gain(arm.primary[0]), reverse=True)
    because = _why_ship(data, about) if answer == "ship" else []
    for arm in arms:
        if answers[arm.name] != "ship":
            why = _so_far(data, arm) if early else _why_not(data, arm, answers[arm.name])
            because += [*why, *_by_segment(data, arm)]
    if answer == "keep going":
        stopping = [spoken_arm(arm.name) for arm in arms if answers[arm.name] == "stop"]
        because += [f"Stop {listed(stopping)} now."] if stopping else []
        because.append(early or _to_come(data, about))
        looks = (row for arm in about for row in arm.primary if row["sequential"])
        because += filter(None, (futility_sentence(data, row) for row in looks))
    for alarm in data.get("interferes", ()):
        if role_of(data, alarm["metric"]) == "primary":
            other = alarm["experiment"]
            because.append(f"It interferes with {other} on {alarm['metric']}: read it within the arms of {other}.")
    named = about[0].name if answer == "ship" or len(about) == 1 else None
    return {"answer": answer, "arm": named, "arms": answers, "because": because, "rule": dict(rule)}


def broken(data: Data, fault: str) -> dict[str, Any]:
    """Return the decision where something stands in the way of any other: its cause has to be found first."""
    names = [arm.name for arm in _arms(data)]
    return {
        "answer": "broken",
        "arm": names[0] if len(names) == 1 else None,
        "arms": dict.fromkeys(names, "broken"),
        "because": [f"Find the cause first: {fault}."],
        "rule": dict(data["rule"]),
    }


def _arms(data: Data) -> list[_ArmReading]:
    rows = verdict_rows(data)
    primary, guarding = ([row for row in rows if row.get("role") == role] for role in ("primary", "guardrail"))
    of_all = (primary, data.get("claims", ()), data["guardrails"], guarding)
    return [
        _ArmReading(name, *([row for row in of if row["arm"] == name] for of in of_all))
        for name in dict.fromkeys(row["arm"] for row in primary)
    ]


def _gain(row: Row) -> float:
    gain: float = row["estimate"] if row["better"] == "higher" else -row["estimate"]
    return gain


def _early(data: Data, *, running: bool) -> str:
    planned = data["rule"]["people"]
    looked = any(row["sequential"] for row in data["effects"])
    if planned is not None and not looked:
        return _people_left(data, planned) if data["people"] < planned else ""
    return STILL_RUNS if running and not looked else ""


def _people_left(data: Data, planned: int) -> str:
    return f"{data['people']:,} of {planned:,} planned people are in: {planned - data['people']:,} to go."


def _to_come(data: Data, arms: Sequence[_ArmReading]) -> str:
    look = next(look for arm in arms if (look := arm.next_look()))
    if look.get("looks"):
        left = look["looks"] - look["look"]
        return f"{left} of {look['looks']} looks {'is' if left == 1 else 'are'} left."
    if look.get("planned"):
        return _people_left(data, look["planned"])
    if (look.get("until") or math.inf) < FARTHEST * data["people"]:
        return f"About {look['until']:,} people in all make it clear if the effect stays as it is."
    return "You may look again at any time."


# ── why ────────────────────────────────────────────────────────────────────────────────────────


def _why_ship(data: Data, arms: Sequence[_ArmReading]) -> list[str]:
    best, *others = arms
    sentences = _findings(data, best, best.primary_rows(True))
    held = [f"{row['metric']} (at most {margin_text(data, row)} worse)" for row in best.guardrails if row["margin"]]
    bare = [row["metric"] for row in best.guardrails if not row["margin"]]
    if held:
        sentences.append(f"{'Its guardrails hold' if len(held) > 1 else 'Its guardrail holds'}: {listed(held)}.")
    if bare:
        sentences.append(f"Not shown to be worse, without a margin: guardrail{'s' * (len(bare) > 1)} {listed(bare)}.")
    sentences += _by_segment(data, best)
    if others:
        qualify = "also qualifies" if len(others) == 1 else "also qualify"
        larger = f"{spoken_arm(best.name)} has the larger effect on {best.primary[0]['metric']}"
        sentences.append(f"{listed(spoken_arm(arm.name) for arm in others)} {qualify}; {larger}.")
    looked = any(caution["kind"] == "looked-early" for caution in data.get("cautions", ()))
    return [*sentences, *[IF_UNLOOKED] * looked]


def _so_far(data: Data, arm: _ArmReading) -> list[str]:
    worse = [row["metric"] for row in arm.guardrails if row["reading"] == "worse"]
    guards = [row for row in arm.guarding if row["metric"] in worse]
    sentences = _findings(data, arm, [*arm.primary, *guards])
    if guards or arm.primary_rows(False):
        sentences.append(f"{spoken_arm(arm.name)} looks worse so far: {WARNING}")
    return sentences


def _why_not(data: Data, arm: _ArmReading, answer: Answer) -> list[str]:
    """Return what keeps an arm from being shipped; where nothing will be shown any more, what is ruled out."""
    harm = _findings(data, arm, arm.primary_rows(False))
    harm += [_worse(data, arm, row["metric"]) for row in arm.guardrails if row["reading"] == "worse"]
    if harm:
        return harm
    undecided = arm.primary_rows(None)
    sentences = _findings(data, arm, undecided or arm.primary)
    if answer == "inconclusive":
        sentences += [sentence for row in undecided for sentence in _ruled_out(data, row)]
    for row in arm.guardrails:
        if row["reading"] == "watch":
            sentences.append(
                f"Guardrail {row['metric']} is worse with {spoken_arm(arm.name)}, but a few people could have made it."
            )
        elif row["reading"] == "not shown" and arm.primary_rows(True):
            limit = "worse" if row["margin"] is None else f"more than {margin_text(data, row)} worse"
            sentences.append(f"That guardrail {row['metric']} is not {limit} with {spoken_arm(arm.name)} is not shown.")
    return sentences


def _findings(data: Data, arm: _ArmReading, rows: Sequence[Row]) -> list[str]:
    sentences = []
    for row in rows:
        sentences += _finding(data, arm, row)
    return sentences


def _finding(data: Data, arm: _ArmReading, row: Row) -> list[str]:
    verdict = next(verdict for verdict in verdicts(data, row["metric"]) if verdict.row is row)
    effect = verdict.sentence if verdict.kind == "untestable" else f"{verdict.claim}."
    claims = [_claimed(data, claim) for claim in arm.claims if claim["metric"] == row["metric"]]
    if claims and arm.reading(row) and is_better(row) is False and verdict.kind != "early":
        return [*claims[:-1], f"{claims[-1][:-1]}, although it {moves_by(data, row, row['metric'])}."]
    return [*claims, f"W{effect[1:]}" if verdict.kind == "watch" else effect]


def _claimed(data: Data, claim: Row) -> str:
    size, arm = margin_text(data, claim), spoken_arm(claim["arm"])
    what = {
        "non-inferiority": f"at most {size} worse",
        "superiority": f"more than {size} better",
        "equivalence": f"within {size} of {spoken_arm(data['control'])}",
    }[claim["claim"]]
    shown = "shown" if claim["reading"] == "holds" else "not shown"
    if (claim["claim"], shown) == ("equivalence", "shown"):
        return f"{arm} is equivalent to {spoken_arm(data['control'])} on {claim['metric']} ({what})."
    return f"{claim['claim'].capitalize()} of {arm} on {claim['metric']} is {shown} ({what})."


def _worse(data: Data, arm: _ArmReading, guardrail: str) -> str:
    row = next(row for row in arm.guarding if row["metric"] == guardrail)
    gains = [moves_by(data, gain, gain["metric"]) for gain in arm.primary if is_better(gain)]
    though = f", although it {listed(gains)}" if gains else ""
    return f"Guardrail {guardrail} is clearly worse: {spoken_arm(arm.name)} {moves_by(data, row, 'it')}{though}."


def _ruled_out(data: Data, row: Row) -> list[str]:
    """Return which effects are left out by the interval that goes with the verdict."""
    interval = row.get("interval_adjusted") or row["interval"]
    if interval is None:
        return []
    figures, _ = metric_figures(data, row["metric"])
    least, most = row["relative_interval"] or (0, 0)
    if least is None or most is None or most - least > 2 * FAR:
        return [f"Far too few people: the interval is {figures.spoken(interval)}{' points' * figures.share}."]
    return [f"Effects of {spoken_arm(row['arm'])} on {row['metric']} {_beyond(interval, figures)} are ruled out."]


def _beyond(interval: Sequence[float | None], figures: Digits) -> str:
    """Return which effects an interval leaves out."""
    low, high = (None if end is None else figures.bare(end, signed=True) for end in interval)
    ends = f"above {high}" if low is None else f"below {low}" if high is None else f"beyond {low} … {high}"
    return f"{ends}{' points' * figures.share}"


def _by_segment(data: Data, arm: _ArmReading) -> list[str]:
    """Return by which covariates the effect on a primary metric differs, and how: the largest effects first."""
    sentences = []
    metrics = [row["metric"] for row in arm.primary]
    for test in data["segments"]:
        if test["decides"] and test["metric"] in metrics and test["verdict"] == "differs":
            place = (test["metric"], test["covariate"], arm.name)
            rows = [row for row in data["segment_effects"] if (row["metric"], row["covariate"], row["arm"]) == place]
            rows = sorted((row for row in rows if row["interval"]), key=lambda row: -row["estimate"])
            if len(rows) > MOST_LEVELS:
                rows = rows[: MOST_LEVELS // 2] + rows[-MOST_LEVELS // 2 :]
            figures = figures_of(rows, share=is_share(data, test["metric"]))
            levels = listed(f"{row['level']} {figures.bare(row['estimate'], signed=True)}" for row in rows)
            what = "it" if len(metrics) == 1 else f"the effect on {test['metric']}"
            how = f": {levels}{' points' * figures.share}" if rows else ""
            sentences.append(f"But {what} differs by {test['covariate']}{how}.")
    return sentences


def margin_text(data: Data, row: Row) -> str:
    """Return a margin as it was declared: a number, points of a rate, or a percentage of the control's mean."""
    share = is_share(data, row["metric"])
    scale = 100 if row["relative"] or share else 1
    sizes = row["margin"] if isinstance(row["margin"], list) else [row["margin"]]
    text = " … ".join(f"{scale * size:.6g}" for size in sizes).replace("-", "−")
    unit = "point" if text == "1" else "points"
    return f"{text} %" if row["relative"] else f"{text} {unit}" if share else text


# ── in words ───────────────────────────────────────────────────────────────────────────────────


def lead_sentences(data: Data) -> list[str]:
    """Return what to do, who was in the experiment, and how many of the comparisons are clear."""
    people = title(data).removeprefix(f"{data['experiment']}: ")
    return [*decision_sentences(data), f"{people}.", summary(data)]


def decision_sentences(data: Data) -> list[str]:
    """Return what to do, and why; else what to name so that something can be decided."""
    decision = data.get("decision")
    if decision is None:
        return undecided_sentences(data)
    return [f"Decision: {decision_words(decision)}. {' '.join(decision['because'])}"]


def undecided_sentences(data: Data) -> list[str]:
    """Return what has to be named before anything can be decided: the control, or a primary metric."""
    control, metrics = data["control"], metrics_of(data)
    if metrics and data.get("control_chosen") == "unknown":
        return [
            f"Which arm is the control? {listed(data['arms'])}: {flag('--control', control)} (in Python "
            f'control="{control}"). Until it is named, arms are compared with {control}, and nothing is decided.'
        ]
    free = [metric for metric in metrics if role_of(data, metric) != "guardrail"]
    if len(free) < 2 or any(role_of(data, metric) == "primary" for metric in free):
        return []
    return [f"No decision: name a primary metric, for example {flag('--primary', free[0])}."]


def decision_words(decision: Mapping[str, Any]) -> str:
    """Return the answer, with the arms that it is about: "ship B", "stop B, C", "keep going"."""
    answer: str = decision["answer"]
    if answer == "ship":
        return f"ship {spoken_arm(decision['arm'])}"
    stopped = [spoken_arm(arm) for arm, each in decision["arms"].items() if each == "stop"]
    return f"stop {listed(stopped)}" if answer == "stop" else answer


def rule_sentences(data: Data) -> list[str]:
    """Return the rule by which the decision was made, in one sentence; nothing where there is none."""
    if data.get("decision") is None:
        return []
    rule = data["rule"]
    primary = "every primary metric is" if rule["primary"] == "all" else "a primary metric is"
    several = sum(role_of(data, metric) == "primary" for metric in metrics_of(data)) > 1
    better = f"{primary if several else 'the primary metric is'} clearly better{' and none clearly worse' * several}"
    if data.get("claims"):
        better += " (where a claim was declared: it is shown)"
    guards = ""
    if data["guardrails"]:
        bare = any(row["margin"] is None for row in data["guardrails"])
        within = any(row["margin"] is not None for row in data["guardrails"])
        parts = ["no guardrail is clearly worse"] * bare + ["every margin is kept"] * within
        guards = f", {' and '.join(parts)}"
    people = "" if rule["people"] is None else f"not before {rule['people']:,} people, "
    return [
        f"Decision rule: broken after an alarm; {people}stop what is clearly worse; ship where {better}{guards}; keep "
        "going while planned people or looks are left; otherwise inconclusive."
    ]


# ── what a look at an effect allows: to stop, to go on and what that can still change, or nothing more ──


def look_sentences(data: Data, metric: str) -> list[str]:
    """Return whether one may stop, in one line, for a metric that is looked at more than once; then who may give up."""
    rows = [row for row in headlines(data, metric) if row.get("sequential")]
    if not rows:
        return []
    first = rows[0]["sequential"]
    of = f" of {first['looks']}" if first["looks"] else ""
    when = "At any time" if first["method"] == "always-valid" else f"Look {first['look']}{of}"
    advice = [
        f"{spoken_arm(row['arm'])}: {look_words(data, row)}" if len(rows) > 1 else look_words(data, row) for row in rows
    ]
    futile = [sentence for row in rows if (sentence := futility_sentence(data, row))]
    return [f"{when}: {'; '.join(advice)}.", *futile]


def look_words(data: Data, row: Row) -> str:
    """Return what the look at an effect allows: to stop, to go on until when, or nothing more and what is ruled out."""
    if row["sequential"]["verdict"] != "ended":
        return stop_advice(row["sequential"])
    ended = f"ended at {counted_units(data)} without a finding"
    interval = row.get("interval_adjusted") or row.get("interval")
    if interval is None:
        return ended
    return f"{ended}; effects {_beyond(interval, metric_figures(data, row['metric'])[0])} are ruled out"


def futility_sentence(data: Data, row: Row) -> str:
    """Return that the rest of the plan can hardly change the answer, where that is so; else nothing."""
    chance = row["sequential"].get("chance")
    going = row["sequential"]["verdict"] == "keep going" and row.get("role") != "guardrail"
    if not going or chance is None or chance >= FUTILE:
        return ""
    arm, metric, worth = spoken_arm(row["arm"]), row["metric"], data.get("rule", {}).get("worth")
    finding = f"the chance of a finding for {arm} on {metric}"
    if worth is not None and row["role"] == "primary":
        number = f"{100 * worth:.6g} points" if is_share(data, metric) and not isinstance(worth, str) else str(worth)
        finding = f"even if {arm} changed {metric} by {number.replace('%', ' %')}, the chance of a finding"
    return (
        f"The rest of the plan can hardly change the answer: {finding} is "
        f"{'below 1' if chance < 0.01 else f'{100 * chance:.0f}'} %. Stopping now costs little."
    )
