"""The rows of a readout, each as a value and as plain data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kanab.description import Role
from kanab.report.words import Kind
from kanab.stats.balance import BALANCE_ALARM, BalanceCheck
from kanab.stats.cautions import Caution
from kanab.stats.effect import Effect
from kanab.stats.margins import Better
from kanab.stats.multiplicity import Simultaneous
from kanab.stats.relative import OddsRatio, Relative
from kanab.stats.sequential import AnyTimeLook, PlannedLook
from kanab.tally.factor import Level, label

Plain = dict[str, Any]


@dataclass(frozen=True)
class EffectRow:
    """One arm against the control on one metric, or another contrast of arms.

    ``means`` are the control's and the arm's, ``relative`` is Fieller's (of two rates the score interval), ``delta``
    the delta method's, ``odds`` the odds ratio of two rates; None for contrasts of more than two arms.
    ``simultaneous`` is the effect within its family: the corrected p, and an interval to go with it;
    ``p_usual_adjusted`` is the corrected p of the usual test alone (Welch's t, of two rates the score test). Of all
    rows of a metric and arm, one carries the verdict; the others stand beside it, uncorrected, and have none.
    ``sample_size_gain`` is of adjusted effects: the share of people more whom the plain effect would need.
    ``role`` is the metric's, None where nobody named any; ``better`` its good direction. ``early``: fewer people than
    planned are in, and p and interval are those of one look at the planned end. ``limit_interval`` is for margins.
    """

    effect: Effect
    relative: Relative | None
    means: tuple[float, float] | None
    delta: Relative | None = None
    simultaneous: Simultaneous | None = None
    look: PlannedLook | AnyTimeLook | None = None
    verdict: Kind | None = None
    carries_verdict: bool = False
    p_usual_adjusted: float | None = None
    odds: OddsRatio | None = None
    role: Role | None = None
    better: Better = "higher"
    sample_size_gain: float | None = None
    early: bool = False
    limit_interval: tuple[float, float] | None = None

    @property
    def worse(self) -> Kind:
        """The verdict that is bad news."""
        return "down" if self.better == "higher" else "up"

    @property
    def p(self) -> float | None:
        """The p that may be acted on: over all looks, where there are several."""
        return self.effect.p if self.look is None else self.look.p

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval that agrees with p: over all looks, where there are several."""
        return self.effect.interval if self.look is None else self.look.interval

    @property
    def p_adjusted(self) -> float | None:
        """The p corrected over its family."""
        return None if self.simultaneous is None else self.simultaneous.p_adjusted

    def to_dict(self) -> Plain:
        """Return the row as plain data."""
        effect, relative, delta, joint = self.effect, self.relative, self.delta, self.simultaneous
        control, arm = self.means or (None, None)
        return {
            "metric": effect.metric,
            "role": self.role,
            "better": self.better,
            "control": named(effect.control),
            "arm": named(effect.arm),
            "method": effect.method,
            "covariates": list(effect.covariates),
            "mean_control": control,
            "mean_arm": arm,
            "estimate": effect.estimate,
            "se": effect.se,
            "se_population": effect.se_population,
            "interval": plain_interval(self.interval),
            "interval_welch": plain_interval(effect.interval_welch),
            "test": effect.test,
            "df": _finite(effect.df),
            "t": effect.t,
            "p": self.p,
            "p_adjusted": self.p_adjusted,
            "p_usual": effect.p_usual,
            "p_usual_adjusted": self.p_usual_adjusted,
            "interval_adjusted": None if joint is None else plain_interval(joint.interval),
            "level": None if joint is None else joint.level,
            "agrees": None if joint is None or joint.interval is None else joint.agrees,
            "relative": None if relative is None else relative.estimate,
            "relative_interval": None if relative is None else plain_interval(relative.interval),
            "relative_interval_delta": None if delta is None else plain_interval(delta.interval),
            "odds_ratio": None if self.odds is None else _finite(self.odds.estimate),
            "odds_ratio_interval": None if self.odds is None else plain_interval(self.odds.interval),
            "sequential": None if self.look is None else _look(self.look),
            "verdict": self.verdict,
            "early": self.early,
            "carries_verdict": self.carries_verdict,
            "sample_size_gain": self.sample_size_gain,
            **_noise(effect),
        }

    def contrast_dict(self) -> Plain:
        """Return the row as plain data, with the weight of every arm."""
        return {"contrast": {label(arm): weight for arm, weight in self.effect.contrast}} | self.to_dict()


def effect_place(effect: Effect) -> tuple[object, ...]:
    """Return what tells an effect from the others of a readout."""
    return effect.metric, effect.arm, effect.method, effect.covariates


def _noise(effect: Effect) -> Plain:
    """Return what noise does to an effect, as plain data; nothing of releases without ε."""
    return {"se_noise": effect.se_noise, "too_noisy": effect.too_noisy} if effect.se_noise else {}


def _finite(value: float | None) -> float | None:
    """Return a number for JSON, which has none for infinity."""
    return None if value is None or math.isinf(value) else value


def named(arm: Level) -> str | None:
    """Return the name of an arm; None for none."""
    return None if arm is None else label(arm)


def _look(look: PlannedLook | AnyTimeLook) -> Plain:
    """Return a look as plain data; what belongs to the other method is None."""
    names = ("look", "looks", "planned", "fraction", "spent", "nominal", "p", "optimal_at", "until", "begun", "verdict")
    return {
        "method": "spending" if isinstance(look, PlannedLook) else "always-valid",
        **{name: getattr(look, name, None) for name in names},
        "interval": plain_interval(look.interval),
        "chance": look.chance,
    }


def caution_dict(caution: Caution) -> Plain:
    """Return a caution as plain data."""
    return {"kind": caution.code, "metric": caution.metric, "sentence": caution.sentence}


def balance_dict(checks: Sequence[BalanceCheck]) -> Plain:
    """Return all checks of balance as plain data, and whether one of them is an alarm."""
    return {
        "alarm": any(check.alarm for check in checks),
        "limit": BALANCE_ALARM,
        "rows": [
            {
                "about": check.about,
                "name": check.name,
                "chi2": check.chi2,
                "df": check.df,
                "p": check.p,
                "p_any_time": check.p_any_time,
                "p_adjusted": check.p_adjusted,
                "alarm": check.alarm,
                "arm": label(check.arm),
                "level": label(check.level) if check.about == "covariate" else None,
                "share": check.share,
                "elsewhere": check.elsewhere,
                "differences": {label(arm): value for arm, value in check.differences.items()},
            }
            for check in checks
        ],
    }


def plain_interval(interval: tuple[float, float] | None) -> list[float | None] | None:
    """Return an interval for JSON: an open end is None."""
    return None if interval is None else [end if math.isfinite(end) else None for end in interval]
