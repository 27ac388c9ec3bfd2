"""What a scan of pairs finds stands behind the decision of both experiments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tests.unit.dashboard.shop_releases import FixedSource

import kanab as kb
from kanab.dashboard.releases import RawSource
from kanab.dashboard.request_view import RequestView
from kanab.dashboard.results import Results
from kanab.plan import parse_plan

PLAN = """
[metrics]
spend = { bounds = [-50, 100], resolution = 0.01 }
[experiments.checkout]
arms = { off = 1, on = 1 }
interactions = ["banner"]
[experiments.banner]
arms = { off = 1, on = 1 }
"""


def test_the_decisions_of_two_experiments_that_interfere_say_so(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = {name: rng.choice(["off", "on"], 6_000) for name in ("checkout", "banner")}
    both = (rows["checkout"] == "on") & (rows["banner"] == "on")
    spend = np.round(np.clip(rng.normal(20, 5, 6_000) + 2 * both, -50, 100), 2)
    file = tmp_path / "shop.release.json"
    kb.write_release(kb.release(kb.count(rows | {"spend": spend}, parse_plan(PLAN))), file)
    results = Results(FixedSource(RawSource(file.name, (file.read_bytes(),))), patience=600)
    view = RequestView(results)
    says = "It interferes with banner on spend: read it within the arms of banner."
    decision = view.experiment("checkout").summary.decision
    assert decision is not None
    assert (decision["answer"], decision["because"][-1]) == ("ship", says)
    (other,) = [line for line in view.whole_list if line.name == "banner"]
    assert other.decision is not None
    assert "It interferes with checkout on spend" in other.decision["because"][-1]
