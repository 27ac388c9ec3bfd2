"""Sockets that a collector listens on."""

from __future__ import annotations

import socket

import pytest

from kanab.collector.http.server import bind


def test_the_address_of_ipv6_hears_both_kinds_of_visitors() -> None:
    try:
        listening = bind("::", 0)
    except Exception:
        pytest.skip("this machine has no IPv6")
    with listening:
        listening.listen()
        port = listening.getsockname()[1]
        for host in ("127.0.0.1", "::1"):
            with socket.create_connection((host, port), 5):
                connection, (address, *_) = listening.accept()
                connection.close()
                assert address in ("::ffff:127.0.0.1", "::1")
