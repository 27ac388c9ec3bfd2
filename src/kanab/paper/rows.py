"""The paper's numbers from eighteen rows, by NumPy's least squares and none of Kanab's."""

from __future__ import annotations

from typing import Any

import numpy as np

from kanab.datasets import eighteen_rows
from kanab.paper.named import Floats, adjusted_numbers, arm_numbers, entries, numbered
from kanab.stats.distributions import f_tail, t_tail


def from_rows() -> dict[str, float]:
    """Return every number of the paper, by its key."""
    table, altered = eighteen_rows(), eighteen_rows(altered=True)
    treated, tier, y = (np.array(table[name]) for name in ("treatment", "tier", "minutes"))
    b, two, three = (flags.astype(float) for flags in (treated == "B", tier == 2, tier == 3))
    main = np.column_stack([np.ones(18), b, two, three])
    full = np.column_stack([main, b * two, b * three])
    numbers = {
        **_table(table, ""),
        **_table(altered, "altered "),
        **{f"squares {arm}": float(np.sum(y[treated == arm] ** 2)) for arm in "AB"},
        "squares": float(y @ y),
        "squares R1": float(np.sum(y[(treated == "A") & (tier == 1)] ** 2)),
        "message count": float(np.sum((treated == "B") & (tier == 3)) + 1),
        "message sum": float(np.sum([*y[(treated == "B") & (tier == 3)], 4.0])),
        "message squares": float(np.sum(np.square([*y[treated == "B"], 4.0]))),
        "message again": 6.0**2 - 4.0**2,
        **_model(main, y, "main "),
        **_model(full, y, "full "),
        **entries("inverse", np.linalg.inv(main.T @ main)),
        **_adjusted(altered),
    }
    numbers["F"] = (numbers["main rss"] - numbers["full rss"]) / 2 / (numbers["full rss"] / 12)
    return numbers


def _table(table: dict[str, list[Any]], prefix: str) -> dict[str, float]:
    numbers = {}
    people = list(zip(table["treatment"], table["tier"], table["minutes"], strict=True))
    for i, place in enumerate([(arm, tier) for arm in "AB" for tier in (1, 2, 3)], 1):
        inside = [minutes for arm, tier, minutes in people if (arm, tier) == place]
        numbers[f"{prefix}count R{i}"] = float(len(inside))
        numbers[f"{prefix}sum R{i}"] = float(sum(inside))
    return numbers


def _fit(x: Floats, y: Floats) -> tuple[Floats, float]:
    b = np.asarray(np.linalg.lstsq(x, y, rcond=None)[0], dtype=np.float64)
    return b, float(np.sum((y - x @ b) ** 2))


def _model(x: Floats, y: Floats, prefix: str) -> dict[str, float]:
    b, rss = _fit(x, y)
    n, p = x.shape
    se = np.sqrt(np.diag(np.linalg.inv(x.T @ x)) * rss / (n - p))
    total = float(np.sum((y - y.mean()) ** 2))
    f = (total - rss) / (p - 1) / (rss / (n - p))
    numbers = {
        "explained": float(np.sum((x @ b) ** 2)),
        "rss": rss,
        "mse": rss / (n - p),
        "ss regression": total - rss,
        "ms regression": (total - rss) / (p - 1),
        "ss residual": rss,
        "ss total": total,
        "F": f,
        "p": f_tail(f, p - 1, n - p),
        **entries("xtx", x.T @ x),
        **numbered("xty", x.T @ y),
        **numbered("b", b),
        **numbered("se", se),
        **numbered("t", b / se),
        **{f"p{i}": t_tail(float(t), n - p) for i, t in enumerate(b / se)},
    }
    return {prefix + name: value for name, value in numbers.items()}


def _adjusted(table: dict[str, list[Any]]) -> dict[str, float]:
    treated, tier, y = (np.array(table[name]) for name in ("treatment", "tier", "minutes"))
    mean = float(tier.mean())
    x = tier - mean
    numbers = {"mean": mean, **{f"demeaned {level}": level - mean for level in (1, 2, 3)}}
    fits = []
    for arm in "AB":
        columns, values = np.column_stack([np.ones(9), x[treated == arm]]), y[treated == arm]
        b, rss = _fit(columns, values)
        fits.append((b, rss))
        numbers |= arm_numbers(arm, columns.T @ columns, columns.T @ values, b, rss)
    (a, rss_a), (b, rss_b) = fits
    sample = (rss_a + rss_b) / (9 * 7)
    sxx, slope = float(x @ x), float((b[1] - a[1]) ** 2)
    treatment = (treated == "B").astype(float)
    return {
        **numbers,
        "sxx": sxx,
        "slope": slope,
        **adjusted_numbers(float(b[0] - a[0]), sample, sample + sxx * slope / (18 * 17)),
        **_model(np.column_stack([np.ones(18), treatment, x, treatment * x]), y, "micro "),
    }
