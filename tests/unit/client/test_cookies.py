"""Cookies that only the server can read, with keys that rotate."""

import logging
import secrets
import sys
from pathlib import Path

import pytest
from tests.closing import Keep
from tests.unit.client.counting_collector import Clock, CountingCollector, plan

from kanab.client import Client, Cookies, read_keys
from kanab.errors import KanabError, MissingExtraError

OLD, NEW = bytes(32), bytes(range(32))


@pytest.fixture
def cookies(client: Client) -> Cookies:
    return Cookies(client, [NEW, OLD])


def test_a_person_comes_back_with_their_cookie(cookies: Cookies, collector: CountingCollector) -> None:
    person = cookies.person(None, id="user-1")
    person.enroll("checkout", {"tier": 3, "device": "phone"})
    kept = cookies.save(person)
    assert kept is not None
    assert {name: kept[name] for name in kept if name != "value"} == {
        "key": "kanab", "max_age": 991_800, "path": "/", "httponly": True, "secure": True, "samesite": "Lax",
    }  # fmt: skip
    assert len(kept["value"]) < 500
    assert cookies.client.flush(5)
    person = cookies.person(kept["value"], id="user-1")
    person.track("minutes", 4)
    person.flush(5)
    assert "checkout/tier:B:3@2026-W46:minutes:0>4" in collector.lines()


def test_nothing_readable_is_in_it_and_equal_states_look_different(cookies: Cookies) -> None:
    values = {cookies.seal(b"checkout B 3") for _ in range(20)}
    assert len(values) == 20
    assert {len(value) for value in values} == {len(cookies.seal(b""))}
    assert not any("checkout" in value for value in values)


def test_a_cookie_that_was_changed_in_any_place_is_nobodys(cookies: Cookies) -> None:
    value = cookies.seal(b"state")
    assert cookies.open(value) == b"state"
    for place in range(len(value)):
        other = "A" if value[place] != "A" else "B"
        assert cookies.open(value[:place] + other + value[place + 1 :]) in (None, b"state")  # unused bits at the end
    for wrong in ("", "x", "ä", "a b", "AAAA", value[:-4], value + "AAAA", secrets.token_urlsafe(100)):
        assert cookies.open(wrong) is None
    assert cookies.person("nonsense").save() == b""


def test_keys_rotate_and_old_ones_still_open(client: Client) -> None:
    before, during, after = (Cookies(client, keys) for keys in ([OLD], [NEW, OLD], [NEW]))
    value = before.seal(b"state")
    assert (during.open(value), after.open(value)) == (b"state", None)
    assert after.open(during.seal(b"state")) == b"state"


def test_a_cookie_is_for_its_own_name(client: Client) -> None:
    assert Cookies(client, [NEW], name="other").open(Cookies(client, [NEW]).seal(b"state")) is None


def test_what_does_not_change_is_not_set_again(cookies: Cookies) -> None:
    person = cookies.person(None)
    assert cookies.save(person) is None
    person.variant("checkout")
    kept = cookies.save(person)
    assert kept is not None
    again = cookies.person(kept["value"])
    again.variant("checkout")
    assert cookies.save(again) is None


def test_a_cookie_ends_with_the_window(cookies: Cookies, clock: Clock) -> None:
    person = cookies.person(None, id="user-1")
    person.enroll("checkout", {"tier": 3})
    kept = cookies.save(person)
    assert kept is not None
    clock.pass_by(days=30)
    gone = cookies.save(cookies.person(kept["value"], id="user-1"))
    assert gone is not None
    assert (gone["value"], gone["max_age"]) == ("", 0)


@pytest.mark.slow
def test_a_cookie_without_room_for_posts_under_way_goes_without_them(
    cookies: Cookies, collector: CountingCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector.down = True
    person = cookies.person(None, id="user-1")
    for amount in range(10):
        person.enroll("checkout", {"tier": 3, "device": "phone"})
        person.track("minutes", amount + 0.25)
        person.save()
    whole = cookies.save(person)
    assert whole is not None
    monkeypatch.setattr("kanab.client.cookies.MOST_COOKIE", len(whole["value"]) - 1)
    kept = cookies.save(person)
    assert kept is not None
    assert len(kept["value"]) < len(whole["value"]) // 2
    collector.down = False
    assert cookies.client.flush(10)
    person = cookies.person(kept["value"], id="user-1")
    person.track("minutes", 0.5)
    assert person.flush(5)
    assert collector.number("checkout/tier|B:3|minutes|s") == 4800
    assert collector.number("checkout/tier|checkout=B|minutes|q") == 4800**2


def test_a_state_that_is_too_long_is_not_set(clock: Clock, closing: Keep, caplog: pytest.LogCaptureFixture) -> None:
    parts = ['[metrics]\nbought = { kind = "binary" }']
    parts += [f"[experiments.{secrets.token_hex(20)}]\narms = {{ A = 1, B = 1 }}" for _ in range(200)]
    collector = CountingCollector(plan("\n".join(parts)), clock)
    cookies = Cookies(closing(Client(collector.plan, collector, clock=clock)), [NEW])
    person = cookies.person(None)
    person.variant(next(iter(cookies.client.config.experiments)))  # type: ignore[union-attr]
    with caplog.at_level(logging.WARNING, "kanab.client"):
        assert cookies.save(person) is None
    assert "too long for a cookie" in caplog.text


def test_keys_come_from_the_environment_or_a_file(
    client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KANAB_COOKIE_KEY", f"{NEW.hex()} {OLD.hex()}")
    assert read_keys() == (NEW, OLD)
    assert Cookies(client).open(Cookies(client, [OLD]).seal(b"state")) == b"state"
    file = tmp_path / "keys"
    file.write_text(f"{OLD.hex()}\n{NEW.hex()}\n")
    assert read_keys(file=file) == (OLD, NEW)


def test_wrong_keys_are_refused_without_being_repeated(
    client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KANAB_COOKIE_KEY", raising=False)
    for text in (None, "", "12ab", "no hex", "00" * 31):
        with pytest.raises(KanabError, match="keys of 64 hex digits") as caught:
            read_keys(text)
        assert not text or text not in str(caught.value)
    with pytest.raises(KanabError, match="cannot be read"):
        read_keys(file=tmp_path / "nowhere")
    for keys in ([], [b"short"]):
        with pytest.raises(KanabError, match="keys of 32 bytes"):
            Cookies(client, keys)


def test_without_its_package_the_extra_is_named(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(MissingExtraError, match=r"kanab\[client\]"):
        Cookies(client, [NEW])
