"""kanab notify: tell people what they were not told yet, or send a test; and who is told, by plan and environment."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING

import click

from kanab.cli.operating.settings import secret_of
from kanab.cli.stores import Place, place_options
from kanab.errors import KanabError, PlanError, StoreError

if TYPE_CHECKING:
    from kanab.collector.log import Say
    from kanab.collector.stores.store import Store
    from kanab.notify.channels import Channel
    from kanab.notify.notifier import Notifier
    from kanab.plan.model import Plan
    from kanab.plan.notify_plan import NotifyPlan

LATER = "A running collector, the next kanab seal or kanab notify tries again."


@click.command()
@click.option("--plan", "plan_file", required=True, type=click.Path(dir_okay=False), help="Plan file with [notify].")
@place_options
@click.option("--test", "trial", is_flag=True, help="Send a test message to everybody; no store is needed.")
def notify(plan_file: str, place: Place, *, trial: bool) -> None:
    """Tell people what was sealed and not told yet.

    A running collector does so by itself. Exits with 2 if somebody could not be told.

    \b
    kanab notify --plan kanab.toml --test
    kanab notify --plan kanab.toml --data ./kanab-data
    """
    from kanab.plan.file import read_plan

    plan = read_plan(plan_file)
    if plan.notify is None:
        raise PlanError("the plan tells nobody", "Add [notify] to it: docs/how-to/notifications.md shows how.")
    if trial:
        _try(plan.notify)
        return
    with closing(place.open(plan.durability)) as opened:
        notifier = notifier_of(plan, opened)
        done = notifier is None or notifier.tell(opened.sealed(), (), plan)
    if not done:
        sys.exit(2)
    click.echo("Everything that was sealed was told.")


def _try(notify_plan: NotifyPlan) -> None:
    from kanab.notify.notices import trial_notice

    failed = False
    for channel in channels_of(notify_plan):
        try:
            more = channel.send([trial_notice(notify_plan.url)])
            click.echo(f"{channel.name} ({channel.where}) took the test message.{f' {more}.' if more else ''}")
        except KanabError as problem:
            failed = True
            click.echo(f"kanab: {channel.name}: {problem}", err=True)
    if failed:
        sys.exit(2)


def notifier_of(plan: Plan, store: Store, say: Say | None = None) -> Notifier | None:
    """Return who tells people about a store, ready before anything is sealed; None where the plan tells nobody.

    Without ``say`` its sentences go to standard error. Raises `StoreError` where a secret is missing or wrong.
    """
    if plan.notify is None:
        return None
    from kanab.notify.notifier import Notifier

    channels = channels_of(plan.notify)
    if say is not None:
        notifier = Notifier(store, plan.notify, channels, say)
    else:
        notifier = Notifier(store, plan.notify, channels, lambda text, _level="": click.echo(text, err=True), LATER)
    notifier.begin()
    return notifier


def channels_of(notify_plan: NotifyPlan | None) -> list[Channel]:
    """Return the ways to tell people, with their secrets; raises `StoreError` where one is missing or wrong."""
    if notify_plan is None:
        return []
    from kanab.notify.channels import Mail, Slack, Webhook

    channels: list[Channel] = []
    if notify_plan.slack:
        channels.append(Slack(_secret("KANAB_NOTIFY_SLACK", "the address for Slack")))
    if notify_plan.json:
        address = notify_plan.json_to or _secret("KANAB_NOTIFY_JSON", "the address of the webhook (notify.json.to)")
        signing = _secret("KANAB_NOTIFY_SECRET", "the secret that signs messages")
        channels.append(Webhook(address, signing, from_plan=notify_plan.json_to is not None))
    if notify_plan.mail is not None:
        channels.append(Mail(notify_plan.mail, secret_of("KANAB_NOTIFY_PASSWORD", "KANAB_NOTIFY_PASSWORD_FILE")))
    return channels


def _secret(name: str, what: str) -> str:
    secret = secret_of(name, f"{name}_FILE")
    if secret is None:
        raise StoreError(f"{what} is not said", f"Set {name}, or {name}_FILE to a file that holds it.")
    return secret.strip()
