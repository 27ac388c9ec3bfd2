from __future__ import annotations

import pytest

from kanab.collector.counting.counters import pack, unpack
from kanab.errors import StoreError


@pytest.mark.parametrize(
    "value", [0, 1, -1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 2**128, -(3**90)]
)
def test_every_whole_number_comes_back_as_it_was(value: int) -> None:
    assert unpack(pack({"checkout/tier|B:3|minutes|q": value})) == {"checkout/tier|B:3|minutes|q": value}


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x93\x01\x02\x03", pack({"a": 1})[:-1], b"\x81\xa1a\xa1x", b"\x81\xa1a\xcb" + b"\0" * 8]
)
def test_anything_else_is_no_record(data: bytes) -> None:
    with pytest.raises(StoreError, match="does not hold counters"):
        unpack(data)
