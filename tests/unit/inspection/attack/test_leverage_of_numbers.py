"""An attacker who knows everybody's number: our releases give nobody away, without the rule they do."""

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from tests.bad_releases import outlier_in_number
from tests.described import as_values

import kanab as kb
from kanab.inspection.attack.findings import Finding
from kanab.inspection.attack.known_people import KnownPeople, place_people
from kanab.inspection.attack.published import AttackedRelease, published_from_dict
from kanab.inspection.attack.reconstruct import find_leverage
from kanab.inspection.attack.run import play_attacker
from kanab.inspection.auditor import check_release
from kanab.inspection.officer.account import privacy_account
from kanab.privacy import gate
from kanab.privacy.numbers.rule import WeighedNumbers
from kanab.privacy.release import Release
from kanab.privacy.release_json import release_to_dict


def shop(people: int, seed: int, largest: float) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    before = np.round(rng.gamma(1.5, 20, people), 2)
    spend = np.round(rng.gamma(1, 30, people), 2)
    before[7], spend[7] = largest, 431.5
    return {
        "variant": rng.choice(["A", "B"], people),
        "tier": rng.choice([1, 2, 3], people),
        "device": rng.choice(["app", "web"], people),
        "before": before,
        "spend": spend,
    }


def released(rows: dict[str, Any], adjust: tuple[str, ...] = ("tier", "device", "before")) -> Release:
    ends = {"spend": (0, 500), "before": (0, 20_000)}
    return kb.release(
        kb.count(rows, **as_values("count", arm="variant", metrics=["spend"], adjust=list(adjust), bounds=ends))
    )


def without_the_rule(rows: dict[str, Any]) -> Release:
    with patch.object(gate, "weigh_numbers", lambda *_: WeighedNumbers()):
        return released(rows)


def known(rows: dict[str, Any], release: Release) -> tuple[AttackedRelease, KnownPeople]:
    shown = published_from_dict(release_to_dict(release), "shown")
    return shown, KnownPeople({name: rows[name] for name in ("variant", "tier", "device")}, {"before": rows["before"]})


def found(people: KnownPeople, release: AttackedRelease, k: int) -> list[Finding]:
    """What leverage finds about what is not known."""
    return [finding for finding in find_leverage(place_people(people, [release]), k) if finding.metric == "spend"]


@pytest.mark.slow
@pytest.mark.parametrize(("people", "largest"), [(400, 420), (2_000, 950), (8_000, 1_900)])
def test_an_outlier_in_a_number_is_exposed_without_the_rule_and_not_on_our_releases(
    people: int, largest: float
) -> None:
    rows = shop(people, 1, largest)
    bad, people_known = known(rows, without_the_rule(rows))
    (finding,) = found(people_known, bad, 10)
    assert (finding.metric, finding.people) == ("spend", 1)
    assert "person 8" in finding.learnt
    release, people_known = known(rows, released(rows))
    assert not play_attacker([release], people_known).broken


@pytest.mark.parametrize(("people", "seed"), [(400, 4), (2_000, 5), (8_000, 6)])
def test_what_our_releases_publish_of_numbers_tells_nobody(people: int, seed: int) -> None:
    rows = shop(people, seed, largest=60)
    made = released(rows)
    assert any(table.crosses for table in made.tables.values()) == (people > 400)
    release, people_known = known(rows, made)
    played = play_attacker([release], people_known)
    assert not played.broken, str(played)


def test_the_fewest_people_that_sums_rest_on_are_those_of_the_receipt() -> None:
    rows = shop(3_000, 7, largest=60)
    release, people_known = known(rows, made := released(rows))
    effective = made.receipt.effective_k or 0
    assert found(people_known, release, effective) == []
    (finding,) = found(people_known, release, 2 * effective)
    assert finding.people >= effective


def test_numbers_that_are_not_these_peoples_say_nothing() -> None:
    bad = outlier_in_number()
    assert bad.known is not None
    others = {name: values + 1 for name, values in bad.known.values.items()}
    assert len(found(bad.known, bad.releases[0], 10)) == 1
    assert found(KnownPeople(bad.known.levels, others), bad.releases[0], 10) == []
    assert found(KnownPeople(bad.known.levels), bad.releases[0], 10) == []


def test_auditor_and_officer_name_the_numbers_that_weigh_sums() -> None:
    made = released(shop(3_000, 7, largest=60))
    (overlap,) = [check for check in check_release(made) if check.rule == "overlap"]
    assert overlap.says.startswith(
        "no combination of published sums of one metric, also those weighted by before, rests on fewer"
    )
    tables = privacy_account({"shop": made})["releases"][0]["tables"]
    assert {"metrics": ["before", "spend"], "by": ["variant"]} in tables[0]["products"]
    assert "adjustment: for before as it is, by its products with every metric" in tables[0]["why"]
