"""The account of a store's people, per experiment: acknowledged = published + held back + destroyed.

Published people are those of the ledger. Who is held back, or still open, stands in the encrypted counters, and so does
who was destroyed: an exact number of a few destroyed people must not be read. What is shown is floored to k.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from kanab.collector.counting.counters import DESTROYED, Counters
from kanab.collector.counting.tables import people_by_arm
from kanab.collector.protocol.encoding import decode, encode
from kanab.counted import floor_to_k
from kanab.plan.model import Plan
from kanab.privacy.ledger import Ledger, LedgerNote
from kanab.privacy.release import PeopleAccounts, Release

_NOTED = "destroyed of "
"""How the note of a void names the number of destroyed people of an experiment."""


class PeopleAccount(NamedTuple):
    """What became of the people of an experiment whose enrollments were acknowledged.

    Held back is who is neither published nor destroyed: who waits for the next seal, and, where open cohorts are
    counted, who is in one.
    """

    published: int = 0
    held_back: int = 0
    destroyed: int = 0


def people_accounts(plan: Plan, releases: Sequence[Release], counters: Counters) -> dict[str, PeopleAccount]:
    """Return the exact account of every experiment, from the batches of a store and its decrypted counters."""
    published: dict[str, int] = {}
    for release in releases:
        for name in release.plan.experiment_names:
            table = next(iter(release.tables_of(name).values()), None)
            published[name] = published.get(name, 0) + (0 if table is None else table.total)
    waiting, destroyed = _people(plan, counters), _destroyed(counters)
    names = dict.fromkeys([*plan.experiment_names, *published, *destroyed])
    return {name: PeopleAccount(published.get(name, 0), waiting.get(name, 0), destroyed.get(name, 0)) for name in names}


def destroyed_counters(plan: Plan, counters: Counters, experiments: Collection[str]) -> Counters:
    """Return the numbers of destroyed people that go on to later cohorts, with those of some experiments now."""
    destroyed, people = _destroyed(counters), _people(plan, counters)
    for name in experiments:
        destroyed[name] = destroyed.get(name, 0) + people.get(name, 0)
    return {encode(name) + DESTROYED: number for name, number in destroyed.items() if number}


def would_be_destroyed(plan: Plan, ended: Collection[str], counters: Counters) -> list[str]:
    """Return the experiments among those that have ended of which a seal could not publish an arm."""
    people = {name: arms.values() for name, arms in people_by_arm(plan, counters).items() if name in ended}
    return [name for name, arms in people.items() if any(arms) and min(arms) < plan.k]


def floored_accounts(accounts: Mapping[str, PeopleAccount], k: int) -> PeopleAccounts:
    """Return accounts as they may be shown, floored to multiples of k.

    >>> floored_accounts({"checkout": PeopleAccount(published=312, destroyed=7)}, 10)
    {'checkout': {'published': 310, 'held_back': 0, 'destroyed': 0}}
    """
    return {
        name: {state: floor_to_k(people, k) for state, people in account._asdict().items()}
        for name, account in accounts.items()
    }


def noted_accounts(accounts: PeopleAccounts) -> dict[str, str]:
    """Return what the note of a void says of destroyed people."""
    return {f"{_NOTED}{name}": str(states["destroyed"]) for name, states in accounts.items() if states["destroyed"]}


def shown_accounts(ledger: Ledger) -> PeopleAccounts:
    """Return the accounts as of the last entry of a store's ledger, floored to multiples of k. No key is needed."""
    shown: dict[str, dict[str, int]] = {}
    for entry in ledger.entries:
        if not isinstance(entry, LedgerNote):
            shown = {name: {**states} for name, states in entry.receipt.people.items()} or shown
        elif entry.kind == "voided":
            for name in shown:
                shown[name]["held_back"] = 0  # those who wait are in the first open cohort, which every void takes
            for name, text in entry.asked.items():
                if name.startswith(_NOTED):
                    nobody = PeopleAccount()._asdict()
                    shown.setdefault(name.removeprefix(_NOTED), nobody)["destroyed"] = int(text)
    return shown


def _people(plan: Plan, counters: Counters) -> dict[str, int]:
    return {name: sum(arms.values()) for name, arms in people_by_arm(plan, counters).items()}


def _destroyed(counters: Counters) -> dict[str, int]:
    """Return the destroyed people by experiment, as the counters have them."""
    return {
        decode(name.removesuffix(DESTROYED)): number for name, number in counters.items() if name.endswith(DESTROYED)
    }
