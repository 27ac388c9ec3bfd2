"""The paper's worked examples beyond `examples/paper.py`, which proves every printed number from classes and from rows.

`property/test_exact.py` proves for any means that fits, tests and effects are the rational solution to the last digits.
"""

from decimal import Decimal
from typing import Any

import pytest

import kanab as kb
from kanab.datasets import eighteen, eighteen_rows

MAIN, FULL = "arm + C(tier)", "arm * C(tier)"
STEPS = 10**9
ULPS = 1e-14  # what the last digits of a double may differ by between machines


def to_its_digits(text: str) -> Any:
    """Equal to half a unit of the last digit given."""
    exponent = Decimal(text).as_tuple().exponent
    assert isinstance(exponent, int)
    return pytest.approx(float(text), rel=ULPS, abs=0.5000001 * 10.0**exponent)


def all_to_their_digits(text: str) -> list[Any]:
    return [to_its_digits(part) for part in text.split()]


@pytest.fixture(scope="module")
def tally() -> kb.Tally:
    return eighteen()


def test_table_1_is_the_paper_s_in_the_order_of_users():
    rows = eighteen_rows()
    assert rows["treatment"] == ["A"] * 9 + ["B"] * 9
    assert rows["tier"] == [1, 2, 3] * 6
    assert rows["minutes"] == [
        1.035051833, 2.052761778, 0.818065309, 0.445755940, 2.192969747, 1.351287088, 0.690041547, 1.965163288,
        0.885217757, 0.836158231, 0.224290470, 2.689670150, 0.286027328, 0.668558807, 2.138392457, 0.300483978,
        0.816659567, 2.406463861,
    ]  # fmt: skip


def test_the_printed_tables_2_and_3_are_read_as_the_same_tally(tally):
    table2 = {
        "Treatment": list("AAABBB"), "Covariate": [1, 2, 3] * 2, "Count": [3] * 6,
        "Sum Time on App": [2.170849320, 6.210894813, 3.054570154, 1.422669536, 1.709508844, 7.234526468],
    }  # fmt: skip
    table3 = {"Treatment": ["A", "B"], "Time on App²": ["17.9098200898989", "19.6335889126438"]}
    read = kb.counting.read_classes(table2, table3)
    assert read.metrics[0].name == "Time on App"
    assert read.people.tolist() == tally.people.tolist()
    sums = read.moments_of().sums / read.metrics[0].scale
    assert sums.ravel().tolist() == pytest.approx((tally.moments_of().sums / STEPS).ravel().tolist(), rel=0, abs=1.1e-9)
    f = kb.stats.pooled_f(read).F
    assert f == pytest.approx(41.7046498, rel=1e-7, abs=0)


@pytest.mark.parametrize("how", ["classes", "nested formulas", "two fits", "a pair of experiments"])
def test_partial_f_is_41_7046_however_it_is_asked_for(tally, how):
    if how == "two fits":
        main, full = kb.stats.fit(tally, MAIN), kb.stats.fit(tally, FULL)
        f, df, p = (main.rss - full.rss) / 2 / (full.rss / 12), (main.df - full.df, full.df), None
    else:
        pair = kb.count_columns(
            eighteen_rows(), arm=["treatment", "tier"], metrics=["minutes"], resolution={"minutes": 1e-9}
        )
        test = {
            "classes": lambda: kb.stats.pooled_f(tally),
            "nested formulas": lambda: kb.stats.nested_f(tally, MAIN, FULL),
            "a pair of experiments": lambda: kb.stats.pooled_f(pair),
        }[how]()
        f, df, p = test.F, test.df, test.p
    assert f == to_its_digits("41.7046498028901")
    assert f == to_its_digits("41.705")
    assert df == (2, 12)
    assert p is None or p == to_its_digits("3.95861467139e-6")


def test_the_printed_table_6a_gives_the_same_adjusted_effect():
    table = {
        "Treatment": list("AAABBB"), "Covariate": [1, 2, 3] * 2, "Count": [3, 4, 2, 3, 3, 3],
        "Sum Time on App": [
            "2.17084932005864", "7.09611256990949", "2.16935239750738",
            "1.42266953605589", "1.70950884373810", "7.23452646813504",
        ],
    }  # fmt: skip
    squares = {"Treatment": ["A", "B"], "squares": ["17.9098200898989", "19.6335889126438"]}
    effect = kb.stats.adjusted_effect(kb.counting.read_classes(table, squares), variance="paper")
    assert effect.estimate == pytest.approx(-0.187081763490741, rel=1e-8, abs=0)
    assert effect.se**2 == pytest.approx(0.0811301959885, rel=1e-7, abs=0)
