from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from tests.bad_releases import scan_statistics

from kanab.errors import SourceError
from kanab.inspection.attack.background import Background, KnownPeople, place_people
from kanab.inspection.attack.published import published_from_dict
from kanab.inspection.attack.run import NOTHING_KNOWN, play_attacker
from kanab.inspection.attack.scan_statistics import SCANS, find_from_statistics, solve_statistics
from kanab.scan.count.counting import count_pairs
from kanab.scan.stats.pairs import scan_pairs


def people(n: int, experiments: int, rate: float, seed: int = 1) -> tuple[dict[str, Any], Any]:
    rng = np.random.default_rng(seed)
    arms = {f"t{i}": rng.choice(["off", "on"], n) for i in range(experiments)}
    return arms, (rng.random(n) < rate).astype(int)


def naive_scan(arms: dict[str, Any], bought: Any, digits: int) -> dict[str, Any]:
    """Return the F of every pair, as a scan without a budget would show it."""
    rows = scan_pairs(count_pairs({**arms, "bought": bought}, list(arms), ["bought"])).rows
    shown = [row.to_dict() for row in rows]
    pairs = [row | {"F": float(f"{row['F']:.{digits - 1}e}"), "F_robust": None, "df_robust": None} for row in shown]
    return json.loads(json.dumps({"pairs": pairs, "shares": ["bought"], "privacy": {"k": 10}}))


def known(data: dict[str, Any], columns: dict[str, Any]) -> Background:
    return place_people(KnownPeople(columns), [published_from_dict(data, "scan.json")])


@pytest.mark.slow
def test_the_bundled_scan_gives_everybody_away_from_f_to_two_digits() -> None:
    bad = scan_statistics()
    assert bad.known is not None
    (scan,) = place_people(bad.known, bad.releases).scans
    assert solve_statistics(scan).tolist() == bad.people["bought"].tolist()
    report = play_attacker(bad.releases, bad.known)
    assert {finding.attack for finding in report.findings} == {SCANS}
    assert len(report.findings) == 300


@pytest.mark.parametrize("digits", [3, 1])
def test_f_alone_gives_everybody_away_whatever_its_digits(digits: int) -> None:
    arms, bought = people(250, 40, 0.25)
    background = known(naive_scan(arms, bought, digits), arms)
    findings = find_from_statistics(background, 10)
    assert [finding.learnt for finding in findings] == [
        f"person {place} has bought = {value}" for place, value in enumerate(bought, 1)
    ]


def test_people_who_are_not_in_every_experiment_are_solved_too() -> None:
    arms, bought = people(300, 45, 0.3, seed=2)
    rng = np.random.default_rng(3)
    some = {name: np.where(rng.random(300) < 0.1, None, column) for name, column in arms.items()}
    (scan,) = known(naive_scan(some, bought, 3), some).scans
    assert solve_statistics(scan).tolist() == bought.tolist()


def test_with_fewer_f_than_people_nothing_is_learnt() -> None:
    arms, bought = people(400, 20, 0.3)
    assert find_from_statistics(known(naive_scan(arms, bought, 3), arms), 10) == []


def test_an_f_that_is_not_of_these_people_is_not_used() -> None:
    arms, bought = people(250, 6, 0.3)
    background = known(naive_scan(arms, bought, 3), {name: column[1:] for name, column in arms.items()})
    assert background.scans == ()
    others = known(naive_scan(arms, bought, 3), {"t0": arms["t0"], "t1": arms["t1"], "colour": arms["t2"]})
    assert [len(scan.f) for scan in others.scans] == [1]
    played = play_attacker([published_from_dict(naive_scan(arms, bought, 3), "scan.json")], background.known)
    assert {attempt.not_tried for attempt in played.attempts if attempt.attack == SCANS} == {NOTHING_KNOWN}


def test_values_that_do_not_fit_are_not_claimed() -> None:
    arms, bought = people(120, 20, 0.3)
    data = naive_scan(arms, bought, 3)
    rng = np.random.default_rng(9)
    for row, f in zip(data["pairs"], rng.chisquare(1, len(data["pairs"])), strict=True):
        row["F"] = float(f"{f:.2e}")
    (scan,) = known(data, arms).scans
    assert solve_statistics(scan) is None


def test_segments_are_read_like_pairs_and_rows_without_numbers_say_nothing() -> None:
    row = {"experiment": "t0", "covariate": "t1", "metric": "bought", "F": 1.25, "df": [1.0, 96.0]}
    silent = row | {"covariate": "t2", "F": None, "df": None}
    many = row | {"covariate": "t3", "df": [2.0, 96.0]}
    data = {"pairs": [], "segment_scan": {"segments": [row, silent, many], "shares": ["bought"]}}
    (shown,) = published_from_dict(data, "scan.json").statistics
    assert (shown.sides, shown.f.tolist(), shown.people.tolist()) == ((("t0", "t1"),), [1.25], [100])
    assert published_from_dict(data["segment_scan"], "scan.json").statistics[0].error == 0.005
    assert published_from_dict(data | {"segment_scan": {}}, "scan.json").statistics == ()
    with pytest.raises(SourceError, match="a test cannot be read"):
        published_from_dict({"pairs": [{"a": "t0"}]}, "scan.json")


def test_every_pair_of_the_example_is_there() -> None:
    bad = scan_statistics()
    assert bad.known is not None
    (scan,) = place_people(bad.known, bad.releases).scans
    assert len(scan.f) == len(list(combinations(range(40), 2)))
