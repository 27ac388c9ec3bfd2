"""What holds of every report in one file, looked at with a real browser."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page
from tests.browser.documents import DOCUMENTS, document

Open = Callable[..., Page]

CONTRASTS = """() => {
    const rgb = text => (text.match(/[\\d.]+/g) || [0, 0, 0]).slice(0, 3).map(Number);
    const light = colour => rgb(colour).map(v => v / 255)
        .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const page = light(getComputedStyle(document.body).backgroundColor);
    const found = {};
    for (const element of document.querySelectorAll('body *')) {
        const drawn = element.closest('svg');
        const words = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
        if (!words || ['TITLE', 'DESC', 'title', 'desc'].includes(element.tagName)) continue;
        const style = getComputedStyle(element);
        const own = light(drawn ? style.fill : style.color);
        const ratio = (Math.max(own, page) + 0.05) / (Math.min(own, page) + 0.05);
        const key = `${element.tagName}.${element.className.baseVal ?? element.className}`;
        found[key] = Math.min(found[key] ?? 99, ratio);
    }
    return found;
}"""

OVERLAPS = """() => [...document.querySelectorAll('figure svg')].flatMap(svg => {
    const boxes = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
    return boxes.flatMap(([a, x], i) => boxes.slice(i + 1)
        .filter(([b, y]) => x.left < y.right && y.left < x.right && x.top + 2 < y.bottom && y.top + 2 < x.bottom)
        .map(([b]) => `${a} / ${b}`));
})"""

OUTSIDE = """() => [...document.querySelectorAll('figure svg')].flatMap(svg => {
    const box = svg.getBoundingClientRect();
    return [...svg.querySelectorAll('text')].filter(t => {
        const own = t.getBoundingClientRect();
        return own.left < box.left - 1 || own.right > box.right + 1 || own.top < box.top - 1
            || own.bottom > box.bottom + 3;
    }).map(t => t.textContent);
})"""


@pytest.fixture(params=DOCUMENTS)
def page(request: pytest.FixtureRequest, open_page: Open) -> Page:
    """Each of them in turn."""
    return open_page(document(request.param))


def test_it_is_quiet_fits_every_screen_and_can_be_read_by_day_and_night(page: Page) -> None:
    """Nothing is requested, nothing complains; no sideways scrolling; words keep apart and have enough contrast."""
    page.wait_for_load_state("networkidle")
    for width in (320, 390, 768, 1200):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if width in (390, 1200):
            assert (page.evaluate(OVERLAPS), page.evaluate(OUTSIDE)) == ([], [])
    colours: list[Any] = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        contrasts = page.evaluate(CONTRASTS)
        assert len(contrasts) >= 10
        assert {name: ratio for name, ratio in contrasts.items() if ratio < 4.5} == {}
        colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert colours == ["rgb(255, 255, 255)", "rgb(15, 20, 25)"]
    assert page.heard == []  # type: ignore[attr-defined]
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.pdf(format="A4").startswith(b"%PDF")


@pytest.mark.parametrize("name", ["readout", "scan", "officer", "forecast"])
def test_a_script_that_got_in_would_not_run(open_page: Open, name: str) -> None:
    page = open_page(document(name).replace("</main>", "<script>window.hacked = true</script></main>"))
    assert page.evaluate("window.hacked") is None
    assert "Content Security Policy" in page.heard[0]  # type: ignore[attr-defined]
