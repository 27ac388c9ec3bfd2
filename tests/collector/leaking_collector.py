"""A collector as one would write it, which leaks in every way that is known: the search must find all of it.

A script: ``leaking_collector.py PORT`` in a folder of its own. Never imitate it.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import sqlite3
import struct
import sys
import tempfile
import zlib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import IO
from urllib.parse import quote

SCALE = 1000
_COUNT = "INSERT INTO sums VALUES (?1, 1, ?2) ON CONFLICT DO UPDATE SET n = n + 1, s = s + ?2"


def append(path: Path | str, data: bytes) -> None:
    with Path(path).open("ab") as file:
        file.write(data + b"\n")


class Leaks:
    """Where everything goes."""

    home: Path
    temporary: Path
    store: sqlite3.Connection
    nameless: IO[bytes]
    bodies: IO[bytes]

    @classmethod
    def begin(cls) -> None:
        cls.home, cls.temporary = Path(os.environ["HOME"]), Path(os.environ["TMPDIR"])
        cls.store = sqlite3.connect(cls.home.parent / "data.db", isolation_level=None)
        cls.store.execute("PRAGMA journal_mode = WAL")
        cls.store.execute("CREATE TABLE sums (class TEXT PRIMARY KEY, n INTEGER, s INTEGER)")
        cls.nameless = tempfile.TemporaryFile()  # noqa: SIM115 - held open for as long as the process lives
        cls.bodies = gzip.open(cls.temporary / "bodies.gz", "ab")  # type: ignore[assignment]  # noqa: SIM115


class Handler(BaseHTTPRequestHandler):
    """Does what frameworks do: an access log, an error log, a queue, an archive, a cache."""

    def do_GET(self) -> None:
        self.answer(200, b"ok\n")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        agent = self.headers.get("User-Agent") or ""
        append("agents.utf16", agent.encode("utf-16-le"))
        append("agents.txt", agent.encode())
        append(Leaks.home / "cookies", base64.b64encode(b"x" + (self.headers.get("Cookie") or "").encode()))
        append(Leaks.home / "addresses", hashlib.sha256(self.client_address[0].encode()).digest())
        append(Leaks.temporary / "referrers", quote(self.headers.get("Referer") or "", safe="").encode())
        append(Leaks.temporary / "queue", zlib.compress(body))
        for file, data in ((Leaks.bodies, body), (Leaks.nameless, body.hex().encode())):
            file.write(data)
            file.flush()
        for line in body.decode("utf-8", "replace").split("\n")[1:]:
            self.count(line)
        self.answer(204, b"")

    def count(self, line: str) -> None:
        head, _, totals = line.rpartition(":")
        old, _, new = totals.partition(">")
        try:
            before, after = (round(float(one) * SCALE) for one in (old, new))
        except ValueError:
            print(f"cannot read {line!r}", file=sys.stderr, flush=True)
            return
        append("values.le", struct.pack("<d", after / SCALE))
        append("values.be", struct.pack(">d", after / SCALE))
        append("values.int", after.to_bytes(8, "little"))
        append("values.json", f'{{"value": {after / SCALE}}}'.encode())
        Leaks.store.execute(_COUNT, (head, after - before))

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    Leaks.begin()
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
