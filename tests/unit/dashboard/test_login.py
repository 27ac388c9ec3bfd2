"""Who may read: signed cookies, tokens in constant time, waiting after wrong ones."""

from __future__ import annotations

import pytest

from kanab.dashboard import login
from kanab.dashboard.login import LIFE, Doorman, Sessions, at_home, cookie_of, safe_path


def test_a_cookie_ends_after_its_life() -> None:
    now = [1000.0]
    sessions = Sessions("token", clock=lambda: now[0])
    cookie = sessions.begin()
    now[0] += LIFE - 1
    assert sessions.holds(cookie)
    now[0] += 1
    assert not sessions.holds(cookie)


def test_a_cookie_cannot_be_lengthened_or_made_without_the_token() -> None:
    sessions = Sessions("token", clock=lambda: 0.0)
    name, end, mark = sessions.begin().split(".")
    assert not sessions.holds(f"{name}.{int(end) + 1}.{mark}")
    assert not sessions.holds(Sessions("another", clock=lambda: 0.0).begin())
    assert Sessions("token", clock=lambda: 0.0).holds(f"{name}.{end}.{mark}")  # another process with the same token
    assert not any(sessions.holds(one) for one in ("", ".", "..", "a.b.c", f"{name}.{end}", f"{name}..{mark}"))


def test_logging_out_ends_one_cookie_and_what_is_over_is_forgotten() -> None:
    now = [0.0]
    sessions = Sessions("token", clock=lambda: now[0])
    first, second = sessions.begin(), sessions.begin()
    sessions.end(first)
    sessions.end("nonsense")
    sessions.end(None)
    assert (sessions.holds(first), sessions.holds(second)) == (False, True)
    now[0] = LIFE - 1
    third = sessions.begin()
    now[0] = LIFE + 1
    sessions.end(third)
    assert len(sessions._ended) == 1


def test_a_place_waits_twice_as_long_after_every_wrong_token_and_no_longer_than_that() -> None:
    now = [0.0]
    doorman = Doorman("right", clock=lambda: now[0])
    waits = []
    for _ in range(8):
        assert not doorman.admits("wrong", "192.0.2.7")
        waits.append(doorman.waits("192.0.2.7"))
        now[0] += waits[-1]
    assert waits == [0.5, 1, 2, 4, 8, 16, 16, 16]
    assert doorman.waits("192.0.2.8") == 0
    assert doorman.admits("right", "192.0.2.7")
    assert not doorman.admits("wrong", "192.0.2.7")
    assert doorman.waits("192.0.2.7") == 0.5


def test_places_are_forgotten_before_memory_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "MOST_PLACES", 3)
    now = [0.0]
    doorman = Doorman("right", clock=lambda: now[0])
    for place in ("a", "b", "c"):
        doorman.admits("wrong", place)
    now[0] = 0.25
    doorman.admits("wrong", "d")  # all still wait: all are forgotten
    assert [doorman.waits(place) for place in ("a", "d")] == [0.0, 0.5]
    now[0] = 5.0
    for place in ("e", "f", "g"):
        doorman.admits("wrong", place)
    assert len(doorman._wrong) == 3


@pytest.mark.parametrize(
    ("address", "host", "fine"),
    [
        ("127.0.0.1", "127.0.0.1:8000", True), ("::1", "[::1]:8000", True), ("127.0.0.1", "LOCALHOST", True),
        ("127.0.0.1", "evil.example", False), ("192.0.2.7", "localhost", False), ("127.0.0.1", "", False),
        (None, "localhost", False), ("127.0.0.1", "localhost.evil.example", False), ("127.0.0.1", "[", False),
    ],
)  # fmt: skip
def test_this_machine_is_one_that_was_meant(address: str | None, host: str, fine: bool) -> None:
    assert at_home(address, host) is fine


def test_the_cookie_is_found_among_others() -> None:
    headers = [(b"accept", b"*/*"), (b"cookie", b"theme=dark; kanab_session=abc.1.def")]
    assert cookie_of(headers) == "abc.1.def"
    assert cookie_of([(b"cookie", b"other=1")]) is None


@pytest.mark.parametrize("text", ["//evil.example", "/\\evil.example", "https://evil.example", "/a\nb", "plan", ""])
def test_the_login_leads_nowhere_else(text: str) -> None:
    assert safe_path(text) == "/"
