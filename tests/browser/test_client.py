"""The browser client in a real browser, against a real collector: a visit, its bytes, and what is remembered."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from tests.browser.browser_tab import Tab
from tests.browser.shop_site import Site
from tests.collector.many_visitors import this_week

Open = Callable[..., Tab]


def without_nonce(body: str) -> str:
    return re.sub(r"^kanab/1 [0-9a-f]{32}\n", "", body)


def test_a_visit_sends_these_bytes_and_no_others(site: Site, someone: Open) -> None:
    """A capture of one visit: what the page fetched, and every byte that left."""
    tab = someone().start()
    arm, week = tab.variant("checkout"), this_week()
    assert arm in ("A", "B")
    tab.enroll("checkout", tier=3, device="phone", email="somebody@shop.example").track("minutes", 4).flush()
    tab.track("minutes", 2.5).track("bought").flush()
    digest = site.requests[2].path
    assert [(one.method, one.path, one.status) for one in site.requests] == [
        ("GET", "/kanab.js", 200),
        ("GET", "/v1/config.json", 307),
        ("GET", digest, 200),
        ("POST", "/v1/t", 204),
        ("POST", "/v1/t", 204),
    ]
    tier, device = f"checkout/tier:{arm}:3@{week}", f"checkout/device:{arm}:phone@{week}"
    assert [without_nonce(post.body) for post in site.posts] == [
        f"{tier}\n{tier}:minutes:0>4\n{device}\n{device}:minutes:0>4\n",
        f"{tier}:bought:0>1\n{tier}:minutes:4>6.5\n{device}:bought:0>1\n{device}:minutes:4>6.5\n",
    ]
    hours = int(datetime.now(UTC).timestamp()) // 3600
    assert {int(post.nonce[:8], 16) for post in site.posts} <= {hours - 1, hours}
    assert len({post.nonce for post in site.posts}) == 2


def test_no_cookie_and_no_referrer_is_ever_sent(site: Site, someone: Open) -> None:
    tab = someone()
    assert tab.context.cookies()[0]["value"] == "cookie-of-the-shop"
    tab.start().enroll("checkout", tier=1).flush()
    talk = [one for one in site.requests if one.path.startswith("/v1/")]
    assert len(talk) == 3
    for request in talk:
        assert not {"cookie", "referer", "authorization"} & {*request.headers}
        assert "cookie-of-the-shop" not in repr(request)
    assert site.posts[0].headers["content-type"] == "text/plain;charset=UTF-8"


def test_a_strict_policy_is_enough(someone: Open) -> None:
    tab = someone().start().enroll("checkout").flush()
    assert tab.page.evaluate("() => fetch('http://127.0.0.1:1/').catch(() => 'blocked')") == "blocked"
    assert any("violates" in text for text in tab.heard)  # the policy is in force
    assert not [text for text in tab.heard if "127.0.0.1:1/" not in text]


def test_a_reload_keeps_the_arm_and_goes_on_from_the_same_total(site: Site, someone: Open) -> None:
    tab = someone().start()
    before = tab.arms("checkout", "banner")
    tab.enroll("checkout").track("minutes", 4).flush()
    for _ in range(3):
        assert tab.visit().start().arms("checkout", "banner") == before
    tab.enroll("checkout").track("minutes", 2).flush()  # once is enough: nobody is enrolled twice
    assert [line.rpartition(":")[2] for line in site.counted if ":minutes:" in line] == ["0>4", "0>4", "4>6", "4>6"]
    assert sum(":minutes" not in line for line in site.counted) == 2


def test_pairs_carry_the_later_cohort_and_totals_since_then(site: Site, someone: Open) -> None:
    tab = someone().start()
    (checkout, banner), week = tab.arms("checkout", "banner"), this_week()
    tab.enroll("checkout", tier=2).track("minutes", 10).flush()
    tab.enroll("banner").track("minutes", 1).flush()
    both = f"banner/checkout:{banner}:{checkout}@{week}"
    assert sorted(line for line in site.counted if line.startswith("banner")) == [
        both, f"{both}:minutes:0>1", f"banner:{banner}@{week}", f"banner:{banner}@{week}:minutes:0>1",
    ]  # fmt: skip
    assert f"checkout/tier:{checkout}:2@{week}:minutes:10>11" in site.counted


def test_values_are_cut_to_bounds_and_put_on_the_grid_before_they_leave(site: Site, someone: Open) -> None:
    tab = someone().start().enroll("banner")
    for amount in (0.004, 0.004, 700, -200, -900):
        tab.track("minutes", amount).flush()
    moves = [line.rpartition(":")[2] for line in site.counted[1:]]
    assert moves == ["0>0.01", "0.01>600", "600>500.01", "500.01>0"]


def test_a_binary_metric_is_set_and_not_added(site: Site, someone: Open) -> None:
    tab = someone().start().enroll("banner").track("bought").track("bought").flush()
    tab.track("bought", 0).flush()
    assert [line.rpartition(":")[2] for line in site.counted[1:]] == ["0>1", "1>0"]


LEVELS: list[tuple[Any, str]] = [(3, "3"), ("3", "3"), (9, ""), (None, ""), (2.5, ""), (True, ""), ("a:b@c>d", "")]


def test_a_level_that_is_not_declared_is_other_or_missing(site: Site, someone: Open) -> None:
    tab = someone()
    for person, (level, _) in enumerate(LEVELS):
        tab.start(url=f"/p/{person}/").enroll("checkout", tier=level, device="fridge").flush()
    sent = [[line.partition("@")[0].split(":")[2] for line in post.lines] for post in site.posts]
    assert sent == [[level, "other"] for _, level in LEVELS]


def test_leaving_the_page_delivers_what_is_left(site: Site, someone: Open) -> None:
    tab = someone().start().enroll("banner")
    tab.wait(lambda: tab.state["units"] != {})  # the client has begun, and waits for more
    tab.track("minutes", 3)
    tab.page.goto("about:blank")
    tab.wait(lambda: len(site.counted) == 2, 5)
    assert tab.visit().start().flush().state["units"]["banner"]["sent"] == {"minutes": 3}
    assert sum("0>3" in line for line in site.counted) == 1


def test_what_a_page_tracks_just_before_it_is_left_is_sent_on_the_next_one(site: Site, someone: Open) -> None:
    """Even if the lock was somebody else's all the time."""
    tab = someone().start().enroll("banner").flush()
    tab.page.evaluate(
        "() => { navigator.locks.request('kanab/1 ' + location.origin + '/', () => new Promise(() => {})); }"
    )
    tab.page.wait_for_timeout(50)
    tab.track("minutes", 3).visit().start().flush()
    assert site.counted[1:] == [site.counted[0] + ":minutes:0>3"]


def test_a_session_ends_with_its_tab(site: Site, someone: Open) -> None:
    tab = someone().start(storage="session").enroll("banner").track("minutes", 1).flush()
    tab.visit().start(storage="session").track("minutes", 1).flush()
    again = Tab(tab.context, site).start(storage="session").enroll("banner").flush()
    assert [line.rpartition(":")[2] for line in site.counted if "minutes" in line] == ["0>1", "1>2"]
    assert sum("minutes" not in line for line in site.counted) == 2  # two sessions are two clients
    assert again.page.evaluate("() => localStorage.length") == 0


def test_an_id_decides_the_arm_on_every_device_and_never_leaves(site: Site, someone: Open) -> None:
    arms = [someone().start(id="user-1").arms("checkout", "banner") for _ in range(2)]
    assert arms[0] == arms[1]
    tab = someone().start(id="user-1").enroll("checkout").flush()
    assert tab.arms("checkout", "banner") == arms[0]
    assert "user-1" not in repr(site.requests)
    assert "user-1" not in repr(tab.stored)


def test_somebody_enrolled_stays_in_the_arm_whatever_id_comes_later(someone: Open) -> None:
    tab = someone().start()
    (checkout, _) = tab.arms("checkout", "banner")
    tab.enroll("checkout").flush()
    banners = set()
    for number in range(8):
        tab.visit().start(id=f"user-{number}")
        assert tab.variant("checkout") == checkout
        banners.add(tab.variant("banner"))
    assert banners == {"off", "on"}


def test_a_collector_of_another_origin_answers_the_pages_that_its_plan_names(site: Site, someone: Open) -> None:
    site.restart(f'origins = ["{site.url.rstrip("/")}"]\n{site.text}')
    elsewhere = f"http://127.0.0.1:{site.collector.port}/"
    site.policy += f" {elsewhere}"  # connect-src
    tab = someone().start(url=elsewhere).enroll("banner").track("minutes", 4).flush()
    (state,) = (json.loads(value) for value in tab.stored.values())
    assert state["units"]["banner"]["sent"] == {"minutes": 4}
    assert "post" not in state["units"]["banner"]
    assert site.tallies()["banner"].total == 1
    assert tab.heard == []


def test_whoever_is_not_in_an_experiment_sees_its_control_and_is_not_counted(site: Site, someone: Open) -> None:
    site.anew(site.text.replace("[experiments.banner]\n", "[experiments.banner]\nholdout = 0.999999999\n"))
    tab = someone().start()
    assert [tab.visit().start().variant("banner") for _ in range(4)] == ["off"] * 4
    tab.enroll("banner").enroll("checkout").track("minutes", 1).flush()
    assert {line.partition("/")[0] for line in site.counted} == {"checkout"}


def test_pages_that_name_their_experiments_load_these_and_keep_what_is_remembered_of_others(
    site: Site, someone: Open
) -> None:
    shop, more = site.text, "".join(f"[experiments.{name}]\narms = {{ A = 1, B = 1 }}\n" for name in ("logo", "sale"))
    site.anew(shop + more)
    tab, week = someone().start(experiments=["logo"]), this_week()
    assert "/v1/config.json?experiments=logo" in [one.path for one in site.requests]
    arm = tab.variant("logo")
    assert (tab.arms("sale", "checkout"), {*tab.state["arms"]}) == ([None, None], {"logo"})
    tab.enroll("logo").track("minutes", 4).flush()

    tab.visit().start(experiments=["sale"]).track("minutes", 2).flush()  # counts for every experiment
    assert site.counted == [f"logo:{arm}@{week}", f"logo:{arm}@{week}:minutes:0>4", f"logo:{arm}@{week}:minutes:4>6"]
    tab.visit().start(experiments=["logo", "banner"])
    assert tab.variant("logo") == arm
    assert {*tab.state["arms"]} == {"logo", "sale", "banner", "checkout"}  # the last two are counted as a pair
    tab.enroll("logo").flush()
    assert len(site.counted) == 3

    checkout, key = tab.variant("checkout"), tab._key("")
    step = json.dumps(["enroll", "checkout", {"tier": "3", "device": "phone"}, datetime.now(UTC).timestamp() * 1000])
    tab.page.evaluate("([key, step]) => { localStorage[key + ' 1'] = step; }", [key, step])
    tab.visit().start(experiments=["sale"]).flush()  # somebody left the page with checkout at once
    assert site.counted[3:] == [f"checkout/tier:{checkout}:3@{week}", f"checkout/device:{checkout}:phone@{week}"]

    tab.tamper(lambda state: state["units"]["logo"].update(end=1))
    site.anew(shop)
    tab.visit().start(experiments=["checkout"]).flush()
    assert tab.state["units"]["logo"] == {"over": 1}  # this page does not know that it has left the plan
    tab.visit().start().flush()
    assert ("logo" in tab.state["units"], "logo" in tab.state["arms"]) == (False, False)
