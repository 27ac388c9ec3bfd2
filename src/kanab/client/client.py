"""A client for each process of a server, with a config and delivery in the background; and people, one a request."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from msgspec.structs import replace

from kanab.client.client_config import Config, read_config
from kanab.client.delivery import CLOSE_TIMEOUT, Delivery, PostAnswer, reset_in_children
from kanab.client.posts import enroll_together, epoch_of, make_posts
from kanab.client.shared_states import RecentStates, SharedStates, StateChain
from kanab.client.state import OVER, State, at_this_hour, fresh_version, pack_state, unpack_state
from kanab.client.steps import Enroll, OptOut, Remember, Step, Track, apply_step, arms_of, settle
from kanab.client.transport import Http, Transport
from kanab.collector.protocol.config import public_config
from kanab.collector.protocol.encoding import encode
from kanab.collector.protocol.nonces import VARIABLE, mint_vouchers, read_voucher_keys
from kanab.collector.protocol.reasons import Reason
from kanab.errors import KanabError, listed
from kanab.plan.model import Plan

MOST_TRIES = 200
"""So often a request tries to go on from where others are; then it goes on alone."""

_DAY = 86_400

WITHOUT_COHORTS = 90 * 86_400.0
"""Without cohorts there is no window; so long arms are remembered then, and so long an opt-out is."""

FETCH_SECONDS = 300.0
"""Seconds between two requests for the config."""

FETCH_AGAIN_SECONDS = 2.0
"""Seconds until the next try while there is none."""

_log = logging.getLogger("kanab.client")


class ConfigWatch:
    """The newest config that could be fetched, again and again: plans grow while people are counted."""

    def __init__(self, fetch: Callable[[], bytes], *, partial: bool = False) -> None:
        self._fetch, self._partial = fetch, partial
        self._config: Config | None = None
        self.reset()
        reset_in_children(self.reset)

    def reset(self) -> None:
        """Make locks and forget the thread: one starts when somebody asks for the config."""
        self._lock = threading.Lock()
        self._there = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if self._config is not None:
            self._there.set()

    @property
    def current(self) -> Config | None:
        """The config, without waiting."""
        if self._thread is None:
            self.start()
        return self._config

    def start(self) -> None:
        """Begin to fetch the config in the background."""
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(
                    target=_keep_fetching, args=(weakref.ref(self), self._stop), name="kanab-config", daemon=True
                )
                self._thread.start()

    def wait(self, timeout: float | None) -> bool:
        """Wait for the first config; False if the time was too short."""
        self.start()
        return self._there.wait(timeout)

    def fetch(self) -> float:
        """Fetch the config now; return the seconds until the next time."""
        try:
            self._config = replace(read_config(self._fetch()), partial=self._partial)
        except Exception as problem:  # a transport's own, or a page that is no config
            if not self._there.is_set():
                _log.warning("the config cannot be read (%s): everybody sees the control", type(problem).__name__)
        else:
            self._there.set()
        return FETCH_SECONDS if self._there.is_set() else FETCH_AGAIN_SECONDS

    def close(self) -> None:
        """Stop fetching."""
        self._stop.set()


def _keep_fetching(reference: weakref.ref[ConfigWatch], stop: threading.Event) -> None:
    """Fetch again and again, in a thread that does not keep its watch alive."""
    while True:
        watch = reference()
        if watch is None or stop.is_set():
            return
        wait = watch.fetch()
        del watch
        stop.wait(wait)


class Person:
    """Somebody who is shown arms and may be counted; ``Client.person`` makes one.

    Steps are only noted; ``save`` (and ``flush``) makes one post of them for each experiment and hands it
    to the background. None of the verbs waits, and none raises because of what is given to it.
    """

    def __init__(
        self, client: Client, state: State, *, given: bytes, came: str, id: str | None, silent: bool = False
    ) -> None:
        self._client, self._config = client, client.config
        self._state = self._seen = state
        self.given, self._came = given, came
        self._id, self._silent = id or None, silent
        self._steps: list[Step] = []

    def variant(self, experiment: str) -> str | None:
        """Return the arm to be shown; the control for whoever is not in the experiment, None for an unknown one."""
        config = self._config
        if config is None or not self._known("experiments", experiment, config.experiments):
            return None
        control = config.experiments[experiment].control
        if self._silent or self._seen.out:
            return control
        arm = self._arms(config)[experiment]
        return control if arm is None else arm

    def enroll(self, experiment: str, levels: Mapping[str, Any] | None = None) -> None:
        """Count this person from now on: they meet the change. Further calls add nothing."""
        config = self._config
        if config is None or not self._known("experiments", experiment, config.experiments):
            return
        sent = {}
        for covariate in config.experiments[experiment].covariates:
            sent[covariate], declared = config.level(covariate, (levels or {}).get(covariate))
            if not declared:
                self._warn(f"unknown level for {covariate!r}. Declared: {listed(config.covariates[covariate])}.")
        self._arms(config)
        self._do(Enroll(experiment, sent, self._client._clock()))

    def track(self, metric: str, amount: float | Decimal = 1) -> None:
        """Add to a running total, in every experiment in which this person is enrolled."""
        config = self._config
        if config is None or not self._known("metrics", metric, config.metrics):
            return
        try:
            more = Decimal(str(float(amount))) if not isinstance(amount, Decimal) else amount
        except (TypeError, ValueError, InvalidOperation, OverflowError):
            more = Decimal("nan")
        if more.is_finite():
            self._do(Track(metric, more, self._client._clock()))
        else:
            self._warn(f"the amount for {metric!r} is not a number.")

    def opt_out(self) -> None:
        """Forget everything and send nothing more; only the wish itself is remembered.

        Sums that were sent already cannot be recalled: nobody knows which part of them it was.
        """
        self._steps.clear()
        self._steps.append(OptOut())
        self.save()

    def save(self) -> bytes:
        """Return the state to hand on, with everything so far; posts are sent in the background."""
        if self._silent:
            return b""
        if self._config is None:
            return self.given
        steps, self._steps = self._steps, []
        self._state = self._seen = self._client._commit(self._state, steps, self._id)
        return self.given if self._state.version == self._came else pack_state(self._state)

    def brief(self) -> bytes:
        """Return the state without posts under way, where there is no room for them: this process sends them anyway."""
        self.save()
        units = {name: replace(unit, outbox=()) for name, unit in self._state.units.items()}
        return pack_state(replace(self._state, units=units))

    def flush(self, timeout: float | None = None) -> bool:
        """Save, and wait for the answers; return False if the time was too short."""
        self.save()
        done = self._client._wait(timeout, self._state)
        self.save()
        return done

    @property
    def lasts(self) -> float:
        """Seconds until nothing of the state is needed any more: the windows of all cohorts are over."""
        config, state, now = self._config, self._state, self._client._clock()
        if config is None or state.blank:
            return 0.0
        if state.out or config.cohorts is None:
            return WITHOUT_COHORTS
        cohorts = [unit.cohort for unit in state.units.values() if not unit.over]
        not_enrolled = any(arm is not None and encode(name) not in state.units for name, arm in state.arms.items())
        if not_enrolled or not state.units:
            cohorts.append(config.cohort(now))
        ends = [config.end(cohort) or 0.0 for cohort in cohorts]
        return max([end - now.timestamp() for end in ends], default=0.0)

    # ── within ─────────────────────────────────────────────────────────────────────────────────

    def _arms(self, config: Config) -> dict[str, str | None]:
        """Return arms in all experiments; drawn ones are remembered from now on."""
        arms = arms_of(config, self._seen, self._id)
        if self._id is None and arms.keys() - self._seen.arms.keys():
            self._do(Remember(arms))
        return arms

    def _do(self, step: Step) -> None:
        if self._config is None or self._silent or self._seen.out:
            return
        self._steps.append(step)
        self._seen = apply_step(self._config, self._seen, step, self._id)

    def _known(self, kind: str, name: str, names: Mapping[str, Any]) -> bool:
        if name in names:
            return True
        self._warn(f"unknown name among {kind}. The plan has: {listed(names)}.")
        return False

    def _warn(self, sentence: str) -> None:
        if self._client._development:
            _log.warning(sentence)


class Client:
    """Shows arms and counts people for a server, through the collector at an address.

    ``source`` is the collector's address, whose config is fetched in the background; or a plan or the
    bytes of a config, together with a ``transport``. ``experiments`` are those that people meet here, if not all of the
    plan: the config is fetched for them. ``shared`` is where the processes of a server tell each other what states have
    become, so that parallel requests lose nothing. ``voucher_key`` is that of vouchers, for a plan
    with ``vouch = true``, by default from KANAB_VOUCHER_KEY. ``development`` says mistakes aloud, in the log.
    """

    def __init__(
        self,
        source: str | Plan | bytes,
        transport: Transport | None = None,
        *,
        experiments: Collection[str] | None = None,
        shared: SharedStates | None = None,
        voucher_key: str | None = None,
        threads: int = 2,
        development: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._transport = _transport(source, transport, experiments)
        self._fixed = self._watch = None
        if isinstance(source, str):
            self._watch = ConfigWatch(self._transport.config, partial=experiments is not None)
            self._watch.start()
        else:
            self._fixed = read_config(public_config(source) if isinstance(source, Plan) else source)
        self._development, self._clock = development, clock
        text = voucher_key or os.environ.get(VARIABLE)
        self._voucher_key = read_voucher_keys(text)[0] if text else None
        self._warned = False
        self._chain = None if shared is None else StateChain(shared)
        self._epoch = ""
        self._past: set[str] = set()
        self.reset()
        reset_in_children(self.reset)
        self._delivery = Delivery(self._send, self._life, threads=threads, clock=lambda: self._clock().timestamp())

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
        return Person(self, newest, given=state or b"", came=unpacked.version, id=id, silent=opted_out)

    def voucher(self) -> str:
        """Return a fresh voucher for a page: one for each post that the browser may send; raises without a key."""
        return mint_vouchers(self._voucher_key or "", now=self._clock())[0]

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
        """Put steps on the newest state that this one has become, and send the posts that follow from them.

        One lock for all: it is held for the moment that this takes, and never while anything is sent or shared.
        """
        config, now = self.config, self._clock()
        if config is None or self._lacks_key(config):
            return state
        if config.epoch != self._epoch and config.epoch not in self._past:  # not a config older than the last one
            self._past.add(self._epoch)
            self._epoch = config.epoch
        shared = self._commit_shared(config, state, steps, id, now)
        if shared is not None:
            return shared
        with self._lock:
            before = at_this_hour(self._recent.newest(state), now)
            after = self._advance(config, before, steps, id, now, together=before.blank)
            self._hand_over(before, after)
        return after

    def _commit_shared(
        self, config: Config, state: State, steps: list[Step], id: str | None, now: datetime
    ) -> State | None:
        """Do the same where other processes may do it at this moment: the first one holds, the others go on from it.

        Return None where states are not shared, and for somebody new, whose state nobody else can have.
        """
        chain = self._chain
        if chain is None or state.blank:
            return None
        for _ in range(MOST_TRIES):
            with self._lock:
                known = self._recent.newest(state)
            newest = chain.newest(known)
            if newest is None:
                return None
            before = at_this_hour(newest, now)
            after = self._advance(config, before, steps, id, now, together=True)
            first = after is before or chain.follow(before, after)
            if first is None:
                return None
            if first:
                with self._lock:
                    self._hand_over(before, after)
                    if known.version != after.version:
                        self._recent.follow(known.version, after)
                return after
        return None

    def _lacks_key(self, config: Config) -> bool:
        """Return whether posts would be refused for want of a voucher, and say so once: nothing is counted."""
        lacks = config.vouch and self._voucher_key is None
        if lacks and not self._warned:
            self._warned = True
            _log.error("the plan asks for vouchers, and %s is not set: nobody is counted", VARIABLE)
        return lacks

    def _advance(
        self, config: Config, before: State, steps: list[Step], id: str | None, now: datetime, *, together: bool
    ) -> State:
        """Return a state with answers, steps and posts; the same one if nothing is new, else one with a new version."""
        after = settle(config, before, self._delivery.counted, now, self._past)
        for step in steps:
            after = apply_step(config, after, step, id)
        if after.out:
            return before if before.out else after
        key = self._voucher_key if config.vouch else None
        units = enroll_together(config, after.units, after.root, key) if together else after.units
        units = {name: make_posts(config, name, unit, after.root, key) for name, unit in units.items()}
        after = replace(after, units=units)
        return before if after == before else replace(after, version=fresh_version())

    def _hand_over(self, before: State, after: State) -> None:
        """Give posts to the delivery, those of earlier requests first; withdraw those of somebody who opted out."""
        if after is not before:
            self._recent.follow(before.version, after)
        if after.out:
            for unit in before.units.values():
                self._delivery.withdraw(unit.outbox)
        for name, unit in after.units.items():
            earlier = before.units.get(name, OVER).outbox
            if known := [post for post in unit.outbox if post in earlier]:
                self._delivery.submit(known, fresh=False)
            if len(known) < len(unit.outbox):
                self._delivery.submit(unit.outbox)

    def _send(self, body: bytes) -> PostAnswer:
        """Send a post. An answer that is not the collector's own, of a proxy or a hotel's page, counts as none."""
        epoch = epoch_of(body.decode())
        if epoch in self._past:
            return PostAnswer(Reason.EPOCH.status, answer=Reason.EPOCH)
        answer = self._transport.post(body)
        config = self.config
        if answer.answer == "" and config is not None and config.answers:
            return PostAnswer(0, answer.wait)
        if answer.answer == Reason.EPOCH:
            self._past.add(epoch)
            if self._watch is not None:
                self._watch.fetch()
            elif self._fixed is not None and answer.epoch is not None:
                self._fixed = replace(self._fixed, epoch=answer.epoch)
        if answer.answer == Reason.DUPLICATE and self._chain is not None:
            return PostAnswer(answer.status)  # another process has found the post in the shared state: no race
        return answer

    def _wait(self, timeout: float | None, state: State) -> bool:
        return self._delivery.flush(timeout, [post for unit in state.units.values() for post in unit.outbox])


def _transport(
    source: str | Plan | bytes, transport: Transport | None, experiments: Collection[str] | None
) -> Transport:
    if transport is not None:
        return transport
    if isinstance(source, str):
        return Http(source, experiments=experiments)
    raise KanabError(
        "a client with a plan needs to know where its collector is", "Give transport=Http('https://…'), or its address."
    )
