"""kanab analyze: answers, how flags read results, and what somebody reads who mistypes one."""

import csv
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.approved import assert_approved
from tests.described import as_values
from tests.unit.cli.program import Program, transcript

import kanab as kb
from kanab.datasets import shop_rows
from kanab.plan.file import plan_from_dict
from kanab.stats.margins import Margin
from kanab.stats.posteriors import Prior

FLAGS = "--arm variant --metric bought"
SPEND = "--arm variant --metric bought,spend --bounds spend=0:500 --resolution spend=0.01"
SHOP = """
[metrics]
bought = { kind = "binary" }
spend = { bounds = [0, 500], resolution = 0.01 }
[covariates]
tier = [1, 2, 3, 4, 5]
[experiments.variant]
arms = { A = 1, B = 1 }
adjust = ["tier"]
segments = ["tier"]
"""
TWO = """
[metrics]
y = { kind = "binary" }
[experiments.a]
arms = { "0" = 1, "1" = 1 }
[experiments.b]
arms = { "0" = 1, "1" = 1 }
"""


def write_csv(name: str, rows: dict[str, Any], sep: str = ",") -> None:
    with Path(name).open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, delimiter=sep)
        writer.writerow(rows)
        writer.writerows(zip(*rows.values(), strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Visits of a shop; others with a slip in the arm, in three arms, released, in JSON; regions; orders in time."""
    folder = tmp_path_factory.mktemp("shop")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        rows: dict[str, Any] = {name: np.asarray(values).tolist() for name, values in shop_rows(2_000).items()}
        rows |= {"group": [1, 2] * 1_000, "from": [1, 2] * 1_000, "user_id": list(range(2_000))}
        write_csv("visits.csv", rows)
        write_csv("strays.csv", rows | {"variant": ["slip"] * 6 + rows["variant"][6:]})
        arms = {"variant": np.random.default_rng(2).choice(["A", "B", "B-2"], 2_000).tolist()}
        write_csv("three.csv", rows | arms)
        metrics = ["bought", kb.Mean("spend", bounds=(0, 500), resolution=0.01)]
        plan = kb.make_plan("variant", metrics, ["tier"], control="A")
        kb.write_release(kb.release(kb.count(rows | arms, plan)), "arms.json")
        cells = [{"variant": arm, "bought": yes} for arm, yes in zip(rows["variant"], rows["bought"], strict=True)]
        Path("rows.json").write_text(json.dumps(cells), encoding="utf-8")
        with closing(sqlite3.connect("shop.sqlite")) as store, store:
            for table, arm in (("old", "B"), ("new", "A")):
                store.execute(f"CREATE TABLE {table} (variant TEXT, bought INTEGER)")
                store.executemany(f"INSERT INTO {table} VALUES (?, ?)", [(arm, 1), ("C", 0)] * 20)
        write_csv("regions.tsv", {"user_id": range(1_900), "region": ["north", "south"] * 950}, sep="\t")
        write_csv("two.csv", {"a": [0, 1] * 300, "b": [0, 0, 1, 1] * 150, "y": [0, 1, 0] * 200})
        users = range(120)
        times = ["2026-01-01 00:00:00"] * 120
        write_csv("exposures.csv", {"user": users, "variant": ["A", "B"] * 60, "time": times})
        in_time = {"user": users, "time": ["2026-01-02 00:00:00"] * 120, "spend": [1, 2, 3] * 40}
        late = {"user": users, "time": ["2026-01-09 00:00:00"] * 120, "spend": [50, 0] * 60}
        write_csv("events.csv", {name: [*in_time[name], *late[name]] for name in in_time})
        texts = {"shop.toml": SHOP, "two.toml": TWO, "empty.csv": "variant,bought\n"}
        texts["kanab.toml"] = "[metrics]\nbought = {}\n[experiments.variant]\n"
        for name, text in texts.items():
            Path(name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def _inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


@pytest.fixture
def plain(program: Program) -> Any:
    """What a command prints as plain data."""

    def run(words: str) -> Any:
        ended = program(*words.split(" "), "--json")
        assert ended.code == 0, ended.err
        return json.loads(ended.out)

    return run


def test_a_csv_file_is_answered_in_one_command(program: Program) -> None:
    said = transcript(program, "analyze", f"visits.csv {SPEND} --adjust tier --segment device,country")
    assert_approved("cli/analyze.txt", said)
    assert max(map(len, said.splitlines()[1:])) <= 100


ANSWERS = f"""
visits.csv {SPEND} --adjust tier
visits.csv {FLAGS} --where '"from" = 1'
three.csv {FLAGS} --shares A=0.33,B=0.33,B-2=0.33
visits.csv {FLAGS} --where 'group = 1'
visits.csv {FLAGS} --where 'WHERE tier > 0 AND "group" = 1'
visits.csv {FLAGS} --join regions.tsv --on user_id --where "region = 'north'" --unit user_id
strays.csv {FLAGS} --arms A,B
three.csv {FLAGS} --pool new=B+B-2 --control new
exposures.csv --arm variant --metric spend --unit user --events events.csv --window 7d
visits.csv --arm variant --ratio spend/bought
sqlite:///shop.sqlite {FLAGS} --table new
rows.json {FLAGS}
rows.json
visits.csv
nothing.csv
kanab.json
visits.csv --arm variant --metric spend --sequential spending
"""


def test_flags_say_who_is_counted_and_nothing_said_is_asked_for(program: Program) -> None:
    said = transcript(program, "analyze --brief", ANSWERS)
    assert_approved("cli/answers.txt", said)


@pytest.mark.slow
def test_a_release_and_a_plan_file_give_the_same_answer_as_flags(plain: Any, program: Program, tmp_path: Path) -> None:
    direct = plain(f"analyze visits.csv {SPEND} --adjust tier --segment tier")
    words = f"release visits.csv {SPEND} --covariate tier -o {tmp_path}/checkout.json --new-ledger"
    assert "1 table, k-anonymous at k = 10; effective k of class sums over" in program(*words.split()).out
    stored = plain(f"analyze {tmp_path}/checkout.json")
    assert (stored["effects"], stored["segments"]) == (direct["effects"], direct["segments"])
    assert plain("analyze visits.csv --plan shop.toml")["effects"] == direct["effects"]


@pytest.mark.slow
def test_who_is_not_in_a_joined_file_has_a_missing_level(plain: Any) -> None:
    data = plain(f"analyze visits.csv {FLAGS} --join regions.tsv --on user_id --segment region")
    people = {row["level"]: row["people_control"] + row["people_arm"] for row in data["segment_effects"]}
    assert people == {"north": 950, "south": 950, "missing": 100}


@pytest.mark.slow
def test_names_are_separated_by_commas_or_given_by_several_flags_in_any_order(plain: Any) -> None:
    head = "analyze visits.csv --arm variant"
    joined = plain(f"{head} --metric bought,spend --adjust device,tier,country")
    assert joined == plain(f"{head} --metric bought --metric spend --adjust country --adjust tier,device")
    assert {row["metric"] for row in joined["effects"]} == {"spend", "bought"}


@pytest.mark.slow
def test_several_experiments_are_answered_together_or_by_name(plain: Any, program: Program) -> None:
    words = "analyze two.csv --plan two.toml"
    assert set(plain(words)["experiments"]) == {"a", "b"}
    data = plain(f"{words} --experiment b --contrast 1-0")
    assert (data["experiment"], data["contrasts"][0]["arm"]) == ("b", "1")
    assert "a report is about one experiment" in program(*words.split(), "--html", "r.html").err
    assert "arms are those of one experiment" in program(*words.split(), "--contrast", "1-0").err


@pytest.mark.slow
def test_the_statement_can_be_seen_before_it_runs(program: Program, tmp_path: Path) -> None:
    words = f"release visits.csv {SPEND} --covariate device --show-sql -o {tmp_path}/x.json"
    shown = program(*words.split())
    assert (shown.code, shown.out.count("read_csv") <= 1, list(tmp_path.iterdir())) == (0, True, [])
    assert "GROUP BY" in shown.out


@pytest.mark.slow
def test_k_below_5_needs_a_reason_where_own_rows_are_gated(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    words = f"analyze visits.csv {SPEND} --k 3".split()
    assert "levels merged" not in program(*words).out
    monkeypatch.setenv("KANAB_OWN_ROWS", "gated")
    assert "below 5" in program(*words).err
    assert "k = 3: a rehearsal" in program(*words, "--override", "a rehearsal").out


def test_an_example_is_not_written_where_it_cannot_be(program: Program) -> None:
    assert "cannot be written" in program("example", "no folder/x.csv").err


@pytest.mark.slow
def test_a_stray_arm_is_not_named_but_the_large_ones_are(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    words = f"analyze strays.csv {FLAGS}".split()
    own = " ".join(program(*words).out.split())
    assert "Fewer than k = 10 people are in arm slip" in own
    assert "or count only the others (--arms A,B)" in own
    monkeypatch.setenv("KANAB_OWN_ROWS", "gated")
    done = program(*words)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "kanab: an arm of variant holds fewer than k = 10 people. "
        "Its name was not declared and is not shown. Count only the arms that you mean: --arms A,B.\n"
    )


@pytest.mark.slow
def test_only_the_named_arms_are_counted_and_released(program: Program, tmp_path: Path) -> None:
    shares = program(*f"analyze strays.csv {FLAGS} --arms A,B --shares A=50%,B=50%".split()).out
    assert "variant: 1,994 people in 2 arms, control A" in shares
    assert "People arrived in the planned shares" in shares
    head, file = f"release strays.csv {FLAGS}", str(tmp_path / "out.json")
    few = program(*f"{head} --arms B,slip --no-ledger -o {file}".split())
    assert "an arm of variant holds fewer than k = 10 people. Declared as slip: wait" in few.err
    assert program(*f"{head} --arms A,B --new-ledger -o {file}".split()).code == 0
    assert kb.read_release(file).plan.experiment().only == ("A", "B")
    assert program("audit", file).code == 0
    assert "1,994 people" in program("analyze", file).out


@pytest.mark.slow
def test_people_of_other_arms_are_reported_exactly_and_by_the_gate_in_steps_of_k(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "analyze visits.csv --arm tier --metric bought --arms 1,2".split()
    exact = int(program(*words).out.split(" people are in no arm")[0].split()[-1].replace(",", ""))
    monkeypatch.setenv("KANAB_OWN_ROWS", "gated")
    told = program(*words).out
    assert "people are in no arm of the plan and are left out." in told
    assert int(told.split("At least ")[1].split(" people")[0].replace(",", "")) == exact // 10 * 10 > 0


@pytest.mark.slow
def test_numbers_are_named_by_a_flag_or_by_bounds_and_a_ledger_takes_a_second_release(
    program: Program, tmp_path: Path
) -> None:
    numbers = "--bounds prior_spend=0:999,user_id=0:2000 --adjust user_id,prior_spend,tier --number user_id"
    plans, tables = [], []
    for name, more in (("1.json", " --new-ledger"), ("2.json", "")):
        done = program(
            *f"release visits.csv {SPEND} {numbers} --ledger {tmp_path}/kanab.ledger -o {tmp_path}/{name}{more}".split()
        )
        assert done.code == 0, done
        released = json.loads((tmp_path / name).read_text())
        plans.append(plan_from_dict(released["plan"]))
        tables.append(released["tables"])
    assert plans[0].numbers == ("prior_spend", "user_id")
    assert plans[0].experiment().adjust == ("tier",)
    assert (plans[0], tables[0]) == (plans[1], tables[1])


def python(**choices: Any) -> Any:
    return json.loads(json.dumps(kb.analyze(kb.read_release("arms.json"), **as_values("analyze", **choices)).to_dict()))


def test_flags_and_python_say_the_same(program: Program, plain: Any) -> None:
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
    data = json.loads(program("analyze", "arms.json", *flags, "--json").out)
    assert data == python(
        correction="dunnett", contrasts=asked, margins=margins, lower_is_better=["spend"],
        prior={"bought": Prior(0, 0.01), "spend": Prior(-1)},
    )  # fmt: skip
    assert (len(data["contrasts"]), len(data["margins"])) == (8, 2 * 2 * 5)
    assert {row["better"] for row in data["bayes"] if row["metric"] == "spend"} == {"lower"}
    assert plain("analyze arms.json --prior 0,0.5") == python(prior=Prior(0, 0.5))
    assert plain("analyze arms.json --prior 0,5%") == python(prior=Prior(0, 0.05, relative=True))
    assert plain("analyze arms.json --pool any=B+B-2") == python(pool={"any": ["B", "B-2"]})


def test_batches_are_looks_and_are_cautioned_about(plain: Any, program: Program, tmp_path: Path) -> None:
    files = [f"{tmp_path}/{seed}.json" for seed in (1, 2, 3)]
    for seed, share, file in ((1, 0.5, files[0]), (2, 0.5, files[1]), (3, 0.8, files[2])):
        rng = np.random.default_rng(seed)
        rows = {"variant": rng.choice(["A", "B"], 2_000, p=[1 - share, share]), "bought": rng.random(2_000) < 0.2}
        kb.write_release(kb.release(kb.count(rows, arm="variant", metrics=["bought"])), file)
    words = f"analyze {' '.join(files)}"
    data = plain(words)
    assert (data["people"], [row["kind"] for row in data["cautions"]]) == (6_000, ["shares-changed", "looked-early"])
    text = program(*words.split()).out
    assert text.index("── Before you act on it") < text.index("3 batches are added here.") < text.index("Sample ratio")
    looks = plain(f"{words} --sequential spending --looks 5")
    assert looks["effects"][0]["sequential"]["look"] == 3
    assert [row["kind"] for row in looks["cautions"]] == ["shares-changed"]


@pytest.mark.slow
def test_the_looks_at_a_growing_file_are_said_or_kept(plain: Any, tmp_path: Path) -> None:
    source = tmp_path / "visits.csv"
    words = f"analyze {source} {FLAGS} --sequential spending --looks 4"
    answers = []
    for people in (1_000, 2_000, 2_000):
        rows = "".join(f"{'AB'[i % 2]},{i % 7 // 5}\n" for i in range(people))
        source.write_text(f"variant,bought\n{rows}")
        answers.append(plain(f"{words} --looks-file {tmp_path}/looks.json"))
    assert [answer["effects"][0]["sequential"]["look"] for answer in answers] == [1, 2, 2]
    assert plain(f"{words} --looks-at 1000") == answers[-1]
    assert plain(f"{words} --looks-at none")["effects"][0]["sequential"]["look"] == 1


MISTAKES = """
visits.csv --shares A=1
visits.csv --shares 1:1
visits.csv --shares A
visits.csv --shares A=half,B=half
visits.csv --shares A=50%,B=1
visits.csv --shares A=50%,B=40%
visits.csv --shares A=0.5,B=0.4
visits.csv --shares A=50%,A=50%
visits.csv --shares A=1,B=-1
visits.csv --adjust tier --bin tier=x
visits.csv --adjust tier --bin tier=2.5
visits.csv --bounds spend=5
visits.csv --metric spend --bounds spend=0:5,spend=0:6
visits.csv --ratio spend
visits.csv --ratio spend/bought/tier
visits.csv --number age
visits.csv --confidence high
visits.csv --resolution spend=x
visits.csv --confidence 95
visits.csv --control Z
visits.csv --adjust country --top country=2000
visits.csv --adjust country --top country=2.5
visits.csv --top country=3
visits.csv --metric variant
visits.csv --metric device
visits.csv --arm varian
visits.csv --adjust bought
visits.csv --metric spend --bin spend=0:10:20 --quantile sepnd=0.5
visits.csv --adjust tier --missing tier=zero
visits.csv --treatment-received bought
visits.csv --window 7d
visits.csv --events visits.csv --unit user_id --window 0d
visits.csv --events visits.csv --unit user_id
visits.csv --events visits.csv --window 7d
visits.csv --table a --exposures b
visits.csv --where "from = 1"
visits.csv --where "contry = 'US'"
visits.csv --where 'device = "phone"'
visits.csv --where "device = = 1"
visits.csv --join visits.csv
visits.csv --adjust user_id
visits.csv --arm user_id
visits.csv visits.csv
empty.csv
nothing.csv
nothing.json
.
postgresql://localhost:1/shop --table t
"""


@pytest.mark.slow
def test_a_mistaken_flag_is_told_with_what_to_write(program: Program) -> None:
    said = transcript(program, f"analyze {FLAGS}", MISTAKES)
    assert_approved("cli/analyze_mistakes.txt", said)
    assert "2,000" not in said.replace("country=2000", "")  # how many levels there are


BESIDE_A_PLAN = """
--bin age=5
--top country=3
--resolution spend=1
--missing spend=zero
--min-events bought=10
--adjust device
--segment device
--metric spend
"""


def test_single_choices_beside_a_plan_are_an_error_not_ignored(program: Program) -> None:
    assert_approved("cli/beside_a_plan.txt", transcript(program, "analyze visits.csv --plan kanab.toml", BESIDE_A_PLAN))


ARM_MISTAKES = """
--shares A=1,B=1,C=1
--shares a=1,b=1
--arms x,y
--arms A
--arms A,B --shares A=1,C=1
--control C
"""


@pytest.mark.slow
def test_a_mistaken_arm_is_told_by_names_that_may_be_shown(program: Program) -> None:
    said = transcript(program, f"analyze strays.csv {FLAGS}", ARM_MISTAKES)
    assert_approved("cli/arm_mistakes.txt", said)
    assert "slip" not in said


READING_MISTAKES = """
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


def test_what_cannot_be_read_says_what_to_write(program: Program) -> None:
    assert_approved("cli/reading_mistakes.txt", transcript(program, "analyze arms.json", READING_MISTAKES))


JOIN_MISTAKES: list[dict[str, list[Any]]] = [
    {"user_id": [1, 1, 2], "region": ["n", "s", "n"]},
    {"user_id": [-1], "region": ["n"]},
    {"user_id": [1], "tier": [1]},
    {"user_id": ["u1"], "region": ["n"]},
    {"user": [1], "region": ["n"]},
]


def test_a_table_that_cannot_be_joined_says_why(program: Program) -> None:
    said = []
    for rows in JOIN_MISTAKES:
        write_csv("other.csv", rows)
        said += [
            str(rows),
            program("analyze", "visits.csv", *FLAGS.split(), "--join", "other.csv", "--on", "user_id").err,
        ]
    assert_approved("cli/join_mistakes.txt", "\n".join(said))


COUNTING = ("--arm variant", "--where x", "--unit user_id", "--sep ;", "--shares A=1", "--segment device", "--show-sql")


def test_a_release_takes_no_flag_that_says_what_to_count(program: Program) -> None:
    for flags in COUNTING:
        done = program("analyze", "arms.json", *flags.split())
        assert (done.code, done.out) == (2, "")
        assert f"a release already says what was counted. Leave out {flags.split()[0]}." in done.err
    assert program("analyze", "arms.json", "--control", "B").code == 0
