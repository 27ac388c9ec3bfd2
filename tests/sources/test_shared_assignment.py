"""Who shares a home with whom: every engine says what rows say."""

from __future__ import annotations

import pytest

from kanab.counting.dispatch import SourceOptions
from kanab.counting.shared_assignment import people_share

from .conftest import Loader

ROWS = {
    "person": list(range(120)),
    "home": [None if i % 10 == 0 else i // 3 for i in range(120)],
    "variant": [None if i % 8 == 0 else "AB"[i // 3 % 2] for i in range(120)],
}


@pytest.mark.parametrize("options", [SourceOptions(), SourceOptions(where="person < 60"), SourceOptions(unit="person")])
def test_every_engine_finds_the_people_of_one_home(engine: Loader, options: SourceOptions) -> None:
    table = engine.load(ROWS)
    rows = [i for i in range(120) if options.where is None or i < 60]
    there = [i for i in rows if ROWS["home"][i] is not None and ROWS["variant"][i] is not None]
    shared = len(there) - len({ROWS["home"][i] for i in there})
    assert shared > 10
    assert people_share(table, "home", ["variant"], options, shared)
    assert not people_share(table, "home", ["variant"], options, shared + 1)
