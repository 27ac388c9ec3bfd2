"""What a collector writes anywhere, searched byte by byte; and what the same search must find."""

import asyncio
import gzip
import hashlib
import json
import os
import random
import resource
import shutil
import socket
import sqlite3
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.closing import Keep
from tests.collector.collector_process import HOST, Place, Server
from tests.collector.leak_search import (
    Needles,
    address_forms,
    bytes_forms,
    number_forms,
    scan,
    text_forms,
    written_files,
)
from tests.collector.many_visitors import PLAN_TEXT as CROWD_PLAN
from tests.collector.many_visitors import Visitors, after_everything, cohort_label

from kanab.collector.counting.counters import pack
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import KeyChain, Keyring, read_key_file
from kanab.collector.protocol.nonces import make_nonce
from kanab.collector.stores.postgres import PostgresStore
from kanab.collector.stores.sqlite import SqliteStore
from kanab.collector.stores.store import Record
from kanab.errors import StoreError

PLAN_TEXT = """
k = 10
origins = ["https://shop.example"]
[cohorts]
every = "7d"
window = "7d"
[covariates]
tier = [1, 2, 3]
device = ["phone", "desktop"]
[metrics]
spend = { bounds = [0, 1000000000000], resolution = 0.001 }
[experiments.checkout]
arms = { A = 1, B = 1 }
adjust = ["tier", "device"]
"""
SCALE = 1000
PEOPLE = 60
HEADERS = ("Cookie", "User-Agent", "Referer", "X-Forwarded-For", "Authorization", "Accept-Language", "X-Request-Id")


@dataclass
class Planter:
    """Talks to a collector, and remembers everything that must not be found afterwards."""

    port: int
    needles: Needles = field(default_factory=Needles)
    sums: dict[str, int] = field(default_factory=dict)
    signatures: set[str] = field(default_factory=set)
    posts: int = 0
    behind_proxy: bool = False

    def __post_init__(self) -> None:
        self._rng = random.Random(5)

    def canary(self, what: str) -> str:
        """A text that is nowhere else."""
        text = f"cnry{self._rng.getrandbits(64):016x}"
        self.needles.add(what, text_forms(text))
        return text

    def address(self) -> str:
        """An address of this machine that nobody else uses."""
        found = f"127.{self._rng.randrange(100, 250)}.{self._rng.randrange(100, 250)}.{self._rng.randrange(100, 250)}"
        self.needles.add("address", address_forms(found))
        return found

    def send(self, data: bytes, address: str = "", *, ends: bool = True) -> bytes:
        """Bytes on a connection of their own, and whatever comes back; the sender may end before the answer."""
        with socket.create_connection((HOST, self.port), 5, (address or HOST, 0)) as line:
            answer = b""
            with suppress(OSError):
                line.sendall(data)
                if ends:
                    line.shutdown(socket.SHUT_WR)
                while piece := line.recv(65536):
                    answer += piece
            return answer

    def request(
        self,
        body: bytes,
        *,
        path: str = "/v1/t",
        method: str = "POST",
        headers: tuple[str, ...] = (),
        address: str = "",
    ) -> bytes:
        head = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", "Connection: close", *headers]
        return self.send("\r\n".join([*head, "", ""]).encode() + body, address, ends=False)

    # ── people ─────────────────────────────────────────────────────────────────────────────────

    def people(self) -> None:
        """Everybody posts, from an address and with headers of their own; no two values are alike."""
        for number in range(PEOPLE):
            arm, tier, device = "AB"[number % 2], number % 3 + 1, ("phone", "desktop")[number % 5 > 2]
            label = cohort_label(datetime.now(UTC))
            heads = [f"checkout/tier:{arm}:{tier}@{label}", f"checkout/device:{arm}:{device}@{label}"]
            first, second = (self._rng.randrange(2**49, 10**15) for _ in range(2))
            began, went_on = f"0>{first / SCALE:.3f}", f"{first / SCALE:.3f}>{second / SCALE:.3f}"
            self._person([*heads, *(f"{head}:spend:{began}" for head in heads)], arm, (tier, device), [0, first])
            self._person([f"{head}:spend:{went_on}" for head in heads], arm, (tier, device), [first, second])
            self.signatures.add(signature := f"checkout/*|{arm}:{device}:{tier}|n")
            self.needles.add("signature", text_forms(signature) | text_forms(f"{arm}:{device}:{tier}"))

    def _person(self, lines: list[str], arm: str, levels: tuple[int, str], moved: list[int]) -> None:
        nonce = make_nonce()
        headers = tuple(f"{name}: {self.canary(name)}" for name in HEADERS)
        if self.behind_proxy:
            headers += (f"X-Forwarded-For: {self.address()}",)
        body = "\n".join([f"kanab/1 {nonce}", *lines, ""]).encode()
        answer = self.request(body, headers=headers, address=self.address())
        assert b" 204 " in answer.split(b"\r\n")[0]
        self.posts += 1
        self.needles.add("nonce", text_forms(nonce) | bytes_forms(bytes.fromhex(nonce)))
        old, new = moved
        self.needles.add("value", number_forms(new, SCALE))
        self.needles.add("difference", number_forms(abs(new - old), SCALE))
        places = [(f"{arm}:{level}", new - old) for level in levels]
        for place, by in (*places, (f"squares of {arm}", new * new - old * old)):
            self.sums[place] = self.sums.get(place, 0) + by
            self.needles.add(f"sum of {place}", number_forms(self.sums[place], SCALE))

    # ── nonsense ───────────────────────────────────────────────────────────────────────────────

    def nonsense(self) -> None:
        """Identifiers in every place where a mistake, a proxy or an attacker may put them."""
        mark, label = self.canary, cohort_label(datetime.now(UTC))
        fine, head = f"kanab/1 {make_nonce()}\n", f"checkout/tier:A:1@{label}"
        bodies = [
            mark("whole body"), f"kanab/1 {mark('nonce place')}\n{head}\n", f"{fine}{mark('line')}\n",
            f"{fine}{mark('experiment')}/tier:A:1@{label}\n", f"{fine}checkout/{mark('covariate')}:A:1@{label}\n",
            f"{fine}checkout/tier:{mark('arm')}:1@{label}\n", f"{fine}checkout/tier:A:{mark('level')}@{label}\n",
            f"{fine}checkout/tier:A:1@{mark('label')}\n", f"{fine}{head}:{mark('metric')}:0>1\n",
            f"{fine}{head}:spend:0>{mark('number')}\n", f"{fine}{head}\n{mark('second line')}\n",
            f"{fine}{head}\n" + mark("oversized") * 2000, f"\x00{mark('control character')}\n",
        ]  # fmt: skip
        for body in bodies:
            self._answered(self.request(body.encode()))
        self._answered(self.request(b"\xff" + mark("not UTF-8").encode()))
        kinds = (mark("type"), "application/json", "multipart/form-data; boundary=" + mark("boundary"))
        for kind in kinds:
            body = f'{{"kanab": 1, "{mark("JSON name")}": "{mark("JSON value")}"}}'
            self._answered(self.request(body.encode(), headers=(f"Content-Type: {kind}",)))
        for path in (
            f"/{mark('path')}",
            f"/v1/config/{mark('digest')}.json",
            f"/v1/t/{mark('tail')}",
            f"/%00{mark('x')}",
        ):
            self._answered(self.request(b"", method="GET", path=path))
        self._answered(self.request(fine.encode(), headers=(f"Origin: https://{mark('origin')}.example",)))
        self._answered(self.request(b"", path=f"/v1/t?id={mark('query')}#{mark('fragment')}"))
        self._answered(self.request(b"", headers=(f"{mark('header name')}: 1", f"Host: {mark('host')}")))
        self._answered(self.request(b"", headers=(f"Content-Length: {mark('length')}",)))
        self._answered(self.request(b"", headers=("Connection: upgrade", f"Upgrade: {mark('upgrade')}")))
        self._answered(self.request(b"", method="BREW", path=f"/{mark('method')}"))
        self._refused(self.send(f"{mark('no HTTP')}\r\n\r\n".encode()))
        self._refused(self.send(f"POST /v1/t HTTP/1.1\r\nHost: x\r\n{mark('half a head')}".encode()))
        self._refused(self.send(f"POST /v1/t HTTP/1.1\r\nContent-Length: 900\r\n\r\n{mark('half a body')}".encode()))
        chunks = f"5\r\nkanab\r\n0\r\n{mark('trailer')}: 1\r\n\r\n"
        self._refused(self.send(f"POST /v1/t HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}".encode()))
        self._refused(self.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + mark("TLS").encode()))
        self._refused(self.send(f"GET /{mark('huge head')} HTTP/1.1\r\nX: {mark('huge') * 4000}\r\n\r\n".encode()))

    def _answered(self, answer: bytes) -> None:
        assert answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 204"))
        self._refused(answer)

    def _refused(self, answer: bytes) -> None:
        assert b" 500 " not in answer.split(b"\r\n")[0]
        assert b"cnry" not in answer.lower()


@pytest.fixture
def canary_place(place: Place) -> Place:
    place.plan(PLAN_TEXT)
    return place


def _embedded(place: Place, *more: str) -> Server:
    return Server(place, "--plan", place.root / "kanab.toml", "--data", place.data, *more, fresh=True)


def _cipher(place: Place) -> RecordCipher:
    return RecordCipher(Keyring.from_file(place.key))


def _plaintext(cipher: RecordCipher, records: list[Record]) -> dict[str, bytes]:
    """Every eight bytes of what the cipher hold, as far as names of counters, and so their values, are in them."""
    texts = {pack(cipher.decrypt(record.cohort, record.ciphertext)) for record in records}
    windows = {text[at : at + 8] for text in texts for at in range(len(text) - 7)}
    return {f"box {window!r}": window for window in windows if b"|" in window}


def test_nothing_that_was_sent_is_on_disk_when_the_collector_is_killed(canary_place: Place, closing: Keep) -> None:
    server = closing(_embedded(canary_place, "--trust", "127.0.0.0/8")).start()  # so that visitors' addresses are read
    planter = Planter(server.port, behind_proxy=True)
    planter.people()
    planter.nonsense()
    outside = [name for name in written_files(server.pid) if not name.startswith(str(canary_place.root))]
    assert outside == []  # what is searched is all that it has open
    found = scan(canary_place.root, planter.needles, server.pid)
    server.kill()
    assert len(planter.needles) > 30_000
    assert found == {}
    assert scan(canary_place.root, planter.needles) == {}
    assert server.stderr.count("\n") <= 3  # where the key is, where it listens
    assert (canary_place.root / "server.out").read_bytes() == b""

    store, cipher = SqliteStore(canary_place.data / "store.db"), _cipher(canary_place)
    records = store.records()
    store.close()
    clear = Needles()
    clear.add("plaintext", _plaintext(cipher, records))
    assert len(clear) > 100
    assert scan(canary_place.root, clear) == {}
    assert {len(record.ciphertext) for record in records} == {4042}  # and lengths tell nothing either
    total = cipher.genuine(records).counters
    assert len(records) == planter.posts  # each was a commit of its own, and each of its pages was searched
    assert {f"{key.split('|')[1]}": value for key, value in total.items() if key.endswith("spend|s")} == {
        place: value for place, value in planter.sums.items() if "squares" not in place
    }
    assert {key for key in total if "/*|" in key} == planter.signatures  # they are there, and not in clear


def test_the_log_of_a_busy_attacked_and_failing_collector_holds_nothing_that_was_sent(
    canary_place: Place, closing: Keep
) -> None:
    options = ("--plan", canary_place.root / "kanab.toml", "--data", canary_place.data, "--log", "json")
    server = closing(Server(canary_place, *options)).start()
    planter = Planter(server.port)
    planter.people()
    _, hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (4096, hard))  # nothing may be written after the first page
    label = cohort_label(datetime.now(UTC))
    lines = f"checkout/tier:A:1@{label}", f"checkout/device:A:phone@{label}"
    assert b" 503 " in planter.request("\n".join([f"kanab/1 {make_nonce()}", *lines, ""]).encode())
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (hard, hard))
    planter.nonsense()
    server.stop()
    told = [json.loads(line) for line in server.stderr.splitlines()]
    assert {tuple(line) for line in told} == {("time", "level", "message")}
    assert [line["level"] for line in told] == ["info", "info", "error"]  # a new key, where it listens, the disk
    assert planter.needles.found_in(server.stderr.encode()) == [set()]


def test_a_database_and_its_log_hold_nothing_that_was_sent(
    canary_place: Place, postgres_server: Any, postgres_url: str, closing: Keep
) -> None:
    Keyring.create(canary_place.key)
    options = ("--plan", canary_place.root / "kanab.toml", "--store", postgres_url, "--key", canary_place.key)
    server = closing(Server(canary_place, *options)).start()
    planter = Planter(server.port)
    planter.people()
    planter.nonsense()
    server.kill()
    store = PostgresStore(postgres_url)
    records = store.records()
    store.close()
    assert len(records) == planter.posts
    planter.needles.add("plaintext", _plaintext(_cipher(canary_place), records))
    assert scan(canary_place.root, planter.needles) == {}
    assert scan(Path(postgres_server.pgdata), planter.needles) == {}


# ── after a seal ───────────────────────────────────────────────────────────────────────────────


def _through(place: Place) -> int:
    store = SqliteStore(place.data / "store.db")
    found = store.sealed_through()
    store.close()
    return found


def _keys(link: KeyChain, through: int) -> Needles:
    """Every state and key with which a record of a cohort through this one could be read."""
    needles, chain = Needles(), link
    while chain.period <= through:
        for what, secret in (("state", chain.state), ("key", chain.key(chain.period))):
            needles.add(f"{what} {chain.period}", bytes_forms(secret))
        chain = chain.forward(chain.period + 1)
    return needles


def test_after_a_seal_nothing_left_on_the_machine_opens_a_record(place: Place, tmp_path: Path, closing: Keep) -> None:
    plan = place.plan(CROWD_PLAN)
    server = closing(Server(place, "--plan", plan, "--data", place.data)).start()
    visitors = Visitors(6)
    asyncio.run(visitors.for_a_while([server.port], 1.0))
    server.kill()

    stolen = tmp_path / "stolen"  # a backup from before the seal, with the key
    shutil.copytree(place.data, stolen / "data")
    shutil.copy(place.key, stolen / "data.key")
    store = SqliteStore(stolen / "data" / "store.db")
    records = store.records()
    store.close()
    thief = RecordCipher(Keyring.from_file(stolen / "data.key"))
    opened = [thief.decrypt(*record) for record in records]  # one may hold changes that come to nothing
    assert any(opened)

    assert place.run("seal", "--plan", plan, "--data", place.data, "--as-of", after_everything()).code == 0
    server.start(healthy=False)  # the rehearsed seal lies ahead of its clock
    server.kill()
    left = _cipher(place)
    for record in records:
        with pytest.raises(StoreError, match="the key of a cohort has been erased"):
            left.decrypt(*record)
    secrets = _keys(read_key_file(stolen / "data.key"), _through(place))
    assert scan(place.root, secrets) == {}
    ciphertext = Needles()
    ciphertext.add("record", {str(number): record.ciphertext[1:33] for number, record in enumerate(records)})
    assert scan(place.root, ciphertext) == {}  # not even the records themselves are left
    assert set.union(*scan(stolen, ciphertext).values()) == ciphertext.names()
    assert "state 0 (hex)" in scan(stolen, secrets)["data.key"]  # the search would have found them


# ── positive control ───────────────────────────────────────────────────────────────────────────


def test_the_same_search_finds_what_is_written_anywhere(tmp_path: Path) -> None:
    """In plain, encoded, hashed, compressed, in a database's log, in a name, in a deleted file that is still open."""
    needles, text, steps = Needles(), "somebody@example.org", 987_654_321_012
    needles.add("text", text_forms(text))
    needles.add("number", number_forms(steps, SCALE))
    (tmp_path / "plain").write_text(f"GET / by {text}")
    (tmp_path / "wide").write_bytes(text.encode("utf-16-le"))
    (tmp_path / "hash").write_text(hashlib.sha256(text.encode()).hexdigest())
    (tmp_path / "body.gz").write_bytes(gzip.compress(f"spend:0>{steps / SCALE:.3f}".encode()))
    (tmp_path / text).touch()
    db = sqlite3.connect(tmp_path / "data.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE sums (s INTEGER)")
    db.execute("INSERT INTO sums VALUES (?)", (steps,))
    with tempfile.TemporaryFile(dir=tmp_path) as held:
        held.write(text.encode())
        held.flush()
        found = scan(tmp_path, needles, os.getpid())
    db.close()
    assert {"plain", "wide", "hash", "body.gz", "data.db-wal", "names of files"} <= found.keys()
    assert {"text (utf-8)", "text (utf-16-le)"} <= found["plain"] | found["wide"]
    assert any(name.startswith("held open") and "deleted" in name for name in found)


def test_the_search_finds_every_form_it_knows_wherever_it_stands() -> None:
    needles = Needles()
    forms = number_forms(987_654_321_012, SCALE) | text_forms("somebody@example.org") | address_forms("127.201.7.45")
    needles.add("it", forms)
    rng, cases = random.Random(1), []
    for how, form in forms.items():
        if len(form) >= 5:
            for length in (0, 1, 4097):
                cases.append((how, rng.randbytes(length) + form + rng.randbytes(100)))
    found = needles.found_in(*(case for _, case in cases))
    assert [how for (how, _), hits in zip(cases, found, strict=True) if not hits] == []
    assert needles.found_in(rng.randbytes(1 << 22), bytes(1 << 16)) == [set(), set()]
