"""What people read of frozen readouts, on every surface: each output was read and approved whole.

The releases and the ways of reading them are the oracle's (tests/oracle), which holds their numbers.
"""

import re
from functools import cache
from typing import Any

import pytest
from tests.approved import assert_approved
from tests.oracle.adapter import build_release, read_options
from tests.oracle.frozen import read_lines

import kanab as kb
from kanab.analysis.api import analyze_release

READOUTS = {
    "segments": "readouts: test_analyze test_batches_are_added",
    "segments_noise_any_time": "grid: segments further noisy_any_time none greater",
    "claims": "grid: roles margins release bh less",
    "claims_clusters_early": "grid: roles margins clusters sidak greater",
    "claims_looks": "grid: roles looks by less",
    "contrasts_looks": "grid: categories contrasts looks bh less",
    "bayes_noise": "grid: means bayes noise none less",
    "bayes_ratios": "grid: ratios bayes release bonferroni less",
    "received": "grid: receiving further noisy_batches by greater",
    "received_weak": (
        "readouts: test_received_rows test_a_weak_assignment_is_cautioned_about_and_its_set_is_said_in_words"
    ),
    "quantiles": "grid: quantiles further own_rows holm less",
    "windows_any_time": "grid: windows any_time holm greater",
    "pooled_clusters_left_out": "grid: ratios further clusters_pool by two-sided",
    "alarms_missing": (
        "readouts: test_api test_balance_over_several_looks_is_judged_by_the_p_that_holds_at_any_time"
    ),
    "watch": "readouts: test_compare test_one_event_in_a_small_arm_is_not_believed_and_as_a_guardrail_it_is_watched",
    "too_noisy": "readouts: test_looks test_what_drowns_in_noise_is_said_to_be_too_noisy_to_tell",
    "nothing_varies": "readouts: test_compare test_what_does_not_vary_has_no_belief",
    "futile": "readouts: test_looks test_an_effect_worth_having_is_what_going_on_is_judged_by",
    "sealed_batch": (
        "readouts: test_hostile_names "
        "test_what_people_with_hostile_names_send_is_sealed_as_if_their_rows_had_been_counted"
    ),
}  # fmt: skip
PAGES = ("segments", "claims", "alarms_missing", "sealed_batch")


@cache
def cases() -> dict[str, Any]:
    return {f"{kind}: {case['id']}": case["given"] for kind in ("readouts", "grid") for case in read_lines(kind)}


@cache
def readout(name: str) -> kb.Readout:
    given = cases()[READOUTS[name]]
    return analyze_release(build_release(given["release"]), given["experiment"], read_options(given["options"]))


@pytest.mark.parametrize("name", READOUTS)
def test_a_readout_in_text_and_in_brief(name: str) -> None:
    found = readout(name)
    assert_approved(f"readout/{name}.txt", f"{found}\n\n{'═' * 30} in brief\n{found.to_brief()}\n")


@pytest.mark.parametrize("name", PAGES)
def test_a_readout_as_markdown_and_as_a_page(name: str) -> None:
    assert_approved(f"readout/{name}.md", readout(name).to_markdown())
    assert_approved(f"readout/{name}.html", outlined(readout(name).to_html()))


def outlined(page: str) -> str:
    """A page without its style sheet, with what screen readers hear of its pictures, a piece a line."""
    body = page[page.index("<body>") :]
    body = re.sub(r"<svg.*?<title>(.*?)</title>(?:<desc[^>]*>(.*?)</desc>)?.*?</svg>", r"[\1: \2]", body, flags=re.S)
    body = re.sub(r' (?:role|tabindex|scope|class|data-label|aria-label|aria-hidden)="[^"]*"', "", body)
    return re.sub(r"(</(?:p|li|tr|thead|figure|ul|h\d|div)>)(?=<)", r"\1\n", body)
