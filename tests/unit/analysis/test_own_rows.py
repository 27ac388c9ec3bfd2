"""Whoever holds the rows reads all of it, merged to k and marked as internal; nothing that takes releases takes it."""

import contextlib
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from tests.described import as_values, readout_of

import kanab as kb
from kanab.agents.answers import Answers
from kanab.analysis.own_rows import is_gated, own_rows
from kanab.choices import INTERNAL
from kanab.cli.main import cli
from kanab.counted import Counted
from kanab.counting.dispatch import SourceOptions, count_source
from kanab.dashboard.release_sources import FileReleases
from kanab.dashboard.results import analyzed
from kanab.errors import ArgumentError, KanabError, PlanError, PrivacyError, SourceError
from kanab.inspection.attack.published import published_from_dict
from kanab.inspection.attack.run import play_attacker
from kanab.inspection.auditor import check_release
from kanab.inspection.officer.account import privacy_account
from kanab.plan.file import parse_plan, plan_digest
from kanab.plan.model import make_plan
from kanab.planning.spread import spread_of_release
from kanab.privacy.ledger import Ledger, append_release, read_ledger
from kanab.privacy.release import OwnRows, Release, Tables
from kanab.privacy.release_json import release_from_dict, release_text, release_to_dict
from kanab.scan.report.scan_words import INTERNAL_SCAN


def run(*words: str) -> Any:
    return CliRunner().invoke(cli, list(words), catch_exceptions=True)


def lin(rows: dict[str, Any], x: np.ndarray, metric: str = "spend") -> float:
    """Return the effect of B, adjusted by one regression per arm, from the rows."""
    means = []
    centred = x - x.mean(axis=0)
    for arm in "AB":
        there = rows["variant"] == arm
        design = np.column_stack([np.ones(there.sum()), centred[there]])
        means.append(np.linalg.lstsq(design, rows[metric][there], rcond=None)[0][0])
    return float(means[1] - means[0])


def shop(n: int = 2_000, seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "variant": rng.choice(["A", "B"], n),
        "tier": rng.choice(["basic", "gold"], n),
        "spend": np.round(rng.gamma(2, 10, n), 2),
    }


def test_a_covariate_centred_near_0_is_adjusted_for_without_declared_bounds() -> None:
    rng = np.random.default_rng(1)
    score = rng.standard_normal(4_000)
    rows = shop(4_000) | {"score": score, "spend": np.round(np.exp(score) + rng.gamma(2, 3, 4_000), 2)}
    plain, adjusted = kb.readout(rows, arm="variant", metrics=["spend"], adjust=["score"]).effects
    assert adjusted.effect.covariates == ("score",)
    assert adjusted.effect.estimate == pytest.approx(lin(rows, score[:, None]), rel=1e-6)
    assert adjusted.effect.se_population < 0.95 * plain.effect.se_population


@pytest.mark.parametrize("people", [200, 500, 2_000])
def test_ordinary_numbers_are_used_in_every_split_of_one_to_nine(people: int) -> None:
    for seed in range(8):
        rng = np.random.default_rng(seed)
        before = np.round(rng.gamma(2, 20, people), 2)
        rows = {
            "variant": rng.choice(["A", "B"], people, p=[0.1, 0.9]),
            "before": before,
            "spend": np.round(before / 2 + rng.gamma(2, 5, people), 2),
        }
        effects = kb.readout(rows, arm="variant", metrics=["spend"], adjust=["before"]).effects
        assert effects[-1].effect.covariates == ("before",)
        assert effects[-1].effect.estimate == pytest.approx(lin(rows, before[:, None]), rel=1e-6)


def test_one_outlier_removes_no_metric() -> None:
    rows = shop()
    rows["spend"][7] = 1_000_000.0
    (row,) = kb.readout(rows, arm="variant", metrics=["spend"]).effects
    a, b = (rows["spend"][rows["variant"] == arm].mean() for arm in "AB")
    assert row.effect.estimate == pytest.approx(b - a, rel=1e-9)


def test_ten_covariates_are_all_adjusted_for_within_a_second() -> None:
    rng = np.random.default_rng(5)
    rows = shop() | {f"c{i}": rng.choice(list("abcde")[: 2 + i % 4], 2_000) for i in range(10)}
    names = [f"c{i}" for i in range(10)]
    began = time.process_time()
    row = kb.readout(rows, arm="variant", metrics=["spend"], adjust=names).effects[-1]
    assert time.process_time() - began < 1
    assert row.effect.covariates == tuple(names)
    levels = [rows[name] == level for name in names for level in np.unique(rows[name])[1:]]
    assert row.effect.estimate == pytest.approx(lin(rows, np.column_stack(levels).astype(float)), rel=1e-9)


def test_covariates_of_many_levels_are_adjusted_for_together_within_seconds() -> None:
    rng = np.random.default_rng(6)
    names = np.array([f"level {place}" for place in range(100)])
    rows = shop(20_000) | {name: names[rng.integers(0, 100, 20_000)] for name in ("city", "shop")}
    began = time.process_time()
    row = kb.readout(rows, arm="variant", metrics=["spend"], adjust=["city", "shop"]).effects[-1]
    assert time.process_time() - began < 4  # one product after the other took ten
    columns = [rows[name] == level for name in ("city", "shop") for level in names[1:]]
    assert row.effect.estimate == pytest.approx(lin(rows, np.column_stack(columns).astype(float)), rel=1e-8)


def test_an_engine_gives_the_digits_of_memory_and_asks_for_nothing_that_rules_alone_need() -> None:
    rows = shop() | {"before": np.round(np.random.default_rng(2).normal(0, 1, 2_000), 3)}
    choices: dict[str, Any] = {"arm": "variant", "metrics": ["spend"], "adjust": ["before", "tier"]}
    memory, engine = (readout_of(rows, **choices), readout_of(rows, **choices, where="1 = 1"))
    assert memory.to_dict()["effects"] == engine.to_dict()["effects"]
    plan = make_plan("variant", ["spend"], adjust=["before", "tier"])
    for where in (None, "1 = 1"):
        counted = count_source(rows, plan, SourceOptions(where=where), for_release=False)
        assert counted.signatures is not None
        known = counted.signatures
        assert (known.values, known.numbers, known.cut, known.left) == ({}, None, {}, {})
        with pytest.raises(PrivacyError, match="counted to be read here, without what the rules ask for"):
            kb.release(counted)


def test_classes_below_k_are_merged_and_their_levels_named() -> None:
    rows = shop()
    rows["tier"] = np.where(np.arange(2_000) < 5, "rare", rows["tier"])
    answer = kb.readout(rows, arm="variant", metrics=["spend"], adjust=["tier"])
    (merged,) = answer.to_dict()["privacy"]["merged"].values()
    assert {old for olds in merged.values() for old in olds} >= {"rare"}
    assert "rare" in set(answer.to_pandas("merged")["of"])
    levels = own(rows, adjust=["tier"]).tables["variant/tier"]
    assert all(n == 0 or n >= 10 for n in levels.people.ravel())


def test_an_arm_below_k_is_shown_with_a_caution_that_names_the_way_out() -> None:
    rows = shop()
    rows["variant"] = np.where(np.arange(2_000) < 4, "C", rows["variant"])
    answer = kb.readout(rows, arm="variant", metrics=["spend"], adjust=["tier"])
    assert {row.effect.arm for row in answer.effects} == {"B", "C"}
    caution = next(caution for caution in answer.cautions if caution.code == "small-arm")
    assert caution.sentence.startswith("Fewer than k = 10 people are in arm C")
    assert "(--arms A,B)" in caution.sentence
    with pytest.raises(PrivacyError, match="an arm of variant holds fewer than k"):
        kb.release(kb.count(rows, arm="variant", metrics=["spend"]))


@pytest.mark.parametrize("strays", [0, 1])
def test_an_arm_of_fewer_than_two_people_is_an_error_that_names_no_undeclared_arm(strays: int) -> None:
    rows = shop()
    rows["variant"] = np.where(np.arange(2_000) < strays, "Wolpertinger", rows["variant"])
    arms = {} if strays else {"arms": ["A", "B", "C"]}
    with pytest.raises(SourceError) as problem:
        readout_of(rows, arm="variant", metrics=["spend"], **arms)
    assert "fewer than two people are in an arm of variant" in str(problem.value)
    assert "--arms A,B" in str(problem.value)
    assert "Wolpertinger" not in str(problem.value)
    assert ("(C)" in str(problem.value)) == (not strays)


def test_a_plan_with_epsilon_is_read_exactly() -> None:
    plan = parse_plan(
        "[metrics]\nspend = { bounds = [0, 500] }\n[experiments.variant]\narms = { A = 1, B = 1 }\n"
        "[privacy]\nepsilon = 1\n"
    )
    rows = shop()
    (row,) = kb.readout(rows, plan).effects
    assert row.effect.estimate == pytest.approx(lin(rows, np.zeros((2_000, 0))), rel=1e-3)


def own(rows: dict[str, Any], **choices: Any) -> OwnRows:
    plan = make_plan("variant", **as_values("make_plan", metrics=["spend"], **choices))
    return own_rows(count_source(rows, plan, SourceOptions(), for_release=False))


def answer() -> kb.Readout:
    return kb.readout(shop(), arm="variant", metrics=["spend"], adjust=["tier"], segments=["tier"])


def test_every_form_of_a_readout_says_once_that_it_is_internal() -> None:
    readout = answer()
    for text in (str(readout), readout.to_markdown(), readout._repr_html_(), readout.to_html(), readout.to_brief()):
        assert " ".join(text.replace("\\", "").split()).count(INTERNAL) == 1
    assert repr(own(shop())).endswith(INTERNAL)


def test_pages_and_pictures_carry_a_mark() -> None:
    page = answer().to_html()
    assert "<title>Internal: variant" in page
    assert '<p class="internal" role="note">' in page
    assert page.count("INTERNAL</text></svg>") == page.count("</svg>") >= 2
    letters = re.findall("<text[^>]*>([^<]*)</text>", answer().chart().to_svg())
    assert INTERNAL in " ".join(letters)


def test_plain_data_have_the_scope_and_no_effective_k_ledger_or_hash() -> None:
    data = answer().to_dict()
    assert data["scope"] == "own-rows"
    assert data["privacy"].keys() == {
        "k", "merged", "left_out", "deviations", "cohorts", "where", "choices", "costs"
    }  # fmt: skip
    assert not re.search("effective_k|hash|chained|audit|ledger", json.dumps(data["privacy"]))
    released = kb.analyze(kb.release(kb.count(shop(), arm="variant", metrics=["spend"]))).to_dict()
    assert released["scope"] == "release"
    assert "effective_k" in released["privacy"]


def test_scans_of_rows_are_internal_and_withhold_nothing() -> None:
    rng = np.random.default_rng(7)
    rows: dict[str, Any] = {f"t{i}": rng.choice(["off", "on"], 400) for i in range(14)}
    rows |= {"d": (rng.random(400) < 0.3).astype(int), "tier": rng.choice(["x", "y"], 400)}
    pairs = kb.scan.scan_interactions(rows, "t*", ["d"])
    assert (pairs.people, pairs.to_dict()["scope"]) == (400, "own-rows")
    assert all(row.F is not None for row in pairs.scan.rows)
    segments = kb.scan.scan_segments(rows, [f"t{i}" for i in range(14)], ["d"], ["tier"])
    assert len(segments.scan.rows) == 14
    for scan in (pairs, segments):
        assert " ".join(str(scan).split()).count(INTERNAL_SCAN) == 1
        assert scan.to_html().count('class="internal"') == 1
        assert scan.to_dict()["privacy"] == {"k": 10, "chained": False}


REFUSED = "this is internal: it was computed on rows and did not pass the privacy gate"

BY_VALUE: dict[str, Callable[[Any], Any]] = {
    "release": kb.release,
    "JSON": release_to_dict,
    "file": release_text,
    "write": lambda value: kb.write_release(value, "own.release.json"),
    "sum": lambda value: kb.add_releases([value]),
    "combine": lambda value: kb.portfolio.combine({"a": value, "b": value}),
    "portfolio": lambda value: kb.portfolio.read_portfolio([value], "spend"),
    "pairs": kb.scan.scan_interactions,
    "segments": lambda value: kb.scan.scan_segments([value]),
    "attack": lambda value: play_attacker([value]),
    "audit": check_release,
    "report": lambda value: privacy_account({"a": value}),
    "ledger": lambda value: append_release("kanab.ledger", Ledger(), value),
    "dashboard": lambda value: analyzed(value, "variant"),
    "power": lambda value: spread_of_release(value, value.plan.experiment()),
}


@pytest.mark.parametrize("use", BY_VALUE.values(), ids=BY_VALUE)
def test_readers_of_releases_refuse_it_by_type_with_one_sentence(use: Callable[[Any], Any]) -> None:
    with pytest.raises(PrivacyError, match=REFUSED):
        use(own(shop()))


READOUT_BY_VALUE = {name: use for name, use in BY_VALUE.items() if name != "power"} | {"analyze": kb.analyze}


@pytest.mark.parametrize("use", READOUT_BY_VALUE.values(), ids=READOUT_BY_VALUE)
def test_readers_of_releases_say_of_a_readout_of_rows_that_it_is_internal(use: Callable[[Any], Any]) -> None:
    with pytest.raises(PrivacyError, match=REFUSED):
        use(kb.analyze(own(shop())))


def test_public_functions_that_take_a_release_take_no_own_rows() -> None:
    tables: Any = own(shop())
    for use in (kb.planning.baseline_from_release, lambda value: kb.planning.propose_bins(value, "spend")):
        with pytest.raises(ArgumentError):
            use(tables)
    with pytest.raises(PrivacyError, match="only a Tally or a Release"):
        kb.fit(tables, "arm")
    assert not isinstance(tables, Release)
    assert isinstance(tables, Tables)
    assert kb.analyze(tables).to_dict()["scope"] == "own-rows"


def plain_outputs(folder: Path) -> list[dict[str, Any]]:
    """Everything that commands print of rows as JSON: readouts of one and two experiments, a scan, a dry run."""
    rng = np.random.default_rng(2)
    columns = shop(600) | {"banner": rng.choice(["off", "on"], 600)}
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    source = folder / "rows.csv"
    source.write_text("\n".join(lines), encoding="utf-8")
    plan = folder / "two.toml"
    plan.write_text(
        "[metrics]\nspend = { bounds = [0, 500] }\n[experiments.variant]\narms = { A = 1, B = 1 }\n"
        "[experiments.banner]\narms = { off = 1, on = 1 }\n",
        encoding="utf-8",
    )
    flags = ("--arm", "variant", "--metric", "spend", "--bounds", "spend=0:500", "--json")
    texts = [
        run("analyze", str(source), *flags),
        run("analyze", str(source), *flags, "--as-released"),
        run("analyze", str(source), "--plan", str(plan), "--json"),
        run("scan", str(source), "--experiments", "variant,banner", "--metric", "spend", "--json"),
        run("release", str(source), *flags, "--dry-run"),
    ]
    assert [text.exit_code for text in texts] == [0] * len(texts), [text.output for text in texts]
    return [json.loads(text.stdout) for text in texts]


def test_no_reader_takes_a_file_of_it(tmp_path: Path) -> None:
    for place, data in enumerate(plain_outputs(tmp_path)):
        assert data["scope"] == "own-rows"
        for read in (release_from_dict, lambda plain: published_from_dict(plain, "scan.json")):
            with pytest.raises(PrivacyError, match=REFUSED):
                read(data)
        file = tmp_path / f"{place}.release.json"
        file.write_text(json.dumps(data), encoding="utf-8")
        for command in ("analyze", "audit", "attack", "scan", "combine", "portfolio"):
            flags = ("--metric", "spend") if command == "portfolio" else ()
            done = run(command, str(file), *flags)
            assert done.exit_code != 0, command
            assert REFUSED in f"{done.output} {done.exception}", command
        done = run("dashboard", str(file), "--port", "0")
        assert f"{file.name} is not shown: {REFUSED}" in str(done.exception)
        done = run("privacy-report", str(file), "-o", str(tmp_path / "page.html"))
        assert REFUSED in f"{done.output} {done.exception}"
        done = run("power", "--release", str(file), "--metric", "spend", "--people", "1000", "--power", "0.8")
        assert REFUSED in f"{done.output} {done.exception}"
        assert not (tmp_path / "page.html").exists()


def test_the_dashboard_and_assistants_name_the_file_and_show_nothing_of_it(tmp_path: Path) -> None:
    file = tmp_path / "shop.release.json"
    file.write_text(json.dumps(answer().to_dict()), encoding="utf-8")
    for places in ([file], [tmp_path]):
        contents = FileReleases(places, "store.db").read()
        assert contents.releases == {}
        assert contents.alarms == (
            f"shop.release.json is not shown: {REFUSED}. Release the rows (kanab release), and give that release.",
        )
        answers = Answers(FileReleases(places, "store.db"))
        assert "spend" not in json.dumps(answers.list_experiments(), default=str)


def test_a_ledger_with_such_an_entry_is_refused(tmp_path: Path) -> None:
    ledger = tmp_path / "kanab.ledger"
    kb.release(
        kb.count(shop(), arm="variant", metrics=[kb.Mean("spend", bounds=(0, 500))]), ledger=ledger, new_ledger=True
    )
    forged = answer().to_dict() | {"previous": "", "hash": "0" * 64}
    ledger.write_text(f"{ledger.read_text(encoding='utf-8')}{json.dumps(forged)}\n", encoding="utf-8")
    with pytest.raises(KanabError):
        read_ledger(ledger)
    contents = FileReleases([ledger], "store.db").read()
    assert len(contents.releases) == 1
    assert [item.name for item in contents.skipped] == ["kanab.ledger, entry 2"]


def test_notifications_are_made_of_ledgers_that_hold_no_such_entry(tmp_path: Path) -> None:
    """A message is a function of verified entries, and `read_entry` verifies none of this scope."""
    from kanab.privacy.ledger import read_entry  # noqa: PLC0415

    with pytest.raises(PrivacyError, match=REFUSED):
        read_entry(json.dumps(answer().to_dict()))


GATED_PLAN = (
    'own_rows = "gated"\n[metrics]\nspend = { bounds = [0, 500] }\n[experiments.variant]\narms = { A = 1, B = 1 }\n'
)


def test_a_plan_or_the_environment_sends_rows_through_the_gate_and_nothing_undoes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan, few = parse_plan(GATED_PLAN), {name: column[:15] for name, column in shop().items()}
    assert not is_gated()
    assert is_gated(plan)
    assert kb.readout(shop(), plan).to_dict()["scope"] == "release"
    with pytest.raises(PrivacyError, match="holds fewer than k = 10 people"):
        kb.readout(few, plan)
    monkeypatch.setenv("KANAB_OWN_ROWS", "internal")
    assert is_gated(plan)
    monkeypatch.setenv("KANAB_OWN_ROWS", "gated")
    assert kb.readout(shop(), arm="variant", metrics=["spend"]).to_dict()["scope"] == "release"
    with pytest.raises(PrivacyError, match="a scan of rows is internal"):
        kb.scan.scan_segments(shop(), ["variant"], ["spend"], ["tier"])
    monkeypatch.setenv("KANAB_OWN_ROWS", "open")
    with pytest.raises(PlanError, match="KANAB_OWN_ROWS is neither internal nor gated"):
        kb.readout(shop(), arm="variant", metrics=["spend"])


def test_who_may_read_is_no_part_of_what_a_plan_counts() -> None:
    plan, open_plan = parse_plan(GATED_PLAN), parse_plan(GATED_PLAN.removeprefix('own_rows = "gated"\n'))
    assert plan == open_plan
    assert plan_digest(plan) == plan_digest(open_plan)
    with pytest.raises(PlanError, match="own_rows must be 'internal' or 'gated'"):
        parse_plan(GATED_PLAN.replace("gated", "closed"))


@pytest.mark.usefixtures("gated")
@pytest.mark.parametrize("words", [("analyze", "--as-released"), ("release", "--dry-run")])
def test_where_rows_are_gated_nothing_shows_what_the_gate_keeps_back(words: tuple[str, str], tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("variant,spend\n" + "A,1\nB,2\n" * 40, encoding="utf-8")
    done = run(words[0], str(source), "--arm", "variant", "--metric", "spend", words[1])
    assert isinstance(done.exception, PrivacyError)
    assert str(done.exception).endswith(f"Leave out {words[1]}.")
    with contextlib.suppress(FileNotFoundError):
        assert not (tmp_path / "kanab.ledger").exists()


@pytest.mark.usefixtures("gated")
def test_where_rows_are_gated_nobody_chooses_people_without_a_ledger(tmp_path: Path) -> None:
    """Two answers of which one is without user 6 would differ by what that person spent."""
    rows = shop() | {"user": np.arange(len(shop()["spend"]))}
    choose: Any = {"where": "user <> 6", "sql": "SELECT * FROM rows WHERE user <> 6", "join": tmp_path / "mine.csv"}
    source = tmp_path / "rows.csv"
    source.write_text("user,variant,spend\n" + "1,A,1\n2,B,2\n" * 40, encoding="utf-8")
    for word, text in choose.items():
        with pytest.raises(PrivacyError, match=f"^--{word} chooses who is counted, .*Release it into a ledger"):
            readout_of(rows, arm="variant", metrics=["spend"], **{word: text})
        done = run("analyze", str(source), "--arm", "variant", "--metric", "spend", f"--{word}", str(text))
        assert isinstance(done.exception, PrivacyError), done.output
        into = ("-o", str(tmp_path / "out.json"), "--no-ledger")
        done = run("release", str(source), "--arm", "variant", "--metric", "spend", f"--{word}", str(text), *into)
        assert f"--{word} chooses who is counted" in str(done.exception), done.output
    for command, *output in (("analyze",), ("release", "-o", str(tmp_path / "out.json"), "--new-ledger")):
        done = run(command, str(source), "--arm", "variant", "--metric", "spend", "--show-sql", *output)
        assert str(done.exception).endswith("Leave out --show-sql."), done.output
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]
    assert kb.readout(rows, arm="variant", metrics=["spend"]).to_dict()["scope"] == "release"


def test_what_is_counted_for_the_gate_can_be_read_here_too() -> None:
    counted: Counted = kb.count(shop(), arm="variant", metrics=["spend"], adjust=["tier"])
    assert (
        kb.analyze(own_rows(counted)).to_dict()["effects"]
        == kb.analyze(own(shop(), adjust=["tier"])).to_dict()["effects"]
    )
