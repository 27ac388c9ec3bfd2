"""The shop that tests sell in: its people, its plan, and what is counted and released of it.

A test says only what it is about: ``shop_rows(400, tier=[…])``, ``shop_plan(metrics='orders = { bounds = [0, 9] }')``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import kanab as kb
from kanab.counted import Counted
from kanab.plan.file import parse_plan
from kanab.plan.model import Plan
from kanab.privacy.release import Release
from kanab.scan.pair_tables import Pairs

METRICS = {"bought": 'kind = "binary"', "spend": "bounds = [0, 500], resolution = 0.01"}
COVARIATES = {"tier": "levels = [1, 2, 3]", "device": 'levels = ["desktop", "phone"]'}


def shop_rows(
    people: int = 2_000, seed: int = 1, *, arm: str = "variant", arms: Sequence[Any] = ("A", "B"),
    split: Sequence[float] | None = None, effect: float = 0.0, **columns: Any,
) -> dict[str, Any]:  # fmt: skip
    """One row per person: a tier and a device from before, whether and for how much they bought, and how often.

    A fifth buys, and that share grows by ``effect`` with every arm after the first. Further columns, or others instead
    of these, are named.
    """
    rng = np.random.default_rng(seed)
    place = rng.choice(len(arms), people, p=split)
    tier = rng.choice([1, 2, 3], people, p=[0.5, 0.3, 0.2])
    bought = rng.random(people) < 0.2 + effect * place
    before = np.round(rng.gamma(2.0, 20.0, people), 2)
    return {
        arm: np.array(list(arms))[place],
        "tier": tier,
        "device": rng.choice(["desktop", "phone"], people),
        "before": before,
        "bought": bought.astype(int),
        "spend": np.round(bought * np.minimum(500, 10 * tier + before / 4 + rng.gamma(2.0, 10.0, people)), 2),
        "orders": bought * rng.integers(1, 5, people),
        **columns,
    }


def shop_text(
    head: str = "", *, arm: str = "variant", arms: str = "A = 1, B = 1", adjust: Sequence[str] = (),
    segments: Sequence[str] = (), metrics: str = "", experiment: str = "", tail: str = "",
) -> str:  # fmt: skip
    """The text of a plan file; what is given stands in its part of it: ``head`` before the tables, ``tail`` behind."""
    named = [name for name in COVARIATES if name in (*adjust, *segments)]
    lines = [head, "[covariates]", *_lines({name: COVARIATES[name] for name in named})]
    lines += ["[metrics]", *_lines(METRICS), metrics, f"[experiments.{arm}]", f"arms = {{ {arms} }}"]
    lines += [f"adjust = {[*adjust]}"] if adjust else []
    lines += [f"segments = {[*segments]}"] if segments else []
    return "\n".join([line for line in [*lines, experiment, tail] if line]) + "\n"


def _lines(entries: Mapping[str, str]) -> list[str]:
    return [f"{name} = {{ {entry} }}" for name, entry in entries.items()]


def shop_plan(head: str = "", **parts: Any) -> Plan:
    """The plan of `shop_text`."""
    return parse_plan(shop_text(head, **parts))


def shop_counted(rows: Mapping[str, Any] | None = None, plan: Plan | None = None, **parts: Any) -> Counted:
    """Rows of the shop, counted by a plan, or by that of `shop_plan`."""
    return kb.count(shop_rows() if rows is None else rows, plan or shop_plan(**parts))


def shop_release(rows: Mapping[str, Any] | None = None, plan: Plan | None = None, **parts: Any) -> Release:
    """What passes the gate of `shop_counted`."""
    return kb.release(shop_counted(rows, plan, **parts))


def assert_same_pairs(counted: Pairs, expected: Pairs) -> None:
    """Compare the tables of all pairs, integer by integer."""

    def plain(pairs: Pairs) -> tuple[Any, ...]:
        sums = [
            (part.metric, *(cells.tolist() for cells in (part.counts, part.sums, part.squares)))
            for part in pairs.moments
        ]
        return pairs.experiments, pairs.people.tolist(), sums, pairs.total, pairs.missing, pairs.unusual

    assert plain(counted) == plain(expected)
