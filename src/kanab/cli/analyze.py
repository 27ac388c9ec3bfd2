"""kanab analyze: from any source, or from releases, to an answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from kanab.choices import OPTIMAL_AT, OWN_ROWS, SPENDING, Claim
from kanab.cli.help_pages import FlagsByTask, flags_together, several
from kanab.cli.output import html_option, json_option, show, terminal_width
from kanab.cli.released_sources import is_data_directory, is_ledger, releases_at
from kanab.cli.source_options import (
    COUNTING_FLAGS,
    check_single,
    claimed,
    counted_source,
    flag_of,
    flags_said,
    is_release,
    level,
    names,
    names_option,
    pairs,
    plan_of,
    rows_of,
    source_options,
)
from kanab.description import Reading
from kanab.errors import PlanError
from kanab.fields import described, share

if TYPE_CHECKING:
    from kanab.analysis.dry_run import DryRun
    from kanab.analysis.options import Looks
    from kanab.analysis.readout import Readout
    from kanab.counted import Counted
    from kanab.plan.model import Plan
    from kanab.privacy.release import Release, Tables
    from kanab.stats.margins import Margin
    from kanab.stats.posteriors import Prior

_READING = described(Reading)

analysis_options = flags_together(
    *(flag_of(_READING[name]) for name in ("confidence", "alternative", "test", "variance", "correction", "slopes")),
    click.option(
        "--sequential",
        type=click.Choice(["spending", "always-valid"]),
        help="Results are looked at more than once: at planned looks, or at any time.",
    ),
    click.option(
        "--looks", type=click.IntRange(1), help="Number of planned looks; every batch but the last is an earlier look."
    ),
    click.option(
        "--looks-at",
        metavar="PEOPLE,PEOPLE",
        help="People at each earlier look, such as 7500,15000; none at the first look.",
    ),
    click.option(
        "--looks-file", type=click.Path(dir_okay=False), help="Let Kanab keep the people at each look in this file."
    ),
    click.option("--planned", type=click.IntRange(1), help="Number of planned people, instead of --looks."),
    click.option(
        "--spending",
        metavar="NAME",
        help="How planned looks share the risk of a false alarm: "
        f"{SPENDING[0]} (default), {', '.join(SPENDING[1:-1])} or {SPENDING[-1]}.",
    ),
    click.option(
        "--optimal-at",
        type=click.IntRange(2),
        default=OPTIMAL_AT,
        help="With --sequential always-valid: the number of people at which intervals are narrowest.",
    ),
    click.option("--last", is_flag=True, help="This is the last look."),
    several("--pool", "NEW=B+C", "Treat several arms as one: --pool any=B+C."),
    several("--contrast", "'B - C'", "Compare arms with each other, or by weights: B=0.5,C=0.5,A=-1."),
    several(
        "--non-inferiority", "METRIC=SIZE", "Claim: not worse by more than this, a number or 2% of the control's mean."
    ),
    several("--superiority", "METRIC=SIZE", "Claim: better by more than this."),
    several("--equivalence", "METRIC=SIZE", "Claim: the same within this; also two limits: spend=-0.5:1."),
    *(flag_of(_READING[name]) for name in ("lower_is_better", "primary", "guardrails")),
    several(
        "--decision",
        "SWITCH=VALUE",
        "What it takes to ship: primary=any|all, guardrails=not-worse|non-inferior, people=20000, worth=2%.",
    ),
    several(
        "--prior",
        "MEAN,SD",
        "Add a Bayesian reading with this prior, also 0,5% of the control's mean; for one metric: spend=0,0.5.",
    ),
)
"""Gives a command the flags that say how to read what was counted."""


def reading_from(flags: Mapping[str, Any]) -> Reading:
    """Return what the flags say about reading results."""
    decision = pairs(flags["decision"], "--decision", "people=20000")
    same = ("confidence", "alternative", "correction", "test", "variance", "slopes")
    said: dict[str, Any] = {name: flags[name] for name in same}
    said |= {name: names(flags[name]) for name in ("lower_is_better", "primary", "guardrails")}
    return Reading(
        control=level(flags["control"]),
        looks=_looks(flags),
        pool={new: olds.split("+") for new, olds in pairs(flags["pool"], "--pool", "any=B+C").items()},
        contrasts=flags["contrast"],
        margins=_margins(flags),
        prior=_prior(flags["prior"]),
        decision={switch: level(text) for switch, text in decision.items()},
        **said,
    )


def _looks(flags: Mapping[str, Any]) -> Looks | None:
    """Return how several looks are read, or None for one look."""
    from kanab.analysis.options import Looks

    if flags["sequential"] is None:
        wrong = [flag for flag in ("looks", "planned", "last", "looks_at", "looks_file", "spending") if flags[flag]]
        if wrong:
            flag = wrong[0].replace("_", "-")
            raise PlanError(f"--{flag} is about several looks", "Say how they are read: --sequential spending.")
        return None
    text, earlier = flags["looks_at"], None
    try:
        if text is not None:
            earlier = [] if text.strip().lower() == "none" else [int(people) for people in text.split(",")]
    except ValueError:
        remedy = "Write --looks-at 7500,15000; at the first look --looks-at none."
        raise PlanError("--looks-at needs whole numbers of people", remedy) from None
    return Looks(
        flags["sequential"], flags["looks"], flags["planned"], flags["spending"] or SPENDING[0], flags["optimal_at"],
        flags["last"], earlier, flags["looks_file"],
    )  # fmt: skip


def _margins(flags: Mapping[str, Any]) -> dict[str, list[Margin]]:
    margins: dict[str, list[Margin]] = {}
    for claim in get_args(Claim):
        for metric, text in pairs(flags[claim.replace("-", "_")], f"--{claim}").items():
            margins.setdefault(metric, []).append(claimed(f"--{claim}", claim, text))
    return margins


def _prior(texts: tuple[str, ...]) -> Prior | dict[str, Prior] | None:
    """Read ``0,0.5`` or ``0,5%`` for all metrics, or ``spend=0,0.5`` for each."""
    from kanab.stats.posteriors import Prior

    priors: dict[str, Prior] = {}
    for text in texts:
        metric, _, numbers = text.rpartition("=")
        try:
            mean, sd = map(share, numbers.split(","))
        except ValueError:
            mean, sd = math.nan, math.nan
        relative = "%" in numbers
        mixed = relative and any(not part.endswith("%") and share(part) != 0 for part in numbers.split(","))
        if not math.isfinite(mean) or not sd > 0 or mixed:
            raise PlanError(
                "--prior needs a mean and a positive standard deviation of effects",
                "Write --prior 0,0.01, or --prior 0%,5% of the control's mean; for one metric --prior spend=0,0.5.",
            )
        priors[metric.strip()] = Prior(mean, sd, relative)
    if ("" in priors and len(priors) > 1) or len(priors) < len(texts):
        raise PlanError("--prior is given twice", "Give one for all metrics, or one for each: --prior spend=0,0.5.")
    return priors.get("", priors or None)


# ── the command ──────────────────────────────────────────────────────────────────────────────────

_COUNTING = COUNTING_FLAGS | {"--adjust", "--segment"}


@click.command(cls=FlagsByTask)
@click.argument("source", nargs=-1, required=True)
@source_options
@names_option("--adjust", help="Covariates to adjust for, separated by commas: all together, in any order.")
@names_option("--segment", help="Covariates by which the effect may differ; each gets its own table.")
@click.option("--experiment", help="One experiment of several.")
@analysis_options
@click.option("--brief", is_flag=True, help="Print one line per metric and arm, within 80 columns.")
@json_option
@html_option
@click.option("--as-released", is_flag=True, help="Also print what a release of these rows would give, and why.")
def analyze(source: tuple[str, ...], **flags: Any) -> None:
    """Analyze an experiment: effects, segments, privacy.

    SOURCE is a file (CSV, Parquet, JSON, Excel), a database, Spark, release files (several are added), or a ledger
    of cohorts.

    \b
    kanab analyze visits.parquet --arm variant --metric spend,bought --adjust tier --segment device
    kanab analyze postgresql://localhost/shop --table users --arm variant --metric spend
    kanab analyze checkout.release.json
    """
    from kanab.analysis.api import analyze_release

    options = reading_from(flags)
    run: DryRun | None = None
    if flags["as_released"]:
        from kanab.analysis.dry_run import try_release

        if is_release(source[0]) or is_ledger(source[0]):
            raise PlanError("--as-released is about rows, and this is released", "Leave out --as-released.")
        _, count = _rows(source, flags)
        run = try_release(count(True), flags["k"], override=flags["override"])
    tables = _tables(source, flags) if run is None else run.own
    wanted = [flags["experiment"]] if flags["experiment"] else list(tables.plan.experiment_names)
    if len(wanted) > 1 and (options.pool or options.contrasts):
        raise PlanError("arms are those of one experiment", "Name it with --experiment.")
    readouts = [analyze_release(tables, name, options) for name in wanted]
    released: list[Readout] = []
    if run is not None and run.released is not None:
        released = [analyze_release(run.released, name, replace(options, looks=None)) for name in wanted]
    if flags["html"] and len(readouts) > 1:
        raise PlanError("a report is about one experiment", "Name it with --experiment.")

    def text() -> str:
        width = terminal_width()
        texts = [readout.to_brief() if flags["brief"] else readout.to_text(width) for readout in readouts]
        return "\n\n".join([*texts, *([] if run is None else [_as_released(run, released)])])

    def data() -> dict[str, Any]:
        if run is None:
            return _plain(readouts)
        # Effects, and why they differ, but nothing that a release promises.
        effects = {readout.experiment: readout.to_dict()["effects"] for readout in released}
        differences = {"refused": run.refused or None, "effects": effects, "differences": run.differences()}
        return _plain(readouts) | {"as_released": {"scope": OWN_ROWS} | differences}

    show(flags, text=text, data=data, page=readouts[0].to_html)


def _plain(readouts: Sequence[Readout]) -> dict[str, Any]:
    """Return readouts as plain data; several by the names of their experiments."""
    plain = {readout.experiment: readout.to_dict() for readout in readouts}
    if len(plain) == 1:
        return plain[readouts[0].experiment]
    return {"scope": plain[readouts[0].experiment]["scope"], "experiments": plain}


def _as_released(run: DryRun, released: Sequence[Readout]) -> str:
    """Return what a release would give, and a line for everything that differs."""
    head = "── What a release would give (nothing was released) ".ljust(100, "─")
    lines = [head, *(readout.to_brief() for readout in released)]
    differences = run.differences()
    lines += [f"- {sentence[:1].upper()}{sentence[1:]}.".replace("..", ".") for sentence in differences]
    return "\n".join(lines if differences else [*lines, "The tables are the same."])


def _tables(source: tuple[str, ...], flags: Mapping[str, Any]) -> Tables:
    """Return what is analyzed; several batches are added."""
    if is_release(source[0]) or is_ledger(source[0]):
        from kanab.privacy.batches import add_releases

        _check_already_counted(source[0])
        releases: list[Release] = []
        for path in source:
            there = [released for _, released in releases_at(path)]
            if len(there) > 1 and any(released.receipt.batch is None for released in there):
                raise PlanError(
                    "the ledger holds several releases about the same people", "Name the file of one of them."
                )
            releases += there
        return add_releases(releases)
    from kanab.analysis.own_rows import read_rows

    plan, count = _rows(source, flags)
    return read_rows(plan, count, flags["k"], override=flags["override"])


def _rows(source: tuple[str, ...], flags: Mapping[str, Any]) -> tuple[Plan, Callable[[bool], Counted]]:
    """Return the plan by which a source is counted, and what counts it, for a release or not."""
    from kanab.analysis.own_rows import check_choices, check_internal, is_gated

    check_single(source)
    plan = plan_of(flags if not flags["pool"] else {**flags, "control": None}, source[0])  # a pool may be the control
    check_internal(plan, *(word for word in ("--as-released", "--show-sql") if flags[word[2:].replace("-", "_")]))
    check_choices(plan, rows_of(flags))
    if flags["clip"]:
        from kanab.analysis.looks import clipped_before
        from kanab.counting.dispatch import clip_source

        before = clipped_before(_looks(flags), plan, flags["experiment"])
        for_release = is_gated(plan) or flags["as_released"]
        plan = clip_source(source[0], plan, rows_of(flags), before, for_release=for_release)
    return plan, lambda for_release: counted_source(source[0], plan, flags, for_release=for_release)


def _check_already_counted(source: str) -> None:
    """Raise `PlanError` where a flag says what to count of a release, in which that was decided."""
    clash = [flag for flag in flags_said() if flag in _COUNTING]
    if clash and Path(source).is_dir() and not is_data_directory(source):
        from kanab.counting.files import matching_files

        matching_files(source)  # which says that a directory is none
    if clash:
        raise PlanError("a release already says what was counted", f"Leave out {clash[0]}.")
