"""Statistics: pure functions from a tally to a frozen result, without input, output or privacy rules.

Others import the names in ``__all__`` from here, or a module of this folder by its name.
"""

from kanab.stats.additive import additive_means
from kanab.stats.adjust import adjusted_effect, adjusted_means
from kanab.stats.arms import joint_contrasts, many_to_one, omnibus
from kanab.stats.balance import BalanceCheck, check_balance, check_balance_any_time
from kanab.stats.cace import ReceivedEffect, received_effect
from kanab.stats.cautions import (
    Caution,
    changed_shares,
    clamped_values,
    count_nonmodal,
    looked_early,
    metric_cautions,
)
from kanab.stats.effect import ArmMeans, Effect, against_control, contrast, difference_in_means, plain_means
from kanab.stats.ftest import FTest, nested_f, pooled_f, robust_f
from kanab.stats.heterogeneity import FollowUp, SegmentEffect, effect_differs, follow_ups, segment_effects
from kanab.stats.margins import MarginTest, against_margin
from kanab.stats.multiplicity import Simultaneous, correct, simultaneous_intervals
from kanab.stats.posteriors import Candidate, Posterior, best_arm, posterior
from kanab.stats.quantile import BinnedPeople, QuantileEffect, propose_edges, quantile_effect
from kanab.stats.ratio import additive_ratio_means, adjusted_ratio_means, cluster_means, ratio_means
from kanab.stats.regression import Anova, Fit, fit
from kanab.stats.relative import OddsRatio, Relative, odds_ratio, relative_delta, relative_effect
from kanab.stats.score import Rates
from kanab.stats.sequential import (
    AnyTimeLook,
    AnyTimeSampleRatio,
    PlannedLook,
    any_time_look,
    planned_look,
    sample_ratio_any_time,
)
from kanab.stats.spending import Boundary, boundaries
from kanab.stats.srm import SampleRatio, sample_ratio

__all__ = [
    "Anova",
    "AnyTimeLook",
    "AnyTimeSampleRatio",
    "ArmMeans",
    "BalanceCheck",
    "BinnedPeople",
    "Boundary",
    "Candidate",
    "Caution",
    "Effect",
    "FTest",
    "Fit",
    "FollowUp",
    "MarginTest",
    "OddsRatio",
    "PlannedLook",
    "Posterior",
    "QuantileEffect",
    "Rates",
    "ReceivedEffect",
    "Relative",
    "SampleRatio",
    "SegmentEffect",
    "Simultaneous",
    "additive_means",
    "additive_ratio_means",
    "adjusted_effect",
    "adjusted_means",
    "adjusted_ratio_means",
    "against_control",
    "against_margin",
    "any_time_look",
    "best_arm",
    "boundaries",
    "changed_shares",
    "check_balance",
    "check_balance_any_time",
    "clamped_values",
    "cluster_means",
    "contrast",
    "correct",
    "count_nonmodal",
    "difference_in_means",
    "effect_differs",
    "fit",
    "follow_ups",
    "joint_contrasts",
    "looked_early",
    "many_to_one",
    "metric_cautions",
    "nested_f",
    "odds_ratio",
    "omnibus",
    "plain_means",
    "planned_look",
    "pooled_f",
    "posterior",
    "propose_edges",
    "quantile_effect",
    "ratio_means",
    "received_effect",
    "relative_delta",
    "relative_effect",
    "robust_f",
    "sample_ratio",
    "sample_ratio_any_time",
    "segment_effects",
    "simultaneous_intervals",
]
