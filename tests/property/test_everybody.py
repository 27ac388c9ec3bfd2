"""The simulator that knows everybody: nothing published isolates fewer than k people, or fewer than 3 contributors.

A few dozen random people, random plans with products and numbers, one to three releases into one ledger. What every
published number weighs of whom is worked out from the people, one by one, and all groups of a few people are tried.
Nothing here uses the gate's own functions; with a rule switched off, the simulator finds somebody.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.property.test_ledger import cells_of, columns_of

import kanab as kb
from kanab.errors import PrivacyError, SourceError
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.privacy import gate
from kanab.privacy.ledger import read_ledger
from kanab.privacy.numbers.rule import WeighedNumbers
from kanab.privacy.recoding import Recoded
from kanab.privacy.release import Release

pytestmark = pytest.mark.slow

Person = dict[str, Any]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

K = 3
CONTRIBUTORS = 3
SEEDS = range(40)
LEVELS = ("region", "country", "tier")

METRICS = {
    "spend": MetricPlan("spend", (0, 500), 0.01),
    "before": MetricPlan("before", (0, 500), 0.01),
    "ordered": MetricPlan("ordered", binary=True),
}


def crowd(seed: int) -> list[Person]:
    """A few dozen people; country nearly follows from region, and some were missed by a second experiment."""
    rng = np.random.default_rng(seed)
    people = []
    for number in range(int(rng.integers(20, 49))):
        region, ordered = int(rng.integers(2)), int(rng.random() < 0.7)
        people.append(
            {
                "id": number,
                "arm": "AB"[number % 2],
                "promo": None if rng.random() < 0.08 else "XY"[int(rng.integers(2))],
                "region": f"r{region}",
                "country": f"c{region if rng.random() < 0.9 else 1 - region}",
                "tier": int(rng.choice(3, p=[0.6, 0.3, 0.1])),
                "ordered": ordered,
                "before": float(np.round(rng.gamma(4, 10), 2)),
                "spend": float(np.round((ordered or rng.random() < 0.1) * rng.gamma(4, 10), 2)),
            }
        )
    return people


@dataclass
class World:
    """People, and what every published sum of every metric weighs of each of them."""

    people: list[Person]
    columns: dict[str, list[Floats]] = field(default_factory=dict)
    releases: int = 0

    def value(self, name: str) -> Floats:
        return np.array([person[name] for person in self.people], dtype=float)

    def add(self, release: Release) -> None:
        """Note who is in which class, with arm totals, and products with a number or a 0/1 metric that is known."""
        self.releases += 1
        for name, table in release.tables.items():
            cells = cells_of(self.people, release, name)
            classes = dict.fromkeys(cell for cell in cells if cell is not None)
            for place in classes:
                self._note(("", *table.metric_names), np.array([cell == place for cell in cells], dtype=float))
            for arm in dict.fromkeys(place[:1] for place in classes) if len(table.arms) == 1 else ():
                inside = np.array([cell is not None and cell[:1] == arm for cell in cells], dtype=float)
                self._note(("", *table.metric_names), inside)
                for cross in table.crosses:
                    for secret, known in (cross.pair, cross.pair[::-1]):
                        if known in ("ordered", "before") and secret == "spend":
                            self._note((secret,), inside * self.value(known))

    def _note(self, metrics: Sequence[str], weights: Floats) -> None:
        for metric in metrics:
            self.columns.setdefault(metric, []).append(weights)

    def design(self, metric: str) -> Floats:
        return np.stack(self.columns[metric], axis=1)


def isolates(design: Floats, rows: Mask, fewer_than: int) -> bool:
    """Tell whether a combination of columns is about some of these rows, but fewer than so many, and no others of them.

    Tried for all groups: a group is told if the columns of all others leave a combination that is 0 for them only.
    """
    a = design[rows]
    whole = np.linalg.matrix_rank(a)
    groups = (group for few in range(1, fewer_than) for group in combinations(range(len(a)), few))
    return any(np.linalg.matrix_rank(np.delete(a, group, axis=0)) < whole for group in groups if len(a) > len(group))


def fewest(design: Floats) -> float:
    """Return among how many people the most exposed one hides, by the plain hat matrix."""
    return float(1 / np.einsum("ij,ji->i", design, np.linalg.pinv(design, rcond=1e-10)).max())


def plans(rng: np.random.Generator) -> Iterator[Plan]:
    """Yield one to three plans with one or two covariates, perhaps a ratio, a number, and a second experiment."""
    for _ in range(int(rng.integers(1, 4))):
        names = tuple(sorted(str(name) for name in rng.permutation(LEVELS)[: rng.integers(1, 3)]))
        number = ("before",) if rng.random() < 0.3 else ()
        ratio = [MetricPlan("spend/ordered", ratio=("spend", "ordered"))] if rng.random() < 0.6 else []
        experiments = [ExperimentPlan("arm", segments=names, numbers=number)]
        experiments += [ExperimentPlan("promo", segments=names[:1])] if rng.random() < 0.4 else []
        counted = [METRICS["spend"], METRICS["ordered"], *([METRICS["before"]] if number else []), *ratio]
        yield Plan(tuple(counted), tuple(experiments), tuple(CovariatePlan(name) for name in names), K)


def world(seed: int, folder: Path) -> World:
    """Release plan after plan into one ledger; what is refused is not published."""
    rng, ledger = np.random.default_rng([seed, 1]), folder / f"{seed}.ledger"
    known = World(crowd(seed))
    for plan in plans(rng):
        before = read_ledger(ledger)
        try:
            counted = kb.count(columns_of(known.people), plan, earlier=before.plans)
            made = kb.release(counted, override="a test", ledger=ledger, new_ledger=not before.releases)
        except (PrivacyError, SourceError):  # or nobody of so few people is in one of the arms
            continue
        known.add(made)
    return known


def learnt(folder: Path, until: str = "") -> tuple[set[str], int]:
    """Return what is learnt in any of the worlds, or ``until`` something is, and how many columns there are."""
    found: set[str] = set()
    columns = 0
    for seed in SEEDS:
        known = world(seed, folder)
        columns += sum(map(len, known.columns.values()))
        everybody = np.ones(len(known.people), dtype=bool)
        for metric in known.columns:
            design = known.design(metric)
            if isolates(design, everybody, K) or fewest(design) < K * (1 - 1e-6):
                found.add("people")
            if metric in ("spend", "before") and isolates(design, known.value(metric) > 0, CONTRIBUTORS):
                found.add("contributors")
        if until in found:
            break
    return found, columns


@pytest.fixture(autouse=True)
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tables of so few people have classes: what is merged to be on the safe side is not what is tested."""
    monkeypatch.setattr("kanab.privacy.class_rules.LEAST_DF", 0)
    monkeypatch.setattr("kanab.privacy.class_rules.SAFETY_FACTOR", 1.0)
    monkeypatch.setattr("kanab.privacy.recoding.ENOUGH_CONTRIBUTORS", 1.0)


def test_no_combination_of_published_numbers_isolates_fewer_than_k_people_or_3_contributors(tmp_path: Path) -> None:
    found, columns = learnt(tmp_path)
    assert found == set()
    assert columns > 330


def switch_off(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if rule == "leverage":
        for module in ("joint_rules", "gate", "covariate_pairs", "numbers.rule"):
            monkeypatch.setattr(f"kanab.privacy.{module}.holds", lambda *_: True)
    elif rule == "contributors":
        monkeypatch.setattr(gate, "recode", lambda _counted, drafts, _earlier: Recoded(drafts, {}, {}))
    else:
        monkeypatch.setattr(gate, "weigh_numbers", lambda *_: WeighedNumbers())


@pytest.mark.parametrize(
    ("rule", "isolated"), [("leverage", "people"), ("contributors", "contributors"), ("numbers", "people")]
)
def test_without_a_rule_somebody_is_isolated(
    rule: str, isolated: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch_off(rule, monkeypatch)
    assert isolated in learnt(tmp_path, until=isolated)[0]
