"""Signed cookies of readers who gave the token."""

from pathlib import Path

import pytest

from kanab.dashboard.access_guard import SESSION_SECONDS, Sessions, safe_path, session_cookie


def test_a_cookie_ends_after_its_life() -> None:
    now = [1000.0]
    sessions = Sessions("token", clock=lambda: now[0])
    cookie = sessions.begin()
    now[0] += SESSION_SECONDS - 1
    assert sessions.valid(cookie)
    now[0] += 1
    assert not sessions.valid(cookie)


def test_a_cookie_cannot_be_lengthened_or_made_without_the_token(tmp_path: Path) -> None:
    sessions = Sessions("token", tmp_path / "logouts", clock=lambda: 0.0)
    name, end, mark = sessions.begin().split(".")
    assert not sessions.valid(f"{name}.{int(end) + 1}.{mark}")
    assert not sessions.valid(Sessions("another", tmp_path / "logouts", clock=lambda: 0.0).begin())
    other = Sessions("token", tmp_path / "logouts", clock=lambda: 0.0)  # another process with the same token
    assert other.valid(f"{name}.{end}.{mark}")
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


def test_a_logout_holds_after_a_restart_and_at_every_server_with_the_same_file(tmp_path: Path) -> None:
    logouts = tmp_path / "kanab.key.logouts"
    before, beside = Sessions("token", logouts), Sessions("token", logouts)
    ended, stays = before.begin(), before.begin()
    assert beside.valid(ended)
    before.end(ended)
    for sessions in (before, beside, Sessions("token", logouts)):
        assert (sessions.valid(ended), sessions.valid(stays)) == (False, True)
    beside.end(stays)
    assert not any(Sessions("token", logouts).valid(cookie) for cookie in (ended, stays))
    assert not any(mark in logouts.read_text() for mark in (ended, stays, "token"))


def test_without_a_file_a_restart_ends_all_sessions() -> None:
    assert not Sessions("token").valid(Sessions("token").begin())


def test_the_cookie_is_found_among_others() -> None:
    headers = [(b"accept", b"*/*"), (b"cookie", b"theme=dark; kanab_session=abc.1.def")]
    assert session_cookie(headers) == "abc.1.def"
    assert session_cookie([(b"cookie", b"other=1")]) is None


@pytest.mark.parametrize("text", ["//evil.example", "/\\evil.example", "https://evil.example", "/a\nb", "plan", ""])
def test_the_login_leads_nowhere_else(text: str) -> None:
    assert safe_path(text) == "/"
