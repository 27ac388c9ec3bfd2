"""Clipping at a point of all arms together."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tests.described import as_values

import kanab as kb
from kanab.cli.main import cli
from kanab.errors import KanabError, PlanError, PrivacyError

RNG = np.random.default_rng(5)
ARM = RNG.choice(["A", "B"], 2_000)
SPEND = np.round(np.where(RNG.random(2_000) < 0.5, 0, RNG.lognormal(3, 1.2, 2_000)), 2)
PEOPLE = {"variant": ARM, "spend": SPEND}


def rounded_up(value: float) -> float:
    step = 10.0 ** (np.floor(np.log10(value)) - 1)
    return float(np.ceil(value / step) * step)


@pytest.mark.parametrize("point", ["99%", "95%", 0.9])
def test_larger_amounts_count_as_the_point_rounded_up_to_two_digits(point: str | float) -> None:
    readout = kb.readout(PEOPLE, arm="variant", metrics=[kb.Mean("spend", clip=point)])
    share = point if isinstance(point, float) else float(point[:-1]) / 100
    bound = rounded_up(np.quantile(SPEND, share, method="inverted_cdf"))
    cut = np.minimum(SPEND, bound)
    assert readout.effects[0].effect.estimate == pytest.approx(cut[ARM == "B"].mean() - cut[ARM == "A"].mean())
    assert f"Values of spend above {bound:g} (the {100 * share:g} % point" in str(readout)


def test_an_engine_clips_people_as_memory_does(tmp_path: Path) -> None:
    rows = np.repeat(np.arange(2_000), 2)
    halves = {"variant": ARM[rows], "spend": SPEND[rows] / 2, "user": rows.astype(str)}
    path = tmp_path / "visits.csv"
    lines = [",".join(map(str, row)) for row in zip(*halves.values(), strict=True)]
    path.write_text("\n".join(["variant,spend,user", *lines]))
    counted = kb.count(str(path), arm="variant", metrics=[kb.Mean("spend", clip="99%")], rows=kb.Rows(unit="user"))
    plain = kb.count(PEOPLE, arm="variant", metrics=[kb.Mean("spend", clip="99%")])
    assert counted.plan.metrics_by_name["spend"].bounds == plain.plan.metrics_by_name["spend"].bounds
    assert (counted.choices or {})["clip of spend"] == "99%"


@pytest.mark.parametrize(
    ("choices", "error", "words"),
    [
        ({"clip": {"spend": "40%"}}, PlanError, "above 50 %"),
        ({"clip": {"spend": "much"}}, PlanError, "above 50 %"),
        ({"clip": {"spend": "99%"}, "bounds": {"spend": (0, 10)}}, PlanError, "has bounds"),
        ({"clip": {"change": "99%"}, "metrics": ["change"]}, PlanError, "below 0"),
        ({"clip": {"bought": "99%"}, "metrics": ["bought"]}, PlanError, "Leave out its clip"),
        ({"clip": {"rare": "95%"}, "metrics": ["rare"]}, PlanError, "Clip at a higher point"),
        ({"clip": {"spend": "99%"}, "cluster": "variant"}, PlanError, "groups of people"),
    ],
)
def test_what_cannot_be_clipped_is_said(choices: dict[str, object], error: type[KanabError], words: str) -> None:
    people = PEOPLE | {"change": SPEND - 10, "bought": (SPEND > 0).astype(int), "rare": np.where(SPEND > 200, SPEND, 0)}
    with pytest.raises(error, match=words):
        kb.readout(people, **as_values("readout", **{"arm": "variant", "metrics": ["spend"]} | choices))


def test_a_point_that_leaves_is_about_at_least_k_people() -> None:
    few = {name: column[:900] for name, column in PEOPLE.items()}
    assert kb.readout(few, arm="variant", metrics=[kb.Mean("spend", clip="99%")]).effects
    with pytest.raises(PrivacyError, match="fewer than k = 10 people are above the 99% point"):
        kb.count(few, arm="variant", metrics=[kb.Mean("spend", clip="99%")])
    assert kb.release(kb.count(PEOPLE, arm="variant", metrics=[kb.Mean("spend", clip="99%")]))


def test_the_first_look_fixes_the_bound(tmp_path: Path) -> None:
    looks = kb.Looks("spending", looks=3, file=tmp_path / "looks.json")
    early = {name: column[:700] for name, column in PEOPLE.items()}
    later = PEOPLE | {"spend": np.append(SPEND[:700], 2 * SPEND[700:])}
    choices = {"arm": "variant", "metrics": ["spend"], "looks": looks}

    def bound(people: object, **more: object) -> str:
        return (
            str(kb.readout(people, **as_values("readout", **choices | more))).partition("above ")[2].partition(" ")[0]
        )

    first = bound(early, clip={"spend": "90%"})
    assert bound(later, clip={"spend": "90%"}, looks=None) != first
    assert bound(later, clip={"spend": "90%"}) == first
    with pytest.raises(KanabError, match="another design: clip was"):
        bound(later, clip={"spend": "95%"})
    with pytest.raises(KanabError, match=r"another design: clip was spend=90%\. "):
        bound(later)


def test_the_first_cohort_of_a_ledger_fixes_the_bound_and_noise_has_none(tmp_path: Path) -> None:
    source = tmp_path / "visits.csv"
    weeks = ["2026-W40"] * 1_000 + ["2026-W41"] * 1_000
    days = {"2026-W40": "2026-09-28T08:00", "2026-W41": "2026-10-05T08:00"}
    amounts = np.append(SPEND[:1_000], 2 * SPEND[1_000:])
    rows = [f"{arm},{spend},{days[week]}" for arm, spend, week in zip(ARM, amounts, weeks, strict=True)]
    source.write_text("\n".join(["variant,spend,enrolled", *rows]))
    counting = ["--arm", "variant", "--metric", "spend", "--clip", "spend=95%", "--shares", "A=1,B=1", "--window", "7d"]

    def release(*more: str) -> str:
        flags = [*counting, "--cohort", "enrolled", "-o", str(tmp_path / "r.json"), *more]
        result = CliRunner().invoke(cli, ["release", str(source), *flags])
        assert result.exit_code == 0, result.output
        return str(kb.read_release(tmp_path / "r.json").plan.metrics_by_name["spend"].bounds)

    first = release("--new-ledger", "--as-of", "2026-10-13")
    assert release("--as-of", "2026-10-20") == first
    alone = kb.readout(str(source), arm="variant", metrics=[kb.Mean("spend", clip="95%")])
    assert f"above {first[6:-3]} " not in str(alone)
    noisy = CliRunner().invoke(
        cli, ["release", str(source), *counting[:6], "-o", str(tmp_path / "e.json"), "--no-ledger", "--epsilon", "1"]
    )
    assert noisy.exit_code == 1
