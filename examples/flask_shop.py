"""A shop on Flask that tests its checkout, counting in a collector.

    pip install 'kanab[client]' flask
    KANAB_URL=http://localhost:8000 KANAB_COOKIE_KEY=$(openssl rand -hex 32) python examples/flask_shop.py 8080

The plan that goes with it: [covariates] tier, [metrics] bought and minutes, [experiments.checkout] adjust = ["tier"].
"""

from __future__ import annotations

import logging
import os
import signal
import sys

from flask import Flask, Response, g, request

from kanab.client import Client, Cookies, SqliteStates

app = Flask(__name__)
file = os.environ.get("KANAB_SHARED")  # where several processes of this shop share what parallel requests have changed
cookies = Cookies(Client(os.environ["KANAB_URL"], shared=SqliteStates(file) if file else None))


@app.before_request
def recognize() -> None:
    """Whoever sent the request; somebody who signals that they do not want to be counted is not."""
    g.person = cookies.person(request.cookies.get(cookies.name), opted_out=request.headers.get("Sec-GPC") == "1")


@app.after_request
def remember(response: Response) -> Response:
    """Set the person's cookie, if it has changed. What is to be counted leaves in the background."""
    if kept := cookies.save(g.person):
        response.set_cookie(**kept)
    return response


@app.get("/checkout")
def checkout() -> str:
    """Show the page that differs: whoever sees it is enrolled."""
    g.person.enroll("checkout", {"tier": request.args.get("tier")})
    return g.person.variant("checkout") or ""


@app.post("/buy")
def buy() -> str:
    """Something that is measured."""
    g.person.track("bought")
    g.person.track("minutes", float(request.args.get("minutes", 0)))
    return "thank you"


@app.post("/opt-out")
def opt_out() -> str:
    """Forget everything about this person; remember only that they said so."""
    g.person.opt_out()
    return "forgotten"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # an end in order: the last posts are delivered
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    cookies.client.ready(10)
    app.run(port=int(sys.argv[1]), threaded=True)
