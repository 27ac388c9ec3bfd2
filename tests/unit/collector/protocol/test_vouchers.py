from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kanab.collector.protocol.nonces import hour_of, is_genuine, mint_vouchers, read_nonce, read_voucher_keys, vouch_for
from kanab.errors import KanabError

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
