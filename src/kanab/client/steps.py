"""What a person does, as changes of their state: pure functions, so that a step can be repeated on a newer state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from msgspec.structs import replace

from kanab.client.assign import Arms, Numbers, assign, numbers_of_id, numbers_of_root
from kanab.client.config import Config
from kanab.client.posts import metrics_of, nonce_of
from kanab.client.state import OPTED_OUT, OVER, State, Unit
from kanab.collector.protocol.encoding import decode, encode
from kanab.collector.protocol.nonces import oldest_hour, seconds_of

_HIGHEST = Decimal(10) ** 15
"""Totals stop here: no metric's grid reaches so far."""


@dataclass(frozen=True)
class Remember:
    """The arms that were shown are kept."""

    arms: Arms


@dataclass(frozen=True)
class Enroll:
    """Somebody meets the change of an experiment; levels as they are sent."""

    experiment: str
    levels: Mapping[str, str]
    now: datetime


@dataclass(frozen=True)
class Track:
    """A running total grows."""

    metric: str
    amount: Decimal
    now: datetime


@dataclass(frozen=True)
class OptOut:
    """Everything is forgotten, and nothing more is counted."""


Step = Remember | Enroll | Track | OptOut


def arms_of(config: Config, state: State, id: str | None) -> dict[str, str | None]:
    """Arms in all experiments: those remembered, the others by the id or at random.

    With an id only the arms in which somebody is counted are remembered: the others follow from it.
    """
    known = {name: arm for name, arm in state.arms.items() if _stays(config, state, name, arm, id)}
    numbers: Numbers = numbers_of_id(id) if id else numbers_of_root(state.root)
    return assign(config.experiments, numbers, known)


def _stays(config: Config, state: State, name: str, arm: str | None, id: str | None) -> bool:
    one = config.experiments.get(name)
    if one is None or (id and encode(name) not in state.units):
        return False
    return arm is None or any(arm == known for known, _ in one.arms)


def apply_step(config: Config, state: State, step: Step, id: str | None) -> State:
    """The state after a step."""
    if state.out or isinstance(step, OptOut):
        return OPTED_OUT
    if isinstance(step, Track):
        return _tracked(config, state, step)
    if isinstance(step, Enroll):
        return _enrolled(config, state, step, arms_of(config, state, id))
    kept = {name: arm for name, arm in state.arms.items() if _stays(config, state, name, arm, id)}
    return replace(state, arms={**state.arms, **step.arms, **kept})


def _pairs(config: Config, state: State, arms: Arms) -> tuple[str, ...] | None:
    """Where the plan has more pairs than one person may report: which ones, drawn once."""
    if state.pairs is not None or len(config.pairs) <= config.most_pairs:
        return state.pairs
    number = numbers_of_root(state.root)
    names = [_name(pair) for pair in config.pairs if all(arms.get(one) is not None for one in pair)]
    return tuple(sorted(names, key=lambda name: number(f"pair {name}"))[: config.most_pairs])


def _name(experiments: tuple[str, ...]) -> str:
    return "/".join(map(encode, experiments))


def _enrolled(config: Config, state: State, step: Enroll, arms: Arms) -> State:
    """With a unit for the experiment, and one for every pair with an experiment that somebody is in already."""
    arm = arms.get(step.experiment)
    own = encode(step.experiment)
    if arm is None or own in state.units:
        return state
    pairs = _pairs(config, state, arms)
    cohort = config.cohort(step.now)
    units = state.units | {own: Unit(config.heads(step.experiment, arm, step.levels, cohort), cohort)}
    label = "" if cohort is None else f"@{cohort}"
    for pair in config.pairs:
        name = _name(pair)
        both = [units.get(encode(one), OVER) for one in pair]
        reported = pairs is None or name in pairs
        if step.experiment in pair and reported and name not in units and not any(one.over for one in both):
            levels = ":".join(encode(arms[one] or "") for one in pair)
            units[name] = Unit((f"{name}:{levels}{label}",), cohort)
    return replace(state, arms=state.arms | {step.experiment: arm}, units=units, pairs=pairs)


def _tracked(config: Config, state: State, step: Track) -> State:
    if step.metric not in config.metrics:
        return state
    moment = step.now.timestamp()
    units = {}
    for name, unit in state.units.items():
        end = config.end(unit.cohort)
        experiments = tuple(map(decode, name.split("/")))
        measured = not unit.over and (end is None or moment <= end) and config.counts(experiments, step.metric)
        units[name] = _grown(config, unit, step) if measured else unit
    return replace(state, units=units)


def _grown(config: Config, unit: Unit, step: Track) -> Unit:
    gauge = config.gauges[step.metric]
    if (gauge.scale, gauge.low, gauge.high) == (1, 0, 1):
        total = Decimal(step.amount > 0)
    else:
        total = Decimal(unit.totals.get(step.metric, 0)) + step.amount
    return replace(unit, totals=unit.totals | {step.metric: str(min(max(total, -_HIGHEST), _HIGHEST))})


# ── answers ────────────────────────────────────────────────────────────────────────────────────


def settle(config: Config, state: State, counted: Callable[[str], bool | None], now: datetime) -> State:
    """Take posts with a final answer out of the outboxes; ``counted`` tells it by nonce, None if it does not know.

    A post that was not counted stops what it moved: nobody knows any more from where its totals go on.
    One that is too old to be sent again was sent by whoever made it, who went on trying for as long.
    """
    oldest = oldest_hour(seconds_of(now), config.life)
    units = {name: _settled(config, unit, counted, oldest, now) for name, unit in state.units.items()}
    return replace(state, units=units) if units != state.units else state


def _settled(config: Config, unit: Unit, counted: Callable[[str], bool | None], oldest: int, now: datetime) -> Unit:
    end = config.end(unit.cohort)
    if unit.over or (end is not None and now.timestamp() > end + config.life):
        return OVER
    left: list[str] = []
    for place, post in enumerate(unit.outbox):
        nonce = nonce_of(post)
        fate = counted(nonce)
        if fate is False:
            return _given_up(unit, tuple(left), unit.outbox[place:])
        if fate is None and (left or int(nonce[:8], 16) >= oldest):
            left.append(post)
    return replace(unit, outbox=tuple(left))


def _given_up(unit: Unit, left: tuple[str, ...], lost: tuple[str, ...]) -> Unit:
    """Without an enrollment nothing counts; else the metrics that were moved freeze."""
    frozen = dict.fromkeys(unit.frozen)
    for post in lost:
        metrics = metrics_of(post)
        if metrics is None:
            return OVER
        frozen |= dict.fromkeys(metrics)
    return replace(unit, outbox=left, frozen=tuple(frozen))
