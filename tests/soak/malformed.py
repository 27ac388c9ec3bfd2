"""Millions of requests that are almost right: each is answered from a closed list, and honest people are counted."""

import asyncio
import json
import random
import re
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.collector.collector_process import HOST, ForkServer, Place, Server
from tests.collector.many_visitors import PLAN_TEXT, Visitors, collected, this_week

from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.protocol.nonces import make_nonce
from kanab.collector.stores.sqlite import SqliteStore

CONNECTIONS, AT_ONCE, IN_A_POOL = 16, 40, 2_000
"""Connections; requests that one of them sends before it reads; requests that are made up at a time."""


SPY = "qzvxkwjy"
"""In everything that is sent, and in nothing that is answered."""

STATUSES = {100, 200, 204, 307, 400, 403, 404, 405, 410, 413, 429, 503}
MOST_GROWTH = 60 * 2**20

NAMES = ["checkout", "checkout/tier", "checkout/device", "banner", "banner/checkout", SPY, "", "/", "%"]
FIRST = ["A", "B", "on", "off", "1", "3", "phone", SPY, "", "%41", "%zz", "é", "\x00", "-0"]
SECOND = ["1", "2", "3.0", "phone", "A", SPY, "nan", "1e3", "٣"]
LABELS = ["2026-W99", "0000-W00", "9999-W52", SPY, "", "2026-11-15", "٢٠٢٦-W46"]
TOTALS = [
    "0>4", "4>0", ">4", "0>", "1e308>1e309", "nan>inf", "0>1e-320", "0/0>3/1", "--1>2", f"{SPY}>1", "0>" + "9" * 400,
    "1_0>2", "0>0x10", "٣>٤",
]  # fmt: skip
KINDS = [b"text/plain", b"text/plain; charset=utf-8", b"application/json", b"TEXT/PLAIN ;x", b"", SPY.encode(), b"\xff"]
TAILS = ["", "/", SPY, "config.json", f"config/{SPY}.json", "config/.json", "t", "T", "../metrics", "t\x00", "é"]
OTHERS = [b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n", b"Upgrade: h2c\r\n", b": \r\n"]


class Fuzz:
    """Requests that are almost right, and some that are not at all."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.label = this_week()

    def body(self) -> bytes:
        rng = self.rng
        kind = rng.random()
        if kind < 0.1:
            return rng.randbytes(rng.choice([0, 1, 7, 100, 3000])) + SPY.encode()
        if kind < 0.3:
            return self._json()
        text = f"kanab/1 {self._nonce()}\n" + "\n".join(self._line() for _ in range(rng.choice([0, 1, 1, 2, 4, 101])))
        return self._bent(text.encode("utf-8", "surrogatepass"))

    def _nonce(self) -> str:
        rng, fine = self.rng, make_nonce()
        return rng.choice(
            [fine, fine, fine, fine[:-1], fine + "0", "f" * 32, "0" * 32, "٣" * 32, SPY, "", fine.upper()]
        )

    def _line(self) -> str:
        choice = self.rng.choice
        levels = [choice(FIRST), *[choice(SECOND)] * choice([0, 1, 1, 2])]
        total = choice(TOTALS)
        metric = choice(
            ["", f":minutes:{total}", f":bought:{total}", f":{SPY}:{total}", f":minutes/bought:{total}", ":>"]
        )
        return f"{choice(NAMES)}:{':'.join(levels)}@{choice([self.label] * 6 + LABELS)}{metric}"

    def _json(self) -> bytes:
        rng = self.rng
        value: Any = {"kanab": 1, "nonce": self._nonce(), "messages": [
            {"linkage": ["checkout", "tier"], "levels": ["A", rng.choice([1, 1.5, None, True, SPY, 10**400, [], {}])],
             "cohort": rng.choice([self.label, SPY, None, 5]), "metric": rng.choice([None, "minutes", SPY]),
             "old": rng.choice([None, 0, 1e300, [0, 0]]), "new": rng.choice([None, 4, "4", [1, 2]])}
        ]}  # fmt: skip
        if rng.random() < 0.3:
            value[rng.choice([SPY, "messages", "nonce", "kanab"])] = rng.choice([SPY, None, 2, [[]], {SPY: SPY}])
        return self._bent(json.dumps(value).encode())

    def _bent(self, data: bytes) -> bytes:
        """Some bytes are changed, lost, doubled or new."""
        rng, bent = self.rng, bytearray(data)
        for _ in range(rng.choice([0, 0, 1, 1, 3])):
            at = rng.randrange(len(bent) + 1)
            how = rng.random()
            if how < 0.3 and at < len(bent):
                bent[at] = rng.randrange(256)
            elif how < 0.5:
                del bent[at : at + rng.choice([1, 5, 50])]
            elif how < 0.7:
                bent[at:at] = rng.choice([SPY.encode(), b"\n", b":", b">", b"@", b"%", b"\xff", b"\x00", b"/", b"\r\n"])
            elif how < 0.75:
                bent *= rng.choice([2, 40])
        return bytes(bent)

    def path(self) -> str:
        return self.rng.choice(["/v1/", "/", "//", "/v1//", ""]) + self.rng.choice(TAILS)


def write_request(fuzz: Fuzz) -> tuple[bytes, bool]:
    """Return a request, and whether it is whole: usually a post with a wrong body, sometimes wrong HTTP."""
    rng, body = fuzz.rng, fuzz.body()
    if rng.random() < 0.02:
        length = b"Content-Length: %d\r\n" % len(body)
        head = b"POST /v1/t HTTP/1.%s\r\nHost: x\r\n%s" % (
            rng.choice([b"1", b"0", b"x"]),
            rng.choice([*OTHERS, length]),
        )
        return fuzz._bent(head + b"\r\n") + body, False
    plain = rng.random() < 0.9
    method = b"POST" if plain else rng.choice([b"GET", b"HEAD", b"PUT", b"OPTIONS", b"DELETE"])
    path = b"/v1/t" if plain else fuzz.path().encode("utf-8", "replace").replace(b"\x00", b"%00") or b"/"
    kind = rng.choice([b"text/plain", b"application/json", SPY.encode(), b""])
    head = b"%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nCookie: %s\r\nContent-Length: %d\r\n\r\n"
    return head % (method, path, kind, SPY.encode(), len(body)) + body, True


async def _send_many(
    port: int, seed: int, until: float, left: list[int], statuses: Counter[str], words: set[bytes]
) -> None:
    """Send requests over one connection after the other, up to ``AT_ONCE`` before their answers are read."""
    fuzz, rng = Fuzz(seed), random.Random(seed)
    wire: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    while left[0] > 0 and time.monotonic() < until:
        pool = [write_request(fuzz) for _ in range(IN_A_POOL)]
        for _ in range(IN_A_POOL):
            batch = rng.choices(pool, k=rng.choice([1, 1, 5, AT_ONCE]))
            if not all(whole for _, whole in batch):
                batch = [next(request for request in batch if not request[1])]
            left[0] -= len(batch)
            try:
                wire = wire or await asyncio.open_connection(HOST, port)
                wire[1].write(b"".join(request for request, _ in batch))
                answered = 0
                async with asyncio.timeout(30 if batch[0][1] else 0.05):  # half a request may wait for its other half
                    for request, _ in batch:
                        stays = await _answer(wire[0], statuses, words, head_only=request.startswith(b"HEAD"))
                        answered += 1
                        if not stays or not batch[0][1]:  # more than one answer may come to what is no request
                            raise ConnectionResetError
            except (OSError, asyncio.IncompleteReadError, TimeoutError):
                statuses["closed"] += answered == 0
                left[0] += len(batch) - max(answered, 1)
                if wire is not None:
                    wire[1].transport.abort()
                wire = None
            if left[0] <= 0 or time.monotonic() > until:
                break
    if wire is not None:
        wire[1].transport.abort()


async def _answer(reader: asyncio.StreamReader, statuses: Counter[str], words: set[bytes], *, head_only: bool) -> bool:
    """Read an answer, and return whether the connection stays open after it."""
    head = await reader.readuntil(b"\r\n\r\n")
    statuses[head[9:12].decode()] += 1
    lines = head.lower().split(b"\r\n")
    length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
    body = await reader.readexactly(length) if length and not head_only else b""
    assert SPY.encode() not in head + body, "an answer repeats what was sent"
    if lines[0].startswith(b"http/1.1 4") or lines[0].startswith(b"http/1.1 5"):
        words.add(re.sub(rb"\d+", b"0", body)[:300])
    return b"connection: close" not in lines


def send_malformed(
    folder: Path, requests: int, seconds: float = 1e9, seed: int = 5, variables: Mapping[str, str] | None = None
) -> str:
    """Send so many requests while a few honest people are counted; memory stays, answers are from the list."""
    fork_server = ForkServer()
    place = Place(folder / "malformed", fork_server, variables or {})
    server = Server(place, "--plan", place.plan(PLAN_TEXT), "--data", place.data).start()
    statuses, words = Counter[str](), set[bytes]()
    visitors = Visitors(seed)
    left, memory = [requests], [0, 0]

    async def everything() -> None:
        stop = asyncio.Event()
        honest = asyncio.create_task(_honest(visitors, server.port, stop))
        until = time.monotonic() + seconds
        sending = [
            asyncio.create_task(_send_many(server.port, seed * 100 + number, until, left, statuses, words))
            for number in range(CONNECTIONS)
        ]
        while left[0] > requests * 9 // 10 and time.monotonic() < until:
            await asyncio.sleep(0.2)
        memory[0] = server.memory()
        await asyncio.gather(*sending)
        memory[1] = server.memory()
        stop.set()
        await honest
        await visitors.finish([server.port])

    asyncio.run(everything())
    assert server.ask("GET", "/livez")[0] == 200
    assert server.stop() == 0
    assert "Traceback" not in server.stderr, server.stderr
    assert SPY not in server.stderr, "the log repeats what was sent"
    known = {str(status) for status in STATUSES} | {"closed"}
    assert set(statuses) <= known, statuses
    assert statuses["400"] > sum(statuses.values()) // 4, statuses
    assert len(words) < 60, "answers are a closed list of sentences"
    assert not any(b"cannot write" in answer for answer in words), "a mistake of the program was covered up"
    assert memory[1] - memory[0] < MOST_GROWTH, "memory grows"
    store = SqliteStore(place.data / "store.db")
    counted = collected(store, RecordCipher(Keyring.from_file(place.key)))
    store.close()
    fork_server.close()
    truth = visitors.tallies()
    people = {name: int(tally.total) for name, tally in counted.items()}
    assert all(people[name] >= tally.total for name, tally in truth.items()), "honest people are missing"
    answers = ", ".join(f"{status} {number:,}" for status, number in sorted(statuses.items()))
    return f"{sum(statuses.values()):,} answered ({answers}); memory {(memory[1] - memory[0]) / 2**20:+.0f} MB"


async def _honest(visitors: Visitors, port: int, stop: asyncio.Event) -> None:
    """Let somebody post now and then: the tables that are checked at the end should stay small."""
    while not stop.is_set():
        await visitors.for_a_while([port], 1, most=5)
        await asyncio.sleep(1)
