"""The central promise: what people send, in any order, gives the tallies that their rows would have given."""

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.collector.counting.tables_of_counters import counters_of, tables

import kanab as kb
from kanab.collector.counting.accept import PostAcceptor
from kanab.collector.counting.counters import CONTRIBUTORS, JOINT, Counters, add_counters
from kanab.collector.counting.signatures import signatures_of
from kanab.collector.counting.tables import contributors_of
from kanab.collector.protocol.encoding import encode, spell
from kanab.collector.protocol.nonces import make_nonce
from kanab.errors import MessageError
from kanab.plan.model import Cohorts, CovariatePlan, ExperimentPlan, Linkage, MetricPlan, Plan, settle_missing
from kanab.tally.factor import Factor
from kanab.tally.tally import Tally

NOW = datetime(2026, 11, 15, 16, 30, tzinfo=UTC)
NAMES = ("checkout", "ban/ner: x", "größe")
LEVELS: dict[str, tuple[Any, ...]] = {
    "tier": (1, 2.5, 30),
    "device, kind": ("phone", "tv & radio", "other"),
    "member": (True, False),
}
METRICS = (
    MetricPlan("bought", binary=True),
    MetricPlan("minutes", (0, 600), 0.01, bins=(0.0, 0.07, 12.5, 300.0)),
    MetricPlan("change", (-3.3, 7.7), bins=4),
    MetricPlan("rating @ all", (1, 5), 0.5, missing="exclude", bins=(1.25, 3.0, 5.0)),
    MetricPlan("clicks", (-5, 2**40), 1, squares="class", bins=(-7.5, 0.0, 1.0, 2.0**41)),
    MetricPlan("returned", binary=True, missing="exclude"),
)


# ── plans ──────────────────────────────────────────────────────────────────────────────────────


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """One to three experiments with any tables, pairs and ratios."""
    metrics = draw(st.lists(st.sampled_from(METRICS), min_size=1, max_size=4, unique=True))
    pairs = [(a.name, b.name) for i, a in enumerate(metrics) for b in metrics[:i]]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=2, unique=True)) if pairs else []
    ratios = [MetricPlan(f"ratio {number}", ratio=pair) for number, pair in enumerate(chosen)]
    names = NAMES[: draw(st.integers(1, 3))]
    binned = [one.name for one in metrics if one.bins is not None]
    shown = st.lists(st.sampled_from(binned), max_size=2, unique=True) if binned else st.just([])
    some = st.lists(st.sampled_from([*LEVELS]), max_size=2, unique=True).map(tuple)
    experiments = [
        ExperimentPlan(
            name,
            tuple((arm, 1.0) for arm in draw(st.sampled_from([("A", "B"), ("on", "off", "á:1"), (0, 1)]))),
            adjust=draw(some),
            segments=draw(some),
            interactions=tuple(other for other in names[:position] if draw(st.booleans())),
            quantiles=dict.fromkeys(draw(shown), (0.5,)),
        )
        for position, name in enumerate(names)
    ]
    covariates = tuple(CovariatePlan(name, levels) for name, levels in LEVELS.items())
    return settle_missing(Plan((*metrics, *ratios), tuple(experiments), covariates))  # a collector's rule


# ── people ─────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Person:
    """Somebody's client: arms, levels, running totals; what changes is written as posts."""

    plan: Plan
    arms: dict[str, Any]
    levels: dict[str, Any]
    enrolled: list[str] = field(default_factory=list)
    totals: dict[str, float] = field(default_factory=dict)

    def tables(self, experiments: list[str]) -> list[Linkage]:
        """The tables that this person is in because of some experiments."""
        mine = {*self.enrolled}
        return [
            one
            for one in self.plan.linkages
            if {*one.experiments} <= mine and any(name in experiments for name in one.experiments)
            if not one.people_only  # nobody sends lines for bins
        ]

    def enroll(self, name: str) -> list[dict[str, Any]]:
        """The lines of an enrollment: in tables that are new to this person, totals begin at the beginning."""
        self.enrolled.append(name)
        lines = []
        for table in self.tables([name]):
            lines += [self.line(table)]
            lines += self.moves(table, {}, self.totals)
        return lines

    def move(self, changes: dict[str, float]) -> list[dict[str, Any]]:
        """The lines of totals that moved."""
        old = dict(self.totals)
        self.totals |= changes
        return [line for table in self.tables(self.enrolled) for line in self.moves(table, old, self.totals)]

    def moves(self, table: Linkage, old: dict[str, float], new: dict[str, float]) -> Iterator[dict[str, Any]]:
        begin = {one.name: 0.0 for one in self.plan.metrics if one.missing == "zero"}
        before, after = begin | old, begin | new
        changed = [name for name in new if name not in old or old[name] != new[name]]
        for name in changed:
            yield self.line(table, metric=name, old=before.get(name), new=after[name])
        for one in self.plan.metrics:
            if one.ratio is not None and {*one.ratio} & {*changed} and {*one.ratio} <= {*after}:
                was = [before[part] for part in one.ratio] if {*one.ratio} <= {*before} else None
                yield self.line(table, ratio=one.ratio, old=was, new=[after[part] for part in one.ratio])

    def line(self, table: Linkage, **rest: Any) -> dict[str, Any]:
        names = [*table.experiments, *([table.covariate] if table.covariate else [])]
        return {"linkage": names, "levels": [(self.arms | self.levels)[name] for name in names], **rest}


def as_text(line: dict[str, Any]) -> str:
    """The text form of a line in the JSON form."""

    def total(value: Any) -> str:
        if isinstance(value, list):
            return "/".join(map(repr, value))
        return "" if value is None else repr(value)

    text = "/".join(map(encode, line["linkage"]))
    text = ":".join([text, *(encode(spell(level)) for level in line["levels"])])
    if "new" not in line:
        return text
    what = encode(line["metric"]) if "metric" in line else "/".join(map(encode, line["ratio"]))
    return f"{text}:{what}:{total(line['old'])}>{total(line['new'])}"


def send(acceptor: PostAcceptor, lines: list[dict[str, Any]], into: Counters, form: str) -> None:
    nonce = make_nonce(NOW)
    if form == "text":
        body = "\n".join([f"kanab/1 {nonce}", *map(as_text, lines)])
        found = acceptor.accept(body.encode(), "text/plain; charset=UTF-8", NOW, None)
    else:
        body = json.dumps({"kanab": 1, "nonce": nonce, "messages": lines})
        found = acceptor.accept(body.encode(), "application/json", NOW, None)
    assert found.dropped == ()
    assert found.nonce.hex() == nonce
    for delta in found.deltas.values():
        add_counters(into, delta)


def some_value(one: MetricPlan, chance: random.Random) -> float:
    """Whole, fractional, tiny, beyond the bounds: what a page may report."""
    if one.binary:
        return float(chance.random() < 0.5)
    low, high = one.bounds or (0, 1)
    return chance.choice(
        [
            round(chance.uniform(low, min(high, low + 50)), 2),
            chance.uniform(low - 1, min(high, 1000.0) + 1),
            float(chance.randint(int(low), int(min(high, 2**39)))),
            low + chance.random() * 1e-7,
            high + 10,
            low - 3.5,
        ]
    )


def history(person: Person, chance: random.Random) -> Iterator[list[dict[str, Any]]]:
    """Posts of one person: enrollments at any time, totals that go up and down, at last a row."""
    metrics = [one for one in person.plan.metrics if one.ratio is None]
    wanted = [name for name, arm in person.arms.items() if arm is not None]
    chance.shuffle(wanted)
    while wanted or chance.random() < 0.6:
        if wanted and (not person.enrolled or chance.random() < 0.5):
            lines = person.enroll(wanted.pop())
        elif person.enrolled:
            changed = chance.sample(metrics, chance.randint(1, len(metrics)))
            lines = person.move({one.name: some_value(one, chance) for one in changed})
        else:
            return
        if lines:
            yield lines


def world(plan: Plan, chance: random.Random, people: int) -> tuple[list[list[dict[str, Any]]], dict[str, list[Any]]]:
    """Everybody's posts, interleaved, and the same people's rows."""
    histories, everyone = [], []
    missing = chance.random() < 0.3
    for number in range(people):
        arms = {one.name: chance.choice([*(one.arms or ()), *([None] if number else [])]) for one in plan.experiments}
        levels = {name: chance.choice([*known, *([None] if missing else [])]) for name, known in LEVELS.items()}
        if missing and not number:  # rows have a missing level in all tables if anybody has it in one
            levels = dict.fromkeys(LEVELS)
        person = Person(plan, arms, levels)
        histories.append(list(history(person, chance)))
        everyone.append(person)
    posts = []
    while any(histories):  # each history in its order, among the others in any
        posts.append(chance.choice([one for one in histories if one]).pop(0))
    rows: dict[str, list[Any]] = {name: [one.arms[name] for one in everyone] for name in arms}
    rows |= {name: [one.levels[name] for one in everyone] for name in LEVELS}
    rows |= {one.name: [on_grid(one, p.totals.get(one.name)) for p in everyone] for one in plan.counted_metrics}
    return posts, rows


def on_grid(one: MetricPlan, value: float | None) -> float | None:
    """A total as a collector knows it: in whole steps, within the bounds. Bins are of that."""
    metric = one.metric()
    return None if value is None else int(metric.to_grid(np.array([value]))[0]) / metric.scale


# ── the promise ────────────────────────────────────────────────────────────────────────────────


def with_filled_bins(plan: Plan, tallies: Mapping[str, Tally]) -> dict[str, Tally]:
    """The tables without bins in which only people of other experiments are: a collector does not know about them."""
    filled = dict(tallies)
    for table in plan.linkages:
        if table.people_only:
            tally = tallies[table.name]
            kept = np.flatnonzero(tally.people.sum(axis=0)).tolist()
            arms, bins = tally.factors
            scores = tuple(bins.scores[place] for place in kept) if bins.scores else (None,)
            levels = tuple(bins.levels[place] for place in kept)
            factor = Factor(bins.name, levels, "covariate", None if {*scores} == {None} else scores)
            filled[table.name] = Tally((arms, factor), tally.people[:, kept])
    return filled


def amounts(plan: Plan) -> list[MetricPlan]:
    return [one for one in plan.counted_metrics if not one.metric().binary]


def off_zero(tally: Tally, one: MetricPlan, rows: dict[str, list[Any]]) -> Any:
    """People of every class of a table whose value of a metric is not 0."""
    cells = np.zeros(tally.people.shape, dtype=int)
    for person, value in enumerate(rows[one.name]):
        levels = [rows[factor.name][person] for factor in tally.factors]
        if value and all(level in factor.levels for level, factor in zip(levels, tally.factors, strict=True)):
            cells[tuple(f.levels.index(level) for f, level in zip(tally.factors, levels, strict=True))] += 1
    return cells.tolist()


@pytest.mark.slow
@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@given(plan=plans(), seed=st.integers(0, 2**32), people=st.integers(1, 12))
def test_any_history_of_messages_gives_the_tallies_of_the_final_rows(plan: Plan, seed: int, people: int) -> None:
    chance = random.Random(seed)
    posts, rows = world(plan, chance, people)
    acceptor, counters = PostAcceptor(plan), Counters()
    for lines in posts:
        send(acceptor, lines, counters, chance.choice(["text", "json"]))
    counted = kb.count(rows, plan)
    assert tables(plan, counters) == with_filled_bins(plan, counted.tallies)
    contributors = contributors_of(plan, counted.tallies, counters)
    assert {name: {metric: cells.tolist() for metric, cells in of.items()} for name, of in contributors.items()} == {
        table.name: {one.name: off_zero(counted.tallies[table.name], one, rows) for one in amounts(plan)}
        for table in plan.linkages
        if amounts(plan) and not table.people_only
    }
    others = {name for name in counters if JOINT in name or name.endswith(CONTRIBUTORS)}
    assert {name: value for name, value in counters.items() if value and name not in others} == counters_of(
        plan, counted.tallies
    )
    assert signatures_of(plan, counted.tallies, counters)[1] == {}


# ── anything at all ────────────────────────────────────────────────────────────────────────────

FUZZED = Plan(
    (
        MetricPlan("bought", binary=True), MetricPlan("minutes", (0, 600), 0.01),
        MetricPlan("r", ratio=("minutes", "bought")),
    ),
    (ExperimentPlan("checkout", (("A", 1), ("B", 1)), adjust=("tier",)), ExperimentPlan("solo", (("A", 1), ("B", 1)))),
    (CovariatePlan("tier", (1, 2, 3)),),
)  # fmt: skip
GOOD = [
    "kanab/1 00079b700001020304050607", "checkout/tier:B:3", "checkout/tier:B:3:minutes:0>4", "solo:A:bought:0>1",
    "solo:A:minutes/bought:0/0>4/1", "solo:B:minutes_old:4:minutes:2", "@2026-W46", "%C3%A9", "%ff", "1e999", "nan",
    '{"kanab": 1, "nonce": "00079b700001020304050607", "messages": [{"linkage": ["solo"], "levels": ["A"]}]}',
]  # fmt: skip
SECRET = "zQ7#vX!wK$"
"""What a sender might let slip; no character of it stands in any text of the program by itself."""


def malformed(chance: random.Random) -> bytes:
    """A good post cut, doubled, mixed and sprinkled with secrets and noise; or noise alone."""
    parts = [f"kanab/1 00079b70{chance.getrandbits(96):024x}"] if chance.random() < 0.8 else []
    parts += chance.choices(GOOD, k=chance.randint(0, 4))
    text = chance.choice(["\n", "\n", "\r\n", ":", ""]).join(parts)
    for _ in range(chance.randint(0, 4)):
        at = chance.randint(0, len(text))
        noise = chance.choice(
            [SECRET, SECRET[: chance.randint(4, 9)], chr(chance.randint(1, 0x2FFF)), *':/@>|%{[,"0-e.']
        )
        text = text[:at] + noise + text[at + chance.randint(0, 3) :]
    body = text.encode("utf-8", "surrogatepass")
    if chance.random() < 0.1:
        body = body[: chance.randint(0, len(body))] + chance.randbytes(chance.randint(0, 8))
    return body


@pytest.mark.slow
def test_no_body_raises_anything_but_an_error_that_says_nothing_of_it() -> None:
    """A hundred thousand bodies; every text is one of a few that the plan alone determines."""
    chance = random.Random(5)
    schemes = [PostAcceptor(FUZZED), PostAcceptor(replace(FUZZED, cohorts=Cohorts()))]
    texts: set[str] = set()
    reasons: Counter[str] = Counter()
    for number in range(100_000):
        kind = chance.choice([None, "text/plain", "application/json", "application/json; charset=utf-8", SECRET])
        try:
            schemes[number % 2].accept(malformed(chance), kind, NOW, None)
        except MessageError as problem:
            texts.add(re.sub(r"(line |messages\[)\d+", r"\1", str(problem)))
            reasons[problem.reason] += 1
            assert problem.__cause__ is problem.__context__ is None  # where Python's own errors repeat their input
        else:
            reasons["counted or dropped"] += 1
    assert len(texts) < 60
    secret = [SECRET[at : at + 4] for at in range(len(SECRET) - 3)]
    assert [text for text in texts for run in secret if run in text] == []
    expected = {
        "format", "encoding", "content_type", "line", "number", "linkage", "level", "metric", "cohort", "incomplete",
        "nonce", "counted or dropped",
    }  # fmt: skip
    assert {reason for reason, times in reasons.items() if times > 20} >= expected
