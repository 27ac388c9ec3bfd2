"""One person during one request: the verbs of the browser client, and a state to hand on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from msgspec.structs import replace

from kanab.client.client_config import Config
from kanab.client.state import State, pack_state
from kanab.client.steps import Enroll, OptOut, Remember, Step, Track, apply_step, arms_of
from kanab.collector.protocol.encoding import encode
from kanab.errors import listed

Commit = Callable[[State, list[Step], str | None], State]
"""Puts steps on the newest state that a state has become, and sends what follows from them."""

Wait = Callable[[float | None, State], bool]

WITHOUT_COHORTS = 90 * 86_400.0
"""Without cohorts there is no window; so long arms are remembered then, and so long an opt-out is."""

_log = logging.getLogger("kanab.client")


class Person:
    """Somebody who is shown arms and may be counted; ``Client.person`` makes one.

    Steps are only noted; ``save`` (and ``flush``) makes one post of them for each experiment and hands it
    to the background. None of the verbs waits, and none raises because of what is given to it.
    """

    def __init__(
        self,
        config: Config | None,
        state: State,
        commit: Commit,
        wait: Wait,
        *,
        given: bytes,
        came: str,
        clock: Callable[[], datetime],
        id: str | None = None,
        silent: bool = False,
        development: bool = False,
    ) -> None:
        self._config, self._state, self._commit, self._wait = config, state, commit, wait
        self._clock, self._id, self._development = clock, id or None, development
        self._silent = silent
        self.given = given
        self._came = came
        self._seen = state
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
        self._do(Enroll(experiment, sent, self._clock()))

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
            self._do(Track(metric, more, self._clock()))
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
        self._state = self._seen = self._commit(self._state, steps, self._id)
        return self.given if self._state.version == self._came else pack_state(self._state)

    def brief(self) -> bytes:
        """Return the state without posts under way, where there is no room for them: this process sends them anyway."""
        self.save()
        units = {name: replace(unit, outbox=()) for name, unit in self._state.units.items()}
        return pack_state(replace(self._state, units=units))

    def flush(self, timeout: float | None = None) -> bool:
        """Save, and wait for the answers; return False if the time was too short."""
        self.save()
        done = self._wait(timeout, self._state)
        self.save()
        return done

    @property
    def lasts(self) -> float:
        """Seconds until nothing of the state is needed any more: the windows of all cohorts are over."""
        config, state, now = self._config, self._state, self._clock()
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
        if self._development:
            _log.warning(sentence)
