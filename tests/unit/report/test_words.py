"""Sentences of a readout: was the comparison fair, which arm and level are at fault, and what to do."""

from collections.abc import Callable
from typing import Any

import pytest

from kanab.analysis.decision import look_sentences
from kanab.analysis.sections import gain_sentences, readout_text, report_html
from kanab.report.noise_words import account, noise_sentences, noise_table, price, promise, widened
from kanab.report.words import balance_alarmed, balance_sentences, faults, summary

Readout = dict[str, Any]
Maker = Callable[..., Readout]


def checked(*rows: dict[str, Any]) -> dict[str, Any]:
    """Return checks of balance; each is fine unless it says otherwise."""
    fine = {
        "about": "covariate", "name": "tier", "chi2": 0.5, "df": 2, "p": 0.6, "p_any_time": None, "p_adjusted": 0.8,
        "alarm": False, "arm": "B", "level": "3", "share": 0.31, "elsewhere": 0.3, "differences": {},
    }  # fmt: skip
    made = [fine | row for row in rows]
    return {"alarm": any(row["alarm"] for row in made), "limit": 0.001, "rows": made}


UNEVEN = {"chi2": 1290.0, "p": 6e-81, "p_adjusted": 1.2e-80, "alarm": True, "share": 0.451, "elsewhere": 0.32}
LOST = {
    "about": "values", "name": "spend", "level": None, "chi2": 780.0, "df": 1, "p": 2e-71, "p_adjusted": 2e-71,
    "alarm": True, "share": 0.712, "elsewhere": 0.889,
}  # fmt: skip


def test_where_all_is_fine_balance_is_a_single_line(small: Maker) -> None:
    values = {"about": "values", "name": "spend", "p_adjusted": 0.4}
    data = small(balance=checked({}, {"name": "device"}, values))
    assert balance_sentences(data) == [
        "Balance: fine. 2 covariates and the missing values of 1 metric are alike across arms "
        "(smallest corrected p = 0.400; alarm below 0.001)."
    ]
    assert not balance_alarmed(data)
    assert "But" not in summary(data)


def test_a_single_check_is_not_called_corrected(small: Maker) -> None:
    sentence = "1 covariate is alike across arms (smallest p = 0.800; alarm below 0.001)."
    assert balance_sentences(small(balance=checked({}))) == [f"Balance: fine. {sentence}"]
    missing = balance_sentences(small(balance=checked({"about": "values"})))[0]
    assert missing.startswith("Balance: fine. The missing values of 1 metric are alike across arms (")


def test_an_uneven_covariate_names_the_level_the_arm_and_what_to_do(small: Maker) -> None:
    data = small(balance=checked({**UNEVEN, "differences": {"B": 0.27}}, {"name": "device"}))
    assert balance_sentences(data) == [
        "Balance: ALARM. tier is spread unevenly over the arms (χ²(2) = 1,290, corrected p = 1.20e-80; alarm below "
        "0.001): 45.1 % of B have tier 3, but 32.0 % of A; its mean in B is 0.27 standard deviations above that in A. "
        "The arms hold different people: find the cause before acting on any number below. Perhaps tier was measured "
        "after the assignment, people of one arm were lost, or arms were assigned by something that people share.",
        "1 other covariate is alike across arms (smallest corrected p = 0.800; alarm below 0.001).",
    ]
    assert summary(data).endswith(" But tier is spread unevenly over the arms.")


def test_all_that_is_unfair_stands_in_one_but(small: Maker) -> None:
    ratio = small()["sample_ratio"] | {"p": 1e-9}
    more = LOST | {"share": 0.95}
    data = small(sample_ratio=ratio, balance=checked(UNEVEN, more))
    assert faults(data) == [
        "people did not arrive as planned",
        "tier is spread unevenly over the arms",
        "people of B have a value of spend more often",
    ]
    assert summary(data).endswith(f" But {', and '.join(faults(data))}.")


def test_of_several_arms_one_is_set_against_the_others(small: Maker) -> None:
    arms = {"A": 300, "B": 300, "C": 400}
    uneven = UNEVEN | {"arm": "A", "differences": {"B": 0.1, "C": -0.2}}
    sentence = balance_sentences(small(arms=arms, balance=checked(uneven)))[0]
    assert (
        "45.1 % of A have tier 3, but 32.0 % of the others; its mean in C is 0.20 standard deviations below" in sentence
    )


def test_arms_that_are_numbers_are_called_arms(small: Maker) -> None:
    uneven = UNEVEN | {"arm": "1", "differences": {"1": 0.27}}
    sentence = balance_sentences(small(arms={"0": 500, "1": 500}, control="0", balance=checked(uneven)))[0]
    assert "45.1 % of arm 1 have tier 3, but 32.0 % of arm 0; its mean in arm 1 is 0.27 standard deviations" in sentence


def test_over_several_looks_the_sentence_says_that_p_holds_for_all(small: Maker) -> None:
    sentence = balance_sentences(small(balance=checked(UNEVEN | {"p_any_time": 1e-60})))[0]
    assert "p = 1.20e-80, however often you look; alarm below 0.001)" in sentence


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


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sample_size_gain": 0.384}, "is worth as much as if 38 % more people had come."),
        ({"sample_size_gain": 1.5}, "is worth as much as if 2.5 times as many people had come."),
        (
            {"sample_size_gain": -0.2, "se_noise": 0.1},
            "costs more in noise than it explains: as if 20 % fewer people had come.",
        ),
        (
            {"sample_size_gain": 0.1, "se_noise": 1, "carries_verdict": False},
            "would add too much noise: the effect without it decides.",
        ),
    ],
)
def test_what_adjusting_gained_or_cost_is_said(small: Maker, effect: Maker, changes: Readout, said: str) -> None:
    assert gain_sentences(small(effect(covariates=["tier"], **changes)), "spend") == [f"Adjusting for tier {said}"]


def test_every_arm_has_its_own_look(small: Maker, effect: Maker) -> None:
    nothing = dict.fromkeys(("look", "looks", "planned", "until")) | {"method": "always-valid"}
    rows = [
        effect(sequential=nothing | {"verdict": "may stop"}),
        effect(sequential=nothing | {"verdict": "keep going"}, arm="C"),
    ]
    assert look_sentences(small(*rows), "spend") == ["At any time: B: you may stop; C: keep going."]


NOISE = {
    "epsilon": 1.0, "delta": 1e-6, "mechanism": "discrete Gaussian", "total": 2.0, "spent": 1.0, "left": 0.6,
    "scales": {"checkout": {"people by checkout": 8.5}},
}  # fmt: skip


def noisy(metric: str, error: float, noise: float, *, carries: bool = True) -> dict[str, Any]:
    return {"metric": metric, "se_population": error, "se_noise": noise, "carries_verdict": carries}


@pytest.mark.parametrize(
    ("epsilon", "factor"), [(0.1, "1.11"), (1.0, "2.7"), (2.0, "7.4"), (5.0, "148"), (10.0, "22,026")]
)
def test_the_promise_is_a_factor_that_people_can_repeat(epsilon: float, factor: str) -> None:
    assert f"by at most a factor of {factor}, but for one chance in 1,000,000." in promise(
        {**NOISE, "epsilon": epsilon}
    )


def test_what_is_spent_and_left_is_said() -> None:
    assert account(NOISE) == "Spent: ε = 1 of 2 in all; left: 0.6, for one more release."
    assert account({**NOISE, "left": 0.0}).endswith("left: nothing.")


def test_the_price_of_noise_is_said_once_for_all_metrics() -> None:
    rows = [
        noisy("spend", 1.25, 0.75),
        noisy("spend", 1.0, 0.1),
        noisy("bought", 1.0, 0.1),
        noisy("beside", 1, 0.9, carries=False),
    ]
    assert widened(rows) == pytest.approx({"spend": 0.25, "bought": 0.00504}, abs=1e-5)
    assert price({"effects": rows}) == (
        "Noise makes intervals 0.5 % to 25 % wider than they would be without (bought least, spend most): "
        "as if up to 36 % fewer people had come."
    )


def test_noise_that_hardly_matters_is_not_made_to_sound_dear() -> None:
    assert price({"effects": [noisy("bought", 1.0, 0.02)]}) == (
        "Noise makes intervals 0.0 % wider than they would be without (bought)."
    )


def test_without_an_error_there_is_no_price_and_every_scale_is_a_row() -> None:
    assert price({"effects": [noisy("spend", 0.5, 0.5)]}) == ""
    data = {"effects": [], "privacy": {"k": 10, "noise": NOISE}}
    assert len(noise_sentences(data)) == 3
    assert noise_table(data).rows == (("checkout", "people by checkout", "8.5"),)
