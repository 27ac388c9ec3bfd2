"""``vouch = true``: what the site's server has minted counts once, under either key; nothing else counts."""

from datetime import UTC, datetime, timedelta

from tests.closing import Keep
from tests.collector.collector_process import Place, Server

from kanab.client import mint_vouchers
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.protocol.nonces import make_nonce
from kanab.collector.stores.sqlite import SqliteStore

PLAN = """
k = 2
vouch = true
[metrics]
bought = { kind = "binary" }
[experiments.banner]
arms = { off = 1, on = 1 }
"""
OLD, NEW = "5a" * 32, "0f" * 32


def begun(place: Place, keys: str) -> Server:
    place.variables = {"KANAB_VOUCHER_KEY": keys}
    return Server(place, "--plan", place.plan(PLAN), "--data", place.data)


def send(server: Server, nonce: str, line: str = "banner:on") -> tuple[int, str]:
    status, headers, _ = server.ask("POST", "/v1/t", f"kanab/1 {nonce}\n{line}\n".encode(), {})
    return status, headers["kanab-answer"]


def people(place: Place) -> int:
    store, cipher = SqliteStore(place.data / "store.db"), RecordCipher(Keyring.from_file(place.key))
    counted = sum(
        counters.get("banner|on|n", 0) + counters.get("banner|off|n", 0)
        for counters in (cipher.decrypt(record.cohort, record.ciphertext) for record in store.records())
    )
    store.close()
    return counted


def test_a_collector_of_vouchers_does_not_start_without_a_key(place: Place) -> None:
    for keys in ("", "5a"):
        place.variables = {"KANAB_VOUCHER_KEY": keys} if keys else {}
        done = place.run("serve", "--plan", place.plan(PLAN), "--data", place.data, "--port", "0")
        assert done.code == 2
        assert "export KANAB_VOUCHER_KEY=$(openssl rand -hex 32)" in done.err
        assert "Traceback" not in done.err
        assert not place.data.exists()


def test_vouchers_count_once_and_what_else_is_sent_is_refused_for_its_reason(place: Place, closing: Keep) -> None:
    server = closing(begun(place, NEW)).start()
    vouchers = mint_vouchers(NEW, 3)
    assert [send(server, voucher) for voucher in vouchers] == [(204, "counted")] * 3
    past = datetime.now(UTC) - timedelta(days=2)
    for _ in range(2):  # k = 2: what happened twice is shown
        assert send(server, vouchers[0]) == (204, "duplicate")
        assert send(server, vouchers[1], "banner:off") == (204, "duplicate")  # replayed with other words
        assert send(server, "") == (403, "unvouched")
        assert send(server, make_nonce()) == (403, "forged")
        assert send(server, mint_vouchers(OLD)[0]) == (403, "forged")
        status, answer = send(server, mint_vouchers(NEW, 1, past)[0])
        assert (status, answer) in ((410, "expired"), (503, "clock"))
    assert server.stop() == 0
    assert people(place) == 3
    held = b"".join(file.read_bytes() for file in place.data.iterdir())
    for voucher in vouchers:  # spent ones are remembered by a keyed hash
        assert voucher.encode() not in held
        assert bytes.fromhex(voucher)[4:] not in held
