"""A disk that fails and connections that are cut: what was acknowledged is there, once, and all comes in at last."""

import asyncio
import random
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.collector.collector_process import HOST, ForkServer, Place, Server
from tests.collector.many_visitors import PLAN_TEXT, Visitors, check_collected

SOURCE = Path(__file__).with_name("faults.c")


def build_faults(folder: Path) -> Path:
    """Compile what makes a disk fail; raises ``FileNotFoundError`` without a C compiler."""
    library = folder / "faults.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True, capture_output=True)
    return library


def fail_disks(folder: Path, rounds: int, seed: int = 3, one_in: int = 150) -> str:
    """Serve from a failing disk so often, each time for a moment; then from a good one, and compare."""
    rng, fork_server = random.Random(seed), ForkServer(preload=build_faults(folder))
    visitors, seen = Visitors(seed), set[int]()
    place = Place(folder / "disk", fork_server)
    options = ("--plan", place.plan(PLAN_TEXT), "--data", place.data)
    Server(place, *options).start().stop()  # a new store, from a good disk
    for number in range(rounds):
        place.variables = {"KANAB_FAULTS": f"{rng.randrange(2**31)}:{one_in}"}
        server = Server(place, *options, name=f"faults{number}")
        with suppress(AssertionError):  # a start may fail: then the next one has its chance
            server.start(healthy=None)  # as far as its disk lets it: it is not waited for until that is well
            asyncio.run(_for(visitors, server, seen, rng.uniform(0.2, 1.5)))
        server.close()
        assert "Traceback" not in server.stderr, server.stderr
    place.variables = {}
    server = Server(place, *options, name="good").start()
    asyncio.run(visitors.finish([server.port], seconds=120))
    assert server.stop() == 0
    fork_server.close()
    check_collected(place, visitors.tallies())
    assert seen <= {0, 204, 503}, seen
    return f"{len(visitors.acknowledged):,} posts acknowledged, answers {sorted(seen)}; none lost, none doubled"


async def _for(visitors: Visitors, server: Server, seen: set[int], seconds: float) -> None:
    stop = asyncio.Event()
    posting = asyncio.create_task(visitors.post([server.port], stop=stop, seen=seen, connections=6))
    await asyncio.sleep(seconds)
    stop.set()
    with suppress(AssertionError):
        await posting


class CuttingProxy:
    """Passes bytes on between clients and a collector, and cuts connections at random moments."""

    def __init__(self, port: int, seed: int) -> None:
        self.cuts = 0
        self._to, self._rng = port, random.Random(seed)
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        """Listen at a free port, and return it."""
        self._server = await asyncio.start_server(self._connected, HOST, 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Take no more connections."""
        assert self._server is not None
        self._server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, self._to)
        except OSError:
            writer.transport.abort()
            return
        left = self._rng.randrange(200, 20_000)

        async def pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            nonlocal left
            while data := await source.read(4096):
                if len(data) > left:  # half of it arrives
                    sink.write(data[:left])
                    with suppress(OSError):
                        await sink.drain()
                    self.cuts += 1
                    break
                left -= len(data)
                sink.write(data)
                with suppress(OSError):
                    await sink.drain()
            for end in (writer, far_writer):
                end.transport.abort()

        with suppress(OSError, asyncio.CancelledError):
            await asyncio.gather(pass_on(reader, far_writer), pass_on(far_reader, writer))


def cut_connections(folder: Path, seconds: float, seed: int = 4) -> str:
    """Post through a proxy that cuts connections in the middle of requests and of answers."""
    fork_server = ForkServer()
    place = Place(folder / "proxy", fork_server)
    server = Server(place, "--plan", place.plan(PLAN_TEXT), "--data", place.data).start()
    visitors, seen = Visitors(seed), set[int]()

    async def through() -> int:
        proxy = CuttingProxy(server.port, seed)
        port = await proxy.start()
        stop = asyncio.Event()
        posting = asyncio.create_task(visitors.post([port], stop=stop, seen=seen))
        await asyncio.sleep(seconds)
        stop.set()
        await posting
        await visitors.finish([server.port])
        await proxy.stop()
        return proxy.cuts

    cuts = asyncio.run(through())
    assert server.stop() == 0
    assert cuts > seconds, "hardly anything was cut"
    fork_server.close()
    check_collected(place, visitors.tallies())
    assert seen <= {0, 204}, seen
    return f"{cuts:,} connections cut, {len(visitors.acknowledged):,} posts acknowledged; none lost, none doubled"
