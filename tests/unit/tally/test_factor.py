import datetime
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from kanab.errors import LevelError, TallyError
from kanab.tally import Factor
from kanab.tally.factor import as_level, label, numeric_scores, sorted_levels

TIER = Factor("tier", (1, 2, 3), "covariate", (1.0, 2.0, 3.0))


@pytest.mark.parametrize(
    ("given", "level"),
    [
        ("a", "a"),
        (np.str_("a"), "a"),
        (2, 2),
        (2.0, 2),
        (2.5, 2.5),
        (np.int8(2), 2),
        (np.uint64(2**63), 2**63),
        (np.float32(2.5), 2.5),
        (np.longdouble(2.5), 2.5),
        (True, True),
        (np.bool_(False), False),
        (Fraction(1, 2), 0.5),
        (None, None),
        (math.nan, None),
        (np.float32("nan"), None),
        (-0.0, 0),
        (1e300, int(1e300)),
    ],
)
def test_a_level_has_one_spelling(given: Any, level: Any) -> None:
    found = as_level(given, "tier")
    assert found == level
    assert type(found) is type(level)


@pytest.mark.parametrize(
    "value",
    [
        math.inf,
        -math.inf,
        np.float64("inf"),
        b"918273645",
        datetime.date(2020, 1, 1),
        np.datetime64("2020-01-01", "ns"),
        np.timedelta64(918273645, "ns"),
        1j,
        Decimal("918273645"),
        [918273645],
        {},
        object(),
        np.array([918273645, 918273645]),
        np.clongdouble(1j),
    ],
    ids=lambda one: type(one).__name__,
)
def test_anything_else_is_no_level(value: Any) -> None:
    with pytest.raises(LevelError, match="a level of 'tier' is neither text, a finite number") as caught:
        as_level(value, "tier")
    assert "918273645" not in str(caught.value)


def test_numbers_sort_before_texts_and_the_missing_level_last() -> None:
    assert sorted_levels(["b", None, 10, 9.5, "a", -1]) == (-1, 9.5, 10, "a", "b", None)
    assert sorted_levels([True, False]) == (False, True)
    assert sorted_levels([10**400, 3, 2**53 + 1, 2**53]) == (3, 2**53, 2**53 + 1, 10**400)


def test_the_missing_level_is_called_missing() -> None:
    assert [label(level) for level in (None, 1, "a", True)] == ["missing", "1", "a", "True"]
    assert Factor("tier", (1, None)).labels == ("1", "missing")


def test_a_factor_is_an_experiment_numeric_or_categorical() -> None:
    assert Factor("arm", ("A", "B"), "arm").kind == "arm"
    assert TIER.kind == "numeric"
    assert Factor("tier", ("low", "high")).kind == "categorical"
    assert Factor("tier", (np.int64(1), 2.0, math.nan)).levels == (1, 2, None)
    assert Factor("tier", (1, None), "covariate", (1, None)).scores == (1.0, None)


@pytest.mark.parametrize(
    ("given", "fact"),
    [
        *(((name, ("A",)), "an arm column or covariate needs a name. Give it a non-") for name in ("", " ", None, 3)),
        (("tier", ("A",), "metric"), "unknown role of 'tier'. Use 'arm' or 'covariate'"),
        (("tier", ()), "'tier' has no levels. Count at least one person"),
        *((("tier", levels), "the levels of 'tier' must be a list") for levels in (None, 5)),
        *(
            (("tier", levels), "'tier' has the same level twice. Name every level once")
            for levels in (("a", "a"), (1, 1.0), (1, True), (None, math.nan))
        ),
        (("arm", (0, 1), "arm", (0.0, 1.0)), "Arms have no scores"),
    ],
)
def test_what_is_no_factor_is_refused(given: Any, fact: str) -> None:
    with pytest.raises(TallyError, match=fact):
        Factor(*given)


@pytest.mark.parametrize(
    ("levels", "scores"),
    [
        ((1, 2), (1.0,)),
        ((1, 2), (1.0, 2.0, 3.0)),
        ((1, 2), (1.0, None)),
        ((1, 2), (1.0, math.nan)),
        ((1, 2), (1.0, math.inf)),
        ((1, 2), ()),
        ((1, 2), ("one", "two")),
        ((1, 2), 5),
        ((1, 2), ([], {})),
        ((1, 2), (1, 10**400)),
    ],
    ids=repr,
)
def test_scores_are_one_finite_number_per_level(levels: Any, scores: Any) -> None:
    with pytest.raises(TallyError, match=r"the scores of 'tier' must be one finite number per level. Arms have no sco"):
        Factor("tier", levels, "covariate", scores)


def test_a_level_is_found_in_any_spelling() -> None:
    assert [TIER.index(level) for level in (1, 2.0, np.int32(3))] == [0, 1, 2]
    assert Factor("tier", (1, None)).index(math.nan) == 1


def test_an_unknown_level_is_answered_with_the_known_ones() -> None:
    with pytest.raises(LevelError, match=r"unknown level of 'tier'. It has: 1, 2, 3.") as caught:
        TIER.index(918273645)
    assert "918273645" not in str(caught.value)
    with pytest.raises(LevelError, match=r"unknown arm of 'variant'. It has: A, B."):
        Factor("variant", ("A", "B"), "arm").index("C")


def test_true_is_not_1() -> None:
    with pytest.raises(LevelError, match="unknown level"):
        TIER.index(True)
    with pytest.raises(LevelError, match="unknown level"):
        Factor("flag", (False, True)).index(1)


@pytest.mark.parametrize(
    ("arms", "control"),
    [
        (("B", "A"), "A"),
        (("new", "Control"), "Control"),
        (("on", "off"), "off"),
        ((1, 0), 0),
        ((True, False), False),
        (("x", "y"), "x"),
        (("a", "control"), "control"),
        (("exposed", "Hold-Out"), "Hold-Out"),
        (("Mens E-Mail", "No E-Mail"), "No E-Mail"),
        (("b", "group A"), "group A"),
        (("newPage", "oldPage"), "oldPage"),
        (("variante", "Contrôle"), "Contrôle"),
        (("新", "对照组"), "对照组"),
        (("v1.9", "v2.0"), "v1.9"),
        (("old red", "old blue"), "old red"),
    ],
)
def test_the_control_is_recognised_by_its_name(arms: tuple[Any, ...], control: Any) -> None:
    assert Factor("arm", arms, "arm").control == control


def test_equal_factors_join_as_they_are() -> None:
    unsorted = Factor("arm", ("B", "A"), "arm")
    assert unsorted.join(Factor("arm", ("B", "A"), "arm")) is unsorted


def test_different_factors_join_in_sorted_order_with_their_scores() -> None:
    one = Factor("tier", (3, 1), "covariate", (30.0, 10.0))
    two = Factor("tier", (2, None, 1), "covariate", (20.0, None, 10.0))
    joined = one.join(two)
    assert (joined.levels, joined.scores) == ((1, 2, 3, None), (10.0, 20.0, 30.0, None))
    assert joined == two.join(one)
    assert Factor("tier", ("b",)).join(Factor("tier", ("a",))).levels == ("a", "b")


@pytest.mark.parametrize(
    ("first", "second", "fact"),
    [
        (TIER, Factor("plan", (1, 2, 3)), "tallies of 'tier' and 'plan' cannot be added"),
        (TIER, Factor("tier", (1, 2, 3), "arm"), "tallies of 'tier' and 'tier' cannot be added"),
        (TIER, Factor("tier", (1, 2, 3)), "'tier' is numeric in one tally and categorical in the other"),
        (
            Factor("on", (False, True)),
            Factor("on", (0, 1)),
            "'on' has numbers in one tally and true/false",
        ),
        (TIER, Factor("tier", (3, 4), "covariate", (3.5, 4.0)), "a level of 'tier' has different scores in the"),
    ],
)
def test_factors_that_differ_in_more_than_levels_do_not_join(first: Factor, second: Factor, fact: str) -> None:
    with pytest.raises(TallyError, match=fact):
        first.join(second)


def test_equal_factors_have_equal_hashes_and_true_is_not_one() -> None:
    assert hash(Factor("on", (0, 1), "arm")) == hash(Factor("on", (0, 1), "arm"))
    assert len({Factor("on", (0, 1), "arm"), Factor("on", (False, True), "arm")}) == 2


def test_levels_that_nobody_knows_fit_to_any_kind() -> None:
    unknown, some = Factor("tier", (None,)), Factor("tier", ("high", "low", None))
    assert unknown.join(some) == some.join(unknown) == some
    assert unknown.join(Factor("tier", ("high", "low"))) == some


@pytest.mark.parametrize("levels", [("a", "b"), (1, "a"), (True, False), (None,), ()])
def test_numbers_are_their_own_scores_and_texts_and_truths_have_none(levels: Any) -> None:
    assert numeric_scores((1, 2.5, None)) == (1.0, 2.5, None)
    assert numeric_scores(levels) is None


def test_positions_are_those_of_index_and_true_is_not_1() -> None:
    factor = Factor("x", (True, "a", None))
    assert (
        factor.positions([None, "a", True]) == [factor.index(None), factor.index("a"), factor.index(True)] == [2, 1, 0]
    )
    with pytest.raises(KeyError):
        factor.positions([1])
