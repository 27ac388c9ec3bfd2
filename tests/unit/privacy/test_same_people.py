"""Which releases are about the same people: by their ledgers, cohorts and conditions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import kanab as kb
from kanab.errors import PrivacyError
from kanab.privacy.batches import about_the_same_people, add_releases
from kanab.privacy.release import Batch, Release
from kanab.privacy.release_json import release_to_dict


def released(seed: int, previous: str | None, *, experiment: str = "checkout", **receipt: object) -> Release:
    """A release that says where it is from."""
    rng = np.random.default_rng(seed)
    rows = {experiment: rng.choice(["A", "B"], 400), "spend": rng.integers(0, 9, 400)}
    made = kb.release(kb.count(rows, arm=experiment, metrics=[kb.Mean("spend", bounds=(0, 9))]))
    return replace(made, previous=previous, receipt=replace(made.receipt, **receipt))


def week(number: int, weeks: int = 1) -> Batch:
    return Batch("7d", f"2026-09-{number * 7:02d}", f"2026-09-{(number + weeks) * 7:02d}", "enrolled")


LEDGER = {"ledger": "shop.ledger"}


def test_releases_of_a_ledger_are_kept_apart_by_cohorts_conditions_or_experiments_alone() -> None:
    first = released(1, "a" * 64, batch=week(1), **LEDGER)
    assert not about_the_same_people([first, released(2, "b" * 64, batch=week(2), **LEDGER)])
    assert about_the_same_people([first, released(2, "b" * 64, batch=week(0, 2), **LEDGER)])
    assert about_the_same_people([first, released(2, "b" * 64, batch=week(1), **LEDGER)])
    assert about_the_same_people([first, released(2, "b" * 64, **LEDGER)])
    german, french = (released(n, str(n) * 64, where=f"country = '{n}'", **LEDGER) for n in (3, 4))
    assert not about_the_same_people([german, french])
    assert about_the_same_people([german, released(5, "b" * 64, **LEDGER)])  # everybody, Germans too
    other = released(6, "b" * 64, experiment="search", **LEDGER)
    assert not about_the_same_people([first, other])
    assert not about_the_same_people([first, other], "checkout")


def test_two_ledgers_of_one_name_are_told_apart_where_their_beginnings_are_given() -> None:
    begins = [released(n, "", batch=week(1), **LEDGER) for n in (1, 2)]
    later = [released(3 + n, release_to_dict(first)["hash"], batch=week(2), **LEDGER) for n, first in enumerate(begins)]
    assert not about_the_same_people([*begins, *later])
    assert about_the_same_people([*later, begins[0], released(9, "c" * 64, batch=week(2), **LEDGER)])


def test_a_collectors_key_chain_says_more_than_the_name_of_a_ledger() -> None:
    one, two = (released(n, str(n) * 64, store=store, **LEDGER) for n, store in ((1, "x"), (2, "y")))
    assert not about_the_same_people([one, two])
    assert about_the_same_people([one, released(3, "3" * 64, store="x", ledger="other.ledger")])


def test_releases_in_no_ledger_are_taken_at_their_word_unless_their_numbers_are_equal() -> None:
    one, two = released(1, None), released(2, None)
    assert not about_the_same_people([one, two])
    assert about_the_same_people([one, replace(one, salt="f" * 32)])


def test_what_is_about_the_same_people_is_not_added_up_either() -> None:
    one, two = (released(n, str(n) * 64, **LEDGER) for n in (1, 2))
    with pytest.raises(PrivacyError, match="these releases are about the same people"):
        add_releases([one, two])
