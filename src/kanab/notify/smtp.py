"""A mail to a mail server, over TLS where the plan says so."""

from __future__ import annotations

import smtplib
import ssl
from email.message import EmailMessage

from kanab.errors import DeliveryError
from kanab.notify.delivery import CALL_SECONDS, PATIENCE_SECONDS, connection_error, ended_after
from kanab.plan.notify import MailPlan


def send(mail: EmailMessage, plan: MailPlan, password: str | None, *, seconds: float = CALL_SECONDS) -> str:
    """Hand a mail over; return a sentence if some of its mailboxes, but not all, were refused.

    Raises `DeliveryError` where nobody gets it.
    """
    host = f"{plan.server}:{plan.port}"
    client: smtplib.SMTP | None = None
    try:
        context = ssl.create_default_context()
        if plan.encryption == "tls":
            client = smtplib.SMTP_SSL(plan.server, plan.port, timeout=PATIENCE_SECONDS, context=context)
        else:
            client = smtplib.SMTP(plan.server, plan.port, timeout=PATIENCE_SECONDS)
        opened = client
        with ended_after(seconds, lambda: opened.sock):
            if plan.encryption == "starttls":
                client.starttls(context=context)
            if plan.user is not None:
                client.login(plan.user, password or "")
            refused = client.send_message(mail, plan.sender, plan.to)
            client.quit()
    except smtplib.SMTPException as problem:
        raise _refused(host, problem) from None
    except (OSError, UnicodeError) as problem:
        raise connection_error(host, problem) from None
    finally:
        if client is not None:
            client.close()
    return f"{host} refused some of the mailboxes; the others got the mail" if refused else ""


def _refused(host: str, problem: smtplib.SMTPException) -> DeliveryError:
    """Return what a mail server's refusal means, without its words: they may repeat what it was sent."""
    if isinstance(problem, smtplib.SMTPAuthenticationError):
        return DeliveryError(f"{host} does not accept user and password", "Check user and KANAB_NOTIFY_PASSWORD.")
    if isinstance(problem, smtplib.SMTPRecipientsRefused):
        return DeliveryError(f"{host} refuses every mailbox", "Check to, and that it relays for this sender.")
    if isinstance(problem, smtplib.SMTPSenderRefused):
        return DeliveryError(f"{host} refuses the sender", "Check from, and whether it wants user and password.")
    if isinstance(problem, smtplib.SMTPNotSupportedError):
        return DeliveryError(f"{host} does not offer what the plan asks for", "Check encryption and user.")
    if isinstance(problem, smtplib.SMTPServerDisconnected):
        return DeliveryError(f"{host} hung up or is too slow", "Check port and encryption, and its own log.")
    code = problem.smtp_code if isinstance(problem, smtplib.SMTPResponseException) else type(problem).__name__
    return DeliveryError(f"{host} refuses the mail ({code})", "See its own log.")
