"""Freeze what kanab answers today, so that any later commit can be asked the same.

    python -m tests.oracle.freeze          everything; it runs tests, from which it takes readouts and plans
    python -m tests.oracle.freeze words    only the words of the frozen cases, after they were changed on purpose

The first is for the commit that is to be the measure, and gives the same bytes whenever it runs there. The second is
for every later one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from . import adapter
from .frozen import KINDS, Data, read_lines, write_lines


def main(arguments: list[str]) -> None:
    """Freeze everything, or the words alone."""
    if arguments != ["words"]:
        from .questions import columns, questions  # noqa: PLC0415 - later commits may not have its names

        write_lines("columns", columns())
        for kind, cases in questions():
            write_lines(kind, [{**case, "answer": _answer(case).data} for case in _numbered(cases)])
    for kind in KINDS:
        write_lines(f"{kind}-words", [{"id": case["id"], "words": _answer(case).words()} for case in read_lines(kind)])


def _answer(case: Data) -> adapter.Answer:
    return adapter.run(case["call"], case["given"])


def _numbered(cases: Iterable[Data]) -> Iterator[Data]:
    """Number the cases whose ids are alike."""
    times: dict[str, int] = {}
    for case in cases:
        name = case["id"]
        times[name] = times.get(name, 0) + 1
        yield case if times[name] == 1 else {**case, "id": f"{name} ({times[name]})"}


if __name__ == "__main__":
    main(sys.argv[1:])
