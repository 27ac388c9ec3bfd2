from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import kanab as kb
from kanab.inspection.attack.background import place_people
from kanab.inspection.attack.examples.catalogue import example
from kanab.inspection.attack.published import published_from_dict
from kanab.inspection.attack.run import NEEDS_EXACT, TOO_MUCH_WORK, play_attacker
from kanab.inspection.attack.whole_numbers import find_whole_numbers
from kanab.plan.model import make_plan
from kanab.privacy import gate
from kanab.privacy.release_json import release_to_dict
from kanab.privacy.whole_numbers import withhold_whole_numbers


def test_the_example_gives_34_people_away_and_every_total_is_right() -> None:
    bad = example("whole-numbers")
    assert bad.background is not None
    assert not play_attacker(bad.releases, bad.background).broken
    findings = find_whole_numbers(bad.background, 10).findings
    assert sum(finding.people for finding in findings) == 34
    table = np.column_stack([bad.people[name] for name in ("variant", "tier", "device", "region")])
    for finding in findings:
        person = int(re.findall(r"person (\d+)", finding.learnt)[0]) - 1
        like = (table == table[person]).all(axis=1)
        total = int(re.findall(r"bought = (\d+)", finding.learnt)[0])
        assert (int(like.sum()), int(bad.people["bought"][like].sum())) == (finding.people, total)


def crowd(seed: int) -> dict[str, Any]:
    """300 people whose rates differ a lot."""
    rng = np.random.default_rng(seed)
    people: dict[str, Any] = {"variant": rng.choice(["A", "B"], 300)}
    logit = np.zeros(300)
    for name, size in (("tier", 4), ("device", 3), ("region", 4)):
        people[name] = rng.integers(1, size + 1, 300)
        logit = logit + rng.normal(0, 2, size)[people[name] - 1]
    people["bought"] = (rng.random(300) < 1 / (1 + np.exp(-logit))).astype(int)
    return people


@pytest.mark.slow
def test_what_the_other_rules_let_pass_is_closed_by_the_one_about_whole_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert withhold_whole_numbers in gate.VALUE_RULES
    others = tuple(rule for rule in gate.VALUE_RULES if rule is not withhold_whole_numbers)
    broken = dict.fromkeys((others, gate.VALUE_RULES), 0)
    for seed in (6, 11, 41, 76, 89):
        people = crowd(seed)
        known = {name: people[name] for name in ("variant", "tier", "device", "region")}
        plan = make_plan("variant", ["bought"], segments=["tier", "device", "region"], bounds={"bought": (0, 1)},
                         resolution={"bought": 1})  # fmt: skip
        for rules in broken:
            monkeypatch.setattr(gate, "VALUE_RULES", rules)
            release = published_from_dict(release_to_dict(kb.release(kb.count(people, plan))), "ours")
            broken[rules] += play_attacker([release], place_people(known, [release]), exact=True).broken
    before, now = broken.values()
    assert before >= 3
    assert now == 0


def test_it_is_tried_only_if_asked_for_and_says_so() -> None:
    bad = example("whole-numbers")
    (attempt,) = [a for a in play_attacker(bad.releases, bad.background).attempts if a.attack == "whole numbers"]
    assert attempt.not_tried == NEEDS_EXACT


def test_what_was_too_much_work_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from kanab.inspection.attack import whole_numbers  # noqa: PLC0415

    monkeypatch.setattr(whole_numbers, "_WORK", whole_numbers.Work(classes=1))
    bad = example("whole-numbers")
    report = play_attacker(bad.releases, bad.background, exact=True)
    assert TOO_MUCH_WORK in str(report)
