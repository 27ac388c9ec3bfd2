"""What operators see of a collector, and of one with which something is really wrong."""

import json
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psycopg
import pytest
from tests.collector.collector_process import HOST, ForkServer, Place, Server, every_file
from tests.collector.many_visitors import PLAN_TEXT, Visitors
from tests.collector.test_read_only import begun
from tests.unit.collector.test_clock import web_server

from kanab.collector.keys.keyring import Keyring
from kanab.collector.stores import sqlite as sqlitestore
from kanab.collector.stores.sqlite import SqliteStore


@pytest.fixture(scope="module")
def collecting(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> Iterator[Server]:
    place = Place(tmp_path_factory.mktemp("collecting") / "place", fork_server)
    server = Server(place, "--plan", place.plan(PLAN_TEXT), "--data", place.data).start()
    visitors = Visitors(41)
    for _ in range(12):
        assert server.post(visitors.next_post(visitors.join()).body) == 204
    yield server
    server.close()


@pytest.fixture
def place(collecting: Server, tmp_path: Path) -> Place:
    """A copy of what it has, to break."""
    shutil.copytree(collecting.place.root, tmp_path / "place")
    return Place(tmp_path / "place", collecting.place.fork_server)


def found(place: Place, *words: str | Path) -> tuple[int, dict[str, list[dict[str, str]]]]:
    """The exit code of the doctor, and what it says by what it is about."""
    words = words or ("--plan", place.root / "kanab.toml", "--data", place.data)
    done = place.run("doctor", *words, "--json")
    by_name: dict[str, list[dict[str, str]]] = {}
    for diagnosis in json.loads(done.out)["findings"]:
        by_name.setdefault(diagnosis["about"], []).append(diagnosis)
    return done.code, by_name


def says(diagnoses: list[dict[str, str]], state: str) -> str:
    return " ".join(each["says"] + ". " + each["remedy"] for each in diagnoses if each["state"] == state)


def test_status_tells_plan_cohorts_and_seals_and_nothing_about_people(collecting: Server) -> None:
    place, url = collecting.place, f"http://{HOST}:{collecting.port}"
    before = {path: data for path, data in every_file(place.data).items() if path.name == "store.db"}
    done = place.run("status", "--data", place.data, "--url", url)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "ready"
    assert any(line.startswith("plan: version 1, ") and line.endswith(": checkout, banner") for line in lines)
    assert {"epoch: the first", "ledger: 0 batches, 0 entries", "sealed through: nothing yet"} <= set(lines)
    assert any(": enrolling, ripe on " in line for line in lines)
    plain = json.loads(place.run("status", "--data", place.data, "--url", url, "--json").out)
    assert plain["collector"]["ready"] is True
    assert [cohort["state"] for cohort in plain["store"]["cohorts"]] == ["enrolling"]
    assert plain["store"]["people"] == {}  # nothing is sealed
    assert "12" not in {str(value) for value in plain["collector"]["figures"].values()}
    assert {path: path.read_bytes() for path in before} == before


def test_status_of_nobody_is_one_line(collecting: Server) -> None:
    done = collecting.place.run("status", "--url", f"http://{HOST}:1")
    assert (done.code, done.err) == (
        2, "kanab: the collector does not answer. Check its address (--url), and that it runs.\n",
    )  # fmt: skip
    assert "where the store is kept is not said" in collecting.place.run("status").err


def test_a_healthy_collector_has_nothing_wrong(collecting: Server) -> None:
    code, diagnoses = found(collecting.place)
    assert code == 0, diagnoses
    assert {"versions", "disk", "permissions", "store", "ledger", "plan", "key", "clock", "backup"} <= set(diagnoses)
    assert all(each["state"] == "ok" for about in ("store", "plan", "key", "ledger") for each in diagnoses[about])
    assert "ok       key: it is there" in collecting.place.run("doctor", "--data", collecting.place.data).out


def test_the_doctor_sees_a_key_that_others_read_that_is_anothers_or_none(place: Place) -> None:
    place.key.chmod(0o644)
    code, diagnoses = found(place)
    assert (code, says(diagnoses["key"], "wrong")) == (
        1,
        "others may read the key file 'data.key'. Run: chmod 600 data.key",
    )
    Keyring.create(other := place.root / "other.key")
    before = other.read_bytes()
    _, diagnoses = found(place, "--data", place.data, "--key", other)
    assert "it is not the key of this store" in says(diagnoses["key"], "wrong")
    assert other.read_bytes() == before
    place.key.unlink()
    assert "No such file" in says(found(place)[1]["key"], "wrong")
    shutil.copy(other, place.data / "inside.key")
    _, diagnoses = found(place, "--data", place.data, "--key", place.data / "inside.key")
    assert "the key file lies in the data directory" in says(diagnoses["key"], "wrong")


def test_the_doctor_sees_a_plan_that_cannot_follow_and_one_that_would(place: Place) -> None:
    place.plan(PLAN_TEXT.replace("600", "700"))
    code, diagnoses = found(place)
    assert (code, "metrics.minutes.bounds may not change" in says(diagnoses["plan"], "wrong")) == (1, True)
    place.plan(PLAN_TEXT + "\n[experiments.menu]\narms = { short = 1, long = 1 }\n")
    code, diagnoses = found(place)
    assert code == 0
    assert "the file would become version 2" in says(diagnoses["plan"], "warning")


def test_the_token_is_sent_to_no_other_host(place: Place) -> None:
    sent: list[str | None] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent.append(self.headers["Authorization"])
            self.send_response_only(200)
            self.end_headers()

    class Leading(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response_only(302)
            self.send_header("Location", f"http://{HOST}:{elsewhere.server_port}/readyz")
            self.end_headers()

    with HTTPServer((HOST, 0), Elsewhere) as elsewhere, HTTPServer((HOST, 0), Leading) as leading:
        for server in (elsewhere, leading):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        place.variables = {"KANAB_TOKEN": "a long random text"}
        done = place.run("status", "--url", f"http://{HOST}:{leading.server_port}")
        place.variables["http_proxy"] = f"http://{HOST}:{elsewhere.server_port}"
        past = place.run("status", "--url", f"http://{HOST}:{leading.server_port}")
        for server in (elsewhere, leading):
            server.shutdown()
    assert sent == []
    assert (done.code, "leads elsewhere" in done.err) == (past.code, "leads elsewhere" in past.err) == (2, True)


def test_the_doctor_sees_an_open_folder_older_tables_and_a_damaged_store(place: Place) -> None:
    place.data.chmod(0o755)
    (place.data / "store.db").unlink()
    for end in ("-wal", "-shm"):
        (place.data / f"store.db{end}").unlink(missing_ok=True)
    with sqlite3.connect(place.data / "store.db") as db:
        db.executescript(sqlitestore._MIGRATIONS[0])
        db.execute(f"PRAGMA application_id = {sqlitestore._MARK}")
        db.execute("PRAGMA user_version = 1")
    db.close()
    _, diagnoses = found(place)
    assert "others may look into the data directory" in says(diagnoses["permissions"], "warning")
    assert "its tables are of an older kanab. Start the collector once" in says(diagnoses["store"], "warning")
    (place.data / "store.db").write_bytes(b"letters " * 1000)
    code, diagnoses = found(place)
    assert (code, "this file is not a store" in says(diagnoses["store"], "wrong")) == (1, True)


def test_the_doctor_sees_a_clock_that_another_one_contradicts(place: Place) -> None:
    late = ("Date", format_datetime(datetime.now(UTC) - timedelta(hours=2), usegmt=True))
    with web_server(late) as peer:
        code, diagnoses = found(place, "--data", place.data, "--clock-peer", peer)
    assert (code, "it differs from that of http" in says(diagnoses["clock"], "wrong")) == (1, True)


def test_the_doctor_sees_a_backup_that_lacks_a_batch_and_one_of_another_store(place: Place, tmp_path: Path) -> None:
    for name in ("a", "b"):
        begun(SqliteStore(tmp_path / name / "store.db")).close()
    ledger = tmp_path / "kanab.ledger"
    assert place.run("export", "--data", tmp_path / "a", "-o", ledger).code == 0
    backup = found(place, "--data", tmp_path / "a", "--ledger", ledger)[1]["backup"]
    assert says(backup, "ok").startswith("the ledger of today has every batch")
    other = found(place, "--data", tmp_path / "b", "--ledger", ledger)[1]["backup"]
    assert "the ledger is another store's" in says(other, "wrong")
    lost = found(place, "--ledger", ledger, "--data", place.data)[1]["backup"]
    assert "the ledger has batches that the store lost. Put them back: kanab restore" in says(lost, "wrong")


def test_the_doctor_sees_settings_of_a_database_that_lose_what_was_acknowledged(
    collecting: Server, postgres_url: str
) -> None:
    place = collecting.place
    (key := place.root / "shared.key").unlink(missing_ok=True)
    server = Server(place, "--plan", place.root / "kanab.toml", "--store", postgres_url, "--key", key, name="shared")
    server.start()
    server.kill()
    words = ("--store", postgres_url, "--key", key)
    assert found(place, *words)[0] == 0
    with psycopg.connect(postgres_url, autocommit=True) as db:
        for setting in ("full_page_writes = off", "synchronous_commit = local"):
            db.execute(f"ALTER SYSTEM SET {setting}")
        db.execute("SELECT pg_reload_conf()")
        try:
            code, diagnoses = found(place, *words)
        finally:
            db.execute("ALTER SYSTEM RESET ALL")
            db.execute("SELECT pg_reload_conf()")
    assert (code, "full_page_writes is off" in says(diagnoses["database"], "wrong")) == (1, True)
    assert says(diagnoses["database"], "warning").startswith("synchronous_commit is local; collectors turn it on")
    assert "; a commit waits for no standby" in says(diagnoses["database"], "ok")
    assert says(diagnoses["clock"], "ok").startswith("it agrees with that of the database")
