"""Arms that were assigned to groups of people: means per person, with errors between clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from kanab.arguments import check_arguments
from kanab.stats.cautions import Caution
from kanab.stats.effect import ArmMeans
from kanab.stats.noise_variance import refuse_noise
from kanab.stats.ratio import ratio_means
from kanab.tally.factor import Level
from kanab.tally.tally import Tally

FEWEST_CLUSTERS = 30
"""With fewer clusters intervals rest on how alike clusters are; a caution says so."""


@check_arguments()
def cluster_means(tally: Tally, metric: str, people: str = "people") -> ArmMeans:
    """Return one mean per person and arm, from a tally of clusters: Σ metric / Σ people.

    Its error is that between clusters: the cluster-robust one of a regression on rows (CR0) times C / (C − 1) in each
    arm of C clusters, where clusters of different sizes n count as C = (Σ n)² / Σ n² (Kish). Two arms are compared by
    Welch's t, which so has at most two degrees of freedom less than there are clusters. Raises what `ratio_means`
    raises.

    >>> from kanab.counting.columns import count_columns
    >>> shops = {"arm": ["A"] * 3 + ["B"] * 3, "people": [10, 20, 30, 10, 20, 30], "spend": [20, 45, 55, 30, 70, 80]}
    >>> shops = count_columns(shops, arm="arm", metrics=["spend", "people"], products=[("spend", "people")])
    >>> cluster_means(shops, "spend").means
    array([2., 3.])
    """
    refuse_noise(tally, "a mean of clusters")
    means = ratio_means(tally, metric, people)
    return between_clusters(replace(means, metric=metric), effective_clusters(tally, people))


def effective_clusters(tally: Tally, people: str) -> dict[Level, float]:
    """Return per arm how many clusters of one size would tell as much: (Σ n)² / Σ n² of their people (Kish)."""
    refuse_noise(tally, "a number of clusters")
    arms = tally.keep()
    part = arms.moments_of(people)
    squares = part.squares_by(arms.axes, arms.axes)
    assert squares is not None  # every table keeps them by arm
    return {
        arm: int(total) ** 2 / int(square)
        for arm, total, square in zip(arms.experiment.levels, part.sums, squares, strict=True)
    }


def between_clusters(means: ArmMeans, effective: Mapping[Level, float]) -> ArmMeans:
    """Return means of clusters with errors and degrees of freedom for so many effective clusters in each arm."""
    counted = np.array(means.people, dtype=np.float64)
    alike = np.array([max(effective[arm], 1.5) for arm in means.arms])  # one cluster with nearly everybody tells little
    factor = (counted - 1) / counted * alike / (alike - 1)
    return replace(means, sample=means.sample * factor, df=np.maximum(means.df - (counted - alike), 1.0))


def few_clusters(clusters: Mapping[Level, int], by: Sequence[str]) -> list[Caution]:
    """Warn where there are fewer than 30 clusters."""
    if sum(clusters.values()) >= FEWEST_CLUSTERS:
        return []
    return [
        Caution(
            "few-clusters",
            f"Arms were assigned by {' and '.join(by)}, and there are fewer than {FEWEST_CLUSTERS} of them: intervals "
            "are wide and rest on clusters that are alike. Assign more of them, rather than more people in each.",
        )
    ]
