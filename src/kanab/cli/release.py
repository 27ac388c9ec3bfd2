"""kanab release: the one file that leaves the building."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from kanab.atomicfile import staged, write_whole
from kanab.cli.cohorts import next_span, with_cohorts
from kanab.cli.counting import counted_source
from kanab.cli.source_options import plan_of, source_options
from kanab.counted import Counted
from kanab.errors import LedgerError, NobodyError, PlanError
from kanab.plan.model import Plan
from kanab.plan.periods import Span
from kanab.privacy.class_rules import arm_too_small
from kanab.privacy.gate import make_release
from kanab.privacy.ledger import Ledger, append_release, hold_ledger, read_ledger
from kanab.privacy.release import Release
from kanab.privacy.release_file import release_text

NO_LEDGER = "not chained: what else was released about these people was not checked"


@click.command()
@click.argument("source")
@source_options
@click.option("--covariate", "segment", help="Covariates to adjust for and to segment by, each in a table of its own.")
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False), help="The file to write.")
@click.option("--ledger", type=click.Path(dir_okay=False), help="The ledger; default kanab.ledger beside the file.")
@click.option("--no-ledger", is_flag=True, help="Do not look at or add to a ledger; recorded as a deviation.")
@click.option("--cohort", metavar="COLUMN", help="When a person enrolled: release only the cohorts that are ripe now.")
@click.option("--every", metavar="PERIOD", help="Length of a cohort, such as 7d; default the plan's, or 7d.")
@click.option("--as-of", metavar="DATE", help="Which cohorts are ripe on another day; recorded as a deviation.")
def release(source: str, **given: Any) -> None:
    """Count SOURCE and write what may leave it as one JSON file; refuse with exit 1.

    \b
    kanab release visits.parquet --plan kanab.toml -o checkout.release.json
    kanab release visits.parquet --arm variant --metric spend --bounds spend=0:500 --covariate tier -o FILE
    """
    given["adjust"] = given["segment"]
    plan = with_cohorts(plan_of(given), given)
    path = _ledger_path(given)
    before = Ledger() if path is None else read_ledger(path)
    span, deviations = next_span(plan, before, given)
    earlier = () if span is not None else before.plans
    counted = _counted(source, plan, given, earlier, span)
    found = _written(counted, path, before, deviations, given)
    receipt = found.receipt
    tables = f"{len(found.tables)} table{'s' if len(found.tables) > 1 else ''}"
    click.echo(f"{given['output']}: {tables}, {_how_anonymous(found)}.")
    if path is not None and not before.releases:
        click.echo(f"- A new ledger was begun: {path.name}.")
    if receipt.batch is not None:
        click.echo(f"- People who enrolled {_when(found)}.")
    for sentence in receipt.left_out.values():
        click.echo(f"- {sentence}.")
    for sentence in receipt.deviations:
        click.echo(f"- Deviation: {sentence}.")


def _counted(source: str, plan: Plan, given: Mapping[str, Any], earlier: Sequence[Plan], span: Span | None) -> Counted:
    """Count; a batch of nobody is refused in the same words as one of a few people."""
    try:
        return counted_source(source, plan, given, earlier=earlier, span=span)
    except NobodyError:
        if span is None:
            raise
        raise arm_too_small(plan.experiments[0].name, given["k"] or plan.k) from None


def _ledger_path(given: Mapping[str, Any]) -> Path | None:
    if given["no_ledger"]:
        if given["ledger"]:
            raise PlanError("--ledger and --no-ledger contradict each other", "Leave one out.")
        if given["cohort"]:
            raise PlanError("cohorts need a ledger", "Leave out --no-ledger: it says which cohorts are sealed.")
        return None
    path = Path(given["ledger"]) if given["ledger"] else Path(given["output"]).with_name("kanab.ledger")
    if path.resolve() == Path(given["output"]).resolve():
        raise PlanError("the file and the ledger are the same", "Give -o another name.")
    return path


def _written(
    counted: Counted, path: Path | None, before: Ledger, deviations: tuple[str, ...], given: Mapping[str, Any]
) -> Release:
    """Through the gate; then the file and its entry in the ledger, both or none."""
    k, override = given["k"], given["override"]
    if path is None:
        found = _deviating(make_release(counted, k, override=override), (*deviations, NO_LEDGER))
        write_whole(given["output"], release_text(found))
        return found
    with ExitStack() as stack:
        now = stack.enter_context(hold_ledger(path))
        if now.head != before.head:
            raise LedgerError(f"{path.name} has grown while the source was counted", "Release it again.")
        found = _deviating(make_release(counted, k, override=override, ledger=now), deviations)
        finish = stack.enter_context(staged(given["output"], release_text(found)))
        append_release(path, now, found)
        finish()
    return found


def _deviating(found: Release, deviations: tuple[str, ...]) -> Release:
    return replace(found, receipt=replace(found.receipt, deviations=(*found.receipt.deviations, *deviations)))


def _how_anonymous(found: Release) -> str:
    receipt = found.receipt
    effective = "not evaluated" if receipt.effective_k is None else f"at least {receipt.effective_k:,}"
    return f"k-anonymous at k = {receipt.k}; effective k over everything released: {effective}; audit passed"


def _when(found: Release) -> str:
    batch = found.receipt.batch
    assert batch is not None
    return f"through {batch.through}" if batch.after is None else f"after {batch.after} and through {batch.through}"
