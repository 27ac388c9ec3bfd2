"""The engine of every scan: blocks of tables in, one line per table and metric out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kanab.scan.stats.assignment import check_assignment
from kanab.scan.stats.cells import Block, Measured, Places, side_by_side
from kanab.scan.stats.double_double import Whole
from kanab.scan.stats.guard import Guard, guard, widened
from kanab.scan.stats.reach import critical, reach
from kanab.scan.stats.tests import EQUAL_LEVELS, FTests, Texts, f_tests
from kanab.scan.stats.verdicts import Evidence, Rules, corrected, decide, levels
from kanab.stats.gram import Floats
from kanab.tally.metric import Metric

NOT_HELD = "the table does not hold this metric"
SMALL = "a class holds fewer than k = {k} people"
NOBODY = {"interference": "nobody is in both experiments", "differs": "nobody has been counted"}
FEW = {
    "interference": "fewer than k = {k} people are in both experiments",
    "differs": "fewer than k = {k} people have been counted",
}

Alarm = Literal["interference", "differs"]


@dataclass(frozen=True, eq=False)
class Lines:
    """Everything a scan found, one number per table and metric; not a number where there is none.

    Line i is metric i mod m of table i div m. ``check`` says which assignment check has the
    smallest p (see ``scanassign.CHECKS``).
    """

    F: Floats
    df: Floats
    p: Floats
    F_robust: Floats
    df_robust: Floats
    p_robust: Floats
    p_adjusted: Floats
    p_guarded: Floats
    could_miss: Floats
    assignment_p: Floats
    assignment_adjusted: Floats
    check: Places
    variance: Texts
    verdict: Texts
    note: Texts


@dataclass(frozen=True, eq=False)
class _Piece:
    """One metric of a block: all its lines and why some are shut, and the lines that were tested."""

    lines: Places
    shut: Texts
    variance: str
    open: Places
    tested: FTests
    careful: Guard


def scan_blocks(
    blocks: Iterable[Block], tables: int, metrics: Mapping[str, Metric], rules: Rules, alarm: Alarm
) -> Lines:
    """Test, correct and judge every table of the blocks."""
    names = list(metrics)
    pieces: list[_Piece] = []
    assigned, check = np.full(tables, np.nan), np.zeros(tables, dtype=np.intp)
    for block in blocks:
        checks, shut = check_assignment(block), _small_classes(block.people, rules.k, alarm)
        assigned[block.places] = np.where(shut == "", checks.together, np.nan)
        check[block.places] = checks.worst
        for part in block.metrics:
            lines = block.places * len(names) + names.index(part.metric.name)
            pieces.append(_test(lines, shut, part, rules, alarm))
    found = _Pieces(tuple(pieces), tables * len(names))
    return _judged(found, (assigned, check), names, rules, alarm)


def _test(lines: Places, shut: Texts, part: Measured, rules: Rules, alarm: Alarm) -> _Piece:
    """Test one metric of a block; tables with small classes are left out of everything."""
    shut = np.where(shut == "", _small_classes(part.counts, rules.k, alarm), shut)
    fine = np.flatnonzero(shut == "")
    tested = f_tests(part.chosen(fine))
    careful = guard(tested, rules.bounds.get(part.metric.name))
    shut[fine] = tested.problem
    return _Piece(lines, shut, part.variance, lines[fine], tested, careful)


def _small_classes(people: Whole, k: int, alarm: Alarm) -> Texts:
    """Why a table must not be tested, without a number from it."""
    count = side_by_side(people.astype(np.int64))
    total = count.sum(axis=(1, 2))
    small = np.any((count > 0) & (count < k), axis=(1, 2))
    texts = np.full(len(count), "", dtype=object)
    texts[small], texts[total < k], texts[total == 0] = SMALL.format(k=k), FEW[alarm].format(k=k), NOBODY[alarm]
    return texts


@dataclass(frozen=True, eq=False)
class _Pieces:
    """All pieces of a scan, and how many lines it has."""

    pieces: tuple[_Piece, ...]
    size: int

    def column(self, values: Callable[[_Piece], Floats], *width: int) -> Floats:
        """One number (or several) per line; not a number where nothing was tested."""
        found = np.full((self.size, *width), np.nan)
        for piece in self.pieces:
            found[piece.open] = values(piece)
        return found

    def texts(self, values: Callable[[_Piece], Texts | str], otherwise: str) -> Texts:
        """One text per line."""
        found = np.full(self.size, otherwise, dtype=object)
        for piece in self.pieces:
            found[piece.lines] = values(piece)
        return found


def _judged(
    found: _Pieces, assignment: tuple[Floats, Places], names: Sequence[str], rules: Rules, alarm: Alarm
) -> Lines:
    """Correct over families, ask how much could be missed, and say what follows."""
    families = rules.families(np.arange(found.size) % len(names))
    first, check = assignment
    whole = corrected(first, np.zeros(len(first), dtype=np.intp), "holm")
    evidence = _evidence(found, families, rules, np.repeat(whole, len(names)), names)
    verdict, note = decide(evidence, rules.alpha, alarm)
    variance = found.texts(lambda piece: piece.variance, "")
    assumed = variance == "by_arm"
    note[assumed] = [f"{one}; {EQUAL_LEVELS}" if one else EQUAL_LEVELS for one in note[assumed]]
    shut = found.texts(lambda piece: piece.shut, NOT_HELD)
    return Lines(
        F=found.column(lambda piece: piece.tested.pooled.F),
        df=found.column(lambda piece: piece.tested.pooled.df, 2),
        p=found.column(lambda piece: piece.tested.pooled.p),
        F_robust=found.column(lambda piece: piece.tested.robust.F),
        df_robust=found.column(lambda piece: piece.tested.robust.df, 2),
        p_robust=found.column(lambda piece: piece.tested.robust.p),
        p_adjusted=evidence.p_adjusted,
        p_guarded=evidence.p_guarded,
        could_miss=evidence.could_miss,
        assignment_p=np.repeat(first, len(names)),
        assignment_adjusted=evidence.assignment,
        check=np.repeat(check, len(names)),
        variance=variance,
        verdict=verdict,
        note=np.where(verdict == "not testable", shut, note),
    )


def _evidence(found: _Pieces, families: Places, rules: Rules, assignment: Floats, names: Sequence[str]) -> Evidence:
    """Corrected p-values, and intervals at the level that the correction leaves."""
    robust = found.column(lambda piece: piece.tested.robust.p)
    adjusted = corrected(robust, families, rules.correction)
    level = levels(adjusted, families, rules)
    limit = found.column(lambda piece: critical(piece.tested, level[piece.open]))

    def plain(piece: _Piece) -> Floats:
        return reach(piece.tested.cells, piece.tested.variances, limit[piece.open])

    def careful(piece: _Piece) -> Floats:
        return reach(piece.tested.cells, piece.careful.variances, widened(limit[piece.open], piece.careful.pull))

    return Evidence(
        p_adjusted=adjusted,
        p_guarded=corrected(found.column(lambda piece: piece.careful.p), families, rules.correction),
        could_miss=found.column(plain),
        could_miss_guarded=found.column(careful) if rules.tolerance else np.full(found.size, np.nan),
        assignment=assignment,
        tolerance=np.tile([rules.tolerance.get(name, np.nan) for name in names], found.size // len(names)),
        untested=np.isnan(robust),
    )
