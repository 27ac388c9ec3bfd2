"""Spark as a cluster: a master and two workers on loopback, each a process of its own."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kanab as kb
from kanab.counting.in_memory import count_rows
from kanab.plan.model import make_plan
from kanab.scan.count.pair_counting import count_pairs

from .conftest import find_java

pyspark = pytest.importorskip("pyspark")

PEOPLE, PARTS = 120_000, 4
MOST_COLLECTED = "256k"
"""The driver of Spark takes no more than this: the people's ids alone, which are random, have 960 kB."""

# Runs in a process of its own: one Python process holds one Spark session, and the tests have theirs.
COUNT = f"""
import sys
import kanab as kb
from pyspark import SparkContext
from kanab.plan.model import make_plan
from kanab.counting.connect import open_table
from kanab.counting.engine.sql import count_table
from kanab.scan.count.pair_counting import count_pairs

master, folder = sys.argv[1:]
options = "&".join([
    "spark.ui.enabled=false", "spark.sql.shuffle.partitions=2", "spark.driver.host=127.0.0.1",
    "spark.executor.memory=512m", "spark.sql.codegen.wholeStage=false", "spark.driver.maxResultSize={MOST_COLLECTED}",
])
people = open_table(f"{{master}}?{{options}}", sql=f"SELECT * FROM parquet.`{{folder}}`")
session = people.get_backend()._session
counted = count_table(people, make_plan("variant", ["spend"], adjust=["tier"], segments=["device"]))
print("workers", session.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1)
print("release", sorted(kb.release(counted).tables))
for tally in counted.tallies.values():
    print("tally", tally.to_dict())
pairs = count_pairs(people, "test_*", ["spend"])
print("pairs", pairs.people.tolist(), pairs.moments[0].sums.tolist(), pairs.moments[0].squares.tolist())
try:
    session.sql(f"SELECT * FROM parquet.`{{folder}}`").collect()
except Exception as problem:
    print("rows", "maxResultSize" in str(problem))
session.stop()
again = kb.count(
    f"{{master}}?{{options}}", make_plan("variant", ["spend"]), rows=kb.Rows(sql=f"SELECT * FROM parquet.`{{folder}}`")
)
print("closed", again.tallies["variant"].total, SparkContext._active_spark_context)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    (tmp_path / "people").mkdir()
    for part in range(PARTS):
        rows = PEOPLE // PARTS
        columns = {
            "who": rng.integers(-(2**62), 2**62, rows),
            "variant": rng.choice(["A", "B"], rows),
            "tier": rng.integers(1, 4, rows),
            "device": rng.choice(["phone", "desktop"], rows),
            "spend": np.round(rng.gamma(1, 20, rows), 2),
            **{f"test_{place}": rng.integers(0, 2, rows) for place in range(4)},
        }
        pq.write_table(pa.table(columns), tmp_path / "people" / f"part{part}.parquet")
    return tmp_path / "people"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def service(name: str, *arguments: str, log: Path) -> Iterator[Path]:
    """One of Spark's own services, until the end of the block."""
    environment = os.environ | {"SPARK_DAEMON_MEMORY": "256m"}
    command = [Path(pyspark.__file__).parent / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments]
    with log.open("w") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, env=environment)
        try:
            yield log
        finally:
            process.terminate()
            process.wait(timeout=30)


def wait_for(log: Path, pattern: str, seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not re.search(pattern, log.read_text()):
        assert time.monotonic() < end, log.read_text()[-2000:]
        time.sleep(0.2)


@pytest.mark.cluster
def test_a_cluster_counts_scans_and_checks_without_collecting_rows(folder: Path, tmp_path: Path) -> None:
    find_java()
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    one = ("--cores", "1", "--memory", "600m", "--host", "127.0.0.1", "--webui-port", "0", "--work-dir", str(tmp_path))
    listen = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
    with (
        service("master.Master", *listen, log=tmp_path / "master.log") as log,
        service("worker.Worker", *one, master, log=tmp_path / "worker1.log") as first,
        service("worker.Worker", *one, master, log=tmp_path / "worker2.log") as second,
    ):
        wait_for(log, r"I have been elected leader")
        wait_for(first, r"Successfully registered with master")
        wait_for(second, r"Successfully registered with master")
        done = subprocess.run(
            [sys.executable, "-c", COUNT, master, str(folder)],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        )
    assert done.returncode == 0, done.stderr[-3000:]
    said = ("workers", "release", "tally", "pairs", "rows", "closed")
    lines = [line for line in done.stdout.splitlines() if line.startswith(said)]
    plan = make_plan("variant", ["spend"], adjust=["tier"], segments=["device"])
    table = pq.read_table(folder)
    expected = count_rows(table, plan)
    pairs = count_pairs(table, "test_*", ["spend"])
    sums, squares = pairs.moments[0].sums.tolist(), pairs.moments[0].squares.tolist()
    assert lines == [
        "workers 2",
        f"release {sorted(kb.release(expected).tables)}",
        *(f"tally {tally.to_dict()}" for tally in expected.tallies.values()),
        f"pairs {pairs.people.tolist()} {sums} {squares}",
        "rows True",
        f"closed {PEOPLE} None",
    ]
