"""A collector's state as Prometheus text: nothing finer than steps of k."""

from __future__ import annotations

from collections.abc import Mapping

from kanab.collector.health import LiveHealth
from kanab.stats.srm import LIVE_SAMPLE_RATIO_ALARM

_OTHER_SHARES = "Do people arrive in other shares than planned"


def metrics_text(live: LiveHealth, drops: Mapping[str, int], *, healthy: bool, sealed: int) -> str:
    r"""Return the text format of Prometheus: one line per number.

    >>> print(metrics_text(LiveHealth(people={"checkout": {"A": 120}}), {"late": 10}, healthy=True, sealed=2))
    # HELP kanab_up Can messages be written?
    # TYPE kanab_up gauge
    kanab_up 1
    # HELP kanab_sealed_batches Batches that were sealed.
    # TYPE kanab_sealed_batches gauge
    kanab_sealed_batches 2
    # HELP kanab_people People per arm, floored to multiples of k, refreshed hourly.
    # TYPE kanab_people gauge
    kanab_people{experiment="checkout",arm="A"} 120
    # HELP kanab_sample_ratio_alarm Do people arrive in other shares than planned (p below 0.0001)?
    # TYPE kanab_sample_ratio_alarm gauge
    kanab_sample_ratio_alarm{experiment="checkout"} 0
    # HELP kanab_dropped_total Messages that were not counted, by reason, floored to multiples of k.
    # TYPE kanab_dropped_total counter
    kanab_dropped_total{reason="late"} 10
    <BLANKLINE>
    """
    people = [
        (f'kanab_people{{experiment="{_safe(name)}",arm="{_safe(arm)}"}}', count)
        for name, arms in live.people.items()
        for arm, count in arms.items()
    ]
    alarms = [
        (f'kanab_sample_ratio_alarm{{experiment="{_safe(name)}"}}', int(name in live.alarms)) for name in live.people
    ]
    dropped = [(f'kanab_dropped_total{{reason="{reason}"}}', count) for reason, count in drops.items()]
    parts = (
        ("kanab_up", "gauge", "Can messages be written?", [("kanab_up", int(healthy))]),
        ("kanab_sealed_batches", "gauge", "Batches that were sealed.", [("kanab_sealed_batches", sealed)]),
        ("kanab_people", "gauge", "People per arm, floored to multiples of k, refreshed hourly.", people),
        ("kanab_sample_ratio_alarm", "gauge", f"{_OTHER_SHARES} (p below {LIVE_SAMPLE_RATIO_ALARM:g})?", alarms),
        (
            "kanab_dropped_total", "counter",
            "Messages that were not counted, by reason, floored to multiples of k.", dropped,
        ),
    )  # fmt: skip
    lines = []
    for name, kind, text, values in parts:
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *(f"{key} {value}" for key, value in values)]
    return "\n".join(lines) + "\n"


def _safe(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
