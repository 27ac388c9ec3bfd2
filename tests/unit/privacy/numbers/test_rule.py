"""Products with numbers at the gate: what leaves, what is withheld with which sentence, and what a ledger remembers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.described import as_values

from kanab.analysis.api import analyze
from kanab.counted import Counted
from kanab.counting.dispatch import count
from kanab.description import Mean, Number
from kanab.errors import PrivacyError
from kanab.privacy.gate import release
from kanab.privacy.ledger import read_ledger
from kanab.privacy.numbers.design import NumberDesign
from kanab.privacy.numbers.rule import APART, BUYERS, EXPOSED, UNCHECKED, UNKNOWN
from kanab.privacy.release import Release

BOUNDS: dict[str, tuple[float, float]] = {"before": (0, 200), "visits": (0, 60), "y": (0, 300)}


def shop(people: int = 4000, seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    before = np.round(rng.gamma(1.5, 20, people), 2).clip(0, 200)
    return {
        "arm": rng.choice(["A", "B"], people),
        "tier": rng.integers(1, 4, people),
        "device": rng.choice(["app", "web"], people),
        "before": before,
        "visits": rng.gamma(2, 3, people).round(1),
        "y": np.round(before * 0.5 + rng.gamma(1, 5, people), 2),
    }


def counted(rows: dict[str, Any], adjust: list[str], **choices: Any) -> Counted:
    bounds = {name: ends for name, ends in (BOUNDS | choices.pop("bounds", {})).items() if name in {*adjust, "y", "z"}}
    steps = dict.fromkeys(bounds, 0.01)
    return count(
        rows,
        **as_values(
            "count",
            arm="arm",
            metrics=choices.pop("metrics", ["y"]),
            adjust=adjust,
            bounds=bounds,
            resolution=steps,
            **choices,
        ),
    )


def products(made: Release) -> set[tuple[str, str]]:
    return {cross.pair for table in made.tables.values() for cross in table.crosses}


def outlier(rows: dict[str, Any], value: float, place: int = 5) -> dict[str, Any]:
    before = rows["before"].copy()
    before[place] = value
    return rows | {"before": before}


def test_products_of_even_numbers_leave_and_lower_the_effective_k() -> None:
    without, made = (release(counted(shop(), adjust)) for adjust in (["tier"], ["tier", "before", "visits"]))
    assert products(made) == {("before", "y"), ("visits", "y"), ("before", "visits")}
    assert 10 <= (made.receipt.effective_k or 0) < (without.receipt.effective_k or 0)


def test_products_with_an_outlier_are_withheld_and_the_number_itself_stays() -> None:
    rows = outlier(shop(), 2000)
    made = release(counted(rows, ["tier", "before", "visits"], bounds={"before": (0, 5000)}))
    assert products(made) == {("visits", "y")}
    assert made.receipt.left_out["arm: products of before"] == EXPOSED.format(
        number="before", experiment="arm", others="tier", flag="--bounds before=LOW:HIGH"
    )
    assert "2000" not in str(made.receipt.left_out)


@pytest.mark.parametrize(("buyers", "leave"), [(5, False), (6, True)])
def test_products_of_an_amount_need_three_buyers_in_an_arm_for_every_sum(buyers: int, leave: bool) -> None:
    """A sum and one that a number weighs are two equations about the buyers of an arm."""
    rows = shop()
    has = np.zeros(len(rows["y"]), dtype=bool)
    for arm in ("A", "B"):
        has[np.flatnonzero(rows["arm"] == arm)[: buyers if arm == "B" else 400]] = True
    rows["y"] = np.where(has, np.round(np.abs(rows["y"]) + 0.37 + np.arange(len(has)) % 7, 2), 0)
    made = release(counted(rows, ["before"], bounds={"y": (0, 500)}))
    assert (("before", "y") in products(made)) is leave
    why = made.receipt.left_out.get("arm: before and y", "")
    assert why == ("" if leave else BUYERS.format(number="before", metric="y", experiment="arm"))


def test_numbers_are_added_in_the_order_of_their_names() -> None:
    rows = shop()
    rows["also"] = rows["before"] + np.random.default_rng(2).choice([-0.01, 0.01], 4000)
    rows["also"][5] += 10  # nothing beside a spread of 25, everything beside the difference
    ends = {"also": (-1.0, 250.0)}
    made = release(counted(rows, ["tier", "before", "also"], bounds=ends))
    assert products(made) == {("also", "y")}
    for alone in ("before", "also"):
        assert products(release(counted(rows, ["tier", alone], bounds=ends))) == {(alone, "y")}


def test_the_leverage_rule_holds_over_products_and_tables_of_two_covariates() -> None:
    made = release(counted(shop(), ["tier", "device", "before"]))
    assert set(made.tables) == {"arm/tier", "arm/device", "arm/device/tier"}
    assert made.receipt.effective_k == release(counted(shop(), ["tier", "before"])).receipt.effective_k


def test_people_who_lack_an_outcome_are_not_in_its_products() -> None:
    rows = shop()
    rows["z"] = np.where(np.arange(4000) % 3 == 0, np.nan, rows["y"].round(0))
    # Of those who have z one stands out; among all others nobody would notice.
    rows = outlier(rows, 190, place=1)
    few = np.isfinite(rows["z"]) & (np.arange(4000) != 1)
    rows["before"] = np.where(few, np.minimum(rows["before"], 3), rows["before"])
    choices: dict[str, Any] = {"metrics": ["y", "z"], "missing": {"z": "exclude"}, "bounds": {"z": (0, 300)}}
    made = release(counted(rows, ["before"], **choices))
    assert products(made) == {("before", "y")}, "what everybody has is adjusted for all the same"
    why = made.receipt.left_out["arm: before and z"]
    assert why.startswith("products of before and z are withheld in arm: few people have so extreme values of before")
    assert "--missing 'z=zero'" in why or "--missing z=zero" in why
    zero = release(counted(rows, ["before"], **choices | {"missing": {"z": "zero"}}))
    assert products(zero) == {("before", "y"), ("before", "z")}, "the remedy that the sentence names"


def test_a_metric_that_no_class_may_show_keeps_its_products_by_arm() -> None:
    rows = shop()
    rows["rating"] = np.where(np.arange(4000) % np.choose(rows["tier"] - 1, (9, 400, 9)) == 0, np.nan, rows["y"])
    rows["opened"] = (np.arange(4000) % 3 == 0).astype(int)
    made = release(
        count(
            rows,
            arm="arm",
            metrics=[Mean("rating", bounds=(0, 300), resolution=0.01, missing="exclude")],
            adjust=["tier", Number("before", bounds=(0, 60), resolution=0.01)],
            treatment_received="opened",
        )
    )
    assert "rating" not in made.tables["arm/tier"].metric_names
    assert {frozenset(cross.pair) for cross in made.tables["arm"].crosses} == {
        frozenset({"before", "rating"}), frozenset({"opened", "rating"})
    }  # fmt: skip
    answer = analyze(made)
    assert [row.effect.covariates for row in answer.effects if row.effect.metric == "rating"] == [(), ("before",)]
    assert {row.metric for row in answer.results["received"].tables["received"]} == {"rating"}


def test_where_nothing_is_known_of_a_number_its_products_are_withheld() -> None:
    asked = counted(shop(), ["tier", "before"])
    assert asked.signatures is not None
    for unknown in (replace(asked.signatures, numbers=None), None):
        made = release(replace(asked, signatures=unknown))
        assert products(made) == set()
        assert made.receipt.left_out["arm: products of before"] == UNKNOWN.format(number="before", experiment="arm")


def test_that_people_spend_more_than_before_on_average_does_not_mean_that_each_of_them_does() -> None:
    rng = np.random.default_rng(5)
    before = rng.gamma(1.5, 20, 4000).round(2).clip(0, 150)
    # On average 0.85 more. If nobody spent less, one person would have to have nearly all of that, by the squares.
    after = np.concatenate([rng.permutation(part) for part in np.split(before, 2)]) + 0.85
    rows = shop() | {"before": before, "y": after, "arm": np.repeat(["A", "B"], 2000)}
    made = release(counted(rows, ["tier", "before"], bounds={"before": (0, 150), "y": (0, 500)}))
    assert products(made) == {("before", "y")}, made.receipt.left_out


# ── a ledger ───────────────────────────────────────────────────────────────────────────────────


def released(path: Path, rows: dict[str, Any], adjust: list[str], **choices: Any) -> Release:
    """Release into a ledger as `kanab release` does: earlier plans are counted again."""
    earlier = read_ledger(path).plans if path.exists() else ()
    return release(counted(rows, adjust, earlier=earlier, **choices), ledger=path, new_ledger=not path.exists())


def test_two_releases_that_expose_somebody_by_their_weights_do_not_both_leave(tmp_path: Path) -> None:
    rows = shop()
    rows["twice"] = 2 * rows["before"] + np.random.default_rng(2).choice([-0.01, 0.01], 4000)
    rows["twice"][5] += 10
    ends = {"bounds": {"twice": (-1.0, 500.0)}}
    alone = released(tmp_path / "alone.ledger", rows, ["twice"], **ends)
    assert products(alone) == {("twice", "y")}
    first = released(tmp_path / "both.ledger", rows, ["before"], **ends)
    assert products(first) == {("before", "y")}
    second = released(tmp_path / "both.ledger", rows, ["before", "twice"], **ends)
    assert products(second) == {("before", "y")}
    assert "for most people it follows from before" in second.receipt.left_out["arm: twice"]


def test_what_was_released_before_is_counted_together_with_what_is_new_or_the_new_is_withheld(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    released(path, shop(), ["before"])
    apart = released(path, shop(), ["visits"])
    assert apart.receipt.left_out["arm: products of visits"] == APART.format(
        number="visits", experiment="arm", others="before", flag="--bounds visits=LOW:HIGH"
    )
    assert products(released(path, shop(), ["before", "visits"])) == {
        ("before", "y"), ("visits", "y"), ("before", "visits"),
    }  # fmt: skip


def test_new_classes_give_way_to_products_that_were_released_before(tmp_path: Path) -> None:
    rows, band = shop(), np.arange(4000) % 4
    rows["before"] = 10 * band + np.random.default_rng(3).choice([0.25, 0.75], 4000)
    rows["band"] = band.astype(str)
    rows["band"][5] = "3"  # band and number go together but for one person
    assert release(counted(rows, ["band"])).receipt.maps == {}
    assert products(released(tmp_path / "a.ledger", rows, ["before"])) == {("before", "y")}
    after = released(tmp_path / "a.ledger", rows, ["band"])
    assert set(after.receipt.maps) | set(after.receipt.left_out) == {"arm/band"}
    assert (after.receipt.effective_k or 0) >= 10


def test_a_ledger_whose_products_cannot_be_judged_takes_nothing_more(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    released(path, shop(), ["before"])
    again = counted(shop(), ["tier"], earlier=read_ledger(path).plans)
    assert again.earlier[0].signatures is not None
    blind = replace(again.earlier[0], signatures=replace(again.earlier[0].signatures, numbers=None))
    with pytest.raises(PrivacyError, match="together with what was released before"):
        release(replace(again, earlier=(blind,)), ledger=path)
    assert release(again, ledger=path).tables.keys() == {"arm/tier"}


def test_a_number_that_follows_from_another_one_or_from_a_covariate_is_withheld() -> None:
    rows = shop()
    twice = rows | {"visits": rows["before"] * 2}
    assert products(release(counted(twice, ["before", "visits"], bounds={"visits": (0, 400)}))) == {("before", "y")}
    score = rows | {"before": (rows["tier"] * 50 + np.random.default_rng(2).uniform(0, 1, 4000)).round(2)}
    score["before"][5] += 20
    assert products(release(counted(score, ["tier", "before"]))) == set()


def test_numbers_that_are_unusual_together_but_not_alone_say_so() -> None:
    rng = np.random.default_rng(4)
    even = {name: rng.uniform(0, most, 160).round(2) for name, most in (("before", 100), ("visits", 60), ("y", 300))}
    rows = shop(160) | even | {"arm": np.repeat(["A", "B"], 80)}
    for alone in ("before", "visits"):
        assert products(release(counted(rows, [alone]))) == {(alone, "y")}
    made = release(counted(rows, ["before", "visits"]))
    assert products(made) == {("before", "y")}
    assert made.receipt.left_out["arm: products of visits"] == EXPOSED.format(
        number="visits", experiment="arm", others="before", flag="--bounds visits=LOW:HIGH"
    )


def test_where_classes_are_too_many_to_check_the_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_many(*_: Any) -> None:
        raise PrivacyError("the tables have too many classes together", "Use fewer covariates.")

    monkeypatch.setattr(NumberDesign, "of", too_many)
    made = release(counted(shop(), ["tier", "before"]))
    assert products(made) == set()
    assert made.receipt.left_out["arm: products of before"] == UNCHECKED.format(number="before", experiment="arm")
