"""kanab void: open cohorts of a collector, destroyed without a batch, and recorded."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from kanab.cli.stores import Place, store_options
from kanab.errors import SourceError, StoreError

if TYPE_CHECKING:
    from kanab.collector.stores.store import Store


@click.command()
@click.argument("cohort", metavar="COHORT")
@store_options
@click.option("--reason", required=True, help="Why; it stands in the ledger, and in the receipt of the next batch.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def void(cohort: str, place: Place, *, reason: str, yes: bool) -> None:
    """Destroy open cohorts for good, and record it.

    All cohorts through COHORT that are still open go, with their keys: keys move forward only. Nothing of their people
    is published, and further posts of theirs are dropped. Their period must be over. Without cohorts in the plan
    COHORT is "everything", and that is the end of the store.

    \b
    kanab void 2026-W46 --data ./kanab-data --reason "a test site posted into it"
    kanab void 2026-W46 --store postgresql://localhost/kanab --key kanab.key --reason "forged" --yes
    """
    from kanab.collector.store_ledger import void_cohorts

    if not reason.strip():
        raise click.UsageError("say why (--reason): it is all that is left of these cohorts.")
    with closing(place.open()) as opened:
        through, now = _last_to_void(opened, cohort), datetime.now(UTC)
        keyring = place.keyring(opened)
        if not yes:
            click.confirm(f"Destroy {_named(cohort)}, for good?", abort=True)
        new = void_cohorts(opened, keyring, through, reason.strip(), now)
    if not new:
        raise _closed_error(cohort)
    click.echo(f"Voided {_named(cohort)}. The ledger says when and why (kanab audit, kanab export).")


def _last_to_void(store: Store, label: str) -> int:
    """Return the number of a cohort that may be voided."""
    from kanab.collector.counting.cohorts import Calendar
    from kanab.collector.counting.plan_versions import Versions
    from kanab.collector.protocol.nonces import seconds_of
    from kanab.collector.store_ledger import closed_through
    from kanab.plan.periods import Periods
    from kanab.privacy.ledger import EVERYTHING

    versions = Versions.read(store)
    if not versions.entries:
        raise StoreError("the store has no plan yet", "There is nothing to void.")
    plan = versions.newest
    if plan.durability == "memory":
        raise StoreError(
            "open cohorts are in the memory of the collector alone", "Stop it: they are gone with its process."
        )
    if plan.cohorts is None:
        if label != EVERYTHING:
            raise SourceError("the plan of this store has no cohorts", f"Void all of it: kanab void {EVERYTHING}.")
        return 0
    through = Periods(plan.cohorts.every).number(label)
    if through >= Calendar(plan).opening(seconds_of(datetime.now(UTC))).current:
        raise SourceError(f"the period of {label} is not over: people still enroll in it", "Wait until it is over.")
    if through <= closed_through(store):
        raise _closed_error(label)
    return through


def _named(cohort: str) -> str:
    from kanab.privacy.ledger import EVERYTHING

    return "everything that is open" if cohort == EVERYTHING else f"the open cohorts through {cohort}"


def _closed_error(cohort: str) -> SourceError:
    return SourceError(f"{cohort} is sealed or voided already", "Nothing was changed.")
