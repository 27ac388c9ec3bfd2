import re
from pathlib import Path

from kanab.inspection.promises import NOT_COVERED, PROMISES, RULES

PAGE = (Path(__file__).parents[3] / "docs" / "privacy.md").read_text(encoding="utf-8").replace("`", "")


def test_the_page_and_the_programs_say_the_same_about_what_k_does_not_cover() -> None:
    table = PAGE.split("## What k does not cover", 1)[1].split("\n\n", 2)[1]
    rows = [tuple(cell.strip().lower() for cell in row.strip("|").split("|")) for row in table.split("\n")[2:]]
    assert rows == [(what, example.rstrip(".").lower()) for what, example in NOT_COVERED]


def test_the_page_says_what_the_promises_say() -> None:
    says = [re.sub(r"\W+", " ", text).lower() for _, _, text, _ in PROMISES]
    page = re.sub(r"\W+", " ", re.sub(r"\]\([^)]*\)", "]", PAGE)).lower()
    assert says[0].strip() in page
    assert "whoever knows everybody else learns next to nothing about you" in says[1]
    assert "whoever knows everybody else learns next to nothing about you" in page
    assert len(RULES) == 4
