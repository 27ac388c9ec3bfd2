from kanab import errors
from kanab.errors import KanabError, flag, listed


def children(kind: type[KanabError]) -> set[type[KanabError]]:
    return {one for child in kind.__subclasses__() for one in (child, *children(child))}


def test_every_child_is_defined_beside_its_parent() -> None:
    assert {child.__module__ for child in children(KanabError)} == {errors.__name__}


def test_listed_names_twelve_choices_and_counts_the_rest() -> None:
    assert listed(range(12)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11"
    assert listed(range(13)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, … (13 in all)"
    assert listed([]) == ""


def test_a_flag_is_quoted_where_a_shell_would_take_it_apart() -> None:
    assert (flag("--bin", "age=5"), flag("--bin", "two words=5")) == ("--bin age=5", "--bin 'two words=5'")
