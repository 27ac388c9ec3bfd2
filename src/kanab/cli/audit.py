"""kanab audit: every rule, checked again on what was published."""

import click

from kanab.cli.output import json_option, show_report
from kanab.cli.released_sources import values_at


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--ledger", type=click.Path(dir_okay=False), help="Ledger; default kanab.ledger beside a file.")
@json_option
def audit(files: tuple[str, ...], ledger: str | None, *, as_json: bool) -> None:
    """Check releases against every rule.

    FILE is a release file, a ledger or the data directory of a collector. Lists also where few people of a class have
    a 0/1 metric, or lack it, and what k does not cover. Exits with 1 if a rule is broken.

    \b
    kanab audit checkout.release.json
    kanab audit kanab.ledger
    kanab audit ./kanab-data
    """
    from kanab.inspection.audit_report import audit as audit_all

    report = audit_all(values_at(files), ledger=ledger)
    show_report(report, as_json=as_json, failed=not report.passed)
