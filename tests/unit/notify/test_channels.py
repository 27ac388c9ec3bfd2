"""Messages to real receivers at this machine's own address, and what goes wrong with them."""

import hashlib
import hmac
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.notify.receivers import HOST, Mailbox, Receiver, certificate, mail_server

from kanab.errors import DeliveryError, StoreError
from kanab.notify import channels
from kanab.notify.channels import Mail, Slack, Webhook, mail_of
from kanab.notify.notices import Notice
from kanab.plan.notify_plan import MailPlan

NOTICE = Notice("5f3a", "seal", "Sealed the cohorts through 2026-W46", ("k-anonymous at k = 10.",), epsilon=None)
SECRET = "a secret that both sides know"
HOOK = "/services/T0/B0/TOKEN-IN-THE-PATH"


def failure(channel: Slack | Webhook | Mail) -> DeliveryError:
    with pytest.raises(DeliveryError) as caught:
        channel.send([NOTICE])
    assert "TOKEN" not in str(caught.value)
    assert "SECRET" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return caught.value


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of somebody who takes connections and never says a word."""
    with closing(socket.create_server((HOST, 0))) as server:
        yield server.getsockname()[1]


def test_slack_gets_one_text_at_its_address(receiver: Receiver) -> None:
    slack = Slack(f"{receiver.url}{HOOK}?thread=1")
    slack.send([NOTICE])
    (request,) = receiver.got
    assert request.path == f"{HOOK}?thread=1"
    assert request.headers["Content-Type"] == "application/json; charset=utf-8"
    assert request.data == {"text": "Sealed the cohorts through 2026-W46\nk-anonymous at k = 10."}
    assert slack.where == f"127.0.0.1:{receiver.port}"


def test_plain_json_is_signed_with_its_time_and_carries_its_id(receiver: Receiver) -> None:
    Webhook(f"{receiver.url}/kanab", SECRET, from_plan=True).send([NOTICE])
    (request,) = receiver.got
    assert request.headers["Kanab-Notice"] == request.data["id"] == "5f3a"
    moment, mac = (part.partition("=")[2] for part in request.headers["Kanab-Signature"].split(","))
    expected = hmac.new(SECRET.encode(), f"{moment}.".encode() + request.body, hashlib.sha256).hexdigest()
    assert mac == expected


@pytest.mark.parametrize(
    ("status", "says", "of_message"),
    [
        (500, "answers 500: it cannot take messages now", False),
        (503, "answers 503: it cannot take messages now", False),
        (404, "answers 404: there is no such webhook", False),
        (403, "answers 403: it does not accept this sender", False),
        (400, "answers 400: it does not take this message", True),
        (304, "answers 304, a redirect, which is not followed", False),
    ],
)
def test_a_webhook_that_refuses_is_named_by_its_host_alone(
    receiver: Receiver, status: int, says: str, of_message: bool
) -> None:
    receiver.status = status
    problem = failure(Slack(f"{receiver.url}{HOOK}"))
    assert problem.fact.startswith(f"127.0.0.1:{receiver.port} {says}")
    assert (problem.of_message, problem.wait) == (of_message, 0)
    receiver.headers = {"Retry-After": "120"}
    assert failure(Slack(f"{receiver.url}{HOOK}")).wait == (120 if status >= 500 else 0)


def test_a_redirect_is_refused_and_nothing_is_sent_there(receiver: Receiver) -> None:
    with closing(Receiver()) as other:
        for status, place in ((307, f"{other.url}/x"), (302, "/elsewhere"), (308, "//[")):
            receiver.status, receiver.headers = status, {"Location": place}
            assert "a redirect, which is not followed" in failure(Slack(f"{receiver.url}{HOOK}")).fact
        assert other.got == []
    assert {request.path for request in receiver.got} == {HOOK}


def test_a_webhook_that_is_down_or_slow_or_no_webhook_is_said(
    receiver: Receiver, silent: int, mail_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(socket.create_server((HOST, 0))) as gone:
        port = gone.getsockname()[1]
    assert "nothing listens at its port" in failure(Slack(f"http://{HOST}:{port}{HOOK}")).fact
    assert "cannot be found" in failure(Slack(f"https://nowhere.invalid{HOOK}")).fact
    assert "gave no answer of HTTP (BadStatusLine)" in failure(Slack(f"http://{HOST}:{mail_port}{HOOK}")).fact
    monkeypatch.setattr(channels, "PATIENCE_SECONDS", 0.2)
    assert "is too slow" in failure(Slack(f"http://{HOST}:{silent}{HOOK}")).fact


def test_a_webhook_that_sends_a_letter_at_a_time_is_hung_up_on() -> None:
    with closing(socket.create_server((HOST, 0))) as server:
        over = threading.Event()

        def drip() -> None:
            connection, _ = server.accept()
            with closing(connection):
                try:
                    while not over.wait(0.05):
                        connection.sendall(b"H")
                except OSError:
                    over.set()

        threading.Thread(target=drip, daemon=True).start()
        with pytest.raises(DeliveryError, match="is too slow"):
            channels.post(f"http://{HOST}:{server.getsockname()[1]}/", b"{}", {}, seconds=0.3)
        assert over.wait(20)


def test_a_certificate_that_nobody_trusts_is_refused_and_a_trusted_one_is_taken(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, file = certificate(tmp_path)
    with closing(Receiver(context=context)) as secure:
        problem = failure(Slack(f"https://localhost:{secure.port}{HOOK}"))
        assert "its certificate is not trusted (self-signed certificate" in problem.fact
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        Slack(f"https://localhost:{secure.port}{HOOK}").send([NOTICE])
        assert "is not trusted" in failure(Slack(f"https://{HOST}:{secure.port}{HOOK}")).fact  # it has another name
        assert len(secure.got) == 1
    assert "does not speak TLS" in failure(Slack(f"https://localhost:{receiver.port}{HOOK}")).fact


def test_addresses_that_are_wrong_or_would_show_a_secret_are_refused_without_being_repeated() -> None:
    wrong = {
        "hooks.example/TOKEN": "must begin with https://",
        "https://me:TOKEN@hooks.example/": "must not hold a name or a password",
        "https:///TOKEN": "must be a web address",
        "https://hooks.example:99999/TOKEN": "a port from 1 to 65535",
        "http://hooks.example/TOKEN": "is a secret, and would travel in the clear. Use https://.",
        "https://hooks.example/TOKEN\n": "must be a web address",
    }
    for address, says in wrong.items():
        with pytest.raises(StoreError) as caught:
            Slack(address)
        assert says in str(caught.value)
        assert "TOKEN" not in str(caught.value)
    with pytest.raises(StoreError, match="would travel in the clear"):
        Webhook("http://hooks.example/", SECRET)
    assert Webhook("http://hooks.example/", SECRET, from_plan=True).where == "hooks.example"
    with pytest.raises(StoreError, match="has fewer than 16 characters"):
        Webhook("https://hooks.example/", "short")


def mail_plan(port: int, **changes: object) -> MailPlan:
    plan = MailPlan(HOST, port, "kanab@shop.example", ("team@shop.example", "boss@shop.example"), "none")
    return replace(plan, **changes)  # type: ignore[arg-type]


def test_several_notices_are_one_mail(mailbox: Mailbox, mail_port: int) -> None:
    second = replace(NOTICE, id="77", title="checkout may stop (look 2 of 3)", link="https://ab.shop.example/")
    assert Mail(mail_plan(mail_port)).send([NOTICE, second]) == ""
    (mail,) = mailbox.got
    assert (mail.mail_from, mail.rcpt_tos) == ("kanab@shop.example", ["team@shop.example", "boss@shop.example"])
    text = (mail.content or b"").decode()  # type: ignore[union-attr]
    assert "Subject: [kanab] Sealed the cohorts through 2026-W46, and 1 more" in text
    assert "Auto-Submitted: auto-generated" in text
    assert "checkout may stop (look 2 of 3)" in text
    assert "Notice 5f3a" in text
    again = mail_of([NOTICE, second], mail_plan(1))
    assert f"Message-ID: {again['Message-ID']}" in text


def test_mailboxes_that_are_refused_are_said_and_the_others_get_the_mail(mailbox: Mailbox, mail_port: int) -> None:
    mailbox.refused = ("boss@shop.example",)
    assert "refused some of the mailboxes" in Mail(mail_plan(mail_port)).send([NOTICE])
    assert len(mailbox.got) == 1
    mailbox.refused = ("boss@shop.example", "team@shop.example")
    assert "refuses every mailbox" in failure(Mail(mail_plan(mail_port))).fact


def test_a_mail_server_that_is_down_or_slow_or_none_is_said(
    receiver: Receiver, silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(socket.create_server((HOST, 0))) as gone:
        port = gone.getsockname()[1]
    assert "nothing listens at its port" in failure(Mail(mail_plan(port))).fact
    monkeypatch.setattr(channels, "PATIENCE_SECONDS", 0.3)
    assert "slow" in failure(Mail(mail_plan(silent))).fact
    assert "slow" in failure(Mail(mail_plan(receiver.port))).fact  # a web server waits for a request


@pytest.mark.slow
def test_mail_goes_over_tls_that_is_checked_and_a_password_only_so(
    mailbox: Mailbox, mail_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "does not offer what the plan asks for" in failure(Mail(mail_plan(mail_port, encryption="starttls"))).fact
    assert "does not speak TLS" in failure(Mail(mail_plan(mail_port, encryption="tls"))).fact
    context, file = certificate(tmp_path)
    controller = mail_server(mailbox, password="SECRET-PASSWORD", context=context)
    try:
        plan = mail_plan(controller.port, server="localhost", encryption="starttls", user="kanab")
        assert "its certificate is not trusted" in failure(Mail(plan, "SECRET-PASSWORD")).fact
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        assert "does not accept user and password" in failure(Mail(plan, "SECRET-OTHER")).fact
        assert "refuses the sender" in failure(Mail(replace(plan, user=None))).fact
        Mail(plan, "SECRET-PASSWORD").send([NOTICE])
        assert len(mailbox.got) == 1
    finally:
        controller.stop()
    with pytest.raises(StoreError, match="the password of the mail server is not said"):
        Mail(plan)
    with pytest.raises(StoreError, match="would travel in the clear"):
        Mail(replace(plan, server="mail.example", encryption="none"), "SECRET-PASSWORD")


def test_what_is_unknown_of_the_network_is_named_by_its_kind() -> None:
    assert channels.connection_error("hooks.example", OSError(5, "TOKEN")).fact == (
        "hooks.example cannot be reached (OSError)"
    )
