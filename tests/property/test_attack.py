"""The attacker as an oracle: from whatever the gate lets through it learns nothing about fewer than k people."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import kanab as kb
from kanab.errors import PrivacyError
from kanab.inspection.attack.known_people import KnownPeople, place_people
from kanab.inspection.attack.published import AttackedRelease, published_from_dict
from kanab.inspection.attack.run import play_attacker
from kanab.inspection.attack.whole_numbers import find_whole_numbers
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.privacy import gate
from kanab.privacy.ledger import read_ledger
from kanab.privacy.release_json import release_to_dict

BOUGHT = MetricPlan("bought", binary=True)
METRICS = (
    BOUGHT,
    MetricPlan("spend", (0, 500), 0.01, of="bought"),
    MetricPlan("minutes", (0, 240), 0.1),
    MetricPlan("orders", (0, 20), 1),
    MetricPlan("rating", (1, 5), 1, missing="exclude"),
)


def crowd(seed: int, n: int, covariates: int, rate: float) -> dict[str, Any]:
    """People with an arm, some covariates of skewed levels, another experiment for most, and metrics."""
    rng = np.random.default_rng(seed)
    share = rng.uniform(0.3, 0.7)
    people: dict[str, Any] = {
        "arm": rng.choice(["A", "B"], n, p=[share, 1 - share]),
        "other": rng.choice(["X", "Y", None], n, p=[0.45, 0.45, 0.1]),
    }
    for i in range(covariates):
        levels = int(rng.integers(2, 8))
        weights = rng.uniform(0.4, 0.95) ** np.arange(levels)
        names = [f"level {j}" for j in range(levels)] if rng.random() < 0.5 else list(range(levels))
        people[f"c{i}"] = rng.choice(names, n, p=weights / weights.sum())
    bought = rng.random(n) < rate
    people["bought"] = bought.astype(int)
    people["spend"] = np.round(bought * rng.gamma(1.5, 20, n), 2)
    people["minutes"] = np.round(rng.lognormal(1, rng.uniform(0.3, 1.5), n), 1)
    people["orders"] = rng.poisson(rng.uniform(0.1, 2), n)
    people["rating"] = np.where(rng.random(n) < rng.uniform(0.5, 1), rng.integers(1, 6, n), np.nan)
    return people


def plan(covariates: list[str], k: int, metrics: tuple[MetricPlan, ...] = METRICS, *, pair: bool = False) -> Plan:
    arm = ExperimentPlan("arm", segments=tuple(covariates), interactions=("other",) if pair else ())
    experiments = (arm, ExperimentPlan("other")) if pair else (arm,)
    return Plan(metrics, experiments, tuple(CovariatePlan(name) for name in covariates), k)


def published(people: dict[str, Any], wanted: Plan, name: str, ledger: Path | None = None) -> AttackedRelease | None:
    earlier = read_ledger(ledger).plans if ledger is not None and ledger.exists() else ()
    try:
        made = kb.release(kb.count(people, wanted, earlier=earlier), ledger=ledger, new_ledger=not earlier)
    except PrivacyError:
        return None
    return published_from_dict(release_to_dict(made), name)


def check(people: dict[str, Any], releases: list[AttackedRelease]) -> None:
    """The attacker knows everybody's arms and covariates, and even everybody's values, and all of it fits."""
    axes = {name: values for name, values in people.items() if name in ("arm", "other") or name.startswith("c")}
    values = {metric.name: np.asarray(people[metric.name], dtype=np.float64) for metric in METRICS}
    known = KnownPeople(axes, values)
    assert len(place_people(known, releases).tables) == sum(len(release.tables) for release in releases)
    played = play_attacker(releases, known)
    assert not played.broken, str(played)
    assert not any(attempt.not_tried for attempt in played.attempts)


seeds, sizes, rules = st.integers(0, 10**6), st.integers(60, 900), st.sampled_from([5, 10, 20])


@pytest.mark.slow
@given(seeds, sizes, st.integers(1, 4), st.floats(0.15, 0.85), rules, st.booleans())
@settings(max_examples=25)
def test_one_release_gives_nobody_away(seed: int, n: int, covariates: int, rate: float, k: int, pair: bool) -> None:
    people = crowd(seed, n, covariates, rate)
    release = published(people, plan([f"c{i}" for i in range(covariates)], k, pair=pair), "release")
    if release is not None:
        check(people, [release])


@pytest.mark.slow
@given(seeds, sizes, st.floats(0.15, 0.85), rules)
@example(60, 60, 0.3125, 5)  # the two largest of a class differ in what is not published
@settings(max_examples=15)
def test_releases_into_one_ledger_give_nobody_away_together(seed: int, n: int, rate: float, k: int) -> None:
    people = crowd(seed, n, 3, rate)
    with TemporaryDirectory() as folder:
        ledger = Path(folder) / "kanab.ledger"
        wanted = [plan(["c0"], k), plan(["c1", "c2"], k), plan(["c0", "c2"], k, pair=True)]
        found = [published(people, one, f"release {i}", ledger) for i, one in enumerate(wanted)]
    releases = [one for one in found if one is not None]
    if releases:
        check(people, releases)


@pytest.mark.slow
@given(seeds, st.integers(60, 600), st.integers(2, 4), st.integers(1, 60), rules)
@settings(max_examples=25)
def test_few_buyers_in_several_tables_are_not_named(seed: int, n: int, covariates: int, buyers: int, k: int) -> None:
    people = crowd(seed, n, covariates, 0)
    people["bought"][np.random.default_rng(seed).permutation(n)[:buyers]] = 1
    release = published(people, plan([f"c{i}" for i in range(covariates)], k, (BOUGHT,)), "release")
    if release is not None:
        check(people, [release])


SEEDS = range(4)
COVARIATES = tuple(f"c{place}" for place in range(8))
RARE = Plan(
    (MetricPlan("ill", binary=True, sensitive="yes", min_events=1),),
    (ExperimentPlan("arm", segments=COVARIATES),),
    tuple(CovariatePlan(name) for name in COVARIATES),
)


def with_rare(seed: int) -> dict[str, Any]:
    """1,000 people with eight covariates, of whom one or two of A have it, and hundreds of B."""
    rng = np.random.default_rng(seed)
    people: dict[str, Any] = {"arm": np.repeat(["A", "B"], 500)}
    people |= {name: rng.integers(0, 3, 1_000) for name in COVARIATES}
    people["ill"] = np.concatenate([np.arange(500) < int(rng.integers(1, 3)), rng.random(500) < 0.3]).astype(int)
    return people


def named_people(seed: int) -> tuple[int, int]:
    """Return how many tables have the metric by class, and how many people who have it are named_people."""
    people = with_rare(seed)
    release = published_from_dict(release_to_dict(kb.release(kb.count(people, RARE))), "release")
    background = place_people(KnownPeople({name: people[name] for name in ("arm", *COVARIATES)}), [release])
    findings = find_whole_numbers(background, RARE.k, sensitive=True).findings
    tables = sum(len(table.axes) > 1 and table.part("ill") is not None for table in release.tables)
    return tables, sum(finding.learnt.endswith("= 1") for finding in findings)


@pytest.mark.slow
def test_nobody_with_a_rare_sensitive_value_is_named() -> None:
    tables, people = zip(*map(named_people, SEEDS), strict=True)
    assert people == (0,) * len(SEEDS)
    assert max(tables) < len(COVARIATES)


@pytest.mark.slow
def test_without_the_rule_the_few_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "few_numbers", lambda *_: {})
    monkeypatch.setattr("kanab.privacy.recoding._subjects", lambda _counted: iter(()))  # nor are they contributors
    tables, people = zip(*map(named_people, SEEDS), strict=True)
    assert set(tables) == {len(COVARIATES)}
    assert sum(people) >= 3
