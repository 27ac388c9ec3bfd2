"""A/B testing that keeps counts and sums, not people.

>>> import kanab as kb
>>> tally = kb.count_columns(
...     {"variant": list("AABB") * 30, "spend": [0.5, 1.0, 1.5, 2.0] * 30}, arm="variant", metrics=["spend"]
... )
>>> print(kb.difference_in_means(tally))
spend: B − A = 1.000 ± 0.04603, 95% interval 0.9089 … 1.091, t(118.0) = 21.73, p = 4.71e-43
"""

from kanab.errors import (
    AnalysisError,
    DesignError,
    FormulaError,
    GridError,
    KanabError,
    LevelError,
    SourceError,
    TallyError,
)
from kanab.factor import Factor
from kanab.metric import Metric
from kanab.sources.classes import read_classes
from kanab.sources.columns import count_columns
from kanab.sources.csvfile import count_csv
from kanab.stats.adjust import adjusted_effect, adjusted_means
from kanab.stats.effect import ArmMeans, Effect, against_control, contrast, difference_in_means, plain_means
from kanab.stats.ftest import FTest, nested_f, pooled_f, robust_f
from kanab.stats.multiplicity import correct
from kanab.stats.ols import Anova, Fit, fit
from kanab.stats.segments import FollowUp, follow_ups
from kanab.stats.srm import SampleRatio, sample_ratio
from kanab.tally import Tally

__version__ = "0.1.0"

__all__ = [
    "AnalysisError",
    "Anova",
    "ArmMeans",
    "DesignError",
    "Effect",
    "FTest",
    "Factor",
    "Fit",
    "FollowUp",
    "FormulaError",
    "GridError",
    "KanabError",
    "LevelError",
    "Metric",
    "SampleRatio",
    "SourceError",
    "Tally",
    "TallyError",
    "adjusted_effect",
    "adjusted_means",
    "against_control",
    "contrast",
    "correct",
    "count_columns",
    "count_csv",
    "difference_in_means",
    "fit",
    "follow_ups",
    "nested_f",
    "plain_means",
    "pooled_f",
    "read_classes",
    "robust_f",
    "sample_ratio",
]
