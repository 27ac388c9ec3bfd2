"""Help by task: commands in groups, and the many flags of a command in groups with the common ones first.

Flags that several commands have are declared once, and given to each of them together.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def flags_together(*flags: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return what gives a command several flags, which its help shows in this order."""

    def give(command: Command) -> Command:
        for flag in reversed(flags):
            command = flag(command)
        return command

    return give


def several(flag: str, metavar: str, words: str) -> Callable[[Command], Command]:
    """Return a flag that may be given several times."""
    return click.option(flag, multiple=True, metavar=metavar, help=words)


TASKS: Mapping[str, Mapping[str, str]] = {
    "Analyze": {
        "analyze": "Analyze an experiment: effects, segments, privacy.",
        "dashboard": "Show releases as web pages.",
        "mcp": "Answer an assistant's questions about releases.",
    },
    "Release and privacy": {
        "release": "Write what may leave a source as one release file.",
        "audit": "Check releases against every rule.",
        "attack": "Try to learn about people from releases.",
        "privacy-report": "Write a report for a privacy officer.",
    },
    "Collect": {
        "init": "Write a commented starter plan.",
        "serve": "Run a collector.",
        "status": "Show how collecting stands.",
        "doctor": "Look for what is wrong with a collector.",
        "seal": "Seal the cohorts that are ripe, as one batch.",
        "notify": "Tell people what was sealed and not told yet.",
        "export": "Write a collector's sealed batches to a ledger.",
        "void": "Destroy open cohorts for good, and record it.",
        "restore": "Go on with a store from a backup.",
        "drill": "Rehearse a restore.",
    },
    "Many experiments": {
        "scan": "Find experiments that interfere with each other.",
        "combine": "Combine effects over batches, regions or releases.",
        "portfolio": "Read all experiments of a folder of releases together.",
    },
    "Plan ahead": {
        "power": "Compute sample size, detectable effect or power.",
        "plan": "Forecast what a plan will give.",
    },
    "Other": {
        "example": "Write a CSV file of made-up people.",
        "demo": "Run a shop with made-up visitors, and its dashboard.",
    },
}
"""What each command does, by task: the first sentence of its own help, said here so that no command is imported."""

FLAGS: Mapping[str, tuple[str, ...]] = {
    "Common flags": (
        "--arm", "--metric", "--adjust", "--segment", "--covariate", "--control", "--primary", "--guardrail", "--plan",
        "--experiment", "--experiments", "-o", "--dry-run", "--brief", "--html", "--force", "--json",
    ),
    "Metrics": (
        "--ratio", "--quantile", "--treatment-received", "--bounds", "--clip", "--resolution", "--missing",
        "--lower-is-better", "--min-events",
    ),
    "Arms and covariates": (
        "--arms", "--shares", "--pool", "--contrast", "--bin", "--top", "--score", "--number", "--slopes",
    ),
    "Where rows come from": ("--table", "--sql", "--where", "--join", "--on", "--sep", "--decimal", "--show-sql"),
    "How rows become people": (
        "--unit", "--aggregate", "--first-by", "--cluster", "--exposures", "--events", "--window", "--time",
        "--exposure-time",
    ),
    "How results are read": (
        "--confidence", "--alternative", "--correction", "--test", "--variance", "--non-inferiority", "--superiority",
        "--equivalence", "--decision", "--prior", "--family", "--alpha", "--tolerance", "--joint-shares",
    ),
    "Looking early": (
        "--sequential", "--looks", "--looks-at", "--looks-file", "--planned", "--spending", "--optimal-at", "--last",
    ),
    "Privacy": (
        "--as-released", "--k", "--override", "--epsilon", "--delta", "--ledger", "--new-ledger", "--no-ledger",
        "--reviewed", "--cohort", "--every", "--as-of",
    ),
}  # fmt: skip
"""The flags of commands that have many, in the order in which help shows them."""


class FlagsByTask(click.Command):
    """A command whose help shows its flags in groups; one that stands in none is among the last."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a group after the other; what this command does not have is left out."""
        options = [option for option in self.get_params(ctx) if isinstance(option, click.Option)]
        left = {option.opts[0]: record for option in options if (record := option.get_help_record(ctx))}
        for heading, flags in FLAGS.items():
            if records := [left.pop(flag) for flag in flags if flag in left]:
                with formatter.section(heading):
                    formatter.write_dl(records)
        with formatter.section("Other flags"):
            formatter.write_dl(list(left.values()))
