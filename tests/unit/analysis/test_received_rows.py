"""Assigned and received: what a readout says, in words, as plain data and as a picture, from every source."""

from typing import Any

import numpy as np
import pytest
from tests.described import count_of, readout_of

import kanab as kb
from kanab.collector.counting.layout import layouts
from kanab.errors import PlanError
from kanab.plan import parse_plan
from kanab.report.figure import Forest


def mailing(people: int = 4_000, opening: float = 0.4, anyway: float = 0.0) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    mail = rng.integers(0, 2, people) == 1
    keen = rng.random(people)
    opened = (mail & (keen < opening)) | (keen < anyway)
    spend = np.round(rng.gamma(1, 20, people) + 6 * opened, 2)
    bought = rng.random(people) < 0.2 + 0.1 * opened
    return {"variant": np.where(mail, "mail", "none"), "opened": opened.astype(int), "spend": spend,
            "bought": bought.astype(int)}  # fmt: skip


CHOICES: dict[str, Any] = {"arm": "variant", "metrics": ["spend", "bought"], "control": "none"}
CHOICES |= {"treatment_received": "opened"}


def test_a_plan_that_names_something_else_as_received_is_refused() -> None:
    text = """
    [metrics]
    spend = {{ bounds = [0, 500] }}
    orders = {{ bounds = [0, 9] }}
    each = {{ ratio = ["spend", "orders"] }}
    [experiments.variant]
    arms = {{ A = 1, B = 1 }}
    received = "{}"
    """
    with pytest.raises(PlanError, match="received names an unknown metric, 'opened'"):
        parse_plan(text.format("opened"))
    with pytest.raises(PlanError, match="received must name a metric that is no ratio"):
        parse_plan(text.format("each"))
    orders = parse_plan(text.format("orders"))
    assert orders.products == (("spend", "orders"),)  # the ratio's products do for both


def test_where_fewer_than_k_people_received_it_products_are_withheld_and_a_note_says_what_to_do() -> None:
    rows = mailing(600)
    rows["opened"] = ((rows["variant"] == "mail") & (np.cumsum(rows["variant"] == "mail") <= 7)).astype(int)
    answer = kb.analyze(kb.release(count_of(rows, **CHOICES)))
    assert answer.to_dict()["received"] == []
    note = next(note for note in answer.notes if note.startswith("The effect of receiving on spend is not given"))
    assert note.endswith("wait until more people have received it.")
    assert "What did receiving do?" not in str(answer)


def test_over_several_looks_the_effect_of_receiving_waits_for_the_end() -> None:
    looks = kb.Looks("spending", looks=2, earlier=[2_000])
    answer = readout_of(mailing(), **CHOICES, looks=looks)
    assert answer.to_dict()["received"] == []
    assert "The effect of receiving is read once, at the end: without looks." in answer.notes


def test_arms_that_received_alike_have_no_effect_of_receiving() -> None:
    rows = mailing(400)
    half = np.arange(400) % 2 == 0
    rows["variant"] = np.where(np.arange(400) // 2 % 2 == 0, "mail", "none")
    rows["opened"] = half.astype(int)
    answer = readout_of(rows, **CHOICES)
    assert answer.to_dict()["received"] == []
    assert any("both arms have the same mean of 'opened'" in note for note in answer.notes)


@pytest.mark.slow
def test_a_dose_is_said_per_unit_and_the_report_has_its_picture() -> None:
    rows = mailing(anyway=0.1)
    rows["opened"] = rows["opened"] * (1 + np.arange(4_000) % 3)
    answer = readout_of(rows, **CHOICES)
    assert "per unit of opened" in str(answer)
    assert answer.to_dict()["received"][0]["mean_with"] is None
    page = answer.to_html()
    assert "Effects on spend of being assigned and of receiving" in page


def test_a_collector_refuses_a_plan_that_needs_products_of_what_was_received() -> None:
    plan = parse_plan(
        '[metrics]\nopened = { kind = "binary" }\nbought = { kind = "binary" }\n'
        '[experiments.variant]\narms = { A = 1, B = 1 }\nreceived = "opened"\n[cohorts]\n'
    )
    with pytest.raises(PlanError, match=r"experiments.variant.received"):
        layouts(plan)


@pytest.mark.slow
def test_adjusted_effects_stand_below_plain_ones_and_are_put_into_words() -> None:
    rows = mailing()
    tier, device = np.arange(4_000) % 3, np.arange(4_000) // 3 % 2
    rows |= {"tier": tier, "device": device, "spend": np.round(rows["spend"] + 30 * tier + 9 * device, 2)}
    for covariates in (["tier"], ["device", "tier"]):
        answer = readout_of(rows, **CHOICES, adjust=covariates)
        plain, adjusted = answer.to_dict()["received"][:2]
        assert (plain["covariates"], adjusted["covariates"]) == ([], covariates)
        assert adjusted["se"] < 0.8 * plain["se"]
        effect = next(row.effect for row in answer.effects if row.effect.method == "adjusted")
        assert adjusted["assignment"] == pytest.approx(effect.estimate, rel=1e-9)
        words = " ".join(str(answer).split())
        assert f"adjusted for {', '.join(covariates)} (95 % interval" in words
        figure = answer.chart("received", metric="spend")
        assert isinstance(figure.panels[0], Forest)
        labels = [row.label for row in figure.panels[0].rows]
        assert labels == ["assigned to mail", "received (opened)"]
        assert f"adjusted for {', '.join(covariates)}." in figure.description


def test_ratios_have_no_effect_of_receiving_and_need_no_note() -> None:
    rows = mailing() | {"orders": 1 + np.arange(4_000) % 3}
    answer = readout_of(rows, **CHOICES, ratios=["spend/orders"])
    assert [row["metric"] for row in answer.to_dict()["received"]] == ["spend", "bought", "orders"]
    assert not [note for note in answer.notes if "receiving" in note]


def test_the_share_who_received_is_that_of_all_people_though_some_lack_a_metric() -> None:
    table = mailing()
    receivers = np.flatnonzero(table["opened"])
    rating = np.random.default_rng(2).gamma(2, 30, len(table["opened"])).round(1)
    rating[receivers[:300]] = np.nan
    answer = readout_of(table | {"rating": rating}, **CHOICES | {"metrics": ["spend", "rating"]})
    assert "opened in mail: 40.4 %; in none: nobody" in str(answer)
