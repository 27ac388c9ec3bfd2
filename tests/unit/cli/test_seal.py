"""What kanab seal says of a batch."""

import pytest
from tests.unit.privacy.epsilon.test_accountant import counted

import kanab as kb
from kanab.cli.seal import _describe
from kanab.collector.sealing import Sealed


def test_a_seal_with_epsilon_says_what_it_promises_and_spent(capsys: pytest.CaptureFixture[str]) -> None:
    _describe(Sealed(kb.release(counted("epsilon = 1"))))
    said = capsys.readouterr().out
    assert "Sealed everything: 2 tables, noise in every number: ε = 1 at δ = 1e-06." in said
    assert "k-anonymous" not in said
    assert "- Spent in all: ε = 1 of 1. Nothing is left." in said
