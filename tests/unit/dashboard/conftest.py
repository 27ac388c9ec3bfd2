"""The collector's fixtures: a dashboard shows the pages of one."""

from tests.unit.collector.http.conftest import app, desk, open_desk

__all__ = ["app", "desk", "open_desk"]
