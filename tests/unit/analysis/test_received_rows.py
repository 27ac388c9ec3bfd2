"""Assigned and received: what a readout says, in words, as plain data and as a picture, from every source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.described import count_of, readout_of

import kanab as kb
from kanab.collector.counting.layout import layouts
from kanab.errors import PlanError
from kanab.plan import parse_plan
from kanab.plan.file import plan_from_dict, plan_to_dict
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


def test_a_readout_has_the_effect_of_receiving_beside_that_of_being_assigned() -> None:
    rows = mailing()
    answer = readout_of(rows, **CHOICES)
    data = answer.to_dict()
    assert [(row["metric"], row["arm"]) for row in data["received"]] == [("spend", "mail"), ("bought", "mail")]
    spend = data["received"][0]
    mail = rows["variant"] == "mail"
    assigned = rows["spend"][mail].mean() - rows["spend"][~mail].mean()
    assert spend["assignment"] == pytest.approx(assigned, rel=1e-12)
    assert spend["estimate"] == pytest.approx(assigned / rows["opened"][mail].mean(), rel=1e-12)
    assert spend["one_sided"] is True
    assert spend["weak"] is False
    assert "opened in mail: 40.4 %; in none: nobody, so that" in str(answer)
    assert "spend: receiving because of mail changed it by +6.1 (95 % interval 3.0 to 9.1)" in " ".join(
        str(answer).split()
    )
    assert json.loads(json.dumps(data["received"])) == data["received"]


def test_a_plan_file_names_what_was_received_and_releases_keep_it(tmp_path: Path) -> None:
    plan = parse_plan(
        """
        [metrics]
        spend = { bounds = [0, 500], resolution = 0.01 }
        opened = { kind = "binary" }
        [experiments.variant]
        arms = { none = 1, mail = 1 }
        received = "opened"
        """
    )
    assert plan.experiment().received == "opened"
    assert plan.products == (("opened", "spend"),)
    assert plan_from_dict(plan_to_dict(plan)) == plan
    file = tmp_path / "mailing.release.json"
    kb.write_release(kb.release(kb.count(mailing(), plan), ledger=tmp_path / "l.ledger", new_ledger=True), file)
    again = kb.analyze(kb.read_release(file))
    assert again.to_dict()["received"] == kb.readout(mailing(), plan).to_dict()["received"]


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


def test_a_weak_assignment_is_cautioned_about_and_its_set_is_said_in_words() -> None:
    rows = mailing(opening=0.02, anyway=0.5)
    rows["opened"] = (np.arange(4_000) % 2).astype(int)
    rows["spend"] = rows["spend"] + 6 * (rows["variant"] == "mail")
    answer = readout_of(rows, **CHOICES)
    row = answer.to_dict()["received"][0]
    assert row["weak"]
    assert [ends.count(None) for ends in row["ranges"]] == [1, 1]
    assert any(caution.code == "weak-assignment" for caution in answer.cautions)
    assert "Being assigned to mail hardly changes opened (F below 10)" in " ".join(str(answer).split())
    assert "any effect but those between −" in str(answer)
    figure = answer.chart("received", metric="spend")
    assert isinstance(figure.panels[0], Forest)
    ends = {row.label: [(bar.low is None, bar.high is None) for bar in row.bars] for row in figure.panels[0].rows}
    assert ends == {"assigned to mail": [(False, False)], "received (opened)": [(True, False), (False, True)]}


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


@pytest.mark.parametrize("slopes", ["own", "one"])
def test_it_is_adjusted_for_numbers_as_the_effect_of_being_assigned_is(slopes: Any) -> None:
    rows = mailing()
    before = np.round(np.random.default_rng(3).gamma(2, 20, 4_000), 2)
    rows |= {"tier": np.arange(4_000) % 3, "before": before, "spend": np.round(rows["spend"] + before, 2)}
    answer = readout_of(rows, **CHOICES, adjust=["before", "tier"], bounds={"before": (0, 120)}, slopes=slopes)
    plain, adjusted = answer.to_dict()["received"][:2]
    effect = next(row.effect for row in answer.effects if row.effect.method == "adjusted")
    assert adjusted["covariates"] == list(effect.covariates) == ["before", "tier"]
    assert adjusted["assignment"] == pytest.approx(effect.estimate, rel=1e-9)
    assert adjusted["se"] < 0.8 * plain["se"]
    ((low, high),) = adjusted["ranges"]
    assert (low > 0 or high < 0) == (effect.p < 0.05)


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
