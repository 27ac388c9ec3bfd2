"""Releases are verified as they are read; what was changed is named and skipped, what was moved raises an alarm."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.collector.http.conftest import NOON
from tests.unit.collector.http.conftest import RunningService as Collected
from tests.unit.dashboard.shop_releases import alone, entries, ledger_bytes, write

from kanab.collector.stores.sqlite import SqliteStore
from kanab.dashboard.release_sources import CollectorReleases, FileReleases
from kanab.dashboard.releases import RawSource, read_contents
from kanab.errors import LedgerError, SourceError, StoreError
from kanab.privacy.ledger import Ledger, LedgerNote, append_note, hold_ledger, read_ledger


def ledger(*lines: bytes, name: str = "kanab.ledger") -> RawSource:
    return RawSource(name, lines, ledger=True)


def changed(line: bytes, **other: Any) -> bytes:
    return json.dumps(json.loads(line) | other).encode()


def test_entries_are_shown_in_their_order_and_verified(tmp_path: Path) -> None:
    found = read_contents([ledger(*entries())])
    (tmp_path / "kanab.ledger").write_bytes(ledger_bytes())
    known = read_ledger(tmp_path / "kanab.ledger")
    assert list(found.releases) == [f"kanab.ledger, entry {number}" for number in (1, 2, 3)]
    chain = found.chains[0]
    assert isinstance(chain.ledger, Ledger)
    assert chain.ledger.hashes == known.hashes == tuple(chain.hashes.values())
    assert (found.alarms, found.skipped) == ((), ())


def test_equal_bytes_have_equal_digests_and_one_byte_makes_another() -> None:
    first, again = (read_contents([ledger(*entries())]) for _ in range(2))
    other = read_contents([ledger(*entries()[:2])])
    assert first.digest == again.digest != other.digest
    assert first.releases["kanab.ledger, entry 1"] is again.releases["kanab.ledger, entry 1"]  # verified once


@pytest.mark.parametrize("damage", [b"{}", b"nothing", b"[1]", None])
def test_a_changed_entry_is_named_and_skipped_and_the_others_stay(damage: bytes | None) -> None:
    lines = entries()
    lines[1] = changed(lines[1], plan_digest="0" * 64) if damage is None else damage
    found = read_contents([ledger(*lines)])
    assert list(found.releases) == ["kanab.ledger, entry 1", "kanab.ledger, entry 3"]
    assert [(one.name, one.says) for one in found.skipped] == [
        ("kanab.ledger, entry 2", "it has been changed. Take it from a backup.")
    ]
    assert found.alarms[0] == ("kanab.ledger, entry 2 is not shown: it has been changed. Take it from a backup.")
    assert isinstance(found.chains[0].ledger, LedgerError)


def test_a_removed_moved_or_doubled_entry_rings_and_nothing_is_hidden() -> None:
    lines = entries()
    for shown in ([lines[0], lines[2]], [lines[1], lines[0], lines[2]], lines[1:], [lines[0], *lines]):
        found = read_contents([ledger(*shown)])
        assert len(found.releases) == len(set(shown))  # nobody is counted twice
        assert found.chains[0].hashes.keys() == found.releases.keys()
        assert "does not follow the one before it: an entry was removed or moved. Take it from" in found.alarms[0]
        assert isinstance(found.chains[0].ledger, LedgerError)


def test_a_file_that_stands_in_the_ledger_is_one_release_under_the_files_name() -> None:
    found = read_contents([ledger(*entries()), RawSource("week37.release.json", (entries()[1],))])
    assert list(found.releases) == ["kanab.ledger, entry 1", "week37.release.json", "kanab.ledger, entry 3"]
    assert found.alarms == ()


def test_a_file_that_its_ledger_does_not_know_rings_and_is_shown() -> None:
    found = read_contents([ledger(*entries()[:2]), RawSource("week38.release.json", (entries()[2],))])
    assert found.alarms == (
        "week38.release.json is not in kanab.ledger: its entry was removed, or it belongs to another. "
        "Take it from a backup.",
    )
    assert list(found.releases)[-1] == "week38.release.json"


def test_releases_in_no_ledger_are_a_chain_of_their_own_and_shown_once() -> None:
    one, other = alone(), alone("banner")
    found = read_contents([RawSource("a.json", (one,)), RawSource("a.json", (other,)), RawSource("copy.json", (one,))])
    assert [(chain.name, list(chain.releases), chain.ledger) for chain in found.chains] == [
        ("", ["a.json", "a.json (2)"], None)
    ]


def seal(folder: Path, *batches: bytes) -> None:
    with closing(SqliteStore(folder / "store.db")) as store:
        for number, batch in enumerate(batches):
            store.seal(number, lambda *_, batch=batch: batch)  # type: ignore[misc]


def test_refused_attempts_are_in_the_chain_and_what_was_asked_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "kanab.ledger"
    path.write_bytes(ledger_bytes())
    with hold_ledger(path) as held:
        append_note(path, held, LedgerNote("refused", "other choices", {"where": "name = 'p7'"}))
    found = read_contents([ledger(*path.read_bytes().splitlines()[1:])])
    assert (found.alarms, found.skipped, len(found.releases)) == ((), (), 3)
    chain = found.chains[0].ledger
    assert isinstance(chain, Ledger)
    assert [(note.says, dict(note.asked)) for note in chain.notes] == [("other choices", {})]
    moved = read_contents([ledger(*entries()[:2], path.read_bytes().splitlines()[4])])
    assert "does not follow the one before it" in moved.alarms[0]


def test_what_is_no_release_is_named(tmp_path: Path) -> None:
    places = write(
        tmp_path, broken_release_json=b"{", other_json=b'{"name": "package"}', shop_json=alone(),
        short_ledger=ledger_bytes()[:-1], no_ledger=b"words", notes_txt=b"not looked at",
    )  # fmt: skip
    found = FileReleases(places, "store.db").read()
    assert {one.name: one.says for one in found.skipped} == {
        "broken.release.json": "it is not a release. Give a file that kanab release wrote.",
        "no.ledger": "it is not a ledger. Give one that kanab release wrote.",
        "short.ledger": "its end is missing. Take it from a backup.",
    }
    assert "shop.json" in found.releases
    assert len(found.releases) == 3  # two whole entries of the short ledger


def test_files_that_are_named_must_be_there_and_releases(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"there is no 'nothing\.json'"):
        FileReleases([tmp_path / "nothing.json"], "store.db")
    (tmp_path / "package.json").write_bytes(b"{}")
    found = FileReleases([tmp_path / "package.json"], "store.db").read()
    assert [one.name for one in found.skipped] == ["package.json"]


def test_the_ledger_beside_a_file_is_its_ledger(tmp_path: Path) -> None:
    write(tmp_path, kanab_ledger=ledger_bytes(), week_release_json=entries()[0])
    found = FileReleases([tmp_path / "week.release.json"], "store.db").read()
    assert [chain.name for chain in found.chains] == ["kanab.ledger"]
    assert next(iter(found.releases)) == "week.release.json"
    assert found.alarms == ()


def test_while_files_are_gone_what_was_read_before_is_shown_with_an_alarm(tmp_path: Path) -> None:
    (tmp_path / "releases").mkdir()
    write(tmp_path / "releases", kanab_ledger=ledger_bytes())
    source = FileReleases([tmp_path / "releases"], "store.db")
    before = source.read()
    (tmp_path / "releases" / "kanab.ledger").unlink()
    (tmp_path / "releases").rmdir()
    now = source.read()
    assert now.releases == before.releases
    assert now.alarms == ("Releases is gone. Put it back. What is shown was read earlier.",)
    assert source.status() is None


def test_a_data_directory_shows_its_sealed_batches(tmp_path: Path) -> None:
    seal(tmp_path, *entries())
    source = FileReleases([tmp_path], "store.db")
    assert list(source.read().releases) == [f"{tmp_path.name}, entry {number}" for number in (1, 2, 3)]
    assert source.read().alarms == ()
    assert source.status() is None  # no plan was recorded


def test_a_running_collector_is_a_source(running: Collected) -> None:
    source = CollectorReleases(running.service, lambda: running.now)
    assert (source.read().releases, source.read().alarms) == ({}, ())
    running.service.check_clock()
    collection = source.status()
    assert collection is not None
    assert collection.plan == running.service.plan
    assert str(collection.next_seal) == "2026-11-30 00:00:00+00:00"
    assert (collection.cohort, collection.problems) == ("2026-W46", ())
    assert collection.live is not None
    assert collection.live.people == {"checkout": {"A": 0, "B": 0}}
    assert collection.live.as_of == NOON


def test_a_store_that_is_gone_while_serving_rings_and_nothing_disappears(
    running: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = running.service.store
    monkeypatch.setattr(store, "sealed", entries)
    source = CollectorReleases(running.service, lambda: running.now)
    assert len(source.read().releases) == 3
    stood = source.status()

    def gone() -> Any:
        raise StoreError("the store cannot be opened", "Check the path and its permissions.")

    monkeypatch.setattr(store, "sealed", gone)
    monkeypatch.setattr(store, "versions", gone)
    now = source.read()
    assert len(now.releases) == 3
    assert now.alarms == (
        "The store cannot be opened. Check the path and its permissions. What is shown was read earlier.",
    )
    assert stood is not None
    assert source.status() == replace(stood, live=running.service.live)


def test_a_store_that_is_something_else_rings(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"words, and not a database at all " * 40)
    source = FileReleases([tmp_path], "store.db")
    assert "This file is not a store." in source.read().alarms[0]
    assert source.status() is None
