"""A shop on Django, in one file, that tests its checkout, counting in a collector.

    pip install 'kanab[client]' django
    KANAB_URL=http://localhost:8000 KANAB_COOKIE_KEY=$(openssl rand -hex 32) python examples/django_shop.py 8080

The plan that goes with it: [covariates] tier, [metrics] bought and minutes, [experiments.checkout] adjust = ["tier"].
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path

from kanab.client import Client, Cookies

cookies = Cookies(Client(os.environ["KANAB_URL"]))


def kanab_middleware(view: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Recognizes people by their cookie, and remembers them in it if something has changed."""

    def middleware(request: HttpRequest) -> HttpResponse:
        request.person = cookies.person(
            request.COOKIES.get(cookies.name), opted_out=request.headers.get("Sec-GPC") == "1"
        )
        response = view(request)
        if kept := cookies.save(request.person):
            response.set_cookie(**kept)
        return response

    return middleware


def checkout(request: HttpRequest) -> HttpResponse:
    """Show the page that differs: whoever sees it is enrolled."""
    request.person.enroll("checkout", {"tier": request.GET.get("tier")})
    return HttpResponse(request.person.variant("checkout") or "")


def buy(request: HttpRequest) -> HttpResponse:
    """Something that is measured."""
    request.person.track("bought")
    request.person.track("minutes", float(request.GET.get("minutes", 0)))
    return HttpResponse("thank you")


def opt_out(request: HttpRequest) -> HttpResponse:
    """Forget everything about this person; remember only that they said so."""
    request.person.opt_out()
    return HttpResponse("forgotten")


urlpatterns = [path("checkout", checkout), path("buy", buy), path("opt-out", opt_out)]
settings.configure(
    ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], MIDDLEWARE=[f"{__name__}.kanab_middleware"], LOGGING_CONFIG=None
)
application = get_wsgi_application()


class Quiet(WSGIRequestHandler):
    """Logs nothing about people."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


class Threads(ThreadingMixIn, WSGIServer):
    """A thread for each request, as a real server would have."""

    daemon_threads = True
    request_queue_size = 64


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # an end in order: the last posts are delivered
    cookies.client.ready(10)
    with make_server("127.0.0.1", int(sys.argv[1]), application, Threads, Quiet) as server:
        server.serve_forever()
