"""A real experiment: many tables together may pass although the people in all of them at once are few."""

from pathlib import Path

import pytest

import kanab as kb
from kanab.privacy.leverage import holds, leverage

COVARIATES = ["newbie", "channel", "zip_code", "history_segment", "womens", "mens", "recency"]


@pytest.mark.slow
def test_seven_hillstrom_tables_pass_although_most_signatures_hold_fewer_than_10_people(shared: Path) -> None:
    counted = kb.count(shared / "hillstrom_email.csv.gz", arm="segment", metrics=["visit"], adjust=COVARIATES)
    signatures = counted.signatures
    assert signatures is not None
    assert len(signatures.tables) == 7
    assert (len(signatures.people), int((signatures.people < 10).sum())) == (7_015, 4_879)
    found = leverage(signatures.cells, signatures.people)
    assert found.effective_k == pytest.approx(235.69046345, rel=1e-9)
    assert holds(found, 10)
    assert holds(found, 235)
    assert not holds(found, 236)
