"""kanab analyze: from any source, or from releases, to an answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import click

from kanab.analysis import analyze as analyze_release
from kanab.cli.counting import counted_source, is_ledger, is_release
from kanab.cli.options import level, plan_of, source_options
from kanab.errors import PlanError
from kanab.files import read_release
from kanab.privacy.batches import add_releases
from kanab.privacy.gate import release as release_counted
from kanab.privacy.ledger import read_ledger
from kanab.privacy.released import Release
from kanab.reading import Looks
from kanab.readouts import Readout
from kanab.stats.sequential import TUNED_AT
from kanab.writing import write_whole

_CORRECTIONS = ["none", "bonferroni", "sidak", "holm", "hochberg", "bh", "by"]


@click.command()
@click.argument("source", nargs=-1, required=True)
@source_options
@click.option("--adjust", help="Covariates to adjust for, separated by commas; each in a table of its own.")
@click.option("--segment", help="Covariates by which the effect may differ; each in a table of its own.")
@click.option("--experiment", help="One experiment of several.")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of the intervals.")
@click.option(
    "--alternative", type=click.Choice(["two-sided", "greater", "less"]), default="two-sided", help="Which side counts."
)
@click.option("--correct", type=click.Choice(_CORRECTIONS), default="holm", help="Correction over metrics × arms.")
@click.option(
    "--sequential",
    type=click.Choice(["spending", "always"]),
    help="Looked at more than once: planned looks, or any time.",
)
@click.option(
    "--looks", type=click.IntRange(1), help="Planned looks; batches given before the last one are earlier looks."
)
@click.option("--planned", type=click.IntRange(1), help="Planned people, instead of --looks.")
@click.option(
    "--spending",
    type=click.Choice(["obrien-fleming", "pocock"]),
    default="obrien-fleming",
    help="How planned looks share the risk.",
)
@click.option(
    "--tuned-at", type=click.IntRange(2), default=TUNED_AT, help="People at which --sequential always is narrowest."
)
@click.option("--last", is_flag=True, help="The design ends with this look.")
@click.option("--json", "as_json", is_flag=True, help="Print the documented plain data.")
@click.option("--html", type=click.Path(dir_okay=False), help="Write a report into this file.")
def analyze(source: tuple[str, ...], **given: Any) -> None:
    """Analyze SOURCE: files, a database, Spark, release files (several are added), or a ledger of cohorts.

    \b
    kanab analyze visits.parquet --arm variant --metric spend,bought --adjust tier --segment device
    kanab analyze postgresql://localhost/shop --table users --arm variant --metric spend
    kanab analyze checkout.release.json
    """
    found, batches = _released(source, given)
    names = [given["experiment"]] if given["experiment"] else [one.name for one in found.plan.experiments]
    readouts = [
        analyze_release(
            found,
            name,
            control=level(given["control"]),
            confidence=given["confidence"],
            alternative=given["alternative"],
            correction=given["correct"],
            looks=_looks(given, batches, name),
        )
        for name in names
    ]
    if given["html"]:
        if len(readouts) > 1:
            raise PlanError("a report is about one experiment", "Name it with --experiment.")
        write_whole(given["html"], readouts[0].to_report())
    if given["as_json"]:
        click.echo(_json(readouts))
        return
    click.echo("\n\n".join(str(one) for one in readouts))
    if given["html"]:
        click.echo(f"\nReport: {given['html']}")


def _looks(given: Mapping[str, Any], batches: Sequence[Release], experiment: str) -> Looks | None:
    """How several looks are read; batches before the last one are earlier looks."""
    if given["sequential"] is None:
        wrong = [flag for flag in ("looks", "planned", "last") if given[flag]]
        if wrong:
            raise PlanError(f"--{wrong[0]} is about several looks", "Say how they are read: --sequential spending.")
        return None
    people = list(accumulate(one.totals(experiment).total for one in batches))
    return Looks(
        given["sequential"], given["looks"], given["planned"], given["spending"], given["tuned_at"], given["last"],
        tuple(people[:-1]),
    )  # fmt: skip


def _released(source: tuple[str, ...], given: Mapping[str, Any]) -> tuple[Release, Sequence[Release]]:
    """What is analyzed, and the batches that it is the sum of."""
    if is_release(source[0]) or is_ledger(source[0]):
        clash = [flag for flag in ("arm", "metric", "plan_file", "adjust", "segment", "k") if given[flag]]
        if clash:
            raise PlanError("a release already says what was counted", f"Leave out --{clash[0].removesuffix('_file')}.")
        batches = [one for path in source for one in _read(path)]
        return add_releases(batches), batches
    if len(source) > 1:
        raise PlanError("several sources are given", "Name one; a pattern such as 'visits-*.parquet' takes many files.")
    found = release_counted(counted_source(source[0], plan_of(given), given), given["k"], override=given["override"])
    return found, [found]


def _read(path: str) -> tuple[Release, ...]:
    """A release file, or the batches of a ledger."""
    if not is_ledger(path):
        return (read_release(path),)
    found = read_ledger(path).releases
    if len(found) > 1 and any(one.receipt.batch is None for one in found):
        raise PlanError("the ledger holds several releases about the same people", "Name the file of one of them.")
    return found


def _json(readouts: list[Readout]) -> str:
    plain = [one.to_dict() for one in readouts]
    data = plain[0] if len(plain) == 1 else {"experiments": {one["experiment"]: one for one in plain}}
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)
