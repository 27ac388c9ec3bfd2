"""Real receivers at this machine's own address: a webhook that behaves as it is told, and a mail server."""

import json
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.collector.collector_process import HOST, free_port


@dataclass
class Request:
    """What came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)


class Receiver:
    """A webhook: ``status`` and ``headers`` are its answer; while ``held``, nobody gets one."""

    def __init__(self, status: int = 200, context: ssl.SSLContext | None = None) -> None:
        self.status, self.headers = status, dict[str, str]()
        self.refuses: Callable[[Request], bool] = lambda _: False
        self.got: list[Request] = []
        self.answered = threading.Event()
        self.answered.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                request = Request(self.path, dict(self.headers), self.rfile.read(length))
                receiver.got.append(request)
                receiver.answered.wait(60)
                with suppress(OSError):  # who was killed does not read
                    self.send_response(400 if receiver.refuses(request) else receiver.status)
                    for name, value in receiver.headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", "0")
                    self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer((HOST, 0), Handler)
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def close(self) -> None:
        self.answered.set()
        self._server.shutdown()
        self._server.server_close()


@dataclass
class Mailbox:
    """What a mail server took, and whom it refuses."""

    refused: tuple[str, ...] = ()
    got: list[Envelope] = field(default_factory=list)

    async def handle_RCPT(  # noqa: N802 - as the library calls it
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        if address in self.refused:
            return "550 no such mailbox: SECRET-WORDS-OF-THE-SERVER"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802
        self.got.append(envelope)
        return "250 OK"


def mail_server(
    box: Mailbox, *, password: str | None = None, context: ssl.SSLContext | None = None, port: int | None = None
) -> Controller:
    """A mail server that runs; with a context it offers STARTTLS, with a password it wants one."""

    def check(_server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any) -> AuthResult:
        right = isinstance(data, LoginPassword) and data.password == (password or "").encode()
        return AuthResult(success=right, handled=right)

    more: dict[str, Any] = {"tls_context": context} if context else {}
    if password is not None:
        more |= {"authenticator": check, "auth_required": True, "auth_require_tls": True}
    controller = Controller(box, hostname=HOST, port=port or free_port(), **more)
    controller.start()
    return controller


def certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A server's side of TLS for this machine's own address, with a certificate of its own; and its file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kanab test")])
    now = datetime.now(UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "certificate.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + built.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context, path
