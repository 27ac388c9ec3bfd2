"""Each limit has one home: what pages, proxies and the browser client write by hand agrees with it."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kanab.collector.protocol import limits
from kanab.collector.protocol.reasons import Drops, Reason
from kanab.plan.model import Plan

ROOT = Path(__file__).parents[4]
MESSAGES, COLLECTOR = "docs/how-to/messages.md", "docs/how-to/collector.md"


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        (MESSAGES, f"At most {limits.MOST_POST_LINES} lines and {limits.MOST_POST_BYTES:,} bytes."),
        (MESSAGES, f"format and nonce: {2 * limits.NONCE_BYTES} hex digits"),
        (MESSAGES, f"It lives {Plan((), ()).nonce_life.removesuffix('h')} hours (`nonce_life`)."),
        (COLLECTOR, f"and {limits.POSTS_PER_DAY:,} a day"),
        (COLLECTOR, f"at most {limits.MOST_CONNECTIONS:,} connections"),
        (COLLECTOR, f"lets {limits.POSTS_PER_SECOND:g} posts a second through from each address"),
        (COLLECTOR, f"longer than {limits.REQUEST_SECONDS:g} seconds"),
        ("src/kanab/static/kanab.js", f"const MOST_LINES = {limits.MOST_POST_LINES};"),
        ("src/kanab/static/kanab.js", f"const MOST_BYTES = {limits.MOST_POST_BYTES};"),
        ("deploy/nginx.conf", f"client_max_body_size {limits.MOST_POST_BYTES // 1024}k;"),
        ("deploy/nginx.conf", f"client_body_buffer_size {limits.MOST_POST_BYTES // 1024}k;"),
        ("deploy/nginx.conf", f"client_body_timeout {limits.REQUEST_SECONDS:g}s;"),
        ("deploy/nginx.conf", f"rate={limits.POSTS_PER_SECOND:g}r/s;"),
        ("deploy/nginx.conf", f"burst={limits.BURST_POSTS:g} "),
        ("deploy/nginx.conf", f"rate={limits.POSTS_PER_DAY / 1440:.0f}r/m;"),
        ("deploy/nginx.conf", f"burst={limits.POSTS_PER_DAY} "),
        ("deploy/Caddyfile", f"max_size {limits.MOST_POST_BYTES // 1024}KiB"),
    ],
)
def test_what_is_written_by_hand_agrees_with_the_limits(file: str, sentence: str) -> None:
    assert sentence in re.sub(r"\s+", " ", (ROOT / file).read_text(encoding="utf-8"))


def test_no_other_module_of_the_collector_repeats_the_size_of_a_post() -> None:
    modules = [path for path in (ROOT / "src" / "kanab" / "collector").rglob("*.py") if path.name != "limits.py"]
    assert [path.name for path in modules if re.search(r"16[_,]?384", path.read_text(encoding="utf-8"))] == []


def test_several_threads_count_every_time() -> None:
    drops = Drops()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: [drops.add(Reason.RATE) for _ in range(1000)], range(8)))
    assert drops.floored(1)["rate"] == 8000


def test_the_page_on_messages_names_every_reason() -> None:
    page = (Path(__file__).parents[4] / "docs" / "how-to" / "messages.md").read_text(encoding="utf-8")
    assert [reason for reason in Reason if f"`{reason}`" not in page] == []
