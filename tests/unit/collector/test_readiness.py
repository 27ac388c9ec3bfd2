"""What is wrong with a collector now, as one line for each state."""

from __future__ import annotations

import re

import pytest

from kanab.collector.readiness import Problem, Readiness, ready_answer


def test_every_state_says_what_is_wrong_and_what_to_do_and_has_no_number() -> None:
    for problem in Problem:
        assert re.fullmatch(rf"{problem.value}: [^\d]+\. [A-Z;,\w ]+\.", problem.line), problem.line


def test_a_guard_notes_what_fails_and_what_works_again() -> None:
    readiness = Readiness()
    with pytest.raises(ZeroDivisionError), readiness.guard(Problem.SEAL):
        _ = 1 / 0
    assert readiness.problems() == [Problem.SEAL]
    with readiness.guard(Problem.STORE):
        pass
    assert ready_answer(readiness) == (503, f"{Problem.SEAL.line}\n")
    with readiness.guard(Problem.SEAL):
        pass
    assert ready_answer(readiness) == (200, "ok\n")
