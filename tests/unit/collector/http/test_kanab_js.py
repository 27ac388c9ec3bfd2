"""The browser client is served as it is written, to pages of any origin."""

from __future__ import annotations

from pathlib import Path

from tests.unit.collector.http.conftest import ask

import kanab
from kanab.collector.http.app import Collector


def test_the_client_is_served_as_it_is_written(app: Collector) -> None:
    answer = ask(app, "GET", "/kanab.js")
    assert answer.status == 200
    assert answer.body == (Path(kanab.__file__).parent / "static" / "kanab.js").read_bytes()
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["cache-control"] == "public, max-age=3600"
    assert ask(app, "POST", "/kanab.js").status == 405
