"""Files at addresses: a real server on loopback, over HTTP and as an object store of S3's kind."""

import gzip
import io
import ipaddress
import ssl
import tempfile
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from tests.described import as_values

import kanab as kb
from kanab.counted import Counted
from kanab.errors import SourceError
from kanab.scan.count.pair_counting import count_pairs

pytestmark = pytest.mark.slow  # an engine and a server in each

PEOPLE = 240
ROWS: dict[str, list[Any]] = {
    "variant": ["AB"[i % 2] for i in range(PEOPLE)],
    "tier": [i % 3 + 1 for i in range(PEOPLE)],
    "spend": [i * 7 % 11 / 4 for i in range(PEOPLE)],
}
TABLE = pa.table(ROWS)


def count(source: Any, **choices: Any) -> Counted:
    return kb.count(source, **as_values("count", arm="variant", metrics=["spend"], covariates=["tier"], **choices))


EXPECTED = count(ROWS).tallies


def as_parquet(table: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


CSV = "\n".join(",".join(map(str, row)) for row in [[*ROWS], *zip(*ROWS.values(), strict=True)]).encode()
FILES: dict[str, bytes] = {
    "/shop/rows.csv": CSV,
    "/shop/rows.csv.gz": gzip.compress(CSV),
    "/shop/rows.parquet": as_parquet(TABLE),
    "/shop/lake/_delta_log/00000000000000000000.json": b"{}",
    "/shop/lake/a.parquet": as_parquet(TABLE),
    **{f"/shop/hive/code=00{tier}/tier={tier}/a.parquet": as_parquet(pa.table(
        {name: [value for value, own in zip(ROWS[name], ROWS["tier"], strict=True) if own == tier]
         for name in ("variant", "spend")})) for tier in (1, 2, 3)},
}  # fmt: skip


class Server(BaseHTTPRequestHandler):
    """Serves files, parts of files, and the lists and sizes that S3 would give; /short/… ends too early."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        path = unquote(url.path)
        if "list-type" in url.query:
            self.answer(200, self.listed(path, parse_qs(url.query)), kind="application/xml")
        elif path.startswith("/short/"):
            self.answer(200, FILES[path.replace("/short/", "/shop/")], missing=7)
        elif path not in FILES:
            self.answer(404, b"")
        elif (part := self.headers.get("Range")) is not None:
            first, _, last = part.removeprefix("bytes=").partition("-")
            end = min(int(last) + 1 if last else 1 << 62, len(FILES[path]))
            self.answer(206, FILES[path][int(first) : end], span=f"bytes {first}-{end - 1}/{len(FILES[path])}")
        else:
            self.answer(200, FILES[path])

    do_HEAD = do_GET

    def listed(self, path: str, query: dict[str, list[str]]) -> bytes:
        bucket = path.strip("/")
        names = [name.removeprefix(f"/{bucket}/") for name in FILES if name.startswith(f"/{bucket}/")]
        keys = [name for name in names if name.startswith(query.get("prefix", [""])[0])]
        entries = "".join(
            f"<Contents><Key>{key}</Key><Size>{len(FILES[f'/{bucket}/{key}'])}</Size></Contents>" for key in keys
        )
        return (
            f'<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>{bucket}</Name>'
            f"<KeyCount>{len(keys)}</KeyCount><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"
        ).encode()

    def answer(
        self, status: int, body: bytes, kind: str = "binary/octet-stream", missing: int = 0, span: str = ""
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", kind)
        if span:
            self.send_header("Content-Range", span)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) - missing])
        if missing:
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary copies are made: empty before and after."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def bucket(host: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "loopback")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return f"?endpoint_override={host}&scheme=http&region=us-east-1"


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.parquet"])
def test_a_file_over_http_has_the_digits_of_its_rows_and_leaves_no_copy(name: str, host: str, scratch: Path) -> None:
    assert count(f"http://{host}/shop/{name}").tallies == EXPECTED
    assert count(f"http://{host}/shop/{name}", sql="SELECT * FROM rows WHERE tier < 3").tallies == (
        count(ROWS, where="tier < 3").tallies
    )
    pairs = count_pairs(f"http://{host}/shop/{name}", ["variant", "tier"], ["spend"])
    assert pairs.people.tolist() == count_pairs(ROWS, ["variant", "tier"], ["spend"]).people.tolist()
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("short/rows.csv", r"rows\.csv cannot be read from 127\.0\.0\.1:\d+: it did not arrive whole"),
        ("short/rows.parquet", "it did not arrive whole"),
        ("shop/none.csv", r"none\.csv cannot be read from 127\.0\.0\.1:\d+: the server answers 404"),
        ("shop/rows", "'rows' is of an unknown kind"),
    ],
)
def test_what_does_not_arrive_is_no_half_result_and_keeps_its_key(
    path: str, problem: str, host: str, scratch: Path
) -> None:
    with pytest.raises(SourceError, match=problem) as caught:
        count(f"http://{host}/{path}?signature=s3cret")
    assert "s3cret" not in str(caught.value)
    assert list(scratch.iterdir()) == []


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The same server over TLS, and the file of its certificate, which nobody else has signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    file = tmp_path / "server.pem"
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    certificate = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    file.write_bytes(secret + certificate.public_bytes(Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}", file
        server.shutdown()
        thread.join()


def test_a_file_over_https_is_read_from_a_server_that_is_trusted_and_from_no_other(
    secure: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, certificate = secure
    with pytest.raises(SourceError, match=rf"rows\.parquet cannot be read from {place} \(URLError\)"):
        count(f"https://{place}/shop/rows.parquet")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert count(f"https://{place}/shop/rows.parquet").tallies == EXPECTED
    assert count(f"https://{place}/shop/rows.csv.gz").tallies == EXPECTED


def test_a_server_that_is_not_there_is_named_without_secrets() -> None:
    for address in ("http://ann:s3cret@127.0.0.1:9/rows.csv?key=s3cret", "https://[s3cret/rows.csv"):
        with pytest.raises(SourceError, match=r"cannot be read from (127\.0\.0\.1:9|that address) \(") as caught:
            count(address)
        assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("name", ["rows.parquet", "hive", "rows.csv", "rows.csv.gz"])
def test_an_object_store_has_the_digits_of_its_rows(name: str, bucket: str, scratch: Path) -> None:
    assert count(f"s3://shop/{name}{bucket}").tallies == EXPECTED
    assert list(scratch.iterdir()) == []


def test_an_object_that_is_not_there_is_named_without_secrets(bucket: str) -> None:
    with pytest.raises(SourceError, match=r"none\.parquet cannot be read from shop: there is no such file"):
        count(f"s3://shop/none.parquet{bucket}")


def test_folders_of_an_object_store_keep_their_zeros_and_tables_with_a_log_are_refused(bucket: str) -> None:
    counted = kb.count(f"s3://shop/hive{bucket}", arm="variant", segments=["code"])
    assert counted.tallies["variant/code"].factor("code").levels == ("001", "002", "003")
    with pytest.raises(SourceError, match=r"lake is a table with a log, .* Open it in Python, by deltalake"):
        count(f"s3://shop/lake{bucket}")


# ── SQLAlchemy ─────────────────────────────────────────────────────────────────────────────────


def test_urls_and_engines_of_sqlalchemy_are_connections(tmp_path: Path) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    file = tmp_path / "shop.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.register("people", TABLE)
        connection.execute("CREATE TABLE shop AS SELECT * FROM people")
    url = sqlalchemy.engine.make_url(f"duckdb+engine://{file}")
    assert count(url, table="shop").tallies == EXPECTED
    assert count(str(url), table="shop").tallies == EXPECTED
    assert count(url, sql="SELECT * FROM shop WHERE tier < 3").tallies == count(ROWS, where="tier < 3").tallies
    with pytest.raises(SourceError, match=r"a MetaData is no engine\. Give SQLAlchemy's engine or URL"):
        count(sqlalchemy.MetaData())
    with pytest.raises(SourceError, match="there is no table 'nobody'"):
        count(url, table="nobody")
    with duckdb.connect(str(file)) as again:  # nothing is left open: DuckDB would refuse to write
        assert again.execute("INSERT INTO shop SELECT * FROM shop").fetchone() == (PEOPLE,)
