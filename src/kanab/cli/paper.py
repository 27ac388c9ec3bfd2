"""kanab paper: the proof."""

from __future__ import annotations

import json
import sys

import click

from kanab.paper.compare import compare, to_dict, to_text


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print plain data, numbers in full precision.")
def paper(*, as_json: bool) -> None:
    """Recompute every number of the paper, from six classes and from eighteen rows.

    Exits with 1 if classes and rows ever differ by more than 1e-12, relatively.
    """
    lines = compare()
    click.echo(json.dumps(to_dict(lines), indent=2, ensure_ascii=False) if as_json else to_text(lines))
    if not all(line.holds for line in lines):
        sys.exit(1)
