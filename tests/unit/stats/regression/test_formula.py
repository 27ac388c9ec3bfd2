"""The formula language: what is read, what is refused, and the columns that it makes."""

import os
import subprocess
import sys

import numpy as np
import pytest

from kanab import Metric, Tally, count_columns
from kanab.errors import FormulaError
from kanab.stats.gram import classes_of
from kanab.stats.regression.formula import design, parse
from kanab.tally import Factor
from kanab.tally.moments import Moments


def terms(formula):
    return [":".join(map(str, term)) for term in parse(formula)]


def columns(tally, formula):
    model = design(tally, parse(formula), classes_of(tally))
    return {name: column.tolist() for name, column in zip(model.names, model.matrix.T, strict=True)}


def crossed(**levels):
    """One person in every combination of the levels; the first factor is the experiment."""
    factors = []
    for name, values in levels.items():
        numbers = len(factors) > 0 and not any(isinstance(value, str) for value in values)
        scores = tuple(None if value is None else float(value) for value in values) if numbers else None
        factors.append(Factor(name, tuple(values), "covariate" if factors else "arm", scores))
    ones = np.ones(tuple(len(factor.levels) for factor in factors), dtype=object)
    return Tally(tuple(factors), ones, (Moments(Metric("y", 1, (0, 1)), ones, ones, {}),))


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("arm", ["arm"]),
        ("arm + tier", ["arm", "tier"]),
        ("arm * tier", ["arm", "tier", "arm:tier"]),
        ("arm:tier", ["arm:tier"]),
        ("arm + arm + tier", ["arm", "tier"]),
        ("tier:arm + arm:tier", ["arm:tier"]),
        ("arm:arm", ["arm"]),
        ("arm*tier*device", ["arm", "tier", "device", "arm:tier", "arm:device", "tier:device", "arm:tier:device"]),
        ("arm * (tier + device)", ["arm", "tier", "device", "arm:tier", "arm:device"]),
        ("arm:(tier + device)", ["arm:tier", "arm:device"]),
        ("arm:tier + arm", ["arm", "arm:tier"]),
        ("((arm))", ["arm"]),
        ("1", []),
        ("1 + arm", ["arm"]),
        ("C(tier) + tier", ["C(tier)", "tier"]),
        ("C ( tier )", ["C(tier)"]),
        ("C(`time on app`) + `time on app`", ["C(time on app)", "time on app"]),
        ("C", ["C"]),
        ("C + C(C)", ["C", "C(C)"]),
        ("größe + _x1 + a.b.c", ["größe", "_x1", "a.b.c"]),
        ("  arm\n+\ttier  ", ["arm", "tier"]),
    ],
)
def test_a_formula_is_read_as_its_terms_main_effects_first(formula, expected):
    assert terms(formula) == expected


@pytest.mark.parametrize(
    "formula",
    [
        "", " ", "+", "arm +", "+ arm", "arm ++ tier", "arm tier", "arm *", "* arm", "arm : ", ":arm", "(arm", "arm)",
        "()", "arm - tier", "-1", "0 + arm", "arm + 2", "arm ** 2", "arm^2", "log(tier)", "C()", "C(", "C(tier", "C(+)",
        "C(a b)", "C(C(tier))", "arm | tier", "arm, tier", "arm == 1", "`", "``", "`arm", "1arm", "²", "arm; drop",
        "\x00", "11",
    ],
)  # fmt: skip
def test_what_is_not_a_formula_is_refused_with_a_place_and_a_remedy(formula):
    with pytest.raises(FormulaError, match=r"this is not a formula - at position \d+ of the formula\. Use names, \+"):
        parse(formula)


@pytest.mark.parametrize("formula", ["y ~ arm", "~ arm", "arm ~ tier"])
def test_a_left_side_is_refused_with_a_hint_where_the_metric_goes(formula):
    with pytest.raises(FormulaError, match=r"a formula has no left side .*fit\(tally, 'arm', 'spend'\)"):
        parse(formula)


def test_the_place_of_an_error_is_the_word_that_is_wrong():
    with pytest.raises(FormulaError, match="at position 3 of the formula"):
        parse("arm + + tier")
    with pytest.raises(FormulaError, match="at position 6 of the formula"):
        parse("arm + C(tier device)")
    with pytest.raises(FormulaError, match="at position 5 of the formula"):
        parse("arm + C(+)")


@pytest.mark.parametrize("formula", [None, 5, b"arm", ["arm"], "a" * 2_001])
def test_anything_but_a_short_text_is_refused(formula):
    with pytest.raises(FormulaError, match=r"a formula must be a short text\. For example 'arm \+ tier'\."):
        parse(formula)


def test_twenty_brackets_are_read_and_twenty_one_refused():
    assert terms("(" * 20 + "arm" + ")" * 20) == ["arm"]
    with pytest.raises(FormulaError, match="nested too deeply"):
        parse("(" * 21 + "arm" + ")" * 21)


def test_more_than_two_hundred_terms_are_refused():
    assert len(terms("*".join("abcdefg"))) == 127
    with pytest.raises(FormulaError, match="too many terms"):
        parse("*".join("abcdefgh"))
    with pytest.raises(FormulaError, match="too many terms"):
        parse("(" + "+".join(f"a{i}" for i in range(15)) + "):(" + "+".join(f"b{i}" for i in range(15)) + ")")


@pytest.mark.slow
def test_products_of_long_sums_are_refused_before_they_fill_the_memory():
    half = "+".join(["a*b*c*d*e*f*g"] * 70)
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "from kanab.errors import FormulaError\nfrom kanab.stats.regression.formula import parse\n"
        f"half = {half!r}\n"
        "try:\n    parse(f'({half})*({half})')\nexcept FormulaError:\n    pass\n"
    )
    alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120, check=False, env=alone)
    assert done.returncode == 0, done.stderr.decode()[-300:]


def test_columns_are_treatment_coded_with_the_first_level_as_reference():
    assert columns(crossed(arm="AB", tier=[1, 2, 3]), "arm + C(tier)") == {
        "Intercept": [1, 1, 1, 1, 1, 1],
        "arm[B]": [0, 0, 0, 1, 1, 1],
        "tier[2]": [0, 1, 0, 0, 1, 0],
        "tier[3]": [0, 0, 1, 0, 0, 1],
    }


def test_the_missing_level_of_a_numeric_covariate_is_a_column_of_its_own():
    coded = columns(crossed(arm="AB", tier=[1, 2, None]), "tier")
    assert coded == {
        "Intercept": [1] * 6,
        "tier": [1, 2, 0, 1, 2, 0],
        "tier[missing]": [0, 0, 1, 0, 0, 1],
    }


def test_a_missing_level_that_nobody_has_makes_no_column():
    tally = crossed(arm="AB", tier=[1, 2, None])
    missing = np.zeros((2, 3), dtype=object)
    missing[:, 2] = 1
    gone = Tally(tally.factors, missing, (Moments(tally.metrics[0], missing, missing, {}),))
    assert list(columns(tally - gone, "tier")) == ["Intercept", "tier"]


def test_the_experiments_of_a_pair_are_called_by_their_names():
    rows = {"one": list("ABAB"), "two": list("XXYY"), "y": [0, 1, 1, 0]}
    tally = count_columns(rows, arm=["one", "two"], metrics=["y"])
    assert list(columns(tally, "one * two")) == ["Intercept", "one[B]", "two[Y]", "one[B]:two[Y]"]
    with pytest.raises(FormulaError, match=r"unknown factor\. This tally has: one, two\."):
        columns(tally, "arm")
