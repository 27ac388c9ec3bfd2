"""Releases with noise that were changed: what they state is worked out again, from their plan."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.privacy.epsilon.shop import SHOP, counted, people

from kanab.errors import SourceError
from kanab.privacy.epsilon import noisy_release
from kanab.privacy.epsilon.accountant import spent_of
from kanab.privacy.epsilon.rho import rho_of, rho_per_person
from kanab.privacy.epsilon.split import split_by_tables
from kanab.privacy.gate import release
from kanab.privacy.release_json import hash_of, release_from_dict, release_to_dict

pytest.importorskip("opendp")


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    return release_to_dict(release(counted(people())))


def changed(plain: dict[str, Any], change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """A release that was changed, with a hash that fits."""
    other = copy.deepcopy(plain)
    change(other)
    return other | {"hash": hash_of(other)}


def test_an_unchanged_release_is_read(plain: dict[str, Any]) -> None:
    assert release_from_dict(changed(plain, lambda _: None)).receipt.noise is not None


def test_a_release_is_read_whose_bins_have_nobody_without_a_value() -> None:
    made = release(counted(people(), SHOP.replace('missing = "exclude"', 'missing = "zero"')))
    read = release_from_dict(release_to_dict(made))
    assert read.tables == made.tables
    assert None not in read.tables["checkout/latency"].factor("latency").levels


def test_a_release_of_before_that_shared_its_epsilon_among_all_tables_alike_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(noisy_release, "split_budget", split_by_tables)
    made = release(counted(people()))
    read = release_from_dict(release_to_dict(made))
    assert read.tables == made.tables
    spent = spent_of(read)
    assert rho_per_person([spent]) == pytest.approx(rho_of(3, 1e-6))
    assert spent.costs["checkout"] == pytest.approx(6 * spent.costs["banner"])


def smaller(data: dict[str, Any]) -> None:
    scales = data["receipt"]["noise"]["scales"]["checkout"]
    scales["people by checkout"] /= 2


def cheaper(data: dict[str, Any]) -> None:
    data["receipt"]["noise"]["epsilon"] = 1.0


def silent_plan(data: dict[str, Any]) -> None:
    del data["plan"]["privacy"]


def other_mechanism(data: dict[str, Any]) -> None:
    data["receipt"]["noise"]["mechanism"] = "none"


def without_map(data: dict[str, Any]) -> None:
    del data["levels"]["checkout/tier"]


def smaller_group(data: dict[str, Any]) -> None:
    next(olds for _, olds in data["levels"]["checkout/tier"]["groups"] if len(olds) > 1).pop()


def other_level(data: dict[str, Any]) -> None:
    factor = data["tables"]["checkout/age/tier"]["factors"][0]
    factor["levels"][0] = "Z"
    for entry in data["tables"]["checkout/age/tier"]["classes"]:
        entry["levels"][0] = "Z" if entry["levels"][0] == "A" else entry["levels"][0]


def lonely_pair(data: dict[str, Any]) -> None:
    del data["tables"]["checkout/tier"]


def unknown_table(data: dict[str, Any]) -> None:
    data["tables"]["elsewhere"] = data["tables"]["checkout"]


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (smaller, "the noise that this release states is not that of its plan"),
        (cheaper, "the ε that this release states is not that of its plan"),
        (silent_plan, "the ε that this release states is not that of its plan"),
        (other_mechanism, "the ε that this release states is not that of its plan"),
        (without_map, "the levels of this release are not those of its plan"),
        (smaller_group, "the levels of this release are not those of its plan"),
        (other_level, "the levels of this release are not those of its plan"),
        (lonely_pair, "the levels of this release are not those of its plan"),
        (unknown_table, "a table of this release is not in its plan"),
    ],
)
def test_a_release_whose_noise_is_not_that_of_its_plan_is_refused(
    plain: dict[str, Any], change: Callable[[dict[str, Any]], Any], fact: str
) -> None:
    with pytest.raises(SourceError, match=fact):
        release_from_dict(changed(plain, change))
