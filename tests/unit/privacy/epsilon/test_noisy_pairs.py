"""Tables of people by two covariates with noise."""

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.privacy.epsilon.shop import SHOP, counted, people, silent

from kanab.counted import Counted
from kanab.privacy.covariate_pairs import MOST_CELLS
from kanab.privacy.gate import release
from kanab.stats.noise_variance import FEWEST_DEVIATIONS

__all__ = ["silent"]  # a fixture

pytest.importorskip("opendp")

PAIRS = ["checkout/age/device", "checkout/age/tier", "checkout/device/tier"]


def collected(exact: Counted) -> Counted:
    """As a collector counts: combinations of levels are known within one experiment, or not at all."""
    assert exact.signatures is not None
    return replace(exact, signatures=replace(exact.signatures, within="experiment"))


@pytest.mark.parametrize("known", [True, False])
def test_a_collectors_pairs_are_left_out_whatever_is_known_of_its_people(known: bool) -> None:
    exact = counted(people())
    made = release(collected(exact) if known else replace(exact, signatures=None))
    assert not {*PAIRS} & made.tables.keys()
    assert made.receipt.left_out["checkout/age/tier"] == (
        "age × tier is left out: a collector counts people by one covariate at a time"
    )


def test_a_pair_has_the_levels_of_its_covariates_and_enough_people_or_as_good_as_nobody() -> None:
    made = release(counted(people(3000)))
    for name in {*PAIRS} & made.tables.keys():
        table = made.tables[name]
        assert table.noise is not None
        noise = np.sqrt(table.noise.people.astype(float))
        n = table.people.astype(float)
        assert np.all((n >= 10 + FEWEST_DEVIATIONS * noise) | (np.abs(n) <= FEWEST_DEVIATIONS * noise))
        assert table.people.size <= MOST_CELLS
        for factor in table.covariates:
            single = made.tables[f"checkout/{factor.name}"].factor(factor.name)
            further = made.receipt.maps.get(f"{name}: {factor.name}")
            levels = single.levels if further is None else tuple(new for new, _ in further.groups)
            assert {*factor.levels} == {*levels}


@pytest.mark.usefixtures("silent")
def test_classes_with_too_few_people_are_merged_with_one_map_for_all_pairs() -> None:
    rows = people(6000)
    rare = (rows["tier"] == 3) & (rows["age"] < 30)
    keep = ~rare | (np.cumsum(rare) <= 108)
    made = release(counted({name: values[keep] for name, values in rows.items()}))
    merged = {name: levels.groups for name, levels in made.receipt.maps.items() if ": " in name}
    assert merged
    for covariate in ("age", "tier", "device"):
        maps = {groups for name, groups in merged.items() if name.endswith(f": {covariate}")}
        assert len(maps) <= 1
    shapes = {name: made.tables[name].shape for name in PAIRS if name in made.tables}
    assert any(size < 3 for shape in shapes.values() for size in shape[1:])
    table = made.tables["checkout/age/tier"]
    assert table.total == sum(keep)


@pytest.mark.usefixtures("silent")
def test_a_pair_of_two_levels_each_that_still_has_too_few_people_is_left_out() -> None:
    rows = people(3000)
    rows["device"] = np.where(rows["tier"] == 1, "phone", np.where(np.arange(3000) % 20 == 0, "phone", "desktop"))
    text = SHOP.replace("tier = { levels = [1, 2, 3] }", "tier = { levels = [1, 2] }")
    made = release(counted(rows | {"tier": np.minimum(rows["tier"], 2)}, text))
    assert made.receipt.left_out["checkout/device/tier"] == (
        "device × tier is left out: too few people share its classes for this noise"
    )
