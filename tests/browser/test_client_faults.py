"""Who is left out, and what goes wrong: silence instead of noise, the control instead of an error."""

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser
from tests.browser.browser_tab import Tab, wait_for
from tests.browser.conftest import SHOP
from tests.browser.shop_site import Site

Open = Callable[..., Tab]

GPC = "Object.defineProperty(navigator, 'globalPrivacyControl', { value: true });"
FULL = "Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); };"


def shifted(hours: float) -> str:
    return f"const now = Date.now; Date.now = () => now() + {hours} * 3600000;"


def use(tab: Tab) -> Tab:
    """Everything that a page may do."""
    return tab.enroll("checkout", tier=1).track("minutes", 4).flush()


def nobody(site: Site) -> bool:
    """Is nobody counted in any table?"""
    return not any(table.total for table in site.tallies().values())


def pairs(site: Site) -> set[str]:
    return {line.partition(":")[0] for line in site.counted if "/" in line.partition(":")[0]}


# ── who is left out ────────────────────────────────────────────────────────────────────────────


def test_opting_out_leaves_empty_storage_and_silence(site: Site, someone: Open) -> None:
    tab = use(someone().start())
    other = Tab(tab.context, site).start()
    assert tab.stored  # and perhaps a post that waits for its answer
    before = len(site.requests)
    tab.opt_out()
    for one in (tab, other):  # the other tab hears of it
        use(one).track("minutes", 1).flush()
        assert one.variant("checkout") in ("A", "B")
        assert one.stored == {}
    assert tab.variant("checkout") == "A"
    tab.page.close()
    other.visit()
    assert [request.path for request in site.requests[before:] if request.path != "/kanab.js"] == []
    assert other.stored == {}


def test_opting_out_while_a_post_is_under_way_leaves_nothing(site: Site, someone: Open) -> None:
    tab = use(someone().start())
    tab.track("minutes", 1)
    tab.page.evaluate("() => { kanab.flush(); return kanab.optOut(); }")
    tab.page.wait_for_timeout(300)
    assert tab.stored == {}


def test_global_privacy_control_deletes_everything_and_asks_nothing(site: Site, someone: Open) -> None:
    tab = use(someone().start())
    assert tab.stored
    tab.context.add_init_script(GPC)
    before = len(site.requests)
    use(tab.visit().start())
    assert tab.variant("checkout") is None
    assert tab.page.evaluate("() => kanab.ready") is False
    assert tab.stored == {}
    assert [request.path for request in site.requests[before:] if request.path != "/kanab.js"] == []


def test_automated_browsers_see_the_control_and_send_nothing(browser: Browser, site: Site) -> None:
    context = browser.new_context()
    tab = Tab(context, site)
    assert tab.page.evaluate("() => navigator.webdriver") is True
    for _ in range(4):
        assert use(tab.visit().start()).arms("checkout", "banner") == ["A", "off"]
    assert site.posts == []
    assert tab.stored == {}
    context.close()


def test_without_storage_arms_are_shown_and_nothing_is_sent(site: Site, someone: Open) -> None:
    tab = someone()
    seen = {use(tab.start(storage="none")).variant("checkout") for _ in range(12)}
    assert seen == {"A", "B"}
    same = {tab.start(storage="none", id="user-1").variant("checkout") for _ in range(5)}
    assert len(same) == 1
    assert site.posts == []
    assert tab.stored == {}


def test_storage_that_fills_up_later_sends_nothing_that_it_cannot_remember(site: Site, someone: Open) -> None:
    tab = use(someone().start())
    tab.page.evaluate(f"() => {{ window.kept = Storage.prototype.setItem; {FULL} }}")
    tab.track("minutes", 4).flush()
    assert len(site.posts) == 1
    tab.page.evaluate("() => { Storage.prototype.setItem = kept; }")
    tab.track("minutes", 2).flush()
    assert {line.rpartition(":")[2] for line in site.posts[-1].lines} == {"4>6"}  # what came while it was full is lost
    assert tab.heard == []


# ── the collector, the plan, the clock ─────────────────────────────────────────────────────────


@pytest.mark.parametrize("fault", ["drop", 500, 404])
def test_without_a_config_everybody_sees_the_control_and_nothing_is_sent(site: Site, someone: Open, fault: Any) -> None:
    site.fault = lambda _, path: fault if path.startswith("/v1/") else None
    tab = use(someone().start())
    assert tab.arms("checkout", "banner") == [None, None]
    assert site.posts == []
    assert tab.stored == {}
    assert not [text for text in tab.heard if text.startswith(("kanab", "error"))]


@pytest.mark.parametrize("hours", [-48, -24 * 30])
def test_a_clock_that_is_slow_is_refused_once_and_given_up(site: Site, someone: Open, hours: float) -> None:
    site.restart(None, "--accept-clock")  # before, nobody is told to give up
    tab = use(someone(shifted(hours)).start())
    use(tab.visit().start())
    assert [post.status for post in site.posts] == [410]
    assert tab.state["units"] == {"checkout": {"over": 1}}
    assert site.tallies()["checkout/tier"].total == 0


@pytest.mark.parametrize("hours", [3, 24 * 9])
def test_a_clock_that_is_fast_is_told_to_wait_and_not_counted_meanwhile(
    site: Site, someone: Open, hours: float
) -> None:
    someone().start().enroll("banner").flush()
    tab = use(someone(shifted(hours)).start())
    use(tab.visit().start())
    assert site.posts[0].status == 204
    assert {post.status for post in site.posts[1:]} == {503}
    assert len({post.body for post in site.posts[1:]}) == 1
    assert site.tallies()["checkout/tier"].total == 0


def test_a_clock_that_is_slow_by_minutes_does_no_harm(site: Site, someone: Open) -> None:
    use(someone(shifted(-0.2)).start())
    assert [post.status for post in site.posts] == [204]


def test_what_is_kept_of_an_experiment_goes_when_it_is_out_of_the_plan_and_its_window_over(
    site: Site, someone: Open
) -> None:
    tab = someone().start().enroll("banner").enroll("checkout", tier=1).track("minutes", 4).flush()
    site.anew(SHOP.partition("[experiments.banner]")[0])
    tab.visit().start().flush()
    assert {*tab.state["units"]} == {"banner", "banner/checkout", "checkout"}  # their window is open: totals are due
    tab.context.add_init_script(shifted(24 * 20))
    tab.visit().start().flush()
    assert tab.state["units"] == {"checkout": {"over": 1}}  # it runs on, and nobody is counted in it twice
    assert {*tab.state["arms"]} == {"checkout"}
    assert "banner" not in str(tab.stored)


def test_a_year_later_a_running_experiment_still_knows_whom_it_has_counted(site: Site, someone: Open) -> None:
    tab = use(someone().start())
    arm = tab.variant("checkout")
    before = len(site.posts)
    tab.context.add_init_script(shifted(24 * 400))
    use(tab.visit().start())
    assert tab.variant("checkout") == arm
    assert tab.state["units"] == {"checkout": {"over": 1}}
    assert len(site.posts) == before


def test_storage_that_is_cleared_makes_a_new_client(site: Site, someone: Open) -> None:
    tab = use(someone().start())
    tab.page.evaluate("() => localStorage.clear()")
    tab.track("minutes", 5).flush()
    assert len(site.posts) == 1  # nobody is enrolled any more
    use(tab)
    assert [line.rpartition(":")[2] for line in site.posts[1].lines[1::2]] == ["0>4", "0>4"]


def test_tampered_messages_are_refused_for_their_reason(site: Site, someone: Open) -> None:
    changes: list[dict[str, Any]] = [
        {"heads": ["checkout/tier:Z:1@2026-W46", "checkout/device:Z:@2026-W46"]},
        {"heads": ["checkout/tier:A:1@2026-W46"]},
        {"post": "kanab/1 zz\n", "at": 4e12},
    ]
    tab = someone()
    for person, change in enumerate(changes):
        use(tab.start(url=f"/p/{person}/"))
        tab.tamper(lambda state, change=change: state["units"]["checkout"].update(change), f"/p/{person}/")
        tab.track("minutes", 1).flush().track("minutes", 1).flush()
    assert [post.status for post in site.posts] == [204, 400, 204, 400, 204, 400, 204, 204]
    answers = [site.collector.ask("POST", "/v1/t", post.body.encode())[2] for post in site.posts if post.status == 400]
    assert [answer.decode().partition(" - ")[0].partition(".")[0] for answer in answers] == [
        "unknown arm for 'checkout'",
        "the lines of 'checkout' are not one person's whole transition",
        "a post needs a nonce of 32 hex digits",
    ]


def test_two_versions_of_a_plan_in_the_field(site: Site, someone: Open) -> None:
    """Old pages go on as before; new ones see what was added, and what runs keeps the metrics that it began with."""
    old = someone().start().enroll("checkout", tier=3, device="phone").track("minutes", 1).flush()
    more = "[experiments.poster]\narms = { off = 1, up = 1 }\n"
    site.restart(SHOP.replace("[metrics]", "[metrics]\nhours = { bounds = [0, 99], resolution = 1 }") + more)
    old.track("minutes", 1).flush()
    assert old.variant("poster") is None
    new = Tab(old.context, site).start()
    assert new.variant("poster") in ("off", "up")
    assert new.variant("checkout") == old.variant("checkout")
    new.enroll("poster").track("hours", 2).track("minutes", 5).flush()
    old.track("minutes", 1).flush()
    assert {post.status for post in site.posts} == {204}
    moves = [line.partition(":")[0] + line.partition("@")[2][8:] for line in site.counted if "device" not in line]
    assert [line for line in moves if line.startswith("checkout")] == [
        "checkout/tier", *(f"checkout/tier:minutes:{move}" for move in ("0>1", "1>2", "2>7", "7>8")),
    ]  # fmt: skip
    assert [line for line in moves if line.startswith("poster")] == [
        "poster", "poster:hours:0>2", "poster:minutes:0>5", "poster:minutes:5>6",
    ]  # fmt: skip


def test_a_plan_that_means_something_else_refuses_old_pages_and_counts_nothing_wrongly(
    site: Site, someone: Open
) -> None:
    tab = someone().start().enroll("checkout", tier=3).enroll("banner").track("minutes", 1).flush()
    newer = SHOP.replace("tier = [1, 2, 3]", "tier = [1, 2]").replace("A = 1, B = 1", "C = 1, D = 1")
    site.anew(newer.replace("[experiments.banner]", "[experiments.poster]"))
    before = len(site.posts)
    tab.track("bought").track("minutes", 1).flush()
    statuses = {post.lines[0].partition(":")[0]: post.status for post in site.posts[before:]}
    assert statuses == {"checkout/tier": 400, "banner": 204, "banner/checkout": 204}  # refused, or dropped
    assert tab.visit().start().variant("checkout") in ("C", "D")
    assert tab.enroll("checkout").track("orders").flush().variant("banner") is None
    assert nobody(site)


# ── names ──────────────────────────────────────────────────────────────────────────────────────


def mistakes(tab: Tab) -> list[str]:
    tab.enroll("chekout").track("minuts").track("minutes", "4").enroll("checkout", tier=9).flush()
    assert tab.variant("chekout") is None
    return tab.heard


def test_unknown_names_are_said_in_development_and_are_silent_in_production(site: Site, someone: Open) -> None:
    assert mistakes(someone().start()) == []
    assert mistakes(someone().start(development=True)) == [
        "kanab: no chekout in experiments: banner,checkout",
        "kanab: no minuts in metrics: bought,minutes,orders,rating,revenue",
        "kanab: no number for minutes",
        "kanab: no 9 in tier: 1,2,3",
        "kanab: no chekout in experiments: banner,checkout",
    ]
    site.fault = lambda _, path: 500 if path.startswith("/v1/") else None
    tab = someone().start(development=True)
    assert tab.variant("checkout") is None
    assert tab.heard[-1] == "kanab: no config"


# ── large plans ────────────────────────────────────────────────────────────────────────────────


def crossed(names: list[str]) -> str:
    """A plan of experiments each of which may interfere with every other."""
    plan = '[metrics]\nbought = { kind = "binary" }\n'
    for number, name in enumerate(names):
        others = ", ".join(f'"{other}"' for other in names[:number])
        plan += f"[experiments.{name}]\narms = {{ A = 1, B = 1 }}\ninteractions = [{others}]\n"
    return plan


def test_of_many_pairs_twenty_are_drawn_once(site: Site, someone: Open) -> None:
    names = [f"e{number}" for number in range(8)]
    site.anew(crossed(names))
    tab = someone().start()
    for name in names:
        tab.enroll(name)
    tab.flush()
    found = pairs(site)
    assert len(found) == 20 < len(list(itertools.combinations(names, 2)))
    tab.visit().start().track("bought").flush()
    assert pairs(site) == found
    assert sum(line.endswith("bought:0>1") for line in site.counted) == 28
    drawn = tab.state["pairs"]
    site.anew(crossed(["another", *names]))
    assert tab.visit().start().state["pairs"] == drawn
    site.anew(crossed([f"later{number}" for number in range(8)]))  # when none of them is planned, others are drawn
    assert {key[0] for key in tab.visit().start().state["pairs"]} == {"l"}


def test_a_large_transition_is_cut_into_posts_that_are_whole(site: Site, someone: Open) -> None:
    metrics = "".join(f"m{number} = {{ bounds = [0, 9], resolution = 1 }}\n" for number in range(70))
    site.anew(re.sub(r"\[metrics\].*?\n\n", f"[metrics]\n{metrics}\n", SHOP, flags=re.DOTALL))
    tab = someone().start()
    names = [f"m{number}" for number in range(70)]
    together = 'names => { kanab.enroll("checkout", {}); for (const name of names) kanab.track(name, 2); }'
    tab.page.evaluate(together, names)  # in one turn, so that no timer posts a part of it
    tab.flush()
    wait_for(lambda: sum(len(post.lines) for post in site.posts) == 2 * 71, pause=lambda: tab.page.wait_for_timeout(20))
    assert {post.status for post in site.posts} == {204}
    assert max(len(post.lines) for post in site.posts) == 100
