"""kanab seal: ripe cohorts of a collector, sealed now rather than at the next tick."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from kanab.cli.operating.notify import channels_of, notifier_of
from kanab.cli.source_options import moment
from kanab.cli.stores import Place, clock_options, plan_options, store_options, witness_of
from kanab.errors import PrivacyError, need_extra

if TYPE_CHECKING:
    from kanab.collector.sealing import Sealed


@click.command()
@plan_options
@store_options
@clock_options
@click.option("--as-of", metavar="DATE", help="Day to take as today; recorded as a deviation.")
def seal(
    plan_file: str,
    replace_plan: int | None,
    place: Place,
    *,
    accept_clock: bool,
    clock_peers: tuple[str, ...],
    as_of: str | None,
) -> None:
    """Seal the cohorts that are ripe, as one batch.

    A cohort is ripe when its period, the window after it and the life of a message are over. Without cohorts this is
    the end: everything is sealed, and nothing more is accepted. Exits with 1 if nothing is ripe, or an arm has fewer
    than k people.

    \b
    kanab seal --plan kanab.toml --data ./kanab-data
    kanab seal --plan kanab.toml --data ./kanab-data --as-of 2026-12-31
    """
    from kanab.collector.clock import GuardedClock, check_before_seal
    from kanab.collector.counting.accept import PostAcceptor
    from kanab.collector.counting.plan_versions import Versions
    from kanab.collector.keys.encryption import RecordCipher
    from kanab.collector.keys.store_witness import Seen
    from kanab.collector.protocol.nonces import seconds_of
    from kanab.collector.restoring import older_error
    from kanab.collector.sealing import seal_due
    from kanab.collector.store_ledger import closed_through
    from kanab.plan.file import read_plan

    need_extra("sealing", "server", "cryptography")
    plan = read_plan(plan_file)
    channels_of(plan.notify)  # a secret that is missing is said before anything is sealed
    with closing(place.open(plan.durability)) as opened:
        cipher = RecordCipher(place.keyring(opened))
        witness = witness_of(cipher.keyring) if plan.durability == "disk" else None
        if (older := older_error(opened, cipher.keyring, witness)) is not None:
            raise older
        cipher.seen = Seen(opened.epoch(), 0).join(None if witness is None else witness.read())
        calendar = PostAcceptor(plan).calendar
        clock = GuardedClock(peers=clock_peers, accepted=accept_clock)
        if plan.cohorts is not None and as_of is None:
            check_before_seal(clock, opened, calendar.life)
        now = clock()
        current = calendar.opening(seconds_of(now)).current
        versions, _ = Versions.read(opened).record(opened, plan, current, replaces=replace_plan)
        ripe = calendar.last_due(seconds_of(now if as_of is None else moment(as_of)))
        deviations = () if as_of is None else (f"cohorts as of {as_of}, not as of the clock",)
        notifier = notifier_of(plan, opened)
        sealed = seal_due(opened, cipher, versions, 0 if ripe is None else ripe, deviations)
        if witness is not None and cipher.seen.records:
            witness.note(cipher.seen, closed_through(opened))
        for batch in sealed:
            _describe(batch)
        if notifier is not None:
            notifier.tell(opened.sealed(), (), plan)
    if not sealed:
        raise PrivacyError(
            "no further cohort is ripe",
            "A cohort is sealed when its period, the window after it and the life of a message are over.",
        )
    if sealed[-1].release is None:
        raise PrivacyError(f"not sealed: {sealed[-1].held_back}")


def _describe(sealed: Sealed) -> None:
    from kanab.privacy.costs import costs_of
    from kanab.privacy.release import promise, spent_sentence
    from kanab.report.words import account_words

    if sealed.release is None:
        return
    receipt = sealed.release.receipt
    people = f"through {receipt.batch.through}" if receipt.batch else "everything"
    rule = f"k-anonymous at k = {receipt.k}; audit passed" if receipt.noise is None else promise(receipt.noise)
    click.echo(f"Sealed {people}: {len(sealed.release.tables)} tables, {rule}.")
    if receipt.noise is not None:
        click.echo(f"- {spent_sentence(receipt.noise, chained=True, batch=receipt.batch is not None)}.")
    for name, states in receipt.people.items():
        click.echo(f"- {name}, in steps of k: {account_words(states)}.")
    costs = (f"Cost: {cost}" for cost in costs_of(sealed.release))
    deviations = (f"Deviation: {deviation}" for deviation in receipt.deviations)
    for sentence in (*sealed.release.why_left_out().values(), *costs, *deviations):
        click.echo(f"- {sentence}.")
