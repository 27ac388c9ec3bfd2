"""The numbers that the paper prints, with keys and, for misprints, what is wrong; a row of a matrix is one line."""

from __future__ import annotations

import re
from typing import NamedTuple


class Printed(NamedTuple):
    """One printed number: where, which, its name, its digits, and what is wrong with them."""

    section: str
    key: str
    name: str
    digits: str
    misprint: str


_NUMBERS = """
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


def _later(text: str, places: int) -> str:
    """Count the last number of a key or a name up, as along a row of a matrix."""
    return re.sub(r"\d+(?=\D*$)", lambda index: str(int(index[0]) + places), text) if places else text


def printed() -> tuple[Printed, ...]:
    """Return every printed number, in the paper's order."""
    numbers, section = [], ""
    for line in filter(None, _NUMBERS.splitlines()):
        if line.startswith("# "):
            section = line[2:]
        else:
            key, name, row, misprint = ([part.strip() for part in line.split("|")] + [""])[:4]
            for place, digits in enumerate(row.split()):
                numbers.append(Printed(section, _later(key, place), _later(name, place), digits, misprint))
    return tuple(numbers)
