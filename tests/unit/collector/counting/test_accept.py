from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kanab.collector.counting.accept import Accepted, PostAcceptor
from kanab.collector.counting.counters import CONTRIBUTORS, Counters
from kanab.collector.protocol.nonces import make_nonce
from kanab.collector.protocol.reasons import Reason
from kanab.errors import MessageError, PlanError
from kanab.plan.file import parse_plan
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan

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


# ── what is added ──────────────────────────────────────────────────────────────────────────────


def test_an_enrollment_adds_one_person_to_every_table_of_its_experiment() -> None:
    assert accept(weekly, *both("B", "@2026-W46")) == Accepted(
        bytes.fromhex(NONCE),
        {WEEK: {"checkout/tier|B:3|n": 1, "checkout/device|B:phone|n": 1, "checkout/*|B:phone:3|n": 1}},
        (),
    )


def test_a_total_that_moves_on_raises_squares_by_the_difference_of_squares() -> None:
    """From 4 to 6 minutes, in steps of a half: 8 to 12."""
    assert counters(once, *both("B", ":minutes:4>6")) == {
        "checkout/tier|B:3|minutes|s": 4,
        "checkout/tier|checkout=B|minutes|q": 144 - 64,
        "checkout/device|B:phone|minutes|s": 4,
        "checkout/device|checkout=B|minutes|q": 144 - 64,
        "checkout/device|device=phone|minutes|q": 144 - 64,
    }


def test_a_yes_or_no_has_no_squares() -> None:
    assert counters(once, "banner:on:bought:0>1") == {"banner|on|bought|s": 1}


def test_a_first_value_counts_the_person_who_has_it() -> None:
    assert counters(once, "banner:on:rating:>4") == {
        "banner|on|rating|n": 1,
        "banner|on|rating|s": 4,
        "banner|banner=on|rating|q": 16,
    }
    assert counters(once, "banner:on:rating:4>2") == {"banner|on|rating|s": -2, "banner|banner=on|rating|q": -12}


def test_old_and_new_are_clamped_and_put_on_the_grid() -> None:
    assert counters(once, "banner:on:minutes:599.8>9999") == {  # 1200 and 1200
        "banner|on|minutes|s": 0,
        "banner|banner=on|minutes|q": 0,
    }
    assert counters(once, "banner:on:minutes:-3>0.25")["banner|on|minutes|s"] == 1  # half a step rounds up
    assert counters(once, "banner:on:minutes:0>1e308")["banner|on|minutes|s"] == 1200


def test_one_post_may_move_a_total_twice() -> None:
    assert counters(once, "banner:on:minutes:0>4", "banner:on:minutes:4>6") == counters(once, "banner:on:minutes:0>6")


def test_a_pair_of_experiments_is_one_table_with_squares_by_both() -> None:
    assert counters(once, "banner/checkout:on:B", "banner/checkout:on:B:minutes:0>1") == {
        "banner/checkout|on:B|n": 1,
        "banner/checkout|on:B|minutes|s": 2,
        "banner/checkout|banner=on|minutes|q": 4,
        "banner/checkout|checkout=B|minutes|q": 4,
    }


def test_a_missing_level_is_written_as_nothing() -> None:
    assert counters(once, *both("B", tier="")) == {
        "checkout/tier|B:|n": 1,
        "checkout/device|B:phone|n": 1,
        "checkout/*|B:phone:|n": 1,
    }
    assert "checkout/tier|B:|minutes|s" in counters(once, *both("B", ":minutes:0>1", tier=""))


def test_a_ratio_adds_products_per_arm() -> None:
    found = counters(ratios, "checkout:B:revenue:0>30", "checkout:B:orders:0>1", "checkout:B:revenue/orders:0/0>30/1")
    assert found["checkout|checkout=B|revenue/orders|p"] == 30
    assert not any(name.endswith("revenue/orders|s") for name in found)
    more = counters(ratios, "checkout:B:revenue:30>50", "checkout:B:revenue/orders:30/1>50/1")
    assert more["checkout|checkout=B|revenue/orders|p"] == 20


def test_a_ratio_of_excluded_values_keeps_its_own_sums() -> None:
    found = counters(ratios, "checkout:B:rating:>4", "checkout:B:rating/orders:>4/2")
    prefix = "checkout|checkout=B|rating/orders|"
    assert {name[-1]: value for name, value in found.items() if name.startswith(prefix)} == {
        "n": 1, "s": 4, "t": 2, "q": 16, "r": 4, "p": 8,
    }  # fmt: skip


def test_names_may_be_spelled_in_any_percent_encoding() -> None:
    arms = ExperimentPlan("a/b: c", (("é", 1), ("x|y", 1)))
    acceptor = PostAcceptor(Plan((MetricPlan("time on app", (0, 9), 1),), (arms,)))
    expected = {"a%2Fb%3A%20c|%C3%A9|time%20on%20app|s": 3, "a%2Fb%3A%20c|a%2Fb%3A%20c=%C3%A9|time%20on%20app|q": 9}
    for line in (
        "a%2Fb%3A%20c:%C3%A9:time%20on%20app:0>3",
        "a%2fb%3a%20c:%c3%a9:time%20on%20app:0>3",
        "a%2Fb%3A c:é:time on app:0>3",
    ):
        assert counters(acceptor, line) == expected
        assert counters(acceptor, line) == expected  # and when its head is known


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


def test_the_papers_messages_add_what_the_paper_says() -> None:
    """Section 3.1: count + 1; then sum + 4 and squares + 16; then, for two more, sum + 2 and squares + 20."""
    assert counters(paper, "Test1:B:3") == {"Test1/tier|B:3|n": 1}
    assert counters(paper, "Test1:B:3:Time on App:4") == {KEY: 4, SQUARES: 16}
    assert counters(paper, "Test1:B:3:Time on App_old:4:Time on App:2") == {KEY: 2, SQUARES: 20}
    assert counters(paper, "Test1:B:3:mood:-2")["Test1/tier|B:3|mood|n"] == 1


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
        ("checkout/tier:B@2026-W46", "line", None),
        ("checkout/tier:B:3:4@2026-W46", "line", None),
        ("checkout/tier:B:3@2026-W46:minutes", "line", None),
        ("checkout/tier:B:3@2026-W46:0>1", "line", None),
        ("checkout/tier:B:3", "cohort", None),
        ("checkout/tier:B:3:minutes:0>1", "cohort", None),
        ("checkout/tier:B:3@", "cohort", None),
        ("checkout/tier:B:3@2026-W54", "cohort", None),
        ("checkout/tier:B:3@2026-11-09", "cohort", None),
        ("checkout/tier:B:3@2026-W46:minutes:0>", "number", None),
        ("checkout/tier:B:3@2026-W46:minutes:>1", "number", None),
        ("checkout/tier:B:3@2026-W46:minutes:>", "number", None),
        ("checkout/tier:B:3@2026-W46:minutes:0>1>2", "number", None),
        ("checkout/tier:B:3@2026-W46:minutes:0/0>1/1", "number", None),
        ("checkout/tier:B:3@2026-W46:minutes:0>inf", "number", None),
        ("checkout/tier:B:3@2026-W46:minutes:0>1e999", "number", None),
        ("checkout/tier:B:3@2026-W46:minutes:0>nan", "number", None),
        ("checkout/tier:B:3@2026-W46:minutes:0>1_0", "number", None),
        ("checkout/tier:B:3@2026-W46:minutes:0> 1", "number", None),
        ("checkout/tier:B:3@2026-W46:minutes:0>0x1", "number", None),
        ("checkout/tier:B:3@2026-W46:minutes:0>١", "number", None),
        ("checkout/tier:%ff:3@2026-W46", "level", None),
    ],
)  # fmt: skip
def test_a_line_that_the_plan_does_not_allow_is_refused(line: str, reason: str, text: str | None) -> None:
    problem = refusal(weekly, line, line.replace("tier", "device").replace(":3", ":phone"))
    assert (problem.reason, problem.status) == (reason, 400)
    assert text is None or str(problem) == text


def test_a_label_where_there_are_no_cohorts_is_refused() -> None:
    assert refusal(once, "banner:on@2026-W46").reason == Reason.COHORT


@pytest.mark.parametrize(
    "lines",
    [
        ["checkout/tier:B:3"],  # one table of two
        [*both("B"), "checkout/tier:B:3"],  # enrolled twice in one of them
        [*both("B"), *both("B")],
        [*both("B"), *both("A")],
        ["checkout/tier:B:3", "checkout/device:A:phone"],  # two arms
        ["checkout/tier:B:3", "checkout/tier:B:2"],  # two levels
        [*both("B", ":minutes:0>4")[:1], *both("B", ":minutes:0>5")[1:]],
        [*both("B", ":minutes:0>4"), *both("B", ":minutes:5>6")],  # does not go on from where it was
        ["banner:on:rating:>1", "banner:on:rating:>2"],
        [*both("B"), "banner/checkout:on:A"],  # another arm in the pair
        ["banner/checkout:on:A", "banner/checkout:on:B"],
    ],
)
def test_lines_that_are_not_one_persons_whole_transition_are_refused(lines: list[str]) -> None:
    problem = refusal(once, *lines)
    assert (problem.reason, problem.status) == (Reason.INCOMPLETE, 400)


def test_the_tables_of_an_experiment_must_name_one_cohort() -> None:
    first, second = both("B", "@2026-W46:minutes:0>1")
    assert refusal(weekly, first, second.replace("W46", "W45")).reason == Reason.INCOMPLETE


@pytest.mark.parametrize(
    "lines",
    [
        ["checkout:B:revenue:0>30"],  # without its ratio
        ["checkout:B:revenue:0>30", "checkout:B:revenue/orders:0/0>31/0"],
        ["checkout:B:revenue:0>30", "checkout:B:revenue/orders:1/0>30/0"],
        ["checkout:B:revenue:0>30", "checkout:B:revenue/orders:0/0>30/1"],  # orders did not move
        ["checkout:B:rating:>4", "checkout:B:rating/orders:>3/0"],
    ],
)
def test_a_ratio_moves_with_its_parts(lines: list[str]) -> None:
    assert refusal(ratios, *lines).reason == Reason.INCOMPLETE


@pytest.mark.parametrize("totals", [">30/1", "0>30/1", "0/0>30", "0>30", "0/0/0>1/1/1", "0/0>/1"])
def test_a_ratio_needs_two_totals(totals: str) -> None:
    assert refusal(ratios, f"checkout:B:revenue/orders:{totals}").reason == Reason.NUMBER


def test_a_ratio_of_excluded_values_need_not_move_before_both_are_there() -> None:
    assert len(counters(ratios, "checkout:B:rating:>4")) == 3


# ── unknown, late and early ────────────────────────────────────────────────────────────────────


def test_a_ratio_that_is_younger_than_an_experiment_is_not_demanded_of_its_clients() -> None:
    plan = parse_plan(RATIO + "[experiments.banner]\narms = { off = 1, on = 1 }\n")
    grown = PostAcceptor(plan, {"checkout": ("revenue", "orders", "rating"), "banner": ("revenue", "orders", "aov")})
    assert counters(grown, "checkout:B:revenue:0>30")["checkout|B|revenue|s"] == 30
    counters(grown, "checkout:B:revenue:0>30", "checkout:B:revenue/orders:0/0>30/0")  # some have heard of it
    assert refusal(grown, "banner:on:revenue:0>30").reason == Reason.INCOMPLETE
    assert refusal(grown, "checkout:B:revenue:0>30", "checkout:B:revenue/orders:0/0>31/0").reason == Reason.INCOMPLETE


def test_lines_of_unknown_experiments_are_dropped_and_the_rest_counts() -> None:
    found = accept(once, "basket/tier:B:3", "basket:x:y:z:0>1", "banner:on")
    assert (found.deltas, found.dropped) == ({0: {"banner|on|n": 1}}, (Reason.EXPERIMENT, Reason.EXPERIMENT))
    assert accept(once, "basket:on").deltas == {}


def test_enrollments_count_in_their_period_and_one_message_lifetime_longer() -> None:
    """Week 46 is over on Monday 16 November; messages live 24 hours."""
    nonce = "00079b90"  # Tuesday, 00:00
    line = "banner:on@2026-W46"

    def at(*when: int) -> Accepted:
        body = f"kanab/1 {nonce}{'0' * 24}\n{line}\n"
        return weekly.accept(body.encode(), None, datetime(2026, 11, *when, tzinfo=UTC), None)

    assert at(16, 23, 59).deltas == {WEEK: {"banner|on|n": 1, "banner||c": 1}}
    with pytest.raises(MessageError) as caught:
        at(17, 0, 0)
    assert (caught.value.reason, caught.value.status) == (Reason.UNTIMELY, 410)


def test_totals_count_for_the_window_after_the_period_and_one_message_lifetime_longer() -> None:
    def at(label: str) -> Accepted:
        return accept(weekly, f"banner:on@{label}:bought:0>1", now=datetime(2026, 11, 16, 0, 30, tzinfo=UTC))

    assert at("2026-W45").deltas == {WEEK - 1: {"banner|on|bought|s": 1}}  # over since 9 November, plus 8 days
    late = at("2026-W44")
    assert (late.deltas, late.dropped) == ({}, (Reason.LATE,))


def test_an_enrollment_in_a_cohort_long_over_is_dropped_like_its_totals_will_be() -> None:
    assert accept(weekly, "banner:on@2026-W40").dropped == (Reason.LATE,)


def test_sealed_cohorts_take_nothing_more() -> None:
    found = accept(weekly, "banner:on@2026-W46:bought:0>1", *both("B", "@2026-W45:bought:0>1"), sealed=WEEK - 1)
    assert (found.deltas, found.dropped) == ({WEEK: {"banner|on|bought|s": 1}}, (Reason.LATE, Reason.LATE))
    assert accept(once, "banner:on", sealed=0).dropped == (Reason.LATE,)
    told = accept(paper, "Test1:B:3", "Test1:B:3:Time on App:4", "Test1:B:3:Time on App_old:4:Time on App:2", sealed=0)
    assert (told.deltas, told.dropped) == ({}, (Reason.LATE,) * 3)


@pytest.mark.parametrize(
    ("when", "status"), [((15, 15, 0), None), ((15, 14, 59), 503), ((16, 16, 59), None), ((16, 17, 0), 410)]
)
def test_nonces_live_their_life_and_come_at_most_an_hour_early(when: tuple[int, ...], status: int | None) -> None:
    now = datetime(2026, 11, *when, tzinfo=UTC)
    if status is None:
        assert accept(once, "banner:on", now=now).deltas
    else:
        assert refusal(once, "banner:on", now=now).status == status


def test_what_is_open_is_known_anew_in_every_second() -> None:
    last = datetime(2026, 11, 16, 16, 59, 59, 900_000, tzinfo=UTC)
    for _ in range(2):  # whichever came before
        assert accept(once, "banner:on", now=last.replace(microsecond=0)).deltas
        assert accept(once, "banner:on", now=last).deltas
        assert refusal(once, "banner:on", now=last + timedelta(seconds=0.1)).status == 410


@pytest.mark.parametrize(
    ("first", "begins"),
    [
        ("2026-W47", datetime(2026, 11, 16, tzinfo=UTC)),
        ("2026-W53", datetime(2026, 12, 28, tzinfo=UTC)),  # a year of 53 weeks
        ("2027-W01", datetime(2027, 1, 4, tzinfo=UTC)),
        ("2025-W01", datetime(2024, 12, 30, tzinfo=UTC)),  # a week that begins in the year before
        ("2017-W01", datetime(2017, 1, 2, tzinfo=UTC)),  # the day after a leap second
    ],
)
def test_a_client_that_is_fast_at_the_end_of_a_period_is_counted_within_the_hour_of_grace(
    first: str, begins: datetime
) -> None:
    def post(early: timedelta) -> bytes:
        lines = [f"kanab/1 {make_nonce(begins)}", *both("B", f"@{first}")]
        return "\n".join(lines).encode()

    cohort = weekly.calendar.number(first)
    for early in (timedelta(), timedelta(seconds=1), timedelta(hours=1)):
        assert list(weekly.accept(post(early), "text/plain", begins - early).deltas) == [cohort]
    with pytest.raises(MessageError) as caught:
        weekly.accept(post(timedelta(hours=1)), "text/plain", begins - timedelta(hours=1, seconds=1))
    assert (caught.value.reason, caught.value.status) == (Reason.AHEAD, 503)


def test_a_cohort_that_lies_ahead_is_sent_again_because_the_collector_may_be_the_slow_one() -> None:
    problem = refusal(weekly, *both("B", "@2026-W47"))
    assert (problem.reason, problem.status) == (Reason.AHEAD, 503)


# ── plans ──────────────────────────────────────────────────────────────────────────────────────

ARMS = (("A", 1), ("B", 1))
BINNED = CovariatePlan("c", bins=3)


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (Plan((MetricPlan("y"),), (ExperimentPlan("e", ARMS),)), "metrics.y takes its bounds from the data"),
        (Plan((MetricPlan("y", (1, 5)),), (ExperimentPlan("e", ARMS),)), "metrics.y.bounds do not hold 0"),
        (Plan((MetricPlan("y", (0, 5)),), (ExperimentPlan("e"),)), "experiments.e takes its arms from the data"),
        (Plan((MetricPlan("y", (0, 5)),), ()), "experiments is missing"),
        (Plan((), (ExperimentPlan("e", ((True, 1), ("true", 1))),)), "two arms that are spelled alike"),
        (
            Plan((MetricPlan("y", (0, 5)),), (ExperimentPlan("e", ARMS, adjust=("c",)),), (BINNED,)),
            "covariates.c takes its levels from the data",
        ),
        (
            Plan(
                (
                    MetricPlan("y", (0, 5)), MetricPlan("z", (0, 5)),
                    MetricPlan("a", ratio=("y", "z")), MetricPlan("b", ratio=("z", "y")),
                ),
                (ExperimentPlan("e", ARMS),),
            ),
            "metrics has a ratio and its inverse",
        ),
        (
            Plan(
                (MetricPlan("y", (0, 5)),),
                (ExperimentPlan("e", ARMS, adjust=("c",)),),
                (CovariatePlan("c", tuple(range(50_000))),),
            ),
            "e/c would have more than 100,000 classes",
        ),
    ],
)  # fmt: skip
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
