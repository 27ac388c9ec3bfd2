"""Who may read: signed cookies, tokens in constant time, waiting after wrong ones."""

from __future__ import annotations

import pytest

from kanab.dashboard import login
from kanab.dashboard.login import SESSION_SECONDS, Sessions, TokenCheck, is_local, safe_path, session_cookie


def test_a_cookie_ends_after_its_life() -> None:
    now = [1000.0]
    sessions = Sessions("token", clock=lambda: now[0])
    cookie = sessions.begin()
    now[0] += SESSION_SECONDS - 1
    assert sessions.valid(cookie)
    now[0] += 1
    assert not sessions.valid(cookie)


def test_a_cookie_cannot_be_lengthened_or_made_without_the_token() -> None:
    sessions = Sessions("token", clock=lambda: 0.0)
    name, end, mark = sessions.begin().split(".")
    assert not sessions.valid(f"{name}.{int(end) + 1}.{mark}")
    assert not sessions.valid(Sessions("another", clock=lambda: 0.0).begin())
    assert Sessions("token", clock=lambda: 0.0).valid(f"{name}.{end}.{mark}")  # another process with the same token
    assert not any(sessions.valid(one) for one in ("", ".", "..", "a.b.c", f"{name}.{end}", f"{name}..{mark}"))


def test_logging_out_ends_one_cookie_and_what_is_over_is_forgotten() -> None:
    now = [0.0]
    sessions = Sessions("token", clock=lambda: now[0])
    first, second = sessions.begin(), sessions.begin()
    sessions.end(first)
    sessions.end("nonsense")
    sessions.end(None)
    assert (sessions.valid(first), sessions.valid(second)) == (False, True)
    now[0] = SESSION_SECONDS - 1
    third = sessions.begin()
    now[0] = SESSION_SECONDS + 1
    sessions.end(third)
    assert len(sessions._ended) == 1


def test_a_place_waits_twice_as_long_after_every_wrong_token_and_no_longer_than_that() -> None:
    now = [0.0]
    tokens = TokenCheck("right", clock=lambda: now[0])
    waits = []
    for _ in range(8):
        assert not tokens.accepts("wrong", "192.0.2.7")
        waits.append(tokens.delay("192.0.2.7"))
        now[0] += waits[-1]
    assert waits == [0.5, 1, 2, 4, 8, 16, 16, 16]
    assert tokens.delay("192.0.2.8") == 0
    assert tokens.accepts("right", "192.0.2.7")
    assert not tokens.accepts("wrong", "192.0.2.7")
    assert tokens.delay("192.0.2.7") == 0.5


def test_places_are_forgotten_before_memory_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "MOST_ADDRESSES", 3)
    now = [0.0]
    tokens = TokenCheck("right", clock=lambda: now[0])
    for place in ("a", "b", "c"):
        tokens.accepts("wrong", place)
    now[0] = 0.25
    tokens.accepts("wrong", "d")  # all still wait: all are forgotten
    assert [tokens.delay(place) for place in ("a", "d")] == [0.0, 0.5]
    now[0] = 5.0
    for place in ("e", "f", "g"):
        tokens.accepts("wrong", place)
    assert len(tokens._wrong) == 3


@pytest.mark.parametrize(
    ("address", "host", "fine"),
    [
        ("127.0.0.1", "127.0.0.1:8000", True), ("::1", "[::1]:8000", True), ("127.0.0.1", "LOCALHOST", True),
        ("127.0.0.1", "evil.example", False), ("192.0.2.7", "localhost", False), ("127.0.0.1", "", False),
        (None, "localhost", False), ("127.0.0.1", "localhost.evil.example", False), ("127.0.0.1", "[", False),
    ],
)  # fmt: skip
def test_this_machine_is_one_that_was_meant(address: str | None, host: str, fine: bool) -> None:
    assert is_local(address, host) is fine


def test_the_cookie_is_found_among_others() -> None:
    headers = [(b"accept", b"*/*"), (b"cookie", b"theme=dark; kanab_session=abc.1.def")]
    assert session_cookie(headers) == "abc.1.def"
    assert session_cookie([(b"cookie", b"other=1")]) is None


@pytest.mark.parametrize("text", ["//evil.example", "/\\evil.example", "https://evil.example", "/a\nb", "plan", ""])
def test_the_login_leads_nowhere_else(text: str) -> None:
    assert safe_path(text) == "/"
