"""The same examples in every run, a quick run, which tests share a worker, and which must not be skipped."""

import gc
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Workers use the cores. Threads of their own for small matrices only wait for each other, and take half of the time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Half of a store's test is waiting for a disk. Workers get the folder from the first process, which takes it away at
# its end; set TMPDIR to keep what a failed test has written.
MEMORY = Path("/dev/shm")
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4e9:
    FILES = tempfile.TemporaryDirectory(prefix="kanab-", dir=MEMORY, ignore_cleanup_errors=True)
    os.environ["TMPDIR"] = tempfile.tempdir = FILES.name
    Path(FILES.name).chmod(0o1777)  # as /tmp: servers of tests run as other users

gc.set_threshold(100_000, 50, 100)  # ten thousand tests are many objects to look through, and none of them goes

settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

STATE = tempfile.TemporaryDirectory(prefix="kanab-state-")  # for witnesses of ledgers with ε
os.environ["XDG_STATE_HOME"] = STATE.name

TESTS = Path(__file__).parent
NOT_QUICK = tuple(
    TESTS / folder for folder in ("browser", "collector", "deploy", "golden", "package", "property", "sources")
)
LONGEST_FIRST = ("sources", "browser", "collector", "docs", "property")  # so that the workers end together
SLOW = 0.5  # seconds
SPARK = "spark"
MUST_RUN = bool(os.environ.get("TESTS_MUST_RUN"))
MAY_SKIP = (  # what no package of Debian or of Python brings
    "the real experiments are not here",
    "mounting a small disk needs rights",
    "MySQL stores no infinite numbers",
    "there is no mysqld of MySQL here",  # Debian has MariaDB alone
    "there is no emulator of BigQuery here",
    "only root can become somebody else",
    "this build of SciPy comes without",
    "this machine has no IPv6",
    "this systemd-analyze does not judge files",
)
_seconds: Counter[str] = Counter()


@pytest.fixture
def gated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are read through the gate, as where people may ask but not see them."""
    monkeypatch.setenv("KANAB_OWN_ROWS", "gated")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only fast tests, and none of whole folders that are slow")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("quick") and collection_path in NOT_QUICK else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("quick"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("slow")])
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
    items.sort(key=_place)


def _place(item: pytest.Item) -> tuple[bool, int]:
    folder = item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else ""
    place = LONGEST_FIRST.index(folder) if folder in LONGEST_FIRST else len(LONGEST_FIRST)
    return _group(item.nodeid) != SPARK, place


def _group(test: str) -> str:
    """The tests that share a worker: those of a file, and all that count with Spark, which is slow to start."""
    _, sources, name = test.partition("tests/sources/")
    return SPARK if sources and "spark" in name else test.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep a file's tests, and all tests with Spark, in one worker, and take them in the order given."""
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 - only where tests run in parallel

    class FilesAndSpark(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

    config.option.loadscopereorder = False
    return FilesAndSpark(config, log) if config.option.dist == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    return _must_run((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    return _must_run((yield))


def _must_run(report: Any) -> Any:
    """Let what is skipped fail, where everything that can be installed has to be here."""
    if MUST_RUN and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if not reason.startswith(MAY_SKIP):
            report.outcome, report.longrepr = "failed", f"skipped, and TESTS_MUST_RUN is set: {reason}"
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    slow = [(seconds, test) for test, seconds in _seconds.items() if seconds > SLOW]
    if config.getoption("quick") and slow:
        terminalreporter.section(f"above {SLOW} s and not marked slow: mark them, if this machine was idle")
        for seconds, test in sorted(slow, reverse=True):
            terminalreporter.write_line(f"{seconds:5.1f} s  {test}")
