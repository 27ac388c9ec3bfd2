"""The peer of the collector's benchmark, as one would write it: FastAPI, a pool of connections, a row for every event.

    python benchmarks/collector/peer.py PORT postgresql://…          (needs fastapi, uvicorn, asyncpg)

One event in a request is one committed INSERT. Events that come together are inserted together, in one
transaction. The answer follows the commit.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import uvicorn
from fastapi import FastAPI, Response
from pydantic import BaseModel

TABLE = """CREATE TABLE IF NOT EXISTS events (id bigserial PRIMARY KEY, received timestamptz NOT NULL DEFAULT now(),
    visitor text NOT NULL, experiment text NOT NULL, arm text NOT NULL, tier integer NOT NULL, metric text NOT NULL,
    value double precision NOT NULL)"""
INSERT = "INSERT INTO events (visitor, experiment, arm, tier, metric, value) VALUES ($1, $2, $3, $4, $5, $6)"
POOL = 16


class Event(BaseModel):
    user: str
    experiment: str
    arm: str
    tier: int
    metric: str
    value: float

    def row(self) -> tuple[str, str, str, int, str, float]:
        return self.user, self.experiment, self.arm, self.tier, self.metric, self.value


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with asyncpg.create_pool(sys.argv[2], min_size=POOL, max_size=POOL) as pool:
        await pool.execute(TABLE)
        app.state.pool = pool
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/events", status_code=204)
async def take(events: Event | list[Event]) -> Response:
    if isinstance(events, Event):
        await app.state.pool.execute(INSERT, *events.row())
    else:
        await app.state.pool.executemany(INSERT, [one.row() for one in events])
    return Response(status_code=204)


@app.get("/healthz")
async def healthy() -> str:
    return "ok"


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), access_log=False, log_level="critical", loop="uvloop")
