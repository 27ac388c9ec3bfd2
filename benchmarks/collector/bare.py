"""A handler that does nothing but answer 204, on the collector's own server: what HTTP itself costs here.

python benchmarks/collector/bare.py PORT
"""

from __future__ import annotations

import sys
from typing import Any

from kanab.collector.http.server import bind, serve

START = {"type": "http.response.start", "status": 204, "headers": []}
END = {"type": "http.response.body", "body": b""}


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await send(START)
        await send(END)
        return
    while (await receive())["type"] == "lifespan.startup":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})


if __name__ == "__main__":
    serve(app, bind("127.0.0.1", int(sys.argv[1])))
