"""The web page that a post comes from, as its browser says: whether it belongs to the collector's own site."""

from __future__ import annotations

from typing import NamedTuple

from kanab.collector.http.access import host_name
from kanab.collector.http.addresses import is_loopback


class PostingPage(NamedTuple):
    """What a browser says of the page: the headers Origin and Sec-Fetch-Site, beside the Host that it asked for."""

    origin: bytes | None = None
    site: bytes | None = None
    host: bytes | None = None

    @property
    def is_foreign(self) -> bool:
        """Whether a browser says that the page is another site's. Apps and servers send no such headers."""
        if self.origin is None:
            return self.site == b"cross-site"
        if self.site in (b"same-origin", b"same-site"):
            return False
        page = host_name(self.origin.partition(b"://")[2].decode("latin-1"))
        own = host_name((self.host or b"").decode("latin-1"))
        both_here = is_loopback(page) and is_loopback(own)
        return not page or not (page == own or both_here)
