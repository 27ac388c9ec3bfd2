"""What an assistant can ask, answered from verified releases alone: sentences for people, plain data for programs.

Every answer is a function of its arguments and of the bytes of the releases. Nothing is remembered between two
questions, so that a sequence of questions shows what each of them shows by itself. No tool takes a filter, a query, a
path or a column: names of what was released, and numbers for planning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from kanab.analysis.methods.segments import segment_sentences
from kanab.analysis.sections import brief_text, verdict_word
from kanab.dashboard.experiment_list import ListFilter, summaries, summarize
from kanab.dashboard.release_sources import ReleaseSource
from kanab.dashboard.results import Bundle, ExperimentReadout, Results, Snapshot, analyzed, narrowed
from kanab.errors import AnalysisError, KanabError, LevelError, SourceError, listed
from kanab.planning.calculator import USUAL_POWER
from kanab.planning.power import PlannedTest, solve_power
from kanab.planning.spread import outcome_of, spread_of_release
from kanab.portfolio.together import read_portfolio
from kanab.report.words import alarm_sentences, headlines, metrics_of, note_sentences, tone
from kanab.tally.factor import label

Plain = dict[str, Any]

MOST_LISTED = 100
"""So many experiments are on one page of the list."""

MOST_NAMED = 50
"""So many names are listed where one is not known."""

DIGITS = 6
"""Significant digits of numbers in plain data: an assistant pays for every one."""

PATIENCE = 50.0
"""Seconds that an answer may take before the assistant is told to ask again: clients give up after a minute."""

NOTHING_YET = "Nothing has been released here yet. Write a release: kanab release … -o NAME.release.json."
APART = "P-values are corrected within each experiment: of twenty experiments without any effect one still looks clear."

_EFFECT = (
    "metric", "role", "better", "arm", "control", "method", "covariates", "mean_control", "mean_arm", "estimate", "se",
    "interval", "relative", "relative_interval", "p", "p_adjusted",
)  # fmt: skip
_ACCOUNT = ("question", "asks", "state", "holds", "gaps")


@dataclass(frozen=True)
class Answer:
    """An answer: sentences to read out, and the numbers behind them."""

    text: str
    data: Plain


class Answers:
    """Answers questions from what a source holds now. Safe to be asked by many threads."""

    def __init__(self, source: ReleaseSource) -> None:
        self._results = Results(source, patience=PATIENCE)

    def list_experiments(self, page: int = 1) -> Answer:
        """Return every experiment in one line, those that need attention first."""
        snapshot = self._results.read()
        readouts = snapshot.cached("readouts", snapshot.readouts)
        lines = ListFilter().select(summaries(readouts, None, snapshot.interferes))
        first = (page - 1) * MOST_LISTED
        shown = lines[first : first + MOST_LISTED]
        rows = [
            {
                "experiment": line.name, "health": line.health, "why": line.why, "people": line.people,
                "arms": dict(line.arms), "k": line.k, "seals": line.seals, "look": line.look or None,
                "may_stop": line.verdict or None, "decision": line.decision_words or None,
                "results": [
                    {"metric": row.metric, "arm": row.arm, "verdict": verdict_word(row.tone), "change": row.change}
                    for row in line.results
                ],
            }
            for line in shown
        ]  # fmt: skip
        sentences = [_line(row) for row in rows] or [NOTHING_YET if not lines else "There are no more experiments."]
        if first + len(shown) < len(lines):
            sentences.append(f"{len(lines) - first - len(shown)} more: ask for page {page + 1}.")
        return _answer(snapshot, "\n".join(sentences), {"total": len(lines), "page": page, "experiments": rows})

    def readout(self, experiment: str, reading: int | None = None) -> Answer:
        """Return the readout of one experiment; the newest where it was released several times."""
        snapshot = self._results.read()
        readouts = _readouts(snapshot, experiment)
        if reading is not None and reading >= len(readouts):
            raise SourceError("there is no such reading", f"There are {len(readouts)}, counted from 0.")
        chosen = readouts[-1 if reading is None else reading]
        interferes = snapshot.interferes.get(experiment, ())
        data = _data(experiment, chosen, interferes)
        line = summarize(experiment, chosen, None)
        stop = {"look": line.look or None, "may_stop": line.verdict or None}
        seen = [f"{line.look[:1].upper()}{line.look[1:]}: {line.verdict}."] if line.look else []
        titles = [each.bundle.title for each in readouts]
        plain = _readout(data) | stop | {"released_as": chosen.bundle.title, "readings": titles}
        return _answer(snapshot, "\n".join([brief_text(data), *seen, *segment_sentences(data)]), plain)

    def compare(self, experiments: Sequence[str], metric: str | None = None, arms: Sequence[str] = ()) -> Answer:
        """Return effects side by side: of several experiments, or of the arms of one, against the first arm named."""
        snapshot = self._results.read()
        names = list(dict.fromkeys(experiments))
        if arms and len(names) > 1:
            raise AnalysisError("arms are those of one experiment", "Name one experiment, or leave out the arms.")
        if arms:
            tables = [_arms(snapshot, names[0], list(dict.fromkeys(arms)))]
        else:
            tables = [_data(name, _readouts(snapshot, name)[-1]) for name in names]
        tables = _on_metric(tables, metric)
        rows = [{"experiment": data["experiment"], **row} for data in tables for row in _effects(data)]
        texts = [brief_text(data) for data in tables]
        if len(tables) > 1:
            texts.append(APART)
        together = None if arms or len(names) < 2 else _together(snapshot, names, metric, rows)
        if together is not None:
            texts.append(together.pop("text"))
        return _answer(snapshot, "\n\n".join(texts), {"effects": rows, "together": together})

    def power(self, asked: PlanningQuestion) -> Answer:
        """Return people needed, detectable effect or power, for people who vary as those of a released experiment.

        Of people, effect and power two are given; what is left out is solved for.
        """
        experiment, people, effect, power = asked.experiment, asked.people, asked.effect, asked.power
        snapshot = self._results.read()
        bundle = _bundles(snapshot, experiment)[-1]
        released = snapshot.summed(bundle)
        plan = released.plan.experiment(experiment)
        spread = spread_of_release(released, plan, asked.metric, adjust=asked.adjust, control=asked.control)
        if power is None and (people is None or effect is None):
            power = USUAL_POWER
        if people is None and effect is None:
            people = released.totals(experiment).total
        design = solve_power(
            spread,
            people=people,
            effect=effect,
            power=power,
            relative=asked.relative,
            test=PlannedTest(asked.confidence),
        )
        shown = {key: value for key, value in design.to_dict().items() if value is not None}
        named = {"experiment": experiment, "metric": outcome_of(released, plan, asked.metric)}
        return _answer(snapshot, str(design), named | {"released_as": bundle.title} | shown)

    def privacy(self) -> Answer:
        """Return the officer's account in short: what is promised, by which rules, and what remains open."""
        snapshot = self._results.read()
        accounts = snapshot.cached("accounts", snapshot.accounts)
        ledgers = [_account(name, account) for name, account in accounts.items()]
        sentences = [f"{row['ledger'] or 'Releases in no ledger'}: {row['says']}" for row in ledgers] or [NOTHING_YET]
        sentences += ["Every residual risk is explained in `risks`."] if ledgers else []
        sentences.append("These tools read releases only: no question reaches a row, a person or an open cohort.")
        return _answer(snapshot, "\n".join(sentences), {"ledgers": ledgers})

    # ── how it is read ─────────────────────────────────────────────────────────────────────────


def _bundles(snapshot: Snapshot, experiment: str) -> list[Bundle]:
    """Return the releases that hold an experiment; an error that lists the names where there is none."""
    bundles = snapshot.bundles
    if experiment not in bundles:
        known = f"Released here: {listed(sorted(bundles), most=MOST_NAMED)}." if bundles else NOTHING_YET
        raise SourceError("there is no experiment of this name", known)
    return bundles[experiment]


def _readouts(snapshot: Snapshot, experiment: str) -> list[ExperimentReadout]:
    _bundles(snapshot, experiment)
    return snapshot.readouts_of(experiment)


def _arms(snapshot: Snapshot, experiment: str, arms: list[str]) -> Plain:
    """Return a readout whose control is the first of the arms, narrowed to the others."""
    bundle = _bundles(snapshot, experiment)[-1]
    readout = _readouts(snapshot, experiment)[-1].readout
    levels = {} if readout is None else {label(arm): arm for arm in readout.arms}
    if len(arms) < 2 or not set(arms) <= set(levels):
        raise LevelError("two or more arms of the experiment are compared", f"Arms: {listed(levels, most=MOST_NAMED)}.")
    data = analyzed(snapshot.summed(bundle), experiment, levels[arms[0]])._shown()
    effects = [row for row in data["effects"] if row["arm"] in arms]
    return data | {"effects": effects, "decision": None}  # an arm is shipped against the control of the plan


def _together(snapshot: Snapshot, names: Sequence[str], metric: str | None, rows: Sequence[Plain]) -> Plain | None:
    """Return effects on one metric shrunk towards each other, or why they are not."""
    metrics = {row["metric"] for row in rows}
    if len(metrics) != 1:
        return {"text": "Name a metric to read the experiments together.", "read": False}
    bundles = [_bundles(snapshot, name)[-1] for name in names]
    releases = {name: narrowed(snapshot.summed(bundle), name) for name, bundle in zip(names, bundles, strict=True)}
    try:
        read = read_portfolio(releases, metric or metrics.pop()).to_dict()
    except KanabError as problem:
        return {"text": f"They are not read together: {problem}", "read": False}
    keys = ("experiment", "arm", "estimate", "shrunk", "shrunk_interval")
    effects = [{key: row[key] for key in keys} for row in read["effects"]]
    clear = []
    for row in read["effects"]:
        low, high = row["shrunk_interval"]
        if low > 0 or high < 0:
            clear.append(row["name"])
    says = f"Read together on {read['metric']}, effects that stay clear after shrinkage: {listed(clear) or 'none'}."
    text = " ".join([says, *read["notes"]])
    return {"text": text, "read": True, "metric": read["metric"], "effects": effects}


# ── plain data ─────────────────────────────────────────────────────────────────────────────────


def _answer(snapshot: Snapshot, text: str, data: Plain) -> Answer:
    """Return an answer with what is wrong with the releases: in front of the sentences, and beside the numbers."""
    alarms = list(snapshot.contents.alarms)
    return Answer("\n".join([*(f"Alarm: {alarm}" for alarm in alarms), text]), _short({"alarms": alarms, **data}))


def _short(value: Any) -> Any:
    """Return plain data whose numbers have as many digits as anybody reads."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {str(key): _short(each) for key, each in value.items()}
    return [_short(each) for each in value] if isinstance(value, list | tuple) else value


def _line(row: Plain) -> str:
    results = [f"{each['metric']} {each['arm']} {each['change']} ({each['verdict']})" for each in row["results"]]
    health = "" if row["health"] == "fine" else f" {row['health'].capitalize()}: {row['why']}."
    decision = f" {row['decision']}." if row["decision"] else ""
    return f"{row['experiment']}:{decision}{health} {'; '.join(results) or 'no effect can be read'}."


def _data(experiment: str, readout: ExperimentReadout, interferes: Sequence[Mapping[str, str]] = ()) -> Plain:
    """Return a readout as people read it, with what to do; raises why there is none."""
    if readout.problem is not None:
        raise readout.problem
    return readout.data | {"decision": summarize(experiment, readout, None, interferes).decision}


def _effects(data: Plain) -> list[Plain]:
    """Return the effect that carries the verdict of each metric and arm."""
    rows = [row for metric in metrics_of(data) for row in headlines(data, metric)]
    kept = [{key: row[key] for key in _EFFECT if row[key] is not None} for row in rows]
    return [plain | {"verdict": verdict_word(tone(row))} for plain, row in zip(kept, rows, strict=True)]


def _readout(data: Plain) -> Plain:
    privacy, ratio = data["privacy"], data["sample_ratio"]
    segments = [row for row in data["segments"] if row["decides"]]
    return {
        "experiment": data["experiment"], "people": data["people"], "arms": data["arms"], "control": data["control"],
        "control_chosen": data["control_chosen"],
        "confidence": data["confidence"], "correction": data["correction"], "decision": data["decision"],
        "experiment_alarms": alarm_sentences(data),
        "sample_ratio": {"p": ratio["p"], "alarm": ratio["alarm"]},
        "cautions": [{"metric": row["metric"], "says": row["sentence"]} for row in data["cautions"]],
        "effects": _effects(data),
        "guardrails": data["guardrails"],
        "segments": [{key: row[key] for key in ("metric", "covariate", "p_adjusted", "verdict")} for row in segments],
        "notes": note_sentences(data),
        "privacy": {
            "k": privacy["k"], "effective_k": privacy["effective_k"], "audit": privacy["audit"],
            "cohorts": privacy["cohorts"], "withheld": privacy["left_out"],
        },
    }  # fmt: skip


def _on_metric(tables: Sequence[Plain], metric: str | None) -> list[Plain]:
    """Return readouts narrowed to a metric; raises where one of them does not have it."""
    if metric is None:
        return list(tables)
    for data in tables:
        if metric not in metrics_of(data):
            fact = f"{data['experiment']} has no effect on this metric"
            raise AnalysisError(fact, f"It has: {listed(metrics_of(data), most=MOST_NAMED)}.")
    return [data | {"effects": [row for row in data["effects"] if row["metric"] == metric]} for data in tables]


def _account(ledger: str, account: Plain) -> Plain:
    """Return what of the officer's account is about what was released; entries and notes of the ledger are his."""
    verdict = account["verdict"]
    return {
        "ledger": ledger or None, "state": verdict["state"], "says": verdict["says"], "k": verdict["k"],
        "effective_k": verdict["effective_k"], "not_evaluated": verdict["not_evaluated"],
        "questions": [{key: row[key] for key in _ACCOUNT} for row in account["questions"]],
        "risks": [{"risk": row["risk"], "says": row["says"]} for row in account["risks"]],
        "attacks": [{"attack": row["attack"], "state": row["state"]} for row in account["attacks"]["tried"]],
    }  # fmt: skip


# ── the tools ────────────────────────────────────────────────────────────────────────────────────

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
    control: _said(str | None, "The control, where the answer asks for it.") = None  # type: ignore[valid-type]


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
        lambda answers, asked: answers.power(asked),
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
