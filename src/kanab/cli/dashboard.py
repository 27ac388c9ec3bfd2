"""kanab dashboard: pages about releases, without a collector."""

from __future__ import annotations

import os

import click

from kanab.cli.stores import FILE
from kanab.collector.http.rate_limit import is_loopback
from kanab.collector.http.server import bind
from kanab.collector.http.server import serve as serve_application
from kanab.errors import MissingExtraError, StoreError


@click.command()
@click.argument("places", nargs=-1, required=True, metavar="DIR|FILE...")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", default=8001, show_default=True, type=click.IntRange(0, 65535), help="The port to listen at.")
def dashboard(places: tuple[str, ...], *, host: str, port: int) -> None:
    """Show releases as pages: release files, ledgers, folders of them, or a collector's data directory.

    \b
    kanab dashboard ./releases
    kanab dashboard kanab.ledger
    kanab dashboard ./kanab-data --port 8080
    """
    token = os.environ.get("KANAB_TOKEN") or None
    if token is None and not is_loopback(host):
        raise StoreError(
            "numbers could be read from other machines",
            "Set KANAB_TOKEN to a long random text, or listen at 127.0.0.1.",
        )
    try:
        from kanab.dashboard.app import Dashboard  # noqa: PLC0415
        from kanab.dashboard.release_sources import FileReleases  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtraError("the dashboard", "server") from None
    app = Dashboard(FileReleases(places, FILE), token=token)
    listening = bind(host, port)
    click.echo(f"Showing what was released at http://{host}:{listening.getsockname()[1]}", err=True)
    serve_application(app, listening)
