"""A day on the clock of a collector, in an hour or less: it restarts every hour, and forgets old nonces."""

import asyncio
import time
from datetime import timedelta
from pathlib import Path

from tests.collector.collector_process import ForkServer, Place, Server, turn
from tests.collector.many_visitors import PLAN_TEXT, Visitors, collected

from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.stores.sqlite import SqliteStore

PLAN = PLAN_TEXT.replace("k = 10", 'k = 10\nnonce_life = "1h"')
PEOPLE_PER_HOUR = 100


def pass_a_day(folder: Path, seconds: float, hours: int = 24, seed: int = 6) -> str:
    """Let a day, or so many hours, pass in some seconds: everybody is counted once, and old posts are refused."""
    fork_server = ForkServer()
    place = Place(folder / "clock", fork_server)
    clock = turn(place.root / "clock")
    options = ("--plan", place.plan(PLAN), "--data", place.data)
    visitors = Visitors(seed)
    refused = 0
    for hour in range(hours):
        visitors.ahead = timedelta(hours=hour)
        turn(clock, visitors.ahead)
        server = Server(place, *options, clock=clock).start()
        end = time.monotonic() + seconds / hours
        asyncio.run(visitors.for_a_while([server.port], seconds / hours, most=PEOPLE_PER_HOUR))
        time.sleep(max(0.0, end - time.monotonic()))
        for sent in visitors.acknowledged[:5] if hour > 3 else ():
            assert server.post(sent.body) == 410, "a post that nobody remembers is counted again"
            refused += 1
        if hour % 2:
            server.kill()
        else:
            assert server.stop() == 0
        assert "Traceback" not in server.stderr, server.stderr
    store = SqliteStore(place.data / "store.db")
    same = collected(store, RecordCipher(Keyring.from_file(place.key))) == visitors.tallies()
    kept = store.last_hour()
    store.close()
    fork_server.close()
    assert same, "the sums are others"
    assert kept >= int(time.time()) // 3600 + hours - 2
    counts = (
        f"{hours} hours and restarts, {len(visitors.acknowledged):,} posts acknowledged, {refused} old ones refused"
    )
    return f"{counts}; none lost, none doubled"
