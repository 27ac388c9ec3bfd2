"""kanab serve: a collector that keeps sums, not people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from kanab.cli.operating.notify import channels_of, notifier_of
from kanab.cli.stores import (
    NO_WITNESS,
    Place,
    allow_host_option,
    clock_options,
    listening_options,
    plan_options,
    reading_access,
    store_options,
    voucher_keys_of,
    witness_of,
)
from kanab.collector.http.access import Access
from kanab.collector.http.addresses import Proxies, is_loopback, network
from kanab.collector.http.server import address_of, ended_by_signals, listening_socket
from kanab.collector.http.server import serve as serve_application
from kanab.collector.log import Level, Log
from kanab.errors import StoreError, need_extra

if TYPE_CHECKING:
    from kanab.collector.http.service import Service

_ORIGINS = (
    'Write the sites whose pages may post above its first [section]: origins = ["https://shop.example"]. Apps and '
    "servers are not asked."
)


@click.command()
@plan_options
@store_options
@clock_options
@listening_options(8000)
@click.option(
    "--trust",
    multiple=True,
    metavar="ADDRESS",
    help="Your proxy, which says for whom it speaks, or your server, which may post without limit: an address or "
    "a network (10.0.0.0/8). Repeatable.",
)
@click.option(
    "--log",
    "form",
    default="text",
    show_default=True,
    type=click.Choice(["text", "json"]),
    envvar="KANAB_LOG",
    show_envvar=True,
    help="What lines on standard error look like.",
)
@allow_host_option
@click.option(
    "--witness",
    type=click.Path(dir_okay=False),
    help="File that says how far the store has come, so that an old backup is noticed; default beside the key file.",
)
@click.option(
    "--reuse-port",
    is_flag=True,
    help="Listen beside another collector with this flag at the same port: updates without a lost connection.",
)
def serve(
    plan_file: str,
    replace_plan: int | None,
    place: Place,
    *,
    accept_clock: bool,
    clock_peers: tuple[str, ...],
    host: str,
    port: int,
    trust: tuple[str, ...],
    form: Literal["text", "json"],
    allow_host: tuple[str, ...],
    witness: str | None,
    reuse_port: bool,
) -> None:
    """Run a collector.

    Receive messages by a plan, add them to counters, seal them on schedule and show a dashboard.

    \b
    kanab serve --plan kanab.toml --data ./kanab-data
    kanab serve --plan kanab.toml --store postgresql://localhost/kanab --key kanab.key
    """
    need_extra("serving", "server", "uvicorn", "cryptography", "prometheus_client")  # before anything is touched
    from kanab.collector.clock import GuardedClock
    from kanab.collector.counting.accept import PostAcceptor
    from kanab.collector.http.server import wait_for_store
    from kanab.collector.http.service import Service
    from kanab.plan.check import find_warnings
    from kanab.plan.file import read_plan

    say = Log(form)
    say.take_over()
    plan = read_plan(plan_file)
    PostAcceptor(plan)  # a plan that cannot be collected is refused before anything is made
    channels_of(plan.notify)  # a secret that is missing, too
    voucher_keys = voucher_keys_of(plan)
    clock = GuardedClock(peers=clock_peers, accepted=accept_clock)
    listening = listening_socket(host, port, reuse_port=reuse_port)
    host = listening.getsockname()[0]
    proxies = Proxies(network(address) for address in trust)
    access = reading_access(host, allow_host, proxies)
    if not plan.origins and (proxies or not is_loopback(host)):
        raise StoreError(f"visitors can reach this collector, and {Path(plan_file).name} names no origins", _ORIGINS)
    place.check()
    place.check_key_is_said()  # before it is waited for a database

    def begin() -> tuple[Service, Path | None]:
        opened = place.open(plan.durability, new=True)
        try:
            keyring = place.keyring(opened, say=say)
            seen = witness_of(keyring, witness) if plan.durability == "disk" else None
            if seen is None and plan.durability == "disk":
                say(NO_WITNESS)
            told = notifier_of(plan, opened, say)
            service = Service(
                opened, keyring, plan, replaces=replace_plan, witness=seen, clock=clock, notifier=told,
                voucher_keys=voucher_keys, say=say,
            )  # fmt: skip
            return service, keyring.path
        except BaseException:
            opened.close()
            raise

    try:
        with ended_by_signals():
            service, key_path = wait_for_store(begin, listening, say=say)
    except KeyboardInterrupt:
        return  # as asked
    try:
        logouts = None if key_path is None else key_path.with_name(f"{key_path.name}.logouts")
        app = _with_pages(service, access, logouts)
        for sentence in find_warnings(plan):
            say(f"kanab: {sentence}", Level.WARNING)
        say(f"Collecting for {Path(plan_file).name} at {address_of(listening, host)}")
        serve_application(app, listening, say=say)
    finally:
        service.store.close()


def _with_pages(service: Service, access: Access, logouts: Path | None) -> Any:
    """Return the collector with its dashboard at /, or alone where what draws the pages is not installed."""
    from kanab.collector.clock import system_clock
    from kanab.collector.http.app import Collector

    collector = Collector(service, access=access)
    try:
        from kanab.dashboard.dashboard import Dashboard, Site
        from kanab.dashboard.release_sources import CollectorReleases
    except ImportError:
        return collector
    return Site(collector, Dashboard(CollectorReleases(service, system_clock), access=access, logouts=logouts))
