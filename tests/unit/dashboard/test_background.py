"""Values are computed once, beside the requests, until the bytes change."""

import threading

import pytest

from kanab.dashboard.background import BackgroundCache, LockedCache, NotYetError
from kanab.errors import AnalysisError


def test_a_value_is_computed_once_and_again_for_other_bytes() -> None:
    cache, made = BackgroundCache(), []
    for about in ("one", "one", "two"):
        assert cache.get(about, "key", lambda: made.append(1) or len(made), wait=5) == (2 if about == "two" else 1)
    assert len(made) == 2


def test_what_went_wrong_is_raised_to_everybody_who_asks() -> None:
    cache = BackgroundCache()

    def wrong() -> int:
        raise AnalysisError("no", "Wait.")

    for _ in range(2):
        with pytest.raises(AnalysisError):
            cache.get("one", "wrong", wrong, wait=5)


def test_threads_share_one_value() -> None:
    cache, made = LockedCache(), []
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        cache.get("key", lambda: made.append(1))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert made == [1]


def test_what_is_computed_ahead_waits_while_a_page_waits_for_something_else() -> None:
    cache, asked, begun, go = BackgroundCache(), threading.Event(), threading.Event(), threading.Event()
    order: list[str] = []

    def ahead() -> None:
        asked.wait(10)
        begun.wait(10)
        cache.give_way("list")
        order.append("list")

    def page() -> None:
        begun.set()
        go.wait(10)
        order.append("page")

    with pytest.raises(NotYetError):
        cache.get("one", "list", ahead, wait=0)
    reader = threading.Thread(target=lambda: cache.get("one", "page", page, wait=10))
    reader.start()
    begun.wait(10)
    asked.set()
    with pytest.raises(NotYetError):
        cache.get("one", "list", ahead, wait=0.2)  # who waits for the list itself does not hold it up, the page does
    go.set()
    reader.join()
    cache.get("one", "list", ahead, wait=10)
    assert order == ["page", "list"]


def test_what_is_computed_ahead_gives_way_while_a_page_is_drawn_but_not_while_it_waits_for_that() -> None:
    cache, drawn = BackgroundCache(), threading.Event()
    order = []

    def ahead() -> str:
        drawn.wait(10)
        cache.give_way("list")
        order.append("list")
        return "a list"

    with cache.drawing():
        with pytest.raises(NotYetError):
            cache.get("one", "list", ahead, wait=0)
        drawn.set()
        threading.Event().wait(0.05)  # while which it could begin
        order.append("page")
        assert cache.get("one", "list", ahead, wait=10) == "a list"
    assert order == ["page", "list"]
