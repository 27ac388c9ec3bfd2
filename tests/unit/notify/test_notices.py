"""What there is to tell about a sealed batch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.dashboard.shop_releases import PLAN, entries
from tests.unit.privacy.epsilon.test_accountant import counted

import kanab as kb
from kanab.dashboard.releases import RawSource, read_contents
from kanab.notify.channels import json_body, mail_of, notice_text, slack_body
from kanab.notify.notices import MOST_EFFECTS, Notice, NoticeEntry, Notices
from kanab.plan.notify_plan import EVENTS, MailPlan, NotifyPlan
from kanab.privacy.ledger import read_entry

URL = "https://ab.shop.example/"
NOTIFY = NotifyPlan(EVENTS, URL, slack=True)


def notices(notify: NotifyPlan = NOTIFY) -> Notices:
    return Notices(notify, PLAN, entries())


@pytest.mark.slow
def test_every_batch_is_told_once_and_alarms_and_ends_only_with_the_batch_that_brought_them() -> None:
    made = notices()
    kinds = [[(notice.kind, notice.title) for notice in made.of(at)] for at in range(3)]
    assert kinds[0] == [
        ("seal", "Sealed the cohorts through 2026-W36"),
        ("sample-ratio", "price: sample ratio alarm"),
    ]
    assert kinds[1:] == [
        [("seal", "Sealed the cohorts through 2026-W37"), ("may-stop", "checkout may stop (look 2 of 3)")],
        [("seal", "Sealed the cohorts through 2026-W38")],
    ]
    ids = [notice.id for at in range(3) for notice in made.of(at)]
    assert len(set(ids)) == 5
    assert ids == [notice.id for at in range(3) for notice in notices().of(at)]  # the same event, the same id


@pytest.mark.slow
def test_only_the_events_that_the_plan_names_are_told() -> None:
    made = notices(replace(NOTIFY, events=("may-stop",)))
    assert [notice.kind for at in range(3) for notice in made.of(at)] == ["may-stop"]
    assert made.of_alarms({"banner"}) == []


@pytest.mark.slow
def test_a_notice_says_what_the_release_of_its_batch_says_and_links_to_the_dashboard() -> None:
    seal, stop = notices().of(1)
    ratio = notices().of(0)[1]
    assert [told.name for told in seal.experiments] == ["price", "checkout", "banner"]  # what needs attention first
    checkout = seal.experiments[1]
    row = checkout.data["effects"][0]
    assert (row["metric"], row["arm"], row["verdict"]) == ("bought", "B", "up")
    assert checkout.sentences[0] == "Look 2 of 3: may stop."
    assert any(sentence.startswith("B raises bought by ") for sentence in checkout.sentences)
    assert seal.sentences[0] == "k-anonymous at k = 10."
    assert stop.link == "https://ab.shop.example/experiments/checkout"
    assert ratio.sentences[0].startswith("Sample ratio: ALARM.")
    assert seal.epsilon is None
    early = "If results were looked at before the last of them, p-values and intervals promise too much"
    assert [early in " ".join(told.sentences) for told in seal.experiments] == [True, False, True]  # checkout has looks
    plain = json.loads(json_body(seal))
    assert (plain["format"], plain["id"], plain["kind"]) == ("kanab-notice/1", seal.id, "seal")
    assert plain["through"] == "2026-W37"
    assert len(plain["experiments"][1]["effects"]) <= MOST_EFFECTS


@pytest.mark.slow
def test_a_notice_about_an_earlier_batch_does_not_know_the_later_ones() -> None:
    early = Notices(NOTIFY, PLAN, entries()[:1]).of(0)
    assert early == notices().of(0)


@pytest.mark.slow
def test_live_alarms_hold_no_count_and_are_silent_where_sealed_people_raised_them() -> None:
    made = notices()
    (alarm,) = made.of_alarms({"price", "banner"})  # that of price is sealed
    text = notice_text(alarm)
    assert alarm.title == "banner: sample ratio alarm"
    assert "People do not arrive in the planned shares (p below 0.0001)" in text
    digits = text.replace("0.0001", "").replace("https://ab.shop.example/", "")
    assert not any(letter.isdigit() for letter in digits)
    assert json.loads(json_body(alarm))["experiments"][0].keys() == {"name", "sentences", "link"}
    assert Notices(NOTIFY, PLAN, []).of_alarms({"price"})[0].id != made.of_alarms({"banner"})[0].id


@pytest.mark.slow
def test_no_number_in_a_seal_is_below_k_people_or_from_outside_the_release() -> None:
    """Everything is computed from the bytes of the ledger: whoever has the release can say the same."""
    release, _ = read_entry(entries()[0])
    contents = read_contents([RawSource("one", (entries()[0],), ledger=True)])
    assert contents.releases.keys() == {"one, entry 1"}
    text = " ".join(notice_text(notice) for notice in notices().of(0))
    smallest = min(people for table in release.tables.values() for people in table.people_by(table.axes[0]).values())
    assert smallest >= 10
    assert "arms" not in json_body(notices().of(0)[0]).decode()
    assert str(smallest) not in text.replace("2026", "")


def test_a_release_with_epsilon_says_so(tmp_path: Path) -> None:
    kb.release(counted("epsilon = 1"), ledger=tmp_path / "kanab.ledger", new_ledger=True)
    entry = (tmp_path / "kanab.ledger").read_bytes().split(b"\n")[1]
    release, _ = read_entry(entry)
    (seal,) = Notices(NOTIFY, release.plan, [entry]).of(0)  # type: ignore[union-attr]
    assert seal.title == "Sealed everything"
    assert seal.sentences[0] == "With noise in every number: ε = 1 at δ = 1e-06."
    assert json.loads(json_body(seal))["epsilon"] == 1
    assert "k-anonymous" not in notice_text(seal)


def test_slack_cannot_be_made_to_call_a_channel() -> None:
    notice = Notice("1", "seal", "<!channel> & <https://evil.example|here>", link="https://ab.shop.example/?a=1&b=2")
    text = json.loads(slack_body(notice))["text"]
    assert text == (
        "&lt;!channel&gt; &amp; &lt;https:\u2060//evil.\u2060example|here&gt;\nhttps://ab.shop.example/?a=1&amp;b=2"
    )


def test_names_call_nobody_and_lead_nowhere_in_any_channel() -> None:
    name = "@all _@here [a](http://evil.example) www.evil.example evil-login.com me@shop.example mailto:me 1.5 at 12:30"
    safe = (
        "@\u2060all _@\u2060here [a]\u2060(http:\u2060//evil.\u2060example) w\u2060ww.evil.\u2060example "
        "evil-login.\u2060com me@\u2060shop.\u2060example mailto:\u2060me 1.5 at 12:30"
    )
    notice = Notice("1", "seal", name, (name,), experiments=(NoticeEntry(name, (name,), {"name": name}, ""),))
    assert json.loads(slack_body(notice))["text"].splitlines() == [safe, safe, "", safe, f"• {safe}"]
    data = json.loads(json_body(notice))
    assert (data["title"], data["sentences"], data["experiments"][0]["sentences"]) == (safe, [safe], [safe])
    assert data["experiments"][0]["name"] == name  # data, not text to show
    mail = mail_of([notice], MailPlan("mail.shop.example", 25, "ab@shop.example", ("me@shop.example",)))
    assert mail["Subject"] == f"[kanab] {safe}"
    assert name not in mail.get_content()


def test_a_text_has_a_line_for_each_sentence_about_an_experiment() -> None:
    told = NoticeEntry("check\nout", ("Look 2 of 3: may stop.", "B raises bought."), {}, "")
    text = notice_text(Notice("1", "seal", "Sealed", ("k-anonymous at k = 10.",), experiments=(told,), left_out=7))
    assert text.splitlines() == [
        "Sealed", "k-anonymous at k = 10.", "", "check out", "• Look 2 of 3: may stop.", "• B raises bought.", "",
        "And 7 more experiments.",
    ]  # fmt: skip


@pytest.mark.slow
def test_an_effect_is_told_once_beside_the_decision() -> None:
    seal = next(notice for notice in notices().of(len(entries()) - 1) if notice.kind == "seal")
    for told in seal.experiments:
        decisions = [sentence for sentence in told.sentences if sentence.startswith("Decision: ")]
        others = [sentence for sentence in told.sentences if sentence not in decisions]
        reasons = (told.data["decision"] or {"because": []})["because"]
        assert len(decisions) == (told.data["decision"] is not None)
        for reason in reasons:  # each once, here or there
            assert sum(reason.rstrip(".") in sentence for sentence in (*decisions, *others)) == 1, reason


def test_a_text_is_cut_where_it_would_be_too_long_and_keeps_its_link() -> None:
    notice = Notice("1", "seal", "Sealed", tuple("word " * 50 for _ in range(200)), link="https://ab.shop.example")
    text = notice_text(notice)
    assert len(text) < 12_100
    assert text.endswith("The rest is cut off.\nhttps://ab.shop.example")
