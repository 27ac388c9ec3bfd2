"""Sentences of a readout: was the comparison fair, which arm and level are at fault, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kanab.report.words import balance_alarmed, balance_sentences, faults, summary

Maker = Callable[..., dict[str, Any]]


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
