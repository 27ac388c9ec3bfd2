"""What there is to tell about a sealed batch."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.approved import assert_approved
from tests.unit.dashboard.shop_releases import PLAN, entries
from tests.unit.privacy.epsilon.test_accountant import counted

import kanab as kb
from kanab.notify.channels import json_body, mail_of, notice_text, slack_body
from kanab.notify.notices import Notice, NoticeEntry, Notices
from kanab.plan.notify_plan import EVENTS, MailPlan, NotifyPlan
from kanab.privacy.ledger import read_entry

URL = "https://ab.shop.example/"
NOTIFY = NotifyPlan(EVENTS, URL, slack=True)


def notices(notify: NotifyPlan = NOTIFY) -> Notices:
    return Notices(notify, PLAN, entries())


@pytest.mark.slow
def test_notices_of_three_batches_are_those_that_were_approved(tmp_path: Path) -> None:
    """Alarms and ends only with the batch that brought them; live alarms without a count, and not of sealed ones."""
    made = notices()
    told = [*(notice for at in range(3) for notice in made.of(at)), *made.of_alarms({"price", "banner"})]
    kb.release(counted("epsilon = 1"), ledger=tmp_path / "kanab.ledger", new_ledger=True)
    noisy = (tmp_path / "kanab.ledger").read_bytes().split(b"\n")[1]
    release, _ = read_entry(noisy)
    [seal] = Notices(NOTIFY, release.plan, [noisy]).of(0)  # type: ignore[union-attr]
    told.append(replace(seal, experiments=()))  # whose numbers are drawn anew
    told.append(Notice("1", "seal", "<!channel> & @all", ("k = 10.",), (NoticeEntry("a\nb", ("One.",), {}, ""),), 7))
    texts = [f"{notice.kind}, through {notice.through}\n{notice_text(notice)}\n" for notice in told]
    assert_approved("notify/notices.txt", "\n".join(texts))
    ids = [notice.id for notice in told[:6]]
    again = notices()
    assert ids[:5] == [notice.id for at in range(3) for notice in again.of(at)]  # the same event, the same id
    assert len({*ids, Notices(NOTIFY, PLAN, []).of_alarms({"banner"})[0].id}) == 7
    plain = json.loads(json_body(told[2]), parse_float=lambda digits: float(f"{float(digits):.6g}"))
    plain["id"], plain["experiments"] = "…", plain["experiments"][:2]
    assert_approved("notify/notice.json", json.dumps(plain, indent=1, ensure_ascii=False) + "\n")
    assert json.loads(json_body(told[5]))["experiments"][0].keys() == {"name", "sentences", "link"}
    assert json.loads(json_body(told[6]))["epsilon"] == 1
    assert json.loads(slack_body(told[7]))["text"].startswith("&lt;!channel&gt; &amp; @\u2060all\n")
    few = notices(replace(NOTIFY, events=("may-stop",)))
    assert [notice.kind for at in range(3) for notice in few.of(at)] == ["may-stop"]
    assert few.of_alarms({"banner"}) == []


@pytest.mark.slow
def test_a_notice_about_an_earlier_batch_does_not_know_the_later_ones() -> None:
    early = Notices(NOTIFY, PLAN, entries()[:1]).of(0)
    assert early == notices().of(0)


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


def test_a_text_is_cut_where_it_would_be_too_long_and_keeps_its_link() -> None:
    notice = Notice("1", "seal", "Sealed", tuple("word " * 50 for _ in range(200)), link="https://ab.shop.example")
    text = notice_text(notice)
    assert len(text) < 12_100
    assert text.endswith("The rest is cut off.\nhttps://ab.shop.example")
