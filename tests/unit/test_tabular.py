import math

import pytest

from kanab.tabular import Table, number, p_value

PEOPLE = Table(("arm", "people"), (("A", "9"), ("B", "1,234")), "Who took part")


def test_columns_of_numbers_align_right_and_texts_left() -> None:
    assert str(PEOPLE) == "Who took part\narm  people\n───  ──────\nA         9\nB     1,234"


def test_a_table_without_a_title_starts_with_its_header() -> None:
    assert str(Table(("n",), (("1",),))) == "n\n─\n1"


def test_a_table_without_rows_is_its_header() -> None:
    assert str(Table(("arm", "n"), ())) == "arm  n\n───  ─"


@pytest.mark.parametrize("text", ["1", "−0.5", "-0.5", "1,234", "< 1e-300", "95%", "", "–", "1e-5", ">3", "= 2"])
def test_what_reads_as_a_number_aligns_right(text: str) -> None:
    assert 'text-align:right">' in Table(("n",), ((text,),)).to_html().split("<tbody>")[1]


@pytest.mark.parametrize("text", ["A", "1 … 2", "2+", "1st", "missing"])
def test_what_does_not_aligns_left(text: str) -> None:
    assert 'text-align:left">' in Table(("n",), ((text,),)).to_html().split("<tbody>")[1]


def test_html_breaks_long_texts_into_lines_and_nothing_else() -> None:
    html = Table(("p (Holm)", "says"), (("3.62e-07", "word " * 9),)).to_html()
    assert html.count("white-space:nowrap;text-align:right") == 2
    assert html.count("white-space:normal;text-align:left") == 2


def test_html_escapes_header_cells_and_title() -> None:
    html = Table(("<i>",), (('<script>"&',),), "<b>").to_html()
    assert "<caption>&lt;b&gt;</caption>" in html
    assert ">&lt;i&gt;</th>" in html
    assert ">&lt;script&gt;&quot;&amp;</td>" in html
    assert "<script" not in html


def test_html_without_a_title_has_no_caption() -> None:
    assert "<caption>" not in Table(("n",), (("1",),)).to_html()


def test_markdown_escapes_bars_and_marks_alignment() -> None:
    assert Table(("arm", "n"), (("A|B", "9"),)).to_markdown() == "| arm | n |\n| --- | ---: |\n| A\\|B | 9 |"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.nan, "–"),
        (0, "0"),
        (-0.0, "0"),
        (1, "1.000"),
        (-0.18708, "-0.1871"),
        (0.0001, "0.0001000"),
        (0.00009, "9.000e-05"),
        (12.3456, "12.35"),
        (999.9, "999.9"),
        (1234.5, "1,234"),
        (1234567.0, "1,234,567"),
        (1e15, "1.000e+15"),
        (-1e-300, "-1.000e-300"),
        (math.inf, "inf"),
    ],
)
def test_a_number_has_four_significant_digits(value: float | None, text: str) -> None:
    assert number(value) == text


def test_the_number_of_digits_can_be_chosen() -> None:
    assert [number(math.pi, digits) for digits in (1, 2, 6)] == ["3", "3.1", "3.14159"]


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (None, "–"),
        (math.nan, "–"),
        (1.0, "1.000"),
        (0.5, "0.500"),
        (0.1, "0.100"),
        (0.0412, "0.0412"),
        (0.00123, "0.00123"),
        (1.3644e-112, "1.36e-112"),
        (1e-299, "1.00e-299"),
        (1e-301, "< 1e-300"),
        (0.0, "< 1e-300"),
    ],
)
def test_a_p_value_has_three_digits_and_is_never_a_bare_zero(p: float | None, text: str) -> None:
    assert p_value(p) == text
