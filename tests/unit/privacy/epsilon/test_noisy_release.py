"""Releases with ε: what leaves, what decides it, and what is refused before anything is drawn."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.described import as_values
from tests.unit.privacy.epsilon.shop import SHOP, SMALL, counted, few, people, silent

from kanab.counted import Counted
from kanab.counting.dispatch import count
from kanab.errors import MissingExtraError, PrivacyError
from kanab.plan.file import parse_plan
from kanab.privacy.covariate_pairs import MOST_CELLS
from kanab.privacy.epsilon import mechanism, noisy_release
from kanab.privacy.epsilon.accountant import NO_LEDGER
from kanab.privacy.epsilon.combined import combine_arms
from kanab.privacy.epsilon.split import noisy_tables
from kanab.privacy.gate import release
from kanab.privacy.release import Release
from kanab.privacy.release_json import release_from_dict, release_to_dict
from kanab.stats.noise_variance import FEWEST_DEVIATIONS
from kanab.tally.noise import AddedNoise, twice_centre
from kanab.tally.tally import Tally

__all__ = ["silent"]  # a fixture

pytest.importorskip("opendp")


def merged(tally: Tally, made: Release, name: str) -> Tally:
    """An exact table with the levels of a released one."""
    for factor in made.tables[name].covariates:
        levels = made.receipt.maps.get(name)
        tally = tally if levels is None else levels.apply(tally)
        wanted = made.tables[name].factor(factor.name)
        tally = tally._fold(wanted, [wanted.index(level) for level in tally.factor(factor.name).levels])
    return tally


def same(first: Tally, second: Tally) -> None:
    assert [factor.levels for factor in first.factors] == [factor.levels for factor in second.factors]
    assert first.people.tolist() == second.people.tolist()
    for part in first.moments:
        other = second.moments_of(part.metric.name)
        assert part.counts.tolist() == other.counts.tolist()
        assert part.sums.tolist() == other.sums.tolist()
        for by, cells in part.squares.items():
            assert cells.tolist() == other.squares_by(by, second.axes).tolist()
    for cross in first.crosses:
        assert cross.products.tolist() == second.cross(*cross.pair).products.tolist()


@pytest.mark.usefixtures("silent")
def test_with_noise_of_0_every_number_is_the_exact_one() -> None:
    exact = counted(people())
    made = release(exact)
    assert [*made.tables] == [
        "checkout", "banner", "checkout/age", "checkout/device", "checkout/tier", "checkout/latency",
        "checkout/banner", "checkout/age/device", "checkout/age/tier", "checkout/device/tier",
    ]  # fmt: skip
    for name, table in made.tables.items():
        if name in exact.tallies:
            same(table, merged(exact.tallies[name], made, name))
    same(made.tables["checkout"], exact.tallies["checkout/tier"].keep())
    crosses = {cross.pair for cross in made.tables["checkout/tier"].crosses}
    assert crosses == {("spend", "orders"), ("before", "spend"), ("before", "orders"), ("before", "cancelled")}
    rows = people()
    pair = made.tables["checkout/device/tier"]
    there = (rows["checkout"] == "B") & (rows["device"] == "phone") & (rows["tier"] == 2)
    assert pair.people[1, pair.factor("device").index("phone"), pair.factor("tier").index(2)] == there.sum()
    assert "before and latency" in next(iter(made.receipt.left_out))


def test_a_release_with_noise_is_the_same_after_json() -> None:
    made = release(counted(people()))
    plain = json.loads(json.dumps(release_to_dict(made)))
    read = release_from_dict(plain)
    assert json.dumps(release_to_dict(read)) == json.dumps(plain)
    assert read.tables == made.tables
    for name, table in made.tables.items():
        mine, theirs = arrays(table.noise), arrays(read.tables[name].noise)
        assert mine.keys() == theirs.keys()
        assert all(np.array_equal(cells, theirs[key]) for key, cells in mine.items())


def arrays(noise: AddedNoise | None) -> dict[Any, Any]:
    assert noise is not None
    parts = {("sums", name): part.sums for name, part in noise.metrics.items()}
    parts |= {("counts", name): noise.counts_of(name) for name in noise.metrics}
    parts |= {
        ("squares", name, by): cells for name, part in noise.metrics.items() for by, cells in part.squares.items()
    }
    return parts | dict(noise.products) | {"people": noise.people}


@pytest.mark.slow
def test_numbers_are_right_on_average_and_vary_as_the_receipt_says() -> None:
    text = SMALL + 'interactions = ["banner"]\n[experiments.banner]\narms = { off = 1, on = 1 }\n'
    text = text.replace(
        "[covariates]", '[metrics.x]\nbounds = [-3, 5]\nresolution = 0.5\nmissing = "exclude"\n[covariates]'
    )
    rows = few(2000) | {"banner": ["off", "on", "on"] * 666 + ["off"] * 2, "x": [0.5, None, -2.5, 4.0] * 500}
    exact = count(rows, parse_plan(text.replace("epsilon = 3", "epsilon = 20")))
    errors: dict[str, list[float]] = {}
    for _ in range(80):
        made = release(exact)
        for name in ("variant", "variant/tier", "variant/banner"):
            table, whole = made.tables[name], exact.tallies.get(name, exact.tallies["variant/tier"].keep())
            whole = merged(whole, made, name)
            for key, z in scores(table, whole).items():
                errors.setdefault(key, []).extend(z)
    assert errors.keys() == {"people", "counts", "sums", "squares"}
    for key, z in errors.items():
        assert abs(np.mean(z)) < 5 / np.sqrt(len(z)), key
        assert abs(np.var(z) - 1) < 5 * np.sqrt(2 / len(z)), key


def scores(table: Tally, exact: Tally) -> dict[str, list[float]]:
    """Errors of what was measured, in standard deviations that are stated."""
    noise = table.noise
    assert noise is not None
    z: dict[str, list[float]] = {"people": [*((table.people - exact.people) / np.sqrt(floats(noise.people))).flat]}
    for part in table.moments:
        old, own, c = exact.moments_of(part.metric.name), noise.metrics[part.metric.name], twice_centre(part.metric) / 2
        if own.counts is not None:
            z["counts"] = [*((part.counts - old.counts) / np.sqrt(floats(own.counts))).flat]
        about = (part.sums - old.sums) - c * (part.counts - old.counts)
        z.setdefault("sums", []).extend((about / np.sqrt(floats(own.sums))).flat)
        for by, cells in part.squares.items():
            n, s = (table_marginal(new - before, table, by) for new, before in
                    ((part.counts, old.counts), (part.sums, old.sums)))  # fmt: skip
            about = cells - old.squares_by(by, exact.axes) - 2 * c * s + c**2 * n
            z.setdefault("squares", []).extend((about / np.sqrt(floats(own.squares[by]))).flat)
    return z


def table_marginal(cells: Any, table: Tally, by: tuple[str, ...]) -> Any:
    return cells.sum(axis=tuple(place for place, name in enumerate(table.axes) if name not in by))


def floats(cells: Any) -> Any:
    return cells.astype(np.float64)


# ── nothing that the data decide leaves ──────────────────────────────────────────────────────


def deaf(monkeypatch: pytest.MonkeyPatch, level: int) -> None:
    """Let every measurement say the same, whatever was counted."""

    def constant(cells: Any, scale: mechanism.Scale) -> Any:
        return np.full(cells.shape, level if scale.influence == 1 else 0, dtype=object)

    monkeypatch.setattr(noisy_release, "add_noise", constant)
    monkeypatch.setattr(noisy_release, "random_bits", lambda shape, *_: np.zeros(shape, dtype=int).astype(object))


def nobody_much(n: int = 12) -> dict[str, Any]:
    """Few people, all alike, with what the other rows have not: missing, clamped and undeclared values, other arms."""
    return {
        "checkout": ["A", "C", None] * (n // 3), "banner": ["on"] * n, "spend": [1e6, None] * (n // 2),
        "orders": [-4] * n, "before": [None] * n, "latency": [3] * n, "cancelled": [1] * n, "tier": [None] * n,
        "device": ["fridge"] * n, "age": [None] * n,
    }  # fmt: skip


@pytest.mark.parametrize("level", [3, 60, 500, 5000])
def test_nothing_but_measured_numbers_leaves(monkeypatch: pytest.MonkeyPatch, level: int) -> None:
    """Where the measurements are the same, so is every byte: of thousands of people, of 12, and of 11."""
    deaf(monkeypatch, level)
    texts = [
        json.dumps(release_to_dict(replace(release(counted(rows)), salt="")), sort_keys=True)
        for rows in (people(), people(300, seed=2), nobody_much(), {k: v[1:] for k, v in nobody_much().items()})
    ]
    assert texts[0] == texts[1] == texts[2] == texts[3]


@pytest.mark.usefixtures("silent")
def test_the_receipt_has_nothing_of_the_data_but_noisy_numbers() -> None:
    rows = people() | {"spend": [500.0] * 4000}
    others = nobody_much() | {"banner": [None] * 12}
    exact = counted({name: [*values, *others[name]] for name, values in rows.items()})
    assert exact.clamped
    assert exact.missing
    assert exact.outside
    made = release(replace(exact, excluded=7, repeats=("id",), ranges={"spend": (0, 3)}, bounds_declared=False))
    receipt = made.receipt
    assert (receipt.clamped, receipt.missing, receipt.excluded, receipt.outside) == ({}, {}, 0, 0)
    assert (receipt.effective_k, receipt.homogeneous, receipt.not_enumerated, receipt.narrowest) == (None, 0, 0, None)
    assert (made.ranges, made.receipt.repeats, made.bounds_declared) == ({}, (), True)
    assert made.plan.experiment("checkout").salt is None
    assert receipt.smallest_class == min(count for table in made.tables.values() for count in table.people.flat)


@pytest.mark.usefixtures("silent")
def test_declared_levels_that_nobody_has_are_there_and_undeclared_ones_are_not() -> None:
    rows = people(6000) | {"tier": [1, 2] * 3000, "device": ["phone", "fridge"] * 3000}
    made = release(counted(rows))
    levels = made.receipt.maps["checkout/tier"].groups
    assert [old for _, olds in levels for old in olds] == [1, 2, 3, None]
    assert "fridge" not in json.dumps(release_to_dict(made))
    assert made.receipt.maps["checkout/device"].groups[-1] == ("other", ("desktop", "other", None))


@pytest.mark.parametrize("gap", [False, True])
def test_without_a_rule_who_has_no_value_is_counted_apart_even_if_everybody_has_one(
    gap: bool,
) -> None:
    rows = few() | {"spend": [1.0, 2.0, 3.0, None if gap else 4.0] * 100}
    exact = count(rows, parse_plan(SMALL.replace('missing = "zero"\n', "")))
    assert exact.plan.metrics[0].missing == ("exclude" if gap else "zero")
    made = release(exact)
    assert made.plan.metrics[0].missing == "exclude"
    assert "counts of spend by variant" in made.receipt.noise.scales["variant"]


def test_scores_of_merged_levels_come_from_counts_with_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = iter([0, 0, 0, 0, -10, 0, 0, 0, -10, 0])

    def drawn(size: int, scale: mechanism.Scale) -> list[int]:
        return [next(noise, 0) if scale.influence == 1 else 0 for _ in range(size)]

    monkeypatch.setattr(mechanism, "draw", drawn)
    text = SMALL.replace("[1, 2]", "[1, 2, 8]").replace("epsilon = 3", "epsilon = 30")
    rows = {"variant": ["A", "B"] * 400, "tier": [1] * 600 + [2] * 100 + [8] * 100, "spend": [1] * 800}
    made = release(count(rows, parse_plan(text)), k=40)
    (group,) = [new for new, olds in made.receipt.maps["variant/tier"].groups if 2 in olds]
    assert made.receipt.maps["variant/tier"].scores[group] == pytest.approx((2 * 100 + 8 * 80) / 180)


# ── what noise leaves out ───────────────────────────────────────────────────────────────────


def test_what_has_too_few_people_for_its_noise_is_left_out_with_a_sentence() -> None:
    made = release(counted(people(120)))
    assert {"checkout", "banner"} <= made.tables.keys()
    assert made.receipt.left_out["checkout/tier"] == (
        "tier is left out: its levels are too sparse for this noise, merged they would be one"
    )
    assert made.receipt.left_out["checkout/banner"] == (
        "checkout/banner is left out: too few people share its classes for this noise"
    )


def test_every_class_that_leaves_has_k_people_and_four_deviations_more() -> None:
    made = release(counted(people(2500)))
    for linkage in noisy_tables(made.plan):
        if linkage.name in made.tables and len(linkage.axes) > 1:
            table = made.tables[linkage.name]
            assert np.all(floats(table.people) >= 10 + 4 * np.sqrt(floats(table.noise.people)))


# ── refused before anything is drawn ────────────────────────────────────────────────────────

ROWS = few() | {"shop": [1, 2, 3, 4] * 100, "age": [20, 40] * 200}


def bad(**choices: Any) -> Callable[[], Any]:
    plan = {"arm": "variant", "metrics": ["spend"], "bounds": {"spend": (0, 7)}, "arms": ["A", "B"]} | choices
    return lambda: count(ROWS, **as_values("count", **plan))


@pytest.mark.parametrize(
    ("made", "fact", "remedy"),
    [
        (bad(arms=None), "needs the arms of 'variant'", "--arms A,B"),
        (bad(bounds=None), "needs the bounds of 'spend'", "--bounds spend=0:100"),
        (bad(adjust=["tier"]), "needs the levels of 'tier'", "levels = "),
        (bad(adjust=["tier"], top={"tier": 2}), "needs the levels of 'tier'", "levels = "),
        (bad(adjust=["age"], bins={"age": 2}), "needs the levels of 'age'", "--bin age=18:30:50"),
        (bad(metrics=["spend", "tier"], ratios=["spend/tier"]), "needs the bounds of 'tier'", "--bounds tier"),
        (
            bad(ratios=["spend/tier"], bounds={"spend": (0, 7), "tier": (0, 3)}),
            "products of spend and tier need a value of everybody",
            "--missing spend=zero",
        ),
    ],
)
def test_what_the_data_would_decide_is_refused(
    made: Callable[[], Any], fact: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mechanism, "draw", None)
    with pytest.raises(PrivacyError, match=re.escape(fact)) as problem:
        release(made(), epsilon=1.0)
    assert remedy in problem.value.remedy


def test_without_opendp_nothing_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism._measurement.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "opendp.prelude", None)
    with pytest.raises(MissingExtraError, match=r"kanab\[dp\]"):
        release(counted(few(), SMALL))


# ── what is said beside it ──────────────────────────────────────────────────────────────────


def test_a_small_k_and_a_large_delta_stand_in_the_receipt() -> None:
    rows, text = few(200_00), SMALL.replace("epsilon = 3", "epsilon = 3\ndelta = 1e-4")
    made = release(count(rows, parse_plan(text)), 3, override="a pilot")
    assert made.receipt.deviations == (
        "k = 3: a pilot", NO_LEDGER, "delta = 0.0001 is not below one divided by the number of people",
    )  # fmt: skip
    assert release(count(few(), parse_plan(text))).receipt.deviations == (NO_LEDGER,)


# ── arm totals of several tables ─────────────────────────────────────────────────────────────────

ALONE = SMALL.replace('adjust = ["tier"]\nsegments = ["tier"]\n', "").replace(
    "[covariates]\ntier = { levels = [1, 2] }\n", ""
)


@pytest.mark.usefixtures("silent")
def test_tables_that_agree_stay_as_they_are() -> None:
    made = release(counted(people()))
    own = made.tables_of("checkout")
    combined = combine_arms(own["checkout"], own.values())
    assert combined == own["checkout"]
    assert [cross.products.tolist() for cross in combined.crosses] == [
        cross.products.tolist() for cross in own["checkout"].crosses
    ]


def test_a_single_table_is_its_own_combination() -> None:
    made = release(count(few(), parse_plan(ALONE)))
    assert made.totals("variant") is made.tables["variant"]


@pytest.mark.slow
def test_combined_totals_are_right_on_average_and_vary_as_stated_less_than_any_table() -> None:
    text = SMALL.replace('missing = "zero"', 'missing = "exclude"').replace("epsilon = 3", "epsilon = 10")
    text = text.replace("[covariates]", '[metrics.hit]\nkind = "binary"\nmissing = "zero"\n[covariates]')
    rows = few() | {"hit": [0, 1, 1, 0, 0] * 80, "spend": [0, 7, None, 1, 1] * 80}
    exact = count(rows, parse_plan(text))
    whole = exact.tallies["variant/tier"].keep()
    errors: dict[str, list[float]] = {}
    for _ in range(100):
        made = release(exact)
        totals, alone = made.totals("variant"), made.tables["variant"]
        noise = totals.noise
        assert noise is not None
        assert alone.noise is not None
        assert np.all(noise.people < alone.noise.people)
        for key, values in scores(totals, whole).items():
            errors.setdefault(key, []).extend(values)
    assert errors.keys() == {"people", "sums", "counts", "squares"}
    for key, values in errors.items():
        assert abs(np.mean(values)) < 5 / np.sqrt(len(values)), key
        assert abs(np.var(values) - 1) < 5 * np.sqrt(2 / len(values)), key


def test_people_weigh_tables_by_the_inverse_of_their_noise() -> None:
    made = release(count(few(), parse_plan(SMALL)))
    alone, tier = made.tables["variant"], made.tables["variant/tier"].keep()
    assert alone.noise is not None
    assert tier.noise is not None
    v, w = float(alone.noise.people[0]), float(tier.noise.people[0])
    expected = (alone.people / v + tier.people / w) / (1 / v + 1 / w)
    totals = made.totals("variant")
    assert np.all(np.abs(totals.people - expected) <= 0.5 + 1e-9)
    assert totals.noise is not None
    assert float(totals.noise.people[0]) == pytest.approx(1 / (1 / v + 1 / w) + 1 / 12)


def test_products_are_those_about_the_middles_whatever_the_combined_sums_are() -> None:
    made = release(counted(people(), SHOP))
    totals, alone = made.totals("checkout"), made.tables["checkout"]
    assert totals.moments_of("spend").sums.tolist() != alone.moments_of("spend").sums.tolist()
    for cross in alone.crosses:
        new = totals.cross(*cross.pair)
        g, h = (twice_centre(alone.moments_of(name).metric) for name in cross.pair)
        about = [4 * c.products - 2 * h * c.sums[0] - 2 * g * c.sums[1] + g * h * c.counts for c in (cross, new)]
        assert np.all(np.abs(about[0] - about[1]) <= 2)


# ── tables of two covariates ─────────────────────────────────────────────────────────────────────

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
