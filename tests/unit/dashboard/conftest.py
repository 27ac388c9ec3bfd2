"""The collector's fixtures: a dashboard shows the pages of one."""

import pytest
from tests.unit.collector.http.conftest import app, open_service, running
from tests.unit.dashboard.shop_releases import WEEKLY, FixedSource

from kanab.dashboard.results import Results

__all__ = ["app", "open_service", "running"]


@pytest.fixture(scope="module")
def results() -> Results:
    """The results of three weekly batches."""
    return Results(FixedSource(WEEKLY), patience=60)
