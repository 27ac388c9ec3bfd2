"""The collector keeps the contract that clients in every language read: cases.json."""

import base64
import json
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kanab.collector.counting.accept import PostAcceptor
from kanab.collector.counting.counters import CONTRIBUTORS, JOINT
from kanab.collector.counting.lines import MetricGrid
from kanab.collector.protocol.encoding import decode, encode, spell
from kanab.collector.protocol.nonces import is_genuine, vouch_for
from kanab.collector.protocol.post import read_post
from kanab.collector.protocol.reasons import Reason
from kanab.errors import MessageError
from kanab.plan.file import plan_from_dict
from kanab.tally.metric import Metric

CASES = json.loads((Path(__file__).parent / "cases.json").read_text(encoding="utf-8"))
POSTS = CASES["posts"]
KEYS = [bytes.fromhex(key) for key in CASES["vouchers"]["keys"]]


@cache
def acceptor(name: str) -> PostAcceptor:
    return PostAcceptor(plan_from_dict(CASES["plans"][name]), None, KEYS)


def body(case: dict[str, Any]) -> bytes:
    return case["body"].encode() if "body" in case else base64.b64decode(case["body_base64"])


def accept(case: dict[str, Any]) -> Any:
    now = datetime.fromisoformat(case.get("now", CASES["now"]))
    return acceptor(case["plan"]).accept(body(case), case["content_type"], now, case.get("sealed_through"))


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def test_the_file_says_its_version_and_names_every_case_once() -> None:
    assert CASES["schema"]["version"] == 1
    names = [case["name"] for case in POSTS]
    assert len(set(names)) == len(names) > 70


@pytest.mark.parametrize("case", [one for one in POSTS if "error" not in one], ids=lambda case: case["name"])
def test_a_good_post_is_decoded_and_counted(case: dict[str, Any]) -> None:
    post = read_post(body(case), case["content_type"])
    lines = post.lines
    assert post.epoch == case.get("epoch", "")
    assert [[plain(part) for part in line] for line in lines] == case["decoded"]
    for _ in range(2):  # the second time its heads are known
        found = accept(case)
        counted = {
            cohort: {  # but for what is a collector's own
                name: value for name, value in counters.items() if JOINT not in name and not name.endswith(CONTRIBUTORS)
            }
            for cohort, counters in found.deltas.items()
        }
        assert counted == {
            int(cohort): {name: int(value) for name, value in counters.items()}
            for cohort, counters in case["deltas"].items()
        }
        assert list(found.dropped) == case["dropped"]


@pytest.mark.parametrize("case", [one for one in POSTS if "error" in one], ids=lambda case: case["name"])
def test_a_bad_post_is_refused_for_its_reason(case: dict[str, Any]) -> None:
    with pytest.raises(MessageError) as caught:
        accept(case)
    problem = caught.value
    assert {"reason": problem.reason, "status": problem.status, "at": problem.at} == case["error"]


def test_every_reason_that_a_post_can_have_is_among_the_cases() -> None:
    seen = {case["error"]["reason"] for case in POSTS if "error" in case}
    seen |= {reason for case in POSTS for reason in case.get("dropped", [])}
    elsewhere = {
        Reason.ORIGIN,
        Reason.RATE,
        Reason.BUSY,
        Reason.CLOCK,
        Reason.DUPLICATE,
        Reason.EPOCH,
    }  # not in it alone
    assert {*Reason} - seen == elsewhere


def test_names_and_levels_are_spelled_as_written() -> None:
    for name, spelled in CASES["spelling"]:
        assert encode(name) == spelled
        assert decode(spelled) == name
    for level, spelled in CASES["levels"]:
        assert spell(level) == spelled


def test_vouchers_are_minted_as_written() -> None:
    for key, head, voucher in CASES["vouchers"]["minted"]:
        assert vouch_for(head + "0" * 14, bytes.fromhex(key)) == voucher
        assert is_genuine(bytes.fromhex(voucher), [bytes.fromhex(key)])


def test_totals_fall_on_the_grid_as_rows_do() -> None:
    for scale, (low, high), value, steps in CASES["grid"]:
        metric = Metric("y", scale, (low / scale, high / scale))
        assert MetricGrid(float(scale), low, high, starts_at_zero=True).steps(float(value)) == steps
        assert metric.to_grid(np.array([value], dtype=float)).tolist() == [steps]
