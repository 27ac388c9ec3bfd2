"""kanab scan: all pairs of many experiments, and all their effects by segment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import click

from kanab.choices import Correction
from kanab.cli.help_pages import FlagsByTask, flags_together, several
from kanab.cli.output import html_option, json_option, people_bar, progress, show
from kanab.cli.source_options import (
    ROWS,
    SAID_OF_COLUMNS,
    SHARE,
    by_column,
    check_single,
    flag_of,
    is_release,
    names,
    names_option,
    not_said,
    number,
    numbers,
    override_option,
    rows_said,
    said_flag,
)
from kanab.description import DEFAULT_K, Mean
from kanab.errors import PlanError, PrivacyError, listed

if TYPE_CHECKING:
    from kanab.scan.scan_readout import PairReadout, SegmentReadout


@click.command(cls=FlagsByTask)
@click.argument("source", nargs=-1, required=True)
@names_option("--experiments", help="Columns that hold arms, separated by commas; also patterns such as 'test_*'.")
@names_option("--metric", help="Columns to compare, separated by commas.")
@names_option("--segment", help="Covariates by which effects may differ, separated by commas.")
@flags_together(*(said_flag(SAID_OF_COLUMNS[name]) for name in ("bounds", "resolution", "missing")))
@click.option("--k", type=int, default=DEFAULT_K, show_default=True, help="Minimum people in a class.")
@override_option
@flags_together(*(flag_of(ROWS[name]) for name in ("table", "sql", "where", "unit", "aggregate", "first_by")))
@click.option(
    "--family", type=click.Choice(["metric", "all"]), default="metric", help="Correct within each metric, or over all."
)
@click.option(
    "--correction", type=click.Choice(get_args(Correction)), default="holm", help="Over pairs; segments use bh."
)
@click.option("--alpha", type=SHARE, default=0.05, show_default=True, help="Rate of false alarms to allow.")
@several("--tolerance", "NAME=SIZE", "Interactions that are too small to matter.")
@several(
    "--joint-shares",
    "A/B=ARM/ARM:SHARE,…",
    "Planned shares of two experiments assigned together: checkout/search=A/off:0.4,A/on:0.2,B/off:0.2,B/on:0.2.",
)
@click.option("--ledger", type=click.Path(dir_okay=False), help="Share the scan: note in this ledger what it tells.")
@click.option("--new-ledger", is_flag=True, help="Begin the ledger: nothing was shared about these people before.")
@json_option
@html_option
def scan(source: tuple[str, ...], **flags: Any) -> None:
    """Find experiments that interfere with each other.

    SOURCE is a table with one column per experiment, or release files. A scan of a table is internal, unless it is
    noted in a ledger.

    \b
    kanab scan users.parquet --experiments 'test_*' --metric revenue,bought
    kanab scan releases/*.json
    """
    from kanab.scan.report.scan_page import scan_report

    scanned = _pairs(source, flags)
    try:
        segments = _segments(source, flags, scanned)
    except PrivacyError as refused:  # the pairs are noted in the ledger: they are shown
        scanned, segments = replace(scanned, notes=(*scanned.notes, f"By segment: {refused}")), None
    data, by_segment = scanned.to_dict(), {} if segments is None else {"segment_scan": segments.to_dict()}
    document = scan_report(data, *by_segment.values())
    show(flags, text=document.to_text, data=lambda: data | by_segment, page=document.to_html)


def _pairs(source: tuple[str, ...], flags: Mapping[str, Any]) -> PairReadout:
    from kanab.privacy.release_json import read_release
    from kanab.scan.scan import scan_interactions

    if is_release(source[0]):
        stored = [read_release(path) for path in source]
        joint = _joint_shares(flags["joint_shares"])
        return scan_interactions(
            stored, metrics=names(flags["metric"]), joint_shares=joint, ledger=flags["ledger"], **_rules(flags)
        )
    check_single(source)
    if not flags["experiments"] or not flags["metric"]:
        raise not_said("what to scan", "Give --experiments and --metric.", source[0], flags)
    with people_bar() as update:
        return scan_interactions(
            source[0], names(flags["experiments"]), _means(flags), k=flags["k"], override=flags["override"],
            rows=replace(rows_said(flags), first_by=None), progress=update,
            joint_shares=_joint_shares(flags["joint_shares"]), ledger=flags["ledger"],
            new_ledger=flags["new_ledger"], **_rules(flags),
        )  # fmt: skip


def _segments(source: tuple[str, ...], flags: Mapping[str, Any], scanned: PairReadout) -> SegmentReadout | None:
    from kanab.privacy.release_json import read_release
    from kanab.scan.scan import scan_segments

    covariates = names(flags["segment"])
    if not covariates:
        if flags["first_by"]:
            raise PlanError("--first-by is about segments, and none are named", "Name some: --segment device.")
        return None
    rules = {name: value for name, value in _rules(flags).items() if name != "correction"}  # segments have their own
    if is_release(source[0]):
        stored = [read_release(path) for path in source]
        return scan_segments(stored, metrics=names(flags["metric"]), covariates=covariates, **rules)
    with progress(f"counting {len(scanned.scan.experiments)} experiments by {len(covariates)} covariates"):
        return scan_segments(
            source[0], list(scanned.scan.experiments), _means(flags), covariates, k=flags["k"],
            override=flags["override"], rows=rows_said(flags),
            ledger=flags["ledger"], **rules,
        )  # fmt: skip


def _joint_shares(texts: tuple[str, ...]) -> dict[tuple[str, str], dict[tuple[str, str], float]]:
    """Read ``checkout/search=A/off:0.4,A/on:0.2,…``, once for every pair of experiments."""
    declared = {}
    for text in texts:
        pair, _, cells = text.partition("=")
        shares = {}
        for cell in cells.split(","):
            arms, _, share = cell.rpartition(":")
            shares[_two(arms)] = number(share, "--joint-shares")
        declared[_two(pair)] = shares
    return declared


def _two(text: str) -> tuple[str, str]:
    parts = [part.strip() for part in text.split("/")]
    if len(parts) != 2 or not all(parts):
        example = "--joint-shares checkout/search=A/off:0.4,A/on:0.2,B/off:0.2,B/on:0.2"
        raise PlanError("--joint-shares cannot be read", f"Write {example}.")
    return parts[0], parts[1]


def _rules(flags: Mapping[str, Any]) -> dict[str, Any]:
    rules = {name: flags[name] for name in ("family", "correction", "alpha")}
    return rules | {"tolerance": numbers(flags["tolerance"], "--tolerance")}


def _means(flags: Mapping[str, Any]) -> list[Mean]:
    """Return the metrics, with what flags say of them."""
    metrics = names(flags["metric"])
    said = {name: by_column(flags[name], SAID_OF_COLUMNS[name]) for name in ("bounds", "resolution", "missing")}
    for field, columns in said.items():
        if unknown := [name for name in columns if name not in metrics]:
            fact = f"--{field} names something that is not counted: {unknown[0]!r}"
            raise PlanError(fact, f"Counted: {listed(metrics)}.")
    return [Mean(name, **{field: of[name] for field, of in said.items() if name in of}) for name in metrics]
