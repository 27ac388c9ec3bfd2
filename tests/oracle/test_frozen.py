"""What kanab answered on the day of the freeze it answers today.

Numbers are compared to 1e-9 of themselves, because kernels of BLAS differ between machines; everything else exactly.
Words, which may be changed for their own sake, are compared where ``ORACLE_WORDS`` is set in the environment.
"""

import os
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from . import adapter
from .frozen import KINDS, Data, differences, read_lines
from .sources import ENGINES, connected, load

WORDS = bool(os.environ.get("ORACLE_WORDS"))
MISSING = {"error": "MissingExtraError"}
CASES = {kind: read_lines(kind) for kind in KINDS}
SPOKEN = {(kind, line["id"]): line["words"] for kind in KINDS if WORDS for line in read_lines(f"{kind}-words")}

EVERY = [(kind, case) for kind in KINDS for case in CASES[kind] if kind != "rows"]
COUNTED = [(case, engine) for case in CASES["rows"] for engine in case["engines"]]


def check(kind: str, case: Data, given: Data) -> None:
    """Compare what is answered with what was."""
    answer = adapter.run(case["call"], given)
    if answer.data == MISSING != case["answer"]:
        pytest.skip(answer.words()["message"])
    assert unlike(case["call"], case["answer"], answer.data) == []
    if WORDS:
        assert in_any_order(answer.words()) == in_any_order(SPOKEN[kind, case["id"]])


def in_any_order(words: Data) -> Data:
    """Return words with the sentences of plain data sorted: they come in the order of keys, which may change."""
    return {**words, "sentences": sorted(words["sentences"])} if "sentences" in words else words


def unlike(call: str, frozen: Any, found: Any) -> list[str]:
    """Return where an answer of today differs from a frozen one."""
    expected, found = adapter.as_today(call, frozen), adapter.without_added(call, found)
    return list(differences(expected, found, keys_in_order=adapter.KEYS_IN_ORDER))


@pytest.fixture(scope="module")
def engines() -> Iterator[None]:
    yield
    for engine in ENGINES[1:]:
        connected(engine).disconnect()
    load.cache_clear()
    connected.cache_clear()


@pytest.mark.parametrize(("kind", "case"), EVERY, ids=[f"{kind}: {case['id']}" for kind, case in EVERY])
def test_the_answer_is_the_frozen_one(kind: str, case: Data) -> None:
    check(kind, case, case["given"])


@pytest.mark.slow
@pytest.mark.usefixtures("engines")
@pytest.mark.parametrize(("case", "engine"), COUNTED, ids=[f"{case['id']}: {engine}" for case, engine in COUNTED])
def test_every_engine_gives_the_frozen_answer(case: Data, engine: str) -> None:
    check("rows", case, {**case["given"], "engine": engine})


def numbers(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """Yield where the numbers of plain data are."""
    if isinstance(value, (dict, list)):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers(each, *path, key)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path


@pytest.mark.parametrize(("kind", "case"), [(kind, CASES[kind][0]) for kind in KINDS], ids=KINDS)
def test_one_number_that_is_another_is_noticed(kind: str, case: Data) -> None:
    found = adapter.run(case["call"], case["given"]).data
    assert unlike(case["call"], case["answer"], found) == []
    places = list(numbers(case["answer"]))
    for *path, last in places[:: len(places) // 5]:
        changed = deepcopy(case["answer"])
        part = changed
        for key in path:
            part = part[key]
        part[last] += type(part[last])(1 if isinstance(part[last], int) else 1e-8 * (abs(part[last]) or 1))
        assert len(unlike(case["call"], changed, found)) == 1
        part[last] = str(part[last])
        assert len(unlike(case["call"], changed, found)) == 1


def test_keys_that_are_gone_new_or_in_another_order_are_noticed() -> None:
    frozen: Data = {"effects": [{"p": 0.5, "role": "primary"}]}
    assert unlike("analyze", frozen, {"effects": [{"p": 0.5}]}) == [".effects[0].role is gone"]
    assert unlike("analyze", frozen, {**frozen, "more": None}) == [".more is new"]
    assert unlike("analyze", frozen, {"effects": []}) == [".effects has 0 entries, and had 1"]
    turned = {"effects": [{"role": "primary", "p": 0.5}]}
    assert [*differences(frozen, turned, keys_in_order=True)] == [".effects[0] has its keys in another order: role, p"]
    assert unlike("plan", {"k": 1}, {"k": 1.0}) == [".k is 1.0, and was 1"]


def test_what_was_changed_on_purpose_is_said_in_the_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = {"effects": [{"p_usual": 0.5, "verdict": "up", "old": 1}], "plan": {"metrics": {"y": {"bins": 3}}}}
    monkeypatch.setitem(adapter.JSON_KEYS, "analyze.effects.p_usual", "p_one_look")
    monkeypatch.setitem(adapter.PLAN_KEYS, "metrics.*.bins", "edges")
    monkeypatch.setitem(adapter.VALUES, "*.verdict", {"up": "better"})
    monkeypatch.setattr(adapter, "REMOVED", ("*.old",))
    monkeypatch.setattr(adapter, "ADDED", ("analyze.new",))
    monkeypatch.setitem(adapter.OPTIONS, "confidence", "control")
    today = {"effects": [{"p_one_look": 0.5, "verdict": "better"}], "plan": {"metrics": {"y": {"edges": 3}}}}
    assert unlike("analyze", frozen, {**today, "new": 1}) == []
    assert adapter.read_options({"confidence": "B"}).control == "B"
