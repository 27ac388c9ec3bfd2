"""kanab release: the one file that leaves the building."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kanab.atomicfile import staged, write_whole
from kanab.cli.help_pages import FlagsByTask
from kanab.cli.output import RELEASE, output_option
from kanab.cli.source_options import counted_source, moment, names, names_option, plan_of, rows_of, source_options
from kanab.errors import LedgerError, NobodyError, PlanError, PrivacyError

if TYPE_CHECKING:
    from kanab.counted import Counted
    from kanab.plan.model import Plan
    from kanab.plan.periods import Span
    from kanab.privacy.ledger import Ledger
    from kanab.privacy.release import Release
    from kanab.privacy.request import ReleaseRequest

TAKEN = "- Taken from the ledger, where the same was asked for: nothing was drawn or spent."
NO_LEDGER = "not chained: what else was released about these people was not checked"


@click.command(cls=FlagsByTask)
@click.argument("source")
@source_options
@names_option("--adjust", help="Covariates and numbers to adjust for only, separated by commas.")
@names_option("--covariate", "segment", help="Covariates to adjust for and to segment by; each gets its own table.")
@output_option("-o", "--output", mark=RELEASE, words="File to write.")
@click.option("--dry-run", is_flag=True, help="Print what would leave, merge or stay out, and write nothing; internal.")
@click.option("--json", "as_json", is_flag=True, help="With --dry-run: print plain data.")
@click.option("--ledger", type=click.Path(dir_okay=False), help="Ledger; default kanab.ledger beside the file.")
@click.option("--new-ledger", is_flag=True, help="Begin the ledger: nothing was released about these people before.")
@click.option("--reviewed", default="", metavar="REASON", help="Why refused attempts are no reason to stop; recorded.")
@click.option("--no-ledger", is_flag=True, help="Use no ledger; recorded as a deviation.")
@click.option("--cohort", metavar="COLUMN", help="Time of enrollment: release only the cohorts that are ripe now.")
@click.option("--every", metavar="PERIOD", help="Length of a cohort; default the plan's, or 7d.")
@click.option("--as-of", metavar="DATE", help="Day to take as today; recorded as a deviation.")
@click.option("--epsilon", type=float, help="Add noise to every number, so that differential privacy holds at this ε.")
@click.option("--delta", type=float, help="The δ of --epsilon; default the plan's, or 1e-6.")
def release(source: str, **flags: Any) -> None:
    """Write what may leave a source as one release file.

    Count SOURCE, take it through the privacy gate and write one JSON file. A refusal exits with 1 and writes nothing.

    \b
    kanab release visits.parquet --plan kanab.toml -o checkout.release.json --new-ledger
    kanab release visits.parquet --arm variant --metric spend --bounds spend=0:500 --covariate tier -o FILE
    """
    from kanab.analysis.own_rows import check_choices, check_internal
    from kanab.counting.dispatch import clip_source
    from kanab.plan.model import rules_of, settle_missing
    from kanab.privacy.epsilon.accountant import asked_budget, with_budget, within_ledger
    from kanab.privacy.epsilon.noisy_release import check_declared
    from kanab.privacy.ledger import Ledger, hold_ledger, read_ledger
    from kanab.privacy.release_json import release_text
    from kanab.privacy.request import ReleaseRequest, refusals_noted, same_release, validate_request

    flags["adjust"] = ",".join(dict.fromkeys([*names(flags["adjust"]), *names(flags["segment"])]))
    _check_output(flags)
    path = _ledger_path(flags)
    before = Ledger() if path is None else read_ledger(path)
    plan = _with_cohorts(plan_of(flags, source), flags)
    check_internal(plan, *(word for word in ("--dry-run", "--show-sql") if flags[word[2:].replace("-", "_")]))
    if path is None:
        check_choices(plan, rows_of(flags))
    budget = asked_budget(plan, flags["epsilon"], flags["delta"])
    plan = with_budget(plan, budget and within_ledger(budget, plan, before))
    plan = settle_missing(plan, rules_of(before.plans) if plan.budget is None else {})
    span, deviations = _next_span(plan, before, flags)
    if flags["clip"]:
        plan = clip_source(source, plan, replace(rows_of(flags), span=span), _clipped_before(before))
    earlier = () if span is not None or plan.budget is not None else before.plans
    if flags["dry_run"]:
        _print_dry_run(source, plan, flags, None if path is None else before, span)
        return
    request = ReleaseRequest(replace(plan, k=flags["k"] or plan.k), rows_of(flags).choices, span)
    if plan.budget is not None:  # before a ledger is begun
        check_declared(_decided(request).plan, request.choices)
    if path is not None and not flags["show_sql"]:
        with hold_ledger(path) as held:
            validate_request(path, held, request, new_ledger=flags["new_ledger"], reviewed=flags["reviewed"])
        if (same := same_release(_decided(request), held)) is not None:
            write_whole(flags["output"], release_text(same))
            _say(same, flags, TAKEN)
            return
    try:
        counted = _counted(source, plan, flags, earlier, span)
    except (NobodyError, PrivacyError):
        if path is not None:
            with hold_ledger(path) as held, refusals_noted(path, held, request):
                raise
        raise
    released = _write(counted, path, before, deviations, flags)
    begun = path is not None and not before.releases
    taken = any(old.salt == released.salt for old in before.releases)
    first = f"- A new ledger was begun: {path.name}." if path is not None and begun else ""
    _say(released, flags, TAKEN if taken else first)


def _clipped_before(ledger: Ledger) -> dict[str, tuple[str, float]]:
    """Return the points and bounds at which a ledger's releases were clipped; the first ones stay."""
    from kanab.counting.clipping import clipped_metrics

    before: dict[str, tuple[str, float]] = {}
    for released in ledger.releases:
        before = clipped_metrics(released.receipt.choices, released.plan) | before
    return before


def _check_output(flags: Mapping[str, Any]) -> None:
    """Raise `PlanError` where there is no file to write, or one that a dry run would not write."""
    if flags["dry_run"]:
        clash = [flag for flag in ("output", "new_ledger", "reviewed") if flags[flag]]
        if clash:
            raise PlanError(
                f"--dry-run writes nothing, and --{clash[0].replace('_', '-')} is about what is written",
                "Leave one of them out.",
            )
    elif flags["output"] is None:
        raise PlanError("the file to write is not named", "Name it (-o checkout.release.json), or try it (--dry-run).")
    elif flags["as_json"]:
        raise PlanError("--json is about --dry-run", "Leave it out: a release file is JSON.")


def _print_dry_run(source: str, plan: Plan, flags: Mapping[str, Any], ledger: Ledger | None, span: Span | None) -> None:
    """Print what a release would give after those of a ledger, if there is one, and what would keep the rest."""
    from kanab.analysis.dry_run import DryRun, try_release, with_keeping_flags
    from kanab.cli.output import echo_json

    if plan.budget is not None:
        raise PlanError("--dry-run is about releases without ε", "What noise costs is forecast: kanab plan.")
    before = None if ledger is None or not ledger.entries else ledger
    earlier = () if before is None or span is not None else before.plans

    def run(each: Plan) -> DryRun:
        counted = _counted(source, each, flags, earlier, span)
        return try_release(counted, flags["k"], override=flags["override"], ledger=before)

    tried = with_keeping_flags(run(plan), run)
    if flags["as_json"]:
        echo_json(tried.to_dict())
    else:
        click.echo(str(tried))


def _say(released: Release, flags: Mapping[str, Any], first: str) -> None:
    """Print what is in the file, and what it cost."""
    from kanab.privacy.costs import costs_of
    from kanab.privacy.release import spent_sentence
    from kanab.stats.cautions import rows_not_people

    receipt = released.receipt
    tables = f"{len(released.tables)} table{'s' if len(released.tables) > 1 else ''}"
    click.echo(f"{flags['output']}: {tables}, {_how_anonymous(released)}.")
    if first:
        click.echo(first)
    for column in receipt.repeats:
        click.echo(f"- {rows_not_people(column)}")
    if receipt.noise is not None:
        click.echo(f"- {spent_sentence(receipt.noise, chained=released.chained, batch=receipt.batch is not None)}.")
    if receipt.batch is not None:
        after = "" if receipt.batch.after is None else f"after {receipt.batch.after} and "
        click.echo(f"- People who enrolled {after}through {receipt.batch.through}.")
    for sentence in (*released.why_left_out().values(), *released.fewer_bins(released.plan.experiment_names)):
        click.echo(f"- {sentence}.")
    for sentence in costs_of(released):
        click.echo(f"- Cost: {sentence}.")
    for sentence in receipt.deviations:
        click.echo(f"- Deviation: {sentence}.")


def _counted(source: str, plan: Plan, flags: Mapping[str, Any], earlier: Sequence[Plan], span: Span | None) -> Counted:
    """Count; refuse a batch of nobody in the same words as one of a few people."""
    from kanab.privacy.class_rules import arm_too_small

    try:
        return counted_source(source, plan, flags, earlier=earlier, span=span)
    except NobodyError:
        if span is None:
            raise
        raise arm_too_small(plan.experiments[0], flags["k"] or plan.k, plan.experiments[0].arms or ()) from None


def _ledger_path(flags: Mapping[str, Any]) -> Path | None:
    if flags["no_ledger"]:
        if flags["ledger"]:
            raise PlanError("--ledger and --no-ledger contradict each other", "Leave one out.")
        if flags["new_ledger"] or flags["reviewed"]:
            raise PlanError("--new-ledger and --reviewed are about a ledger", "Leave out --no-ledger.")
        if flags["cohort"]:
            raise PlanError("cohorts need a ledger", "Leave out --no-ledger: it says which cohorts are sealed.")
        return None
    output = Path(flags["output"] or "release.json")  # a dry run looks at the ledger here
    path = Path(flags["ledger"]) if flags["ledger"] else output.with_name("kanab.ledger")
    if path.resolve() == output.resolve():
        raise PlanError("the file and the ledger are the same", "Give -o another name.")
    return path


def _write(
    counted: Counted, path: Path | None, before: Ledger, deviations: tuple[str, ...], flags: Mapping[str, Any]
) -> Release:
    """Take what was counted through the gate; write the file and its entry in the ledger, both or none."""
    from kanab.privacy.gate import deviating, make_release, release_into
    from kanab.privacy.ledger import append_release, hold_ledger
    from kanab.privacy.recount import batch_of
    from kanab.privacy.release_json import release_text
    from kanab.privacy.request import ReleaseRequest, refusals_noted, same_release

    k, override, request = flags["k"], flags["override"], ReleaseRequest.of(counted, flags["k"])
    if path is None:
        alone = (NO_LEDGER,) if counted.plan.budget is None else ()
        released = deviating(make_release(counted, k, override=override), (*deviations, *alone))
        write_whole(flags["output"], release_text(released))
        return released
    with ExitStack() as stack:
        now = stack.enter_context(hold_ledger(path))
        if len(now.releases) != len(before.releases):
            raise LedgerError(f"{path.name} has grown while the source was counted", "Release it again.")
        if counted.plan.budget is not None:
            with staged(flags["output"], ""):  # what cannot be written is noticed before anything is drawn
                pass
            same = same_release(request, now)
            if same is None and any(old.receipt.batch == batch_of(counted) is not None for old in now.releases):
                raise PrivacyError(*_NONE_RIPE)
            released = same or release_into(
                path, now, counted, k, override=override, request=request, deviations=deviations
            )
            write_whole(flags["output"], release_text(released))
            return released
        with refusals_noted(path, now, request):
            released = deviating(make_release(counted, k, override=override, ledger=now), deviations)
        finish = stack.enter_context(staged(flags["output"], release_text(released)))
        append_release(path, now, released)
        finish()
    return released


def _how_anonymous(released: Release) -> str:
    from kanab.privacy.release import promise

    receipt = released.receipt
    if receipt.noise is not None:
        return f"{promise(receipt.noise)}; classes of at least k = {receipt.k} people, by counts with noise"
    effective = "not evaluated" if receipt.effective_k is None else f"at least {receipt.effective_k:,}"
    over = f"everything in ledger {receipt.ledger}" if released.chained else "this release alone"
    return f"k-anonymous at k = {receipt.k}; effective k of class sums over {over}: {effective}; audit passed"


# ── cohorts ────────────────────────────────────────────────────────────────────────────────────


def _with_cohorts(plan: Plan, flags: Mapping[str, Any]) -> Plan:
    """Return the plan with the periods and the window of its cohorts, from flags or from its file."""
    from kanab.plan.model import Cohorts

    if flags["cohort"] is None:
        for flag in ("every", "as_of"):
            if flags[flag]:
                raise PlanError(
                    f"--{flag.replace('_', '-')} is about cohorts", "Name the column of enrollment: --cohort."
                )
        return plan
    base = plan.cohorts or Cohorts()
    window = flags["window"] or (plan.cohorts.window if plan.cohorts else None)
    if window is None:
        raise PlanError("how long people of a cohort are measured is not said", "Give --window, such as --window 14d.")
    return replace(plan, cohorts=replace(base, every=flags["every"] or base.every, window=window))


def _decided(request: ReleaseRequest) -> ReleaseRequest:
    """Return a request with the rule for missing values that it gets with ε, where nothing else decides."""
    from kanab.plan.model import settle_missing

    return replace(request, plan=settle_missing(request.plan, "exclude"))


_NONE_RIPE = "no further cohort is ripe", "A cohort is sealed when its period and the window after it are over."


def _next_span(plan: Plan, ledger: Ledger, flags: Mapping[str, Any]) -> tuple[Span | None, tuple[str, ...]]:
    """Return the cohorts that are ripe and not yet in the ledger, and what deviates from the clock."""
    from kanab.plan.periods import Periods, Span

    if flags["cohort"] is None:
        return None, ()
    assert plan.cohorts is not None
    periods = Periods(plan.cohorts.every)
    now = datetime.now(UTC) if flags["as_of"] is None else moment(flags["as_of"])
    through = periods.last_due(now, plan.cohorts.window)
    sealed = ledger.releases[-1].receipt.batch if ledger.releases else None
    after = None if sealed is None else sealed.through
    if sealed is not None and periods.number(through) <= periods.number(sealed.through):
        if plan.budget is None:
            raise PrivacyError(*_NONE_RIPE)
        after, through = sealed.after, sealed.through  # asked again: the ledger has it
    deviations = (f"cohorts as of {flags['as_of']}, not as of the clock",) if flags["as_of"] else ()
    return Span(flags["cohort"], plan.cohorts.every, after, through), deviations
