from __future__ import annotations

import pickle
import tempfile
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import kanab as kb
from kanab.counting.connect import open_table
from kanab.counting.engine.sql import count_table
from kanab.counting.rows import count_rows
from kanab.errors import PrivacyError
from kanab.inspection.attack.background import place_people
from kanab.inspection.attack.nested_classes import find_nested_classes
from kanab.inspection.attack.published import AttackedRelease, published_from_dict
from kanab.plan.model import MetricPlan, Plan, make_plan
from kanab.privacy import gate
from kanab.privacy.audit import MEANING, audit_table
from kanab.privacy.budget import withhold_rare_values
from kanab.privacy.gate import release
from kanab.privacy.release import Release
from kanab.privacy.release_json import release_to_dict
from kanab.privacy.subtraction import nested_classes
from kanab.privacy.subtraction.nested_classes import withhold_nested_classes

Rows = dict[str, Any]
HOME = {"north": ("Norway", "Sweden"), "south": ("Spain", "Italy"), "west": ("Ireland", "France")}
ISLES = ("isle 1", "isle 2", "isle 3")
WHY = (
    "spend is withheld in variant/region: beside variant/country it shows, by subtraction, classes that no table has, "
    "and a class has fewer than 3 people with a value that is not zero"
)


def shop(seed: int, total: int = 1_500) -> Rows:
    """People of two countries per region, and of isles that are too small for a level of their own."""
    rng = np.random.default_rng(seed)
    region = rng.choice([*HOME], total)
    shares = [0.46, 0.46, 0.027, 0.027, 0.026]
    country = [rng.choice([*HOME[home], *(f"{home} {isle}" for isle in ISLES)], p=shares) for home in region]
    bought = rng.random(total) < 0.06
    spend = np.where(bought, np.minimum(500, np.round(10 + rng.gamma(2, 15, total), 2)), 0)
    variant = rng.choice(["A", "B"], total)
    return {"variant": variant, "region": region, "country": np.array(country), "bought": bought * 1, "spend": spend}


def plan(*covariates: str, of: str | None = "bought", segments: bool = False) -> Plan:
    metrics = (MetricPlan("bought", binary=True), MetricPlan("spend", (0, 500), 0.01, of=of))
    use = {"segments" if segments else "adjust": list(covariates)}
    return replace(make_plan("variant", ["bought", "spend"], **use), metrics=metrics)  # type: ignore[arg-type]


def attacked(released: Release) -> AttackedRelease:
    return published_from_dict(release_to_dict(released), "ours")


def told(rows: Rows, *releases: AttackedRelease) -> int:
    """How many lone buyers, or two, the attack finds if it knows which country is where."""
    known = place_people({name: rows[name] for name in ("variant", "region", "country")}, releases)
    return sum(finding.people < 3 for finding in find_nested_classes(releases, 10, known))


SEEDS = (3, 9, 19, 24)


@pytest.mark.slow
def test_a_region_without_its_countries_tells_lone_buyers_if_only_tables_are_audited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gate, "VALUE_RULES", (withhold_rare_values,))
    made = {seed: release(kb.count(shop(seed), plan("region", "country"))) for seed in SEEDS}
    assert [told(shop(seed), attacked(made[seed])) for seed in SEEDS] == [1, 7, 3, 4]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_metric_is_withheld_in_the_later_table_where_subtracting_would_tell_a_lone_buyer(seed: int) -> None:
    made = release(kb.count(shop(seed), plan("region", "country")))
    assert made.receipt.left_out["variant/region: spend"] == WHY
    assert made.tables["variant/region"].metric_names == ("bought",)
    assert made.tables["variant/country"].metric_names == ("bought", "spend")
    assert told(shop(seed), attacked(made)) == 0


def test_one_or_two_buyers_dominate_a_remainder_also_where_no_metric_says_who_bought() -> None:
    made = release(kb.count(shop(9), plan("region", "country", of=None)))
    assert made.receipt.left_out["variant/region: spend"].endswith(MEANING["dominance"])


@pytest.mark.slow
def test_an_engine_withholds_the_same() -> None:
    pytest.importorskip("ibis")
    for seed in SEEDS:
        for of in ("bought", None):
            chosen = plan("region", "country", of=of)
            in_memory, engine = count_rows(shop(seed), chosen), count_table(open_table(shop(seed)), chosen)
            assert release(engine).receipt.left_out == release(in_memory).receipt.left_out


def test_what_was_released_before_stays_and_the_new_table_gives_way(tmp_path: Path) -> None:
    rows, ledger = shop(9), tmp_path / "kanab.ledger"
    first = release(kb.count(rows, plan("region")), ledger=ledger, new_ledger=True)
    assert "spend" in first.tables["variant/region"].metric_names
    second = release(kb.count(rows, plan("country"), earlier=[first.plan]), ledger=ledger)
    assert second.receipt.left_out["variant/country: spend"] == WHY.replace("region", "?").replace(
        "country", "region"
    ).replace("?", "country")
    assert told(rows, attacked(first), attacked(second)) == 0


def test_a_merged_level_without_what_another_release_shows_of_it_is_audited(tmp_path: Path) -> None:
    """First 2 and 3 are one level, then 3 and 4: level 2 by itself is in no table, and one person of it bought."""
    tier = np.repeat([1, 2, 3, 4], [400, 60, 400, 400])
    variant = np.tile(["A", "B"], 630)
    spend = np.where(np.arange(1_260) % 7 == 0, np.round(20.13 + 1.37 * (np.arange(1_260) % 11), 2), 0)
    spend[tier == 2] = 0
    spend[400] = 73.46
    rows = {"variant": variant, "low": np.where(np.isin(tier, [2, 3]), "2 or 3", tier.astype(str)), "tier": tier,
            "high": np.where(tier > 2, "3 or 4", np.where(tier == 1, "1", "1 or 2")), "spend": spend}  # fmt: skip
    chosen = {"bounds": {"spend": (0, 500)}, "resolution": {"spend": 0.01}}
    first = make_plan("variant", ["spend"], adjust=["low"], **chosen)  # type: ignore[arg-type]
    rows["high"] = np.where(np.isin(tier, [1, 2]), "1 or 2", tier.astype(str))
    ledger = tmp_path / "kanab.ledger"
    release(kb.count(rows, first), ledger=ledger, new_ledger=True)
    second = make_plan("variant", ["spend"], adjust=["high"], **chosen)  # type: ignore[arg-type]
    made = release(kb.count(rows, second, earlier=[first]), ledger=ledger)
    assert made.receipt.left_out["variant/high: spend"].endswith(MEANING["dominance"])


def test_squares_of_levels_are_subtracted_too() -> None:
    """With segments squares are known by level: on the northern isles one person has 120, and 42 have the cap."""
    rows = shop(9)
    rest = np.array([" isle " in country for country in rows["country"]])
    north = rest & (rows["region"] == "north")
    rows["spend"] = np.where(north, 500.0, np.round(np.random.default_rng(1).uniform(0, 500, len(rest)), 2))
    rows["spend"][np.argmax(north)] = 120.0
    adjusted = release(kb.count(rows, plan("region", "country", of=None)))
    assert adjusted.receipt.left_out == {}
    segments = release(kb.count(rows, plan("region", "country", of=None, segments=True)))
    assert segments.receipt.left_out["variant/region: spend"].endswith(MEANING["interval"])


def test_people_without_a_value_are_no_part_of_a_remainder() -> None:
    rows = shop(3)
    chosen = plan("region", "country")
    excluding = replace(chosen, metrics=(chosen.metrics[0], replace(chosen.metrics[1], missing="exclude", of=None)))
    rows["spend"] = np.where(rows["country"] == "Norway", np.nan, rows["spend"])
    made = release(kb.count(rows, excluding))
    assert all("Traceback" not in why for why in made.receipt.left_out.values())
    assert told(rows, attacked(made)) == 0


def test_nothing_is_withheld_where_countries_make_up_their_regions() -> None:
    rows = shop(9)
    rows["country"] = np.array([HOME[home][0] if " isle " in name else name
                                for home, name in zip(rows["region"], rows["country"], strict=True)])  # fmt: skip
    made = release(kb.count(rows, plan("region", "country")))
    assert made.receipt.left_out == {}


def test_values_of_signatures_are_neither_shown_nor_pickled() -> None:
    counted = kb.count(shop(9), plan("region", "country"))
    assert counted.signatures is not None
    assert set(counted.signatures.values) == {"spend"}
    assert "SignatureValues" not in repr(counted.signatures) + repr(counted)
    assert dict(pickle.loads(pickle.dumps(counted.signatures)).values) == {}


def test_where_the_largest_values_are_not_known_the_bounds_are_assumed() -> None:
    counted = kb.count(shop(9), plan("region", "country", of=None))
    assert counted.signatures is not None
    unknown = replace(counted, signatures=replace(counted.signatures, values={}))
    assert release(unknown).receipt.left_out["variant/region: spend"].endswith(MEANING["dominance"])


def test_without_signatures_nothing_is_known_to_be_inside() -> None:
    counted = replace(kb.count(shop(9), plan("region", "country")), signatures=None)
    assert withhold_nested_classes(counted, []) == {}


# ── against brute force ────────────────────────────────────────────────────────────────────────


def groups_of(rows: Rows, released: Release, name: str) -> list[NDArray[np.bool_]]:
    """Everybody's membership in every class of a published table."""
    table = released.tables[name]
    covariate = table.covariates[0].name
    levels = released.receipt.maps.get(name)
    placed = np.array([str(levels.target(x) if levels is not None else x) for x in rows[covariate].tolist()])
    return [
        (rows["variant"] == arm) & (placed == str(level))
        for arm in table.arms[0].levels
        for level in table.covariates[0].levels
    ]


@pytest.mark.slow
@given(st.integers(0, 100_000), st.integers(300, 2_500), st.sampled_from([0.02, 0.06, 0.3]), st.booleans())
@settings(deadline=None, max_examples=60, derandomize=True)
def test_every_remainder_of_nested_classes_obeys_the_audit(seed: int, total: int, rate: float, two: bool) -> None:
    rng = np.random.default_rng(seed)
    city = rng.choice(24, total, p=rng.dirichlet(np.full(24, 0.7)))
    rows: Rows = {"variant": rng.choice(["A", "B"], total), "city": city, "country": city // 3, "region": city // 9}
    bought = rng.random(total) < rate
    rows |= {
        "bought": bought * 1,
        "spend": np.where(bought, np.round(np.minimum(500, rng.lognormal(3, 1, total)), 2), 0),
    }
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "kanab.ledger"
        plans = [plan("region", "city"), plan("country")] if two else [plan("region", "country", "city")]
        made: list[Release] = []
        for chosen in plans:
            try:
                made.append(
                    release(
                        kb.count(rows, chosen, earlier=[old.plan for old in made]), ledger=ledger, new_ledger=not made
                    )
                )
            except PrivacyError:
                return
    tables = [
        groups_of(rows, each, name)
        for each in made
        for name, table in each.tables.items()
        if "spend" in table.metric_names and len(table.covariates) == 1
    ]
    for outer, inner in permutations(tables, 2):
        for group in outer:
            inside = [other for other in inner if other.any() and not (other & ~group).any()]
            rest = group & ~np.any(inside, axis=0) if inside else np.zeros(total, dtype=bool)
            if rest.any():
                spend = np.sort(np.round(rows["spend"][rest] * 100).astype(int))[::-1]
                assert len(spend) >= 10
                assert spend[2] > 0 or spend[0] == 0
                assert 10 * spend[2:].sum() >= spend[0]
                assert 10 * spend[:2].sum() <= 9 * spend.sum()
                assert spend[0] > spend[-1] or spend[0] in (0, 50_000)


def test_groups_with_the_same_numbers_are_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = []

    def audit(name: str, tally: kb.Tally, *rest: Any, largest: Any, **more: Any) -> Any:
        values = {metric: [*map(list, (known.largest, known.second, known.total))] for metric, known in largest.items()}
        judged.append(
            f"{[(part.metric.name, *map(list, (part.counts, part.sums))) for part in tally.moments]} {values}"
        )
        return audit_table(name, tally, *rest, largest=largest, **more)

    monkeypatch.setattr(nested_classes, "audit_table", audit)
    rng = np.random.default_rng(1)
    rows = shop(1) | {"device": rng.choice(["phone", "tablet"], 1_500)}
    rows["system"] = np.where(rows["device"] == "phone", rng.choice(["iOS", "Android"], 1_500), "iOS")
    release(kb.count(rows, plan=plan("region", "country", "device", "system")))
    assert len(judged) == len({*judged}) > 5
