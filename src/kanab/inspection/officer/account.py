"""The privacy officer's account of releases, as plain data: what left, by which rules, and what remains open.

It holds no class below k, no value of anybody, no path, no machine and no time.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kanab.errors import LedgerError, SourceError
from kanab.inspection.attack.all_but_one import ALL_BUT_ONE
from kanab.inspection.attack.findings import AttackReport, Attempt
from kanab.inspection.attack.published import published_from_dict
from kanab.inspection.attack.run import play_attacker
from kanab.inspection.auditor import (
    Audited,
    Check,
    audit_release,
    check_chain,
    check_differences,
    check_release,
    check_spent,
    plain_notes,
)
from kanab.inspection.officer import noisy
from kanab.inspection.officer.statements import deviations, flow, places, promises, questions, risks
from kanab.inspection.officer.table_facts import fields_of
from kanab.privacy.costs import costs_of
from kanab.privacy.ledger import Ledger
from kanab.privacy.release import COLLECTORS_CLOCK, Batch, Release
from kanab.privacy.release_json import release_to_dict

FORMAT = "kanab-privacy-report/1"
LEARNT, NOTHING, NOT_TRIED = "learnt something", "learnt nothing", "not tried"
MOST_RISKS = 3
"""So many residual risks are named in the verdict; the account holds all of them."""

Plain = dict[str, Any]
Releases = Mapping[str, Release]


def privacy_account(releases: Releases, ledger: Ledger | LedgerError | None = None) -> Plain:
    """Return everything that an officer asks about releases, by the names of their files.

    ``ledger`` is the verified one, or the problem why it could not be verified. Raises `SourceError` where there is
    no release, or one is given twice.
    """
    if not releases:
        raise SourceError("there is no release to report on", "Name at least one file.")
    files = {name: release_to_dict(release) for name, release in releases.items()}
    hashes = {name: str(file["hash"]) for name, file in files.items()}
    if len(set(hashes.values())) < len(hashes):
        raise SourceError("the same release is given twice", "Name every release once.")
    audits = {name: audit_release(release) for name, release in releases.items()}
    checks = {
        name: [*check_release(release, audits[name]), *_chain(release, hashes[name], ledger)]
        for name, release in releases.items()
    }
    published = {name: published_from_dict(file, name) for name, file in files.items()}
    between = [*_verified(ledger), *check_differences(releases, published)]
    plain = [_release(name, release, hashes[name], audits[name], checks[name]) for name, release in releases.items()]
    everything = [*(check for of_file in checks.values() for check in of_file), *between]
    effective_k = _effective_k(releases, hashes.values(), ledger)
    attacked = play_attacker([*published.values()], k=min(release.k for release in published.values()))
    attacks = _attacks(attacked)
    remaining = risks(plain)
    broken = [
        *(f"{check.rule} in {name}" for name in checks for check in checks[name] if check.holds is False),
        *(f"{check.rule} between the files" for check in between if check.holds is False),
        *(f"attack by {attempt['attack']}" for attempt in attacks["tried"] if attempt["state"] == LEARNT),
    ]
    return {
        "format": FORMAT,
        "verdict": _verdict(plain, broken, everything, remaining) | {"effective_k": effective_k},
        **promises(plain, everything),
        "flow": flow(plain),
        "places": places(plain),
        "releases": plain,
        "together": _plain_checks(between),
        "questions": questions(plain, effective_k, everything),
        "risks": remaining,
        "attacks": attacks,
        "ledger": _ledger(ledger, hashes),
    }


_OPEN = {
    "ledger": "Release into a ledger, and name it with --ledger.",
    "overlap": "Count from rows, so that the gate sees how the tables overlap.",
    "account": "Release into a ledger, and name it with --ledger.",
    "contributors": "Release it again from rows: the gate checks it.",
}
_OPEN_AT_COLLECTORS = {
    "overlap": "Update every collector on the store; declare fewer levels or covariates.",
    "contributors": "Declare bounds near what is usual: they limit how much one person can be.",
}
"""What to do about rules that could not be evaluated."""


def _chain(release: Release, digest: str, ledger: Ledger | LedgerError | None) -> Iterator[Check]:
    book, noise = ledger if isinstance(ledger, Ledger) else None, release.receipt.noise
    if release.chained and isinstance(ledger, LedgerError):
        yield Check("ledger", None, "its ledger could not be verified")
    else:
        yield check_chain(release, book, digest)
    if noise is not None:
        yield check_spent(release, noise, book)


def _verified(ledger: Ledger | LedgerError | None) -> Iterator[Check]:
    """Check the chain of the ledger itself, whatever it holds."""
    if ledger is not None:
        problem = ledger if isinstance(ledger, LedgerError) else None
        says = "every entry of the ledger has its own hash and names the one before it"
        yield Check("chain", problem is None, says, "" if problem is None else f"{problem.fact}. {problem.remedy}")


def _effective_k(releases: Releases, hashes: Iterable[str], ledger: Ledger | LedgerError | None) -> int | None:
    """Return the effective k over all exact numbers; None where a release outside a ledger is not alone."""
    everything = [release for release in releases.values() if release.receipt.noise is None]
    if len(everything) > 1 and not all(release.chained for release in everything):
        return None
    if isinstance(ledger, Ledger) and not set(hashes).isdisjoint(ledger.hashes):
        everything += ledger.releases
    known = [release.receipt.effective_k for release in everything]
    return None if None in known or not known else min(k for k in known if k is not None)


# ── the verdict ────────────────────────────────────────────────────────────────────────────────


def _verdict(
    releases: Sequence[Plain], broken: list[str], checks: Sequence[Check], remaining: Sequence[Plain]
) -> Plain:
    """Return the verdict in one paragraph; what is broken comes first."""
    rules = {release["k"] for release in releases}
    left_open = list(dict.fromkeys(check.rule for check in checks if check.holds is None))
    least = f"k = {min(rules)}{' or more' if len(rules) > 1 else ''}"
    open_ = f"; not evaluated: {', '.join(left_open)}" if left_open else ""
    named = ", ".join(risk["risk"] for risk in remaining[:MOST_RISKS])
    more = f", and {len(remaining) - MOST_RISKS} more" if len(remaining) > MOST_RISKS else ""
    promise = noisy.claim(releases) if noisy.all_noisy(releases) else f"k-anonymous at {least}"
    claims = f"to {'have' if noisy.all_noisy(releases) else 'be'}"
    short = f"BROKEN: {', '.join(broken)}." if broken else f"{promise}; audit passed"
    claim = f" Do not use these files before that is fixed. They claim {claims} {promise}" if broken else ""
    return {
        "state": "broken" if broken else "passed",
        "short": short,
        "says": f"{short}{claim}{open_}; residual risks: {named}{more}.",
        "k": min(rules),
        "broken": broken,
        "not_evaluated": left_open,
    }


# ── one release ────────────────────────────────────────────────────────────────────────────────


def _release(
    name: str, release: Release, digest: str, audited: Mapping[str, Audited], checks: Sequence[Check]
) -> Plain:
    receipt = release.receipt
    tables = fields_of(release, audited)
    return {
        "file": name,
        "hash": digest,
        "previous": release.previous,
        "experiments": list(release.plan.experiment_names),
        "k": receipt.k,
        "smallest_class": receipt.smallest_class if receipt.noise is None else None,
        "effective_k": receipt.effective_k,
        "effective_k_within": receipt.effective_k_within,
        "collector": _from_collector(release),
        "classes": receipt.classes,
        "degrees_of_freedom": (min(table["degrees_of_freedom"] for table in tables) if receipt.noise is None else None),
        "narrowest": _narrowest(tables),
        "homogeneous": sum(table["homogeneous"] for table in tables),
        "shapes": [
            {"experiment": experiment, "metric": metric, "skewness": skewness, "unusual": unusual}
            for experiment, shapes in receipt.shapes.items()
            for metric, (skewness, unusual) in shapes.items()
        ],
        "clamped": dict(receipt.clamped),
        "missing": dict(receipt.missing),
        "excluded": receipt.excluded,
        "outside": receipt.outside,
        "where": receipt.where,
        "choices": None if receipt.choices is None else dict(receipt.choices),
        "ledger": receipt.ledger or None,
        "cohorts": _cohorts(receipt.batch),
        "tables": tables,
        "left_out": [{"what": name, "why": why} for name, why in receipt.left_out.items()],
        "costs": costs_of(release),
        "deviations": deviations(release),
        "checks": _plain_checks(checks, collector=_from_collector(release)),
        **({} if receipt.noise is None else {"noise": asdict(receipt.noise)}),
    }


def _from_collector(release: Release) -> bool:
    """Return whether a release is a collector's batch."""
    batch = release.receipt.batch
    return bool(release.receipt.effective_k_within) or (batch is not None and batch.column == COLLECTORS_CLOCK)


def _narrowest(tables: Sequence[Plain]) -> Plain | None:
    """Return what can be inferred most closely from what was published: in which table, about which metric."""
    ranges = [table["narrowest"] | {"table": table["table"]} for table in tables if table["narrowest"] is not None]
    return min(ranges, key=lambda narrowest: float(narrowest["share"]), default=None)


def _cohorts(batch: Batch | None) -> Plain | None:
    return None if batch is None else {"every": batch.every, "after": batch.after, "through": batch.through}


def _plain_checks(checks: Iterable[Check], *, collector: bool = False) -> list[Plain]:
    remedies = _OPEN | _OPEN_AT_COLLECTORS if collector else _OPEN
    return [
        vars(check) | ({} if check.holds is not None else {"remedy": check.remedy or remedies.get(check.rule, "")})
        for check in checks
    ]


# ── attacks and ledger ─────────────────────────────────────────────────────────────────────────


def _attacks(attacked: AttackReport) -> Plain:
    """Return what was tried, and whether anything was learnt. Never what: that may be somebody's value."""
    return {
        "k": attacked.k,
        "broken": attacked.broken,
        "tried": [_attempt(attempt, attacked.k) for attempt in attacked.attempts],
    }


def _attempt(attempt: Attempt, k: int) -> Plain:
    learnt = [finding for finding in attempt.findings if finding.people < k and attempt.promised]
    return {
        "attack": attempt.attack,
        "does": attempt.does,
        "state": NOT_TRIED if attempt.not_tried else LEARNT if learnt else NOTHING,
        "times": len(learnt),
        "where": list(dict.fromkeys(finding.table for finding in learnt)),
        "why_not": attempt.not_tried or None,
        **({"says": list(attempt.says)} if attempt.attack == ALL_BUT_ONE and attempt.says else {}),
    }


def _ledger(ledger: Ledger | LedgerError | None, hashes: Mapping[str, str]) -> Plain | None:
    if ledger is None:
        return None
    if isinstance(ledger, LedgerError):
        return {"verified": False, "name": None, "entries": [], "refused": [], "reviews": [], "voided": [], "scans": []}
    files = {digest: name for name, digest in hashes.items()}
    entries = [
        {"entry": number, "hash": digest, "file": files.get(digest), "cohorts": _cohorts(release.receipt.batch)}
        for number, (digest, release) in enumerate(zip(ledger.hashes, ledger.entries, strict=True), start=1)
        if isinstance(release, Release)
    ]
    spent = noisy.spent_in(ledger)
    return (
        {"verified": True, "name": ledger.name or None, "entries": entries}
        | plain_notes(ledger)
        | ({} if spent is None else {"noise": spent})
    )
