"""Any text at all is a formula or a KanabError, and quickly so."""

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kanab import KanabError, count_columns
from kanab.errors import FormulaError
from kanab.stats import adjusted_effect, fit, pooled_f
from kanab.stats.regression import parse

LONGEST = 1.0  # seconds of processor time; a reading takes well under a millisecond

fuzz = settings(max_examples=400, derandomize=True, deadline=None)

TALLY = count_columns(
    {
        "variant": ["A", "A", "B", "B", "A", "B"] * 5,
        "tier": [1, 2, 1, 2, None, 3] * 5,
        "time on app": ["low", "high", "low", "high", "low"] * 6,
        "y": [3, 1, 4, 1, 5, 9, 2, 6, 5, 3] * 3,
    },
    arm="variant",
    covariates=["tier", "time on app"],
    metrics=["y"],
)

words = st.sampled_from(
    ["arm", "tier", "variant", "device", "`time on app`", "C(tier)", "C(arm)", "C(`time on app`)", "C", "1", "0", "(",
     ")", "+", "*", ":", "-", "~", "`", "", " ", "\n", "²", "é", "_", ".", "C(", "missing", "None", "\x00", "𝒳"]
)  # fmt: skip
sentences = st.lists(words, max_size=25).map("".join) | st.lists(words, max_size=15).map(" ".join)
formulas = st.recursive(
    st.sampled_from(["arm", "tier", "C(tier)", "`time on app`", "1", "variant"]),
    lambda inner: st.builds("({}{}{})".format, inner, st.sampled_from(["+", "*", ":", " + ", " * "]), inner),
    max_leaves=12,
)


def outcome(call):
    """What came of it, and that it came soon."""
    started = time.process_time()
    try:
        result = call()
    except KanabError as problem:
        result = problem
    assert time.process_time() - started < LONGEST
    return result


@fuzz
@given(text=st.text(max_size=60) | sentences)
@example("C(")
@example("`")
@example("((((")
@example("a" * 2_000)
@example("(" * 2_000)
@example("+" * 2_000)
@example("*".join("abcdefghijklmnopqrstuvwxyz"))
@example(":".join(["(a+b+c+d)"] * 50))
@example("+".join(["a"] * 1_000))
def test_reading_gives_terms_or_a_formula_error(text):
    result = outcome(lambda: parse(text))
    assert isinstance(result, (tuple, FormulaError))


@pytest.mark.slow
@fuzz
@given(text=st.text(max_size=40) | sentences | formulas)
def test_fitting_gives_a_fit_or_an_error_of_ours(text):
    result = outcome(lambda: fit(TALLY, text))
    if not isinstance(result, KanabError):
        assert result.names[0] == "Intercept"
        assert len(set(result.names)) == len(result.names) == len(result.b)


@settings(fuzz, max_examples=150)
@given(formula=formulas)
def test_every_well_formed_formula_is_read(formula):
    assert isinstance(parse(formula), tuple)


@settings(fuzz, max_examples=150)
@given(text=sentences | formulas)
def test_adjusting_gives_an_effect_or_an_error_of_ours(text):
    outcome(lambda: adjusted_effect(TALLY, covariates=text))


@settings(fuzz, max_examples=150)
@given(names=st.lists(st.text(max_size=8) | st.sampled_from(["tier", "time on app", "C(tier)"]), max_size=4))
def test_any_list_of_names_is_adjusted_for_or_refused(names):
    outcome(lambda: adjusted_effect(TALLY, covariates=names))


def named(name, other="device"):
    rows = {"variant": list("AABB") * 4, name: [1, 2] * 8, other: list("uvvu") * 4, "y": [3, 1, 4, 1] * 3 + [5] * 4}
    return count_columns(rows, arm="variant", covariates=[name, other], metrics=["y"])


@pytest.mark.slow
@settings(fuzz, max_examples=100)
@given(
    name=st.text(min_size=1, max_size=12).filter(str.strip),
    other=st.text(min_size=1, max_size=12).filter(str.strip),
)
@example("# visits", "€ spent")
def test_a_covariate_of_any_name_can_be_fitted_in_backticks(name, other):
    if len({"variant", "arm", "y", name, other}) < 5 or "`" in name + other:
        return
    assert fit(named(name, other), f"arm + `{name}` + C(`{other}`)").df == 12


@pytest.mark.slow
@settings(fuzz, max_examples=100)
@given(name=st.text(min_size=1, max_size=12).filter(str.strip))
@example("# visits")
@example("two `ticks`")
def test_a_covariate_of_any_name_can_be_tested_and_adjusted_for(name):
    if name in {"variant", "arm", "y", "device"}:
        return
    tally = named(name).keep(name)
    assert pooled_f(tally).df == pooled_f(tally, name).df == (1, 12)
    assert adjusted_effect(tally).covariates == adjusted_effect(tally, covariates=[name]).covariates == (name,)


@pytest.mark.parametrize("side", ["a*b*c*d*e", "(a+b+c)*(d+e)", "a:b:c:d"])
def test_products_of_sums_are_read_in_no_time(side):
    half = "+".join([side] * 30)
    outcome(lambda: parse(f"({half})*({half})"))
    outcome(lambda: parse(f"({half}):({half})"))
