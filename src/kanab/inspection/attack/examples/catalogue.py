"""Every bad example by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kanab.errors import SourceError, listed
from kanab.inspection.attack.examples import collector, metrics, nested, numbers, rare, scans, tables, whole_numbers
from kanab.inspection.attack.examples.making import BadExample

EXAMPLES: Mapping[str, Callable[[str], BadExample]] = {
    "daily-dashboard": tables.daily_dashboard,
    "two-cuts": tables.two_cuts,
    "suppressed": tables.suppressed,
    "class-squares": tables.class_squares,
    "metric-differences": metrics.metric_differences,
    "products": metrics.products,
    "pair-scan": tables.pair_scan,
    "pair-scan-sparse": tables.pair_scan_sparse,
    "scan-statistics": scans.scan_statistics,
    "blind-seal": collector.blind_seal,
    "whole-numbers": whole_numbers.whole_numbers,
    "rare-in-one-arm": rare.rare_in_one_arm,
    "arms-only": rare.arms_only,
    "unusual-price": rare.unusual_price,
    "paper": tables.paper,
    "nested-levels": nested.nested_levels,
    "two-experiments": nested.two_experiments,
    "outlier-in-number": numbers.outlier_in_number,
    "numbers-add-up": numbers.numbers_add_up,
}


def example(name: str) -> BadExample:
    """Return a bad example by its name; the same people every time. Raises `SourceError` for an unknown name."""
    if name not in EXAMPLES:
        raise SourceError("there is no such example", f"There are: {listed(EXAMPLES)}.")
    return EXAMPLES[name](name)
