"""A/B testing that keeps counts and sums, not people.

>>> import numpy as np, kanab as kb
>>> rng = np.random.default_rng(1)
>>> people = {"variant": rng.choice(["A", "B"], 900), "bought": rng.random(900) < 0.2}
>>> print(kb.readout(people, arm="variant", metrics=["bought"]).effects[0].effect)
bought: B − A = 0.007087 ± 0.02535, 95% interval -0.04266 … 0.05683, t(893.7) = 0.2796, p = 0.780
"""

from kanab.analysis.api import analyze, readout
from kanab.analysis.options import Looks
from kanab.analysis.readout import Readout
from kanab.counted import Counted
from kanab.counting.class_table import read_classes
from kanab.counting.columns import count_columns
from kanab.counting.csvfile import count_csv
from kanab.counting.dispatch import count
from kanab.errors import (
    AnalysisError,
    DesignError,
    FormulaError,
    GridError,
    KanabError,
    LedgerError,
    LevelError,
    MessageError,
    MissingExtraError,
    NobodyError,
    PlanError,
    PrivacyError,
    QueryError,
    SourceError,
    StoreError,
    TallyError,
)
from kanab.plan.file import read_plan
from kanab.plan.model import Plan, make_plan
from kanab.planning.forecast import Forecast, Known, forecast_plan, known_from_release
from kanab.planning.interactions import (
    CrossedNoise,
    InteractionPower,
    crossed_noise,
    crossed_noise_of,
    interaction_power,
)
from kanab.planning.noise import Noise, noise_of_amounts, noise_of_means, noise_of_rate
from kanab.planning.power import Power, Question, power_curve, solve_power
from kanab.planning.simulation import Population, Study, simulate
from kanab.privacy.batches import add_releases
from kanab.privacy.gate import release
from kanab.privacy.ledger import Ledger, read_ledger
from kanab.privacy.release import Receipt, Release
from kanab.privacy.release_file import read_release, write_release
from kanab.scan.readout import PairReadout, SegmentReadout
from kanab.scan.scan import scan_heterogeneity, scan_interactions
from kanab.stats.additive import additive_means
from kanab.stats.adjust import adjusted_effect, adjusted_means
from kanab.stats.arms import joint_contrasts, many_to_one, omnibus
from kanab.stats.bayes import Candidate, Posterior, Prior, best_arm, posterior
from kanab.stats.cautions import Caution, changed_shares, clamped_values, looked_early, metric_cautions
from kanab.stats.effect import ArmMeans, Effect, against_control, contrast, difference_in_means, plain_means
from kanab.stats.ftest import FTest, nested_f, pooled_f, robust_f
from kanab.stats.hc import RobustFit, robust_fit
from kanab.stats.margins import Margin, MarginTest, against_margin
from kanab.stats.multiplicity import correct
from kanab.stats.ols import Anova, Fit, fit
from kanab.stats.ratio import adjusted_ratio_effect, adjusted_ratio_means, ratio_effect, ratio_means
from kanab.stats.relative import Relative, relative_delta, relative_effect
from kanab.stats.segments import FollowUp, follow_ups
from kanab.stats.sequential import (
    AnyTimeLook,
    AnyTimeRatio,
    PlannedLook,
    any_time_look,
    planned_look,
    sample_ratio_any_time,
)
from kanab.stats.simultaneous import HolmRegion, Simultaneous, holm_regions, simultaneous_intervals
from kanab.stats.srm import SampleRatio, sample_ratio
from kanab.tally.factor import Factor
from kanab.tally.metric import Metric
from kanab.tally.tally import Tally

__version__ = "0.1.0"

__all__ = [
    "AnalysisError",
    "Anova",
    "AnyTimeLook",
    "AnyTimeRatio",
    "ArmMeans",
    "Candidate",
    "Caution",
    "Counted",
    "CrossedNoise",
    "DesignError",
    "Effect",
    "FTest",
    "Factor",
    "Fit",
    "FollowUp",
    "Forecast",
    "FormulaError",
    "GridError",
    "HolmRegion",
    "InteractionPower",
    "KanabError",
    "Known",
    "Ledger",
    "LedgerError",
    "LevelError",
    "Looks",
    "Margin",
    "MarginTest",
    "MessageError",
    "Metric",
    "MissingExtraError",
    "NobodyError",
    "Noise",
    "PairReadout",
    "Plan",
    "PlanError",
    "PlannedLook",
    "Population",
    "Posterior",
    "Power",
    "Prior",
    "PrivacyError",
    "QueryError",
    "Question",
    "Readout",
    "Receipt",
    "Relative",
    "Release",
    "RobustFit",
    "SampleRatio",
    "SegmentReadout",
    "Simultaneous",
    "SourceError",
    "StoreError",
    "Study",
    "Tally",
    "TallyError",
    "add_releases",
    "additive_means",
    "adjusted_effect",
    "adjusted_means",
    "adjusted_ratio_effect",
    "adjusted_ratio_means",
    "against_control",
    "against_margin",
    "analyze",
    "any_time_look",
    "best_arm",
    "changed_shares",
    "clamped_values",
    "contrast",
    "correct",
    "count",
    "count_columns",
    "count_csv",
    "crossed_noise",
    "crossed_noise_of",
    "difference_in_means",
    "fit",
    "follow_ups",
    "forecast_plan",
    "holm_regions",
    "interaction_power",
    "joint_contrasts",
    "known_from_release",
    "looked_early",
    "make_plan",
    "many_to_one",
    "metric_cautions",
    "nested_f",
    "noise_of_amounts",
    "noise_of_means",
    "noise_of_rate",
    "omnibus",
    "plain_means",
    "planned_look",
    "pooled_f",
    "posterior",
    "power_curve",
    "ratio_effect",
    "ratio_means",
    "read_classes",
    "read_ledger",
    "read_plan",
    "read_release",
    "readout",
    "relative_delta",
    "relative_effect",
    "release",
    "robust_f",
    "robust_fit",
    "sample_ratio",
    "sample_ratio_any_time",
    "scan_heterogeneity",
    "scan_interactions",
    "simulate",
    "simultaneous_intervals",
    "solve_power",
    "write_release",
]
