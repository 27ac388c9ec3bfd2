"""What an officer reads of releases with ε, and that nothing is said there that holds for exact numbers only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.privacy.epsilon.test_accountant import counted

import kanab as kb
from kanab.inspection.officer.account import privacy_account
from kanab.inspection.officer.officer_page import privacy_html
from kanab.privacy.ledger import read_ledger
from kanab.privacy.release import COLLECTORS_CLOCK, Batch


def test_the_report_says_promise_mechanism_scales_spent_and_left(tmp_path: Path) -> None:
    kb.release(counted("epsilon = 1\nper_release = 0.5"), ledger=tmp_path / "shop.ledger", new_ledger=True)
    ledger = read_ledger(tmp_path / "shop.ledger")
    account = privacy_account({"shop.json": ledger.releases[0]}, ledger)
    assert account["verdict"]["short"] == "differential privacy at ε = 0.5 of 1 in all, δ = 1e-06; audit passed"
    assert {question["state"] for question in account["questions"]} == {"covered"}
    text = privacy_html(account).replace("\u00a0", " ")
    for sentence in (
        "differential privacy at ε = 0.5 and δ = 1e-06",
        "changes the chance of any result by at most a factor of 1.65, but for one chance in 1,000,000",
        "discrete Gaussian noise, drawn once",
        "ε = 0.5 of 1 by all releases of the ledger up to this one",
        "ε = 0.843 for a further release about these people",
        "21.9 in people by variant",
    ):
        assert sentence in text, sentence
    assert "every class holds nobody or at least" not in text
    assert "its release with ε has spent ε = 0.5 of 1 at δ = 1e-06. Left: ε = 0.843" in text
    assert account["ledger"]["noise"]["spent"] == pytest.approx(0.5)
    assert "k-anonymous" not in account["verdict"]["says"]


def test_nothing_is_said_of_smallest_classes_and_values_that_only_exact_numbers_have() -> None:
    account = privacy_account({"shop.json": kb.release(counted("epsilon = 1"))})
    (release,) = account["releases"]
    tables = release["tables"]
    assert tables[0]["why"] == ["effect: how do the arms of variant differ?"]
    for part in (release, *tables):
        assert [part[name] for name in ("smallest_class", "degrees_of_freedom", "narrowest")] == [None] * 3
        assert part["homogeneous"] == 0
    assert [step["says"] for step in account["flow"]][1::2] == [
        "adds people up, class by class", "adds noise to every number", "effects and tests, from the release only",
    ]  # fmt: skip
    assert {"who counts as a person", "what the curator sees"} <= {risk["risk"] for risk in account["risks"]}
    text = privacy_html(account).replace("\u00a0", " ")
    assert "nobody or at least" not in text
    assert "in no ledger, nobody adds up what else was spent" in text


def test_the_attacker_who_knows_everybody_else_is_reported() -> None:
    account = privacy_account({"shop.json": kb.release(counted("epsilon = 1"))})
    (told,) = [attempt for attempt in account["attacks"]["tried"] if not attempt["why_not"]]
    assert told["attack"] == "all but one"
    assert "right 54.4 % of the time at most" in told["says"][0]
    text = privacy_html(account).replace("\u00a0", " ")
    assert "right 54.4 % of the time at most" in text
    assert "Nothing was learnt that ε does not allow." in text


def test_a_batch_of_a_collector_has_noise_from_the_seal_on() -> None:
    made = kb.release(counted("epsilon = 1"))
    batch = Batch("7d", None, "2026-W10", COLLECTORS_CLOCK)
    account = privacy_account({"shop.json": replace(made, receipt=replace(made.receipt, batch=batch))})
    says = {step["step"]: step["says"] for step in account["flow"]}
    assert says["Seal"] == "adds noise to every number; then the key is erased"
    assert says["Sealed batch"] == "every number with noise"
    told = {risk["risk"] for risk in account["risks"]}
    assert "batches whose overlap was not evaluated" not in told
    assert {"one human with several clients", "what is true of many"} <= told


def test_several_files_show_epsilon_in_the_place_of_effective_k() -> None:
    files = {"a.json": kb.release(counted("epsilon = 1")), "b.json": kb.release(counted("epsilon = 1"))}
    assert "ε = 1 instead" in privacy_html(privacy_account(files))


def test_exact_releases_are_reported_as_ever() -> None:
    account = privacy_account({"shop.json": kb.release(counted())})
    assert "noise" not in account["releases"][0]
    assert account["verdict"]["short"] == "k-anonymous at k = 10; audit passed"
