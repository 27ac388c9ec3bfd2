"""``vouch = true``: each post spends one voucher, retries keep theirs, and the site is asked for more."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.browser.browser_tab import Tab
from tests.browser.conftest import SHOP
from tests.browser.shop_site import Site
from tests.collector.collector_process import ForkServer, Place

from kanab.client import mint_vouchers

Open = Callable[..., Tab]
KEY = "07" * 32
START = """async (batches) => { window.asked = 0;
  window.kanab = await init({ vouch: async () => batches[asked++] ?? [], development: true }); }"""


@pytest.fixture
def site(tmp_path: Path, fork_server: ForkServer) -> Iterator[Site]:
    place = Place(tmp_path / "place", fork_server, {"KANAB_VOUCHER_KEY": KEY})
    found = Site(place, "vouch = true\n" + SHOP)
    yield found
    found.close()


def start(tab: Tab, *batches: list[str]) -> Tab:
    tab.page.evaluate(START, list(batches))
    return tab


def asked(tab: Tab) -> Any:
    return tab.page.evaluate("() => window.asked")


def test_each_post_spends_a_voucher_and_more_are_asked_for_when_they_run_out(site: Site, someone: Open) -> None:
    first, second = mint_vouchers(KEY, 2), mint_vouchers(KEY, 2)
    tab = start(someone(), first, second).enroll("banner").flush()
    for _ in range(3):
        tab.track("minutes", 2).flush()
    assert [post.nonce for post in site.posts] == first + second
    assert {post.status for post in site.posts} == {204}
    assert asked(tab) == 2
    assert site.tallies()["banner"].total == 1


def test_a_retry_keeps_its_voucher(site: Site, someone: Open) -> None:
    tab = start(someone(), mint_vouchers(KEY, 3))
    site.fault = lambda method, _: "deaf" if method == "POST" else None
    tab.enroll("banner").flush()
    site.fault = lambda *_: None
    tab.flush()
    assert len({post.body for post in site.posts}) == 1
    assert site.posts[-1].status == 204
    assert site.tallies()["banner"].total == 1


def test_without_vouchers_posts_wait_on_the_device(site: Site, someone: Open) -> None:
    tab = start(someone()).enroll("banner").flush()
    assert site.posts == []
    assert "kanab: no vouchers" in tab.heard
    start(tab.visit(), mint_vouchers(KEY, 1)).flush()
    assert [post.status for post in site.posts] == [204]


def test_vouchers_that_are_old_or_spent_are_dropped(site: Site, someone: Open) -> None:
    old = mint_vouchers(KEY, 2, datetime.now(UTC) - timedelta(hours=26))
    page = [*old, *mint_vouchers(KEY, 1)]
    tab = start(someone(), page).enroll("banner").flush()
    more = mint_vouchers(KEY, 1)
    start(tab.visit(), page, more).track("minutes", 2).flush()  # the same page again, from a cache
    assert [(post.nonce, post.status) for post in site.posts] == [(page[2], 204), (more[0], 204)]
    assert tab.state["spent"] == [page[2], *more]


def test_who_leaves_at_once_spends_a_voucher_of_the_page(site: Site, someone: Open) -> None:
    tab = someone()
    script = """async ([vouchers, url]) => { const kanab = await init({ vouch: () => vouchers });
      kanab.enroll("banner"); setTimeout(() => { location = url; }); }"""
    elsewhere = site.url.replace("127.0.0.1", "localhost") + "elsewhere"
    tab.page.evaluate(script, [mint_vouchers(KEY, 2), elsewhere])
    tab.page.wait_for_url(elsewhere)
    tab.wait(lambda: [post.status for post in site.posts] == [204])
