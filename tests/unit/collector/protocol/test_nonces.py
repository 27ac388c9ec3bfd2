from datetime import UTC, datetime, timedelta, timezone

import pytest

from kanab.collector.protocol.nonces import (
    hour_of,
    is_genuine,
    make_nonce,
    mint_vouchers,
    oldest_hour,
    open_hours,
    read_nonce,
    read_voucher_keys,
    seconds_of,
    untimely_error,
    vouch_for,
)
from kanab.errors import KanabError, MessageError

HOUR = 3600
LIFE = 24 * HOUR


def test_a_nonce_is_its_hour_and_twelve_random_bytes() -> None:
    now = datetime(2026, 11, 15, 16, 59, 59, tzinfo=UTC)
    nonces = {make_nonce(now) for _ in range(1000)}
    assert len(nonces) == 1000
    assert {hour_of(read_nonce(nonce)) for nonce in nonces} == {seconds_of(now) // HOUR} == {498544}
    assert all(len(nonce) == 32 for nonce in nonces)
    assert abs(hour_of(read_nonce(make_nonce())) - datetime.now(UTC).timestamp() / HOUR) < 2


@pytest.mark.parametrize("text", ["", "00" * 15, "00" * 17, "0" * 31 + "g", "0" * 30 + "  ", " " + "0" * 31, "é" * 32])
def test_anything_but_32_hex_digits_is_no_nonce(text: str) -> None:
    with pytest.raises(MessageError, match="32 hex digits - at line 1") as caught:
        read_nonce(text, "line 1")
    assert caught.value.__context__ is None


def test_every_nonce_is_accepted_for_its_whole_life_and_remembered_as_long() -> None:
    """Made in the last second of an hour, it lives on until that second of a later day."""
    made = 500_000 * HOUR + HOUR - 1
    nonce = (500_000).to_bytes(4, "big") + bytes(12)
    assert hour_of(nonce) in open_hours(made, LIFE)
    assert hour_of(nonce) in open_hours(made + LIFE, LIFE)
    assert hour_of(nonce) not in open_hours(made + LIFE + 1, LIFE)
    problem = untimely_error(nonce, open_hours(made + LIFE + 1, LIFE))
    assert (problem.reason, problem.status) == ("expired", 410)
    assert oldest_hour(made + LIFE, LIFE) == 500_000
    assert oldest_hour(made + LIFE + 1, LIFE) == 500_001


def test_clocks_may_be_an_hour_fast() -> None:
    nonce = (500_001).to_bytes(4, "big") + bytes(12)
    assert hour_of(nonce) in open_hours(500_000 * HOUR, LIFE)
    assert hour_of(nonce) not in open_hours(500_000 * HOUR - 1, LIFE)
    problem = untimely_error(nonce, open_hours(500_000 * HOUR - 1, LIFE))
    assert (problem.reason, problem.status) == ("ahead", 503)


def test_a_time_without_a_zone_is_in_utc() -> None:
    moment = datetime(2026, 11, 15, 16, tzinfo=UTC)
    assert seconds_of(moment.replace(tzinfo=None)) == seconds_of(moment) == 1_794_758_400
    assert seconds_of(moment.astimezone(timezone(timedelta(hours=-7)))) == 1_794_758_400


NEW, OLD, OTHER = (bytes([byte]) * 32 for byte in (1, 2, 3))
NOW = datetime(2026, 11, 15, 16, 59, tzinfo=UTC)


def test_a_voucher_is_a_nonce_of_this_hour_and_no_two_are_the_same() -> None:
    vouchers = mint_vouchers(NEW, 1000, NOW)
    assert len({*vouchers}) == 1000
    assert {hour_of(read_nonce(voucher)) for voucher in vouchers} == {498544}
    assert all(is_genuine(read_nonce(voucher), [NEW]) for voucher in vouchers)
    assert len({voucher[8:18] for voucher in vouchers}) == 1000


def test_either_of_two_keys_holds_and_no_other() -> None:
    (old,) = mint_vouchers(OLD)
    assert is_genuine(read_nonce(old), [NEW, OLD])
    assert not is_genuine(read_nonce(old), [NEW, OTHER])
    assert not is_genuine(read_nonce(old), [])


def test_whatever_bit_of_a_voucher_changes_it_is_none() -> None:
    voucher = read_nonce(vouch_for("00079b70" + "5a" * 12, NEW))
    for place in range(128):
        changed = int.from_bytes(voucher, "big") ^ (1 << place)
        assert not is_genuine(changed.to_bytes(16, "big"), [NEW, OLD])


@pytest.mark.parametrize("text", ["", "xy", "00" * 31, "00" * 33, " ".join(["00" * 32] * 3)])
def test_what_is_no_key_is_refused_with_the_line_to_write(text: str) -> None:
    with pytest.raises(KanabError, match=r"Write export KANAB_VOUCHER_KEY=\$\(openssl rand -hex 32\)") as caught:
        read_voucher_keys(text)
    assert caught.value.__context__ is None or "00" not in str(caught.value.__context__)
