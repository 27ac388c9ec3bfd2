"""Adding releases: batches of disjoint people, by plans that mean the same, under the coarsest level map."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from kanab.arguments import check_arguments
from kanab.errors import PrivacyError
from kanab.plan.joint_shares import JointShares
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.plan.paired_covariates import planned_pairs
from kanab.privacy.epsilon.accountant import spent_rho
from kanab.privacy.epsilon.rho import epsilon_of
from kanab.privacy.merging import LevelMap
from kanab.privacy.release import HELD_BACK, Batch, NoiseReceipt, Receipt, Release, refuse_own_rows
from kanab.privacy.release_json import release_to_dict
from kanab.tally.factor import OTHER, Level
from kanab.tally.tally import Tally


@check_arguments(skip=("releases",))
def add_releases(releases: Sequence[Release]) -> Release:
    """Add batches that were released by the same plan, about different people.

    Levels that any batch merged are merged in all of them; a table that any batch left out is
    left out of the sum. Experiments may have joined later, and shares of arms may have changed: the
    sum's shares are then those that all batches together should have. Raises `PrivacyError` where plans
    differ or people are the same.
    """
    if not isinstance(releases, Sequence) or isinstance(releases, str):
        raise PrivacyError("only releases can be added", "Give a list of them: add_releases([monday, tuesday]).")
    if not releases:
        raise PrivacyError("there is no release to add", "Name at least one file.")
    for batch in releases:
        refuse_own_rows(batch)
    if not all(isinstance(batch, Release) for batch in releases):
        raise PrivacyError("only releases can be added", "Call release() on what count() returned.")
    if not all(continues(later.plan, earlier.plan) for earlier, later in combinations(releases, 2)):
        raise PrivacyError(
            "these releases were made by different plans",
            "Analyze them one by one, or release all batches with one plan.",
        )
    if len(releases) == 1:
        return releases[0]
    if len({batch.receipt.noise is None for batch in releases}) > 1:
        raise PrivacyError(
            "some of these releases have an ε and some have not", "Add those of one kind, or analyze them one by one."
        )
    _check_disjoint(releases)
    tables, maps = {}, {}
    pairs = {name for batch in releases for name in planned_pairs(batch.plan)}
    for name in dict.fromkeys(name for batch in releases for name in batch.tables if name not in pairs):
        planned = [batch for batch in releases if name in {*batch.plan.linkage_names, *batch.plan.experiment_names}]
        if all(name in batch.tables for batch in planned):
            tables[name], levels = _added(name, planned)
            if levels is not None:
                maps[name] = levels
    plan = unite_plans([batch.plan for batch in releases])
    tables |= _added_pairs(plan, releases)
    for experiment in plan.experiment_names:
        batches = _batches_with(experiment, releases)
        own = [table for table in tables.values() if table.experiment_names[0] == experiment]
        published = {metric for table in own for metric in table.metric_names}
        ratios = {cross.pair for table in own if len(table.arms) == 1 for cross in table.crosses}
        totals = _sum(_alike([batch.totals(experiment) for batch in batches]))
        if not published >= {*totals.metric_names} or not ratios >= {cross.pair for cross in totals.crosses}:
            tables[experiment] = totals
    declared = all(batch.bounds_declared for batch in releases)
    previous = releases[-1].previous if all(batch.chained for batch in releases) else None
    parts = tuple(part for batch in releases for part in batch.parts or (batch,))
    return Release(
        _with_shares(plan, releases), tables, _receipt(releases, tables, maps), declared, previous, parts=parts,
        ranges=_ranges(releases),
    )  # fmt: skip


def _ranges(releases: Sequence[Release]) -> dict[str, tuple[float, float]]:
    """Return the ranges of metrics that nobody declared, over all batches."""
    ranges: dict[str, tuple[float, float]] = {}
    for batch in releases:
        for name, (low, high) in batch.ranges.items():
            lowest, highest = ranges.get(name, (low, high))
            ranges[name] = min(low, lowest), max(high, highest)
    return ranges


def _with_shares(plan: Plan, releases: Sequence[Release]) -> Plan:
    """Give the plan the shares that all batches together should have: each batch's own, weighted by its people."""
    experiments = []
    for experiment in plan.experiments:
        name = experiment.name
        batches = [(batch.plan.experiment(name).shares, batch) for batch in _batches_with(name, releases)]
        shares_differ = len({shares for shares, _ in batches}) > 1 and all(shares for shares, _ in batches)
        sums: dict[Level, float] = {}
        for shares, batch in batches if shares_differ else ():
            whole = math.fsum(share for _, share in shares or ())
            people = batch.totals(name).total
            for arm, share in shares or ():
                sums[arm] = sums.get(arm, 0.0) + people * share / whole
        experiments.append(replace(experiment, shares=tuple(sums.items())) if shares_differ else experiment)
    return replace(plan, experiments=tuple(experiments))


def _batches_with(experiment: str, releases: Sequence[Release]) -> list[Release]:
    return [batch for batch in releases if experiment in batch.plan.experiment_names]


def about_the_same_people(releases: Sequence[Release], experiment: str | None = None) -> bool:
    """Return whether two of these releases have people in common, of an experiment or of any.

    They have where both are in one ledger, and neither cohorts nor conditions keep them apart: with ε they are then the
    same people with other noise, so that equal numbers give nobody away. Releases in no ledger are taken at their
    word, unless all of their numbers are equal.
    """
    contents = {release_to_dict(replace(released, salt="", previous=None))["hash"] for released in releases}
    if len(contents) < len(releases):
        return True
    hashes = [release_to_dict(released)["hash"] for released in releases]
    known = dict(zip(hashes, releases, strict=True))
    firsts = [_first(place, known) for place in hashes]
    for (first, begins), (second, other_begins) in combinations(zip(releases, firsts, strict=True), 2):
        shared = {*first.plan.experiment_names} & {*second.plan.experiment_names}
        one_experiment = bool(shared) if experiment is None else experiment in shared
        if one_experiment and _one_ledger(first, second, (begins, other_begins)) and _meet(first, second):
            return True
    return False


def _first(place: str, known: Mapping[str, Release]) -> tuple[str, bool]:
    """Return the earliest of the releases in the ledger of one, and whether its ledger begins with it."""
    while (previous := known[place].previous) in known:
        assert previous is not None
        place = previous
    return place, known[place].previous == ""


def _one_ledger(first: Release, second: Release, firsts: tuple[tuple[str, bool], tuple[str, bool]]) -> bool:
    """Return whether two releases are of one ledger: by its chain as far as it is here, else by its name."""
    (start, begins), (other_start, other_begins) = firsts
    if not first.chained or not second.chained or (begins and other_begins) or start == other_start:
        return start == other_start
    if first.receipt.store or second.receipt.store:
        return first.receipt.store == second.receipt.store
    after_one_another = first.previous != second.previous
    return after_one_another and first.receipt.ledger == second.receipt.ledger != ""


def _meet(first: Release, second: Release) -> bool:
    """Return whether cohorts and conditions let two releases of a ledger have people in common."""
    conditions = first.receipt.where, second.receipt.where
    if "" not in conditions and conditions[0] != conditions[1]:
        return False
    batch, other = first.receipt.batch, second.receipt.batch
    return batch is None or other is None or _overlap(batch, other)


def _overlap(first: Batch, second: Batch) -> bool:
    begins_before = first.after is None or first.after < second.through
    return begins_before and (second.after is None or second.after < first.through)


def _check_disjoint(releases: Sequence[Release]) -> None:
    """Refuse releases that say themselves that they are about the same people."""
    same = about_the_same_people(releases)
    batches = [release.receipt.batch for release in releases if release.receipt.batch is not None]
    if len(batches) == len(releases):
        same = same or any(_overlap(first, second) for first, second in combinations(batches, 2))
    elif not same:
        hashes = [release_to_dict(release)["hash"] for release in releases]
        same = any(release.previous in hashes for release in releases)
    if same:
        raise PrivacyError("these releases are about the same people", "Analyze them one by one.")


def _added(name: str, releases: Sequence[Release]) -> tuple[Tally, LevelMap | None]:
    tallies = _alike([batch.tables[name] for batch in releases])
    if not tallies[0].covariates:
        return _sum(tallies), None
    covariate = tallies[0].covariates[0].name
    maps = [batch.receipt.maps.get(name) for batch in releases]
    _check_cuts(maps, covariate)
    all_groups = [_groups(levels, tally) for levels, tally in zip(maps, tallies, strict=True)]
    all_groups = [_with_rare(levels, groups, all_groups) for levels, groups in zip(maps, all_groups, strict=True)]
    common = _joined([olds for groups in all_groups for olds in groups.values()])
    names = _names(common, all_groups)
    targets = [{new: names[olds[0]] for new, olds in groups.items()} for groups in all_groups]
    scores = _scores(covariate, tallies, targets)
    coarse = [tally.coarsen(covariate, target, scores) for tally, target in zip(tallies, targets, strict=True)]
    originals: set[Level] = set()  # the levels that the data had, as far as they are named
    for levels, groups in zip(maps, all_groups, strict=True):
        originals |= {*groups} if levels is None else {old for _, olds in levels.groups for old in olds}
    merged = tuple((names[olds[0]], tuple(old for old in olds if old in originals)) for olds in common)
    cuts = maps[0].cuts if maps[0] is not None else None
    rest = any(levels is not None and levels.rest for levels in maps)
    return _sum(coarse), LevelMap(covariate, merged, scores, cuts, rest)


def _added_pairs(plan: Plan, releases: Sequence[Release]) -> dict[str, Tally]:
    """Add tables of two covariates that all batches have, with the same levels throughout."""
    added = {}
    for name, pair in planned_pairs(plan).items():
        batches = _batches_with(pair.experiment, releases)
        levels = [
            (
                batch.tables[name].factors,
                *(batch.tables[pair.single(covariate)].factors for covariate in pair.covariates),
            )
            for batch in batches
            if name in batch.tables and not any(pair.map_name(c) in batch.receipt.maps for c in pair.covariates)
        ]
        if len(levels) == len(batches) and all(factors == levels[0] for factors in levels):
            added[name] = _sum([batch.tables[name] for batch in batches])
    return added


def _alike(tallies: Sequence[Tally]) -> list[Tally]:
    """Reduce tallies to the metrics that all of them have, in one order: what a batch withholds changes its own."""
    shared = set.intersection(*(set(tally.metric_names) for tally in tallies))
    names = [name for name in tallies[0].metric_names if name in shared]
    return [
        replace(tally.select_metrics(names), moments=tuple(tally.moments_of(name) for name in names))
        for tally in tallies
    ]


def _sum(tallies: Sequence[Tally]) -> Tally:
    total = tallies[0]
    for tally in tallies[1:]:
        total = total + tally
    return total


Groups = dict[Level, tuple[Level, ...]]


def _groups(levels: LevelMap | None, tally: Tally) -> Groups:
    """Return the original levels behind each level of a batch's table; "other" stands behind itself."""
    if levels is None:
        return {level: (level,) for level in tally.covariates[0].levels}
    return {new: olds if olds and new != OTHER else tuple(dict.fromkeys((*olds, new))) for new, olds in levels.groups}


def _with_rare(levels: LevelMap | None, groups: Groups, all_groups: Sequence[Groups]) -> Groups:
    """Put levels that other batches name, and that this one may have been too small to name, into its "other"."""
    if levels is None or not levels.rest:
        return groups
    known = {old for olds in groups.values() for old in olds}
    named = dict.fromkeys(old for others in all_groups for olds in others.values() for old in olds)
    return groups | {OTHER: (*groups.get(OTHER, (OTHER,)), *(old for old in named if old not in known))}


def _check_cuts(maps: Sequence[LevelMap | None], covariate: str) -> None:
    """Check that all batches have the same cuts, between which lie the numbers that are too rare to be named."""
    cuts = {None if levels is None else (levels.cuts, levels.groups) for levels in maps}
    if len(cuts) > 1 and any(levels is not None and levels.cuts is not None for levels in maps):
        raise PrivacyError(
            f"the batches cut {covariate} differently",
            "Declare its levels or the edges of its bins, and release again.",
        )


def _joined(groups: Sequence[Sequence[Level]]) -> list[list[Level]]:
    """Join the groups that share a level, in order of first appearance."""
    joined: list[list[Level]] = []
    for group in groups:
        touching = [other for other in joined if set(other) & set(group)]
        merged = list(dict.fromkeys([level for other in touching for level in other] + list(group)))
        joined = [other for other in joined if other not in touching] + [merged]
    return joined


def _names(common: Sequence[Sequence[Level]], all_groups: Sequence[Groups]) -> dict[Level, Level]:
    """Name every original level: as a batch already did, else "other"."""
    used = {frozenset(olds): new for groups in all_groups for new, olds in groups.items()}
    names: dict[Level, Level] = {}
    for olds in common:
        name = used.get(frozenset(olds))
        if name is None:
            name = olds[0] if len(olds) == 1 else " or ".join(map(str, olds)) if len(olds) < 4 else OTHER
        names |= dict.fromkeys(olds, name)
    return names


def _scores(covariate: str, tallies: Sequence[Tally], targets: Sequence[Mapping[Level, Level]]) -> dict[Level, float]:
    """Return the scores of a numeric covariate's levels, pooled over the batches."""
    weighed: dict[Level, list[tuple[float, int]]] = {}
    for tally, target in zip(tallies, targets, strict=True):
        factor = tally.factor(covariate)
        people = tally.people_by(covariate)
        for level, score in zip(factor.levels, factor.scores or (), strict=False):
            if score is not None:
                weighed.setdefault(target[level], []).append((score, people[level]))
    return {
        level: parts[0][0]
        if len({x for x, _ in parts}) == 1
        else sum(x * n for x, n in parts) / sum(n for _, n in parts)
        for level, parts in weighed.items()
    }


def _receipt(releases: Sequence[Release], tables: Mapping[str, Tally], maps: Mapping[str, LevelMap]) -> Receipt:
    receipts = [batch.receipt for batch in releases]
    classes = [int(n) for tally in tables.values() for n in tally.people.ravel() if n]
    left_out: dict[str, str] = {}
    for batch in releases:
        joined = {name for name in batch.plan.experiment_names if HELD_BACK in left_out.get(name, "")}
        left_out = {name: why for name, why in left_out.items() if name not in joined} | dict(batch.receipt.left_out)
    gone = {name for batch in releases for name in batch.tables if name not in tables}
    left_out |= {name: f"{name} is left out: not every batch has it" for name in gone}
    metrics = list(dict.fromkeys(name for batch in releases for name in batch.plan.metric_names))
    effective = [receipt.effective_k for receipt in receipts]
    return Receipt(
        min(receipt.k for receipt in receipts), min(classes), len(classes),
        None if None in effective else min(k for k in effective if k is not None),
        max((receipt.effective_k_within for receipt in receipts), key=len),
        sum(receipt.homogeneous for receipt in receipts), sum(receipt.not_enumerated for receipt in receipts),
        min((receipt.narrowest for receipt in receipts if receipt.narrowest is not None), default=None),
        left_out, tuple(dict.fromkeys(text for receipt in receipts for text in receipt.deviations)),
        {name: sum(receipt.clamped.get(name, 0) for receipt in receipts) for name in metrics},
        {name: sum(receipt.missing.get(name, 0) for receipt in receipts) for name in metrics},
        sum(receipt.excluded for receipt in receipts), sum(receipt.outside for receipt in receipts), receipts[0].where,
        receipts[0].choices if len({str(receipt.choices) for receipt in receipts}) == 1 else None,
        receipts[0].ledger if len({receipt.ledger for receipt in receipts}) == 1 else "",
        people=receipts[-1].people, shapes=_shapes(releases), batch=_batch(releases), noise=_noise(releases, tables),
        checked=tuple(rule for rule in receipts[0].checked if all(rule in receipt.checked for receipt in receipts)),
        repeats=tuple(dict.fromkeys(column for receipt in receipts for column in receipt.repeats)), maps=maps,
    )  # fmt: skip


def _shapes(releases: Sequence[Release]) -> dict[str, dict[str, tuple[float, float]]]:
    """Return the shapes that all batches of an experiment know: the larger skewness, and the fewer unusual people."""
    shapes: dict[str, dict[str, tuple[float, float]]] = {}
    for experiment in dict.fromkeys(name for batch in releases for name in batch.plan.experiment_names):
        known = [batch.receipt.shapes.get(experiment, {}) for batch in _batches_with(experiment, releases)]
        for metric in set.intersection(*(set(classes) for classes in known)):
            skewness, unusual = zip(*(classes[metric] for classes in known), strict=True)
            shapes.setdefault(experiment, {})[metric] = max(skewness, key=abs), min(unusual)
    return shapes


def _noise(releases: Sequence[Release], tables: Mapping[str, Tally]) -> NoiseReceipt | None:
    """Return the noise of all batches together, whose variances add up, and what they cost one person."""
    noises = [release.receipt.noise for release in releases if release.receipt.noise is not None]
    if not noises:
        return None
    batches = [part for release in releases for part in release.parts or (release,)]
    delta = max(noise.delta for noise in noises)
    scales: dict[str, dict[str, float]] = {}
    for name in tables:
        holding = [noise.scales[name] for noise in noises if name in noise.scales]
        labels = [label for label in holding[0] if all(label in table for table in holding)] if holding else []
        scales[name] = {label: float(f"{math.hypot(*(t[label] for t in holding)):.6g}") for label in labels}
    return NoiseReceipt(
        float(f"{epsilon_of(spent_rho(batches), delta):.6g}"),
        delta,
        max(noise.total for noise in noises),
        max(noise.spent for noise in noises),
        min(noise.left for noise in noises),
        scales,
    )


def _batch(releases: Sequence[Release]) -> Batch | None:
    """Return the cohorts of all batches together; None where they do not follow each other."""
    whole, *later = (release.receipt.batch for release in releases)
    for batch in later:
        if whole is None or batch is None or batch.after != whole.through:
            return None
        whole = Batch(whole.every, whole.after, batch.through, whole.column)
    return whole


# ── plans that mean the same ───────────────────────────────────────────────────────────────────


def continues(plan: Plan, old: Plan) -> bool:
    """Return whether a plan means the same by all that it shares with an older one, so that batches may be added."""
    earlier = {experiment.name: experiment for experiment in old.experiments}
    return (
        plan.cohorts == old.cohorts
        and _agree(plan.metrics, old.metrics)
        and _agree(plan.covariates, old.covariates)
        and all(_meaning(new) == _meaning(earlier.get(new.name, new)) for new in plan.experiments)
    )


def unite_plans(plans: Sequence[Plan]) -> Plan:
    """Return everything that plans, which continue each other, have between them; the last one's words count."""
    experiments = {experiment.name: experiment for plan in plans for experiment in plan.experiments}
    interactions: dict[str, dict[str, None]] = {name: {} for name in experiments}
    joint: dict[str, dict[str, JointShares]] = {name: {} for name in experiments}
    for experiment in (experiment for plan in plans for experiment in plan.experiments):
        interactions[experiment.name] |= dict.fromkeys(experiment.interactions)
        joint[experiment.name] |= experiment.joint_shares
    return replace(
        plans[-1],
        metrics=tuple({metric.name: metric for plan in plans for metric in plan.metrics}.values()),
        covariates=tuple({covariate.name: covariate for plan in plans for covariate in plan.covariates}.values()),
        experiments=tuple(
            replace(experiment, interactions=tuple(interactions[name]), joint_shares=joint[name])
            for name, experiment in experiments.items()
        ),
    )


def _agree(new: Sequence[MetricPlan] | Sequence[CovariatePlan], old: Sequence[MetricPlan | CovariatePlan]) -> bool:
    """Return whether metrics or covariates are counted as before; a metric may have got bins, for later experiments."""
    earlier = {part.name: part for part in old}
    for part in new:
        before = earlier.get(part.name, part)
        now = replace(part, bins=None) if isinstance(part, MetricPlan) and before.bins is None else part
        if now.counting != before.counting:
            return False
    return True


def _meaning(experiment: ExperimentPlan) -> tuple[object, ...]:
    return experiment.arms, experiment.control, {*experiment.adjust}, {*experiment.segments}
