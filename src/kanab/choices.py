"""The words that arguments and flags may be, and their defaults: what can be said without computing anything.

Commands read them for their help, so nothing is imported here.
"""

from typing import Literal, get_args

Alternative = Literal["two-sided", "greater", "less"]
"""Sides of a test."""

RateTest = Literal["score", "welch"]
"""How plain effects of 0/1 metrics are tested."""

Variance = Literal["exact", "paper"]
"""The variance of adjusted effects: exact, or the paper's (Ding)."""

Slopes = Literal["own", "one"]
"""Every arm has slopes of its own (Lin), or all arms have one (CUPED as it was published)."""

Claim = Literal["non-inferiority", "superiority", "equivalence"]
"""What a margin is for."""

Correction = Literal["none", "bonferroni", "sidak", "holm", "bh", "by"]
"""Corrections of any family of p-values."""

CORRECTIONS = (*get_args(Correction), "dunnett")
"""Those of an analysis: Dunnett's is of arms against one control."""

PowerCorrection = Literal["none", "bonferroni", "sidak", "dunnett"]
"""Those that power can be computed with before there are p-values."""

MetaMethod = Literal["fixed", "dl", "pm", "reml"]
"""How effects of several releases are combined."""

SPENDING = ("obrien-fleming", "pocock", "power:3", "hsd:-4")
"""All ways to share the risk of a false alarm between looks, with examples of numbers where they have any."""

OPTIMAL_AT = 10_000
"""People at which an interval for any time is narrowest, unless said otherwise before the start."""

OWN_ROWS = "own-rows"
"""The scope of what was computed on rows and passed no gate, in plain data."""

INTERNAL = (
    "Internal: computed on personal data you may already read. Not k-anonymous, not checked against earlier outputs. "
    "To share: kanab release."
)
"""What every output of that scope says."""
