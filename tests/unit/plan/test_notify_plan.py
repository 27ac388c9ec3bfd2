"""The table [notify] of a plan."""

import pytest

from kanab.errors import PlanError
from kanab.plan.file import parse_plan, plan_digest, plan_from_dict, plan_to_dict
from kanab.plan.notify_plan import MailPlan, NotifyPlan

PLAN = """
[metrics]
minutes = { bounds = [0, 600] }
[experiments.checkout]
arms = { A = 1, B = 1 }
"""
MAIL = '[notify.mail]\nserver = "mail.example"\nfrom = "kanab@shop.example"\nto = ["team@shop.example"]\n'


def test_the_plan_says_who_is_told_and_no_release_or_version_holds_it() -> None:
    whole = f"""{PLAN}
[notify]
events = ["seal", "may-stop"]
url = "https://ab.shop.example/kanab"
[notify.slack]
[notify.json]
to = "https://hooks.example/kanab"
{MAIL}user = "kanab"
"""
    plan = parse_plan(whole)
    mail = MailPlan("mail.example", 587, "kanab@shop.example", ("team@shop.example",), "starttls", "kanab")
    assert plan.notify == NotifyPlan(
        ("seal", "may-stop"), "https://ab.shop.example/kanab", True, True, "https://hooks.example/kanab", mail
    )
    assert plan == parse_plan(PLAN)
    assert plan_digest(plan) == plan_digest(parse_plan(PLAN))
    assert "notify" not in plan_to_dict(plan)
    with pytest.raises(PlanError, match="notify is an unknown key"):
        plan_from_dict(plan_to_dict(plan) | {"notify": {"slack": {}}})
    ports = [
        parse_plan(f"{PLAN}{MAIL}{more}").notify.mail.port  # type: ignore[union-attr]
        for more in ('encryption = "tls"', 'encryption = "none"', "")
    ]
    assert ports == [465, 25, 587]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[notify]", r"notify tells nobody: add \[notify.slack\], \[notify.json\] or \[notify.mail\]"),
        ("[notify]\nslak = {}", "notify.slak is an unknown key; did you mean 'slack'"),
        ("[notify.slack]\nto = 'https://hooks.example/T0KEN'", "notify.slack.to holds a secret: leave it out"),
        ("[notify.json]\nto = 'hooks.example/T0KEN'", "notify.json.to must begin with https:// or http://"),
        ("[notify.json]\nto = 'https://me:T0KEN@hooks.example'", "notify.json.to must not hold a name or a password"),
        ("[notify.json]\nto = 'https://hooks.example:0x/T0KEN'", "notify.json.to must be a web address with a host"),
        ("[notify.json]\nto = 5", "notify.json.to must be a web address such as"),
        ("[notify]\nurl = 'ab.shop.example'\n[notify.slack]", "notify.url must begin with https:// or http://"),
        ("[notify]\nevents = ['seals']\n[notify.slack]", "notify.events must list some of 'seal', 'sample-ratio', "),
        ("[notify.mail]", "notify.mail.server is missing: a host such as 'mail.example:587'"),
        (MAIL.replace("mail.example", "mail example"), "notify.mail.server must be a host such as"),
        (MAIL.replace("mail.example", "mail.example:70000"), "notify.mail.server must be a host such as"),
        (MAIL.replace("team@shop.example", "team"), "notify.mail.to must be the address of a mailbox"),
        (MAIL.replace("kanab@", "a\\\\r\\\\nBcc: x@"), "notify.mail.from must be the address of a mailbox"),
        (f'{MAIL}encryption = "ssl"', "notify.mail.encryption must be 'tls' or 'starttls' or 'none'"),
    ],
)
def test_mistakes_are_named_and_addresses_are_not_repeated(text: str, says: str) -> None:
    with pytest.raises(PlanError, match=says) as caught:
        parse_plan(f"{PLAN}{text}\n")
    assert "T0KEN" not in str(caught.value)
