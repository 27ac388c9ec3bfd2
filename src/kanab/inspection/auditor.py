"""The auditor: every rule, checked again on what was published, without the rows.

What only the rows can tell (how the tables overlap, contributors and dominance) was checked by the gate; of that the
auditor sees the receipt.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from kanab.errors import LedgerError, SourceError, listed
from kanab.inspection.attack.differencing import find_differences
from kanab.inspection.attack.published import AttackedRelease, published_from_dict
from kanab.inspection.attack.value_bounds import find_few_contributors
from kanab.inspection.promises import NOT_COUNTED, NOT_IN_A_BATCH, NOT_IN_A_FILE
from kanab.privacy.audit import REMEDY, Audit, audit_table, few_events
from kanab.privacy.class_rules import missing_values_are_safe, products_are_safe
from kanab.privacy.epsilon.accountant import spent_rho
from kanab.privacy.epsilon.rho import epsilon_of, rho_of
from kanab.privacy.epsilon.split import stated_noise
from kanab.privacy.ledger import Ledger, check_witness, scan_sentence, void_sentence
from kanab.privacy.release import NoiseReceipt, Release, refuse_own_rows
from kanab.privacy.release_json import release_to_dict
from kanab.tally.tally import Tally

_CLOSE = 1e-6
"""A share by which two sums of floats may differ."""


@dataclass(frozen=True)
class Check:
    """One rule, and whether it holds; ``holds`` is None where it could not be evaluated."""

    rule: str
    holds: bool | None
    says: str
    remedy: str = ""
    classes: int = 0


@dataclass(frozen=True)
class FewEvents:
    """In how many classes of a table some people, but fewer than k, have a 0/1 metric, or lack it.

    That breaks no rule, unless the metric asks for more (`min_events`) or is sensitive.
    """

    table: str
    metric: str
    few: int
    classes: int
    k: int

    @property
    def sentence(self) -> str:
        """The same in words."""
        classes = f"in {self.few:,} of {self.classes:,} classes"
        return f"{self.metric} in {self.table}: {classes} some people, but fewer than {self.k}, have it, or lack it"


def list_few_events(release: Release) -> tuple[FewEvents, ...]:
    """List where classes of 0/1 metrics have few people on one side, as published."""
    if release.receipt.noise is not None:
        return ()
    k = release.receipt.k
    listed = (
        FewEvents(
            name,
            part.metric.name,
            int(np.count_nonzero(few_events(part.counts, part.sums, k))),
            int(np.count_nonzero(part.counts)),
            k,
        )
        for name, table in release.tables.items()
        for part in table.moments
        if part.metric.binary
    )
    return tuple(each for each in listed if each.few)


@dataclass(frozen=True)
class Audited:
    """The inference audit of a table as it was published: of its classes, and of its arms."""

    classes: Audit
    arms: Audit


def audit_release(release: Release) -> dict[str, Audited]:
    """Audit every table of a release again; with ε there is nothing to audit."""
    if release.receipt.noise is not None:
        return {}
    plans, k = release.plan.metrics_by_name, release.receipt.k
    return {
        name: Audited(
            audit_table(name, table, plans, k=k), audit_table(f"arms of {name}", table.keep(), plans, k=k)
        )
        for name, table in release.tables.items()
    }  # fmt: skip


def check_release(release: Release, audited: Mapping[str, Audited] | None = None) -> tuple[Check, ...]:
    """Check every rule for one release; with ε other rules hold. ``audited`` is its audit, where that was done."""
    refuse_own_rows(release)
    if release.receipt.noise is not None:
        return (*check_noise(release, release.receipt.noise), *_records(release))
    audits = audit_release(release) if audited is None else audited
    return (
        _people(release), _overlap(release), _contributors(release), _values(audits), _totals(release),
        _squares(release), _bounds(release), *_records(release),
    )  # fmt: skip


def _records(release: Release) -> tuple[Check, ...]:
    """Check that a collector's batch was made of all records that had been committed."""
    if not release.receipt.store:
        return ()
    says = "the batch holds all records that the collector had committed, as far as its seal could tell"
    remedy = "Find out who may write the store; the results are without those people."
    return (Check("records", not release.receipt.deleted, says, remedy),)


def _people(release: Release) -> Check:
    """Check who has a value, and cells of two 0/1 metrics; a release with a class below k cannot be made or read."""
    k, small = release.receipt.k, 0
    for table in release.tables.values():
        binary = {part.metric.name for part in table.moments if part.metric.binary}
        small += sum(not missing_values_are_safe(part, table, k) for part in table.moments)
        small += sum(not products_are_safe(cross, table, k, binary) for cross in table.crosses)
    says = f"every class holds nobody or at least k = {k} people, and so do those with, and without, a value"
    return Check("k", not small, says, "Do not use it; release it again.", small)


def _overlap(release: Release) -> Check:
    effective, k = release.receipt.effective_k, release.receipt.k
    if effective is None:
        return Check(
            "overlap", None, "how the tables overlap is not known, so effective k of class sums was not evaluated"
        )
    within = "within each experiment " if release.receipt.effective_k_within else ""
    sums = f"published sums of one metric{weighing(release)}"
    return Check(
        "overlap", effective >= k,
        f"{within}no combination of {sums} rests on fewer than {effective:,} people (effective k of class sums)",
        "Do not use it.",
    )  # fmt: skip


def weighing(release: Release) -> str:
    """Name the numbers that weigh published sums, where there are any: ", also those weighted by before,"."""
    crosses = [cross for table in release.tables.values() for cross in table.crosses]
    names = sorted({name for cross in crosses for name in cross.pair if name in release.plan.numbers})
    return f", also those weighted by {listed(names)}," if names else ""


def _contributors(release: Release) -> Check:
    """Say who checked contributors and dominance: a file shows them only where a 0/1 metric says who has any."""
    few = find_few_contributors([published_from_dict(release_to_dict(release), "")])
    says, receipt = "no amount rests on fewer than 3 people, or mostly on one", release.receipt
    if few:
        return Check("contributors", False, says, "Release it again.", len(few))
    if "dominance" in receipt.checked:
        return Check("contributors", True, f"{says}: checked at release, on the rows; a file cannot show it")
    if not (receipt.effective_k_within or receipt.store):
        return Check("contributors", None, NOT_IN_A_FILE)
    return Check("contributors", None, NOT_IN_A_BATCH if "contributors" in receipt.checked else NOT_COUNTED)


def _values(audited: Mapping[str, Audited]) -> Check:
    """Check the rules for metrics that are marked sensitive, and for squares by class."""
    broken = [rule for each in audited.values() for audit in (each.classes, each.arms) for rule in audit.broken]
    return Check(
        "sensitive values", not broken, "metrics that are sensitive, or have squares by class, tell nobody's value",
        REMEDY if broken else "", sum(rule.classes for rule in broken),
    )  # fmt: skip


def _totals(release: Release) -> Check:
    """Check that tables of one experiment, which are about the same people, add up to the same arms."""
    wrong = 0
    for experiment in release.plan.experiment_names:
        first, *others = release.tables_of(experiment).values()
        wrong += sum(not _agree(first.keep(), other.keep()) for other in others)
    return Check("totals", not wrong, "all tables of an experiment add up to the same arms", "Do not use it.", wrong)


def _agree(first: Tally, second: Tally) -> bool:
    if first.people_by() != second.people_by():
        return False
    return all(
        np.array_equal(part.counts, other.counts) and np.array_equal(part.sums, other.sums)
        for part in first.moments
        for other in second.moments
        if part.metric == other.metric
    )


def _squares(release: Release) -> Check:
    allowed = release.plan.metrics_squared_by_class
    by_class = sum(
        len(by) == len(table.axes) > 1 and part.metric.name not in allowed and not part.metric.binary
        for table in release.tables.values()
        for part in table.moments
        for by in part.squares
    )
    return Check(
        "squares", not by_class, "squares are kept on marginals only, unless the plan asks for them by class",
        "Release it again.", by_class,
    )  # fmt: skip


def _bounds(release: Release) -> Check:
    unbounded = sum(not metric.declared for metric in release.plan.counted_metrics)
    bounded = all(part.metric.bounds is not None for table in release.tables.values() for part in table.moments)
    return Check(
        "bounds", bounded, "every metric has bounds, and values beyond them were clamped", "Declare them.", unbounded
    )


def check_chain(release: Release, ledger: Ledger | None, digest: str | None = None) -> Check:
    """Check that the release stands in its ledger. ``digest`` is its hash, where that is known."""
    if not release.chained:
        return Check("ledger", None, "it was released without a ledger, which is a deviation from the defaults")
    if ledger is None:
        return Check("ledger", None, "its ledger was not given; name it with --ledger")
    inside = (digest or release_to_dict(release)["hash"]) in ledger.hashes
    return Check(
        "ledger", inside, "it stands in its ledger, whose entries follow each other unchanged",
        "The ledger is another one, or its last entries were removed: take it from a backup.",
    )  # fmt: skip


def check_differences(
    releases: Mapping[str, Release], files: Mapping[str, AttackedRelease] | None = None
) -> Iterator[Check]:
    """Check that no release differs from another by a few people; those with ε are added up instead.

    ``files`` are the same releases as an attacker reads them, where that was done.
    """
    yield from check_together(releases.values())
    alone = {
        name: release
        for name, release in releases.items()
        if release.receipt.noise is None and release.receipt.batch is None
    }
    if len(alone) > 1:
        known = files or {}
        read = [
            known.get(name) or published_from_dict(release_to_dict(release), name) for name, release in alone.items()
        ]
        differences = find_differences(read, min(release.receipt.k for release in alone.values()))
        yield Check(
            "differences", not differences, "no two releases differ by fewer than k people in a class",
            "Release growing data by cohorts.", len(differences),
        )  # fmt: skip


def passes(checks: Sequence[Check]) -> bool:
    """Tell whether no rule is broken."""
    return all(check.holds is not False for check in checks)


# ── releases with ε ────────────────────────────────────────────────────────────────────────────


def check_noise(release: Release, noise: NoiseReceipt) -> tuple[Check, ...]:
    """Check every rule for one release with ε. Rules about exact numbers say nothing about numbers with noise."""
    try:
        stated_noise(release.plan, noise)
        implied = all(table.noise is not None for table in release.tables.values())
    except SourceError:
        implied = False
    receipt = release.receipt
    exact = [
        *receipt.clamped.values(), *receipt.missing.values(), receipt.excluded, receipt.outside,
        receipt.effective_k, receipt.narrowest, receipt.homogeneous, *receipt.shapes,
    ]  # fmt: skip
    undeclared = sum(not metric.declared for metric in release.plan.counted_metrics)
    undeclared += sum(experiment.arms is None for experiment in release.plan.experiments)
    return (
        Check(
            "noise", implied, f"{noise.mechanism} noise in every number, of the scales that ε = {noise.epsilon:g}, "
            f"δ = {noise.delta:g} and the plan imply", "Do not use it.",
        ),
        Check(
            "declared", not undeclared, "arms, levels and bounds are those of the plan, not of the data",
            "Declare them, and release it again.", undeclared,
        ),
        Check(
            "receipt", not any(exact), "the receipt holds no exact number about people", "Do not use it.",
            sum(map(bool, exact)),
        ),
    )  # fmt: skip


def check_spent(release: Release, noise: NoiseReceipt, ledger: Ledger | None) -> Check:
    """Add up what was spent until a release, and compare it with what its receipt states."""
    if not release.chained:
        return Check("account", None, "it is in no ledger, so nobody adds up what else was spent about these people")
    if ledger is None:
        return Check("account", None, "its ledger was not given, so what was spent before it is not added up")
    digest = release_to_dict(release)["hash"]
    until = []
    for entry, other in zip(ledger.entries, ledger.hashes, strict=True):
        until += [entry] if isinstance(entry, Release) else []
        if other == digest:
            break
    else:
        return Check("account", False, "what was spent stands in its ledger", "The ledger is another one.")
    noises = [entry.receipt.noise for entry in until if entry.receipt.noise is not None]
    if len(noises) < len(until):
        return _MIXED
    rho = spent_rho(until)
    spent = epsilon_of(rho, noise.delta)
    kept = all(later.total <= earlier.total and later.delta == earlier.delta for earlier, later in pairwise(noises))
    stated = math.isclose(min(spent, noise.total), noise.spent, rel_tol=_CLOSE, abs_tol=_CLOSE)
    holds = kept and stated and rho <= _most_rho(release) * (1 + _CLOSE)
    return Check(
        "account", holds, f"added up again, ε = {spent:.3g} of {noise.total:g} was spent when it was released",
        "Do not release more about these people: the promise is broken, or the receipt is not true.",
    )  # fmt: skip


def check_together(releases: Iterable[Release]) -> Iterator[Check]:
    """Add up what several releases spend about people who may be the same, where any has an ε."""
    apart = {release_to_dict(release)["hash"]: release for release in releases}
    noises = [release.receipt.noise for release in apart.values() if release.receipt.noise is not None]
    if len(apart) < 2 or not noises:
        return
    one_ledger = (
        all(release.chained for release in apart.values()) and len({r.receipt.ledger for r in apart.values()}) == 1
    )
    if len(noises) < len(apart):
        says = "some are with ε and some without: if they are about the same people, ε promises nothing"
        yield _MIXED if one_ledger else Check("account", None, says)
        return
    delta, total = max(noise.delta for noise in noises), min(noise.total for noise in noises)
    rho = spent_rho(apart.values())
    says = f"together they spend ε = {epsilon_of(rho, delta):.3g} at δ = {delta:g}"
    if not one_ledger:
        yield Check("account", None, f"{says}, if they are about the same people; no one ledger has them all")
        return
    most = min(_most_rho(release) for release in apart.values())
    yield Check(
        "account", rho <= most * (1 + _CLOSE), f"{says}, which is within their total of {total:g}",
        "Do not release more about these people: the promise is broken.",
    )  # fmt: skip


_MIXED = Check(
    "account",
    False,
    "a ledger is with ε or without, for beside exact numbers about the same people ε promises nothing",
    "Do not release more into it: begin one ledger with ε, about other people.",
)
"""What is wrong with ledgers of before that took both kinds."""


def _most_rho(release: Release) -> float:
    """Return the ρ that a release's ledger may spend about one person: its total, or its part of it."""
    noise, budget = release.receipt.noise, release.plan.budget
    assert noise is not None
    return rho_of(noise.total, noise.delta) / (1 if budget is None else budget.stores)


def check_newest(ledger: Ledger) -> Check | None:
    """Compare a ledger with ε with how far it had come on this machine; None for one without."""
    if not ledger.noisy:
        return None
    try:
        check_witness(ledger.hashes, ledger.name)
    except LedgerError as problem:
        return Check("newest copy", False, "no entry is missing of those that this machine has seen", problem.remedy)
    return Check("newest copy", True, "no entry is missing of those that this machine has seen")


def plain_notes(ledger: Ledger) -> dict[str, Any]:
    """Return what a ledger refused (what, and by which rule), what reviews say, what was voided, what scans told."""
    refused = [
        {"asked": dict(note.asked), "rule": note.says, "reviewed": note not in ledger.unreviewed}
        for note in ledger.notes
        if note.kind == "refused"
    ]
    return {
        "refused": refused,
        "reviews": [note.says for note in ledger.notes if note.kind == "reviewed"],
        "voided": [void_sentence(note) for note in ledger.notes if note.kind == "voided"],
        "scans": [scan_sentence(note) for note in ledger.notes if note.kind == "scanned"],
    }
