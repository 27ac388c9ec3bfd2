"""The collector's fixtures: a dashboard shows the pages of one."""

from tests.unit.collector.http.conftest import app, open_service, running

__all__ = ["app", "open_service", "running"]
