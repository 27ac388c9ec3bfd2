"""The same examples in every run, a quick run, and which tests share a worker."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

TESTS = Path(__file__).parent
NOT_QUICK = tuple(TESTS / folder for folder in ("browser", "collector", "golden", "property", "sources"))
LONGEST_FIRST = ("sources", "browser", "collector", "docs", "property")  # so that both workers end together
SLOW = 0.5  # seconds
_seconds: Counter[str] = Counter()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only fast tests, and none of whole folders that are slow")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("quick") and collection_path in NOT_QUICK else None


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("quick"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("slow")])
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
    for item in items:
        if _needs_spark(item):
            item.add_marker(pytest.mark.xdist_group("spark"))  # starting a session costs more than most tests
    items.sort(key=_place)


def _needs_spark(item: pytest.Item) -> bool:
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return "spark_session" in getattr(item, "fixturenames", ()) or "spark" in map(str, parameters)


def _place(item: pytest.Item) -> tuple[bool, int]:
    folder = item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else ""
    place = LONGEST_FIRST.index(folder) if folder in LONGEST_FIRST else len(LONGEST_FIRST)
    return not item.get_closest_marker("xdist_group"), place


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep a file's tests, and all tests of one group, in one worker, and take them in the order given."""
    from xdist.scheduler import LoadGroupScheduling  # noqa: PLC0415 - only where tests run in parallel

    class FilesAndGroups(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return str(super()._split_scope(nodeid)).split("::", 1)[0]

    config.option.loadscopereorder = False
    return FilesAndGroups(config, log) if config.option.dist == "loadgroup" else None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    slow = [(seconds, test) for test, seconds in _seconds.items() if seconds > SLOW]
    if config.getoption("quick") and slow:
        terminalreporter.section(f"above {SLOW} s and not marked slow: mark them, if this machine was idle")
        for seconds, test in sorted(slow, reverse=True):
            terminalreporter.write_line(f"{seconds:5.1f} s  {test}")
