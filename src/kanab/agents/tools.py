"""The tools: what each takes, what it is for, and what may be concluded from its answer, in words for a model.

No tool takes a filter, a query, a path or a column: names of what was released, and numbers for planning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from kanab.agents.answers import MOST_LISTED, MOST_NAMED, USUAL_POWER, Answer, Answers, PowerQuestion
from kanab.errors import AnalysisError, listed

LONGEST_NAME = 200
"""Characters of a name that a tool takes."""

MOST_COMPARED = 20
"""So many experiments, arms or covariates are named in one question."""

_LONGEST_FAULT = 200

Name = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
Names = Annotated[list[Name], Meta(max_length=MOST_COMPARED)]


def _said(kind: Any, says: str) -> Any:
    return Annotated[kind, Meta(description=says)]


_EXPERIMENT = _said(Name, "Name of a released experiment, as list_experiments gives it.")
_METRIC = _said(Name, "Name of a metric of the experiment; a ratio as revenue/orders.")


class ListQuestion(Struct, forbid_unknown_fields=True):
    """What list_experiments takes."""

    page: _said(Annotated[int, Meta(ge=1, le=10_000)], f"Page of {MOST_LISTED} experiments, from 1.") = 1  # type: ignore[valid-type]


class ReadoutQuestion(Struct, forbid_unknown_fields=True):
    """What readout takes."""

    experiment: _EXPERIMENT  # type: ignore[valid-type]
    reading: _said(  # type: ignore[valid-type]
        Annotated[int, Meta(ge=0, le=10_000)] | None,
        "Which of the answer's `readings`, from 0, where it was released several times; default the newest.",
    ) = None


class CompareQuestion(Struct, forbid_unknown_fields=True):
    """What compare takes."""

    experiments: _said(  # type: ignore[valid-type]
        Annotated[list[Name], Meta(min_length=1, max_length=MOST_COMPARED)],
        "Names of released experiments; one alone where arms are named.",
    )
    metric: _METRIC | None = None  # type: ignore[valid-type]
    arms: _said(  # type: ignore[valid-type]
        Names, "Arms of the one experiment: the others are compared with the first. Default: all with the control."
    ) = msgspec.field(default_factory=list)


class PlanningQuestion(Struct, forbid_unknown_fields=True):
    """What power takes."""

    experiment: _EXPERIMENT  # type: ignore[valid-type]
    metric: _METRIC | None = None  # type: ignore[valid-type]
    people: _said(Annotated[int, Meta(ge=2)] | None, "People in all arms together.") = None  # type: ignore[valid-type]
    effect: _said(  # type: ignore[valid-type]
        float | None, "Change of the mean in units of the metric (0.01 is one point of a rate), or see relative."
    ) = None
    power: _said(  # type: ignore[valid-type]
        Annotated[float, Meta(gt=0, lt=1)] | None, f"Probability of finding the effect; default {USUAL_POWER}."
    ) = None
    relative: _said(bool, "The effect is a share of the control's mean: 0.05 is +5 %.") = False  # type: ignore[valid-type]
    adjust: _said(  # type: ignore[valid-type]
        Names, "Covariates of the experiment that the next one will adjust for, which needs fewer people."
    ) = msgspec.field(default_factory=list)
    confidence: Annotated[float, Meta(gt=0, lt=1)] = 0.95


class PrivacyQuestion(Struct, forbid_unknown_fields=True):
    """What privacy takes: nothing."""


@dataclass(frozen=True)
class ReleaseTool:
    """A tool: its name, what a model is told about it, what it takes, and what answers it."""

    name: str
    title: str
    says: str
    question: type[Struct]
    answer: Callable[[Answers, Any], Answer]

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of what it takes."""
        _, parts = msgspec.json.schema_components([self.question])
        kept = {
            key: value for key, value in parts[self.question.__name__].items() if key not in ("title", "description")
        }
        return kept | {"additionalProperties": False}


VERDICTS = (
    "Verdicts: 'better' or 'worse' = clear after the correction for several comparisons: say so, with the interval. "
    "'unclear' = the data do not decide; not clear is NOT 'no effect': quote the interval, which holds what is still "
    "possible. 'hint' = clear before the correction only: no finding. 'watch' = a guardrail that is worse by the usual "
    "test alone: a few people could have made it. 'not testable' = no test was possible. An alarm (sample ratio, "
    "balance, ledger) comes before any effect: numbers under an alarm should not be acted on. Do not work out verdicts "
    "from the numbers, and do not call one arm better than another because only one of them is clear."
)

INSTRUCTIONS = (
    "Results of A/B tests, from releases that passed a privacy gate: counts and sums of groups of at least k people. "
    "There are no rows, no people and no way to filter: what was not released cannot be asked for. Start with "
    f"list_experiments. {VERDICTS}"
)

TOOLS = (
    ReleaseTool(
        "list_experiments",
        "List experiments",
        "List every released experiment with its health, people (rounded down to k), results and decision; those that "
        "need attention come first. Use it to learn the names that the other tools take. An entry's change is the "
        f"estimate alone: ask readout for its interval before you report it. {VERDICTS}",
        ListQuestion,
        lambda answers, asked: answers.list_experiments(asked.page),
    ),
    ReleaseTool(
        "readout",
        "Read one experiment",
        "Return the readout of one experiment: decision, alarms, the effect of each arm on each metric with interval, "
        "relative change, p-value and verdict, guardrails, whether effects differ by segment, cautions and notes. "
        "`decision` follows a rule that was fixed before; repeat it, do not replace it by your own. Segments with "
        f"'nothing found' are not proof that all segments are alike. {VERDICTS}",
        ReadoutQuestion,
        lambda answers, asked: answers.readout(asked.experiment, asked.reading),
    ),
    ReleaseTool(
        "compare",
        "Compare experiments or arms",
        "Compare several experiments (on one metric, if you name it), or arms of one experiment with the first arm "
        "named. Three or more experiments on one metric are also read together: `shrunk` is what an effect is worth "
        "after the winner's curse. Effects of different experiments are on different people at different times: their "
        "difference is not an effect. "
        f"{VERDICTS}",
        CompareQuestion,
        lambda answers, asked: answers.compare(asked.experiments, asked.metric, asked.arms),
    ),
    ReleaseTool(
        "power",
        "Plan the next experiment",
        "Plan the next experiment from how a metric varied in a released one. Give two of people, effect and power; "
        f"the third is solved for. Power is {USUAL_POWER} unless you say; without people and effect the answer is the "
        "effect that as many people as then would find. A detectable effect is not what an experiment found, and power "
        "computed after a result does not explain it.",
        PlanningQuestion,
        lambda answers, asked: answers.power(
            asked.experiment,
            asked.metric,
            asked.adjust,
            PowerQuestion(asked.people, asked.effect, asked.power, asked.relative, asked.confidence),
        ),
    ),
    ReleaseTool(
        "privacy",
        "Privacy statement",
        "Return what is promised about the people behind these releases: k, which rules hold, which attacks were tried "
        "and learnt nothing, what remains open. Quote `says`; 'in part' and gaps belong to an honest answer. It is no "
        "legal advice.",
        PrivacyQuestion,
        lambda answers, _: answers.privacy(),
    ),
)
"""Everything that can be asked."""

_BY_NAME = {tool.name: tool for tool in TOOLS}


def answer_call(answers: Answers, name: str, arguments: Mapping[str, Any] | None) -> Answer:
    """Answer one call of a tool.

    Raises `AnalysisError` for an unknown tool and for arguments that it does not take, and what its answer raises.
    """
    tool = _BY_NAME.get(name)
    if tool is None:
        raise AnalysisError("there is no tool of this name", f"Tools: {', '.join(_BY_NAME)}.")
    try:
        question = msgspec.convert(dict(arguments or {}), tool.question)
    except (msgspec.ValidationError, RecursionError) as problem:
        takes = listed(tool.schema["properties"], most=MOST_NAMED) or "nothing"
        raise AnalysisError(str(problem)[:_LONGEST_FAULT].rstrip("."), f"{tool.name} takes: {takes}.") from None
    return tool.answer(answers, question)
