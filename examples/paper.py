"""Recompute every number of the paper, from six classes by Kanab and from eighteen rows by NumPy.

Every number is printed beside the paper's own, and misprints are marked; `--json` prints the same in full precision.
Exits with 1 if classes and rows ever differ by more than 1e-12, relatively.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import kanab as kb
from kanab.datasets import count_eighteen, eighteen, eighteen_rows
from kanab.tabular import Table

Floats = NDArray[np.float64]
Numbers = dict[str, float]
"""Numbers of the paper by key."""

TOLERANCE = 1e-12
"""Classes and rows may differ by this much, relatively, and no more."""

UNIT = eighteen().metrics[0].scale ** 2
"""So many squared steps of the grid are one."""

TABLE_1_ROUNDING = 5e-9
"""Table 1 is printed to nine decimals; the paper computed with more."""

NUMBERS = """
# Table 2: six classes
count R1           | count R1                   | 3
sum R1             | sum R1                     | 2.170849320
count R2           | count R2                   | 3
sum R2             | sum R2                     | 6.210894813
count R3           | count R3                   | 3
sum R3             | sum R3                     | 3.054570154
count R4           | count R4                   | 3
sum R4             | sum R4                     | 1.422669536
count R5           | count R5                   | 3
sum R5             | sum R5                     | 1.709508844
count R6           | count R6                   | 3
sum R6             | sum R6                     | 7.234526468

# Table 3: squares
squares A          | squares A                  | 17.910
squares B          | squares B                  | 19.634
squares R1         | squares R1                 | 4.7089            | hypothetical; Table 1 gives 1.7462

# §3.1: local messages
message count      | count R6 after enrolling   | 4
message sum        | sum R6 after 4 units       | 11.23
message squares    | squares B after 4 units    | 25.634            | 19.634 + 16 is 35.634
message again      | squares B for 2 units more | 20

# §6: main effects
main xtx 0,0       | X'X [0,0]                  | 18 9 6 6
main xtx 1,1       | X'X [1,1]                  | 9 3 3
main xtx 2,2       | X'X [2,2]                  | 6 0
main xtx 3,3       | X'X [3,3]                  | 6
main xty0          | X'y [0]                    | 21.8030 10.3667 7.9204 10.2891
main b0            | b [0]                      | 0.6583 -0.1188 0.7211 1.1159

# §7: standard errors
squares            | TSS                        | 37.543
squares            | TSS, second time           | 37.544            | the sum of two rounded numbers; it is 37.543
main explained     | b'X'Xb                     | 30.316
main rss           | Res_SS                     | 7.228
inverse 0,0        | (X'X)⁻¹ [0,0]              | 0.2222 -0.1111 -0.1667 -0.1667
inverse 1,1        | (X'X)⁻¹ [1,1]              | 0.2222 0 0
inverse 2,2        | (X'X)⁻¹ [2,2]              | 0.3333 0.1667
inverse 3,3        | (X'X)⁻¹ [3,3]              | 0.3333
main mse           | MSE                        | 0.5163
main se0           | se [0]                     | 0.3387
main t0            | t [0]                      | 1.9436
main se1           | se [1]                     | 0.3387
main t1            | t [1]                      | -0.3509
main se2           | se [2]                     | 0.4148
main t2            | t [2]                      | 1.7384
main se3           | se [3]                     | 0.4148
main t3            | t [3]                      | 2.6900

# Table 5: analysis of variance
main ss regression | SS regression              | 3.9060
main ms regression | MS regression              | 1.3020
main F             | F                          | 2.5219
main p             | p of F                     | 0.1000
main ss residual   | SS residual                | 7.2279
main ss total      | SS total                   | 11.1339
main p0            | p intercept                | 0.0723
main p1            | p assignment               | 0.7309
main p2            | p level 2                  | 0.1041
main p3            | p level 3                  | 0.0176

# §8: full model and partial F
full xtx 0,0       | X'X [0,0]                  | 18 9 6 6 3 3
full xtx 1,1       | X'X [1,1]                  | 9 3 3 3 3
full xtx 2,2       | X'X [2,2]                  | 6 0 3 0
full xtx 3,3       | X'X [3,3]                  | 6 0 3
full xtx 4,4       | X'X [4,4]                  | 3 0
full xtx 5,5       | X'X [5,5]                  | 3
full xty0          | X'y [0]                    | 21.8030 10.3667 7.9204 10.2891 1.7095 7.2345
full b0            | b [0]                      | 0.7236 -0.2494 1.3467 0.2946 -1.2511 1.6427
full explained     | b'X'Xb                     | 36.634
full rss           | Res_SS full                | 0.909
F                  | partial F(2, 12)           | 41.705

# Table 6A: user 9 moved to level 2
altered count R1   | count R1                   | 3
altered sum R1     | sum R1                     | 2.17084932005864
altered count R2   | count R2                   | 4
altered sum R2     | sum R2                     | 7.09611256990949
altered count R3   | count R3                   | 2
altered sum R3     | sum R3                     | 2.16935239750738
altered count R4   | count R4                   | 3
altered sum R4     | sum R4                     | 1.42266953605589
altered count R5   | count R5                   | 3
altered sum R5     | sum R5                     | 1.70950884373810
altered count R6   | count R6                   | 3
altered sum R6     | sum R6                     | 7.23452646813504
altered sum R2     | sum R2 in X'y              | 7.01              | 7.10 with its digits swapped

# Table 6B and §10: one regression per arm
mean               | mean covariate             | 1.944
demeaned 1         | level 1 demeaned           | -0.944
demeaned 2         | level 2 demeaned           | 0.056
demeaned 3         | level 3 demeaned           | 1.056
A n                | n of A                     | 9
A x                | Σx of A                    | -0.5
A xx               | Σx² of A                   | 4.9167
A y                | Σy of A                    | 11.436
A xy               | Σxy of A                   | -0.6339           | the sign; it is +0.6339
A b0               | intercept of A             | 1.285
A b1               | slope of A                 | 0.256             | a lost digit; Table 7 has 0.2596
A explained        | b'X'Xb of A                | 14.8616
A rss              | Res_SS of A                | 3.0482
B n                | n of B                     | 9
B x                | Σx of B                    | 0.5
B xx               | Σx² of B                   | 6.0278
B y                | Σy of B                    | 10.367
B xy               | Σxy of B                   | 6.388
B b0               | intercept of B             | 1.098
B b1               | slope of B                 | 0.969
B explained        | b'X'Xb of B                | 17.5706
B rss              | Res_SS of B                | 2.0630

# §10: adjusted effect
ate                | ATE                        | -0.1871
var sate           | Var(SATE)                  | 0.08113
se sate            | se (SATE)                  | 0.2848
t sate             | t (SATE)                   | -0.6568
sxx                | Σx²                        | 10.9444
slope              | (β_b − β_a)²               | 0.502727479
v tau              | V_τ                        | 0.01798
var pate           | Var(PATE)                  | 0.09911
se pate            | se (PATE)                  | 0.31482
t pate             | t (PATE)                   | -0.5943

# Table 7: pooled errors on the rows
micro b0           | b intercept                | 1.2851
micro b1           | b ATE                      | -0.1871
micro b2           | b covariate                | 0.2596
micro b3           | b interaction              | 0.7090
micro se0          | se intercept               | 0.2020
micro se1          | se ATE                     | 0.2856
micro se2          | se covariate               | 0.2733
micro se3          | se interaction             | 0.3681
micro t0           | t intercept                | 6.3627
micro t1           | t ATE                      | -0.6551
micro t2           | t covariate                | 0.9500
micro t3           | t interaction              | 1.9260
"""

WORDS = (
    "§2: 4.7089 as the squares of R1 is an example, not Table 1's",
    "§3.1: the count of R6 goes up by 1, to 4, not by 4",
    "§3.1: the message for two more units leaves out the covariate, without which no class can be updated",
    "§3.1: a smaller variance deflates p-values, it does not inflate them",
    "§5: a Gram matrix from rows costs O(n p²), not O(n² p)",
    "Table 4 has 16 rows; there are 18 people",
    "§7, footnote: what Excel subtracts is (Σy)²/n, not ΣX²/n",
    "§8: the F of the printed, rounded inputs is 41.710",
    "§10: robust (HC) errors need squares per class, not rows",
    "§10: the square in V_τ belongs to (β_b − β_a) alone",
)
"""Slips of the paper that are not a printed number."""

# ── names, the same for classes and rows ───────────────────────────────────────────────────────────────────────────


def entries(name: str, matrix: Floats) -> Numbers:
    """Name the upper triangle of a matrix."""
    return {f"{name} {i},{j}": float(matrix[i, j]) for i, j in zip(*np.triu_indices(len(matrix)), strict=True)}


def numbered(name: str, values: Sequence[float] | Floats) -> Numbers:
    """Name the elements of a vector."""
    return {f"{name}{i}": float(value) for i, value in enumerate(values)}


def class_numbers(prefix: str, counts: Sequence[float], sums: Sequence[float]) -> Numbers:
    """Name the people and sums of the six classes."""
    people = {f"{prefix}count R{i}": float(count) for i, count in enumerate(counts, 1)}
    return people | {f"{prefix}sum R{i}": float(total) for i, total in enumerate(sums, 1)}


def arm_numbers(arm: str, xtx: Floats, xty: Floats, b: Floats, rss: float) -> Numbers:
    """Name the numbers of one arm's regression on the demeaned covariate."""
    values = (xtx[0, 0], xtx[0, 1], xtx[1, 1], xty[0], xty[1], b[0], b[1], b @ xtx @ b, rss)
    names = ("n", "x", "xx", "y", "xy", "b0", "b1", "explained", "rss")
    return {f"{arm} {name}": float(value) for name, value in zip(names, values, strict=True)}


def adjusted_numbers(estimate: float, sample: float, population: float) -> Numbers:
    """Name the adjusted effect and its variances for these people and for the population."""
    return {
        "ate": estimate, "var sate": sample, "se sate": sample**0.5, "t sate": estimate / sample**0.5,
        "v tau": population - sample, "var pate": population, "se pate": population**0.5,
        "t pate": estimate / population**0.5,
    }  # fmt: skip


# ── from six classes, by the functions that everyone uses ──────────────────────────────────────────────────────────


def from_classes() -> Numbers:
    """Return every number of the paper, by its key."""
    tally, altered = eighteen(), eighteen(altered=True)
    main, full = kb.stats.fit(tally, "arm + C(tier)"), kb.stats.fit(tally, "arm * C(tier)")
    return {
        **classes_of(tally, ""), **classes_of(altered, "altered "), **squares_of(tally), **messages(tally),
        **model_of(main, "main "), **model_of(full, "full "),
        **entries("inverse", main.covariance / (main.rss / main.df)), "F": kb.stats.pooled_f(tally).F or 0.0,
        **adjusted_classes(altered),
    }  # fmt: skip


def classes_of(tally: kb.Tally, prefix: str) -> Numbers:
    """Return people and sums of the classes."""
    part = tally.moments_of()
    return class_numbers(prefix, part.counts.ravel(), part.sums.ravel() / part.metric.scale)


def squares_of(tally: kb.Tally) -> Numbers:
    """Return the squares per arm, and those of the first class where they are kept by class."""
    a, b = (squares_by(tally, "treatment")[place] for place in (0, 1))
    finer = squares_by(count_eighteen(eighteen_rows(), squares="class"), "treatment", "tier")
    return {"squares A": a / UNIT, "squares B": b / UNIT, "squares": (a + b) / UNIT, "squares R1": finer[0, 0] / UNIT}


def squares_by(tally: kb.Tally, *factors: str) -> Any:
    """Return the squares of a marginal, as whole numbers of steps of the grid."""
    squares = tally.squares("minutes", factors)
    assert squares is not None
    return squares


def messages(tally: kb.Tally) -> Numbers:
    """Count a visitor of B in tier 3 who spends 4 units, later 2 more: one-row tallies, added and replaced."""

    def visitor(minutes: float) -> kb.Tally:
        return count_eighteen({"treatment": ["B"], "tier": [3], "minutes": [minutes]})

    once = tally + visitor(4)
    twice = once - visitor(4) + visitor(6)
    before, after = (squares_by(each, "treatment")[1] for each in (once, twice))
    classes = classes_of(once, "")
    return {
        "message count": classes["count R6"], "message sum": classes["sum R6"], "message squares": before / UNIT,
        "message again": (after - before) / UNIT,
    }  # fmt: skip


def model_of(fit: Any, prefix: str) -> Numbers:
    """Return the numbers of a model that Kanab fitted."""
    regression, residual, total = fit.anova.ss
    numbers = {
        "explained": float(fit.b @ fit.xtx @ fit.b), "rss": fit.rss, "mse": fit.rss / fit.df,
        "ss regression": regression, "ms regression": regression / fit.anova.df[0], "ss residual": residual,
        "ss total": total, "F": fit.anova.F, "p": fit.anova.p,
        **entries("xtx", fit.xtx), **numbered("xty", fit.xty), **numbered("b", fit.b), **numbered("se", fit.se),
        **numbered("t", fit.t), **numbered("p", fit.p),
    }  # fmt: skip
    return {prefix + name: value for name, value in numbers.items()}


def adjusted_classes(altered: kb.Tally) -> Numbers:
    """Return the numbers of §10, with one covariate."""
    people = {int(tier): n for tier, n in altered.people_by("tier").items() if tier}
    mean = sum(tier * n for tier, n in people.items()) / altered.total
    shifted = altered.coarsen("tier", {}, {tier: tier - mean for tier in people})
    numbers = {"mean": mean, **{f"demeaned {tier}": tier - mean for tier in people}}
    for arm in ("A", "B"):
        alone = kb.stats.fit(shifted.select_arms([arm]), "tier")
        numbers |= arm_numbers(arm, alone.xtx, alone.xty, alone.b, alone.rss)
    effect = kb.stats.adjusted_effect(altered, variance="paper")
    slopes = kb.stats.adjusted_means(altered).slopes
    return {
        **numbers, "sxx": sum(n * (tier - mean) ** 2 for tier, n in people.items()),
        "slope": float(slopes[1, 0] - slopes[0, 0]) ** 2,
        **adjusted_numbers(effect.estimate, effect.se**2, effect.se_population**2),
        **model_of(kb.stats.fit(shifted, "arm * tier"), "micro "),
    }  # fmt: skip


# ── from eighteen rows, by NumPy's least squares and none of Kanab's ───────────────────────────────────────────────


def from_rows() -> Numbers:
    """Return every number of the paper, by its key."""
    treated, tier, y = columns_of(eighteen_rows())
    b, two, three = (flags.astype(float) for flags in (treated == "B", tier == 2, tier == 3))
    main = np.column_stack([np.ones(18), b, two, three])
    full = np.column_stack([main, b * two, b * three])
    last = y[(treated == "B") & (tier == 3)]
    numbers = {
        **rows_of(eighteen_rows(), ""), **rows_of(eighteen_rows(altered=True), "altered "),
        **{f"squares {arm}": float(np.sum(y[treated == arm] ** 2)) for arm in "AB"}, "squares": float(y @ y),
        "squares R1": float(np.sum(y[(treated == "A") & (tier == 1)] ** 2)),
        "message count": len(last) + 1.0, "message sum": float(last.sum() + 4),
        "message squares": float(np.sum(y[treated == "B"] ** 2) + 16), "message again": 6.0**2 - 4.0**2,
        **model_from(main, y, "main "), **model_from(full, y, "full "),
        **entries("inverse", np.linalg.inv(main.T @ main)), **adjusted_rows(eighteen_rows(altered=True)),
    }  # fmt: skip
    numbers["F"] = (numbers["main rss"] - numbers["full rss"]) / 2 / (numbers["full rss"] / 12)
    return numbers


def columns_of(table: Mapping[str, Sequence[Any]]) -> tuple[NDArray[Any], ...]:
    """Return everybody's arm, tier and minutes."""
    return tuple(np.array(table[name]) for name in ("treatment", "tier", "minutes"))


def rows_of(table: Mapping[str, Sequence[Any]], prefix: str) -> Numbers:
    """Return people and sums of the classes, from rows."""
    treated, tier, y = columns_of(table)
    classes = [y[(treated == arm) & (tier == level)] for arm in "AB" for level in (1, 2, 3)]
    return class_numbers(prefix, [len(people) for people in classes], [people.sum() for people in classes])


def least_squares(x: Floats, y: Floats) -> tuple[Floats, float]:
    """Return the coefficients and the residual sum of squares."""
    b = np.asarray(np.linalg.lstsq(x, y, rcond=None)[0], dtype=np.float64)
    return b, float(np.sum((y - x @ b) ** 2))


def model_from(x: Floats, y: Floats, prefix: str) -> Numbers:
    """Return the numbers of a model that NumPy fits to rows."""
    b, rss = least_squares(x, y)
    n, p = x.shape
    se = np.sqrt(np.diag(np.linalg.inv(x.T @ x)) * rss / (n - p))
    total = float(np.sum((y - y.mean()) ** 2))
    f = (total - rss) / (p - 1) / (rss / (n - p))
    numbers = {
        "explained": float(np.sum((x @ b) ** 2)), "rss": rss, "mse": rss / (n - p), "ss regression": total - rss,
        "ms regression": (total - rss) / (p - 1), "ss residual": rss, "ss total": total, "F": f,
        "p": float(stats.f.sf(f, p - 1, n - p)), **entries("xtx", x.T @ x), **numbered("xty", x.T @ y),
        **numbered("b", b), **numbered("se", se), **numbered("t", b / se),
        **numbered("p", 2 * stats.t.sf(np.abs(b / se), n - p)),
    }  # fmt: skip
    return {prefix + name: value for name, value in numbers.items()}


def adjusted_rows(table: Mapping[str, Sequence[Any]]) -> Numbers:
    """Return the numbers of §10, from rows."""
    treated, tier, y = columns_of(table)
    mean = float(tier.mean())
    x = tier - mean
    numbers = {"mean": mean, **{f"demeaned {level}": level - mean for level in (1, 2, 3)}}
    fits = []
    for arm in "AB":
        design, values = np.column_stack([np.ones(9), x[treated == arm]]), y[treated == arm]
        b, rss = least_squares(design, values)
        fits.append((b, rss))
        numbers |= arm_numbers(arm, design.T @ design, design.T @ values, b, rss)
    (a, rss_a), (b, rss_b) = fits
    sample = (rss_a + rss_b) / (9 * 7)
    sxx, slope = float(x @ x), float((b[1] - a[1]) ** 2)
    treatment = (treated == "B").astype(float)
    return {
        **numbers, "sxx": sxx, "slope": slope,
        **adjusted_numbers(float(b[0] - a[0]), sample, sample + sxx * slope / (18 * 17)),
        **model_from(np.column_stack([np.ones(18), treatment, x, treatment * x]), y, "micro "),
    }  # fmt: skip


# ── side by side ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Line:
    """One number of the paper: as printed, with what is wrong with it, from classes and from rows."""

    section: str
    name: str
    printed: str
    misprint: str
    classes: float
    rows: float

    @property
    def difference(self) -> float:
        """Classes against rows, relative; zero for two numbers that are both nothing."""
        size = max(abs(self.classes), abs(self.rows))
        return 0.0 if size < TOLERANCE else abs(self.classes - self.rows) / size

    @property
    def as_printed(self) -> bool:
        """Whether the computed number rounds to the printed one."""
        exponent = Decimal(self.printed).as_tuple().exponent
        assert isinstance(exponent, int)
        half = 0.5 * 10.0**exponent
        return abs(self.classes - float(self.printed)) <= half * (1 + 1e-9) + TABLE_1_ROUNDING

    @property
    def verdict(self) -> str:
        """Whether classes and rows are equal, and the paper is either right or known to be wrong."""
        if self.difference > TOLERANCE or self.as_printed == bool(self.misprint):
            return "DIFFERS"
        return f"misprint: {self.misprint}" if self.misprint else "agrees"


def compare() -> list[Line]:
    """Return every number of the paper, in its order."""
    classes, rows = from_classes(), from_rows()
    lines, section = [], ""
    for line in filter(None, NUMBERS.splitlines()):
        if line.startswith("# "):
            section = line[2:]
            continue
        key, name, digits, misprint = ([part.strip() for part in line.split("|")] + [""])[:4]
        for place, printed in enumerate(digits.split()):
            number = later(key, place)
            lines.append(Line(section, later(name, place), printed, misprint, classes[number], rows[number]))
    return lines


def later(words: str, places: int) -> str:
    """Count the last number of a key or a name up, as along a row of a matrix."""
    return re.sub(r"\d+(?=\D*$)", lambda index: str(int(index[0]) + places), words) if places else words


def to_text(lines: Sequence[Line]) -> str:
    """Return the comparison as tables, one per section, and a last line that sums it up."""
    parts = []
    for section in dict.fromkeys(line.section for line in lines):
        rows = tuple(
            (line.name, line.printed, short(line.classes), short(line.rows), line.verdict)
            for line in lines
            if line.section == section
        )
        parts.append(str(Table(("number", "paper", "classes", "rows", ""), rows, section)))
    misprints = sum(bool(line.misprint) for line in lines)
    parts.append("\n".join(["Slips in the paper's words:", *(f"- {words}" for words in WORDS)]))
    parts.append(
        f"{len(lines)} numbers: {len(lines) - misprints} as printed, {misprints} misprints of the paper.\n"
        "Largest relative difference between six classes and eighteen rows: "
        f"{max(line.difference for line in lines):.1e}."
    )
    return "\n\n".join(parts)


def short(value: float) -> str:
    """Return a number as the tables show it."""
    return "0" if abs(value) < TOLERANCE else f"{value:.12g}"


def to_dict(lines: Sequence[Line]) -> dict[str, Any]:
    """Return the comparison as plain data, numbers in full precision."""
    names = ("section", "name", "printed", "classes", "rows", "difference", "verdict")
    return {
        "agree": all(line.verdict != "DIFFERS" for line in lines),
        "largest_difference": max(line.difference for line in lines),
        "lines": [{name: getattr(line, name) for name in names} for line in lines],
    }


def main() -> int:
    """Print the comparison; return 1 if anything differs."""
    lines = compare()
    data = to_dict(lines)
    print(json.dumps(data, ensure_ascii=False, indent=2) if "--json" in sys.argv[1:] else to_text(lines))
    return 0 if data["agree"] else 1


if __name__ == "__main__":
    sys.exit(main())
