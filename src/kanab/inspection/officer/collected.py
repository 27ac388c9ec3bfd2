"""What an officer asks of a collector's batches: the way of its data, and what no rule covers there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Plain = Mapping[str, Any]

STEPS = (
    ("Browser or app", "sends arm, level and totals; no id, no time", "visitor", "personal data"),
    ("Collector", "adds them to classes; keeps no message", "curator", "personal data"),
    ("Encrypted records", "open cohorts: counts and sums, padded", "curator", "personal data"),
    ("Seal", "privacy gate; then the key is erased", "curator", "rules"),
    ("Sealed batch", "classes of nobody or at least {k} people", "outside", "released"),
    ("Analyst", "effects and tests, from batches only", "outside", "released"),
)
"""The way of a collector's data: what happens, on which side of the gate, and with what."""

PLACES = (
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
    (
        "released",
        "Tables of classes, the map of merged levels, the plan, the receipt and hashes. No row, no identifier, "
        "no time of day, no machine or user.",
        "Everybody who gets a batch.",
        "Forever: what has been handed out cannot be taken back.",
    ),
)
"""What is in flight, in memory, at rest, sealed and released; who can see it, and for how long."""

NOT_OF_ROWS = ("the curator's rows", "who counts as a person", "changes that cancel out")
"""Risks of counting rows that a collector does not have, or has in another form."""


def collector_risks(releases: Sequence[Plain]) -> Iterator[tuple[str, str, str]]:
    """Yield what no rule of a collector covers, and what can be done about it; those of these batches first."""
    if any(release["effective_k"] is None for release in releases):
        yield (
            "batches whose overlap was not evaluated",
            "Some people were counted by an earlier version of Kanab, or had too many combinations of levels; the "
            "deviations say which. Each table holds to k by itself, their combinations were not looked at.",
            "Update every collector on the store; declare fewer levels or covariates.",
        )
    if any(metric["missing"] == "exclude" for metric in _metrics(releases)):
        yield (
            "who has a value at all",
            "Where missing values are excluded, k people of every class have one and k lack one. Over several tables "
            "that is not checked: it becomes known after enrollment, and is not part of a combination.",
            'Let everybody begin with 0 (missing = "zero"), or use one covariate.',
        )
    yield from _ALWAYS


_ALWAYS = (
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


def _metrics(releases: Sequence[Plain]) -> Iterator[Plain]:
    return (metric for release in releases for table in release["tables"] for metric in table["metrics"])
