"""Settings of collectors from the environment, too: a flag comes first, then its variable, then the default.

Secrets can be read from files (``--store-file``, ``KANAB_TOKEN_FILE``), as containers and systemd hand them over: what
stands on a command line is in the list of processes, for everybody on the machine.
"""

import os
from collections.abc import Callable, Iterator
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import click
from click.core import ParameterSource

from kanab.errors import StoreError

KEY, TOKEN, TOKEN_FILE = "KANAB_KEY", "KANAB_TOKEN", "KANAB_TOKEN_FILE"
"""Variables without a flag: a secret instead of a key file, and what reads the dashboard."""

_ELSEWHERE = {KEY, TOKEN, TOKEN_FILE, "KANAB_COOKIE_KEY", "KANAB_CONFIG", "KANAB_URL", "KANAB_SHARED", "KANAB_OWN_ROWS"}
_ELSEWHERE |= {"KANAB_VOUCHER_KEY", "KANAB_VOUCHER_KEY_FILE"}
_NOTIFY = [f"KANAB_NOTIFY_{name}" for name in ("SLACK", "JSON", "SECRET", "PASSWORD")]
_ELSEWHERE |= {*_NOTIFY, *(f"{name}_FILE" for name in _NOTIFY)}
_KUBERNETES = ("KANAB_SERVICE_", "KANAB_PORT_")  # it sets them for a service that is called kanab
_NAMES = {"--key": "KANAB_KEY_FILE"}  # KANAB_KEY is the key itself
_SAID_ONCE = {"as_of", "reason"}  # as are flags without a value: a variable would say it again and again
_PLACES = ("data", "store", "store_file")


def take_settings(command: click.Command) -> None:
    """Give every option of a collector's command a variable of the environment, and a file for its secret."""
    names = {option.name for option in command.params}
    if not names & {"store", "host"} or command.callback is None:
        return
    if "store" in names:
        command.params.append(
            click.Option(["--store-file"], type=click.Path(dir_okay=False), help="File with the URL of --store.")
        )
    for option in command.params:
        if isinstance(option, click.Option) and not option.is_flag and option.name not in _SAID_ONCE:
            option.envvar = option.envvar or variable(option)
            option.show_envvar = True
    command.callback = _settled(command.callback)


def variable(option: click.Option) -> str:
    """Return the variable of an option."""
    flag = next(text for text in option.opts if text.startswith("--"))
    return _NAMES.get(flag, f"KANAB_{flag.removeprefix('--').replace('-', '_').upper()}")


def variables(*commands: click.Command) -> set[str]:
    """Return every variable that some of these commands reads."""
    from kanab.collector.http.server import PLAIN_HTTP

    options = chain.from_iterable(command.params for command in commands)
    return _ELSEWHERE | {PLAIN_HTTP} | {str(option.envvar) for option in options if option.envvar}


def clear_service_links() -> None:
    """Forget the KANAB_PORT that Kubernetes sets for a service that is called kanab: it is no port of ours."""
    if os.environ.get("KANAB_PORT", "").startswith("tcp://"):
        del os.environ["KANAB_PORT"]


def secret_of(name: str, file_name: str) -> str | None:
    """Return a secret from its variable, or from the file that another variable names; None where neither is set."""
    if secret := os.environ.get(name):
        return secret
    path = os.environ.get(file_name)
    return (_line_of(path, file_name) or None) if path else None


def _settled(callback: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(callback)
    def settled(*args: Any, **named: Any) -> Any:
        from kanab.collector.log import Level, Log

        ctx = click.get_current_context()
        for sentence in _doubts(ctx):
            if "form" in named:  # a collector has a log
                Log(named["form"])(f"kanab: {sentence}", Level.WARNING)
            else:
                click.echo(f"kanab: {sentence}", err=True)
        if "store" in named:
            _settle_place(ctx, named)
        return callback(*args, **named)

    return settled


def _doubts(ctx: click.Context) -> Iterator[str]:
    """Yield what an operator should look at: variables that nothing reads, and a password that others can read."""
    from kanab.plan.check import nearest

    root = ctx.find_root().command
    ours = {name for name in os.environ if name.startswith("KANAB_") and not name.startswith(_KUBERNETES)}
    if isinstance(root, click.Group) and ours - variables(ctx.command):  # the other commands are slow to import
        known = variables(*root.commands.values())
        for name in sorted(ours - known):
            yield f"nothing reads the variable {name}; {nearest(name, sorted(known), 'known')}."
    if _from_flag(ctx, "store") and has_password(ctx.params["store"]):
        yield (
            "the password in --store stands in the list of processes. "
            "Give the address in KANAB_STORE, or in a file (--store-file)."
        )


def _settle_place(ctx: click.Context, named: dict[str, Any]) -> None:
    """Leave the places that flags name, if they name any, and read the address of a database from its file."""
    if any(_from_flag(ctx, name) for name in _PLACES):
        named.update({name: None for name in _PLACES if name in named and not _from_flag(ctx, name)})
    path = named.pop("store_file")
    if path is not None:
        if named["store"] is not None:
            raise StoreError("the address of the store is said twice", "Give --store or --store-file.")
        named["store"] = _line_of(path, "--store-file")


def _from_flag(ctx: click.Context, name: str) -> bool:
    return name in ctx.params and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def has_password(url: str) -> bool:
    """Return whether an address holds a password."""
    try:
        parts = urlsplit(url)
        return bool(parts.password) or "password" in parse_qs(parts.query)
    except ValueError:  # not an address
        return False


def _line_of(path: str, name: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        raise StoreError(f"the file of {name} cannot be read", "Check its path and its permissions.") from None
