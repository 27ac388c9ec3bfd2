"""The views of docs/how-to/vouchers.md, in the frameworks that they are for."""

import re
from pathlib import Path
from typing import Any

import pytest

from kanab.collector.protocol.nonces import is_genuine

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "vouchers.md"
KEY = "07" * 32


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """What each block of Python defines, by the framework that its first line names."""
    monkeypatch.setenv("KANAB_VOUCHER_KEY", KEY)
    views = {}
    for block in re.findall(r"```py\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        names: dict[str, Any] = {"__name__": "shop"}
        exec(compile(block, str(PAGE), "exec"), names)
        views[re.search(r"# (\w+)", block)[1]] = names  # type: ignore[index]
    return views


def check(vouchers: list[str], caching: str | None) -> None:
    assert len({*vouchers}) == 8
    assert all(is_genuine(bytes.fromhex(voucher), [bytes.fromhex(KEY)]) for voucher in vouchers)
    assert caching == "no-store"


def test_flask_mints_vouchers(views: dict[str, dict[str, Any]]) -> None:
    answer = views["Flask"]["app"].test_client().get("/vouchers")
    check(answer.json, answer.headers["Cache-Control"])


def test_starlette_mints_vouchers(views: dict[str, dict[str, Any]]) -> None:
    from starlette.applications import Starlette  # noqa: PLC0415
    from starlette.routing import Route  # noqa: PLC0415
    from starlette.testclient import TestClient  # noqa: PLC0415

    app = Starlette(routes=[Route("/vouchers", views["Starlette"]["vouchers"])])
    answer = TestClient(app).get("/vouchers")
    check(answer.json(), answer.headers["cache-control"])


def test_django_mints_vouchers(views: dict[str, dict[str, Any]]) -> None:
    import json  # noqa: PLC0415

    from django.conf import settings  # noqa: PLC0415
    from django.test import RequestFactory  # noqa: PLC0415

    if not settings.configured:
        settings.configure()
    answer = views["Django"]["vouchers"](RequestFactory().get("/vouchers"))
    check(json.loads(answer.content), answer["Cache-Control"])
