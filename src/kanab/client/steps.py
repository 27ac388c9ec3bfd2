"""What a person does, as changes of their state: pure functions, so that a step can be repeated on a newer state."""

import hmac
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from msgspec.structs import replace

from kanab.client.client_config import Config, Experiment
from kanab.client.posts import metrics_of, nonce_of
from kanab.client.state import OPTED_OUT, OVER, State, Unit
from kanab.collector.protocol.encoding import decode, encode
from kanab.collector.protocol.nonces import oldest_hour, seconds_of

_HIGHEST = Decimal(10) ** 15
"""Totals stop here: no metric's grid reaches so far."""

Numbers = Callable[[str], int]
"""A whole number below 2³² for every salt and purpose, such as checkout:arm."""

Arms = Mapping[str, str | None]
"""The arm in every experiment; None: not in it."""

_LOW = 2**32 - 1
_WHOLE = 2**32


# ── who gets which arm: docs/how-to/assignment.md ────────────────────────────────────────────────


def murmur3(text: str) -> int:
    """Return the murmur3 hash (x86, 32 bits, seed 0) of a text's UTF-8 bytes."""
    data = text.encode("utf-8", "surrogatepass")
    whole = len(data) // 4 * 4
    hashed = 0
    for at in range(0, whole, 4):
        hashed ^= _mix(int.from_bytes(data[at : at + 4], "little"))
        hashed = (_rotate(hashed, 13) * 5 + 0xE6546B64) & _LOW
    hashed ^= _mix(int.from_bytes(data[whole:], "little")) ^ len(data)
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _LOW
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _LOW
    return hashed ^ hashed >> 16


def _rotate(number: int, bits: int) -> int:
    return (number << bits | number >> 32 - bits) & _LOW


def _mix(block: int) -> int:
    return _rotate(block * 0xCC9E2D51 & _LOW, 15) * 0x1B873593 & _LOW


def numbers_of_id(id: str) -> Numbers:
    """Return the numbers of a stable id: hashes, so that they are the same on every device."""
    return lambda key: murmur3(f"{key}:{id}")


def numbers_of_root(root: str) -> Numbers:
    """Return random numbers, all made from the random digits of a state's root.

    Two parallel requests that begin with the same state draw the same arms; the digits are thrown
    away with the hour, so that nothing is left to draw from.
    """
    key = root.encode()
    return lambda name: int.from_bytes(hmac.digest(key, f"kanab/1 draw {name}".encode(), "sha256")[:4], "big")


def draw(arms: Sequence[tuple[str, float]], number: int) -> str:
    """Return the arm at a number below 2³², by shares, in the plan's order."""
    total = 0.0
    for _, share in arms:
        total += share
    point = number / _WHOLE * total
    reached = 0.0
    for arm, share in arms:
        reached += share
        if point < reached:
            return arm
    return arms[-1][0]


def assign(experiments: Mapping[str, Experiment], number: Numbers, known: Arms | None = None) -> dict[str, str | None]:
    """Return arms in all experiments at once, because some exclude each other; arms that are known stay."""
    decided = known or {}

    def at(name: str, purpose: str) -> int:
        return number(f"{experiments[name].salt or name}:{purpose}")

    def passes(name: str, other: str) -> bool:
        if other in decided:
            return decided[other] is None
        return at(name, "group") < at(other, "group")

    def draw_arm(name: str) -> str | None:
        experiment = experiments[name]
        held_out = at(name, "holdout") / _WHOLE < experiment.holdout
        if held_out or not all(passes(name, other) for other in experiment.exclude_with):
            return None
        return draw(experiment.arms, at(name, "arm"))

    return {name: decided[name] if name in decided else draw_arm(name) for name in experiments}


# ── steps ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Remember:
    """Keep the arms that were shown."""

    arms: Arms


@dataclass(frozen=True)
class Enroll:
    """Count somebody who meets the change of an experiment; levels as they are sent."""

    experiment: str
    levels: Mapping[str, str]
    now: datetime


@dataclass(frozen=True)
class Track:
    """Add to a running total."""

    metric: str
    amount: Decimal
    now: datetime


@dataclass(frozen=True)
class OptOut:
    """Forget everything, and count nothing more."""


Step = Remember | Enroll | Track | OptOut


def arms_of(config: Config, state: State, id: str | None) -> dict[str, str | None]:
    """Return arms in all experiments: remembered ones (with an id only of who is counted), the others drawn."""
    known = {name: arm for name, arm in state.arms.items() if _stays(config, state, name, arm, id)}
    numbers: Numbers = numbers_of_id(id) if id else numbers_of_root(state.root)
    return assign(config.experiments, numbers, known)


def _stays(config: Config, state: State, name: str, arm: str | None, id: str | None) -> bool:
    experiment = config.experiments.get(name)
    if experiment is None or (id and encode(name) not in state.units):
        return False
    return arm is None or any(arm == known for known, _ in experiment.arms)


def apply_step(config: Config, state: State, step: Step, id: str | None) -> State:
    """Return the state after a step."""
    if state.out or isinstance(step, OptOut):
        return OPTED_OUT
    if isinstance(step, Track):
        return _track(config, state, step)
    if isinstance(step, Enroll):
        return _enroll(config, state, step, arms_of(config, state, id))
    known = {name: arm for name, arm in state.arms.items() if _stays(config, state, name, arm, id)}
    return replace(state, arms={**state.arms, **step.arms, **known})


def _pairs(config: Config, state: State, arms: Arms) -> tuple[str, ...] | None:
    """Return the pairs to report, where the plan has more than one person may; drawn again when none is planned."""
    if len(config.pairs) <= config.most_pairs or not {*map(_name, config.pairs)}.isdisjoint(state.pairs or ()):
        return state.pairs
    number = numbers_of_root(state.root)
    names = [_name(pair) for pair in config.pairs if all(arms.get(name) is not None for name in pair)]
    return tuple(sorted(names, key=lambda name: number(f"pair {name}"))[: config.most_pairs])


def _name(experiments: tuple[str, ...]) -> str:
    return "/".join(map(encode, experiments))


def _enroll(config: Config, state: State, step: Enroll, arms: Arms) -> State:
    """Add a unit for the experiment, and one for every pair with an experiment that somebody is in already."""
    arm = arms.get(step.experiment)
    encoded = encode(step.experiment)
    if arm is None or encoded in state.units:
        return state
    pairs = _pairs(config, state, arms)
    cohort = config.cohort(step.now)
    classes = config.classes(step.experiment, arm, step.levels, cohort)
    units = state.units | {encoded: Unit(classes, cohort, epoch=config.epoch)}
    label = "" if cohort is None else f"@{cohort}"
    for pair in config.pairs:
        name = _name(pair)
        both = [units.get(encode(experiment), OVER) for experiment in pair]
        reported = pairs is None or name in pairs
        if step.experiment in pair and reported and name not in units and not any(unit.over for unit in both):
            levels = ":".join(encode(arms[experiment] or "") for experiment in pair)
            units[name] = Unit((f"{name}:{levels}{label}",), cohort, epoch=config.epoch)
    return replace(state, arms=state.arms | {step.experiment: arm}, units=units, pairs=pairs)


def _track(config: Config, state: State, step: Track) -> State:
    if step.metric not in config.metrics:
        return state
    moment = step.now.timestamp()
    units = {}
    for name, unit in state.units.items():
        end = config.end(unit.cohort)
        experiments = tuple(map(decode, name.split("/")))
        measured = not unit.over and (end is None or moment <= end) and config.counts(experiments, step.metric)
        units[name] = _add(config, unit, step) if measured else unit
    return replace(state, units=units)


def _add(config: Config, unit: Unit, step: Track) -> Unit:
    gauge = config.gauges[step.metric]
    if (gauge.scale, gauge.low, gauge.high) == (1, 0, 1):
        total = Decimal(step.amount > 0)
    else:
        total = Decimal(unit.totals.get(step.metric, 0)) + step.amount
    return replace(unit, totals=unit.totals | {step.metric: str(min(max(total, -_HIGHEST), _HIGHEST))})


# ── answers ────────────────────────────────────────────────────────────────────────────────────


def settle(
    config: Config,
    state: State,
    counted: Callable[[str], bool | None],
    now: datetime,
    past: Container[str] = (),
) -> State:
    """Take posts with a final answer out of the outboxes; ``counted`` says by nonce whether it was, or None.

    A post that was not counted freezes the metrics in it: from where their totals go on is no longer known.
    One that is too old to be sent again was sent by the process that made it, which went on trying for as long.
    Units of an epoch that is ``past`` end: what of them counted, nobody knows. Of an experiment that is over and no
    longer planned nothing is kept, neither the arm nor that somebody took part.
    """
    oldest = oldest_hour(seconds_of(now), config.life)
    units = {
        name: OVER if unit.epoch in past else _settle_unit(config, unit, counted, oldest, now)
        for name, unit in state.units.items()
    }
    ended = {
        name for name, unit in units.items() if unit.over and any(map(config.has_left, map(decode, name.split("/"))))
    }
    if units == state.units and not ended:
        return state
    arms = {name: arm for name, arm in state.arms.items() if encode(name) not in ended}
    return replace(state, arms=arms, units={name: unit for name, unit in units.items() if name not in ended})


def _settle_unit(config: Config, unit: Unit, counted: Callable[[str], bool | None], oldest: int, now: datetime) -> Unit:
    end = config.end(unit.cohort)
    if unit.over or (end is not None and now.timestamp() > end + config.life):
        return OVER
    left: list[str] = []
    for place, post in enumerate(unit.outbox):
        nonce = nonce_of(post)
        outcome = counted(nonce)
        if outcome is False:
            return _give_up(unit, tuple(left), unit.outbox[place:])
        if outcome is None and (left or int(nonce[:8], 16) >= oldest):
            left.append(post)
    return replace(unit, outbox=tuple(left))


def _give_up(unit: Unit, left: tuple[str, ...], lost: tuple[str, ...]) -> Unit:
    """End a unit whose enrollment was lost; else freeze the metrics that lost posts changed."""
    frozen = dict.fromkeys(unit.frozen)
    for post in lost:
        metrics = metrics_of(post)
        if metrics is None:
            return OVER
        frozen |= dict.fromkeys(metrics)
    return replace(unit, outbox=left, frozen=tuple(frozen))
