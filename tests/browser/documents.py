"""Every report that is one file, with usual and with crowded contents: readout, scan, officer's, planning."""

import copy
import json
from functools import cache
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from click.testing import CliRunner

from kanab.analysis.sections import report_html
from kanab.cli.plan import plan as plan_command
from kanab.cli.power import power
from kanab.counting.in_memory import count_rows
from kanab.inspection.officer.account import privacy_account
from kanab.inspection.officer.officer_page import privacy_html
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.privacy.gate import release
from kanab.privacy.ledger import read_ledger
from kanab.scan.report.scan_page import scan_report

UNIT = Path(__file__).parents[1] / "unit"
HILLSTROM, STORED = UNIT / "report" / "hillstrom.json", UNIT / "scan" / "report" / "scan.json"
Account = dict[str, Any]
Scan = dict[str, Any]


def real() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(HILLSTROM.read_text(encoding="utf-8"))
    return made


def crowded() -> dict[str, Any]:
    """The same numbers as if there were eight arms with long names and ten metrics."""
    data = real()
    arms = ["No E-Mail", *(f"variant_with_a_very_long_descriptive_name_{number}" for number in range(7))]
    rows = [row for row in data["effects"] if row["metric"] == "spend" and row["arm"] == "Mens E-Mail"]
    data["effects"] = [
        row | {"arm": arm, "metric": f"a_metric_with_a_long_name_{place}"}
        for place in range(10)
        for row in rows
        for arm in arms[1:]
    ]
    data["arms"] = dict.fromkeys(arms, 8000)
    data["sample_ratio"] |= {"shares": dict.fromkeys(arms, 1 / 8), "residuals": dict.fromkeys(arms, 0.0)}
    data["privacy"]["merged"] = {"segment/zip": {"other": [f"a_level_with_a_long_name_{place}" for place in range(9)]}}
    return data


def both() -> dict[str, Scan]:
    made: dict[str, Scan] = json.loads(STORED.read_text(encoding="utf-8"))
    return made


def hundred() -> Scan:
    """A hundred experiments with long names; thirty pairs ring, five are explained."""
    six = both()["pairs"]
    loud = next(row for row in six["pairs"] if row["verdict"] == "interference")
    quiet = next(row for row in six["pairs"] if row["verdict"] == "nothing found")
    names = [f"an_experiment_with_a_very_long_name_{place}" for place in range(100)]
    rows = [
        (loud if place % 165 == 0 else quiet | {"p_robust": (place * 1009 % 4950 + 0.5) / 4950}) | {"a": a, "b": b}
        for place, (a, b) in enumerate(combinations(names, 2))
    ]
    effects = [six["effects"][0] | {"a": names[0], "b": name} for name in names[1:6]]
    rows = [row | {"metric": "revenue"} for row in rows]
    return six | {"pairs": rows, "experiments": names, "metrics": ["revenue"], "effects": effects}


@cache
def account() -> Account:
    """An account of two chained releases."""
    rng = np.random.default_rng(3)
    n = 3000
    spend = np.round(np.where(rng.random(n) < 0.3, rng.gamma(2, 20, n), 0), 2)
    rows = {
        "checkout": rng.choice(["A", "B"], n),
        "tier": rng.choice([1, 2, 3, 4], n, p=[0.5, 0.3, 0.195, 0.005]),
        "city": rng.choice(["Oslo", "Bergen", "Hamar", "Narvik"], n, p=[0.6, 0.3, 0.09, 0.01]),
        "spend": spend,
        "bought": spend > 0,
    }
    plans = [
        Plan(
            (MetricPlan("bought", binary=True), MetricPlan("spend", (0, 120), 0.01, of="bought")),
            (ExperimentPlan("checkout", (("A", 1), ("B", 1)), adjust=("tier",), segments=("tier",)),),
            (CovariatePlan("tier", (1, 2, 3, 4)),),
        ),
        Plan(
            (MetricPlan("bought", binary=True),),
            (ExperimentPlan("checkout", segments=("city",)),),
            (CovariatePlan("city", ("Oslo", "Bergen", "Hamar", "Narvik")),),
        ),
    ]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "kanab.ledger"
        first = release(count_rows(rows, plans[0]), ledger=path, new_ledger=True)
        second = release(count_rows(rows, plans[1], earlier=(plans[0],)), ledger=path)
        return privacy_account({"checkout.release.json": first, "city.release.json": second}, read_ledger(path))


def crowded_account(real: Account) -> Account:
    """The same with long names and a broken rule."""
    data = copy.deepcopy(real)
    long = "a_name_that_is_longer_than_anybody_would_ever_want_to_read"
    one = data["releases"][0]
    one["file"] = f"{long}.release.json"
    one["experiments"] = [long]
    one["tables"] = [{**one["tables"][0], "table": f"{long}/{place}"} for place in range(12)]
    one["tables"][0]["covariate"] = {
        **one["tables"][0]["covariate"], "levels": [f"{long}_{place}" for place in range(30)],
        "merged": {"other": [f"{long}_{place}" for place in range(30)]},
    }  # fmt: skip
    one["checks"][0] |= {"holds": False, "classes": 4, "remedy": "Do not use it; release it again."}
    data["verdict"] |= {"state": "broken", "short": f"BROKEN: k in {long}.", "says": f"BROKEN: k in {long}. Stop."}
    return data


PLANS = {
    "rate": ("--rate", "0.1", "--effect", "0.01", "--power", "0.8"),
    "small arm": ("--sd", "30", "--mean", "12", "--people", "20000", "--effect", "0.6", "--shares", "A=9,B=1"),
    "margin": ("--rate", "0.05", "--effect", "0", "--power", "0.8", "--margin", "non-inferiority=0.02", "--relative"),
    "few": ("--rate", "0.5", "--people", "40", "--power", "0.8"),
}
FORECAST = (
    'metrics.bought = { kind = "binary" }\nmetrics.spend = { bounds = [0, 500] }\ncovariates.tier = [1, 2, 3]\n'
    'experiments.checkout = { arms = { A = 1, B = 1 }, adjust = ["tier"] }\n'
)
FORECAST_WORDS = ("--per-day", "60", "--days", "28", "--rate", "bought=0.1", "--sd", "spend=300")


def printed(command: Any, *words: str) -> str:
    """The page that a command writes."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        done = CliRunner().invoke(command, [*words, "--html", str(file)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return file.read_text(encoding="utf-8")


def forecast() -> str:
    with TemporaryDirectory() as folder:
        (plan := Path(folder) / "kanab.toml").write_text(FORECAST, encoding="utf-8")
        return printed(plan_command, str(plan), *FORECAST_WORDS)


DOCUMENTS = {
    "readout": lambda: report_html(real()),
    "crowded readout": lambda: report_html(crowded()),
    "scan": lambda: scan_report(*both().values()).to_html(),
    "scan of a hundred": lambda: scan_report(hundred()).to_html(),
    "officer": lambda: privacy_html(account()),
    "crowded officer": lambda: privacy_html(crowded_account(account())),
    **{name: lambda words=words: printed(power, *words) for name, words in PLANS.items()},  # type: ignore[misc]
    "forecast": forecast,
}


@cache
def document(name: str) -> str:
    """A whole report, drawn once."""
    return DOCUMENTS[name]()
