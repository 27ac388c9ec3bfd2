"""A collector with many experiments in one plan: what grows with their number, and how fast?

    python benchmarks/bench_experiments.py [--experiments 100 200 400 1000]

Every experiment has two arms, one covariate of three levels and two metrics. Posts are of people who are in 20 of them,
200 for each experiment. Printed is processor time: of reading the plan, of making ready for posts, of one post, of the
commit to SQLite per post, of the seal (decrypting, tables, gate, ledger), and of reading the batch again, as a
dashboard does. The last line says how each grew from the first size to the last: 1 is as fast as the experiments.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read when NumPy is imported

import numpy as np

from kanab.collector.counting.accept import PostAcceptor
from kanab.collector.counting.plan_versions import Version, Versions
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import KeyChain, Keyring
from kanab.collector.protocol.nonces import hour_of, make_nonce
from kanab.collector.sealing import seal_cohorts, stored_ledger
from kanab.collector.stores.sqlite import SqliteStore
from kanab.collector.stores.store import CountedPost
from kanab.plan.file import parse_plan

PLAN = """
[cohorts]
every = "7d"
[covariates]
tier = [1, 2, 3]
[metrics]
bought = { kind = "binary" }
minutes = { bounds = [0, 600], resolution = 0.01 }
"""
EXPERIMENT = '[experiments.test_{:04d}]\narms = {{ A = 1, B = 1 }}\nadjust = ["tier"]\n'
MONDAY = datetime(2026, 11, 9, 12, tzinfo=UTC)  # of week 46
PEOPLE, EACH = 200, 20
"""People in an experiment, and experiments of a person."""
GROUP = 30
"""Posts to a commit."""
_T = TypeVar("_T")


def timed(times: dict[str, float], name: str, action: Callable[[], _T], share: int = 1) -> _T:
    """Do something, and note the processor time of it, or of each of so many."""
    before = time.process_time()
    answer = action()
    times[name] = (time.process_time() - before) / share
    return answer


def bodies(experiments: int) -> list[bytes]:
    """Return one post per person: enrolled in some experiments, and two totals in each."""
    rng = np.random.default_rng(5)
    posts = []
    for _ in range(experiments * PEOPLE // EACH):
        tier, bought, minutes = rng.integers(1, 4), rng.random() < 0.4, round(rng.gamma(2, 30), 2)
        lines = [f"kanab/1 {make_nonce(MONDAY)}"]
        for number in sorted(rng.choice(experiments, EACH, replace=False)):
            head = f"test_{number:04d}/tier:{rng.choice(['A', 'B'])}:{tier}@2026-W46"
            lines += [head, f"{head}:minutes:0>{minutes}", *([f"{head}:bought:0>1"] if bought else [])]
        posts.append("\n".join([*lines, ""]).encode())
    return posts


def measure(experiments: int, folder: Path) -> dict[str, float]:
    """Return processor seconds by step."""
    times: dict[str, float] = {}
    text = PLAN + "".join(EXPERIMENT.format(number) for number in range(experiments))
    plan = timed(times, "plan", lambda: parse_plan(text))
    acceptor = timed(times, "ready", lambda: PostAcceptor(plan))
    posts = bodies(experiments)
    store, cipher = SqliteStore(folder / f"{experiments}.sqlite"), RecordCipher(Keyring(KeyChain.new()))

    def accept() -> list[CountedPost]:
        answers = (acceptor.accept(body, "text/plain", MONDAY) for body in posts)
        return [CountedPost(cipher.keyring.nonce_hash(a.nonce), hour_of(a.nonce), a.deltas) for a in answers]

    def commit() -> None:
        for first in range(0, len(entries), GROUP):
            store.append(entries[first : first + GROUP], cipher.encrypt)

    entries = timed(times, "post", accept, len(posts))
    timed(times, "commit", commit, len(posts))
    periods = acceptor.calendar.periods
    assert periods is not None
    through = periods.of_day(MONDAY.date())
    sealed = timed(times, "seal", lambda: seal_cohorts(store, cipher, Versions((Version(0, plan),)), through))
    assert sealed.release is not None, sealed.held_back
    assert len(sealed.release.tables) > 0.9 * experiments
    timed(times, "read", lambda: stored_ledger(store))
    store.close()
    return times


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--experiments", type=int, nargs="+", default=[100, 200, 400, 1000])
    sizes = options.parse_args().experiments
    rows = []
    print("experiments    plan, s   ready, s   post, ms  commit, ms    seal, s    read, s")
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            times = measure(size, Path(folder))
            rows.append(list(times.values()))
            shown = [seconds * (1000 if name in ("post", "commit") else 1) for name, seconds in times.items()]
            print(f"{size:11,}", *(f"{value:10.3f}" for value in shown), flush=True)
    if len(sizes) > 1:
        steps = math.log(sizes[-1] / sizes[0])
        growth = [math.log(last / first) / steps for first, last in zip(rows[0], rows[-1], strict=True)]
        print(f"{'grows by':>11}", *(f"{power:10.2f}" for power in growth))


if __name__ == "__main__":
    main()
