from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kanab as kb
from kanab.counted import Counted
from kanab.plan.model import ExperimentPlan, MetricPlan, Plan, make_plan

N = 1_200


def people(**more: Any) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    gross = np.where(rng.random(N) < 0.4, np.round(5 + rng.gamma(2, 15, N), 2), 0.0)
    region = np.tile(np.repeat(["n", "s"], 6), N // 12)
    rows = {"arm": np.tile(["A", "B"], N // 2), "tier": np.repeat([1, 2, 3], N // 3), "region": region}
    return {**rows, "gross": gross, "net": gross.copy(), **more}


def buyers(rows: dict[str, Any], **where: Any) -> np.ndarray[Any, Any]:
    there = rows["gross"] > 0
    for name, level in where.items():
        there = there & (rows[name] == level)
    return np.flatnonzero(there)


def counted(rows: dict[str, Any], *covariates: str, **choices: Any) -> Counted:
    both = {"gross": (0, 500), "net": (0, 500)}
    return kb.count(rows, arm="arm", metrics=["gross", "net"], covariates=list(covariates), bounds=both,
                    resolution={"gross": 0.01, "net": 0.01}, **choices)  # fmt: skip


def test_net_is_withheld_in_the_table_where_one_person_of_a_class_differs_from_gross() -> None:
    rows = people()
    for arm in ("A", "B"):
        rows["net"][buyers(rows, arm=arm, tier=1)[:6]] -= 3
        rows["net"][buyers(rows, arm=arm, tier=2)[:1]] -= 2.5
    made = kb.release(counted(rows, "tier"))
    assert made.tables["arm/tier"].metric_names == ("gross",)
    assert made.tables["arm"].metric_names == ("net",)
    assert made.receipt.left_out == {
        "arm/tier: net": "net is withheld in arm/tier: gross differs from net for fewer than 3 people of a class, "
        "whose amounts would be told"
    }


def test_net_is_withheld_altogether_where_one_person_of_an_arm_differs() -> None:
    rows = people()
    rows["net"][buyers(rows)[0]] -= 2.5
    made = kb.release(counted(rows, "tier"))
    assert all("net" not in table.metric_names for table in made.tables.values())
    assert made.receipt.left_out == {
        "arm: net": "net is withheld altogether: gross differs from net for fewer than 3 people of an arm, "
        "whose amounts would be told"
    }


def test_a_difference_that_is_nearly_all_one_persons_is_withheld_too() -> None:
    rows = people()
    for arm in ("A", "B"):
        some = buyers(rows, arm=arm)
        rows["net"][some[:4]] -= 0.05
        rows["net"][some[4]] -= 4.9
    left_out = kb.release(counted(rows, "tier")).receipt.left_out
    assert left_out["arm: net"].endswith("gross differs from net in an arm nearly only by what one or two people have")


def test_where_many_people_differ_or_nobody_does_both_metrics_stay() -> None:
    rows = people()
    assert kb.release(counted(rows, "tier", "region")).receipt.left_out == {}
    everybody = buyers(rows)[::2]
    rows["net"][everybody] = np.round(rows["net"][everybody] * 0.8, 2)
    made = kb.release(counted(rows, "tier", "region"))
    assert made.receipt.left_out == {}
    assert made.tables["arm/tier"].metric_names == ("gross", "net")


def test_everybody_pays_9_99_but_one() -> None:
    rows = people(ordered=people()["gross"] > 0)
    rows["paid"] = np.where(rows["ordered"], 9.99, 0)
    rows["paid"][buyers(rows)[0]] = 19.99
    plan = make_plan("arm", ["paid", "ordered"], bounds={"paid": (0, 50)}, resolution={"paid": 0.01})
    made = kb.release(kb.count(rows, plan=plan))
    assert made.tables["arm"].metric_names == ("paid",)
    assert made.receipt.left_out == {
        "arm: ordered": "ordered is withheld altogether: paid differs from 9.99 × ordered for fewer than 3 people of "
        "an arm, whose amounts would be told"
    }


def test_the_primary_metric_stays_and_the_other_one_gives_way() -> None:
    rows = people()
    rows["net"][buyers(rows)[0]] -= 2.5
    metrics = tuple(MetricPlan(name, (0, 500), 0.01) for name in ("gross", "net"))
    plan = Plan(metrics, (ExperimentPlan("arm", primary=("net",)),))
    made = kb.release(kb.count(rows, plan=plan))
    assert made.tables["arm"].metric_names == ("net",)


def test_few_people_who_differ_are_in_so_few_tables_that_they_cannot_be_named() -> None:
    rng = np.random.default_rng(3)
    names = [f"x{place}" for place in range(7)]
    rows = people(**{name: rng.integers(1, 3, N) for name in names})
    for arm in ("A", "B"):
        rows["net"][buyers(rows, arm=arm)[::20]] -= 1
    made = kb.release(counted(rows, *names))
    kept = [name for name in names if "net" in made.tables[f"arm/{name}"].metric_names]
    assert kept == names[:5]  # 12 and 13 people of the arms differ: six numbers of each may leave, one is its total
    why = "gross differs from net for too few people for so many tables"
    assert made.receipt.left_out == {f"arm/{name}: net": f"net is withheld in arm/{name}: {why}" for name in names[5:]}


def test_a_metric_is_not_released_into_a_ledger_that_holds_one_nearly_like_it(tmp_path: Path) -> None:
    rows = people()
    rows["net"][buyers(rows)[0]] -= 2.5
    plans = [make_plan("arm", [name], adjust=["tier"], bounds={name: (0, 500)}, resolution={name: 0.01})
             for name in ("gross", "net")]  # fmt: skip
    ledger = tmp_path / "ledger"
    kb.release(kb.count(rows, plan=plans[0]), ledger=ledger, new_ledger=True)
    made = kb.release(kb.count(rows, plan=plans[1], earlier=[plans[0]]), ledger=ledger)
    assert all(table.metric_names == () for table in made.tables.values())
    assert made.receipt.left_out["arm: net"].startswith("net is withheld altogether: net differs from gross for fewer")


def test_without_rows_what_stands_out_in_the_sums_gives_way() -> None:
    rows = people()
    rows["net"][buyers(rows, arm="A", tier=2)[0]] -= 2.5
    rows["net"][buyers(rows, arm="B", tier=2)[0]] -= 1.5
    local = replace(counted(rows, "tier"), signatures=None, derived=None)
    assert kb.release(local).receipt.left_out == {
        "arm/tier: net": "net is withheld in arm/tier: gross differs from net in few places only, perhaps by one "
        "person's amount"
    }


# ── products ───────────────────────────────────────────────────────────────────────────────────


def revenue(outside: int, amount: float = 173.46) -> dict[str, Any]:
    """Revenue of buyers, and of so many people of B who did not buy."""
    rows = people()
    ordered = (rows["gross"] > 0).astype(int)
    spend = rows["gross"].copy()
    spend[np.flatnonzero((ordered == 0) & (rows["arm"] == "B"))[:outside]] = amount
    return {"arm": rows["arm"], "revenue": spend, "ordered": ordered}


def ratio(rows: dict[str, Any], **choices: Any) -> Counted:
    return kb.count(rows, arm="arm", metrics=["revenue", "ordered"], ratios=["revenue/ordered"],
                    bounds={"revenue": (0, 500)}, resolution={"revenue": 0.01}, **choices)  # fmt: skip


@pytest.mark.parametrize(("outside", "published"), [(0, True), (1, False), (2, False), (12, True)])
def test_products_are_published_if_nobody_or_enough_people_without_an_order_have_revenue(
    outside: int, *, published: bool
) -> None:
    made = kb.release(ratio(revenue(outside)))
    assert bool(made.tables["arm"].crosses) == published
    if not published:
        assert made.receipt.left_out["arm: revenue and ordered"] == (
            "products of revenue and ordered are withheld in arm: fewer than k people could be told by them"
        )


def test_without_rows_products_are_published_if_sums_are_those_of_more_than_two() -> None:
    for outside, published in ((0, True), (1, False), (12, True)):
        local = replace(ratio(revenue(outside)), signatures=None, derived=None)
        assert bool(kb.release(local).tables["arm"].crosses) == published


def test_two_0_1_metrics_have_no_cell_of_fewer_than_k_people() -> None:
    rng = np.random.default_rng(2)
    arm = np.tile(["A", "B"], 500)
    seen = (rng.random(1_000) < 0.5).astype(int)
    for alone, published in ((1, False), (9, False), (10, True), (0, True)):
        bought = seen * (rng.random(1_000) < 0.4)
        bought[np.flatnonzero((seen == 0) & (arm == "A"))[:alone]] = 1
        bought[np.flatnonzero((seen == 0) & (arm == "B"))[:20]] = 1
        made = kb.release(kb.count({"arm": arm, "seen": seen, "bought": bought}, arm="arm",
                                   metrics=["seen", "bought"], ratios=["bought/seen"]))  # fmt: skip
        assert bool(made.tables["arm"].crosses) == published, alone
