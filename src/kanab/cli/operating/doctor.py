"""kanab doctor: what is wrong with a collector's plan, key, clock, disk, database, versions and backups."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from kanab import __version__
from kanab.cli.operating.settings import KEY
from kanab.cli.output import echo_json, json_option
from kanab.cli.stores import PEERS, Place, store_options
from kanab.collector.http.server import UnfamiliarError, fast_protocol
from kanab.collector.keys.keyring import KeyChain, check_apart, peek_key_file
from kanab.errors import KanabError, PlanError

if TYPE_CHECKING:
    from kanab.collector.stores.store import Store

ROOM_WRONG, ROOM_WARNING = 100 * 2**20, 2**30
"""Bytes of free disk below which something is wrong, or soon will be."""

FEW_FILES = 4_096
"""Open files below which a thousand visitors may be too many."""

State = Literal["ok", "skipped", "warning", "wrong"]


@dataclass(frozen=True)
class Diagnosis:
    """What was looked at, or why not, how it is, and what to do."""

    about: str
    state: State
    says: str
    remedy: str = ""


@click.command()
@click.option("--plan", "plan_file", type=click.Path(dir_okay=False), help="Plan file that the collector starts with.")
@store_options
@click.option("--ledger", type=click.Path(dir_okay=False), help="Ledger that kanab export wrote last.")
@click.option(
    "--clock-peer", "clock_peers", multiple=True, metavar="URL", envvar=PEERS, help="Web server to compare clocks with."
)
@json_option
def doctor(
    plan_file: str | None, place: Place, *, ledger: str | None, clock_peers: tuple[str, ...], as_json: bool
) -> None:
    """Look for what is wrong with a collector.

    Plan, key, clock, disk, permissions, database, versions, limits and backups: each is ok, a warning or wrong, with
    what to do, or skipped, with the reason. Nothing is written and nothing about people is shown. Exits with 1 if
    something is wrong.

    \b
    kanab doctor --plan kanab.toml --data ./kanab-data
    kanab doctor --store postgresql://localhost/kanab --key kanab.key --ledger kanab.ledger --json
    """
    place.check()
    findings = [*_machine(), *_disk(place.data)]
    try:
        with closing(place.read()) as opened:
            findings += [*_store(opened), *_plan(opened, plan_file), *_key(opened, place)]
            findings += [*_clock(opened, clock_peers), *_database(opened), *_backup(opened, ledger)]
            findings += _notifications(opened, plan_file)
    except KanabError as problem:
        findings.append(Diagnosis("store", "wrong", problem.fact, problem.remedy))
    wrong = any(finding.state == "wrong" for finding in findings)
    if as_json:
        echo_json({"passed": not wrong, "findings": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            remedy = f" {finding.remedy}" if finding.remedy else ""
            click.echo(f"{finding.state:<7}  {finding.about}: {finding.says}.{remedy}")
    if wrong:
        sys.exit(1)


def _machine() -> Iterator[Diagnosis]:
    versions: dict[str, str | None] = dict.fromkeys(("uvicorn", "httptools"))
    for name in versions:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    said = ", ".join(f"{name} {number or 'missing'}" for name, number in versions.items())
    about = f"kanab {__version__}, Python {sys.version.split()[0]}, {said}"
    if versions["uvicorn"] is None:
        yield Diagnosis("versions", "wrong", about, "Run: pip install 'kanab[server]'")
    else:
        try:
            fast_protocol()
            yield Diagnosis("versions", "ok", about)
        except UnfamiliarError:
            yield Diagnosis(
                "versions", "warning", f"{about}: the fast path does not fit", "Install the tested versions."
            )
    pattern = Path("/proc/sys/kernel/core_pattern")
    if pattern.exists() and (text := pattern.read_text().strip()).startswith("|") and "systemd-coredump" not in text:
        yield Diagnosis(
            "core dumps",
            "warning",
            "a program gets them whatever limit a process sets",
            "Turn them off on this machine.",
        )
    else:
        yield Diagnosis("core dumps", "ok", "the collector turns them off for itself")
    try:
        import resource
    except ImportError:
        return
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    few = hard != resource.RLIM_INFINITY and hard < FEW_FILES
    yield Diagnosis(
        "open files", "warning" if few else "ok", "few are allowed" if few else "enough are allowed",
        f"Allow {FEW_FILES:,} or more (LimitNOFILE, ulimit -n)." if few else "",
    )  # fmt: skip


def _disk(data: str | None) -> Iterator[Diagnosis]:
    if data is None or not Path(data).is_dir():
        return
    free = shutil.disk_usage(data).free
    state: State = "wrong" if free < ROOM_WRONG else "warning" if free < ROOM_WARNING else "ok"
    says = "room is left" if state == "ok" else "little room is left"
    yield Diagnosis("disk", state, says, "" if state == "ok" else "Free some; a full disk makes clients wait.")
    if os.name == "posix" and stat.S_IMODE(Path(data).stat().st_mode) & 0o077:
        yield Diagnosis("permissions", "warning", "others may look into the data directory", f"Run: chmod 700 {data}")
    elif not os.access(data, os.W_OK):
        yield Diagnosis("permissions", "warning", "this user may not write there", "Run it as the collector's user.")
    else:
        yield Diagnosis("permissions", "ok", "the data directory is the collector's alone")


def _store(store: Store) -> Iterator[Diagnosis]:
    from kanab.collector.sealing import stored_ledger
    from kanab.collector.store_ledger import RAISED, is_raised

    if store.outdated():
        yield Diagnosis(
            "store", "warning", "its tables are of an older kanab", "Start the collector once: kanab serve."
        )
    else:
        yield Diagnosis("store", "ok", "its tables are of this version")
    stored_ledger(store)
    yield Diagnosis("ledger", "ok", "every entry of the chain is as it was written")
    if is_raised(store):
        yield Diagnosis("ledger", "wrong", RAISED, "Find out who may write the store; a collector opens them again.")


def _plan(store: Store, plan_file: str | None) -> Iterator[Diagnosis]:
    from kanab.collector.counting.accept import PostAcceptor
    from kanab.collector.counting.plan_versions import Versions
    from kanab.collector.protocol.nonces import seconds_of
    from kanab.plan.file import read_plan

    versions = Versions.read(store)
    if plan_file is None:
        yield Diagnosis("plan", "skipped", "no plan file is named", "Give --plan FILE to compare it with the store's.")
        return
    try:
        plan = read_plan(plan_file)
        now = PostAcceptor(plan).calendar.opening(seconds_of(datetime.now(UTC))).current
        adopted, _ = versions.adopt(plan, now)
    except KanabError as problem:
        yield Diagnosis("plan", "wrong", problem.fact, problem.remedy)
        return
    if adopted is versions:
        yield Diagnosis("plan", "ok", "the file is the newest version of the store's")
    else:
        new = len(adopted.entries)
        yield Diagnosis("plan", "warning", f"the file would become version {new}", "It holds when a collector starts.")


def _notifications(store: Store, plan_file: str | None) -> Iterator[Diagnosis]:
    """Yield how telling people stands; nobody is called."""
    from kanab.cli.operating.notify import channels_of
    from kanab.notify.notifier import unsent_batches
    from kanab.plan.file import read_plan

    try:
        channels = channels_of(None if plan_file is None else read_plan(plan_file).notify)
    except PlanError:
        return  # which was said of the plan
    except KanabError as problem:
        yield Diagnosis("notifications", "wrong", problem.fact, problem.remedy)
        return
    for channel in channels:
        unsent, who = unsent_batches(store, channel.name), f"{channel.name} ({channel.where})"
        if unsent:
            remedy = "The collector's log says why. Try it: kanab notify --test."
            yield Diagnosis("notifications", "warning", f"{who} was not told of everything that was sealed", remedy)
        else:
            says = "is told from the next start on" if unsent is None else "was told of everything that was sealed"
            yield Diagnosis("notifications", "ok", f"{who} {says}")


def _key(store: Store, place: Place) -> Iterator[Diagnosis]:
    from kanab.collector.store_ledger import closed_through

    path = place.key_file
    secret = os.environ.get(KEY) if path is None else None
    try:
        if secret:
            chain = KeyChain.from_secret(secret)
            yield Diagnosis(
                "key", "warning", "it comes from KANAB_KEY", "A seal erases a key file, and cannot erase this."
            )
        elif path is None:
            yield Diagnosis("key", "skipped", "no key file is named", "Give --key FILE.")
            return
        else:
            if place.data is not None:
                check_apart(path, Path(place.data))
            chain = peek_key_file(path)
            yield Diagnosis("key", "ok", "it is there, apart from the data, and nobody else may read it")
    except KanabError as problem:
        yield Diagnosis("key", "wrong", problem.fact, problem.remedy)
        return
    bound = store.fingerprint()
    if bound is not None and bound != chain.fingerprint:
        yield Diagnosis(
            "key", "wrong", "it is not the key of this store", "Give the one that the store was begun with."
        )
    elif not secret and chain.period <= closed_through(store):
        yield Diagnosis(
            "key", "warning", "the keys of sealed cohorts are not erased yet", "A running collector does it."
        )


def _clock(store: Store, peers: Sequence[str]) -> Iterator[Diagnosis]:
    from kanab.collector.clock import STEP_LIMIT, http_date
    from kanab.collector.counting.accept import PostAcceptor
    from kanab.collector.counting.plan_versions import Versions
    from kanab.collector.store_ledger import closed_through

    times = [("the database", store.time()), *((url, http_date(url)()) for url in peers)]
    known = [(name, seconds) for name, seconds in times if seconds is not None]
    for name, seconds in known:
        if abs(seconds - time.time()) > STEP_LIMIT:
            yield Diagnosis("clock", "wrong", f"it differs from that of {name}", "Set it right (NTP).")
        else:
            yield Diagnosis("clock", "ok", f"it agrees with that of {name}")
    versions = Versions.read(store)
    if versions.entries and versions.newest.cohorts is not None:
        current = PostAcceptor(versions.newest).calendar.opening(int(time.time())).current
        if current <= closed_through(store):
            yield Diagnosis("clock", "wrong", "the last sealed cohort lies ahead of it", "Set the clock right.")
    if not known:
        yield Diagnosis(
            "clock", "skipped", "there is no other clock to compare it with", "Give --clock-peer https://…."
        )


def _database(store: Store) -> Iterator[Diagnosis]:
    from kanab.collector.stores.postgres import WEAKER_COMMITS, PostgresStore

    if not isinstance(store, PostgresStore):
        return
    settings = store.server_settings()
    for name, why in (
        ("fsync", "what was acknowledged can be lost in a crash"),
        ("full_page_writes", "a crash can damage pages"),
    ):
        if settings[name] == "off":
            yield Diagnosis("database", "wrong", f"{name} is off: {why}", f"Set {name} = on in postgresql.conf.")
    if (weak := settings["synchronous_commit"]) in WEAKER_COMMITS:
        yield Diagnosis("database", "warning", f"synchronous_commit is {weak}; collectors turn it on for themselves")
    waits = "waits for a synchronous standby" if settings["synchronous_standby_names"] else "waits for no standby"
    yield Diagnosis("database", "ok", f"PostgreSQL {settings['server_version']}; a commit {waits}")


def _backup(store: Store, path: str | None) -> Iterator[Diagnosis]:
    from kanab.collector.sealing import stored_ledger
    from kanab.privacy.ledger import read_ledger

    if path is None:
        yield Diagnosis("backup", "skipped", "no ledger is named", "Give --ledger FILE, as kanab export wrote it.")
        return
    try:
        exported, stored = read_ledger(path), stored_ledger(store)
    except KanabError as problem:
        yield Diagnosis("backup", "wrong", problem.fact, problem.remedy)
        return
    days = int((time.time() - Path(path).stat().st_mtime) // 86_400)
    age = "today" if days < 1 else f"{days} day{'s' if days > 1 else ''} ago"
    common = min(len(exported.hashes), len(stored.hashes))
    if exported.hashes[:common] != stored.hashes[:common]:
        yield Diagnosis("backup", "wrong", "the ledger is another store's", "Export again: kanab export.")
    elif len(exported.hashes) > common:
        yield Diagnosis(
            "backup", "wrong", "the ledger has batches that the store lost", "Put them back: kanab restore."
        )
    elif len(stored.hashes) > common:
        yield Diagnosis("backup", "warning", f"the ledger of {age} lacks the newest batches", "Run: kanab export.")
    else:
        yield Diagnosis("backup", "ok", f"the ledger of {age} has every batch")
