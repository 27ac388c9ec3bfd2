"""Print for every engine that runs here how many shapes of plan agree with DuckDB digit for digit.

python -m tests.sources.engines [ENGINE …]
"""

import io
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

TEST = f"{Path(__file__).parent / 'test_shapes.py'}::test_a_shape_of_plan_has_the_digits_that_duckdb_counts"


class Agreement:
    """What became of every shape in every engine: agreed (an empty text), or why not."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.problems: dict[str, dict[str, str]] = {}
        self.missing: dict[str, str] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Function]) -> None:
        items[:] = [item for item in items if item.callspec.params["name"] in self.names or not self.names]

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Function, call: pytest.CallInfo[None]):
        report = (yield).get_result()
        name, shape = (item.callspec.params[word] for word in ("name", "shape"))
        if report.skipped:
            self.missing[name] = call.excinfo.value.msg
        elif report.when == "call" or report.failed:
            problem = "" if call.excinfo is None else str(call.excinfo.value).partition("\n")[0]
            self.problems.setdefault(name, {})[shape] = problem or ("" if report.passed else call.excinfo.typename)


def main(names: list[str]) -> int:
    agreement = Agreement(names)
    with redirect_stdout(io.StringIO()):
        failures = pytest.main([TEST, "-n", "0", "-p", "no:cacheprovider"], plugins=[agreement])
    for name, problems in sorted(agreement.problems.items()):
        print(f"{name:<12} {sum(not problem for problem in problems.values())} of {len(problems)} agree")
        for problem in dict.fromkeys(filter(None, problems.values())):
            print(f"{'':<12} {', '.join(shape for shape in problems if problems[shape] == problem)}: {problem}")
    for name, reason in sorted(agreement.missing.items()):
        print(f"{name:<12} not run: {reason}")
    return failures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
