"""Every attack that we know, run on releases as they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kanab.arguments import check_arguments
from kanab.atomicfile import read_text
from kanab.errors import ArgumentError, KanabError, PrivacyError, SourceError
from kanab.inspection.attack.all_but_one import attack_all_but_one, promised
from kanab.inspection.attack.differencing import DIFFERENCES, SMALL, find_differences, find_small_classes
from kanab.inspection.attack.findings import AttackReport, Attempt, Finding
from kanab.inspection.attack.known_people import Background, KnownPeople, known_columns, place_people
from kanab.inspection.attack.linked_tables import LINKED, find_linked
from kanab.inspection.attack.published import AttackedRelease, published_from_dict
from kanab.inspection.attack.reconstruct import (
    CONTRIBUTORS,
    LEAST_SQUARES,
    LEVERAGE,
    SEVERAL_METRICS,
    find_by_least_squares,
    find_contributors,
    find_leverage,
    several_metrics,
)
from kanab.inspection.attack.value_bounds import CLOSED_FORMS, find_exposed_values, find_few_contributors
from kanab.inspection.attack.whole_numbers import WHOLE_NUMBERS, find_whole_numbers
from kanab.inspection.released_values import (
    Released,
    Source,
    entries_of,
    existing_ledger,
    is_ledger_path,
    named_sources,
)
from kanab.privacy.ledger import Ledger
from kanab.privacy.release import Release, refuse_own_rows
from kanab.privacy.release_json import release_to_dict

DOES = {
    SMALL: "Looks for fewer than k people in a class, with a value, without one, or in a cell of two 0/1 metrics.",
    DIFFERENCES: "Subtracts tables about the same people from each other.",
    LINKED: "Solves linked tables for classes that nobody published, by linear programming and least squares.",
    LEVERAGE: "Combines the sums of a metric in all tables, weighted ones among them, so that one person weighs most.",
    LEAST_SQUARES: "Solves all sums of a metric in all tables for everybody's values.",
    CONTRIBUTORS: "Combines the sums of an amount so that they rest on one or two people who have any, or mostly on "
    "one.",
    CLOSED_FORMS: "Infers the largest and the smallest value of a class from people, sum and squares.",
    WHOLE_NUMBERS: "Solves the sums in whole numbers, as far as a small budget of work goes.",
    SEVERAL_METRICS: "Combines the sums of two metrics so that the result is mostly one person's.",
}
"""What every attack does, in the order in which they are tried."""

NO_TEXT = ("is not UTF-8 text", "Give the file as it was written.")
NEEDS_KNOWLEDGE = "It needs to know who is in which class of every table (--known)."
NEEDS_VALUES = "It needs everybody's values of the metrics, too (--known)."
NOTHING_KNOWN = "The people who are known do not add up to any of the tables."
TOO_MUCH_WORK = "For some metrics or people that was too much work."
ONLY_NOISE = "Every number carries noise: what it would find is noise, not people."


@check_arguments(skip=("released", "known"))
def attack(
    released: Released, *, known: KnownPeople | Mapping[str, Sequence[Any]] | None = None, k: int | None = None
) -> AttackReport:
    """Try to learn about people from releases, ledgers or their paths: one of them, a list, or a dict of names.

    released: what was published, also what the gate would refuse.
    known: what the attacker knows, one entry per person: columns named like the arms and covariates of the tables, and
      like metrics whose values are known, too.
    k: fewer people than this are a break; by default the largest k of the releases.

    Raises `SourceError` where one is no release.

    >>> import kanab as kb
    >>> from kanab.datasets import shop_rows
    >>> kb.attack(kb.release(kb.count(shop_rows(900), arm="variant", metrics=["bought"]))).passed
    True
    """
    if k is not None and k < 2:
        raise ArgumentError("k must be at least 2", "Leave it out for the largest k of the releases.")
    published = read_published(released)
    people = known if known is None or isinstance(known, KnownPeople) else known_columns(known, published)
    return play_attacker(published, people, k)


def read_published(released: Any) -> tuple[AttackedRelease, ...]:
    """Read releases as an attacker does: also those that the gate would refuse."""
    published = []
    for name, source in named_sources(released).items():
        for plain, at in _plain_of(name, source):
            try:
                published.append(published_from_dict(plain, at))
            except KanabError as problem:
                raise type(problem)(problem.fact, problem.remedy, at=f"{at} {problem.at}".strip()) from None
    return tuple(published)


def _plain_of(name: str, source: Source | KanabError) -> list[tuple[Any, str]]:
    """Return what was published in one place as plain data, each with a name."""
    if isinstance(source, KanabError):
        raise source
    if isinstance(source, Release):
        return [(release_to_dict(source), name)]
    if isinstance(source, Ledger) or is_ledger_path(source):
        book = source if isinstance(source, Ledger) else existing_ledger(source)
        return [(release_to_dict(release), at) for at, release in entries_of(name, book)]
    try:
        return [(json.loads(read_text(source, otherwise=NO_TEXT)), name)]
    except (json.JSONDecodeError, RecursionError):
        raise SourceError(f"{name} is not a JSON file", "Give a file that kanab release wrote.") from None


def play_attacker(
    releases: Sequence[AttackedRelease | Release], known: KnownPeople | None = None, k: int | None = None
) -> AttackReport:
    """Try every attack on releases, or on what was read of their files, by what is ``known`` about people besides."""
    for release in releases:
        refuse_own_rows(release)
    published = [
        published_from_dict(release_to_dict(release), f"release {place}") if isinstance(release, Release) else release
        for place, release in enumerate(releases, 1)
    ]
    rule = max(release.k for release in published) if k is None else k
    noisy = [(release, release.noise) for release in published if release.noise is not None]
    without = [release for release in published if release.noise is None]
    attempts = (
        _attack_exact_numbers(without, None if known is None else place_people(known, without), rule)
        if without
        else [Attempt(name, does, not_tried=ONLY_NOISE) for name, does in DOES.items()]
    )
    if noisy or known is not None:
        attempts.append(attack_all_but_one(published, rule, known))
    promise = "ε = {:.3g} at δ = {:g}".format(*promised(noisy)) if noisy else ""
    return AttackReport(tuple(release.name for release in published), rule, tuple(attempts), promise, not without)


def _attack_exact_numbers(releases: Sequence[AttackedRelease], background: Background | None, k: int) -> list[Attempt]:
    """Try what takes numbers for what they are: first what promise k is about, then what it does not cover."""
    closely, for_information = find_exposed_values(releases, k)
    solving: dict[str, Callable[[Background, int], list[Finding]]] = {
        LEVERAGE: find_leverage,
        LEAST_SQUARES: find_by_least_squares,
        CONTRIBUTORS: find_contributors,
    }
    attempts = [
        Attempt(SMALL, DOES[SMALL], tuple(find_small_classes(releases, k))),
        Attempt(DIFFERENCES, DOES[DIFFERENCES], tuple(find_differences(releases, k))),
        Attempt(LINKED, DOES[LINKED], tuple(find_linked(releases, k))),
    ]
    for name, find in solving.items():
        more = find_few_contributors(releases) if name == CONTRIBUTORS else []
        missing = _missing(background, values=name == CONTRIBUTORS)
        if missing and not more:
            attempts.append(Attempt(name, DOES[name], not_tried=missing))
        else:
            solved, says = _solved(find, background, k)
            attempts.append(Attempt(name, DOES[name], (*more, *solved), says=says))
    attempts.append(
        Attempt(CLOSED_FORMS, DOES[CLOSED_FORMS], tuple(closely), says=tuple(f.learnt for f in for_information[:3]))
    )
    return [*attempts, *_beyond(background, k)]


def _solved(
    find: Callable[[Background, int], list[Finding]], background: Background | None, k: int
) -> tuple[list[Finding], tuple[str, ...]]:
    """Return what was found, and that some of it was too much work."""
    if background is None:
        return [], ()
    large = find is find_by_least_squares and any(design.too_large for design in background.designs)
    try:
        return find(background, k), (TOO_MUCH_WORK,) if large else ()
    except PrivacyError:  # more classes hang together than can be computed
        return [], (TOO_MUCH_WORK,)


def _missing(background: Background | None, *, values: bool = False) -> str:
    """Return what somebody would have to know besides."""
    if background is None:
        return NEEDS_KNOWLEDGE
    if not background.tables:
        return NOTHING_KNOWN
    return NEEDS_VALUES if values and not background.known.values else ""


def _beyond(background: Background | None, k: int) -> list[Attempt]:
    """Try what promise k does not cover, but for metrics that are marked sensitive."""
    if background is None or not background.tables:
        missing = _missing(background) or NOTHING_KNOWN
        return [Attempt(name, DOES[name], not_tried=missing) for name in (WHOLE_NUMBERS, SEVERAL_METRICS)]
    attempts = []
    for sensitive in (True, False):
        if not sensitive or any(design.sensitive for design in background.designs):
            solved = find_whole_numbers(background, k, sensitive=sensitive)
            says = (TOO_MUCH_WORK,) if solved.unsettled else ()
            attempts.append(Attempt(WHOLE_NUMBERS, DOES[WHOLE_NUMBERS], solved.findings, says=says, promised=sensitive))
    if len(background.known.values) < 2:
        return [*attempts, Attempt(SEVERAL_METRICS, DOES[SEVERAL_METRICS], not_tried=NEEDS_VALUES)]
    together = tuple(several_metrics(background))
    return [*attempts, Attempt(SEVERAL_METRICS, DOES[SEVERAL_METRICS], says=together, promised=False)]
