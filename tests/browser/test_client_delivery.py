"""Exactly once: two tabs, no network, lost answers, a collector that is killed, and what is given up."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser
from tests.browser.browser_tab import Tab, wait_for
from tests.browser.conftest import NAMES, QUIET
from tests.browser.shop_site import Request, Site
from tests.programs import find_program

import kanab as kb
from kanab.tally.tally import Tally

Open = Callable[..., Tab]

NO_LOCKS = "Object.defineProperty(Navigator.prototype, 'locks', { value: undefined });"
BUSY = """(amounts) => { window.done = (async () => {
  for (const amount of amounts) {
    kanab.track("minutes", amount);
    await new Promise((next) => setTimeout(next, 20 * Math.random()));
    if (Math.random() < 0.1) kanab.flush();
  }
  await kanab.flush();
})(); }"""


def truth(site: Site, *people: dict[str, Any]) -> dict[str, Tally]:
    """What counting these people's rows gives: another way than messages."""
    start: dict[str, Any] = {"checkout": None, "tier": 1, "device": "phone", "banner": None}
    start |= {"bought": 0, "minutes": 0, "revenue": 0, "orders": 0, "rating": math.nan}
    rows = {name: [(start | person)[name] for person in people] for name in start}
    return dict(kb.count(rows, plan=site.plan).tallies)


def moves(posts: list[Request], metric: str = "minutes") -> list[str]:
    return [line.rpartition(":")[2] for post in posts for line in post.lines if f":{metric}:" in line]


@pytest.mark.parametrize("script", ["", NO_LOCKS], ids=["Web Locks", "a lease"])
def test_two_tabs_at_once_do_not_break_the_sum_of_squares(site: Site, someone: Open, script: str) -> None:
    first = someone(script).start()
    second = Tab(first.context, site).start()
    arm = first.variant("banner")
    assert second.variant("banner") == arm
    first.enroll("banner")
    second.enroll("banner")
    tabs, amounts = (first, second), ([0.25] * 60, [1.75] * 60)
    for tab, each in zip(tabs, amounts, strict=True):
        tab.page.evaluate(BUSY, each)
    for tab in tabs:
        tab.page.evaluate("() => window.done")
    first.flush()
    assert site.tallies() == truth(site, {"banner": arm, "minutes": 120})
    assert len(site.posts) > 2
    assert [text for tab in tabs for text in tab.heard] == []


@pytest.mark.parametrize("script", ["", NO_LOCKS], ids=["Web Locks", "a lease"])
def test_two_tabs_that_open_at_once_draw_one_arm(someone: Open, site: Site, script: str) -> None:
    first = someone(script)
    second = Tab(first.context, site)
    for person in range(5):
        for tab in (first, second):
            tab.page.evaluate("(url) => { window.begun = init({ url }); }", f"/p/{person}/")
        arms = {
            tab.page.evaluate("async () => (window.kanab = await begun).variant('checkout')") for tab in (first, second)
        }
        assert len(arms) == 1


def test_offline_then_online_delivers_exactly_once(site: Site, someone: Open) -> None:
    tab = someone().start()
    arm = tab.variant("banner")
    tab.enroll("banner").flush()
    tab.context.set_offline(True)
    for _ in range(3):
        tab.track("minutes", 2).flush()
    assert len(site.posts) == 1
    tab.context.set_offline(False)  # and the client notices by itself
    tab.wait(lambda: site.posts[-1].status == 204 and tab.state["units"]["banner"]["sent"] == {"minutes": 6})
    assert site.tallies() == truth(site, {"banner": arm, "minutes": 6})


def test_a_lost_answer_is_asked_for_again_with_the_same_bytes(site: Site, someone: Open) -> None:
    tab = someone().start()
    arm = tab.variant("banner")
    tab.enroll("banner").flush()
    site.fault = lambda method, _: "deaf" if method == "POST" else None  # counted, but nobody hears of it
    tab.track("minutes", 4).flush()
    tab.track("minutes", 3).flush()
    site.fault = lambda *_: None
    tab.visit().start().flush()
    lost, *again = site.posts[1:]
    assert lost.status == 0
    assert {post.body for post in again[:-1]} == {lost.body}
    assert moves(again[-1:]) == ["4>7"]
    assert site.tallies() == truth(site, {"banner": arm, "minutes": 7})


def test_a_collector_killed_in_mid_flight_and_restarted_loses_and_doubles_nothing(site: Site, someone: Open) -> None:
    tab = someone().start()
    checkout, banner = tab.arms("checkout", "banner")
    tab.enroll("checkout", tier=2, device="desktop").enroll("banner").flush()
    killed: list[str] = []

    def kill(method: str, _: str) -> str | None:
        if method != "POST" or len(killed) > 5:
            return None
        killed.append(method)
        if len(killed) == 2:  # the first has arrived, the others are on their way
            site.collector.kill()
        return "deaf"

    for round_ in range(3):
        killed.clear()
        site.fault = kill
        tab.track("minutes", 1 + round_).track("bought").flush()
        site.fault = lambda *_: None
        site.restart()
        tab.flush()
    person = {"checkout": checkout, "tier": 2, "device": "desktop", "banner": banner, "bought": 1, "minutes": 6}
    assert site.tallies() == truth(site, person)
    assert sum(post.status == 0 for post in site.posts) >= 6


def test_a_busy_collector_gets_the_same_bytes_later(site: Site, someone: Open) -> None:
    answers = [503, 429]
    site.fault = lambda method, _: answers.pop() if method == "POST" and answers else None
    tab = someone().start().enroll("banner").flush()
    assert [post.status for post in site.posts] == [429]
    tab.wait(lambda: len(site.posts) == 3)  # after about one second, and two more
    assert [post.status for post in site.posts] == [429, 503, 204]
    assert len({post.body for post in site.posts}) == 1


def test_whoever_could_not_be_enrolled_sends_nothing_more(site: Site, someone: Open) -> None:
    tab = someone()
    for person, status in enumerate((400, 403, 410, 413)):
        site.fault = lambda method, _, status=status: status if method == "POST" else None
        tab.start(url=f"/p/{person}/").enroll("banner").flush().track("minutes", 4).flush()
        tab.visit().start(url=f"/p/{person}/").enroll("banner").track("minutes", 4).flush()
    assert [post.status for post in site.posts] == [400, 403, 410, 413]
    assert {value.partition('"units":')[2] for value in tab.stored.values()} == {'{"banner":{"over":1}}}'}


def test_a_refused_total_freezes_its_metric_and_no_other(site: Site, someone: Open) -> None:
    tab = someone().start()
    arm = tab.variant("banner")
    tab.enroll("banner").track("revenue", 5).flush()
    site.fault = lambda method, _: 400 if method == "POST" else None
    tab.track("revenue", 5).flush()
    site.fault = lambda *_: None
    tab.track("revenue", 5).track("orders", 1).track("minutes", 2).flush()  # orders move with revenue, or not at all
    assert tab.state["units"]["banner"]["frozen"] == ["revenue"]
    assert moves(site.posts[-1:]) == ["0>2"]
    assert site.tallies() == truth(site, {"banner": arm, "minutes": 2, "revenue": 5})


def test_a_post_without_an_answer_is_given_up_when_its_nonce_is_too_old(site: Site, someone: Open) -> None:
    tab = someone().start().enroll("banner").flush()
    site.fault = lambda method, _: "drop" if method == "POST" else None
    tab.track("minutes", 4).flush()

    def age(state: Any) -> None:
        state["units"]["banner"]["at"] -= 25 * 3_600_000

    tab.page.goto(site.url + "elsewhere")
    tab.tamper(age)
    site.fault = lambda *_: None
    before = len(site.posts)
    tab.visit().start().track("minutes", 1).track("bought").flush()
    assert [line.rpartition("W")[2][3:] for post in site.posts[before:] for line in post.lines] == ["bought:0>1"]


def test_a_client_that_was_never_answered_is_not_counted_after_a_day(site: Site, someone: Open) -> None:
    site.fault = lambda method, _: "drop" if method == "POST" else None
    tab = someone().start().enroll("banner").flush()
    tab.page.goto(site.url + "elsewhere")
    tab.tamper(lambda state: state["units"]["banner"].update(at=0))
    site.fault = lambda *_: None
    tab.visit().start().track("minutes", 1).flush()
    assert tab.state["units"] == {"banner": {"over": 1}}
    assert {post.status for post in site.posts} == {0}


def test_nothing_is_added_after_the_window_and_then_nothing_is_kept(site: Site, someone: Open) -> None:
    tab = someone().start().enroll("banner").track("minutes", 4).flush()
    day = 24 * 3_600_000

    def end(ago: int) -> Callable[[Any], None]:
        return lambda state: state["units"]["banner"].update(end=tab.page.evaluate("() => Date.now()") - ago)

    tab.tamper(end(day // 2))
    tab.visit().start().track("minutes", 4).flush()
    assert moves(site.posts) == ["0>4"]
    tab.tamper(end(2 * day))
    tab.visit().start().enroll("banner").track("minutes", 4).flush()
    assert tab.state["units"] == {"banner": {"over": 1}}
    assert moves(site.posts) == ["0>4"]


def test_enrollments_of_one_moment_travel_in_one_post(site: Site, someone: Open) -> None:
    tab = someone().start()
    checkout, banner = tab.arms("checkout", "banner")
    tab.enroll("checkout", tier=1, device="phone").enroll("banner").track("minutes", 3).flush()
    (post,) = site.posts
    assert {line.partition(":")[0] for line in post.lines} == {
        "checkout/tier", "checkout/device", "banner", "banner/checkout",
    }  # fmt: skip
    tab.track("minutes", 1).flush()
    assert len(site.posts) == 4  # totals: a post for each experiment, and for the pair
    assert site.tallies() == truth(site, {"checkout": checkout, "banner": banner, "minutes": 4})


def test_a_post_of_several_enrollments_without_an_answer_is_counted_once(site: Site, someone: Open) -> None:
    tab = someone().start()
    checkout, banner = tab.arms("checkout", "banner")
    site.fault = lambda method, _: "deaf" if method == "POST" else None
    tab.enroll("checkout", tier=1, device="phone").enroll("banner").flush()
    site.fault = lambda *_: None
    tab.visit().start().track("minutes", 2).flush()
    assert len({post.body for post in site.posts if "minutes" not in post.body}) == 1
    assert site.tallies() == truth(site, {"checkout": checkout, "banner": banner, "minutes": 2})


def test_where_a_post_of_several_enrollments_is_refused_each_is_sent_by_itself(site: Site, someone: Open) -> None:
    tab = someone().start()
    _, banner = tab.arms("checkout", "banner")

    def refuse_checkout(method: str, _: str) -> int | None:
        return 400 if method == "POST" and len(site.posts) in (0, 1) else None  # the joint one, and checkout's own

    site.fault = refuse_checkout
    tab.enroll("checkout", tier=1, device="phone").enroll("banner").track("minutes", 2).flush()
    assert sorted(post.status for post in site.posts) == [204, 204, 400, 400]
    joint, *alone = site.posts
    assert sorted(line for post in alone for line in post.lines) == sorted(joint.lines)
    assert len({post.nonce for post in site.posts}) == 4
    counted = {line.partition(":")[0] for line in site.counted}
    assert len(counted & {"checkout/tier", "banner", "banner/checkout"}) == 2
    assert banner in ("off", "on")


# ── somebody in between ────────────────────────────────────────────────────────────────────────


def test_an_answer_that_is_not_the_collectors_ends_nothing(site: Site, someone: Open) -> None:
    """A proxy's refusal and a hotel's page with 200 are told apart by a header: the same bytes go out again."""
    pages = [400, 401, 403, 404, 410, 413, 200, 204]
    tab = someone()
    for person, status in enumerate(pages):
        site.fault = lambda method, _, status=status: f"page {status}" if method == "POST" else None
        tab.start(url=f"/p/{person}/", development=True).enroll("banner").track("minutes", 4).flush()
        assert {f"kanab: no answer {status}", "kanab: no answer"} <= {*tab.heard}
        site.fault = lambda *_: None
        tab.flush()
        first, *again = [post for post in site.posts if post.path == "/v1/t"][-2:]
        assert (first.status, again[0].status, again[0].body) == (status, 204, first.body)
    assert all('"enrolled":1' in text for text in tab.stored.values())
    assert site.tallies()["banner"].total == len(pages)


def test_a_total_that_a_proxy_refused_is_not_frozen(site: Site, someone: Open) -> None:
    tab = someone().start()
    arm = tab.variant("banner")
    tab.enroll("banner").flush()
    site.fault = lambda method, _: "page 403" if method == "POST" else None
    tab.track("revenue", 5).flush()
    site.fault = lambda *_: None
    tab.track("revenue", 5).flush()
    assert site.tallies() == truth(site, {"banner": arm, "revenue": 10})


OLDER = """const asked = fetch; window.fetch = async (url, more) => { const answer = await asked(url, more);
  if (more.body) return new Response(null, { status: answer.status });
  const config = await answer.json(); delete config.answers; return new Response(JSON.stringify(config)); };"""


def test_a_collector_that_does_not_sign_its_answers_yet_is_believed(site: Site, someone: Open) -> None:
    tab = someone(OLDER).start().enroll("banner").track("revenue", 5).flush()
    assert tab.state["units"]["banner"]["sent"] == {"revenue": 5}
    site.fault = lambda method, _: 400 if method == "POST" else None
    tab.track("revenue", 5).flush()
    assert tab.state["units"]["banner"]["frozen"] == ["revenue"]


# ── a store that has lost something ────────────────────────────────────────────────────────────


def test_who_enrolled_in_another_epoch_keeps_the_arm_and_sends_nothing_more(site: Site, someone: Open) -> None:
    tab = someone().start().enroll("banner").track("minutes", 4).flush()
    arm = tab.variant("banner")
    epoch = site.begin_epoch()
    site.restart()
    before = len(site.posts)
    tab.visit().start().track("minutes", 3).flush()
    tab.enroll("banner").flush().visit().start().flush()
    assert tab.variant("banner") == arm
    assert len(site.posts) == before
    assert tab.state["units"] == {"banner": {"over": 1}}
    tab.enroll("checkout", tier=1, device="phone").track("minutes", 2).flush()  # new there: under the new epoch
    assert {(post.status, post.epoch) for post in site.posts[before:]} == {(204, epoch)}
    assert "banner" not in "".join(post.body for post in site.posts[before:])


def test_a_page_that_is_open_when_an_epoch_begins_learns_it_from_the_answer(site: Site, someone: Open) -> None:
    tab = someone().start().enroll("banner").track("minutes", 4).flush()
    epoch = site.begin_epoch()
    tab.track("minutes", 3).flush().track("minutes", 3).flush()
    tab.enroll("checkout", tier=1, device="phone").track("minutes", 2).flush()
    answers = dict.fromkeys((post.status, post.epoch) for post in site.posts)
    assert list(answers) == [(204, ""), (410, ""), (204, epoch)]
    assert sum(post.status == 410 for post in site.posts) == 1
    units = tab.state["units"]
    assert (units["banner"], units["checkout"]["epoch"]) == ({"over": 1}, epoch)
    assert "banner/checkout" not in units  # whose other half nobody counts


UNNAMED = """let posts = 0; window.posts = () => posts; const asked = fetch;
  const other = { status: 410, headers: { "kanab-answer": "epoch" } };
  window.fetch = async (url, more) => (more.body && ++posts ? new Response(null, other) : asked(url, more));"""


def test_an_epoch_that_a_proxy_keeps_to_itself_ends_the_unit_and_asks_no_more(someone: Open) -> None:
    tab = someone(UNNAMED).start().enroll("banner").flush().track("minutes", 4).flush()
    assert tab.page.evaluate("() => posts()") == 1
    assert tab.state["units"] == {"banner": {"over": 1}}


def test_a_page_of_before_does_not_close_what_a_newer_page_began(site: Site, someone: Open) -> None:
    old = someone().start()
    epoch = site.begin_epoch()
    site.restart()
    new = Tab(old.context, site).start()
    new.enroll("banner").track("minutes", 4).flush()
    old.track("minutes", 3).flush()
    assert {(post.status, post.epoch) for post in site.posts} == {(204, epoch)}
    assert moves(site.posts) == ["0>4", "4>7"]


# ── who leaves at once ─────────────────────────────────────────────────────────────────────────

LEAVE = """async ([url, options]) => { const kanab = await init(options); kanab.enroll("banner"); %s }"""


def elsewhere(site: Site) -> str:
    """The address of a page of another site, which does not know this client."""
    return site.url.replace("127.0.0.1", "localhost") + "elsewhere"


def enrolled(site: Site) -> int:
    return sum(post.status == 204 and "banner:" in post.body for post in site.posts)


@pytest.mark.parametrize("before", ["new here", "been here"])
def test_who_is_redirected_right_after_the_enrollment_is_counted(site: Site, someone: Open, before: str) -> None:
    """An arm that sends people elsewhere would lose exactly its own: a bias of the effect."""
    for _ in range(6):
        tab = someone()
        if before == "been here":
            tab.start().page.wait_for_timeout(200)
        tab.page.evaluate(LEAVE % "setTimeout(() => { location = url; })", [elsewhere(site), {"url": "/"}])
        tab.page.wait_for_url(elsewhere(site))
    wait_for(lambda: enrolled(site) == 6)
    assert site.tallies()["banner"].total == 6


def test_who_closes_the_tab_right_after_the_enrollment_is_counted(site: Site, someone: Open) -> None:
    for _ in range(6):
        tab = someone()
        tab.page.evaluate(LEAVE % "", ["", {"url": "/"}])
        tab.page.close(run_before_unload=True)
    wait_for(lambda: enrolled(site) == 6)
    assert site.tallies()["banner"].total == 6


def test_who_comes_back_to_a_page_that_was_only_frozen_is_counted_once(
    peoples_browser: Browser, site: Site, tmp_path: Path
) -> None:
    """Back and forward bring the page as it was left (bfcache): its client goes on, and nothing is sent twice."""
    browser = peoples_browser.browser_type.launch_persistent_context(
        tmp_path / "profile",
        executable_path=find_program(*NAMES, package="chromium"),
        args=[*QUIET, "--disable-blink-features=AutomationControlled"],
        ignore_default_args=["--disable-back-forward-cache"],
    )
    try:
        tab = Tab(browser, site).start().enroll("banner").track("minutes", 1).flush()
        arm = tab.variant("banner")
        tab.page.evaluate("() => addEventListener('pageshow', (event) => { window.frozen = event.persisted; })")
        tab.page.wait_for_timeout(500)  # a page that holds a lock would not be frozen
        tab.track("minutes", 2)
        tab.page.wait_for_timeout(2000)
        tab.page.goto(elsewhere(site))
        tab.page.go_back(wait_until="commit")
        assert tab.page.evaluate("() => window.frozen") is True
        tab.track("minutes", 4).flush()
        assert site.tallies() == truth(site, {"banner": arm, "minutes": 7})
        assert len({post.nonce for post in site.posts}) == len(site.posts) == 3
    finally:
        browser.close()
