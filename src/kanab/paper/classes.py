"""The paper's numbers from six classes, by the functions that everyone uses."""

from __future__ import annotations

from kanab.datasets import count_eighteen, eighteen, eighteen_rows
from kanab.paper.named import adjusted_numbers, arm_numbers, entries, numbered
from kanab.stats.adjust import adjusted_effect, adjusted_means
from kanab.stats.ftest import pooled_f
from kanab.stats.gram import arm_squares
from kanab.stats.ols import Fit, fit
from kanab.tally.tally import Tally


def from_classes() -> dict[str, float]:
    """Return every number of the paper, by its key."""
    tally, altered = eighteen(), eighteen(altered=True)
    main, full = fit(tally, "arm + C(tier)"), fit(tally, "arm * C(tier)")
    return {
        **_table(tally, ""),
        **_table(altered, "altered "),
        **_squares(tally),
        **_messages(tally),
        **_model(main, "main "),
        **_model(full, "full "),
        **entries("inverse", main.covariance / (main.rss / main.df)),
        "F": pooled_f(tally).F or 0.0,
        **_adjusted(altered),
    }


def _table(tally: Tally, prefix: str) -> dict[str, float]:
    part = tally.moments_of()
    counts, sums = part.counts.ravel(), part.sums.ravel() / part.metric.scale
    return {f"{prefix}count R{i}": float(n) for i, n in enumerate(counts, 1)} | {
        f"{prefix}sum R{i}": float(s) for i, s in enumerate(sums, 1)
    }


def _squares(tally: Tally) -> dict[str, float]:
    per_arm = arm_squares(tally, "minutes")
    finer = count_eighteen(eighteen_rows(), squares="class")
    unit = tally.metrics[0].scale ** 2
    return {
        "squares A": per_arm[0] / unit,
        "squares B": per_arm[1] / unit,
        "squares": int(per_arm.sum()) / unit,
        "squares R1": arm_squares(finer, "minutes", finer.axes)[0, 0] / unit,
    }


def _messages(tally: Tally) -> dict[str, float]:
    """Count a visitor of B in tier 3 who spends 4 units, later 2 more: one-row tallies, added and replaced."""

    def visitor(minutes: float) -> Tally:
        return count_eighteen({"treatment": ["B"], "tier": [3], "minutes": [minutes]})

    once = tally + visitor(4)
    twice = once - visitor(4) + visitor(6)
    return {
        "message count": _table(once, "")["count R6"],
        "message sum": _table(once, "")["sum R6"],
        "message squares": _squares(once)["squares B"],
        "message again": int((arm_squares(twice, None) - arm_squares(once, None))[1]) / tally.metrics[0].scale ** 2,
    }


def _model(result: Fit, prefix: str) -> dict[str, float]:
    regression, residual, total = result.anova.ss
    numbers = {
        "explained": float(result.b @ result.xtx @ result.b),
        "rss": result.rss,
        "mse": result.rss / result.df,
        "ss regression": regression,
        "ms regression": regression / result.anova.df[0],
        "ss residual": residual,
        "ss total": total,
        "F": result.anova.F or 0.0,
        "p": result.anova.p or 0.0,
        **entries("xtx", result.xtx),
        **numbered("xty", result.xty),
        **numbered("b", result.b),
        **numbered("se", result.se),
        **numbered("t", result.t),
        **numbered("p", result.p),
    }
    return {prefix + name: value for name, value in numbers.items()}


def _adjusted(altered: Tally) -> dict[str, float]:
    people = {int(tier): n for tier, n in altered.people_by("tier").items() if tier}
    mean = sum(tier * n for tier, n in people.items()) / altered.total
    shifted = altered.coarsen("tier", {}, {tier: tier - mean for tier in people})
    numbers = {"mean": mean, **{f"demeaned {tier}": tier - mean for tier in people}}
    for arm in ("A", "B"):
        alone = fit(shifted.select_arms([arm]), "tier")
        numbers |= arm_numbers(arm, alone.xtx, alone.xty, alone.b, alone.rss)
    effect, slopes = adjusted_effect(altered, variance="paper"), adjusted_means(altered).slopes
    return {
        **numbers,
        "sxx": sum(n * (tier - mean) ** 2 for tier, n in people.items()),
        "slope": float(slopes[1, 0] - slopes[0, 0]) ** 2,
        **adjusted_numbers(effect.estimate, effect.se**2, effect.se_population**2),
        **_model(fit(shifted, "arm * tier"), "micro "),
    }
