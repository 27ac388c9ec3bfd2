"""How many forged posts make a winner, trip the sample ratio or withhold a metric, where nobody needs a voucher?

    .venv/bin/python benchmarks/bench_forged.py [seeds]

An A/A of 1,000, 5,000 and 20,000 people, one in ten of whom buys something: counted by the acceptor and sealed as a
collector does, with ever more copies of one forged post. Printed is the median of the smallest numbers that do it.
"""

from __future__ import annotations

import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from kanab import analyze
from kanab.collector.counting.accept import PostAcceptor
from kanab.collector.counting.counters import Counters, add_counters
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import KeyChain, Keyring
from kanab.collector.protocol.nonces import make_nonce
from kanab.collector.sealing import seal_due
from kanab.collector.stores.sqlite import MemoryStore
from kanab.collector.stores.store import CountedPost
from kanab.errors import MessageError
from kanab.plan.file import parse_plan
from kanab.privacy.release import Release
from kanab.stats.srm import SAMPLE_RATIO_ALARM

TEXT = """
k = 10
[cohorts]
every = "7d"
[covariates]
tier = [1, 2, 3]
[metrics]
bought = { kind = "binary" }
spend = { bounds = [0, 500], resolution = 0.01 }
[experiments.checkout]
arms = { A = 1, B = 1 }
adjust = ["tier"]
"""
PLAN = parse_plan(TEXT)
ACCEPTOR = PostAcceptor(PLAN)
VOUCHER_KEY = secrets.token_bytes(32)
VOUCHING = PostAcceptor(parse_plan("vouch = true" + TEXT), voucher_keys=[VOUCHER_KEY])
NOW, WEEK = datetime(2026, 11, 11, 12, tzinfo=UTC), 2966
SIZES = (1_000, 5_000, 20_000)
WINS, SEEDS, TRIES = 0.01, 5, 1_000
HEAD = "checkout/tier:{}:{}@2026-W46"


class Attack(NamedTuple):
    """A forged post, and what it has done once there are enough of them."""

    text: str
    body: str
    done: Callable[[Release], bool]


def counted(body: str) -> Counters:
    deltas = ACCEPTOR.accept(f"kanab/1 {make_nonce(NOW)}\n{body}\n".encode(), "text/plain", NOW).deltas
    return deltas[WEEK]


def honest(people: int, seed: int) -> Counters:
    """What people of two arms that are treated alike add up to."""
    rng, total = np.random.default_rng(seed), Counters()
    for _ in range(people):
        head = HEAD.format(rng.choice(["A", "B"]), rng.integers(1, 4))
        spend = round(min(500.0, rng.lognormal(3.5, 0.8)), 2) if rng.random() < 0.1 else 0
        lines = [head, *([f"{head}:bought:0>1", f"{head}:spend:0>{spend}"] if spend else [])]
        add_counters(total, counted("\n".join(lines)))
    return total


def sealed(people: Counters, forged: Counters, times: int) -> Release:
    """Seal the week with so many copies of a forged post."""
    with tempfile.TemporaryDirectory() as folder:
        store, cipher = MemoryStore(Path(folder) / "sealed.db"), RecordCipher(Keyring(KeyChain.new()))
        versions, _ = Versions().record(store, PLAN, WEEK)
        both = dict(people)
        add_counters(both, {name: times * value for name, value in forged.items()})
        store.append([CountedPost(bytes(16), 0, {WEEK: both})], cipher.encrypt)
        [batch] = seal_due(store, cipher, versions, WEEK)
        store.close()
    assert batch.release is not None, batch.held_back
    return batch.release


def wins(metric: str) -> Callable[[Release], bool]:
    def done(release: Release) -> bool:
        rows = analyze(release).to_dict()["effects"]
        return any(row["p"] < WINS and row["estimate"] > 0 for row in rows if row["metric"] == metric)

    return done


def trips(release: Release) -> bool:
    return bool(analyze(release).to_dict()["sample_ratio"]["p"] < SAMPLE_RATIO_ALARM)


def withheld(where: str) -> Callable[[Release], bool]:
    return lambda release: where in release.receipt.left_out


B, NOBODY = HEAD.format("B", 1), HEAD.format("B", "")
ATTACKS = (
    Attack("winner: 0>1 of a 0/1 metric, enrolling nobody", f"{B}:bought:0>1", wins("bought")),
    Attack("winner: 0>1 of a 0/1 metric, enrolled", f"{B}\n{B}:bought:0>1", wins("bought")),
    Attack("winner: 0>500 of an amount, enrolling nobody", f"{B}:spend:0>500", wins("spend")),
    Attack("winner: 0>500 of an amount, enrolled", f"{B}\n{B}:spend:0>500", wins("spend")),
    Attack(f"sample ratio (p < {SAMPLE_RATIO_ALARM:g}): enrollments", B, trips),
    Attack("metric withheld in a table, its effect stays", f"{NOBODY}:spend:0>500", withheld("checkout/tier: spend")),
    Attack("0/1 metric withheld altogether: 1>0", f"{B}:bought:1>0", withheld("checkout: bought")),
    Attack("amount withheld altogether: 500>0", f"{B}:spend:500>0", withheld("checkout: spend")),
)


def fewest(people: Counters, attack: Attack) -> int:
    """Return the smallest number of copies that does it: doubled until it is enough, then halved."""
    forged, enough = counted(attack.body), 1
    while not attack.done(sealed(people, forged, enough)):
        enough *= 2
    too_few = enough // 2
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        if attack.done(sealed(people, forged, middle)):
            enough = middle
        else:
            too_few = middle
    return enough


def taken(attack: Attack) -> int:
    """Return how many copies are taken where posts need vouchers, each with a nonce that nobody minted."""
    count = 0
    for _ in range(TRIES):
        with suppress(MessageError):
            VOUCHING.accept(f"kanab/1 {make_nonce(NOW)}\n{attack.body}\n".encode(), "text/plain", NOW)
            count += 1
    return count


def medians(sizes: Sequence[int], seeds: int = SEEDS) -> Iterator[tuple[Attack, list[float]]]:
    """Yield for each attack the median of the smallest numbers of posts, by the number of honest people."""
    everybody = {size: [honest(size, seed) for seed in range(seeds)] for size in sizes}
    for attack in ATTACKS:
        yield attack, [median(fewest(people, attack) for people in everybody[size]) for size in sizes]


def main(seeds: int) -> None:
    """Print the table, as the docs have it."""
    print(f"| forged posts, without vouchers | {' | '.join(f'{size:,} people' for size in SIZES)} | with vouchers |")
    print("|---|---|---|---|---|")
    for attack, numbers in medians(SIZES, seeds):
        with_vouchers = f"{taken(attack)} of {TRIES:,} taken"
        print(f"| {attack.text} | {' | '.join(f'{number:,.0f}' for number in numbers)} | {with_vouchers} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS)
