"""E-values of many experiments: discoveries in a stream, however often it was looked at and however tests depend.

The evidence of the any-time test is a stake that multiplies, and on average does not grow where nothing is going on:
an e-value. Of m e-values the k largest are discoveries if all of them are at least m/(kα), for the largest such k
(e-BH, Wang and Ramdas 2022). The expected share of false ones is at most α under any dependence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real

from kanab.arguments import check_arguments
from kanab.errors import AnalysisError
from kanab.stats.multiplicity import correct


@check_arguments()
def e_bh(log_evidence: Sequence[float]) -> list[float]:
    """Return for each e-value (as its logarithm) the smallest α at which e-BH calls it a discovery.

    It is Benjamini and Hochberg's procedure on 1/e, which needs no assumption about dependence. Raises `AnalysisError`
    for what is not a number.

    >>> [round(q, 3) for q in e_bh([math.log(e) for e in (200, 3, 90)])]
    [0.015, 0.333, 0.017]
    """
    if not all(isinstance(value, Real) and not math.isnan(value) for value in log_evidence):
        raise AnalysisError("evidence must be numbers", "Give the logarithm of every e-value.")
    adjusted = correct([math.exp(-max(0.0, value)) for value in log_evidence], "bh")
    return [1.0 if q is None else q for q in adjusted]
