"""`kanab scan` over many experiments, as somebody would run it: processor time, peak memory, and what it writes.

    python benchmarks/bench_scan_size.py [--experiments 1000] [--people 1_000_000] [--keep FILE]

Everybody is in all experiments of two arms, and two of them interfere. The people are written to a Parquet file
first (about 370 MB by default), in a temporary folder unless ``--keep`` names a file, which is used again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

AT_ONCE = 1 << 16
RUN = "import sys; from kanab.cli.main import main; sys.exit(main())"


def generate(file: Path, people: int, experiments: int) -> None:
    """Write arms of coins, an amount with cents that most people do not spend, and whether they do."""
    rng = np.random.default_rng(1)
    writer: pq.ParquetWriter | None = None
    for start in range(0, people, AT_ONCE):
        rows = min(AT_ONCE, people - start)
        coins = np.unpackbits(rng.integers(0, 256, (experiments, -(-rows // 8)), dtype=np.uint8), axis=1)[:, :rows]
        spend = np.round(rng.gamma(1, 20, rows) * (rng.random(rows) < 0.4) + 6.0 * (coins[3] & coins[7]), 2)
        columns = {f"test_{place:04d}": pa.array(coins[place].view(np.int8)) for place in range(experiments)}
        table = pa.table(columns | {"spend": spend, "bought": (spend > 0).astype(np.int8)})
        writer = writer or pq.ParquetWriter(file, table.schema, compression="zstd", use_dictionary=False)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def run(file: Path, folder: Path, *flags: str) -> None:
    """Run the command once, and print what it took."""
    command = ["scan", str(file), "--experiments", "test_*", "--metric", "spend,bought", *flags]
    with (folder / "out").open("w") as stream:
        process = subprocess.Popen([sys.executable, "-c", RUN, *command], stdout=stream)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(process.returncode)
    sizes = {name: (folder / name).stat().st_size for name in ("out", "page.html") if (folder / name).exists()}
    seconds = usage.ru_utime + usage.ru_stime
    written = ", ".join(f"{'page' if name == 'page.html' else 'output'} {size:,} bytes" for name, size in sizes.items())
    print(f"{' '.join(flags[:1]) or 'text'}: {seconds:.1f} s, {usage.ru_maxrss / 1024:,.0f} MB, {written}")
    if "--json" in flags:
        data = json.loads((folder / "out").read_text())
        unlisted = data["unlisted"]["tests"] if data["unlisted"] else 0
        print(f"listed {len(data['pairs']):,}, counted {unlisted:,}, verdicts {data['verdicts']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=1_000)
    parser.add_argument("--people", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kanab-scan-") as name:
        folder = Path(name)
        file = arguments.keep or folder / "people.parquet"
        if not file.exists():
            generate(file, arguments.people, arguments.experiments)
        print(f"{arguments.experiments:,} experiments, {arguments.people:,} people: {file.stat().st_size:,} bytes")
        run(file, folder)
        run(file, folder, "--json", "--html", str(folder / "page.html"))


if __name__ == "__main__":
    main()
