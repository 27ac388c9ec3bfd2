"""Arms by id are those of every other language, and shares are those of the plan."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from scipy import stats

from kanab.client.client_config import Experiment, read_config
from kanab.client.state import fresh_version
from kanab.client.steps import Numbers, assign, draw, murmur3, numbers_of_id, numbers_of_root
from kanab.collector.protocol.config import public_config
from kanab.plan.file import plan_from_dict

CASES = json.loads((Path(__file__).parents[2] / "contract" / "cases.json").read_text(encoding="utf-8"))
ASSIGNMENT = CASES["assignment"]


@pytest.mark.parametrize(("text", "number"), ASSIGNMENT["hashes"])
def test_hashes_are_those_of_the_contract(text: str, number: int) -> None:
    assert murmur3(text) == number


def test_draws_are_those_of_the_contract() -> None:
    assert len(ASSIGNMENT["draws"]) > 50
    for arms, number, arm in ASSIGNMENT["draws"]:
        assert draw([(name, share) for name, share in arms], number) == arm


def test_people_get_the_arms_of_the_contract() -> None:
    config = read_config(public_config(plan_from_dict(CASES["plans"][ASSIGNMENT["plan"]])))
    assert len(ASSIGNMENT["people"]) > 30
    for id, arms in ASSIGNMENT["people"]:
        assert assign(config.experiments, numbers_of_id(id)) == arms


@pytest.mark.slow
@pytest.mark.parametrize("number", [numbers_of_id, lambda _: numbers_of_root(fresh_version())], ids=["id", "root"])
def test_draws_have_the_planned_shares(number: Callable[[str], Numbers]) -> None:
    arms = [("A", 1.0), ("B", 2.0), ("C", 5.0)]
    drawn = Counter(draw(arms, number(f"{person:08d}")("checkout:arm")) for person in range(100_000))
    assert stats.chisquare([drawn[name] for name in "ABC"], [12_500, 25_000, 62_500]).pvalue > 1e-4


def test_what_is_known_stays_and_keeps_others_away() -> None:
    experiments = {
        "old": Experiment([("A", 1), ("B", 1)], "A", exclude_with=["new"]),
        "new": Experiment([("A", 1), ("B", 1)], "A", exclude_with=["old"]),
    }
    for one in range(200):
        numbers = numbers_of_id(str(one))
        assert assign(experiments, numbers, {"old": "B"}) == {"old": "B", "new": None}
        assert assign(experiments, numbers, {"old": None})["new"] is not None


def test_a_last_arm_takes_what_rounding_leaves() -> None:
    assert draw([("A", 0.1), ("B", 0.2), ("C", 0.7)], 2**32 - 1) == "C"
    assert draw([("A", 0.0), ("B", 0.0)], 5) == "B"
