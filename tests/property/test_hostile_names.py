"""Names with whatever the protocol, the store and results use as separators: counted whole, or refused at the start."""

import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kanab import analyze, count
from kanab.collector.counting.accept import PostAcceptor
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import KeyChain, Keyring
from kanab.collector.protocol.encoding import encode, spell
from kanab.collector.protocol.nonces import make_nonce
from kanab.collector.sealing import people_by_arm, seal_due, stored_ledger
from kanab.collector.stores.sqlite import SqliteStore
from kanab.collector.stores.store import CountedPost
from kanab.errors import PlanError
from kanab.plan.check import check_plan
from kanab.plan.model import Cohorts, CovariatePlan, ExperimentPlan, MetricPlan, Plan

NOW = datetime(2026, 11, 11, 12, tzinfo=UTC)
WEEK = 2966
HOSTILE = [
    "a/b", "a|b", "a:b", "a@2026-W46", "a>b", "a%2Fb", "%", "*", "a=b", "a,b", "n", "s", "q", "p", "over", "/*|", "a b",
    " a", "a ", "#?&", "ä", "ñ", "名前", "🙂", "a\u0301", "'", '"', "<b>", "\\", "../x", "x/..", "a: b", "null", "true",
    "0", "-1", "_old", "\u3164", "x" * 64, "🙂" * 64, "/", "//", ";",
]  # fmt: skip
names = st.one_of(st.sampled_from(HOSTILE), st.text(st.sampled_from("a/|:@>%*=, nsq🙂é_-.~'"), min_size=1, max_size=6))


def plan_of(words: list[str]) -> Plan:
    """A plan with every kind of name, in the order: experiments, covariates, metrics, ratio, arms, levels."""
    first, second, tier, device, orders, revenue, ratio, a, b, low, high = words
    return Plan(
        (
            MetricPlan(orders, (0, 9), 1),
            MetricPlan(revenue, (0, 90), 1, missing="exclude"),
            MetricPlan(ratio, ratio=(revenue, orders)),
        ),
        (
            ExperimentPlan(first, ((a, 1), (b, 1)), adjust=(tier, device)),
            ExperimentPlan(second, ((low, 1), (high, 1)), interactions=(first,)),
        ),
        (CovariatePlan(tier, (low, high)), CovariatePlan(device, (a, b))),
        k=5,
        cohorts=Cohorts(),
    )


def rows_of(plan: Plan) -> dict[str, list[object]]:
    """Forty-eight people in both experiments."""
    first, second = plan.experiments
    tier, device = plan.covariates
    orders, revenue = plan.counted_metrics
    rows: dict[str, list[object]] = {name: [] for name in (first.name, second.name, tier.name, device.name)}
    rows |= {orders.name: [], revenue.name: []}
    for person in range(48):
        for number, part in enumerate((first, second)):
            rows[part.name].append((part.arms or ())[person >> number & 1])
        for number, covariate in enumerate((tier, device)):
            rows[covariate.name].append((covariate.levels or ())[(person // 4 >> number) & 1])
        rows[orders.name].append(person % 5 + 1)
        rows[revenue.name].append(person * 7 % 80 + 1)
    return rows


def posts_of(plan: Plan, rows: dict[str, list[object]]) -> list[str]:
    """One post per person, as clients write them."""
    bodies = []
    orders, revenue = (metric.name for metric in plan.counted_metrics)
    for person in range(48):
        heads = []
        for linkage in plan.linkages:
            table = "/".join(map(encode, linkage.axes))
            heads.append(":".join([table, *(encode(spell(rows[axis][person])) for axis in linkage.axes)]) + "@2026-W46")  # type: ignore[arg-type]
        y, z = rows[revenue][person], rows[orders][person]
        moves = [
            f":{encode(orders)}:0>{z}",
            f":{encode(revenue)}:>{y}",
            f":{encode(revenue)}/{encode(orders)}:>{y}/{z}",
        ]
        bodies.append("\n".join([*heads, *(head + move for head in heads for move in moves)]))
    return bodies


PLAIN = ["exp", "other", "tier", "device", "orders", "revenue", "ratio", "A", "B", "lo", "hi"]


@settings(max_examples=20, deadline=None)
@given(st.lists(names, min_size=11, max_size=11, unique=True))
@example(["a/b", "a|b", "a:b", "a@b", "a>b", "a%2Fb", "a=b", "*", "/*|", "🙂", "n"])
@example(["a", "a/b", "b/c", "c", "n", "s", "n/s", "p", "q", "%7C", "|"])
@example(PLAIN)
def test_what_people_with_hostile_names_send_is_sealed_as_if_their_rows_had_been_counted(words: list[str]) -> None:
    plan = plan_of(words)
    try:
        check_plan(plan)
    except PlanError:
        with pytest.raises(PlanError):
            PostAcceptor(plan)
        return
    try:
        acceptor = PostAcceptor(plan)
    except PlanError as problem:
        assert "longer than" in str(problem) or "this name" in str(problem)
        return
    rows = rows_of(plan)
    with tempfile.TemporaryDirectory() as folder:
        store, cipher = SqliteStore(Path(folder) / "store.db"), RecordCipher(Keyring(KeyChain.from_secret("5e" * 32)))
        Versions().record(store, plan, WEEK)
        group = []
        for number, body in enumerate(posts_of(plan, rows)):
            accepted = acceptor.accept(f"kanab/1 {make_nonce(NOW)}\n{body}\n".encode(), "text/plain", NOW)
            assert accepted.dropped == ()
            group.append(CountedPost(number.to_bytes(16, "big"), 0, accepted.deltas))
        store.append(group, cipher.encrypt)
        live = people_by_arm(store, cipher, plan)
        assert {sum(arms.values()) for arms in live.values()} == {40}
        [batch] = seal_due(store, cipher, Versions.read(store), WEEK)
        assert batch.release is not None, batch.held_back
        [release] = stored_ledger(store).releases
        store.close()
    counted = count(rows, plan=plan)
    for name in plan.experiment_names:
        assert release.tables_of(name)
    for name, table in release.tables.items():
        if name in counted.tallies:
            assert table.people.tolist() == counted.tallies[name].people.tolist()
            whole = counted.tallies[name].select_metrics(table.metric_names)
            assert all(
                table.moments_of(m).sums.tolist() == whole.moments_of(m).sums.tolist() for m in table.metric_names
            )
    assert not any("forged" in why or "of this batch" in why for why in release.receipt.left_out.values())
    for name in plan.experiment_names:
        analyze(release, experiment=name).to_dict()


@pytest.mark.parametrize(
    "name", ["__proto__", "constructor", "toString", ".", "..", "", " ", "a\nb", "\u200b", "\ud800", "x" * 65]
)
def test_names_that_cannot_work_are_refused_when_the_collector_starts(name: str) -> None:
    for place in range(7):
        words = [*PLAIN]
        words[place] = name
        with pytest.raises(PlanError):
            PostAcceptor(plan_of(words))
