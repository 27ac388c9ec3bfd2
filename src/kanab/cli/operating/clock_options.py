"""What the commands that act by the clock are told about it: that it is right, or who else knows the time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

PEERS = "KANAB_CLOCK_PEERS"
"""The environment variable with addresses of web servers, separated by spaces."""


def clock_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the flags that confirm the clock of this machine."""
    for option in (
        click.option("--accept-clock", is_flag=True, help="This machine's clock is right: I have looked."),
        click.option(
            "--clock-peer",
            "clock_peers",
            multiple=True,
            metavar="URL",
            envvar=PEERS,
            help="Web server whose time may confirm the clock. Repeatable.",
        ),
    ):
        command = option(command)
    return command
