"""README's first screen is a picture of the idea, and every number on it is computed here."""

import runpy
from pathlib import Path

import numpy as np

import kanab as kb
from kanab.datasets import eighteen, eighteen_rows

EXAMPLE = Path(__file__).parents[2] / "examples" / "paper.py"
README = Path(__file__).parents[2] / "README.md"


def f_of_rows() -> float:
    """Return the paper's partial F, as the example computes it from rows."""
    return float(runpy.run_path(str(EXAMPLE))["from_rows"]()["F"])


def picture() -> str:
    rows = eighteen_rows()
    people = list(zip(rows["treatment"], rows["tier"], rows["minutes"], strict=True))
    left = ["user  treatment  tier      minutes", "────  ─────────  ────  ───────────"]
    for user, (treatment, tier, minutes) in enumerate(people, 1):
        left.append(f"{user:>4}  {treatment:<9}  {tier:>4}  {minutes:.9f}")
    tally = eighteen()
    right = [line for table in tally.tables() for line in (*str(table).splitlines(), "")]
    f = kb.stats.pooled_f(tally).F
    right += [
        "and it gives the same answer:",
        f"  F from eighteen rows  {f_of_rows():.13f}",
        f"  F from six classes    {f:.13f}",
    ]
    head = "eighteen people took part", "this is everything we kept"
    lines = [f"{head[0]:<36}      {head[1]}", ""]
    for i in range(len(left)):
        arrow = "  ──►  " if i == 4 else "       "
        lines.append(f"{left[i]:<35}{arrow}{right[i] if i < len(right) else ''}".rstrip())
    assert len(right) <= len(left)
    return "\n".join(lines)


def test_the_picture_in_the_readme_is_the_computed_one() -> None:
    assert picture() in README.read_text(encoding="utf-8")


def test_the_two_answers_in_the_picture_are_equal() -> None:
    assert np.isclose(f_of_rows(), kb.stats.pooled_f(eighteen()).F or 0, rtol=1e-13, atol=0)
