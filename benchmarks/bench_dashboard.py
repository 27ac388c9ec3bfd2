"""The dashboard over many experiments: the first page of a process that has just started, and pages after that.

    python benchmarks/bench_dashboard.py [--experiments 1000] [--rounds 3] [--folder DIR]

Makes a folder of release files, starts `kanab dashboard` on it in a process of its own for every round, and asks over
HTTP. "cold" is the first request, sent as soon as the process listens; "warm" is the best of five after
every experiment was analyzed. Processor time is that of the server while it answers, with what it computes beside.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.request import urlopen

import numpy as np

import kanab as kb
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan

PEOPLE = 600
TICKS = os.sysconf("SC_CLK_TCK")
PATHS = ("/", "/?q=test_04&sort=name", "/?page=4", "/experiments/test_0001", "/privacy", "/v1/experiments")


def make(folder: Path, experiments: int) -> None:
    """Write a release of every experiment; every twentieth is split wrongly."""
    rng = np.random.default_rng(4)
    for number in range(experiments):
        name = f"test_{number:04d}"
        plan = Plan(
            (MetricPlan("bought", binary=True), MetricPlan("spend", (0, 200), 0.01)),
            (ExperimentPlan(name, (("A", 1), ("B", 1)), "A", adjust=("tier",)),),
            (CovariatePlan("tier", (1, 2, 3)),),
        )
        bought = rng.random(PEOPLE) < 0.2
        rows = {
            name: rng.choice(["A", "B"], PEOPLE, p=[0.5, 0.5] if number % 20 else [0.4, 0.6]),
            "tier": rng.choice([1, 2, 3], PEOPLE),
            "bought": bought,
            "spend": np.where(bought, np.round(rng.gamma(2, 20, PEOPLE).clip(0, 200), 2), 0),
        }
        kb.write_release(kb.release(kb.count(rows, plan)), folder / f"{name}.release.json")


class Server:
    """`kanab dashboard` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        command = [str(Path(sys.executable).with_name("kanab")), "dashboard", str(folder), "--port", "0"]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        said = self._process.stderr.readline()
        self.address = re.findall(r"http://\S+", said)[0]
        self._wait_until_it_listens()

    def _wait_until_it_listens(self) -> None:
        port = int(self.address.rpartition(":")[2])
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
            except ConnectionRefusedError:
                time.sleep(0.002)
            else:
                return

    def processor(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def ask(self, path: str) -> tuple[float, float, str, bool]:
        """Return seconds, processor seconds, the body, and whether it says that something is still computed."""
        before, started = self.processor(), time.perf_counter()
        with urlopen(self.address + path) as answer:
            body = answer.read().decode()
            waiting = answer.headers.get("refresh") is not None
        return time.perf_counter() - started, self.processor() - before, body, waiting

    def until_whole(self, path: str) -> float:
        started = time.perf_counter()
        while self.ask(path)[3]:
            time.sleep(0.2)
        return time.perf_counter() - started

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


def cold(folder: Path, path: str, rounds: int) -> None:
    """Print the first request of fresh processes, and how long it takes until the page has everything."""
    first, whole = [], []
    for _ in range(rounds):
        server = Server(folder)
        before = server.processor()
        seconds, used, body, waiting = server.ask(path)
        first.append((seconds, used, len(body), waiting))
        until = server.until_whole(path) + seconds
        whole.append((until, server.processor() - before))
        server.stop()
    seconds, used, size, waiting = min(first)
    said = "some are being read" if waiting else "whole"
    print(f"cold {path:32} {seconds * 1e3:7.0f} ms  processor {used:5.2f} s  {size / 1e3:6.0f} kB  {said}; "
          f"whole after {min(whole)[0]:.1f} s, processor {min(used for _, used in whole):.1f} s")  # fmt: skip


def warm(folder: Path) -> None:
    server = Server(folder)
    for path in ("/", "/privacy"):
        server.until_whole(path)
    for path in PATHS:
        asked = [server.ask(path) for _ in range(6)][1:]
        used = sum(answer[1] for answer in asked) / len(asked)
        best = min(answer[0] for answer in asked)
        print(f"warm {path:32} {best * 1e3:7.0f} ms  processor {used:5.2f} s  {len(asked[0][2]) / 1e3:6.0f} kB")
    server.stop()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--experiments", type=int, default=1000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--folder", type=Path)
    given = options.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as name:
        folder = given.folder or Path(name)
        if not any(folder.glob("*.release.json")):
            folder.mkdir(exist_ok=True)
            make(folder, given.experiments)
        print(f"{len([*folder.glob('*.release.json')]):,} experiments, each in a release file")
        for path in ("/", "/privacy"):
            cold(folder, path, given.rounds)
        warm(folder)


if __name__ == "__main__":
    main()
