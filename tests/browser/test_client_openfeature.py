"""The provider for OpenFeature's web SDK, with the real SDK in a real browser."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.browser.browser_tab import Tab
from tests.browser.shop_site import Site
from tests.collector.many_visitors import this_week
from tests.contract.node import installed

Open = Callable[..., Tab]

SDK = {name: f"/js/node_modules/@openfeature/{name}/dist/esm/index.js" for name in ("core", "web-sdk")}
IMPORTS = {"imports": {f"@openfeature/{name}": path for name, path in SDK.items()}}
PAGE = f"""<!doctype html><title>shop</title>
<script type="importmap">{json.dumps(IMPORTS)}</script>
<script type="module">
  import {{ OpenFeature }} from "@openfeature/web-sdk";
  import {{ KanabProvider }} from "/js/openfeature.js";
  Object.assign(window, {{ OpenFeature, KanabProvider, init: true }});
</script>"""


@pytest.fixture
def shop(site: Site) -> Site:
    installed()
    site.page, site.policy = PAGE.encode(), ""
    return site


def begin(tab: Tab, context: dict[str, Any] | None = None, **options: Any) -> Tab:
    script = """async ([options, context]) => {
      window.provider = new KanabProvider({ url: "/", ...options });
      await OpenFeature.setProviderAndWait(provider, context);
      window.flags = OpenFeature.getClient();
    }"""
    tab.page.evaluate(script, [options, context or {}])
    return tab


def details(tab: Tab, kind: str, flag: str, fallback: Any) -> dict[str, Any]:
    script = "([kind, flag, fallback]) => flags[`get${kind}Details`](flag, fallback)"
    found: dict[str, Any] = tab.page.evaluate(script, [kind, flag, fallback])
    return {
        name: found.get(name) for name in ("value", "variant", "reason", "errorCode") if found.get(name) is not None
    }


def test_a_flag_is_an_experiment_and_an_event_is_a_metric(shop: Site, someone: Open) -> None:
    tab = begin(someone(), {"tier": 3, "device": "phone", "email": "somebody@shop.example"})
    found = details(tab, "String", "checkout", "A")
    arm, week = found["value"], this_week()
    assert found == {"value": arm, "variant": arm, "reason": "SPLIT"}
    assert arm in ("A", "B")
    tab.page.evaluate(
        "async () => { flags.track('minutes', { value: 4 }); flags.track('orders'); await provider.onClose(); }"
    )
    (post,) = shop.posts
    assert [line for line in post.lines if "/tier" in line] == [
        f"checkout/tier:{arm}:3@{week}",
        *(f"checkout/tier:{arm}:3@{week}:{move}" for move in ("minutes:0>4", "orders:0>1", "revenue/orders:0/0>0/1")),
    ]
    assert post.status == 204
    assert "somebody" not in repr(shop.requests) + repr(tab.stored)


def test_arms_called_on_and_off_are_booleans_and_other_types_are_mistakes(shop: Site, someone: Open) -> None:
    tab = begin(someone())
    found = details(tab, "Boolean", "banner", False)
    assert found == {"value": found["variant"] == "on", "variant": found["variant"], "reason": "SPLIT"}
    wrong = {"reason": "ERROR", "errorCode": "TYPE_MISMATCH"}
    assert details(tab, "Boolean", "checkout", True) == {"value": True} | wrong
    assert details(tab, "Number", "checkout", 7) == {"value": 7} | wrong
    assert details(tab, "Object", "checkout", {"a": 1}) == {"value": {"a": 1}} | wrong
    unknown = {"value": "x", "reason": "ERROR", "errorCode": "FLAG_NOT_FOUND"}
    assert details(tab, "String", "chekout", "x") == unknown


def test_arms_that_are_numbers_are_numbers(shop: Site, someone: Open) -> None:
    shop.restart(shop.text + "[experiments.price]\narms = [[5, 1], [7.5, 1]]\n")
    found = details(begin(someone()), "Number", "price", 1)
    assert (found["value"], found["variant"]) in ((5, "5"), (7.5, "7.5"))


def test_enrolling_can_wait_until_the_change_is_met(shop: Site, someone: Open) -> None:
    tab = begin(someone(), enroll=False)
    details(tab, "String", "banner", "off")
    tab.page.evaluate("() => provider.client.flush()")
    assert shop.posts == []
    tab.page.evaluate("() => { provider.client.enroll('banner'); return provider.client.flush(); }")
    assert [len(post.lines) for post in shop.posts] == [1]


def test_the_targeting_key_draws_the_arm_and_never_leaves(shop: Site, someone: Open) -> None:
    keys = [f"somebody-{number}" for number in range(6)]

    def arms(tab: Tab) -> list[str]:
        script = """async (targetingKey) => {
          await OpenFeature.setContext({ targetingKey });
          return flags.getStringValue("checkout", "");
        }"""
        return [tab.page.evaluate(script, key) for key in keys]

    first = arms(begin(someone(), enroll=False))
    assert first == arms(begin(someone(), enroll=False))
    assert {*first} == {"A", "B"}
    assert "somebody-" not in repr(shop.requests)


def test_without_a_collector_every_flag_has_its_default(shop: Site, someone: Open) -> None:
    tab = someone()
    shop.fault = lambda _, path: "drop" if path.startswith("/v1/") else None
    assert details(begin(tab), "String", "checkout", "A") == {"value": "A", "reason": "DEFAULT"}
    tab.page.evaluate("() => flags.track('minutes', { value: 4 })")
    assert shop.posts == []
