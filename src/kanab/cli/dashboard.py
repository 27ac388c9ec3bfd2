"""kanab dashboard: pages about releases, without a collector."""

from pathlib import Path

import click

from kanab.cli.stores import FILE, allow_host_option, listening_options, reading_access
from kanab.collector.http.server import address_of, bind
from kanab.collector.http.server import serve as serve_application
from kanab.errors import MissingExtraError, SourceError


@click.command()
@click.argument("places", nargs=-1, required=True, metavar="DIR|FILE...")
@listening_options(8001)
@allow_host_option
def dashboard(places: tuple[str, ...], *, host: str, port: int, allow_host: tuple[str, ...]) -> None:
    """Show releases as web pages.

    Release files, ledgers, folders of them, or a collector's data directory.

    \b
    kanab dashboard ./releases
    kanab dashboard kanab.ledger
    kanab dashboard ./kanab-data --port 8080
    """
    access = reading_access(host, allow_host)
    try:
        from kanab.dashboard.dashboard import Dashboard
        from kanab.dashboard.release_sources import FileReleases
    except ImportError:
        raise MissingExtraError("the dashboard", "server") from None
    releases = FileReleases(places, FILE)
    contents = releases.read()
    if contents.alarms and not contents.releases and all(Path(place).is_file() for place in places):
        raise SourceError(contents.alarms[0].rstrip("."), "Name releases, ledgers, or folders of them.")
    app = Dashboard(releases, access=access)
    listening = bind(host, port)
    click.echo(f"Showing what was released at {address_of(listening, host)}", err=True)
    serve_application(app, listening, say=lambda sentence, _=None: click.echo(sentence, err=True))
