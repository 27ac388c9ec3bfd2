"""kanab init: a commented plan to start from."""

from functools import partial
from pathlib import Path

import click

from kanab.atomicfile import write_whole
from kanab.cli.output import force_option, refuse_foreign_file

STARTER = """\
# What may be collected. What this file does not name cannot be stored.
# Every key: docs/how-to/plan.md. What it means for privacy and speed: kanab plan kanab.toml

k = 10                                    # no class with fewer people leaves

# origins = ["https://shop.example"]      # pages that may post; needed where visitors reach the collector

[cohorts]                                 # everybody belongs to the period in which they enrolled
every = "7d"
window = "7d"                             # and is measured this long after it
seal = "7d"                               # batches are sealed at this tick; "end": only by kanab seal

[covariates]                              # known when a person enrolls; levels are declared beforehand
tier = [1, 2, 3]

[metrics]                                 # each person's running total, clamped to its bounds
bought = { kind = "binary" }
minutes = { bounds = [0, 600], resolution = 0.01 }

[experiments.checkout]
arms = { A = 1, B = 1 }                   # shares; the first is the control
adjust = ["tier"]                         # one table: checkout by tier
"""


@click.command()
@click.argument(
    "file", type=click.Path(dir_okay=False), default="kanab.toml", callback=partial(refuse_foreign_file, "")
)
@force_option
def init(file: str) -> None:
    """Write a commented starter plan.

    FILE (default kanab.toml) gets one experiment with one linkage.

    \b
    kanab init
    kanab serve --plan kanab.toml --data ./kanab-data
    """
    path = Path(file)
    write_whole(path, STARTER)
    click.echo(f"{path}: one experiment (checkout), one linkage (checkout/tier), k = 10.")
    click.echo(f"Next: kanab serve --plan {path} --data ./kanab-data")
