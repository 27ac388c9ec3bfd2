"""What states have become is known for some minutes, and to so many people."""

from __future__ import annotations

from kanab.client.recent_states import RecentStates
from kanab.client.state import OPTED_OUT, State


def test_every_earlier_version_leads_to_the_newest() -> None:
    memory = RecentStates()
    for number in range(5):
        memory.follow(f"v{number}", State(f"v{number + 1}"))
    assert {memory.newest(State(f"v{number}")).version for number in range(6)} == {"v5"}


def test_of_two_branches_the_later_one_holds_for_both() -> None:
    memory = RecentStates()
    memory.follow("v0", State("v1"))
    memory.follow("v0", State("v2"))
    assert [memory.newest(State(version)).version for version in ("v0", "v1", "v2")] == ["v2"] * 3


def test_it_forgets_after_its_time_and_beyond_its_room() -> None:
    now = [0.0]
    memory = RecentStates(most=4, minutes=1, clock=lambda: now[0])
    memory.follow("a0", State("a1"))
    now[0] = 30
    memory.follow("b0", State("b1"))
    assert memory.newest(State("a0")).version == "a1"
    now[0] = 61
    memory.follow("c0", State("c1"))
    assert [memory.newest(State(version)).version for version in ("a0", "b0", "c0")] == ["a0", "b1", "c1"]
    memory.follow("d0", State("d1"))
    assert [memory.newest(State(version)).version for version in ("b0", "c0", "d0")] == ["b0", "c1", "d1"]


def test_opting_out_holds_for_earlier_states_and_for_nobody_else() -> None:
    memory = RecentStates()
    memory.follow("a0", State("a1"))
    memory.follow("a1", OPTED_OUT)
    assert memory.newest(State("a0")) is OPTED_OUT
    assert memory.newest(State("b0")).version == "b0"
