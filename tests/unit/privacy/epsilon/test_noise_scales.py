"""Releases with noise that were changed: what they state is worked out again, from their plan."""

import copy
import json
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


GONE = object()


def pop_from_a_group(groups: list[Any]) -> list[Any]:
    return [[new, olds[:-1] if len(olds) > 1 else olds] for new, olds in groups]


@pytest.mark.parametrize(
    ("path", "new", "fact"),
    [
        (
            ("receipt", "noise", "scales", "checkout", "people by checkout"),
            1.0,
            "the noise that this release states",
        ),
        (("receipt", "noise", "epsilon"), 1.0, "the ε that this release states"),
        (("receipt", "noise", "mechanism"), "none", "the ε that this release states"),
        (("plan", "privacy"), GONE, "the ε that this release states"),
        (("levels", "checkout/tier"), GONE, "the levels of this release"),
        (("levels", "checkout/tier", "groups"), pop_from_a_group, "the levels of this release"),
        (
            ("tables", "checkout/age/tier"),
            lambda table: json.loads(json.dumps(table).replace('"A"', '"Z"')),
            "the levels of this release",
        ),
        (("tables", "checkout/tier"), GONE, "the levels of this release"),
        (("tables",), lambda tables: tables | {"elsewhere": tables["checkout"]}, "a table of this release"),
    ],
)
def test_a_release_whose_noise_is_not_that_of_its_plan_is_refused(
    plain: dict[str, Any], path: tuple[str, ...], new: Any, fact: str
) -> None:
    other = copy.deepcopy(plain)
    *way, last = path
    place = other
    for name in way:
        place = place[name]
    if new is GONE:
        del place[last]
    else:
        place[last] = new(place[last]) if callable(new) else new
    with pytest.raises(SourceError, match=f"^{fact} (is|are) not (those |that )?(of|in) its plan"):
        release_from_dict(other | {"hash": hash_of(other)})
