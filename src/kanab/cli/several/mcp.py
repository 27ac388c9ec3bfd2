"""kanab mcp: answers for assistants, over releases."""

import signal

import click
from click.core import ParameterSource

from kanab.cli.stores import FILE, Place, allow_host_option, reading_access
from kanab.errors import MissingExtraError


@click.command()
@click.argument("places", nargs=-1, metavar="DIR|FILE...")
@click.option("--store", metavar="URL", help="PostgreSQL database of collectors, instead of files.")
@click.option("--http", is_flag=True, help="Serve over HTTP instead of standard input and output.")
@click.option("--host", default="127.0.0.1", show_default=True, help="With --http: address to listen on.")
@click.option(
    "--port", default=8002, show_default=True, type=click.IntRange(0, 65535),
    help="With --http: port to listen on; 0 for any.",
)  # fmt: skip
@allow_host_option
def mcp(
    places: tuple[str, ...], *, store: str | None, http: bool, host: str, port: int, allow_host: tuple[str, ...]
) -> None:
    """Answer an assistant's questions about releases.

    Release files, ledgers, folders of them, or a collector's data directory. It speaks the Model Context Protocol, and
    reads nothing but releases.

    \b
    kanab mcp ./releases
    kanab mcp kanab.ledger checkout.release.json
    kanab mcp ./kanab-data --http --port 8002
    kanab mcp --store postgresql://host/database
    """
    if not places and store is None:
        raise click.UsageError("what should be read? Name a folder, a ledger or release files, or --store URL.")
    said = click.get_current_context().get_parameter_source("store")
    if places and said is ParameterSource.COMMANDLINE:  # files that are named come before a variable
        raise click.UsageError("files and --store are two places. Name one of them.")
    access = reading_access(host, allow_host) if http else None
    try:
        from kanab.agents.answers import Answers
        from kanab.agents.mcp_server import PATH, http_app, serve_stdio
        from kanab.collector.http.server import bind
        from kanab.collector.http.server import serve as serve_application
        from kanab.collector.log import Log
        from kanab.dashboard.release_sources import FileReleases, ReleaseSource, StoreReleases
    except ImportError:
        raise MissingExtraError("answering assistants", "mcp") from None
    log = Log()
    source: ReleaseSource = FileReleases(places, FILE) if places else StoreReleases(Place(None, store).read)
    answers = Answers(source)
    log.take_over()
    if access is None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a thread that waits for the next line would keep Python alive
        serve_stdio(answers)
        return
    listening = bind(host, port)
    click.echo(f"Answering assistants at http://{host}:{listening.getsockname()[1]}{PATH}", err=True)
    serve_application(http_app(answers, access), listening, say=log)
