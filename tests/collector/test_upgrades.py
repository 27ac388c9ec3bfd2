"""Stores that kanab wrote in earlier formats go on with this one, exactly; test_stores.py has the later formats."""

import gzip
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from tests.collector.stores_of_before.make import LATER, numbered
from tests.collector.test_sealing import PLAN, cohort, people, posts, send

from kanab import count
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.sealing import seal_due, stored_ledger
from kanab.collector.stores.postgres import PostgresStore
from kanab.collector.stores.sqlite import SqliteStore

BEFORE = Path(__file__).with_name("stores_of_before")


@pytest.fixture
def unpacked(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Any]:
    """The key, and the file or the address of the database."""
    name = request.param
    (key := tmp_path / "data.key").write_bytes((BEFORE / f"{name}.key").read_bytes())
    key.chmod(0o600)
    if name.startswith("sqlite"):
        (path := tmp_path / "store.db").write_bytes(gzip.decompress((BEFORE / f"{name}.db.gz").read_bytes()))
        return key, path
    url = request.getfixturevalue("postgres_url")
    dump = gzip.decompress((BEFORE / f"{name}.sql.gz").read_bytes()).decode()
    with psycopg.connect(url, autocommit=True) as db:  # without the orders to psql
        db.execute("\n".join(line for line in dump.splitlines() if not line.startswith("\\")))  # type: ignore[call-overload]
    return key, url


def opened(place: Any) -> Any:
    return closing(SqliteStore(place) if isinstance(place, Path) else PostgresStore(place))


@pytest.mark.parametrize("unpacked", sorted(each.stem for each in BEFORE.glob("*.key")), indirect=True)
def test_a_store_of_an_earlier_format_goes_on_and_is_sealed_exactly(unpacked: tuple[Path, Any]) -> None:
    key, place = unpacked
    cipher = RecordCipher(Keyring.from_file(key))
    with opened(place) as store:
        store.claim(cipher.keyring.fingerprint)
        again = store.append(numbered(cipher), cipher.encrypt).outcomes
        assert again == ["duplicate"] * 100  # clients that heard nothing send again after the update
        send(store, cipher, posts(people(80, 3), "2026-W47"), LATER)
    with opened(place) as store:
        for week in store.sizes():
            store.compact(week, cipher.merge)
        (sealed,) = seal_due(store, cipher, Versions.read(store), cohort(LATER))
        first, second = stored_ledger(store).releases
        assert store.records() == []
    assert sealed.release is not None
    assert sealed.release.receipt.deleted == ()  # records of before were not numbered
    assert dict(first.tables) == count(people(120, 1), plan=PLAN).tallies
    open_, new = people(100, 2), people(80, 3)
    rows = {name: np.concatenate([open_[name], new[name]]) for name in new}
    assert dict(second.tables) == dict(sealed.release.tables) == count(rows, plan=PLAN).tallies
