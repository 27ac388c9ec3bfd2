import json
import re
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.approved import assert_approved

from kanab.collector.counting.layout import layouts
from kanab.errors import PlanError
from kanab.plan.file import parse_plan, plan_digest, plan_from_dict, plan_to_dict, read_plan
from kanab.plan.model import make_plan
from kanab.plan.values import duration

SHOP = """\
k = 10

[cohorts]
every = "7d"
window = "7d"
seal = "7d"

[covariates]
tier = [1, 2, 3]
device = ["phone", "desktop", "other"]

[metrics]
bought = { kind = "binary" }
minutes = { bounds = [0, 600], resolution = 0.01 }
spend = { bounds = [0, 500], resolution = 0.01, of = "bought" }

[experiments.checkout]
arms = { A = 1, B = 1 }
adjust = ["tier"]
segments = ["device"]

[experiments.banner]
arms = { off = 9, on = 1 }
interactions = ["checkout"]
"""

EVERYTHING = """\
k = 20
origins = ["https://shop.example", "http://localhost:8000"]
durability = "memory"
nonce_life = "48h"

[cohorts]
every = "1d"
window = "14d"

[covariates]
tier = { levels = [1, 2.5] }
member = [true, false]
age = { bins = 5 }
prior = { bins = [10, 20.5] }
country = { top = 20 }
city = {}

[metrics]
bought = { kind = "binary", sensitive = "both", least_events = 20 }
orders = { bounds = [0, 50], resolution = 1, missing = "exclude" }
revenue = { bounds = [0, 500], resolution = 0.01, of = "bought", sensitive = true, squares = "class" }
basket = { ratio = ["revenue", "orders"] }

[experiments.checkout]
arms = { A = 1, B = 1, C = 0.5 }
control = "B"
adjust = ["tier", "age"]
segments = ["tier", "member"]
interactions = ["banner"]
salt = "2026-11"
holdout = 0.1
tolerance = { revenue = 0.5 }
looks = 4
primary = ["orders"]
guardrails = ["revenue", "bought"]
lower_is_better = ["bought"]
non_inferiority = { revenue = "2.5%", bought = 0.01 }
decision = { primary = "all", guardrails = "non-inferior", people = 20000, worth = "2%" }

[experiments.banner]
arms = [[0, 9], [1, 1]]
control = 0
exclude_with = ["footer"]
tolerance = 0.25

[experiments.footer]
arms = { off = 1, on = 1 }
"""


def refused(text: str) -> list[str]:
    """The mistakes of a plan, without the header."""
    with pytest.raises(PlanError) as error:
        parse_plan(text)
    message = str(error.value)
    number, _, rest = message.partition(" in the plan:")
    found = [line.strip() for line in rest.strip().removesuffix(".").split("\n")]
    assert int(number.split()[0]) == len(found)
    return found


def changed(old: str, new: str, text: str = SHOP) -> str:
    assert text.count(old) >= 1
    return text.replace(old, new, 1)


def test_every_key_is_read() -> None:
    plan, lines = parse_plan(EVERYTHING), []
    for field in fields(plan):
        value = getattr(plan, field.name)
        lines += [f"{field.name}:", *(f"    {part}" for part in (value if isinstance(value, tuple) else [value]))]
    assert_approved("plan/everything.txt", "\n".join(lines) + "\n")


def test_quantiles_and_bins_of_metrics_are_read_and_written() -> None:
    plan = parse_plan("""
        [metrics]
        latency = { bounds = [0, 5000], bins = [0, 50, 100.5] }
        spend = { bounds = [0, 100], bins = 4 }
        [experiments.checkout]
        arms = { A = 1, B = 1 }
        quantiles = { latency = [0.9, 0.5], spend = 0.5 }
    """)
    assert plan.experiment().quantiles == {"latency": (0.5, 0.9), "spend": (0.5,)}
    assert [metric.edges for metric in plan.metrics] == [(0.0, 50.0, 100.5), (0.0, 25.0, 50.0, 75.0, 100.0)]
    assert plan.linkage_names == ("checkout", "checkout/latency", "checkout/spend")
    assert [linkage.people_only for linkage in plan.linkages] == [False, True, True]
    assert plan_from_dict(plan_to_dict(plan)) == plan
    with pytest.raises(
        PlanError, match=r"experiments\.checkout\.quantiles must be a table of shares of people by metric"
    ):
        parse_plan(
            "[metrics]\nspend = { bounds = [0, 9] }\n[experiments.checkout]\narms = { A = 1, B = 1 }\nquantiles = 1"
        )


WITH_A_NUMBER = """
[covariates]
tier = [1, 2, 3]
[metrics]
spend = { bounds = [0, 300], resolution = 0.01 }
before = { bounds = [0, 150], resolution = 0.01 }
[experiments.variant]
arms = { A = 1, B = 1 }
adjust = ["tier", "before"]
"""


def test_a_metric_to_adjust_for_comes_back_from_plain_data_and_a_collector_takes_none() -> None:
    plan = parse_plan(WITH_A_NUMBER)
    assert (plan.numbers, plan.experiment().adjust, plan.outcomes) == (("before",), ("tier",), ("spend",))
    assert plan_to_dict(plan)["experiments"]["variant"]["adjust"] == ["tier", "before"]
    assert plan_from_dict(plan_to_dict(plan)) == plan
    with pytest.raises(PlanError, match="adjust names a metric, which needs products that messages do not carry"):
        layouts(plan)


def test_without_cohorts_there_are_none() -> None:
    assert parse_plan(re.sub(r"\[cohorts\][^[]*", "", SHOP)).cohorts is None


def test_a_control_may_be_written_as_a_number_where_arms_look_like_numbers() -> None:
    plan = parse_plan(changed("arms = { A = 1, B = 1 }", "arms = { 0 = 1, 1 = 1 }\ncontrol = 1"))
    assert plan.experiment("checkout").control == "1"


def test_a_file_with_a_byte_order_mark_and_windows_line_ends_is_read(tmp_path: Path) -> None:
    file = tmp_path / "kanab.toml"
    file.write_bytes(b"\xef\xbb\xbf" + SHOP.replace("\n", "\r\n").encode())
    assert read_plan(file) == read_plan(str(file)) == parse_plan(SHOP)


CHANGES: dict[str, list[str]] = {
    "k = 10": [
        "[privacy]\nepsilon = 0\ndelta = 0.5\nweights = { shop = 1 }\nshares = { x = 2 }\nstores = 0",
        "[privacy]\ndelta = 1e-6",
        'k = "10"',
        "kk = 10",
        "origins = 'https://shop.example'",
        "origins = ['https://shop.example/x']",
        "durability = 'ram'",
        "nonce_life = '1 day'",
        "nonce_life = 24",
    ],
    'every = "7d"': ['every = "36h"', 'evry = "7d"'],
    'window = "7d"': ['window = "0d"'],
    'seal = "7d"': ['seal = "never"'],
    "tier = [1, 2, 3]": [
        "tier = 3",
        "tier = [1, 2, 2.0]",
        "tier = [1, 2, '3']",
        "tier = [1, [2]]",
        "tier = [1, nan]",
        "tier = [1979-05-27, 1980-05-27]",
        "tier = { bins = 1 }",
        "tier = { bins = [2, 1] }",
        "tier = { bins = ['a'] }",
        "tier = { top = '3' }",
        "tier = { tops = 3 }",
        "tier = { top = 3, bins = 3 }",
    ],
    "minutes = { bounds = [0, 600], resolution = 0.01 }": ["minutes = 'number'"],
    "resolution = 0.01 }": [
        "resolution = 'cent' }",
        "resolution = 0.3 }",
        "reslution = 0.01 }",
        "kind = 'count' }",
        "kind = 'binary' }",
        "missing = 'level' }",
        "sensitive = 1 }",
        "least_events = 0 }",
        "least_events = 5 }",
        "squares = 'arm' }",
        "of = 'spend' }",
        "of = 'boght' }",
        "of = ['bought'] }",
        "ratio = ['spend', 'bought'] }",
        "winsorize = [0, 5] }",
    ],
    "bounds = [0, 600]": [
        "bounds = [600, 0]",
        "bounds = [0, inf]",
        "bounds = [0, true]",
        "bounds = 600",
        "bounds = [0, 1e15]",
    ],
    "bounds = [0, 600],": [""],
    "bounds = [0, 600], resolution = 0.01": ["ratio = ['spend']"],
    "arms = { A = 1, B = 1 }": [
        "salt = 'x'",
        "arms = { A = 1 }",
        "arms = ['A', 'B']",
        "arms = { A = 1, B = -1 }",
        "arms = { A = 1, B = nan }",
        "arms = { A = 1, '' = 1 }",
        "variants = { A = 1, B = 1 }",
    ],
    'adjust = ["tier"]': [
        'adjust = ["teir"]',
        'adjust = "tier"',
        'adjust = ["tier", "tier"]',
        'ajust = ["tier"]',
        'survival = { spend = "days" }',
        'control = "C"',
        'salt = ""',
        "holdout = 1",
        "looks = 0",
        'primary = ["spnd"]',
        'guardrails = "spend"',
        'primary = ["spend"]\nguardrails = ["spend"]',
        'lower_is_better = ["x"]',
        "non_inferiority = 2",
        'non_inferiority = { spend = "two" }',
        'non_inferiority = { spend = "0%" }',
        "decision = { people = 0 }",
        "decision = { worth = 0 }",
        "decision = { peple = 9 }",
        'decision = { primary = "one" }',
        'guardrails = ["spend"]\ndecision = { guardrails = "non-inferior" }',
        "tolerance = 0",
        "tolerance = { spnd = 1 }",
        'exclude_with = ["checkout"]',
        'cuped = ["tier"]',
        "sequential = 4",
        'decision = { mde = "2%" }',
    ],
    'interactions = ["checkout"]': ['interactions = ["chekout"]'],
    "[experiments.banner]": ["[experiments.tier]", '[experiments."tab\\t"]'],
}
"""What is changed in the shop's plan, and into what: each is one mistake, with its path, and what to write."""


def test_every_mistake_is_named_with_its_path() -> None:
    lines = []
    for old, mistakes in CHANGES.items():
        for new in mistakes:
            found = refused(changed(old, new))
            lines += [new, *(f"    {mistake}" for mistake in found)]
    assert_approved("plan/mistakes.txt", "\n".join(lines) + "\n")


def test_all_mistakes_are_reported_together() -> None:
    text = changed("resolution = 0.01 }", "resolution = 0.3 }", changed('adjust = ["tier"]', 'adjust = ["teir"]'))
    assert refused(changed("k = 10", "k = 1", text)) == [
        "experiments.checkout.adjust names an unknown covariate, 'teir'; nearest: tier",
        "k must be a whole number, at least 2",
        "metrics.minutes.resolution: the resolution of 'minutes' must be 1 divided by a whole number",
    ]


def test_an_empty_file_lacks_metrics_and_experiments() -> None:
    assert refused("") == refused("[metrics]\n[experiments]\n") == [
        "metrics is missing: name at least one",
        "experiments is missing: name at least one",
    ]  # fmt: skip


@pytest.mark.parametrize("group", ["metrics", "covariates", "experiments", "cohorts"])
def test_a_group_that_is_no_table_is_a_mistake(group: str) -> None:
    assert f"{group} must be a table" in refused(f"{group} = 1")


@pytest.mark.parametrize(
    ("text", "fact", "line"),
    [
        ("k = 10\nk = 11\n", "Cannot overwrite a value", "line 2"),
        ("k = 10\n[metrics\n", "Expected ']'", "line 2"),
        ("k = 10\n\n\nspend", "Expected '='", "line 4"),
        ("k = ", "Invalid value", "line 1"),
        ("k = 1\x00", "", "line 1"),
    ],
)
def test_a_syntax_error_is_named_with_its_line(text: str, fact: str, line: str) -> None:
    with pytest.raises(PlanError, match=f"the plan is not valid TOML: {re.escape(fact)}.* - at {line}"):
        parse_plan(text)


def test_values_beyond_all_reason_are_refused() -> None:
    for text in ("k = " + "9" * 5000, "k = " + "[" * 5000):
        with pytest.raises(PlanError, match="not valid TOML"):
            parse_plan(text)
    assert refused(changed("A = 1,", f"A = 1{'0' * 400},")) == [
        "experiments.checkout.arms.A must have a positive share"
    ]
    assert "covariates.tier must be a finite number" in refused(changed("[1, 2, 3]", f"[1, 1{'0' * 400}]"))


def test_a_file_that_cannot_be_read_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"^there is no file 'kanab.toml'\. Check the path\.$"):
        read_plan(tmp_path / "kanab.toml")
    with pytest.raises(PlanError, match="cannot be read"):
        read_plan(tmp_path)
    latin = tmp_path / "latin.toml"
    latin.write_bytes("# é".encode("latin-1"))
    with pytest.raises(PlanError, match=r"latin\.toml is not UTF-8 text"):
        read_plan(latin)


def test_mistakes_of_a_file_name_it_but_not_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "kanab.toml"
    file.write_text(changed("k = 10", "k = 1"), encoding="utf-8")
    with pytest.raises(PlanError) as error:
        read_plan(file)
    assert str(error.value) == "1 mistake in kanab.toml: k must be a whole number, at least 2."
    file.write_text("k", encoding="utf-8")
    with pytest.raises(PlanError, match=r"^kanab\.toml is not valid TOML"):
        read_plan(file)


def test_durations_are_whole_numbers_of_a_unit() -> None:
    assert [duration(text) for text in ("30m", "24h", "7d", "2w")] == [
        timedelta(minutes=30), timedelta(days=1), timedelta(days=7), timedelta(days=14),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "d", "0d", "1.5d", "-1d", "7 d", "7D", "7y", "1000000d", 7, None, "٣d"])
def test_other_spellings_of_durations_are_refused(text: Any) -> None:
    with pytest.raises(PlanError, match="a duration must be"):
        duration(text)


@pytest.mark.parametrize("text", [SHOP, EVERYTHING])
def test_a_plan_survives_the_way_through_json(text: str) -> None:
    plan = parse_plan(text)
    again = plan_from_dict(json.loads(json.dumps(plan_to_dict(plan))))
    assert again == plan
    assert plan_digest(again) == plan_digest(plan)


def test_a_plan_from_flags_survives_the_way_through_json() -> None:
    plan = make_plan("variant", ["spend"], adjust=["tier"], arms={False: 1, True: 2}, control=False, k=3)
    again = plan_from_dict(json.loads(json.dumps(plan_to_dict(plan))))
    assert again == plan
    assert again.experiment().control is False
    bare = make_plan("variant", [])
    assert plan_from_dict(plan_to_dict(bare)) == bare


def test_plain_data_is_checked_like_a_file() -> None:
    with pytest.raises(PlanError, match="1 mistake in the plan: k must be"):
        plan_from_dict({"k": 0})
    for data in (None, [], {1: 2}):
        with pytest.raises(PlanError, match="the plan must be a table"):
            plan_from_dict(data)


def test_the_digest_ignores_spelling_and_comments_and_defaults() -> None:
    plain = plan_digest(parse_plan(SHOP))
    spelled = changed("bounds = [0, 600]", "bounds = [0.0, 6e2]", changed("k = 10", "# a comment\nk = 10"))
    assert plan_digest(parse_plan(spelled)) == plain
    assert plan_digest(parse_plan(changed("k = 10", 'durability = "disk"'))) == plain
    assert re.fullmatch(r"[0-9a-f]{64}", plain)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("k = 10", "k = 11"),
        ("A = 1, B = 1", "A = 1, B = 2"),
        ("A = 1, B = 1", "B = 1, A = 1"),
        ("bounds = [0, 600]", "bounds = [0, 601]"),
        ('"phone", "desktop"', '"desktop", "phone"'),
        ("[1, 2, 3]", "['1', '2', '3']"),
    ],
)
def test_the_digest_changes_with_what_is_counted(old: str, new: str) -> None:
    assert plan_digest(parse_plan(changed(old, new))) != plan_digest(parse_plan(SHOP))


KEYS = "k metrics covariates experiments cohorts arms adjust bounds kind ratio of levels bins top every tolerance"
SIGNS = "= [ ] { } [[ ]] . , \n # \" ' 1 0 -1 0.5 1e400 inf nan true 7d 'binary' \"x\" 1979-05-27 spend tier A B"
WORDS = st.sampled_from([*KEYS.split(" "), *SIGNS.split(" ")])


def plan_or_refusal(text: str) -> None:
    try:
        plan = parse_plan(text)
    except PlanError as problem:
        assert len(str(problem)) < 100_000
    else:
        assert plan_from_dict(plan_to_dict(plan)) == plan


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_damage_to_a_plan_is_a_plan_or_refused(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(EVERYTHING)))
    length = data.draw(st.integers(0, 12))
    put = data.draw(WORDS | st.text(max_size=5))
    plan_or_refusal(EVERYTHING[:start] + put + EVERYTHING[start + length :])


TOML = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=8), inner, max_size=5),
    max_leaves=12,
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(["k", "metrics", "covariates", "experiments", "cohorts", "origins"]), TOML))
def test_any_tree_of_values_is_a_plan_or_refused(tree: dict[str, Any]) -> None:
    try:
        plan = plan_from_dict(tree)
    except PlanError:
        return
    assert plan_from_dict(plan_to_dict(plan)) == plan
