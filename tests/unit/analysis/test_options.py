from typing import Any

import pytest

from kanab.analysis.options import Looks, ResolvedOptions, named_arm, read_contrast, read_lower, read_margins, read_pool
from kanab.description import Reading
from kanab.errors import AnalysisError, ArgumentError, LevelError
from kanab.stats.margins import Margin
from kanab.tally.factor import Factor

ARMS = Factor("variant", ("A", "B", "C"), "arm")
MAIL = Factor("mail", ("No E-Mail", "E-Mail", "E", "Mail"), "arm")


def test_an_arm_is_found_by_itself_or_by_how_it_is_written() -> None:
    numbers = Factor("variant", (0, 1, 2.5), "arm")
    assert named_arm(numbers, 1) == named_arm(numbers, "1") == named_arm(numbers, 1.0) == 1
    assert named_arm(numbers, "2.5") == 2.5
    assert named_arm(Factor("variant", (False, True), "arm"), "True") is True
    with pytest.raises(LevelError, match="unknown arm of 'variant'"):
        named_arm(numbers, "3")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("B-C", {"B": 1, "C": -1}),
        (" B − C ", {"B": 1, "C": -1}),
        ("B=0.5,C=0.5,A=-1", {"B": 0.5, "C": 0.5, "A": -1}),
        ({"B": 2, "A": -2}, {"B": 2, "A": -2}),
    ],
)
def test_a_contrast_is_two_arms_or_weights(given: Any, found: dict[str, float]) -> None:
    assert read_contrast(ARMS, given) == found


def test_hyphens_in_names_are_no_minus_signs() -> None:
    assert read_contrast(MAIL, "E-Mail-No E-Mail") == {"E-Mail": 1, "No E-Mail": -1}
    assert read_contrast(MAIL, "E - Mail") == {"E": 1, "Mail": -1}


@pytest.mark.parametrize("wrong", ["B", "B-Z", "B-B", "", "B=x", "Z=1,A=-1", "=1"])
def test_a_contrast_that_cannot_be_read_names_the_arms(wrong: str) -> None:
    with pytest.raises(AnalysisError, match=r"a contrast cannot be read\. Write 'B - C', or weights .* Arms: A, B, C"):
        read_contrast(ARMS, wrong)


def test_pools_are_of_arms_each_in_one() -> None:
    assert read_pool(ARMS, {"any": ["B", "C"]}) == {"any": ["B", "C"]}
    assert read_pool(ARMS, {"B": ["B", "C"]}) == {"B": ["B", "C"]}
    assert read_pool(ARMS, None) == {}
    for wrong, said in (
        ({"any": ["B"]}, "at least two arms"),
        ({"any": "BC"}, "at least two arms"),
        ({"any": ["B", "C"], "some": ["A", "B"]}, "an arm is in two pools"),
        ({"A": ["B", "C"]}, "the name of another arm"),
    ):
        with pytest.raises(AnalysisError, match=said):
            read_pool(ARMS, wrong)
    with pytest.raises(LevelError, match="unknown arm"):
        read_pool(ARMS, {"any": ["B", "Z"]})


def test_margins_are_by_metric_and_lie_below_where_less_is_better() -> None:
    one, two = Margin("non-inferiority", 1), Margin("superiority", 2)
    found = read_margins({"spend": one, "errors": [one, two]}, ["spend", "errors"], ["errors"])
    assert found["spend"] == (one,)
    assert [margin.better for margin in found["errors"]] == ["lower", "lower"]
    with pytest.raises(AnalysisError, match=r"a margin names an unknown metric\. Metrics: spend"):
        read_margins({"visits": one}, ["spend"], [])
    for wrong in (0.5, [0.5]):
        with pytest.raises(ArgumentError, match="margins must be a Margin"):
            Reading(margins={"spend": wrong})


def test_less_is_better_where_it_is_said_or_a_margin_says_so() -> None:
    lower = Margin("superiority", 1, "lower")
    assert read_lower(["a"], ["a", "b", "c"], {"b": lower, "c": [Margin("superiority", 1)]}) == {"a", "b"}
    assert read_lower("a", ["a"], None) == {"a"}
    with pytest.raises(AnalysisError, match="lower_is_better names an unknown metric"):
        read_lower(["z"], ["a"], None)


def test_options_that_contradict_each_other_are_refused() -> None:
    claims = {"spend": (Margin("superiority", 1),)}
    with pytest.raises(ArgumentError, match=r"correction must be 'none' or .* or 'dunnett'"):
        Reading(correction="tukey")  # type: ignore[arg-type]
    with pytest.raises(AnalysisError, match="Dunnett's correction is for one look"):
        ResolvedOptions(correction="dunnett", looks=Looks("always-valid"))
    with pytest.raises(AnalysisError, match="margins are tested at one look"):
        ResolvedOptions(margins=claims, looks=Looks("always-valid"))
    with pytest.raises(AnalysisError, match="a claim needs a confidence above"):
        ResolvedOptions(margins=claims, confidence=0.4)
