"""``--number`` and ``--bounds`` of what is adjusted for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.unit.cli.program import Program

from kanab.collector.counting.layout import layouts
from kanab.errors import PlanError
from kanab.plan.file import parse_plan, plan_from_dict, plan_to_dict


@pytest.fixture
def shop(tmp_path: Path) -> str:
    rng = np.random.default_rng(3)
    before = np.minimum(rng.gamma(2, 20, 4_000), 150)
    lines = ["variant,tier,before,visits,points,spend"]
    lines += [
        f"{'AB'[i % 2]},{1 + i % 3},{before[i]:.2f},{rng.poisson(5)},{i},{before[i] * 0.5 + rng.gamma(2, 5):.2f}"
        for i in range(4_000)
    ]
    (tmp_path / "shop.csv").write_text("\n".join(lines))
    return str(tmp_path / "shop.csv")


@pytest.mark.slow
def test_numbers_are_named_by_a_flag_or_by_bounds(program: Program, shop: str, tmp_path: Path) -> None:
    out = tmp_path / "release.json"
    ended = program(
        "release", shop, "--arm", "variant", "--metric", "spend", "--adjust", "visits,before,tier",
        "--number", "visits", "--bounds", "spend=0:300,before=0:150,visits=0:40", "-o", str(out), "--new-ledger",
    )  # fmt: skip
    assert ended.code == 0, ended
    plan = plan_from_dict(json.loads(out.read_text())["plan"])
    assert plan.numbers == ("before", "visits")
    assert plan.experiment().adjust == ("tier",)


FILE = """
[covariates]
tier = [1, 2, 3]
[metrics]
spend = { bounds = [0, 300], resolution = 0.01 }
before = { bounds = [0, 150], resolution = 0.01 }
[experiments.variant]
arms = { A = 1, B = 1 }
adjust = ["tier", "before"]
"""


def test_a_plan_file_names_a_metric_to_adjust_for_and_comes_back_from_plain_data() -> None:
    plan = parse_plan(FILE)
    assert (plan.numbers, plan.experiment().adjust, plan.outcomes) == (("before",), ("tier",), ("spend",))
    assert plan_to_dict(plan)["experiments"]["variant"]["adjust"] == ["tier", "before"]
    assert plan_from_dict(plan_to_dict(plan)) == plan


def test_a_collector_says_why_it_takes_no_numbers() -> None:
    with pytest.raises(PlanError, match="adjust names a metric, which needs products that messages do not carry"):
        layouts(parse_plan(FILE))


@pytest.mark.slow
def test_a_ledger_takes_a_second_release_beside_one_with_numbers(program: Program, shop: str, tmp_path: Path) -> None:
    chosen = ("release", shop, "--arm", "variant", "--adjust", "before,tier", "--bounds", "spend=0:300,before=0:150")
    ledger = str(tmp_path / "kanab.ledger")
    first = program(*chosen, "--metric", "spend", "-o", str(tmp_path / "1.json"), "--ledger", ledger, "--new-ledger")
    assert first.code == 0, first
    again = program(*chosen, "--metric", "spend", "-o", str(tmp_path / "2.json"), "--ledger", ledger)
    assert again.code == 0, again
    plans = [plan_from_dict(json.loads((tmp_path / name).read_text())["plan"]) for name in ("1.json", "2.json")]
    assert plans[0] == plans[1]
    assert plans[0].numbers == ("before",)
    tables = [json.loads((tmp_path / name).read_text())["tables"] for name in ("1.json", "2.json")]
    assert tables[0] == tables[1]
