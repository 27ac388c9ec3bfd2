"""How an analysis is read, by flags: the same as in Python, or one line that says what to write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from tests.approved import assert_approved
from tests.described import as_values
from tests.unit.cli.program import Program, transcript

import kanab as kb
from kanab.cli.main import cli
from kanab.datasets import shop_rows
from kanab.errors import KanabError, PlanError
from kanab.stats.margins import Margin
from kanab.stats.posteriors import Prior

PEOPLE = 3_000


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three arms of a shop in a release file."""
    rows = shop_rows(PEOPLE)
    rows["variant"] = np.random.default_rng(2).choice(["A", "B", "B-2"], PEOPLE)
    counted = kb.count(
        rows,
        arm="variant",
        metrics=["bought", kb.Mean("spend", bounds=(0, 500), resolution=0.01)],
        adjust=["tier"],
        control="A",
    )
    file = tmp_path_factory.mktemp("arms") / "arms.json"
    kb.write_release(kb.release(counted), file)
    return file


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["analyze", *arguments])
    if isinstance(result.exception, KanabError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def plain(file: Path, *arguments: str) -> Any:
    return json.loads(run(str(file), *arguments, "--json"))


def python(file: Path, **choices: Any) -> Any:
    return json.loads(json.dumps(kb.analyze(kb.read_release(file), **as_values("analyze", **choices)).to_dict()))


def test_flags_and_python_say_the_same(released: Path) -> None:
    flags = (
        "--correction", "dunnett", "--contrast", "B-2 - B", "--contrast", "B=0.5,B-2=0.5,A=-1",
        "--non-inferiority", "bought=2%,spend=0.5", "--superiority", "spend=1", "--equivalence", "spend=-1:2",
        "--equivalence", "bought=-2%:5%", "--lower-is-better", "spend", "--prior", "bought=0,0.01",
        "--prior", "spend=-1,inf",
    )  # fmt: skip
    margins = {
        "bought": [Margin("non-inferiority", 0.02, relative=True), Margin("equivalence", (-0.02, 0.05), relative=True)],
        "spend": [Margin("non-inferiority", 0.5), Margin("superiority", 1), Margin("equivalence", (-1, 2))],
    }
    asked = ["B-2 - B", {"B": 0.5, "B-2": 0.5, "A": -1}]
    found = plain(released, *flags)
    assert found == python(
        released, correction="dunnett", contrasts=asked, margins=margins, lower_is_better=["spend"],
        prior={"bought": Prior(0, 0.01), "spend": Prior(-1)},
    )  # fmt: skip
    assert len(found["contrasts"]) == 8
    assert len(found["margins"]) == 2 * 2 * 5
    assert {one["better"] for one in found["bayes"] if one["metric"] == "spend"} == {"lower"}


def test_one_prior_is_for_all_metrics(released: Path) -> None:
    assert plain(released, "--prior", "0,0.5") == python(released, prior=Prior(0, 0.5))
    assert plain(released, "--prior", "0,5%") == python(released, prior=Prior(0, 0.05, relative=True))


def test_arms_are_pooled_and_the_pool_may_be_the_control(released: Path) -> None:
    found = plain(released, "--pool", "any=B + B-2")
    assert found == python(released, pool={"any": ["B", "B-2"]})
    assert found["arms"].keys() == {"A", "any"}
    assert plain(released, "--pool", "old=A+B", "--control", "old")["control"] == "old"


@pytest.mark.slow
def test_the_pool_may_be_the_control_of_a_source(tmp_path: Path) -> None:
    rows = shop_rows(900)
    rows["variant"] = np.random.default_rng(2).choice(["A", "B", "C"], 900)
    file = tmp_path / "v.csv"
    lines = [f"{arm},{bought}" for arm, bought in zip(rows["variant"], rows["bought"], strict=True)]
    file.write_text("variant,bought\n" + "\n".join(lines))
    flags = ("--arm", "variant", "--metric", "bought", "--pool", "new=B+C", "--control", "new")
    found = plain(file, *flags)
    assert (found["control"], found["effects"][0]["arm"]) == ("new", "A")
    by_call = kb.readout(
        rows, arm="variant", metrics=["bought"], control="new", reading=kb.Reading(pool={"new": ["B", "C"]})
    ).to_dict()
    assert found["effects"] == by_call["effects"]


def test_everything_is_told_on_the_terminal(released: Path) -> None:
    text = run(str(released), "--non-inferiority", "bought=20%", "--prior", "0,0.1", "--contrast", "B-2-B")
    for heading in ("Other comparisons of arms", "Are the claims shown?", "What to believe"):
        assert f"── {heading}" in text
    assert "All 3 arms at once: " in text
    assert "B-2 − B on bought (points)" in text
    assert "Non-inferiority of B on bought is" in text


MISTAKES = """
--non-inferiority spend=0
--superiority spend=-1
--equivalence spend=x
--superiority spend=inf
--equivalence spend=0.5:1
--superiority spend=-1:1
--equivalence spend=-1:2%
--superiority clicks=1
--lower-is-better clicks
--prior 0
--prior 0,0
--prior 0.1,5%
--prior 0,1 --prior 0,2
--prior 0,1 --prior spend=0,2
--prior clicks=0,1
--contrast B-C
--pool any=B
--pool any=B+C
--decision people=x
--sequential always-valid --superiority spend=1
--sequential always-valid --correction dunnett
--cluster home
--spending pocock
--looks 3
--looks-file looks.json
--sequential spending --looks 3 --looks-at many
--sequential spending --looks 3
--superiority spend=1 --confidence 0.4
"""


def test_what_cannot_be_read_says_what_to_write(
    released: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(released.parent)
    assert_approved("cli/reading_mistakes.txt", transcript(program, "analyze arms.json", MISTAKES))


@pytest.mark.slow
def test_arms_of_several_experiments_need_a_name(tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_text("a,b,y\n" + "".join(f"{i % 2},{i // 2 % 2},{i % 3 % 2}\n" for i in range(600)))
    (tmp_path / "p.toml").write_text(
        '[metrics]\ny = { kind = "binary" }\n[experiments.a]\narms = { "0" = 1, "1" = 1 }\n'
        '[experiments.b]\narms = { "0" = 1, "1" = 1 }\n'
    )
    arguments = (str(tmp_path / "v.csv"), "--plan", str(tmp_path / "p.toml"), "--contrast", "1-0")
    with pytest.raises(PlanError, match="arms are those of one experiment"):
        run(*arguments)
    assert json.loads(run(*arguments, "--experiment", "b", "--json"))["contrasts"][0]["arm"] == "1"


def test_batches_are_looks_and_are_cautioned_about(tmp_path: Path) -> None:
    files = []
    for seed, share in ((1, 0.5), (2, 0.5), (3, 0.8)):
        rng = np.random.default_rng(seed)
        rows = {"variant": rng.choice(["A", "B"], 2_000, p=[1 - share, share]), "bought": rng.random(2_000) < 0.2}
        files.append(tmp_path / f"{seed}.json")
        kb.write_release(kb.release(kb.count(rows, arm="variant", metrics=["bought"])), files[-1])
    found = plain(files[0], *map(str, files[1:]))
    assert [one["kind"] for one in found["cautions"]] == ["shares-changed", "looked-early"]
    text = run(*map(str, files))
    assert "── Before you act on it" in text
    assert text.index("3 batches are added here.") < text.index("Sample ratio")
    looks = plain(files[0], *map(str, files[1:]), "--sequential", "spending", "--looks", "5")
    assert looks["effects"][0]["sequential"]["look"] == 3
    assert [one["kind"] for one in looks["cautions"]] == ["shares-changed"]


@pytest.mark.slow
def test_the_looks_at_a_growing_file_are_said_or_kept(tmp_path: Path) -> None:
    source, looks = tmp_path / "visits.csv", tmp_path / "looks.json"
    design = ("--arm", "variant", "--metric", "bought", "--sequential", "spending", "--looks", "4")
    answers = []
    for people in (1_000, 2_000, 2_000):
        rows = "".join(f"{'AB'[i % 2]},{i % 7 // 5}\n" for i in range(people))
        source.write_text(f"variant,bought\n{rows}")
        answers.append(json.loads(run(str(source), *design, "--looks-file", str(looks), "--json")))
    assert [answer["effects"][0]["sequential"]["look"] for answer in answers] == [1, 2, 2]
    assert json.loads(run(str(source), *design, "--looks-at", "1000", "--json")) == answers[-1]
    first = json.loads(run(str(source), *design, "--looks-at", "none", "--json"))
    assert first["effects"][0]["sequential"]["look"] == 1
