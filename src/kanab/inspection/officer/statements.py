"""What an officer asks of releases: where the data are, what was done otherwise, what remains open."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kanab.description import DEFAULT_K
from kanab.inspection.auditor import Check
from kanab.inspection.officer import noisy
from kanab.inspection.officer.table_facts import origin
from kanab.inspection.promises import NOT_COVERED, PROMISES, RULES, WITHIN_AN_EXPERIMENT
from kanab.privacy.release import Release

Plain = dict[str, Any]

TESTS = {
    "singling out": ("tests/unit/privacy/test_gate.py", "tests/property/test_exposure.py"),
    "linkability": ("tests/unit/privacy/test_joint_rules.py", "tests/unit/privacy/test_ledger.py"),
    "inference": ("tests/property/test_exposure.py", "tests/property/test_everybody.py"),
}
"""Which of Kanab's own tests prove the rules behind each question."""


# ── where the data are ─────────────────────────────────────────────────────────────────────────

_RELEASED = (
    "Tables of classes, the map of merged levels, the plan, the receipt and hashes. No row, no identifier, no time of "
    "day, no machine or user."
)
_FOREVER = "Forever: what has been handed out cannot be taken back."

_COLLECTOR_STEPS = (
    ("Browser or app", "sends arm, level and totals; no id, no time", "visitor", "personal data"),
    ("Collector", "adds them to classes; keeps no message", "curator", "personal data"),
    ("Encrypted records", "open cohorts: counts and sums, padded", "curator", "personal data"),
    ("Seal", "privacy gate; then the key is erased", "curator", "rules"),
    ("Sealed batch", "classes of nobody or at least {k} people", "outside", "released"),
    ("Analyst", "effects and tests, from batches only", "outside", "released"),
)
"""The way of a collector's data: what happens, on which side of the gate, and with what."""

_COLLECTOR_PLACES = (
    (
        "in flight",
        "One message of one person: arm, level of each covariate, cohort, and a running total from old to new. It has "
        "no identifier, no time and no free text; a random number keeps it from being counted twice.",
        "The visitor, and whoever serves the page or ends its encryption (TLS).",
        "Until it is acknowledged; nothing is logged.",
    ),
    (
        "in memory",
        "What the messages of a few milliseconds add to classes, and to the combinations of levels within one "
        "experiment. Keyed hashes of addresses, for the rate limit.",
        "The collector's process.",
        "Until the group is committed; addresses for seconds.",
    ),
    (
        "at rest, encrypted",
        "Counters of open cohorts: people, sums, squares and how many have some of an amount by class, and people by "
        "combination of levels within one experiment, never values by combination. Keyed hashes of the messages' "
        "random numbers, for a day.",
        "Whoever holds both the store and its key.",
        "Until the seal: then records are deleted and the key is erased, so that backups of them tell nothing.",
    ),
    (
        "sealed",
        "Batches that passed the gate, in clear, in the store and chained. Combinations of levels are gone.",
        "Whoever may read the store or the dashboard.",
        "As long as you keep the store.",
    ),
    ("released", _RELEASED, "Everybody who gets a batch.", _FOREVER),
)
"""What is in flight, in memory, at rest, sealed and released; who can see it, and for how long."""


def flow(releases: Sequence[Plain]) -> list[Plain]:
    """Return the way of the data, step by step: what happens, on which side of the gate, and with what."""
    with_noise = noisy.all_noisy(releases)
    if _collected(releases):
        other = noisy.SEALED if with_noise else {}
        return [
            {"step": step, "says": other.get(step, says).format(k=_least_k(releases)), "side": side, "kind": kind}
            for step, says, side, kind in _COLLECTOR_STEPS
        ]
    known = with_noise or all(release["effective_k"] is not None for release in releases)
    counting = "adds people up, class by class" if known else "adds people up; how is not on record"
    gate, leaves = "merges, withholds, or refuses", f"classes of nobody or at least {_least_k(releases)} people"
    if with_noise:
        gate, leaves = noisy.GATE, "every number with noise"
    files = "file" if len(releases) == 1 else "files"
    steps = (
        ("Rows of people", "personal data; they stay where they are", "curator", "personal data"),
        ("One GROUP BY" if known else "Counting", counting, "curator", "personal data"),
        ("Classes in memory", "counts, sums, squares; never written", "curator", "personal data"),
        ("Privacy gate", gate, "curator", "rules"),
        (f"Release {files}", leaves, "outside", "released"),
        ("Analyst", "effects and tests, from the release only", "outside", "released"),
    )
    return [{"step": step, "says": says, "side": side, "kind": kind} for step, says, side, kind in steps]


def places(releases: Sequence[Plain]) -> list[Plain]:
    """Return what is in flight, in memory, at rest and released; who can see it, and for how long."""
    chained = any(release["previous"] is not None for release in releases)
    ledger = " The ledger, which holds every release into it once more." if chained else ""
    files, them = ("Release and ledger", "them") if chained else ("Release", "it")
    rows = (
        (
            "in flight",
            "The answer of the source: people, sums and squares by class, still unmerged. A source that is a file is "
            "read by the same process.",
            "The curator and the source.",
            "While it is counted.",
        ),
        (
            "in memory",
            "Classes before the gate, also those below k, and which classes of the tables people share. "
            "This is personal data.",
            "The curator's process.",
            "Until the process ends; it is written nowhere, and error messages hold none of it.",
        ),
        (
            "at rest",
            f"The rows, where they were: personal data. The release.{ledger}",
            f"Rows: the curator. {files}: whoever may read {them}.",
            f"Rows: as the curator's own rules say. {files}: as long as you keep {them}.",
        ),
        ("released", _RELEASED, "Everybody who gets the file.", _FOREVER),
    )
    shown = _COLLECTOR_PLACES if _collected(releases) else rows
    return [dict(zip(("place", "what", "who", "how_long"), row, strict=True)) for row in shown]


# ── what was done otherwise ────────────────────────────────────────────────────────────────────


def deviations(release: Release) -> list[str]:
    """Return where the release differs from the defaults, as recorded by the gate or read off the plan."""
    receipt, plan = release.receipt, release.plan
    texts = list(receipt.deviations)
    if receipt.k != DEFAULT_K and not any(text.startswith(f"k = {receipt.k}") for text in texts):
        side = "weaker" if receipt.k < DEFAULT_K else "stricter"
        texts.append(f"k = {receipt.k}, {side} than the default of {DEFAULT_K}")
    if not release.chained and not any("ledger" in text or "chained" in text for text in texts):
        texts.append("released without a ledger: what else was released about these people was not checked")
    if receipt.where:
        texts.append(f"only some people were counted, those where {receipt.where}")
    if not release.bounds_declared:
        texts.append("bounds were taken from the data")
    texts += [f"squares of {metric.name} may be kept by class" for metric in plan.metrics if metric.squares == "class"]
    texts += [
        f"arms and shares of {experiment.name} were not declared; equal shares are assumed"
        for experiment in plan.experiments
        if experiment.shares is None
    ]
    return texts + [f"levels of {name} were not declared: {source}" for name, source in _undeclared(release).items()]


def _undeclared(release: Release) -> dict[str, str]:
    covariates = [release.plan.covariate(name) for name in release.plan.covariates_in_use]
    return {
        covariate.name: origin(covariate)
        for covariate in covariates
        if covariate.levels is None and not isinstance(covariate.bins, tuple)
    }


# ── what remains open ──────────────────────────────────────────────────────────────────────────


def risks(releases: Sequence[Plain]) -> list[Plain]:
    """Return what no rule covers, and what can be done about it; risks of these releases first."""
    batches = [release for release in releases if release["collector"]]
    others = [release for release in releases if not release["collector"]]
    always = [risk for risk in _ALWAYS if others or risk[0] not in _NOT_OF_ROWS]
    rows = [*_risks_of(releases), *(_collector_risks(batches) if batches else ()), *always]
    if noisy.all_noisy(releases):
        rows = [row for row in rows if row[0] not in noisy.COVERED] + [*(noisy.RISKS if others else noisy.RISKS[-1:])]
    return [{"risk": risk, "says": says, "do": do} for risk, says, do in rows]


def _risks_of(releases: Sequence[Plain]) -> Iterator[tuple[str, str, str]]:
    if any(release["previous"] is None for release in releases):
        yield (
            "a release outside any ledger",
            "Nobody checked what it gives away together with other releases about the same people.",
            "Release with a ledger, and keep one ledger for one population.",
        )
    if any(release["effective_k"] is None for release in releases if not release["collector"]):
        yield (
            "tables whose overlap is not known",
            "Each table holds to k by itself. Whether a combination of tables rests on fewer people was not evaluated.",
            "Count from rows, so that the gate sees how the tables overlap.",
        )


def _collector_risks(releases: Sequence[Plain]) -> Iterator[tuple[str, str, str]]:
    """Yield what no rule of a collector covers, and what can be done about it; those of these batches first."""
    if any(release["effective_k"] is None for release in releases):
        yield (
            "batches whose overlap was not evaluated",
            "Some people were counted by an earlier version of Kanab, or had too many combinations of levels; the "
            "deviations say which. Each table holds to k by itself, their combinations were not looked at.",
            "Update every collector on the store; declare fewer levels or covariates.",
        )
    tables = [table for release in releases for table in release["tables"]]
    if any(metric["missing"] == "exclude" for table in tables for metric in table["metrics"]):
        yield (
            "who has a value at all",
            "Where missing values are excluded, k people of every class have one and k lack one. Over several tables "
            "that is not checked: it becomes known after enrollment, and is not part of a combination.",
            'Let everybody begin with 0 (missing = "zero"), or use one covariate.',
        )
    yield from _ALWAYS_AT_COLLECTORS


_NOT_OF_ROWS = ("the curator's rows", "who counts as a person", "changes that cancel out")
"""Risks of counting rows that a collector does not have, or has in another form."""

_NOT_ALONE = "k-anonymity does not answer this question by itself (WP216, table 6)."
_ALWAYS = (
    (
        "the curator's rows",
        "They stay personal data, with all duties that go with them. A release does not change that.",
        "Keep, protect and delete them by your own rules.",
    ),
    (
        "who counts as a person",
        "k counts people as the source names them. One human with several accounts or devices counts several times.",
        "Count by the best identifier of a person that you have (--unit).",
    ),
    (
        "releases made elsewhere",
        "The rules look at one ledger. What left by another ledger or by another tool is not seen.",
        "Keep one ledger for one population.",
    ),
    (
        "changes that cancel out",
        "Before a further release the earlier tables are counted again, and one changed digit stops it. Changes that "
        "leave every digit as it was are not noticed.",
        "Release growing or changing data by cohorts.",
    ),
    (
        "names in the plan",
        "Names of arms, covariates, declared levels and metrics leave as they are written, and so do filters and "
        "queries.",
        "Do not put names of people into them.",
    ),
    (
        "people who object later",
        "Sums that have been released contain them and cannot be taken back.",
        "Leave them out of further counts; tell people so beforehand.",
    ),
    (
        "a ledger cut short",
        "A changed, moved or removed entry is found. That the last ones are missing only shows against the files.",
        "Keep a copy of the ledger, or of its last hash, somewhere else.",
    ),
)

_ALWAYS_AT_COLLECTORS = (
    (
        "one human with several clients",
        "k counts clients. Whoever uses a phone and a laptop, or deletes a browser's storage, counts several times.",
        "Enroll people after they sign in, from the server, where one human is one client.",
    ),
    (
        "invented clients",
        "Anybody can post to a public page. Who invents very many combinations of levels keeps the effective k of "
        "class sums from being evaluated.",
        "Limit rates at the proxy, watch the sample-ratio alarm and the counters of what was dropped.",
    ),
    (
        "operators with the store and its key",
        "Before the seal whoever holds both can read counters, also those of classes and combinations with one person.",
        "Keep the key apart from the store and out of its backups; seal often.",
    ),
)


# ── promises and rules ─────────────────────────────────────────────────────────────────────────

_CHECKS = {
    "k per class": ("k", "totals"),
    "combinations of class sums": ("overlap", "differences"),
    "contributors and dominance": ("contributors",),
    "sensitive values": ("sensitive values", "squares"),
}
"""Which checks bear out each rule."""


def promises(releases: Sequence[Plain], checks: Sequence[Check]) -> Plain:
    """Return page one: the two promises, the rules behind k and whether they hold, and what k does not cover."""
    made = {"ε" if "noise" in release else "k" for release in releases}
    rules = [
        {"rule": name, "says": says, "holds": _worst(check for check in checks if check.rule in _CHECKS[name])}
        for name, says in RULES
    ]
    return {
        "promises": [
            {"promise": name, "for": readers, "says": says, "costs": costs, "made": name in made}
            for name, readers, says, costs in PROMISES
        ],
        "rules": rules if "k" in made else [],
        "not_covered": [{"what": what, "example": example} for what, example in NOT_COVERED] if "k" in made else [],
        "within": WITHIN_AN_EXPERIMENT if any(release["effective_k_within"] for release in releases) else None,
    }


def _worst(checks: Iterable[Check]) -> bool | None:
    """Return whether all checks hold; None where one could not be evaluated, or there is none."""
    states = [check.holds for check in checks]
    if False in states:
        return False
    return None if None in states or not states else True


# ── three questions ────────────────────────────────────────────────────────────────────────────


_ASKS = {
    "singling out": "Can one person be picked out?",
    "linkability": "Can two records about the same person be joined?",
    "inference": "Can a person's value be worked out?",
}


def questions(releases: Sequence[Plain], effective_k: int | None, checks: Sequence[Check]) -> list[Plain]:
    """Return the three questions of Opinion 05/2014 (WP216): what holds, by which rules and tests, what does not."""
    with_noise = noisy.all_noisy(releases)
    told = noisy.QUESTIONS if with_noise else _told(releases, effective_k, checks)
    answers = []
    for name, (rules, holds, gaps) in told.items():
        relevant = [check for check in checks if check.rule in rules]
        settled = with_noise or name == "singling out"  # k alone cannot settle the other two
        state = "covered" if settled and all(check.holds is not None for check in relevant) else "in part"
        answers.append(
            {
                "question": name,
                "asks": _ASKS[name],
                "state": "broken" if any(check.holds is False for check in relevant) else state,
                "holds": list(holds),
                "gaps": list(gaps),
                "rules": list(dict.fromkeys(check.rule for check in relevant)),
                "tests": list(noisy.TESTS if with_noise else TESTS[name]),
            }
        )
    return answers


def _told(releases: Sequence[Plain], effective_k: int | None, checks: Sequence[Check]) -> noisy.Told:
    """Return, for exact numbers, which rules bear on every question, what holds, and what does not."""
    alike = sum(release["homogeneous"] for release in releases)
    combinations = _combinations(releases, effective_k)
    unseen = [check.says for check in checks if check.rule == "contributors" and not check.holds]
    amounts = () if unseen else ("No amount rests on fewer than 3 people, or mostly on one.",)
    return {
        "singling out": (
            ("k", "totals", "overlap", "differences", "ledger"),
            (f"Every class holds nobody or at least {_least_k(releases)} people.", combinations),
            ("Somebody who forges people, or knows all others of a class, can subtract them.",),
        ),
        "linkability": (
            ("overlap", "differences", "ledger"),
            (f"There are no records of people and no identifiers. {_crossed(releases)}", combinations),
            (
                _NOT_ALONE,
                "Whoever knows a person's arm and level knows the person's class in each table, and nothing finer.",
            ),
        ),
        "inference": (
            ("contributors", "sensitive values", "squares", "bounds"),
            (
                *amounts,
                "Metrics marked sensitive have more rules.",
                "Values are cut to declared bounds; squares are kept by arm or level, unless the plan says otherwise.",
            ),
            (
                _NOT_ALONE,
                *(f"{says[:1].upper()}{says[1:]}." for says in dict.fromkeys(unseen)),
                "What k does not cover, above: arithmetic with values, and classes where everybody is alike"
                + (f" (here {'once' if alike == 1 else f'{alike:,} times'})." if alike else "."),
                "The average of a class is the best guess about everybody in it.",
            ),
        ),
    }


def _collected(releases: Sequence[Plain]) -> bool:
    """Return whether all of them are a collector's batches."""
    return all(release["collector"] for release in releases)


def _least_k(releases: Sequence[Plain]) -> int:
    return min(int(release["k"]) for release in releases)


def _crossed(releases: Sequence[Plain]) -> str:
    tables = [table for release in releases for table in release["tables"]]
    if any(table["covariate"] is None and not table["metrics"] for table in tables):
        return "No metric is crossed with two covariates; people are counted by two of them at most."
    return "No covariate is crossed with another."


def _combinations(releases: Sequence[Plain], effective_k: int | None) -> str:
    if effective_k is not None:
        scope = (
            "within one experiment" if any(release["effective_k_within"] for release in releases) else "over all tables"
        )
        return f"No combination of class sums of one metric, {scope}, rests on fewer than {effective_k:,} people."
    if any(release["effective_k"] is None for release in releases):
        return "How the tables overlap is not known, so their combinations were not evaluated."
    return "A file is outside any ledger, so what the files give away together was not evaluated."
