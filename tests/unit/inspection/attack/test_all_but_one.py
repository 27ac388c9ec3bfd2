"""Somebody who knows everybody but one person, and how noise was drawn."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.unit.privacy.epsilon.distinguisher import PLAN
from tests.unit.privacy.epsilon.shop import SHOP, SMALL, counted, few, people, silent

from kanab.errors import SourceError
from kanab.inspection.attack.all_but_one import (
    ANOTHERS,
    _remainders,
    attack_all_but_one,
    right_at_most,
    right_by_noise,
)
from kanab.inspection.attack.findings import AttackReport, Attempt
from kanab.inspection.attack.known_people import KnownPeople
from kanab.inspection.attack.published import AttackedRelease, published_from_dict
from kanab.inspection.attack.run import ONLY_NOISE, play_attacker
from kanab.plan.model import Budget
from kanab.privacy.epsilon import mechanism
from kanab.privacy.epsilon.noisy_release import release_with_noise
from kanab.privacy.epsilon.rho import rho_of
from kanab.privacy.gate import release
from kanab.privacy.release import Batch
from kanab.privacy.release_json import release_to_dict

__all__ = ["silent"]  # a fixture

pytest.importorskip("opendp")

ALONE = SMALL.replace('adjust = ["tier"]\nsegments = ["tier"]\n', "")  # no second table to compare it with
METRICS = ("spend", "orders", "before", "latency", "cancelled")


def attacked(rows: dict[str, Any], text: str = SHOP, name: str = "shop.json") -> AttackedRelease:
    return published_from_dict(json.loads(json.dumps(release_to_dict(release(counted(rows, text))))), name)


def known(rows: dict[str, Any]) -> KnownPeople:
    levels = {name: list(values) for name, values in rows.items() if name not in METRICS and name != "age"}
    if "device" in levels:
        levels["device"] = ["other" if device == "tv" else device for device in levels["device"]]
    values = {name: np.asarray(rows[name], dtype=np.float64) for name in rows if name in METRICS}
    return KnownPeople(levels, values)


@pytest.fixture
def seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the same noise in every run."""
    rng = np.random.default_rng(5)
    monkeypatch.setattr(
        mechanism, "draw", lambda size, scale: [round(value) for value in rng.normal(0, scale.deviation, size)]
    )


def without_last(rows: dict[str, Any]) -> dict[str, Any]:
    return {name: values[:-1] for name, values in rows.items()}


def exact_plan(text: str) -> str:
    return text.replace("[privacy]\nepsilon = 3\n", "")


def last(played: AttackReport) -> Attempt:
    return played.attempts[-1]


def test_attacks_that_take_numbers_for_exact_are_not_tried_on_noise() -> None:
    played = play_attacker([attacked(people())], known=known(people()))
    assert not played.broken
    assert {attempt.not_tried for attempt in played.attempts[:-1]} == {ONLY_NOISE}
    assert last(played).attack == "all but one"
    assert not last(played).not_tried


def test_the_last_person_is_what_is_left_of_exact_numbers() -> None:
    rows = few()
    played = play_attacker([attacked(rows, exact_plan(SMALL))], known=known(without_last(rows)))
    assert played.broken
    (finding,) = last(played).findings
    assert finding.people == 1
    assert finding.learnt == "the person whom nobody named is in variant = B, tier = 2, spend = 1"


def test_of_numbers_with_noise_nothing_is_left_but_a_guess_that_epsilon_bounds() -> None:
    rows = few()
    played = play_attacker([attacked(rows, SMALL)], known=known(without_last(rows)))
    assert not played.broken
    figures = last(played).figures
    assert figures["right"] == pytest.approx(right_by_noise(2 * rho_of(3, 1e-6)), abs=1e-6)
    assert figures["promised"] == right_at_most(3, 1e-6)
    assert 0.5 < figures["right"] < figures["promised"]
    text = str(played)
    assert "The rule to break: ε = 3 at δ = 1e-06." in text
    assert "ε = 3 promises at most 95.3 %." in text
    assert "Nothing was learnt that ε does not allow." in text


def test_two_releases_with_noise_tell_more_than_one() -> None:
    first, second = (attacked(few(), SMALL, name) for name in ("a.json", "b.json"))
    alone, both = (last(play_attacker(releases)).figures for releases in ([first], [first, second]))
    assert both["right"] == pytest.approx(right_by_noise(4 * rho_of(3, 1e-6)), abs=1e-6)
    assert alone["epsilon"] == 3 < both["epsilon"] < 6


def test_beside_exact_numbers_only_these_are_attacked_as_such() -> None:
    releases = [attacked(few(), SMALL, "noise.json"), attacked(few(), exact_plan(SMALL), "exact.json")]
    played = play_attacker(releases, known=known(without_last(few())))
    assert [finding.table for finding in played.findings] == ["exact.json, variant/tier"]
    assert "The rule to break: k = 10, and ε = 3 at δ = 1e-06." in str(played)


@pytest.mark.usefixtures("seeded")
def test_what_is_left_without_everybody_is_noise_of_the_stated_size(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = people()
    told = attack_all_but_one([attacked(rows)], 10, known(rows))
    assert not told.findings
    assert "would be likeliest" in told.says[1]
    drawn = mechanism.draw
    monkeypatch.setattr(mechanism, "draw", lambda size, scale: [round(value / 2) for value in drawn(size, scale)])
    (finding,) = attack_all_but_one([attacked(rows)], 10, known(rows)).findings
    assert finding.learnt.startswith("noise is smaller than the file says: 0.")


@pytest.mark.usefixtures("silent")
def test_a_release_that_only_says_that_it_has_noise_is_attacked_as_it_is() -> None:
    played = play_attacker([attacked(few(), SMALL)], known=known(without_last(few())))
    assert "LEARNT" in str(played)
    assert "spend = 1" in last(played).findings[0].learnt
    (finding,) = play_attacker([attacked(few(), ALONE)], known=known(few())).findings
    assert "noise is smaller than the file says: 0" in finding.learnt


def test_a_large_epsilon_is_broken() -> None:
    large = play_attacker([attacked(few(), ALONE.replace("epsilon = 3", "epsilon = 60"))])
    assert [finding.learnt for finding in large.findings] == ["whether one person was counted can be told"]


def sealed(after: str, through: str, text: str = SMALL, rows: dict[str, Any] | None = None) -> AttackedRelease:
    made = release(counted(few() if rows is None else rows, text))
    batch = Batch("7d", after, through, "enrolled")
    return published_from_dict(
        json.loads(json.dumps(release_to_dict(replace(made, receipt=replace(made.receipt, batch=batch))))), through
    )


def test_batches_of_cohorts_are_of_different_people() -> None:
    weeks = [sealed("2026-W36", "2026-W37"), sealed("2026-W37", "2026-W38")]
    assert last(play_attacker(weeks)).figures == pytest.approx(last(play_attacker(weeks[:1])).figures)
    assert "Nobody knows who is in which cohort" in last(play_attacker(weeks, known=known(few()))).says[1]


@pytest.mark.usefixtures("seeded")
def test_other_people_than_those_of_the_tables_are_noticed() -> None:
    half = {name: values[: len(values) // 2] for name, values in few().items()}
    assert ANOTHERS in last(play_attacker([attacked(few(), SMALL)], known=known(half))).says


@pytest.mark.slow
@pytest.mark.usefixtures("seeded")
def test_the_best_guess_is_right_as_often_as_said() -> None:
    rows = {"variant": ["A", "B"] * 40, "spend": [0, 7, 3, 1, 1] * 16}
    more = {"variant": [*rows["variant"], "A"], "spend": [*rows["spend"], 7]}
    budget, runs, right = Budget(3.0, 1e-6), 200, 0
    others = known(rows)
    for is_in, who in ((True, more), (False, rows)):
        exact = counted(who, PLAN)
        for _ in range(runs):
            made = published_from_dict(release_to_dict(release_with_noise(exact, budget, 2)), "run")
            right += (evidence_of_largest(made, others) > 0) == is_in
    said = last(play_attacker([made])).figures["right"]
    assert 0.6 < said < 0.65
    assert right / (2 * runs) == pytest.approx(said, abs=3 * np.sqrt(said * (1 - said) / (2 * runs)))


def evidence_of_largest(made: AttackedRelease, others: KnownPeople) -> float:
    """The evidence about one more person in the first arm with the largest value."""
    like = [*zip(others.levels["variant"], others.values["spend"], strict=True)].index(("A", 7))
    assert made.noise is not None
    parts = [part for table in made.tables for part in _remainders(table, made.noise, others)]
    return float(sum(part.evidence()[0][like] for part in parts))


def test_noise_that_is_not_that_of_the_plan_is_refused() -> None:
    plain = release_to_dict(release(counted(few(), SMALL)))
    plain["receipt"]["noise"]["scales"]["variant"]["people by variant"] *= 2
    with pytest.raises(SourceError, match="not that of its plan"):
        published_from_dict(plain, "shop.json")
    plain["receipt"]["noise"] = {"epsilon": "much"}
    with pytest.raises(SourceError, match="noise of this release cannot be read"):
        published_from_dict(plain, "shop.json")
