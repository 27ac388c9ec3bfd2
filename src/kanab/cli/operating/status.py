"""kanab status: how collecting stands, of a store or of a collector that runs; of people, only steps of k."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from kanab.cli.operating.settings import TOKEN, TOKEN_FILE, secret_of
from kanab.cli.output import echo_json, json_option
from kanab.cli.stores import Place, place_options
from kanab.errors import SourceError, StoreError

if TYPE_CHECKING:
    from kanab.collector.stores.store import Store

MOST_COHORTS = 60
"""Open cohorts that are listed, the last ones: a store that never seals has ever more."""

ANSWER_SECONDS = 10.0
"""Seconds that a collector has for an answer."""

_SHOWN = ("kanab_seal_lag_seconds", "kanab_clock_step_seconds", "kanab_waiting_posts_limit", "kanab_sealed_batches")


@click.command()
@place_options
@click.option("--url", metavar="URL", help="Address of a collector that runs: is it ready?")
@json_option
def status(place: Place, url: str | None, *, as_json: bool) -> None:
    """Show how collecting stands.

    Of a store: the plan, the epoch, open cohorts and when they are ripe, the next seal, the ledger, and in steps of k
    how many people were published, held back and destroyed until the last seal. Of a collector that runs (--url):
    whether it is ready, and what is wrong. The token comes from KANAB_TOKEN. No key is needed, and nothing is written.
    Exits with 1 if the collector is not ready.

    \b
    kanab status --data ./kanab-data
    kanab status --store postgresql://localhost/kanab --url http://localhost:8000 --json
    """
    state: dict[str, Any] = {}
    if url is None or place != Place(None, None):
        with closing(place.read()) as opened:
            state["store"] = store_state(opened, datetime.now(UTC))
    if url is not None:
        state["collector"] = _collector_state(url)
    if as_json:
        echo_json(state)
    else:
        click.echo("\n".join(_lines(state)))
    if not state.get("collector", {"ready": True})["ready"]:
        sys.exit(1)


def store_state(store: Store, now: datetime) -> dict[str, Any]:
    """Return what can be said of a store without a key: its plan, epoch, cohorts, seals and ledger."""
    from kanab.collector.counting.cohorts import Calendar
    from kanab.collector.counting.plan_versions import Versions
    from kanab.collector.protocol.nonces import seconds_of
    from kanab.collector.sealing import first_open, stored_ledger
    from kanab.collector.store_ledger import RAISED, is_raised, shown_accounts
    from kanab.dashboard.next_seal import next_seal
    from kanab.plan.file import plan_digest
    from kanab.plan.values import duration
    from kanab.privacy.release import name_left_out

    versions, ledger = Versions.read(store), stored_ledger(store)
    receipts = [release.receipt for release in ledger.releases]
    batches = [receipt.batch for receipt in receipts]
    state: dict[str, Any] = {
        "epoch": store.epoch(),
        "ledger": {"entries": len(ledger.entries), "batches": len(batches), "head": ledger.head},
        "sealed_through": batches[-1].through if batches and batches[-1] is not None else None,
        "people": shown_accounts(ledger),
        "forged": [name_left_out(*left) for left in chain.from_iterable(each.forged.items() for each in receipts)],
        "deleted": [*chain.from_iterable(receipt.deleted for receipt in receipts), *[RAISED] * is_raised(store)],
        "plan": None,
    }
    if not versions.entries:
        return state
    calendar = Calendar(versions.newest)
    current = calendar.opening(seconds_of(now)).current
    plan, cohort = versions.in_force(current), first_open(store, versions)
    state["plan"] = {
        "version": len(versions.entries),
        "digest": plan_digest(versions.newest),
        "experiments": list(plan.experiment_names),
    }
    tick = next_seal(plan, cohort, now)
    state["next_seal"] = None if tick is None else tick.isoformat()
    state["cohorts"] = []
    if plan.cohorts is not None and calendar.periods is not None:
        whole = duration(plan.cohorts.window) + timedelta(seconds=calendar.life)
        for number in range(max(cohort, current - MOST_COHORTS + 1), current + 1):
            end = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=calendar.periods.first_day(number + 1))
            word = "enrolling" if now < end else "measured" if now < end + whole else "ripe"
            label = calendar.periods.label(number)
            state["cohorts"].append({"cohort": label, "state": word, "ripe_at": (end + whole).isoformat()})
    return state


def _collector_state(url: str) -> dict[str, Any]:
    """Return whether a collector is ready, what is wrong, and a few figures if the token allows it."""
    code, text = _ask(url, "/readyz")
    if 300 <= code < 400:
        raise SourceError("the collector's address leads elsewhere", "Give the one that it leads to (--url).")
    if code not in (200, 503):
        raise SourceError("that is not the address of a collector", "Give the one that it listens at (--url).")
    state: dict[str, Any] = {"ready": code == 200, "problems": text.splitlines() if code == 503 else []}
    code, text = _ask(url, "/metrics")
    state["figures"] = {}
    for line in text.splitlines() if code == 200 else ():
        name, _, value = line.partition(" ")
        if name in _SHOWN:
            state["figures"][name] = float(value)
    return state


def _ask(url: str, path: str) -> tuple[int, str]:
    import urllib.error
    import urllib.request

    class Staying(urllib.request.HTTPRedirectHandler):
        """Follows no redirect: the token is for this host alone."""

        def redirect_request(self, *_: Any) -> None:
            return None

    token = secret_of(TOKEN, TOKEN_FILE)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        request = urllib.request.Request(url.rstrip("/") + path, headers=headers)
        opener = urllib.request.build_opener(Staying, urllib.request.ProxyHandler({}))  # no proxy reads the token
        with opener.open(request, timeout=ANSWER_SECONDS) as answer:
            return answer.status, answer.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as problem:
        return problem.code, problem.read().decode("utf-8", "replace")
    except (OSError, ValueError):
        raise StoreError("the collector does not answer", "Check its address (--url), and that it runs.") from None


def _lines(state: dict[str, Any]) -> Iterator[str]:
    if "collector" in state:
        collector = state["collector"]
        yield "ready" if collector["ready"] else "not ready"
        yield from (f"  {line}" for line in collector["problems"])
        yield from (f"  {name.removeprefix('kanab_')}: {value:g}" for name, value in collector["figures"].items())
    if "store" in state:
        yield from _store_lines(state["store"])


def _store_lines(store: dict[str, Any]) -> Iterator[str]:
    from kanab.dashboard.next_seal import moment_text
    from kanab.report.words import account_words

    plan = store["plan"]
    if plan is None:
        yield "plan: none yet; it begins with kanab serve"
    else:
        yield f"plan: version {plan['version']}, {plan['digest'][:12]}: {', '.join(plan['experiments'])}"
    yield f"epoch: {store['epoch'] or 'the first'}"
    ledger = store["ledger"]
    yield f"ledger: {ledger['batches']} batches, {ledger['entries']} entries"
    yield f"sealed through: {store['sealed_through'] or 'nothing yet'}"
    for name, states in store["people"].items():
        yield f"people of {name}, in steps of k: {account_words(states)}"
    yield from (f"alarm: {why}" for why in (*store["forged"], *store["deleted"]))
    for cohort in store.get("cohorts", ()):
        ripe = moment_text(datetime.fromisoformat(cohort["ripe_at"]))
        yield f"cohort {cohort['cohort']}: {cohort['state']}{'' if cohort['state'] == 'ripe' else f', ripe on {ripe}'}"
    if plan is not None:
        tick = store["next_seal"]
        yield f"next seal: {moment_text(datetime.fromisoformat(tick)) if tick else 'by hand (kanab seal)'}"
