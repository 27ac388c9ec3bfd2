"""Every attack that we know, run on releases as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kanab.inspection.attack.all_but_one import KnownPeople, attack_all_but_one, promised
from kanab.inspection.attack.background import Background
from kanab.inspection.attack.count_bounds import BOUNDS, bound_counts
from kanab.inspection.attack.differencing import DIFFERENCES, SMALL, find_differences, find_small_classes
from kanab.inspection.attack.experiment_differences import EXPERIMENTS, find_experiment_differences
from kanab.inspection.attack.findings import AttackReport, Attempt, Finding
from kanab.inspection.attack.metric_differences import (
    METRIC_DIFFERENCES,
    PRODUCTS,
    find_by_products,
    find_metric_differences,
    with_differences,
)
from kanab.inspection.attack.nested_classes import NESTED, find_nested_classes
from kanab.inspection.attack.published import AttackedRelease, published_from_dict
from kanab.inspection.attack.reconstruct import (
    LEAST_SQUARES,
    LEVERAGE,
    SPARSE,
    find_by_least_squares,
    find_leverage,
    find_sparse_values,
)
from kanab.inspection.attack.scan_statistics import SCANS, find_from_statistics
from kanab.inspection.attack.subset_sums import SUBSETS, find_subset_sums
from kanab.inspection.attack.value_bounds import CLOSED_FORMS, find_exposed_values
from kanab.inspection.attack.weights import WEIGHTS, find_by_weights
from kanab.inspection.attack.whole_numbers import WHOLE_NUMBERS, find_whole_numbers
from kanab.privacy.release import Release
from kanab.privacy.release_json import release_to_dict

DOES = {
    SMALL: "Looks for classes of fewer than k people.",
    DIFFERENCES: "Subtracts tables about the same people from each other.",
    BOUNDS: "Bounds counts that nobody published by linear programming.",
    CLOSED_FORMS: "Infers the largest and the smallest value of a class from people, sum and squares.",
    METRIC_DIFFERENCES: "Subtracts metrics of one table from each other, or multiples of them.",
    PRODUCTS: "Cuts arms by a 0/1 metric, by its products with another.",
    EXPERIMENTS: "Subtracts experiments from each other whose people are the same but for a few.",
    NESTED: "Subtracts classes from larger ones that they lie in: what is left is in no table.",
    LEVERAGE: "Combines the sums of all tables so that one person weighs as much as possible.",
    LEAST_SQUARES: "Solves all sums of all tables for everybody's values.",
    SPARSE: "Solves the sums for the few people who are off the commonest value.",
    SCANS: "Solves the F statistics of a scan for everybody's 0/1 values, by phase retrieval.",
    WEIGHTS: "Combines sums that a known number weighs so that an outlier in it weighs as much as possible.",
    SUBSETS: "Searches for the few people whose known numbers add up to a sum over those who have a 0/1 metric.",
    WHOLE_NUMBERS: "Solves the sums of 0/1 metrics and small whole numbers exactly, by whole-number programs.",
}
"""What every attack does, in the order in which they are tried."""

NEEDS_KNOWLEDGE = "It needs to know who is in which class of every table (--known)."
NOTHING_KNOWN = "The people who are known do not add up to any of the tables."
NEEDS_EXACT = "It takes longer than the others; ask for it (--exact)."
TOO_MUCH_WORK = "For some people that was too much work."
ONLY_NOISE = "Every number carries noise: what it would find is noise, not people."


def play_attacker(
    releases: Sequence[AttackedRelease | Release],
    background: Background | None = None,
    k: int | None = None,
    *,
    exact: bool = False,
    known: KnownPeople | None = None,
) -> AttackReport:
    """Try every attack on releases, or on what was read of their files.

    ``background`` is what the attacker knows about people besides; k is the releases' largest.

    ``exact`` adds the one that solves in whole numbers; ``known`` are people whose values are known, too.

    >>> from kanab.inspection.attack.examples.catalogue import example
    >>> paper = example("paper")
    >>> print(play_attacker(paper.releases).findings[0].learnt)
    the largest minutes of treatment = A, tier = 1 lies in [2.17, 2.17], and one person has it
    """
    published = [
        published_from_dict(release_to_dict(release), f"release {place}") if isinstance(release, Release) else release
        for place, release in enumerate(releases, 1)
    ]
    rule = max(release.k for release in published) if k is None else k
    noisy = [(release, release.noise) for release in published if release.noise is not None]
    without = [release for release in published if release.noise is None]
    attempts = (
        _attack_exact_numbers(without, background, rule, exact=exact)
        if without
        else [Attempt(name, does, not_tried=ONLY_NOISE) for name, does in DOES.items()]
    )
    if noisy or known is not None:
        attempts.append(attack_all_but_one(published, rule, known))
    promise = "ε = {:.3g} at δ = {:g}".format(*promised(noisy)) if noisy else ""
    return AttackReport(tuple(release.name for release in published), rule, tuple(attempts), promise, not without)


def _attack_exact_numbers(
    releases: Sequence[AttackedRelease], background: Background | None, rule: int, *, exact: bool
) -> list[Attempt]:
    """Try what takes numbers for what they are."""
    attempts = [
        Attempt(SMALL, DOES[SMALL], tuple(find_small_classes(releases, rule))),
        Attempt(DIFFERENCES, DOES[DIFFERENCES], tuple(find_differences(releases, rule))),
        Attempt(BOUNDS, DOES[BOUNDS], tuple(bound_counts(releases, rule))),
        Attempt(CLOSED_FORMS, DOES[CLOSED_FORMS], tuple(find_exposed_values(releases, rule))),
        Attempt(METRIC_DIFFERENCES, DOES[METRIC_DIFFERENCES], tuple(find_metric_differences(releases, rule))),
        Attempt(PRODUCTS, DOES[PRODUCTS], tuple(find_by_products(releases, rule))),
        Attempt(EXPERIMENTS, DOES[EXPERIMENTS], tuple(find_experiment_differences(releases, rule))),
        Attempt(NESTED, DOES[NESTED], tuple(find_nested_classes(releases, rule, background))),
    ]
    if background is not None:
        background = with_differences(background)
    solving: dict[str, Callable[[Background, int], list[Finding]]] = {
        LEVERAGE: find_leverage,
        LEAST_SQUARES: find_by_least_squares,
        SPARSE: find_sparse_values,
        SCANS: find_from_statistics,
        WEIGHTS: find_by_weights,
        SUBSETS: find_subset_sums,
    }
    for name, find in solving.items():
        if background is None or not (background.tables or background.scans):
            reason = NEEDS_KNOWLEDGE if background is None else NOTHING_KNOWN
            attempts.append(Attempt(name, DOES[name], not_tried=reason))
        else:
            attempts.append(Attempt(name, DOES[name], tuple(find(background, rule))))
    attempts.append(
        _solve_exactly(background, rule)
        if exact
        else Attempt(WHOLE_NUMBERS, DOES[WHOLE_NUMBERS], not_tried=NEEDS_EXACT)
    )
    return attempts


def _solve_exactly(background: Background | None, k: int) -> Attempt:
    does = DOES[WHOLE_NUMBERS]
    if background is None or not background.tables:
        return Attempt(WHOLE_NUMBERS, does, not_tried=NEEDS_KNOWLEDGE if background is None else NOTHING_KNOWN)
    solved = find_whole_numbers(background, k)
    return Attempt(WHOLE_NUMBERS, f"{does} {TOO_MUCH_WORK}" if solved.unsettled else does, solved.findings)
