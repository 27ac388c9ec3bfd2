"""kanab example: made-up people to try things on."""

import csv
import io
from functools import partial

import click

from kanab.atomicfile import write_whole
from kanab.cli.output import force_option, refuse_foreign_file


@click.command()
@click.argument("file", type=click.Path(dir_okay=False), callback=partial(refuse_foreign_file, ""))
@force_option
@click.option(
    "--people", type=click.IntRange(1, 10_000_000), default=40_000, show_default=True, help="Number of people."
)
@click.option(
    "--experiments",
    type=click.IntRange(2, 1_000),
    help="So many experiments at once instead, for kanab scan: test_1, test_2, …",
)
@click.option("--seed", type=int, default=7, show_default=True, help="The same seed makes the same people.")
def example(file: str, people: int, experiments: int | None, seed: int) -> None:
    """Write a CSV file of made-up people.

    FILE holds the people of a shop's experiment. Variant B is a new checkout that helps on phones and does nothing
    elsewhere. With --experiments two experiments of many get in each other's way.
    """
    from kanab.datasets import experiments_rows, shop_rows

    rows = shop_rows(people, seed) if experiments is None else experiments_rows(experiments, people, seed)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rows)
    writer.writerows(zip(*(column.tolist() for column in rows.values()), strict=True))
    write_whole(file, text.getvalue())
    what = "a shop's experiment" if experiments is None else f"a shop's {experiments:,} experiments"
    click.echo(f"{file}: {people:,} made-up people of {what}.")
