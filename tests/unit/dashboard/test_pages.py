"""Every page and its plain data: with data, before the first seal, when something is wrong."""

import asyncio
import json
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.approved import assert_approved
from tests.unit.collector.http.conftest import PLAN as COLLECTED
from tests.unit.collector.http.conftest import Answer
from tests.unit.collector.http.conftest import RunningService as Collected
from tests.unit.dashboard.shop_releases import (
    PLAN,
    WEEKLY,
    FixedSource,
    alone,
    ask,
    ledger_bytes,
    plain,
    seen,
    words,
    write,
)
from tests.unit.privacy.epsilon.test_accountant import counted

import kanab as kb
from kanab.collector.http.access import Access
from kanab.collector.http.app import Collector
from kanab.dashboard import pages
from kanab.dashboard.dashboard import Dashboard, Site
from kanab.dashboard.experiment_list import BEING_READ, ListFilter, ListPage, summaries
from kanab.dashboard.next_seal import CollectionStatus
from kanab.dashboard.plan_page import plan_toml
from kanab.dashboard.release_sources import CollectorReleases, FileReleases
from kanab.errors import SourceError
from kanab.inspection.officer.account import privacy_account
from kanab.plan.file import parse_plan, plan_digest, plan_from_dict
from kanab.plan.model import ExperimentPlan, settle_missing
from kanab.privacy.release_json import hash_of

TINY = ExperimentPlan("tiny", (("A", 1), ("B", 1)))
PAGES = ("/", "/experiments/checkout", "/interactions", "/privacy", "/plan")
DATA = ("/v1/experiments", "/v1/experiments/checkout", "/v1/interactions", "/v1/privacy", "/v1/plan")
FILES = ("/reports/checkout", "/privacy/report", "/plan/kanab.toml", "/static/dashboard.css")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> FileReleases:
    folder = tmp_path_factory.mktemp("releases")
    return FileReleases(write(folder, kanab_ledger=ledger_bytes()), "store.db")


@pytest.fixture(scope="module")
def app(source: FileReleases) -> Dashboard:
    return Dashboard(source, patience=60)


@pytest.fixture(scope="module")
def locked(source: FileReleases) -> Dashboard:
    return Dashboard(source, access=Access("a long random text"), patience=60)


@pytest.fixture
def nothing(tmp_path: Path) -> Dashboard:
    return Dashboard(FileReleases([tmp_path], "store.db"), patience=60)


@pytest.fixture
def total(source: FileReleases) -> kb.Release:
    return kb.add_releases(list(source.read().releases.values()))


# ── what is on them ────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_pages_say_what_was_approved(app: Dashboard) -> None:
    """Of what is a report's, too, only the headings: below, each of its sections is on its page."""
    shown = {path: seen(ask(app, path)) for path in ("/", *PAGES[1:4], "/plan?per_day=500&days=28")}
    for path, first in (("/experiments/checkout", "Did people arrive as planned?"), ("/privacy", "What is promised")):
        head, body = shown[path].rsplit(f"{first}\n", 1)
        own = re.search(r"How it settled.*?\n(?=Privacy\n)", body, re.DOTALL)
        shown[path] = f"{head}…\n{own[0] if own else ''}"
    for path in shown:
        page = words(ask(app, path))
        assert {*re.findall(r'href="#([\w-]+)"', page)} <= {*re.findall(r' id="([\w-]+)"', page)}
    assert_approved("dashboard/pages.txt", "\n".join(f"{path}\n{'=' * 99}\n{text}" for path, text in shown.items()))


def test_pages_of_nothing_and_before_the_first_seal_say_what_was_approved(nothing: Dashboard, site: Site) -> None:
    """What is missing, what is waited for, and until when."""
    texts = []
    for about, shown in (("nothing", nothing), ("before the first seal", site)):
        for path in PAGES:
            answer = ask(shown, path)
            assert answer.status == (404 if (about, path) == ("nothing", PAGES[1]) else 200)
            texts.append(f"{about}: {path}\n{'=' * 99}\n{seen(answer)}")
    assert_approved("dashboard/empty_pages.txt", "\n".join(texts))
    for path in DATA[2:]:
        assert not any(plain(ask(nothing, path)).values())
    assert plain(ask(site, "/v1/plan"))["next_seal"] == "2026-11-30T00:00:00+00:00"
    waiting = plain(ask(site, "/v1/experiments/checkout"))
    assert (waiting["readout"], waiting["experiment"]["state"]) == (None, "waiting")
    assert ask(site, "/reports/checkout").status == ask(site, "/privacy/report").status == 404


@pytest.mark.slow
def test_pairs_privacy_and_plan_are_plain_data_too_and_pages_take_filters(app: Dashboard, source: FileReleases) -> None:
    assert plain(ask(app, "/v1/interactions"))["interactions"]["metrics"] == ["bought", "spend"]
    assert "1 of 2 tests" in words(ask(app, "/interactions?metric=spend"))
    assert "No pair matches." in words(ask(app, "/interactions?verdict=%3Cscript%3E"))
    account = privacy_account(source.read().releases, source.read().chains[0].ledger)
    assert plain(ask(app, "/v1/privacy"))["accounts"] == [
        {"ledger": "kanab.ledger", "account": json.loads(json.dumps(account))}
    ]
    forecast = plain(ask(app, "/v1/plan?per_day=500&days=28"))
    assert forecast["forecast"]["linkages"][0]["days"] is not None
    assert [row["table"] for row in forecast["linkages"]] == [
        "checkout/tier", "checkout/device", "checkout/banner", "banner", "price",
    ]  # fmt: skip
    assert "People per day and days must be positive numbers." in words(ask(app, "/plan?per_day=-3"))


@pytest.mark.slow
def test_the_plain_data_are_the_readout(app: Dashboard, total: kb.Release) -> None:
    found = plain(ask(app, "/v1/experiments/checkout"))
    readout = kb.analyze(total, "checkout", reading=kb.Reading(looks=kb.Looks("spending"))).to_dict()
    assert found["readout"] == json.loads(json.dumps(readout))
    assert [one["through"] for one in found["history"]] == ["2026-W36", "2026-W37", "2026-W38"]
    newest = {(row["metric"], row["arm"]): row for row in found["history"][-1]["effects"]}
    adjusted = next(r for r in readout["effects"] if r["metric"] == "bought" and r["method"] == "adjusted")
    assert newest["bought", "B"]["estimate"] == pytest.approx(adjusted["estimate"], rel=1e-12)


@pytest.mark.slow
def test_reports_are_whole_files_under_a_policy_of_their_own(app: Dashboard) -> None:
    for path in ("/reports/checkout", "/privacy/report"):
        answer = ask(app, path)
        assert answer.status == 200
        assert "style-src 'sha256-" in answer.headers["content-security-policy"]
        (meta,) = re.findall(r"style-src ('sha256-[^']+')", words(answer))
        assert meta in answer.headers["content-security-policy"]


def test_the_plan_can_be_downloaded_and_served_again(app: Dashboard) -> None:
    answer = ask(app, "/plan/kanab.toml")
    assert answer.headers["content-disposition"] == 'attachment; filename="kanab.toml"'
    assert parse_plan(words(answer)) == settle_missing(PLAN, "exclude")
    assert parse_plan(plan_toml(COLLECTED)) == COLLECTED


@pytest.mark.slow
def test_an_older_release_of_an_experiment_can_be_chosen(tmp_path: Path) -> None:
    app = Dashboard(
        FileReleases(write(tmp_path, a_release_json=alone(), b_release_json=alone(seed=6)), "store.db"), patience=60
    )
    newest, oldest = (plain(ask(app, f"/v1/experiments/checkout?of={of}")) for of in ("", "0"))
    assert newest["readings"] == oldest["readings"] == ["a.release.json", "b.release.json"]
    assert (newest["chosen"], oldest["chosen"]) == (1, 0)
    assert newest["readout"]["arms"] != oldest["readout"]["arms"]
    page = words(ask(app, "/experiments/checkout?of=0"))
    assert '<a href="?of=0" aria-current="true">a.release.json</a>' in page
    assert plain(ask(app, "/v1/experiments/checkout?of=99"))["chosen"] == 1
    assert "In no ledger: what else was released" in page
    assert "not evaluated" in words(ask(app, "/privacy"))


@pytest.mark.slow
def test_pages_show_the_sections_of_the_reports_as_they_are(app: Dashboard) -> None:
    for path, report in (("/experiments/checkout", "/reports/checkout"), ("/privacy", "/privacy/report")):
        sections = re.findall(r"<section .*?</section>\n", words(ask(app, report)), re.DOTALL)
        page = words(ask(app, path))
        assert len(sections) > 4
        assert [section for section in sections if section not in page] == []


def test_many_segments_are_cut_and_said(app: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MOST_SEGMENTS", 1)
    page = words(ask(app, "/experiments/checkout"))
    assert "Only the 1 clearest of many segments are shown; the plain data (/v1) hold all." in page
    assert len(plain(ask(app, "/v1/experiments/checkout"))["readout"]["segments"]) == 4


# ── before anything is there ───────────────────────────────────────────────────────────────────


@pytest.fixture
def site(running: Collected) -> Site:
    running.service.check_clock()
    return Site(
        Collector(running.service), Dashboard(CollectorReleases(running.service, lambda: running.now), patience=60)
    )


def test_before_a_seal_nothing_but_people_in_steps_of_k_changes(site: Site, running: Collected) -> None:
    paths = [*PAGES, *DATA]

    def told() -> list[bytes]:
        running.now += timedelta(hours=1)
        running.service.check_clock()
        return [re.sub(rb"\d\d:00 UTC", b"", ask(site, path).body) for path in paths]

    before = told()
    for _ in range(9):
        asyncio.run(running.service.take(running.enroll("A", 1), None))
    assert told() == before
    asyncio.run(running.service.take(running.enroll("A", 1), None))
    after = told()
    assert after != before
    assert "A <b>10</b>" in after[0].decode()


def test_a_data_directory_alone_says_what_its_collector_waits_for(running: Collected) -> None:
    folder = running.service.store._path.parent  # type: ignore[attr-defined]
    app = Dashboard(FileReleases([folder], "store.db", clock=lambda: running.now), patience=60)
    assert "Mon 30 Nov 2026, 00:00 UTC" in words(ask(app, "/experiments/checkout"))
    assert plain(ask(app, "/v1/experiments"))["experiments"][0]["arms"] == {}


def test_the_collectors_routes_are_reached_before_the_pages(site: Site, running: Collected) -> None:
    assert ask(site, "/v1/t", method="POST", body=running.enroll()).status == 204
    assert words(ask(site, "/healthz")) == "ok\n"
    assert words(ask(site, "/metrics")).startswith("# HELP kanab_up")
    assert ask(site, "/v1/config.json").status == 307
    assert "content-security-policy" not in ask(site, "/healthz").headers
    assert "content-security-policy" in ask(site, "/").headers


# ── what goes wrong ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", ["/v1/experiments/nothing", "/v1/nothing", "/v1/", "/v1/experiments/<script>"])
def test_failures_of_plain_data_have_one_shape(app: Dashboard, path: str) -> None:
    answer = ask(app, path)
    assert answer.status == 404
    error = plain(answer)["error"]
    assert set(error) == {"status", "says", "remedy"}
    assert error["status"] == 404
    assert "script" not in error["says"] + error["remedy"]


@pytest.mark.parametrize("path", [*PAGES, *DATA, *FILES])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_pages_can_only_be_read(app: Dashboard, path: str, method: str) -> None:
    answer = ask(app, path, method=method)
    assert answer.status == 405
    assert "GET" in answer.headers["allow"]


@pytest.mark.parametrize("path", [*PAGES, *DATA, "/nothing", "/v1/nothing"])
def test_every_answer_has_a_strict_policy_and_is_kept_nowhere(app: Dashboard, path: str) -> None:
    headers = ask(app, path).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; style-src 'self'; script-src 'self';")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
    assert headers["x-frame-options"] == "DENY"


EVIL = '"><script>alert(1)</script>'


@pytest.mark.parametrize(
    "path",
    [
        "/?q={}&health={}&state={}&sort={}&page={}", "/interactions?verdict={}&metric={}&experiment={}",
        "/privacy?ledger={}", "/plan?per_day={}&days={}", "/experiments/{}", "/nothing/{}",
        "/experiments/checkout?of={}",
    ],
)  # fmt: skip
def test_nothing_that_was_asked_comes_back_as_markup(app: Dashboard, path: str) -> None:
    answer = ask(app, path.replace("{}", quote(EVIL)) if "?" in path else path.replace("{}", EVIL))
    assert b"<script>alert" not in answer.body
    assert b'"><script' not in answer.body


@pytest.mark.slow
def test_names_that_are_markup_stay_words(tmp_path: Path) -> None:
    data = json.loads(alone())
    evil = json.loads(json.dumps(data).replace("checkout", "<img src=x>"))
    evil["plan_digest"] = plan_digest(plan_from_dict(evil["plan"]))
    evil["hash"] = hash_of(evil)
    app = Dashboard(FileReleases(write(tmp_path, evil_release_json=json.dumps(evil).encode()), "store.db"), patience=60)
    (one,) = plain(ask(app, "/v1/experiments"))["experiments"]
    assert one["name"] == "<img src=x>"
    for path in ("/", "/experiments/<img src=x>", "/privacy", "/plan", "/reports/<img src=x>"):
        answer = ask(app, path)
        assert answer.status == 200
        assert b"<img" not in answer.body


@pytest.mark.slow
def test_a_changed_release_among_good_ones_is_a_red_banner_on_every_page(tmp_path: Path) -> None:
    lines = ledger_bytes().replace(b'"2026-W37"', b'"2026-W99"', 1)
    app = Dashboard(FileReleases(write(tmp_path, kanab_ledger=lines), "store.db"), patience=60)
    for path in PAGES:
        page = words(ask(app, path))
        assert 'class="banner" role="alert"' in page
        assert "kanab.ledger, entry 2 is not shown: it has been changed." in page
    assert "✕ BROKEN" in words(ask(app, "/privacy"))
    for path in DATA:
        assert plain(ask(app, path))["alarms"][0].startswith("kanab.ledger, entry 2 is not shown")
    assert plain(ask(app, "/v1/experiments/checkout"))["experiment"]["seals"] == 2


def test_what_takes_long_is_said_and_the_page_refreshes(source: FileReleases) -> None:
    page, plain_data = (ask(Dashboard(source, patience=0), path) for path in ("/privacy", "/v1/privacy"))
    assert (page.status, plain_data.status) == (202, 503)
    assert "This page refreshes every 2 seconds." in words(page)
    assert page.headers["refresh"] == page.headers["retry-after"] == plain_data.headers["retry-after"] == "2"
    assert plain(plain_data)["error"]["says"] == "this is being computed"
    assert "<strong>kanab.ledger</strong>: 3 releases; its entries follow each other unchanged." in words(page)


def test_a_list_shows_what_has_been_read_and_refreshes_until_everything_is(source: FileReleases) -> None:
    app = Dashboard(source, patience=0)
    snapshot = app.results.read()
    snapshot.readouts_of("banner")
    lines = summaries(snapshot.readouts_so_far(), None)
    assert {line.name: line.why for line in lines} == {
        "checkout": BEING_READ, "banner": "people arrive as planned", "price": BEING_READ,
    }  # fmt: skip
    page = ListPage(lines, ListFilter())
    assert (page.unread, page.counts["fine"], page.counts["unknown"]) == (2, 1, 0)
    assert [line.name for line in page.shown] == ["banner", "checkout", "price"]


def test_the_first_list_of_a_process_comes_before_everything_is_analyzed(source: FileReleases) -> None:
    app = Dashboard(source, patience=0)
    first = ask(app, "/")
    assert (first.status, first.headers["refresh"]) == (200, "2")
    assert "of 3 experiments have been read so far, and stand first. This page refreshes every 2 seconds" in words(
        first
    )
    app.results._computed.background.get(app.results.read().contents.digest, "readouts", dict, wait=60)
    second = ask(app, "/")  # whatever is drawn of its history so far
    assert "being drawn" in words(second) or "refresh" not in second.headers
    app.results._computed.background.get(app.results.read().contents.digest, "histories", dict, wait=60)
    last = ask(app, "/")
    assert "refresh" not in last.headers
    assert "have been read so far" not in words(last)


def test_a_mistake_of_this_program_is_a_page_that_repeats_nothing(
    app: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("4815162342")

    monkeypatch.setattr("kanab.dashboard.request_view.summaries", broken)
    for path in ("/", "/v1/experiments"):
        answer = Answer()
        with pytest.raises(ZeroDivisionError):  # the server, whose log is off, gets it after the answer
            ask(app, path, found=answer)
        assert answer.status == 500
        assert b"his page could not be built" in answer.body
        assert b"4815162342" not in answer.body


def test_a_page_can_live_below_a_path(app: Dashboard) -> None:
    page = words(ask(app, "/", root="/tests"))
    assert 'href="/tests/experiments/checkout"' in page
    assert 'href="/tests/static/dashboard.css?' in page
    assert not re.search(r'(href|src|action)="/(?!tests/)', page)


def test_serving_begins_and_ends_with_the_collector_or_alone(site: Site, source: FileReleases) -> None:
    for served in (site, Dashboard(source, patience=60)):
        events = [{"type": "lifespan.shutdown"}, {"type": "lifespan.startup"}]
        sent: list[str] = []

        async def receive(events: list[Any] = events) -> Any:
            return events.pop()

        async def send(message: Any, sent: list[str] = sent) -> None:
            sent.append(message["type"])

        asyncio.run(served({"type": "lifespan", "state": {}}, receive, send))
        assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


# ── who may read ───────────────────────────────────────────────────────────────────────────────


def test_without_a_token_only_this_machine_may_read_and_only_under_its_own_name(app: Dashboard) -> None:
    assert ask(app, "/", client="192.0.2.7").status == 403
    assert ask(app, "/", host="evil.example").status == 403
    assert plain(ask(app, "/v1/plan", host="evil.example:8000"))["error"]["status"] == 403
    assert ask(app, "/", client="::1", host="[::1]:8000").status == 200
    assert ask(app, "/login").status == 404


def cookie(answer: Any) -> str:
    return str(answer.headers["set-cookie"]).split(";")[0]


def log_in(app: Dashboard, token: str, place: str = "/", **asked: Any) -> Any:
    body = f"token={token.replace(' ', '+')}&next={place}".encode()
    return ask(app, "/login", method="POST", body=body, **asked)


def test_with_a_token_pages_lead_to_the_login_and_back(locked: Dashboard) -> None:
    answer = ask(locked, "/experiments/checkout", client="192.0.2.7", host="tests.example")
    assert (answer.status, answer.headers["location"]) == (303, "/login?next=%2Fexperiments%2Fcheckout")
    form = words(ask(locked, "/login?next=%2Fexperiments%2Fcheckout"))
    assert 'name="next" value="/experiments/checkout"' in form
    answer = log_in(locked, "a long random text", "/experiments/checkout")
    assert (answer.status, answer.headers["location"]) == (303, "/experiments/checkout")
    given = answer.headers["set-cookie"].lower()
    assert all(word in given for word in ("httponly", "samesite=strict", "path=/", "max-age=43200"))
    assert "secure" not in given
    assert "a long random text" not in given
    page = ask(locked, "/", headers={"cookie": cookie(answer)}, client="192.0.2.7", host="tests.example")
    assert page.status == 200
    assert "Log out" in words(page)


def test_the_cookie_is_for_encrypted_ways_where_a_proxy_says_so(locked: Dashboard) -> None:
    answer = log_in(locked, "a long random text", headers={"x-forwarded-proto": "https"})
    assert "secure" in answer.headers["set-cookie"].lower()


def test_logging_out_makes_the_cookie_worthless(locked: Dashboard) -> None:
    given = cookie(log_in(locked, "a long random text"))
    answer = ask(locked, "/logout", method="POST", headers={"cookie": given})
    assert (answer.status, answer.headers["location"]) == (303, "/login")
    assert 'kanab_session=""' in answer.headers["set-cookie"]
    assert ask(locked, "/", headers={"cookie": given}).status == 303


def test_a_wrong_token_is_refused_and_its_address_waits(source: FileReleases) -> None:
    app = Dashboard(source, access=Access("right"), patience=60)
    answer = log_in(app, "wrong", client="192.0.2.9")
    assert answer.status == 401
    assert "That is not the token." in words(answer)
    assert "wrong" not in re.sub(r'"wrong"', "", words(answer))
    again = log_in(app, "right", client="192.0.2.9")
    assert (again.status, again.headers["retry-after"]) == (429, "1")
    assert log_in(app, "right", client="192.0.2.10").status == 303
    bearer = {"authorization": "Bearer right"}
    assert ask(app, "/v1/plan", headers=bearer, client="192.0.2.9").status == 429


def test_programs_send_the_token_in_a_header(source: FileReleases) -> None:
    app = Dashboard(source, access=Access("right"), patience=60)
    answer = ask(app, "/v1/plan")
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert plain(answer)["error"]["says"] == "reading this needs the token"
    assert ask(app, "/v1/plan", headers={"authorization": "Bearer right"}).status == 200
    assert ask(app, "/v1/plan", headers={"authorization": "Bearer wrong"}).status == 401
    assert ask(app, "/v1/plan", headers={"authorization": "Basic cmlnaHQ="}, client="192.0.2.1").status == 401


def test_a_form_from_another_page_or_a_long_one_is_not_read(locked: Dashboard) -> None:
    elsewhere = {"sec-fetch-site": "cross-site"}
    assert log_in(locked, "a long random text", headers=elsewhere).status == 403
    assert ask(locked, "/logout", method="POST", headers=elsewhere).status == 303  # nobody is logged in: to the login
    given = {"cookie": cookie(log_in(locked, "a long random text"))} | elsewhere
    assert ask(locked, "/logout", method="POST", headers=given).status == 403
    assert log_in(locked, "x" * 5000).status == 413


def test_style_sheets_are_open_and_kept(locked: Dashboard) -> None:
    for name in ("dashboard.css", "report.css", "scan.css", "officer.css", "dashboard.js", "dashboard.svg"):
        answer = ask(locked, f"/static/{name}")
        assert (answer.status, answer.headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
    assert ask(locked, "/static/kanab.js").status == 404
    assert ask(locked, "/static/..%2fpages.py").status == 404


def test_what_the_account_refuses_is_said_without_a_traceback(
    source: FileReleases, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise SourceError("the same release is given twice", "Name every release once.")

    monkeypatch.setattr("kanab.dashboard.results.privacy_account", refuse)
    app = Dashboard(source, patience=60)
    assert ask(app, "/privacy").status == 503
    assert plain(ask(app, "/v1/privacy")) == {
        "error": {"status": 503, "says": "the same release is given twice", "remedy": "Name every release once."}
    }


def test_many_releases_have_their_newest_receipts_on_the_page(
    source: FileReleases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kanab.dashboard.pages.MOST_RECEIPTS", 1)
    page = words(ask(Dashboard(source, patience=60), "/privacy"))
    assert "The receipts of 2 older releases are in" in page
    assert "Released: kanab.ledger, entry 3" in page
    assert "Released: kanab.ledger, entry 1" not in page


# ── releases with ε ────────────────────────────────────────────────────────────────────────────


def test_the_privacy_page_shows_no_exact_figure_of_releases_with_epsilon(tmp_path: Path) -> None:
    kb.write_release(kb.release(counted("epsilon = 1\nper_release = 0.5")), tmp_path / "noisy.json")
    page = words(ask(Dashboard(FileReleases([tmp_path], "store.db"), patience=60), "/privacy"))
    assert "<dt>ε spent</dt><dd>0.5 of 1</dd>" in page
    assert "<dt>k</dt><dd>10, by counts with noise</dd>" in page
    assert "Smallest class" not in page


def test_an_experiment_that_the_last_seal_held_back_says_so_with_people_in_steps_of_k() -> None:
    source = FixedSource(WEEKLY, collection=CollectionStatus(replace(PLAN, experiments=(*PLAN.experiments, TINY))))
    (chain,) = source.contents.chains
    name, last = list(chain.releases.items())[-1]
    people = {"tiny": {"published": 0, "held_back": 30, "destroyed": 0}}
    last = replace(last, receipt=replace(last.receipt, people=people))
    source.contents = replace(source.contents, chains=(replace(chain, releases={**chain.releases, name: last}),))
    app = Dashboard(source, patience=60)
    assert "The last seal held back at least 30 people of this experiment, in steps of 10" in words(
        ask(app, "/experiments/tiny")
    )
    assert "held back at least" not in words(ask(app, "/experiments/banner"))
