"""Names with everything that separates parts of messages, from a real browser and a Python server to the seal."""

from collections.abc import Callable

from tests.browser.browser_tab import Tab
from tests.browser.shop_site import Site
from tests.collector.collector_process import HOST

from kanab.client import Client

PEOPLE = 3
SHOP = """
k = 5
[cohorts]
every = "7d"
[covariates]
"a|b: c" = ["x/y", "*", "🙂"]
"%7C" = ["n", "s"]
[metrics]
"spend @ >1" = { bounds = [0, 50], resolution = 1 }
"n" = { bounds = [0, 50], resolution = 1 }
"r=q" = { ratio = ["spend @ >1", "n"] }
[experiments."check/out"]
arms = { "A:1" = 1, "B|2" = 1 }
adjust = ["a|b: c", "%7C"]
[experiments."'__proto'!*()~"]
arms = { "🙂" = 1, "%2F" = 1 }
interactions = ["check/out"]
"""
EXPERIMENTS = ("check/out", "'__proto'!*()~")
LEVELS = {"a|b: c": "x/y", "%7C": "s"}


def check(site: Site) -> None:
    """Everybody is in every table, with what they did."""
    tallies = site.tallies()
    assert {*tallies} == {*site.plan.linkage_names}
    for name, table in tallies.items():
        assert table.total == PEOPLE, name
        assert table.moments_of("spend @ >1").sums.sum() == 7 * PEOPLE
        assert table.cross("spend @ >1", "n", by=table.axes[:1]).products.sum() == 14 * PEOPLE
    assert tallies["check/out/a|b: c"].people_by("a|b: c") == {"x/y": PEOPLE, "*": 0, "🙂": 0}


def test_a_browser_is_counted_under_hostile_names(site: Site, someone: Callable[..., Tab]) -> None:
    site.anew(SHOP)
    for _ in range(PEOPLE):
        tab = someone().start()
        assert None not in tab.arms(*EXPERIMENTS)
        for experiment in EXPERIMENTS:
            tab.enroll(experiment, **LEVELS)
        tab.track("spend @ >1", 3).track("n", 2).flush()
        tab.visit().start().track("spend @ >1", 4).flush()
        assert tab.heard == []
    assert {post.status for post in site.posts} == {204}
    check(site)


def test_a_python_server_is_counted_under_hostile_names(site: Site) -> None:
    site.anew(SHOP)
    client = Client(f"http://{HOST}:{site.collector.port}/")
    assert client.ready(20)
    for number in range(PEOPLE):
        person = client.person(id=f"user {number}")
        for experiment in EXPERIMENTS:
            person.enroll(experiment, LEVELS)
        person.track("spend @ >1", 3)
        person.track("n", 2)
        person.track("spend @ >1", 4)
        person.save()
    assert client.flush(20)
    client.close()
    check(site)
