"""Nobody can block a seal: a batch is published whatever posts say, and what they spoilt is left out of it."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from tests.benchmarks import load_benchmark
from tests.collector.posting import send

from kanab import analyze
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import KeyChain, Keyring
from kanab.collector.protocol.nonces import mint_vouchers
from kanab.collector.sealing import people_by_arm, seal_due, stored_ledger
from kanab.collector.stores.sqlite import SqliteStore
from kanab.plan.file import parse_plan
from kanab.plan.model import Plan
from kanab.privacy.release import FORGED, Release

NOW = datetime(2026, 11, 11, 12, tzinfo=UTC)  # in week 46, which is cohort 2966
WEEK = 2966
ROOT = Path(__file__).parents[2]

SHOP = parse_plan("""
k = 10
[cohorts]
every = "7d"
[metrics]
revenue = { bounds = [0, 100], resolution = 1 }
orders = { bounds = [0, 10], resolution = 1 }
basket = { ratio = ["revenue", "orders"] }
[experiments.checkout]
arms = { A = 1, B = 1 }
[experiments.banner]
arms = { off = 1, on = 1 }
""")


def shoppers(experiment: str, arms: str, people: int, seed: int) -> list[str]:
    """One post per person: enrolled, and what they bought."""
    rng = np.random.default_rng(seed)
    bodies = []
    for place in range(people):
        head, orders = f"{experiment}:{arms.split()[place % 2]}@2026-W46", int(rng.integers(0, 4))
        revenue = orders * int(rng.integers(5, 25))
        lines = [head, f"{head}:revenue:0>{revenue}", f"{head}:orders:0>{orders}"]
        bodies.append("\n".join([*lines, f"{head}:revenue/orders:0/0>{revenue}/{orders}"]))
    return bodies


def sealed(path: Path, plan: Plan, bodies: Iterable[str]) -> Release:
    """Post, and seal the week."""
    store, cipher = SqliteStore(path), RecordCipher(Keyring(KeyChain.new()))
    try:
        Versions().record(store, plan, WEEK)
        send(store, cipher, bodies, NOW, plan)
        people_by_arm(store, cipher, plan)
        [batch] = seal_due(store, cipher, Versions.read(store), WEEK)
        assert batch.release is not None, batch.held_back
        assert store.records() == []
        [release] = stored_ledger(store).releases
        return release
    finally:
        store.close()


HONEST = [*shoppers("checkout", "A B", 60, 1), *shoppers("banner", "off on", 90, 2)]
ALONE = [  # three posts that leave sums and squares as they were, and move products alone
    "banner:on@2026-W46:revenue:0>100\nbanner:on@2026-W46:orders:0>10\nbanner:on@2026-W46:revenue/orders:0/0>100/10",
    "banner:on@2026-W46:revenue:100>0\nbanner:on@2026-W46:revenue/orders:100/0>0/0",
    "banner:on@2026-W46:orders:10>0\nbanner:on@2026-W46:revenue/orders:0/10>0/0",
]


def test_products_that_nobody_could_have_cost_the_ratio_of_one_experiment(tmp_path: Path) -> None:
    honest, forged = sealed(tmp_path / "a", SHOP, HONEST), sealed(tmp_path / "b", SHOP, HONEST + ALONE * 9)
    assert forged.receipt.left_out == {
        "banner: basket": "basket is withheld altogether: messages do not add up, some were forged or lost"
    }
    assert forged.tables["checkout"] == honest.tables["checkout"]
    assert forged.tables["banner"].metric_names == ("revenue", "orders")
    assert (len(forged.tables["checkout"].crosses), forged.tables["banner"].crosses) == (1, ())


def test_a_total_that_nobody_could_have_costs_one_metric_of_one_experiment(tmp_path: Path) -> None:
    below = ["banner:on@2026-W46:orders:10>0\nbanner:on@2026-W46:revenue/orders:0/10>0/0"] * 60
    honest, forged = sealed(tmp_path / "a", SHOP, HONEST), sealed(tmp_path / "b", SHOP, HONEST + below)
    assert [*forged.receipt.left_out] == ["banner: orders", "banner: basket"]
    assert forged.tables["checkout"] == honest.tables["checkout"]
    assert forged.tables["banner"] == honest.tables["banner"].select_metrics(["revenue"])


def test_sums_of_a_class_of_nobody_cost_its_table_and_the_arms_stay(tmp_path: Path) -> None:
    """One post without an enrollment withheld every metric of every experiment that it named."""
    plan = parse_plan("""
k = 10
[cohorts]
every = "7d"
[covariates]
tier = [1, 2, 3]
[metrics]
bought = { kind = "binary" }
minutes = { bounds = [0, 600], resolution = 1 }
[experiments.checkout]
arms = { A = 1, B = 1 }
adjust = ["tier"]
[experiments.banner]
arms = { off = 1, on = 1 }
""")
    honest = []
    for place in range(240):
        banner, checkout = f"banner:{['off', 'on'][place % 2]}", f"checkout/tier:{'AB'[place % 2]}:{1 + place % 3}"
        head = f"{checkout if place % 4 < 2 else banner}@2026-W46"
        honest.append("\n".join([head, f"{head}:bought:0>{place % 5 // 4}", f"{head}:minutes:0>{place % 90}"]))
    head = "checkout/tier:A:@2026-W46"
    before = sealed(tmp_path / "a", plan, honest)
    after = sealed(tmp_path / "b", plan, [*honest, f"{head}:bought:0>1\n{head}:minutes:0>600"])
    assert after.tables["banner"] == before.tables["banner"]
    assert after.receipt.forged == {
        f"checkout/tier: {name}": f"{name} is withheld in checkout/tier: {FORGED}" for name in ("bought", "minutes")
    }
    counts = [int(release.totals("checkout").moments_of("bought").sums.sum()) for release in (before, after)]
    assert counts == [24, 25]
    assert {caution.metric for caution in analyze(after, experiment="checkout").cautions} == {"bought", "minutes"}


@pytest.fixture
def bench() -> ModuleType:
    return load_benchmark("bench_forged")


@pytest.mark.slow
def test_the_table_of_forged_posts_is_that_of_the_benchmark(bench: ModuleType) -> None:
    """At 1,000 people, which takes seconds."""
    counted = [(attack.text, f"{number:,.0f}") for attack, (number,) in bench.medians(bench.SIZES[:1])]
    vouched = [f"{bench.taken(attack)} of {bench.TRIES:,} taken" for attack in bench.ATTACKS]
    for page in ("SECURITY.md", "docs/how-to/collector.md"):
        table = (ROOT / page).read_text(encoding="utf-8").partition("| forged posts, without vouchers |")[2]
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.split("\n\n")[0].splitlines()[2:]]
        assert [(text, number) for text, number, *_ in rows] == counted
        assert [row[-1] for row in rows] == vouched


def test_posts_with_a_genuine_voucher_are_taken_by_the_collector_of_the_table(bench: ModuleType) -> None:
    [voucher] = mint_vouchers(bench.VOUCHER_KEY, now=bench.NOW)
    body = f"kanab/1 {voucher}\n{bench.ATTACKS[0].body}\n".encode()
    assert bench.VOUCHING.accept(body, "text/plain", bench.NOW).deltas
