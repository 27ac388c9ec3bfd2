"""Hostile pages and browsers: nothing is thrown, everybody sees an arm or the control, nothing is counted wrongly."""

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.browser.browser_tab import Tab
from tests.browser.shop_site import PAGE, Site
from tests.collector.collector_process import HOST

from kanab.client import Client

Open = Callable[..., Tab]

ARMS = ("A", "B")
CONTROL = ("A",)
NOTHING = (None,)


class Case(NamedTuple):
    """A script before the page's own, the arguments of ``init``, what is seen, and whether they are counted."""

    script: str = ""
    arguments: str = "{ url: '/' }"
    seen: tuple[str | None, ...] = ARMS
    counted: bool = False
    says: str = ""


def value(owner: str, name: str, what: str) -> str:
    return f"Object.defineProperty({owner}, '{name}', {{ configurable: true, {what} }});"


QUICK = (
    "const later = setTimeout; window.setTimeout = (run, ms, ...more) => later(run, ms === 1e4 ? 300 : ms, ...more);"
)
DENIED = "throw new DOMException('denied', 'SecurityError')"
NO_CRYPTO = value("window", "crypto", "value: undefined")
NO_LOCKS = value("Navigator.prototype", "locks", "value: undefined")


def with_config(change: str) -> str:
    """The collector's config, changed on its way."""
    return (
        "const asked = fetch; window.fetch = async (url, more) => { const answer = await asked(url, more);"
        "if (!`${url}`.includes('config')) return answer; const config = await answer.json();"
        f"{change}; return new Response(JSON.stringify(config)); }};"
    )


def instead_of_config(answer: str) -> str:
    return (
        "const asked = fetch; window.fetch = async (url, more) => "
        f"`${{url}}`.includes('config') ? {answer} : asked(url, more);"
    )


CASES = {
    "an ordinary page": Case(counted=True),
    # wrong arguments
    "no arguments": Case("", "", counted=True),
    "null": Case("", "null", counted=True),
    "a number": Case("", "7", counted=True),
    "an address that is a symbol": Case("", "{ url: Symbol('x') }", NOTHING),
    "an address that is none": Case("", "{ url: 'http://[', development: true }", NOTHING, says="Invalid URL"),
    "an address of something else": Case("", "{ url: {}, development: true }", NOTHING, says="no config"),
    "options that throw": Case("", "{ get url() { throw new Error('no'); } }", NOTHING),
    "an unknown storage": Case("", "{ storage: 'cookie', development: true }", says="reading 'setItem'"),
    "an id that is a symbol": Case("", "{ id: Symbol('x'), development: true }", CONTROL, says="Symbol"),
    # storage
    "no localStorage": Case(value("window", "localStorage", "value: undefined")),
    "localStorage is null": Case(value("window", "localStorage", "value: null")),
    "localStorage is denied": Case(value("window", "localStorage", f"get() {{ {DENIED}; }}")),
    "storage is full": Case(f"Storage.prototype.setItem = () => {{ {DENIED}; }};"),
    "storage forgets": Case("Storage.prototype.setItem = () => {};", "{ development: true }", says="no storage"),
    "storage cannot be read": Case(f"Storage.prototype.getItem = () => {{ {DENIED}; }};"),
    "storage keeps everything": Case(f"Storage.prototype.removeItem = () => {{ {DENIED}; }};"),
    # locks, random numbers, events, the console
    "no Web Locks": Case(NO_LOCKS, counted=True),
    "locks are denied": Case(f"LockManager.prototype.request = async () => {{ {DENIED}; }};"),
    "locks throw": Case(f"LockManager.prototype.request = () => {{ {DENIED}; }};"),
    "a lock that nobody gets": Case(
        QUICK + "LockManager.prototype.request = () => new Promise(() => {});",
        "{ development: true }", NOTHING, says="no config",
    ),
    "no crypto": Case(NO_CRYPTO, "{ development: true }", CONTROL, says="getRandomValues"),
    "no crypto, but an id": Case(NO_CRYPTO, "{ id: 'user-1' }", ("B",)),
    "no events": Case(
        "const add = addEventListener; window.addEventListener = (name, ...more) => {"
        f"if (name === 'pagehide') {DENIED}; return add.call(window, name, ...more); }};",
        "{ development: true }", says="denied"
    ),
    "no console": Case(value("window", "console", "value: undefined"), counted=True),
    # the network
    "no fetch": Case(value("window", "fetch", "value: undefined"), "{ development: true }", NOTHING, says="fetch"),
    "fetch throws": Case("window.fetch = () => { throw new Error('blocked'); };", seen=NOTHING),
    "fetch gives nothing": Case("window.fetch = async () => undefined;", seen=NOTHING),
    "fetch never ends": Case(
        QUICK + "window.fetch = () => new Promise(() => {});", "{ development: true }", NOTHING, says="no config"
    ),
    "a body that never ends": Case(
        QUICK + instead_of_config("new Response(new ReadableStream())"),
        "{ development: true }", NOTHING, says="no config",
    ),
    "posts throw": Case(
        "const asked = fetch; window.fetch = (url, more) => { if (more.body) throw 1; return asked(url, more); };"
    ),
    # the config
    "a page instead of a config": Case(
        instead_of_config("new Response('<!doctype html><h1>Please log in</h1>')"),
        "{ development: true }", NOTHING, says="no config",
    ),
    "something else in JSON": Case(instead_of_config("new Response('[1, 2]')"), seen=NOTHING),
    "a config of the future": Case(instead_of_config("""new Response('{"format": "kanab-config/2"}')"""), seen=NOTHING),
    "an empty config": Case(instead_of_config("""new Response('{"format": "kanab-config/1"}')"""), seen=NOTHING),
    "unknown fields": Case(
        with_config("config.x = 1; config.experiments.checkout.y = {}; config.metrics.minutes.z = [0]"), counted=True
    ),
    "no experiments": Case(with_config("config.experiments = null"), seen=NOTHING),
    "no arms": Case(with_config("config.experiments.checkout.arms = []"), seen=CONTROL),
    "no covariates": Case(with_config("config.covariates = null")),
    "no metrics": Case(with_config("config.metrics = null")),
    # prototypes
    "frozen prototypes": Case(
        "for (const each of [Object, Array, Function, Promise, Map, Set, String]) Object.freeze(each.prototype);",
        counted=True,
    ),
    "polluted prototypes": Case(
        "for (const name of ['over', 'enrolled', 'post', 'epoch', 'url2']) Object.prototype[name] = 'x';", counted=True
    ),
}  # fmt: skip

USE = """async (patience) => {
  window.kanab = await init(%s);
  const throws = { toString() { throw new Error("no text"); } };
  for (const wrong of [undefined, null, 7, Symbol("x"), throws, {}, "constructor", "__proto__"]) {
    kanab.variant(wrong); kanab.enroll(wrong); kanab.enroll(wrong, wrong);
    kanab.track(wrong); kanab.track(wrong, wrong);
    kanab.track("minutes", wrong === 7 ? NaN : wrong === undefined ? null : wrong);
  }
  kanab.enroll("checkout", { tier: throws });
  const before = kanab.variant("checkout");
  kanab.enroll("checkout", { tier: 1, device: "phone" });
  kanab.track("minutes", 4);
  await Promise.race([kanab.flush(), new Promise((done) => setTimeout(done, patience))]);
  return [before, kanab.variant("checkout")];
}"""


def test_whatever_the_page_or_browser_does_nothing_is_thrown_and_nothing_counted_wrongly(
    site: Site, someone: Open
) -> None:
    """All in one tab, which begins anew with each page: a browser for each would take most of the time."""
    wrong: dict[str, Any] = {}
    arms = []
    site.policy = site.policy.replace("script-src", "script-src 'unsafe-inline'")
    tab = someone()
    for name, case in CASES.items():
        site.page = f"<script>localStorage.clear(); {{ {case.script} }}</script>".encode() + PAGE
        tab.visit().heard.clear()
        before, posts = len(arms), len(site.posts)
        try:
            first, again = tab.page.evaluate(USE % case.arguments, 15_000 if case.counted else 500)
        except Exception as problem:
            wrong[name] = str(problem)
            continue
        if first != again or first not in case.seen:
            wrong[name] = f"{first}, then {again}, instead of {case.seen}"
        arms += [first] if case.counted else []
        taken = [post.status for post in site.posts[posts:]]
        if taken != [204] * (len(arms) - before):
            wrong[name] = f"posts: {taken}"
        noise = [text for text in tab.heard if text.startswith("error")]
        said = [text for text in tab.heard if text.startswith("kanab:")]
        if (
            noise
            or not any(case.says in text for text in said or [""])
            or (said and "development" not in case.arguments)
        ):
            wrong[name] = f"heard {tab.heard}"
    assert wrong == {}
    table = site.tallies()["checkout/tier"]
    assert table.total == len(arms)
    assert table.moments_of("minutes").sums.sum() == 400 * len(arms)


def test_a_strict_policy_that_forbids_to_connect_shows_the_control(site: Site, someone: Open) -> None:
    site.policy = "default-src 'none'; script-src 'self'"
    tab = someone()
    assert tab.page.evaluate(USE % "{ development: true }", 500) == [None, None]
    assert "kanab: no config" in tab.heard
    assert not [text for text in tab.heard if text.startswith("error")]
    assert site.posts == []


BROKEN = {
    "nothing": ("", True),
    "no JSON": ("{", True),
    "null": ("null", True),
    "a list": ("[]", True),
    "a text": ('"text"', True),
    "units are a list": ('{"arms": {}, "units": []}', True),
    "a unit is null": ('{"arms": {"checkout": "B"}, "units": {"checkout": null}}', False),
    "a unit is a text": ('{"arms": {"checkout": "B"}, "units": {"checkout": "x"}}', False),
    "a unit without its classes": (
        '{"arms": {"checkout": "B"}, "units": {"checkout": {"totals": {}, "sent": {}}}}', False,
    ),
    "totals are null": (
        '{"arms": {"checkout": "B"}, "units": {"checkout": {"heads": [], "totals": null, "sent": {}}}}', False,
    ),
    "arms that the plan has not": ('{"arms": {"checkout": "Z", "gone": "B"}, "units": {}}', True),
}  # fmt: skip
"""What is stored, and whether that is somebody new."""


def test_broken_storage_shows_the_arm_that_is_left_and_is_not_counted_again(site: Site, someone: Open) -> None:
    key = f"kanab/1 {site.url}"
    counted = 0
    tab = someone(NO_LOCKS)
    for name, (text, new) in BROKEN.items():
        tab.visit()
        rubbish = {
            key: text,
            f"{key}.lease": '{"a": 1}',
            f"{key} 1.2.3": "7",
            f"{key} 1.2.4": '["track", "gone", 1, 0]',
        }
        tab.page.evaluate("(all) => { localStorage.clear(); Object.assign(localStorage, all); }", rubbish)
        arm, _ = tab.page.evaluate(USE % "", 15_000)
        assert arm in (ARMS if new else ("B",)), name
        counted += new
        assert len(site.posts) == counted, name
        assert tab.heard == [], name
    assert {post.status for post in site.posts} == {204}


def test_a_lease_from_a_clock_that_was_ahead_blocks_nobody(site: Site, someone: Open) -> None:
    tab = someone(NO_LOCKS)
    lease = {f"kanab/1 {site.url}.lease": "[1, 9e15]"}
    tab.page.evaluate("(all) => Object.assign(localStorage, all)", lease)
    tab.start().enroll("banner").flush()
    assert [post.status for post in site.posts] == [204]


TWICE = """async (storage) => {
  const [first, second] = await Promise.all([init({ storage }), init({ storage })]);
  for (const each of [first, second]) { each.enroll("banner"); each.track("minutes", 2); }
  await Promise.all([first.flush(), second.flush()]);
  first.track("minutes", 1); second.track("minutes", 3);
  await Promise.all([first.flush(), second.flush()]);
  await first.flush();
  const arms = [first, second].map((each) => each.variant("banner"));
  await first.optOut();
  second.enroll("checkout"); second.track("minutes", 5);
  await second.flush();
  return [arms, { ...localStorage, ...sessionStorage }];
}"""


def test_two_clients_of_one_page_are_one_person_and_opt_out_together(site: Site, someone: Open) -> None:
    for storage in ("local", "session"):
        tab = someone()
        (first, second), left = tab.page.evaluate(TWICE, storage)
        assert first == second in ("off", "on")
        assert left == {}
        assert tab.heard == []
    assert {post.status for post in site.posts} == {204}
    table = site.tallies()["banner"]
    assert (table.total, table.moments_of("minutes").sums.sum()) == (2, 2 * 800)


# ── names with everything that separates parts of messages ──────────────────────────────────────────


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
