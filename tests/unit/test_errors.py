from __future__ import annotations

import re

from kanab import errors
from kanab.errors import KanabError, MissingExtraError, SourceError, listed


def children(kind: type[KanabError]) -> set[type[KanabError]]:
    return {one for child in kind.__subclasses__() for one in (child, *children(child))}


def test_an_error_reads_fact_place_remedy() -> None:
    problem = KanabError("squares are missing", "Count again.", at="$.squares")
    assert str(problem) == "squares are missing - at $.squares. Count again."
    assert (problem.fact, problem.remedy, problem.at) == ("squares are missing", "Count again.", "$.squares")


def test_an_error_without_a_place_or_a_remedy_is_still_a_sentence() -> None:
    assert str(KanabError("squares are missing")) == "squares are missing."
    assert str(KanabError("squares are missing", at="line 3")) == "squares are missing - at line 3."
    assert str(KanabError("squares are missing", "Count again.")) == "squares are missing. Count again."


def test_the_tree_in_the_docstring_draws_every_child_and_no_other() -> None:
    drawn = re.findall(r"── (\w+) ", errors.__doc__ or "")
    assert sorted(drawn) == sorted(child.__name__ for child in children(KanabError))


def test_every_child_is_defined_beside_its_parent() -> None:
    assert {child.__module__ for child in children(KanabError)} == {errors.__name__}


def test_a_missing_extra_names_the_line_that_installs_it() -> None:
    problem = MissingExtraError("reading from Spark", "spark")
    assert str(problem) == "reading from Spark needs an extra. Run: pip install 'kanab[spark]'"
    assert isinstance(problem, SourceError)


def test_listed_names_twelve_choices_and_counts_the_rest() -> None:
    assert listed(range(12)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11"
    assert listed(range(13)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, … (13 in all)"
    assert listed([]) == ""
