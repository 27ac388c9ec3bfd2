from __future__ import annotations

import re

from kanab.collector.health import LiveHealth
from kanab.collector.http.metrics import metrics_text

_LINE = re.compile(r'[a-z_]+(\{[a-z]+="(?:[^"\\\n]|\\.)*"(,[a-z]+="(?:[^"\\\n]|\\.)*")*\})? \d+')


def test_names_that_would_break_the_format_are_escaped() -> None:
    live = LiveHealth(people={'a "quoted"\nname\\': {"B\n": 10}}, alarms=frozenset({'a "quoted"\nname\\'}))
    text = metrics_text(live, {"late": 0}, healthy=False, sealed=0)
    lines = [line for line in text.split("\n") if line and not line.startswith("#")]
    assert all(_LINE.fullmatch(line) for line in lines)
    assert r'kanab_people{experiment="a \"quoted\"\nname\\",arm="B\n"} 10' in lines
    assert r'kanab_sample_ratio_alarm{experiment="a \"quoted\"\nname\\"} 1' in lines
    assert "kanab_up 0" in lines


def test_every_metric_is_explained_and_typed_once() -> None:
    text = metrics_text(LiveHealth(), {}, healthy=True, sealed=0)
    names = re.findall(r"# TYPE (\S+) (?:gauge|counter)", text)
    assert names == re.findall(r"# HELP (\S+) ", text)
    assert len(names) == len(set(names)) == 5
    assert text.endswith("\n")
