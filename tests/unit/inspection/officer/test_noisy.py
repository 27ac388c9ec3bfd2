"""What an officer reads of releases with ε, and that nothing is said there that holds for exact numbers only."""

from __future__ import annotations

from pathlib import Path

from tests.unit.privacy.epsilon.test_accountant import counted

import kanab as kb
from kanab.inspection.officer.account import privacy_account
from kanab.inspection.officer.page import privacy_html
from kanab.privacy.ledger import read_ledger


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
    assert "k-anonymous" not in account["verdict"]["says"]


def test_exact_releases_are_reported_as_ever() -> None:
    account = privacy_account({"shop.json": kb.release(counted())})
    assert "noise" not in account["releases"][0]
    assert account["verdict"]["short"] == "k-anonymous at k = 10; audit passed"
