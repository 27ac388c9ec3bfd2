"""kanab demo: a shop, a collector, weeks of visitors and the dashboard, in a minute."""

import threading
from pathlib import Path

import click

from kanab.errors import need_extra


@click.command()
@click.argument("folder", default="kanab-demo", type=click.Path(file_okay=False))
@click.option("--people", default=1_600, show_default=True, type=click.IntRange(60, 20_000), help="Visitors per week.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="Port to listen on.")
@click.option("--exit", "ends", is_flag=True, help="Exit after the summary instead of staying up.")
def demo(folder: str, *, people: int, port: int, ends: bool) -> None:
    """Run a shop with made-up visitors, and its dashboard.

    They come over HTTP, in weeks that pass in seconds.

    \b
    kanab demo
    kanab demo --exit
    """
    need_extra("the demonstration", "server", "uvicorn", "cryptography", "prometheus_client", "starlette", "jinja2")
    from kanab.collector.sealing import stored_ledger
    from kanab.demo.running import WEEKS, compare, start_demo

    click.echo(f"A shop opens, {WEEKS} weeks ago. Its visitors come through the Python client:")
    with start_demo(Path(folder), port, people, click.echo) as shown:
        batches = len(stored_ledger(shown.service.store).releases)
        came = len(shown.truth.rows)
        click.echo(f"\n{came:,} people came; {batches} batches are sealed.")
        click.echo(f"{compare(shown)} sums and all counts equal what the driver knew, to the last digit.")
        click.echo(f"\n  the shop       {shown.address}/shop     open the network tab: every byte that leaves")
        click.echo(f"  the dashboard  {shown.address}/")
        click.echo(f"  the files      {Path(folder) / 'kanab-data'}   kanab analyze, audit and privacy-report read it")
        if ends:
            return
        click.echo("\nCtrl-C ends it.")
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            click.echo("")
