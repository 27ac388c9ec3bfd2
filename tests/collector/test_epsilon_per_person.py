"""ε at a collector is a promise to a person: in however many experiments, cohorts and batches that person is."""

import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kanab.collector.counting.accept import PostAcceptor
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.http.service import Service
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import KeyChain, Keyring
from kanab.collector.protocol.nonces import hour_of, make_nonce
from kanab.collector.sealing import check_store_account, seal_cohorts, stored_ledger
from kanab.collector.stores.sqlite import MemoryStore
from kanab.collector.stores.store import CountedPost
from kanab.errors import PlanError, PrivacyError
from kanab.plan.file import parse_plan
from kanab.plan.model import Plan
from kanab.plan.periods import Periods
from kanab.privacy.epsilon import accountant, noisy_release, split
from kanab.privacy.epsilon.mechanism import Scale
from kanab.privacy.epsilon.rho import SpentRho, rho_of
from kanab.privacy.epsilon.split import spent_by, split_budget, split_by_tables

pytest.importorskip("opendp")

BASE = """
k = 10
[cohorts]
every = "7d"
window = "7d"
[covariates]
tier = [1, 2]
[metrics]
bought = { kind = "binary" }
spend = { bounds = [0, 20], resolution = 0.5 }
"""
WEEKS = Periods("7d")
MONDAY = datetime(2026, 11, 9, 12, tzinfo=UTC)
FIRST = WEEKS.of_day(MONDAY.date())


@dataclass
class Shop:
    """A collector's store with one visitor, who moves every total as far as anybody can."""

    store: MemoryStore
    versions: Versions = field(default_factory=Versions)
    cipher: RecordCipher = field(default_factory=lambda: RecordCipher(Keyring(KeyChain.new())))

    def adopt(self, plan: Plan, week: int) -> None:
        newest = len(self.versions.entries)
        self.versions, _ = self.versions.record(self.store, plan, FIRST + week, replaces=newest)

    def visit(self, heads: list[str], week: int) -> None:
        """Enroll into tables, such as ``checkout/tier:A:1``, and buy for as much as counts."""
        acceptor, now = PostAcceptor(self.versions.known), MONDAY + timedelta(weeks=week)
        at = [f"{head}@{WEEKS.label(FIRST + week)}" for head in heads]
        lines = [line for head in at for line in (head, f"{head}:bought:0>1", f"{head}:spend:0>99")]
        accepted = acceptor.accept(f"kanab/1 {make_nonce(now)}\n{chr(10).join(lines)}\n".encode(), "text/plain", now)
        assert accepted.dropped == ()
        post = CountedPost(self.cipher.keyring.nonce_hash(accepted.nonce), hour_of(accepted.nonce), accepted.deltas)
        self.store.append([post], self.cipher.encrypt)

    def seal(self, week: int) -> None:
        sealed = seal_cohorts(self.store, self.cipher, self.versions, FIRST + week)
        assert sealed.release is not None, sealed.held_back


@pytest.fixture
def shop(tmp_path: Path) -> Any:
    store = MemoryStore(tmp_path / "store.db")
    yield Shop(store)
    store.close()


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the visitor has moved so far, in ρ: half the squared distance over the variance, array by array.

    Nobody else is in the store, so that whatever is not 0 is the visitor's. All answers are constants.
    """
    costs: list[float] = []

    def noted(cells: Any, scale: Scale) -> Any:
        steps = [int(cell) / scale.unit for cell in cells.ravel()]
        costs.append(sum(step**2 for step in steps) / (2 * scale.deviation**2))
        return np.full(cells.shape, 5_000 if scale.influence == 1 else 0, dtype=object)

    monkeypatch.setattr(noisy_release, "add_noise", noted)
    return costs


def test_ten_weekly_experiments_cost_one_visitor_no_more_than_the_plan_says(shop: Shop, moved: list[float]) -> None:
    """As ten promises of ε = 1 they would be ε = 3.5 to whoever comes back each week."""
    for week in range(10):
        plan = f"{BASE}[experiments.week{week}]\narms = {{ A = 1, B = 1 }}\n[privacy]\nepsilon = 1\n"
        shop.adopt(parse_plan(f"{plan}shares = {{ week{week} = 0.1 }}\n"), week)
        shop.visit([f"week{week}:A"], week)
        shop.seal(week)
    assert sum(moved) == pytest.approx(rho_of(1, 1e-6))
    noise = stored_ledger(shop.store).releases[-1].receipt.noise
    assert noise is not None
    assert noise.spent == pytest.approx(1)


TWO = """
[experiments.checkout]
arms = { A = 1, B = 1 }
adjust = ["tier"]
[experiments.banner]
arms = { A = 1, B = 1 }
[privacy]
epsilon = 1
"""


def test_a_store_goes_on_as_long_as_all_of_it_keeps_to_its_total(shop: Shop, moved: list[float]) -> None:
    shop.adopt(parse_plan(BASE + TWO), 0)
    for week in range(3):
        check_store_account(shop.store, shop.versions)
        if not week:
            shop.visit(["checkout/tier:A:1", "banner:B"], week)
        shop.seal(week)
    check_store_account(shop.store, shop.versions)
    assert sum(moved) == pytest.approx(rho_of(1, 1e-6))


def test_a_store_whose_batches_have_spent_more_takes_nothing_when_it_is_started(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of before shared ε among tables: 2 / 3 for checkout, which together with 1 / 2 is too much."""
    shop.adopt(parse_plan(BASE + TWO), 0)
    with monkeypatch.context() as before:
        before.setattr(noisy_release, "split_budget", split_by_tables)
        shop.seal(0)
    with pytest.raises(PrivacyError, match="total of ε = 1 per person does not allow another release of ε = 1"):
        Service(shop.store, shop.cipher.keyring, parse_plan(BASE + TWO), clock=lambda: MONDAY + timedelta(weeks=1))


def test_a_store_without_cohorts_is_started_again_after_its_only_seal(shop: Shop) -> None:
    plan = replace(parse_plan(BASE + TWO), cohorts=None)
    shop.versions, _ = shop.versions.record(shop.store, plan, 0)
    assert seal_cohorts(shop.store, shop.cipher, shop.versions, 0).release is not None
    check_store_account(shop.store, shop.versions)


# ── any plan that is accepted ──────────────────────────────────────────────────────────────────


@dataclass
class Calendar:
    """Experiments over some weeks, some of which exclude each other or are crossed, and one visitor's way through."""

    seed: int
    weeks: int = 6

    def __post_init__(self) -> None:
        draw = self.draw = random.Random(self.seed)
        self.runs: dict[str, range] = {}
        for number in range(draw.randint(2, 5)):
            begin = draw.randrange(self.weeks)
            self.runs[f"e{number}"] = range(begin, draw.randint(begin + 1, self.weeks))
        names = [*self.runs]
        self.apart = {frozenset(pair) for pair in zip(names[::2], names[1::2], strict=False) if draw.random() < 0.5}
        for one, other in map(sorted, self.apart):  # with ε they end together
            begin = max(self.runs[one].start, self.runs[other].start)
            end = max(begin + 1, self.runs[one].stop, self.runs[other].stop)
            self.runs |= {name: range(self.runs[name].start, end) for name in (one, other)}
        self.heavy = {name for name in names if draw.random() < 0.3}
        self.adjusted = {name for name in names if draw.random() < 0.5}
        self.crossed = [pair for pair in zip(names[1::2], names[2::2], strict=False) if draw.random() < 0.7]
        parts = [*names, *map("/".join, self.crossed)]
        self.shares = {name: round(draw.uniform(0.6, 1.3) / len(parts), 3) for name in parts if draw.random() < 0.9}

    def first(self, one: str, other: str) -> bool:
        """Whether one begins before another; who begins later says that it excludes."""
        return (self.runs[one].start, one) < (self.runs[other].start, other)

    def plan(self, week: int) -> Plan | None:
        """The plan of a week, with the total of ε = 1; None in weeks without an experiment."""
        running = [name for name, weeks in self.runs.items() if week in weeks]
        crossed = [pair for pair in self.crossed if {*pair} <= {*running}]
        text = BASE
        for name in running:
            others = [other for other in running if frozenset((name, other)) in self.apart and self.first(other, name)]
            text += f"[experiments.{name}]\narms = {{ A = 1, B = 1 }}\nexclude_with = {others}\n"
            text += 'adjust = ["tier"]\n' if name in self.adjusted else ""
            text += f"interactions = {[second for first, second in crossed if first == name]}\n"
        named = [*running, *map("/".join, crossed)]
        shares = ", ".join(f'"{name}" = {share}' for name, share in self.shares.items() if name in named)
        weights = ", ".join(f"{name} = 3" for name in running if name in self.heavy)
        text += f"[privacy]\nepsilon = 1\nshares = {{ {shares} }}\nweights = {{ {weights} }}\n"
        return parse_plan(text) if running else None

    def enrollments(self) -> dict[int, list[str]]:
        """The tables that the visitor enters by week: experiments that exclude none before, then pairs of them."""
        entered: dict[str, int] = {}
        for name, weeks in self.runs.items():
            if not any(frozenset((name, other)) in self.apart for other in entered):
                entered[name] = self.draw.choice(weeks)
        heads: dict[int, list[str]] = {}
        for name, week in entered.items():
            heads.setdefault(week, []).append(f"{name}/tier:A:1" if name in self.adjusted else f"{name}:A")
        for one, other in self.crossed:
            week = max(entered.get(one, -1), entered.get(other, -1))
            if {one, other} <= {*entered} and week in self.runs[one] and week in self.runs[other]:
                heads.setdefault(week, []).append(f"{one}/{other}:A:A")
        return heads


def live_through(shop: Shop, calendar: Calendar) -> None:
    """Run a calendar week by week, sealing after some weeks. Raises `PlanError` where a plan would overspend."""
    heads = calendar.enrollments()
    for week in range(calendar.weeks):
        plan = calendar.plan(week)
        if plan is not None:
            shop.adopt(plan, week)
        if not shop.versions.entries:
            continue
        if week in heads:
            shop.visit(heads[week], week)
        if calendar.draw.random() < 0.6 or week == calendar.weeks - 1:
            shop.seal(week)


def costs_of(seed: int, path: Path, moved: list[float]) -> tuple[float, float] | None:
    """What the visitor moved, and what the ledger says, in ρ; None where the plans were refused before."""
    store = MemoryStore(path / f"{seed}.db")
    moved.clear()
    try:
        live_through(Shop(store), Calendar(seed))
        return sum(moved), accountant.spent_rho(stored_ledger(store).releases)
    except PlanError as problem:
        assert "privacy.shares" in str(problem), problem
        return None
    finally:
        store.close()


PROMISED = rho_of(1, 1e-6) * (1 + 1e-9)


def test_whatever_plans_are_accepted_one_visitor_moves_no_more_than_is_promised(
    tmp_path: Path, moved: list[float]
) -> None:
    costs = [cost for seed in range(40) if (cost := costs_of(seed, tmp_path, moved)) is not None]
    assert 20 <= len(costs) <= 36  # some are refused
    for cost, stated in costs:
        assert cost <= stated * (1 + 1e-9)
        assert stated <= PROMISED
    assert sum(cost > 0.7 * PROMISED for cost, _ in costs) >= 5  # some visitors use it up


def test_with_half_the_share_behind_its_noise_the_same_visitor_moves_more(
    tmp_path: Path, moved: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account takes noise for what it was meant to cost, and is wrong: the visitor is not."""

    def too_cheap(plan: Plan, scales: Any, *cohorts: float) -> SpentRho:
        spent = spent_by(plan, scales, *cohorts)
        return replace(spent, costs={name: rho / 2 for name, rho in spent.costs.items()})

    for module in (noisy_release, split, accountant):
        monkeypatch.setattr(module, "split_budget", lambda plan, rho: split_budget(plan, 2 * rho))
    for module in (split, accountant):
        monkeypatch.setattr(module, "spent_by", too_cheap)
    costs = [cost for seed in range(12) if (cost := costs_of(seed, tmp_path, moved)) is not None]
    assert sum(cost > stated for cost, stated in costs) > len(costs) / 2
    assert max(cost for cost, _ in costs) > PROMISED
