"""Cautions: when they are raised, and that they hold no count."""

import re

import numpy as np
import pytest
from scipy import stats
from tests.unit.stats.noisy_tables import shop, stated_noise, with_noise
from tests.unit.stats.shaped_means import arms_of, values_of

from kanab import Metric, count_columns
from kanab.errors import AnalysisError
from kanab.stats.cautions import (
    assigned_jointly,
    changed_shares,
    clamped_values,
    count_nonmodal,
    design_ended,
    forged_messages,
    looked_early,
    metric_cautions,
    rows_not_people,
    small_arms,
)
from kanab.tally.factor import Factor
from kanab.tally.noise import AddedNoise
from kanab.tally.tally import Tally

AMOUNT = Metric("y", 1, (0, 500))


def codes(cautions):
    return [caution.code for caution in cautions]


def test_changed_shares_are_found_by_a_chi_square_test():
    batches = [arms_of(A=500, B=500), arms_of(A=560, B=440)]
    p = stats.chi2_contingency([[500, 500], [560, 440]], correction=False).pvalue
    assert p > 0.001
    assert changed_shares(batches) == []
    far = changed_shares([*batches, arms_of(A=900, B=100)])
    assert codes(far) == ["shares-changed"]
    assert "equal shares" in str(far[0])


def test_one_batch_or_empty_ones_change_nothing():
    assert changed_shares([arms_of(A=5, B=500)]) == []
    empty = arms_of(A=1, B=1).empty()
    assert changed_shares([arms_of(A=5, B=500), empty]) == []


def test_batches_of_other_arms_are_refused():
    with pytest.raises(AnalysisError, match="different arms"):
        changed_shares([arms_of(A=5, B=5), arms_of(A=5, C=5)])


@pytest.mark.parametrize(("events", "raised"), [(14, True), (15, False)])
def test_a_rate_is_cautioned_about_where_few_events_are_expected_in_an_arm(events, raised):
    binary = Metric("y", 1, (0, 1))
    table = values_of(binary, A=[1] * 15 + [0] * 85, B=[1] * events + [0] * (100 - events))
    assert (codes(metric_cautions(table)) == ["few-events"]) == raised
    mirrored = values_of(binary, A=[1] * 85 + [0] * 15, B=[0] * events + [1] * (100 - events))
    assert (codes(metric_cautions(mirrored)) == ["few-events"]) == raised


def test_an_arm_without_events_is_few_events_and_only_nobody_at_all_is_nothing_to_compare():
    binary = Metric("y", 1, (0, 1))
    (few,) = metric_cautions(values_of(binary, A=[1] * 18 + [0] * 1782, B=[0] * 200))
    assert few.sentence.startswith("So few people have y that fewer than 15 are expected in arm B if arms are alike")
    (nobody,) = metric_cautions(values_of(binary, A=[0] * 30, B=[0] * 20))
    assert (nobody.code, nobody.sentence.startswith("Nobody has y yet, in any arm: ")) == ("nothing-varies", True)
    (everybody,) = metric_cautions(values_of(binary, A=[1] * 30, B=[1] * 20))
    assert everybody.sentence.startswith("Everybody has y, in every arm: there is nothing to compare.")
    (common,) = metric_cautions(values_of(binary, A=[1] * 99 + [0], B=[1] * 100))
    assert "So few people do not have y" in common.sentence


def test_one_heavy_spender_carries_the_mean():
    light = [1.0, 2.0] * 40
    assert metric_cautions(values_of(AMOUNT, A=light, B=[*light[1:], 2.0])) == []
    cautions = metric_cautions(values_of(AMOUNT, A=light, B=[*light[1:], 500.0]))
    assert codes(cautions) == ["few-carry-the-mean"]
    assert "arm B" in str(cautions[0])


def test_without_bounds_nobody_is_known_to_carry_a_mean_unless_the_ends_of_the_data_are():
    spenders = values_of(Metric("y"), A=[1, 2] * 20, B=[1] * 5 + [1000])
    assert metric_cautions(spenders) == []
    assert codes(metric_cautions(spenders, "y", (0, 1000))) == ["few-carry-the-mean"]


def test_declared_bounds_decide_whatever_the_ends_of_the_data_are():
    nearly_alike = {"A": [2] * 40 + [1], "B": [2] * 40 + [1]}
    assert codes(metric_cautions(values_of(Metric("y"), **nearly_alike), "y", (0, 2))) == ["few-carry-the-mean"]
    assert metric_cautions(values_of(Metric("y", 1, (0, 30)), **nearly_alike), "y", (0, 2)) == []


@pytest.mark.parametrize(
    ("caution", "code", "sentence"),
    [
        (looked_early(3, sequential=False), "looked-early", "Results were looked at more than once"),
        (clamped_values({"spend": 120, "bought": 0}, 4_000), "clamped", "At least 3 % of people had values of spend"),
        ([design_ended(5, "2026-W46")], "design-ended", "The design ended with look 5 (2026-W46)"),
        ([forged_messages("spend")], "forged-messages", "Some messages about spend were forged or lost"),
        ([rows_not_people("user_id")], "rows-not-people", "Rows are not people: user_id looks like"),
        ([assigned_jointly("a", ["b", "c"])], "assigned-jointly", "a was assigned together with b, c, in joint"),
        (small_arms({"A": 90, "B": 91, "C": 4}, 10), "small-arm", "Fewer than k = 10 people are in arm C"),
    ],
)
def test_a_caution_has_a_code_and_begins_with_what_is_wrong(caution, code, sentence):
    (found,) = caution
    assert found.code == code
    assert found.sentence.startswith(sentence)
    assert looked_early(3, sequential=True) == small_arms({"A": 90, "B": 10}, 10) == []


def test_empty_arms_are_left_to_others():
    table = values_of(AMOUNT, A=[1, 2] * 60, B=[1] * 3)
    assert metric_cautions(table - table.select_arms(["B"])) == []


def test_no_sentence_holds_a_count_of_people():
    cautions = [
        *changed_shares([arms_of(A=731, B=269), arms_of(A=271, B=729)]),
        *metric_cautions(values_of(AMOUNT, A=[1.0, 2.0] * 40, B=[1.0] * 79 + [487.0])),
        *looked_early(7, sequential=False),
    ]
    assert len(cautions) == 3
    for caution in cautions:
        assert not re.search(r"731|269|271|729|\b80\b|\b79\b|487|\b7\b", caution.sentence)


def test_people_off_the_commonest_value_are_never_overstated():
    rng = np.random.default_rng(4)
    spend = np.where(rng.random(400) < 0.1, rng.gamma(2, 30, 400).round(), 0)
    few, some = ([float(value) for value in part] for part in (spend[:200], spend[200:]))
    assert {
        arm: 0 < least <= np.count_nonzero(y)
        for (arm, least), y in zip(count_nonmodal(values_of(AMOUNT, A=few, B=some)).items(), (few, some), strict=True)
    } == {"A": True, "B": True}
    bought = values_of(Metric("y", 1, (0, 1)), A=[1] * 7 + [0] * 93, B=[1] * 95 + [0] * 5)
    assert count_nonmodal(bought) == {"A": 7.0, "B": 5.0}
    unbounded = values_of(Metric("y"), A=[0, 0, 2], B=[2, 3])
    assert count_nonmodal(unbounded) == {"A": np.inf, "B": np.inf}
    assert count_nonmodal(unbounded, ends=(0.0, 5.0)) == {"A": 1.0, "B": pytest.approx(25 / 13)}


def noisy_batch(people, variance):
    arms, noise = Factor("arm", ("A", "B"), "arm"), np.full(2, variance, dtype=object)
    return Tally((arms,), np.array(people, dtype=object), noise=AddedNoise(noise))


def test_changed_shares_of_noisy_batches_are_judged_by_chance_and_noise():
    people = [[520, 480], [430, 570]]
    assert codes(changed_shares([noisy_batch(each, 1e-9) for each in people])) == ["shares-changed"]
    assert changed_shares([noisy_batch(each, 900.0) for each in people]) == []
    exact = Tally((Factor("arm", ("A", "B"), "arm"),), np.array([5_200, 4_800], dtype=object))
    assert codes(changed_shares([exact, noisy_batch([4_300, 5_700], 900.0)])) == ["shares-changed"]


@pytest.mark.parametrize("metric", ["bought", "spend"])
def test_a_mean_that_noise_could_have_made_is_cautioned_about_and_others_are_not(metric):
    rng = np.random.default_rng(1)
    exact = shop(4_000, rng)
    assert metric_cautions(with_noise(exact, stated_noise(exact, 0.05), rng), metric) == []
    (caution,) = metric_cautions(with_noise(exact, stated_noise(exact, 1e-6), rng), metric)
    assert (caution.code, caution.metric) == ("too-noisy", metric)
    assert "hides whether more than a few people make the mean" in caution.sentence


def test_people_off_the_commonest_value_are_not_overstated_by_noise():
    rng = np.random.default_rng(1)
    exact = shop(4_000, rng)
    rates = count_nonmodal(exact, "bought")
    noise = stated_noise(exact, 0.005)
    drawn = [count_nonmodal(with_noise(exact, noise, rng), "bought") for _ in range(100)]
    assert np.mean([each["A"] <= rates["A"] for each in drawn]) > 0.94
    assert np.median([each["A"] for each in drawn]) > rates["A"] / 2
    amounts = count_nonmodal(exact, "spend")
    assert count_nonmodal(with_noise(exact, noise, rng), "spend")["B"] < amounts["B"]


def test_one_arm_in_which_nothing_varies_is_no_reason_not_to_test() -> None:
    rows = {"arm": ["A"] * 40 + ["B"] * 40, "spend": [0.0, 3.0] * 20 + [1.0] * 40}
    (caution,) = metric_cautions(count_columns(rows, arm="arm", metrics=["spend"]))
    assert str(caution) == "Nothing varies in spend in arm B: errors come from the other arms alone."
    rows |= {"spend": [1.0] * 40 + [2.0] * 40}
    (caution,) = metric_cautions(count_columns(rows, arm="arm", metrics=["spend"]))
    assert str(caution) == "Nothing varies in spend in arms A, B: its effects are not testable."
