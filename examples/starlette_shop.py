"""A shop on Starlette (and so on FastAPI) that tests its checkout, counting in a collector.

    pip install 'kanab[client]' starlette uvicorn
    KANAB_URL=http://localhost:8000 KANAB_COOKIE_KEY=$(openssl rand -hex 32) python examples/starlette_shop.py 8080

The plan that goes with it: [covariates] tier, [metrics] bought and minutes, [experiments.checkout] adjust = ["tier"].
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from kanab.client import Client, Cookies, Person

cookies = Cookies(Client(os.environ["KANAB_URL"]))


def person_of(request: Request) -> Person:
    """Whoever sent a request; somebody who signals that they do not want to be counted is not."""
    return cookies.person(request.cookies.get(cookies.name), opted_out=request.headers.get("Sec-GPC") == "1")


def answer(person: Person, text: str | None) -> Response:
    """Return a page, with the person's cookie if it has changed. What is to be counted leaves in the background."""
    response = PlainTextResponse(text or "")
    if kept := cookies.save(person):
        response.set_cookie(**kept)
    return response


async def checkout(request: Request) -> Response:
    """Show the page that differs: whoever sees it is enrolled."""
    person = person_of(request)
    person.enroll("checkout", {"tier": request.query_params.get("tier")})
    return answer(person, person.variant("checkout"))


async def buy(request: Request) -> Response:
    """Something that is measured."""
    person = person_of(request)
    person.track("bought")
    person.track("minutes", float(request.query_params.get("minutes", 0)))
    return answer(person, "thank you")


async def opt_out(request: Request) -> Response:
    """Forget everything about this person; remember only that they said so."""
    person = person_of(request)
    person.opt_out()
    return answer(person, "forgotten")


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    """Know the plan before the first request; deliver everything before the last goodbye."""
    cookies.client.ready(10)
    yield
    cookies.client.close()


app = Starlette(
    routes=[
        Route("/checkout", checkout),
        Route("/buy", buy, methods=["POST"]),
        Route("/opt-out", opt_out, methods=["POST"]),
    ],
    lifespan=lifespan,
)

if __name__ == "__main__":
    import uvicorn

    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", access_log=False)
