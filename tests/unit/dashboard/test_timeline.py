"""How an effect settled over the seals."""

from __future__ import annotations

import pytest

from kanab.dashboard.results import Results
from kanab.dashboard.timeline import history_table, timeline


@pytest.mark.slow
def test_the_timeline_says_what_the_table_says(results: Results) -> None:
    contents = results.source.read()
    points = results.history("checkout", results.readouts(contents)["checkout"][-1].bundle)
    table = history_table(points)
    assert table.header == ("through", "people", "bought, B", "spend, B")
    svg = timeline(points, "bought", "B")
    for row in table.rows:
        assert f"{row[0]} {row[2]}" in svg
    assert svg.count("<circle") == 3
    assert timeline(points[:1], "bought", "B") == timeline(points, "nothing", "B") == ""
