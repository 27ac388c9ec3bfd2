"""Client: one for each process of a server. It has people, a config, and delivery in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime

from msgspec.structs import replace

from kanab.client.config import Config, read_config
from kanab.client.config_watch import ConfigWatch
from kanab.client.delivery import CLOSE_TIMEOUT, Delivery
from kanab.client.fork_safety import reset_in_children
from kanab.client.person import Person
from kanab.client.posts import enroll_together, make_posts
from kanab.client.recent_states import RecentStates
from kanab.client.state import State, at_this_hour, fresh_version, unpack_state
from kanab.client.steps import OptOut, Step, apply_step, settle
from kanab.client.transport import Http, Transport
from kanab.collector.protocol.config import public_config
from kanab.errors import KanabError
from kanab.plan.model import Plan

_DAY = 86_400


class Client:
    """Shows arms and counts people for a server, through the collector at an address.

    ``source`` is the collector's address, whose config is fetched in the background; or a plan or the
    bytes of a config, together with a ``transport``. ``development`` says mistakes aloud, in the log.
    """

    def __init__(
        self,
        source: str | Plan | bytes,
        transport: Transport | None = None,
        *,
        threads: int = 2,
        development: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._transport = _transport(source, transport)
        self._fixed = _fixed(source)
        self._watch = ConfigWatch(self._transport.config) if self._fixed is None else None
        if self._watch is not None:
            self._watch.start()
        self._development, self._clock = development, clock
        self.reset()
        reset_in_children(self)
        self._delivery = Delivery(
            self._transport.post, self._life, threads=threads, clock=lambda: self._clock().timestamp()
        )

    def reset(self) -> None:
        """Begin without any known states, also in a forked process."""
        self._recent = RecentStates()
        self._lock = threading.Lock()

    @property
    def config(self) -> Config | None:
        """The public part of the collector's plan; None before it is known."""
        return self._fixed if self._watch is None else self._watch.current

    def ready(self, timeout: float | None = None) -> bool:
        """Wait until the config is known, as at the start of a server; return False if the time was too short."""
        return self._watch is None or self._watch.wait(timeout)

    def person(self, state: bytes | None = None, *, id: str | None = None, opted_out: bool = False) -> Person:
        """Return a person with the state that was handed on last, or a new one.

        ``id`` draws arms by a stable id, which is hashed and goes nowhere. ``opted_out``: this request
        comes from somebody who does not want to be counted (it says Sec-GPC: 1, say): the control is shown, and
        their state, if there is one, is forgotten.
        """
        unpacked = unpack_state(state)
        if opted_out:
            self._commit(unpacked, [OptOut()], id)
        newest = State() if opted_out else self._commit(unpacked, [], id)
        return Person(
            self.config, newest, self._commit, self._wait,
            given=state or b"", came=unpacked.version, clock=self._clock, id=id, silent=opted_out,
            development=self._development,
        )  # fmt: skip

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until everything is delivered or given up; return False if the time was too short."""
        return self._delivery.flush(timeout)

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Deliver what waits, and stop; the end of the process does it, too."""
        if self._watch is not None:
            self._watch.close()
        self._delivery.close(timeout)
        self._transport.close()

    # ── within ─────────────────────────────────────────────────────────────────────────────────

    def _life(self) -> int:
        config = self.config
        return _DAY if config is None else config.life

    def _commit(self, state: State, steps: list[Step], id: str | None) -> State:
        """Put steps on the newest state that this one has become here, and send the posts that follow from them.

        One lock for all: it is held for the moment that this takes, and never while anything is sent.
        """
        config, now = self.config, self._clock()
        if config is None:
            return state
        with self._lock:
            before = at_this_hour(self._recent.newest(state), now)
            after = settle(config, before, self._delivery.counted, now)
            waiting = [unit.outbox for unit in after.units.values() if unit.outbox]
            for step in steps:
                after = apply_step(config, after, step, id)
            if after.out and not before.out:
                for posts in waiting:
                    self._delivery.withdraw(posts)
                self._recent.follow(before.version, after)
                return after
            return self._with_posts(config, before, after)

    def _with_posts(self, config: Config, before: State, after: State) -> State:
        """Return the state with every unit up to date and its posts under way; a new version if anything is new."""
        units = enroll_together(config, after.units, after.root) if before.blank else dict(after.units)
        for name, unit in after.units.items():
            units[name] = make_posts(config, name, units[name], after.root)
            if unit.outbox:
                self._delivery.submit(unit.outbox, fresh=False)
            if units[name] is not unit:
                self._delivery.submit(units[name].outbox)
        after = replace(after, units=units)
        if after == before:
            return before
        after = replace(after, version=fresh_version())
        self._recent.follow(before.version, after)
        return after

    def _wait(self, timeout: float | None, state: State) -> bool:
        return self._delivery.flush(timeout, [post for unit in state.units.values() for post in unit.outbox])


def _transport(source: str | Plan | bytes, transport: Transport | None) -> Transport:
    if transport is not None:
        return transport
    if isinstance(source, str):
        return Http(source)
    raise KanabError(
        "a client with a plan needs to know where its collector is", "Give transport=Http('https://…'), or its address."
    )


def _fixed(source: str | Plan | bytes) -> Config | None:
    if isinstance(source, Plan):
        return read_config(public_config(source))
    return read_config(source) if isinstance(source, bytes) else None
