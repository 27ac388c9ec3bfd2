"""Receivers that are closed after each test."""

from collections.abc import Iterator

import pytest
from tests.unit.notify.receivers import Mailbox, Receiver, mail_server


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A webhook that takes everything."""
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def mailbox() -> Mailbox:
    """What the mail server took."""
    return Mailbox()


@pytest.fixture
def mail_port(mailbox: Mailbox) -> Iterator[int]:
    """The port of a mail server that takes everything, without TLS."""
    controller = mail_server(mailbox)
    yield controller.port
    controller.stop()
