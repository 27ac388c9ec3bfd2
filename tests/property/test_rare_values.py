"""Rule 4: over random people, whole numbers name nobody with a rare value of a sensitive metric; without it they do."""

from typing import Any

import numpy as np
import pytest

import kanab as kb
from kanab.inspection.attack.known_people import KnownPeople, place_people
from kanab.inspection.attack.published import published_from_dict
from kanab.inspection.attack.whole_numbers import find_whole_numbers
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.privacy import gate
from kanab.privacy.release_json import release_to_dict

pytestmark = pytest.mark.slow

SEEDS = range(4)
COVARIATES = tuple(f"c{place}" for place in range(8))
PLAN = Plan(
    (MetricPlan("ill", binary=True, sensitive="yes", min_events=1),),
    (ExperimentPlan("arm", segments=COVARIATES),),
    tuple(CovariatePlan(name) for name in COVARIATES),
)


def crowd(seed: int) -> dict[str, Any]:
    """1,000 people with eight covariates, of whom one or two of A have it, and hundreds of B."""
    rng = np.random.default_rng(seed)
    people: dict[str, Any] = {"arm": np.repeat(["A", "B"], 500)}
    people |= {name: rng.integers(0, 3, 1_000) for name in COVARIATES}
    people["ill"] = np.concatenate([np.arange(500) < int(rng.integers(1, 3)), rng.random(500) < 0.3]).astype(int)
    return people


def named(seed: int) -> tuple[int, int]:
    """Return how many tables have the metric by class, and how many people who have it are named."""
    people = crowd(seed)
    release = published_from_dict(release_to_dict(kb.release(kb.count(people, PLAN))), "release")
    background = place_people(KnownPeople({name: people[name] for name in ("arm", *COVARIATES)}), [release])
    findings = find_whole_numbers(background, PLAN.k, sensitive=True).findings
    tables = sum(len(table.axes) > 1 and table.part("ill") is not None for table in release.tables)
    return tables, sum(finding.learnt.endswith("= 1") for finding in findings)


def test_nobody_with_a_rare_sensitive_value_is_named() -> None:
    tables, people = zip(*map(named, SEEDS), strict=True)
    assert people == (0,) * len(SEEDS)
    assert max(tables) < len(COVARIATES)


def test_without_the_rule_the_few_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "few_numbers", lambda *_: {})
    monkeypatch.setattr("kanab.privacy.recoding._subjects", lambda _counted: iter(()))  # nor are they contributors
    tables, people = zip(*map(named, SEEDS), strict=True)
    assert set(tables) == {len(COVARIATES)}
    assert sum(people) >= 3
