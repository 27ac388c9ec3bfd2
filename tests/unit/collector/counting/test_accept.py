from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from kanab.collector.counting.accept import Accepted, PostAcceptor
from kanab.collector.counting.apply import ENROLLED, ClassCounters, increment
from kanab.collector.counting.cohorts import Calendar
from kanab.collector.counting.counters import CONTRIBUTORS, Counters
from kanab.collector.counting.layout import layouts
from kanab.collector.protocol.nonces import seconds_of
from kanab.collector.protocol.reasons import Reason
from kanab.errors import MessageError, PlanError
from kanab.plan.file import parse_plan
from kanab.plan.model import Cohorts, CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.plan.periods import Periods

NONCE = "00079b70000102030405060708090a0b"  # 2026-11-15, 16:00
NOW = datetime(2026, 11, 15, 16, 30, tzinfo=UTC)  # the last day of week 46
WEEK = 2966

SHOP = """
[covariates]
tier = [1, 2, 3]
device = ["phone", "desktop"]
[metrics]
bought = { kind = "binary" }
minutes = { bounds = [0, 600], resolution = 0.5 }
rating = { bounds = [1, 5], resolution = 1, missing = "exclude" }
[experiments.checkout]
arms = { A = 1, B = 1 }
adjust = ["tier"]
segments = ["device"]
[experiments.banner]
arms = { off = 9, on = 1 }
interactions = ["checkout"]
"""
RATIO = """
[metrics]
revenue = { bounds = [0, 500], resolution = 1 }
orders = { bounds = [0, 50], resolution = 1 }
rating = { bounds = [1, 5], resolution = 1, missing = "exclude" }
aov = { ratio = ["revenue", "orders"] }
joy = { ratio = ["rating", "orders"] }
[experiments.checkout]
arms = { A = 1, B = 1 }
"""
weekly = PostAcceptor(parse_plan("[cohorts]\n" + SHOP))
once = PostAcceptor(parse_plan(SHOP))
ratios = PostAcceptor(parse_plan(RATIO))


def accept(acceptor: PostAcceptor, *lines: str, now: datetime = NOW, sealed: int | None = None) -> Accepted:
    """What a post adds, without contributors: test_apply.py asks for those."""
    body = "\n".join([f"kanab/1 {NONCE}", *lines, ""])
    accepted = acceptor.accept(body.encode(), "text/plain", now, sealed)
    deltas = {
        cohort: {name: value for name, value in more.items() if not name.endswith(CONTRIBUTORS)}
        for cohort, more in accepted.deltas.items()
    }
    return accepted._replace(deltas=deltas)


def counters(acceptor: PostAcceptor, *lines: str) -> Counters:
    deltas = accept(acceptor, *lines).deltas
    assert len(deltas) == 1
    return next(iter(deltas.values()))


def refusal(acceptor: PostAcceptor, *lines: str, now: datetime = NOW, sealed: int | None = None) -> MessageError:
    with pytest.raises(MessageError) as caught:
        accept(acceptor, *lines, now=now, sealed=sealed)
    return caught.value


def both(arm: str, rest: str = "", tier: str = "3", device: str = "phone") -> list[str]:
    """One line for each of the tables of checkout."""
    return [f"checkout/tier:{arm}:{tier}{rest}", f"checkout/device:{arm}:{device}{rest}"]


# ── the paper's spelling ───────────────────────────────────────────────────────────────────────

PAPER = """
[covariates]
tier = [1, 2, 3]
[metrics]
"Time on App" = { bounds = [0, 100], resolution = 1 }
mood = { bounds = [-5, 5], resolution = 1, missing = "exclude" }
[experiments.Test1]
arms = { A = 1, B = 1 }
adjust = ["tier"]
"""
paper = PostAcceptor(parse_plan(PAPER))
KEY = "Test1/tier|B:3|Time%20on%20App|s"
SQUARES = "Test1/tier|Test1=B|Time%20on%20App|q"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("Test1:B:3:Time on App:x", Reason.NUMBER),
        ("Test1:B:3:Time on App_old:4:mood:2", Reason.LINE),
        ("Test1:B:3:Time on App_old:4:Time on App", Reason.LINE),
        ("Test1:B:3:Time on App_old:4:Time on App:2:1", Reason.LINE),
        ("Test1:B:3:Time on Ape:4", Reason.METRIC),
        ("Test1:B", Reason.LINE),
    ],
)
def test_the_papers_messages_are_read_strictly(line: str, reason: Reason) -> None:
    assert refusal(paper, line).reason == reason


def test_with_cohorts_or_several_tables_the_papers_spelling_is_not_enough() -> None:
    assert refusal(PostAcceptor(parse_plan("[cohorts]\n" + PAPER)), "Test1:B:3:Time on App:4").reason == Reason.LINKAGE
    assert refusal(once, "checkout:B:3").reason == Reason.LINKAGE


# ── what is refused ────────────────────────────────────────────────────────────────────────────

TABLES = "unknown table - at line 2. The plan has: checkout/tier, checkout/device, banner, banner/checkout."
METRICS = "unknown metric - at line 2. The plan has: bought, minutes, rating."


@pytest.mark.parametrize(
    ("line", "reason", "text"),
    [
        ("checkout/tear:B:3@2026-W46", "linkage", TABLES),
        ("checkout/tier:C:3@2026-W46", "level", "unknown arm for 'checkout' - at line 2. Declared arms: A, B."),
        ("checkout/tier:B:4@2026-W46", "level", "unknown level for 'tier' - at line 2. Declared levels: 1, 2, 3."),
        ("checkout/tier:B:3@2026-W46:hours:0>1", "metric", METRICS),
        ("checkout/tier:B:3:4@2026-W46", "line", None),
        ("checkout/tier:B:3@", "cohort", None),
        ("checkout/tier:%ff:3@2026-W46", "level", None),
    ],
)  # fmt: skip
def test_a_line_that_the_plan_does_not_allow_is_refused(line: str, reason: str, text: str | None) -> None:
    problem = refusal(weekly, line, line.replace("tier", "device").replace(":3", ":phone"))
    assert (problem.reason, problem.status) == (reason, 400)
    assert text is None or str(problem) == text


@pytest.mark.parametrize(
    "lines",
    [
        ["checkout/tier:B:3", "checkout/tier:B:2"],  # two levels
        ["banner:on:rating:>1", "banner:on:rating:>2"],
        ["banner/checkout:on:A", "banner/checkout:on:B"],
    ],
)
def test_lines_that_are_not_one_persons_whole_transition_are_refused(lines: list[str]) -> None:
    problem = refusal(once, *lines)
    assert (problem.reason, problem.status) == (Reason.INCOMPLETE, 400)


REVENUE, AOV = "checkout:B:revenue:0>30", "checkout:B:revenue/orders"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([REVENUE, f"{AOV}:1/0>30/0"], Reason.INCOMPLETE),
        ([REVENUE, f"{AOV}:0/0>30/1"], Reason.INCOMPLETE),  # orders did not move
        (["checkout:B:rating:>4", "checkout:B:rating/orders:>3/0"], Reason.INCOMPLETE),
        *(([f"{AOV}:{old}"], Reason.NUMBER) for old in (">30/1", "0>30/1", "0/0>30", "0>30", "0/0/0>1/1/1", "0/0>/1")),
    ],
)  # fmt: skip
def test_a_ratio_has_two_totals_and_moves_with_its_parts(lines: list[str], reason: Reason) -> None:
    assert refusal(ratios, *lines).reason == reason
    assert len(counters(ratios, "checkout:B:rating:>4")) == 3  # both need not be there yet


# ── unknown, late and early ────────────────────────────────────────────────────────────────────


def test_a_ratio_that_is_younger_than_an_experiment_is_not_demanded_of_its_clients() -> None:
    plan = parse_plan(RATIO + "[experiments.banner]\narms = { off = 1, on = 1 }\n")
    grown = PostAcceptor(plan, {"checkout": ("revenue", "orders", "rating"), "banner": ("revenue", "orders", "aov")})
    assert counters(grown, "checkout:B:revenue:0>30")["checkout|B|revenue|s"] == 30
    counters(grown, "checkout:B:revenue:0>30", "checkout:B:revenue/orders:0/0>30/0")  # some have heard of it
    assert refusal(grown, "banner:on:revenue:0>30").reason == Reason.INCOMPLETE
    assert refusal(grown, "checkout:B:revenue:0>30", "checkout:B:revenue/orders:0/0>31/0").reason == Reason.INCOMPLETE


def test_sealed_cohorts_take_nothing_more() -> None:
    found = accept(weekly, "banner:on@2026-W46:bought:0>1", *both("B", "@2026-W45:bought:0>1"), sealed=WEEK - 1)
    assert (found.deltas, found.dropped) == ({WEEK: {"banner|on|bought|s": 1}}, (Reason.LATE, Reason.LATE))
    assert accept(once, "banner:on", sealed=0).dropped == (Reason.LATE,)
    told = accept(paper, "Test1:B:3", "Test1:B:3:Time on App:4", "Test1:B:3:Time on App_old:4:Time on App:2", sealed=0)
    assert (told.deltas, told.dropped) == ({}, (Reason.LATE,) * 3)


def test_what_is_open_is_known_anew_in_every_second() -> None:
    last = datetime(2026, 11, 16, 16, 59, 59, 900_000, tzinfo=UTC)
    for _ in range(2):  # whichever came before
        assert accept(once, "banner:on", now=last.replace(microsecond=0)).deltas
        assert accept(once, "banner:on", now=last).deltas
        assert refusal(once, "banner:on", now=last + timedelta(seconds=0.1)).status == 410


# ── plans ──────────────────────────────────────────────────────────────────────────────────────

Y, E = MetricPlan("y", (0, 5)), ExperimentPlan("e", (("A", 1), ("B", 1)))
RATIOS = MetricPlan("z", (0, 5)), MetricPlan("a", ratio=("y", "z")), MetricPlan("b", ratio=("z", "y"))
ADJUSTED = replace(E, adjust=("c",))


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (Plan((MetricPlan("y"),), (E,)), "metrics.y takes its bounds from the data"),
        (Plan((MetricPlan("y", (1, 5)),), (E,)), "metrics.y.bounds do not hold 0"),
        (Plan((Y,), (ExperimentPlan("e"),)), "experiments.e takes its arms from the data"),
        (Plan((Y,), ()), "experiments is missing"),
        (Plan((), (ExperimentPlan("e", ((True, 1), ("true", 1))),)), "two arms that are spelled alike"),
        (Plan((Y,), (ADJUSTED,), (CovariatePlan("c", bins=3),)), "covariates.c takes its levels from the data"),
        (Plan((Y, *RATIOS), (E,)), "metrics has a ratio and its inverse"),
        (
            Plan((Y,), (ADJUSTED,), (CovariatePlan("c", tuple(range(50_000))),)),
            "e/c would have more than 100,000",
        ),
    ],
)
def test_a_collector_takes_nothing_from_the_data(plan: Plan, text: str) -> None:
    with pytest.raises(PlanError, match=text):
        PostAcceptor(plan)


def test_prefixes_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kanab.collector.counting.lines.MOST_PREFIXES", 3)
    acceptor = PostAcceptor(parse_plan(SHOP))
    for arm in ("on", "off"):
        for _ in range(3):
            for what in ("", ":minutes:0>1", ":bought:0>1"):
                assert len(counters(acceptor, f"banner:{arm}{what}")) in (1, 2)
    assert len(acceptor._prefixes.known) <= 4


def test_refused_lines_leave_nothing_in_memory() -> None:
    acceptor = PostAcceptor(parse_plan("[cohorts]\n" + SHOP))
    for week in range(10, 46):
        refusal(acceptor, f"banner:on@2026-W{week}:hours:0>1")
        refusal(acceptor, f"banner:maybe@2026-W{week}")
        accept(acceptor, f"basket:on@2026-W{week}")
    assert (len(acceptor._prefixes.known), len(acceptor._prefixes._targets)) == (0, 0)


# ── the calendar ───────────────────────────────────────────────────────────────────────────────────


DAY = 86_400


def at(month: int, day: int, hour: int = 0) -> int:
    return seconds_of(datetime(2026, month, day, hour, tzinfo=UTC))


@pytest.mark.parametrize(("every", "window", "life"), [("7d", "7d", "24h"), ("1d", "14d", "2d"), ("10d", "36h", "30m")])
def test_a_cohort_opens_and_ripens_by_its_period_window_and_message_lifetime(
    every: str, window: str, life: str
) -> None:
    calendar = Calendar(Plan((), (), cohorts=Cohorts(every, window), nonce_life=life))
    lives = {"24h": DAY, "2d": 2 * DAY, "30m": 1800}[life]
    measured = {"7d": 7 * DAY, "14d": 14 * DAY, "36h": 36 * 3600}[window]
    number = 300
    begin, end = (Periods(every).first_day(one) * DAY for one in (number, number + 1))
    assert calendar.opening(begin - 1).current == number - 1
    assert calendar.opening(begin).current == calendar.opening(end - 1).current == number
    assert calendar.opening(begin - 3600).last == number
    assert calendar.opening(begin - 3601).last == number - 1
    assert calendar.opening(end + lives - 1).enroll_from == number
    assert calendar.opening(end + lives).enroll_from == number + 1
    assert calendar.opening(end + measured + lives - 1).measure_from == number
    assert calendar.opening(end + measured + lives).measure_from == number + 1
    assert calendar.last_due(end + measured + lives - 1) == number - 1
    assert calendar.last_due(end + measured + lives) == number


@pytest.mark.parametrize("label", [None, "", "2026-W54", "2026-w46", "2026-11-09", "9" * 50, "2026-W46 "])
def test_what_is_no_label_is_refused_without_repeating_it(label: str | None) -> None:
    with pytest.raises(MessageError, match=r"such as 1970-W02, after @") as caught:
        Calendar(Plan((), (), cohorts=Cohorts("7d"))).number(label, "line 2")
    assert label is None or not label or label not in str(caught.value)
    assert caught.value.__context__ is None


def test_without_cohorts_there_is_one_that_stays_open() -> None:
    calendar = Calendar(Plan((), ()))
    assert calendar.number(None) == 0
    assert calendar.opening(at(11, 15)) == (0, 0, 0, 0)
    assert calendar.last_due(at(11, 15)) is None


# ── contributors ───────────────────────────────────────────────────────────────────────────────────


PLAN = Plan(
    (MetricPlan("minutes", (-600, 600), 1),),
    (ExperimentPlan("checkout", (("A", 1), ("B", 1)), segments=("tier",)),),
    (CovariatePlan("tier", (1, 2, 3)),),
)
PLACE = ClassCounters(layouts(PLAN)[0], ("B", 3))
MINUTES = 0


def test_somebody_contributes_while_a_total_is_not_zero_and_forged_moves_may_count_below() -> None:
    name = "checkout/tier|B:3|minutes|c"
    assert [increment(PLACE, {MINUTES: move}).get(name) for move in ((0, 9), (9, -3), (9, 0), (0, 0))] == [
        1,
        None,
        -1,
        None,
    ]
    plan = Plan((MetricPlan("bought", binary=True),), (ExperimentPlan("checkout", (("A", 1), ("B", 1))),))
    place = ClassCounters(layouts(plan)[0], ("B",))
    assert increment(place, {ENROLLED: (None, None), 0: (0, 1)}) == {"checkout|B|n": 1, "checkout|B|bought|s": 1}
