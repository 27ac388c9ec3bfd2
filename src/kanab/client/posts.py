"""Posts of one person: lines that take a unit from what was sent to its totals, under a nonce that its state fixed.

A nonce is made from the root of the state, the name of the unit and how many posts it made. So two parallel requests
that began with the same state give the same nonce to the same transition, and the collector counts one of the two.
"""

import hmac
from collections.abc import Mapping
from decimal import Decimal

from msgspec.structs import replace

from kanab.client.client_config import Config
from kanab.client.state import Unit
from kanab.collector.protocol.encoding import decode, encode
from kanab.collector.protocol.limits import MOST_POST_BYTES, MOST_POST_LINES, NONCE_BYTES
from kanab.collector.protocol.nonces import vouch_for

MOST_POSTS = 16
"""So many posts of one unit may be without an answer; what comes then waits in the totals."""

_ROOM = MOST_POST_BYTES - 64

Steps = dict[str, int]


def make_posts(config: Config, name: str, unit: Unit, root: str, key: bytes | None = None) -> Unit:
    """Return a unit with the posts that bring it up to its totals in its outbox; their bytes never change."""
    while not unit.over and len(unit.outbox) < MOST_POSTS:
        then = _next(config, unit)
        lines = _lines(config, unit, then)
        if not lines or not _fits(lines):
            break
        body = _post(derive_nonce(root, f"{name} {unit.made}", key), unit.epoch, lines)
        unit = replace(unit, sent=then, enrolled=True, made=unit.made + 1, outbox=(*unit.outbox, body))
    return unit


def enroll_together(config: Config, units: Mapping[str, Unit], root: str, key: bytes | None = None) -> dict[str, Unit]:
    """Return the units with one post that enrolls in all of them that are new: counted in all, or in none.

    Only where no other process can go on from the same state: one that enrolls in fewer experiments could not give
    its post the same nonce. What does not fit is left to a post of its own.
    """
    names = [name for name, unit in units.items() if not unit.over and not unit.enrolled]
    names = [name for name in names if units[name].cohort == units[names[0]].cohort]
    names = [name for name in names if units[name].epoch == units[names[0]].epoch]
    then = {name: _next(config, units[name]) for name in names}
    if not _fits(_all_lines(config, units, then)):
        then = {name: units[name].sent for name in names}
    while not _fits(_all_lines(config, units, then)):
        then.popitem()
    if len(then) < 2:
        return dict(units)
    nonce = derive_nonce(root, f"{' '.join(then)} 0", key)
    body = _post(nonce, units[names[0]].epoch, _all_lines(config, units, then))
    joined = {
        name: replace(units[name], sent=sent, enrolled=True, made=1, outbox=(body,)) for name, sent in then.items()
    }
    return dict(units) | joined


def _all_lines(config: Config, units: Mapping[str, Unit], then: Mapping[str, Steps]) -> list[str]:
    return [line for name, totals in then.items() for line in _lines(config, units[name], totals)]


def derive_nonce(root: str, transition: str, key: bytes | None = None) -> str:
    """Return the nonce of a transition: the hour of the root, and bytes that nobody can tell without it.

    With a key of vouchers it is one.
    """
    rest = hmac.digest(root.encode(), f"kanab/1 nonce {transition}".encode(), "sha256")
    nonce = root[:8] + rest[: NONCE_BYTES - 4].hex()
    return nonce if key is None else vouch_for(nonce, key)


def _post(nonce: str, epoch: str, lines: list[str]) -> str:
    return "\n".join([f"kanab/1 {nonce} {epoch}".rstrip(), *lines, ""])


def nonce_of(post: str) -> str:
    """Return the nonce of a post."""
    return post[8:40]


def epoch_of(post: str) -> str:
    """Return the epoch of a post."""
    return post[41 : post.find("\n")]


def metrics_of(post: str) -> tuple[str, ...] | None:
    """Return the metrics whose totals a post changes; None if it enrolls."""
    metrics: dict[str, None] = {}
    for line in post.split("\n")[1:-1]:
        front, change, _ = line.rpartition(":")
        if ">" not in line:
            return None
        if change and "/" not in (metric := front.rpartition(":")[2]):
            metrics[decode(metric)] = None
    return tuple(metrics)


def _next(config: Config, unit: Unit) -> Steps:
    """Return the totals of the next post: all that changed, or as many as fit into it."""
    then = dict(unit.sent)
    for metric, gauge in config.gauges.items():
        if metric not in unit.totals or _uncertain(config, metric, unit.frozen):
            continue
        more = then | {metric: gauge.steps(float(Decimal(unit.totals[metric])))}
        if not _fits(_lines(config, unit, more)):
            break
        then = more
    return then


def _uncertain(config: Config, metric: str, frozen: tuple[str, ...]) -> bool:
    """Return whether it is unknown what was counted of a metric, or of one that shares a ratio with it."""
    return metric in frozen or any(metric in pair and not set(pair).isdisjoint(frozen) for pair in config.ratios)


def _fits(lines: list[str]) -> bool:
    return len(lines) <= MOST_POST_LINES and sum(map(len, lines)) + len(lines) <= _ROOM


def _lines(config: Config, unit: Unit, then: Steps) -> list[str]:
    """Return the lines from the totals sent to others: the same ones for each class that somebody is in."""
    changes = [] if unit.enrolled else [""]
    for metric in config.metrics:
        old, new = _total(config, metric, unit.sent), _total(config, metric, then)
        if new is not None and new != old:
            changes.append(f":{encode(metric)}:{old or ''}>{new}")
    for first, second in config.ratios:
        both = [_ratio_totals(config, first, second, totals) for totals in (unit.sent, then)]
        if both[1] and both[0] != both[1]:
            changes.append(f":{encode(first)}/{encode(second)}:{both[0]}>{both[1]}")
    return [name + change for name in unit.classes for change in changes]


def _ratio_totals(config: Config, first: str, second: str, totals: Steps) -> str:
    """Return both totals of a ratio; an empty text while one of them has no value."""
    parts = [_total(config, part, totals) for part in (first, second)]
    return "" if None in parts else "/".join(map(str, parts))


def _total(config: Config, metric: str, totals: Steps) -> str | None:
    """Return a total as it is written; None where there is none yet."""
    gauge = config.gauges[metric]
    steps = totals.get(metric, 0 if gauge.starts_at_zero else None)
    if steps is None:
        return None
    whole, rest = divmod(steps, config.metrics[metric].scale)
    return str(whole) if not rest else repr(steps / gauge.scale)
