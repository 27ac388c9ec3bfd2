"""What looks allow, in words: to stop, to go on, whether that can change anything, and what they ended with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kanab.analysis.decision import look_sentences
from kanab.analysis.sections import readout_text, report_html

Readout = dict[str, Any]
Maker = Callable[..., Readout]


@pytest.mark.parametrize(
    ("look", "said"),
    [
        ({"look": 2, "looks": 4, "verdict": "may stop"}, "Look 2 of 4: you may stop."),
        ({"look": 2, "looks": 4, "verdict": "keep going"}, "Look 2 of 4: keep going until look 3."),
        (
            {"look": 4, "looks": 4, "verdict": "ended"},
            "Look 4 of 4: ended at 1,000 people without a finding; effects beyond +0.30 … +0.70 are ruled out.",
        ),
        (
            {"look": 2, "planned": 9_000, "verdict": "keep going"},
            "Look 2: keep going until the planned 9,000 people, or an earlier look.",
        ),
        ({"method": "always-valid", "verdict": "keep going"}, "At any time: keep going."),
        (
            {"method": "always-valid", "verdict": "keep going", "until": 80_000},
            "At any time: keep going, about 80,000 people if the effect stays as it is.",
        ),
    ],
)
def test_a_look_says_whether_one_may_stop(small: Maker, effect: Maker, look: Readout, said: str) -> None:
    nothing = dict.fromkeys(("look", "looks", "planned", "until"))
    row = effect(sequential=nothing | {"method": "spending"} | look)
    assert look_sentences(small(row), "spend") == [said]
    assert said in readout_text(small(row))
    assert said in report_html(small(row))


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        ([-0.21, 0.17], "effects beyond −0.21 … +0.17 are ruled out"),
        ([-0.21, None], "effects below −0.21 are ruled out"),
        ([None, 0.17], "effects above +0.17 are ruled out"),
    ],
)
def test_what_has_ended_says_what_is_ruled_out(
    small: Maker, effect: Maker, interval: list[float | None], said: str
) -> None:
    look = {"method": "always-valid", "looks": None, "verdict": "ended"}
    row = effect(sequential=look, estimate=-0.02, interval_adjusted=interval, verdict="unclear")
    assert look_sentences(small(row), "spend") == [f"At any time: ended at 1,000 people without a finding; {said}."]


def test_that_the_rest_can_hardly_change_the_answer_is_said_below_5_percent(small: Maker, effect: Maker) -> None:
    look = {"method": "always-valid", "looks": None, "planned": 9_000, "verdict": "keep going"}
    going = "At any time: keep going until the planned 9,000 people, or an earlier look."
    said = (
        "The rest of the plan can hardly change the answer: the chance of a finding for B on spend is {}. Stopping now "
        "costs little."
    )
    for chance, words in ((0.034, "3 %"), (0.002, "below 1 %")):
        row = effect(sequential=look | {"chance": chance}, verdict="unclear")
        assert look_sentences(small(row), "spend") == [going, said.format(words)]
        assert said.format(words) in report_html(small(row)).replace("\N{NO-BREAK SPACE}", " ")
        assert look_sentences(small(row | {"role": "guardrail"}), "spend") == [going]
    row = effect(sequential=look | {"chance": 0.05}, verdict="unclear")
    assert look_sentences(small(row), "spend") == [going]


def test_what_is_worth_having_is_named_as_it_was_declared(small: Maker, effect: Maker) -> None:
    look = {"method": "always-valid", "looks": None, "planned": 9_000, "verdict": "keep going", "chance": 0.03}
    for worth, words in (("2%", "2 %"), (0.25, "0.25")):
        data = small(effect(sequential=look, verdict="unclear", role="primary"), rule={"worth": worth})
        said = f"even if B changed spend by {words}, the chance of a finding is 3 %."
        assert said in look_sentences(data, "spend")[1]


def test_every_arm_has_its_own_look(small: Maker, effect: Maker) -> None:
    nothing = dict.fromkeys(("look", "looks", "planned", "until")) | {"method": "always-valid"}
    rows = [
        effect(sequential=nothing | {"verdict": "may stop"}),
        effect(sequential=nothing | {"verdict": "keep going"}, arm="C"),
    ]
    assert look_sentences(small(*rows), "spend") == ["At any time: B: you may stop; C: keep going."]
