"""What was asked: who is counted is settled by the first release of a ledger, and refused attempts are written down.

Whether a release is refused can tell about somebody: everybody but p7, if she is ill, is another population exactly
if she is. So choices are compared as texts before anything is counted. What the gate refuses afterwards may still
depend on the data; it leaves a note in the ledger, and after `MOST_REFUSED` of them somebody has to look.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path

from kanab.counted import Counted, decided_plan
from kanab.errors import LedgerError, NobodyError, PrivacyError, listed
from kanab.plan.file import plan_digest
from kanab.plan.model import Plan, published_plan
from kanab.plan.periods import Span
from kanab.privacy.epsilon.accountant import check_one_kind
from kanab.privacy.ledger import Ledger, LedgerNote, append_note
from kanab.privacy.release import Batch, Receipt, Release
from kanab.tally.factor import label

MOST_REFUSED = 20
"""After so many refused attempts a ledger takes no further release before somebody has looked at them."""

AGGREGATE = "aggregate of "
"""How the choice of a metric's aggregate is called; it says nothing about other metrics."""

WHO_IS_A_PERSON = ("unit", "assigned_by")
"""The choices that say whose ε it is: they stay the same in a ledger with ε, whatever rows are counted."""

_QUOTES_AND_COMMENTS = re.compile(r"['\"`$#]|--|/\*")


@dataclass(frozen=True, eq=False)
class ReleaseRequest:
    """A release that somebody asks for: its plan, and the choices of rows and people, as texts."""

    plan: Plan
    choices: Mapping[str, str] = field(default_factory=dict)
    span: Span | None = None

    @classmethod
    def of(cls, counted: Counted, k: int | None = None) -> ReleaseRequest:
        """Return what was asked to get this; with ε by another ``k`` than the plan's, if there is one."""
        where = {"where": counted.where} if counted.where else {}
        plan = counted.plan if counted.plan.budget is None else decided_plan(counted)
        if k is not None and plan.budget is not None:
            plan = replace(plan, k=k)
        return cls(plan, where | dict(counted.choices), counted.span)

    @property
    def text(self) -> dict[str, str]:
        """Everything that was asked, by name; no number of people, no value."""
        plan, span = self.plan, self.span
        arms = {
            each.name: f" ({listed(map(label, each.arms), most=20)})" if each.arms else "" for each in plan.experiments
        }
        texts = {
            "experiments": ", ".join(f"{name}{among}" for name, among in arms.items()),
            "metrics": ", ".join(plan.metric_names),
            "covariates": ", ".join(plan.covariates_in_use),
            "k": str(plan.k),
            "cohorts": "" if span is None else f"after {span.after or 'nobody'} and through {span.through}",
        }
        if plan.budget is not None:
            spends = plan.budget.per_release or plan.budget.epsilon
            texts["epsilon"] = f"{spends:g} of {plan.budget.epsilon:g} at delta {plan.budget.delta:g}"
        return {name: text for name, text in texts.items() if text} | dict(self.choices)


def validate_request(
    path: str | PathLike[str], ledger: Ledger, request: ReleaseRequest, *, new_ledger: bool, reviewed: str
) -> Ledger:
    """Return a ledger that is held, ready for a release, with a note of the review; nothing counted is looked at.

    Raises `LedgerError` where it is not there, is there already, or waits for a review, `PrivacyError` where its
    releases were made with other choices.
    """
    file = Path(path)
    check_begun(path, new_ledger=new_ledger)
    if new_ledger and ledger.releases:
        raise LedgerError(
            f"{file.name} holds releases already",
            "Leave out --new-ledger (new_ledger), or name another file (--ledger).",
        )
    if reviewed:
        ledger = append_note(path, ledger, LedgerNote("reviewed", reviewed))
    if len(ledger.unreviewed) >= MOST_REFUSED:
        raise LedgerError(
            f"{MOST_REFUSED} attempts to release into {file.name} were refused",
            "Look at them (kanab audit), and say why that is no reason to stop: --reviewed REASON (reviewed=…).",
        )
    with refusals_noted(path, ledger, request):
        validate_choices(request, ledger)
    return ledger


def check_begun(path: str | PathLike[str], *, new_ledger: bool) -> None:
    """Raise `LedgerError` where there is no such ledger, and none is to be begun."""
    if not new_ledger and not Path(path).exists():
        raise LedgerError(
            f"there is no ledger {Path(path)}",
            "Name the one that holds what was released about these people (--ledger FILE), "
            "or begin a new one (--new-ledger, new_ledger=True).",
        )


@contextmanager
def refusals_noted(path: str | PathLike[str], ledger: Ledger, request: ReleaseRequest) -> Iterator[None]:
    """Write what is refused in here into a ledger that is held, once.

    That there is nobody is an answer about people: a ledger with ε does not hold it, the curator alone is told.
    """
    try:
        yield
    except (PrivacyError, NobodyError) as problem:
        if isinstance(problem, NobodyError) and request.plan.budget is not None:
            raise
        append_note(path, ledger, LedgerNote("refused", problem.fact, request.text))
        raise


def validate_choices(request: ReleaseRequest, ledger: Ledger) -> None:
    """Compare what is asked with what a ledger's releases were made by; raise `PrivacyError` naming what differs.

    With ε the account adds up whichever rows are counted, but people have to stay people.
    """
    check_one_kind(request.plan, ledger)
    everything = request.plan.budget is None or request.span is not None
    check_choices(request.choices, ledger.releases, ledger.name, () if everything else WHO_IS_A_PERSON)


def check_choices(
    choices: Mapping[str, str], releases: Iterable[Release], ledger: str = "", only: Collection[str] = ()
) -> None:
    """Compare choices of rows and people with those of releases, as texts; raise `PrivacyError` naming which differ."""
    for old in releases:
        before, now = _recorded(old.receipt), choices
        if old.receipt.choices is None:  # of before they were recorded
            now = {name: text for name, text in choices.items() if name == "where"}
        # How a further metric is added up says nothing about the earlier ones.
        measured = {f"{AGGREGATE}{name}" for name in old.plan.metric_names}
        asked = [name for name in dict.fromkeys((*before, *now)) if not only or name in only]
        names = [name for name in asked if not name.startswith(AGGREGATE) or name in measured]
        others = [name for name in names if plain_text(before.get(name, "")) != plain_text(now.get(name, ""))]
        if others:
            flags = listed(f"--{name.replace(AGGREGATE, 'aggregate ').replace('_', '-')}" for name in others)
            without = "without" if not any(name in before for name in others) else "with another"
            raise PrivacyError(
                f"the releases in {ledger or 'the ledger'} were made {without} {flags}: "
                "other choices may count other people",
                "Ask as before, or release into another ledger (--ledger FILE --new-ledger).",
            )


def batch_at(span: Span) -> Batch:
    """Return cohorts as a receipt names them."""
    return Batch(span.every, span.after, span.through, span.column)


def same_release(request: ReleaseRequest, ledger: Ledger) -> Release | None:
    """Return the release with ε that a ledger holds for the same request: asking again draws and spends nothing."""
    if request.plan.budget is None:
        return None
    plan, now = published_plan(request.plan, request.plan.k), request.choices
    batch = None if request.span is None else batch_at(request.span)
    for old in ledger.noisy:
        before = _recorded(old.receipt)
        if (
            plan_digest(old.plan) == plan_digest(plan)
            and old.receipt.batch == batch
            and before.keys() == now.keys()
            and all(plain_text(before[name]) == plain_text(text) for name, text in now.items())
        ):
            return old
    return None


def _recorded(receipt: Receipt) -> dict[str, str]:
    where = {"where": receipt.where} if receipt.where else {}
    return where | dict(receipt.choices or {})


def plain_text(text: str) -> str:
    """Return a text without spaces that mean nothing; within quotes, or before a comment ends, they may."""
    return text.strip() if _QUOTES_AND_COMMENTS.search(text) else " ".join(text.split())
