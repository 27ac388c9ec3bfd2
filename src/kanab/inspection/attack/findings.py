"""What an attack learnt, and the sum of all attacks, in words and as plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kanab.dataframes import Frames, Tables

NOT_ATTEMPTED = (
    "Not attempted: more than two metrics at once, long searches in whole numbers, prices that end alike, several "
    "experiments of a collector together, solving a scan's F statistics, and what else somebody may know."
)
"""What none of the attacks does."""


@dataclass(frozen=True)
class Finding:
    """What one attack learnt: where, about how many people at most, in words."""

    attack: str
    table: str
    metric: str
    people: int
    learnt: str

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        return {
            "attack": self.attack,
            "table": self.table,
            "metric": self.metric or None,
            "people": self.people,
            "learnt": self.learnt,
        }


@dataclass(frozen=True)
class Attempt:
    """One attack: what it found, or why it was not tried, and whether that breaks what was ``promised``."""

    attack: str
    does: str
    findings: tuple[Finding, ...] = ()
    not_tried: str = ""
    says: tuple[str, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    promised: bool = True


@dataclass(frozen=True)
class AttackReport(Frames[Literal["attacks", "findings", "says", "releases"]]):
    """Everything that was tried on some releases, which prints itself; ``promise`` is that of the ``noisy`` ones."""

    releases: tuple[str, ...]
    k: int
    attempts: tuple[Attempt, ...]
    promise: str = ""
    noisy: bool = False

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was learnt about fewer than k people, against the promise."""
        return self._learnt(promised=True)

    @property
    def beyond(self) -> tuple[Finding, ...]:
        """What was learnt about fewer than k people by means that promise k does not cover."""
        return self._learnt(promised=False)

    def _learnt(self, *, promised: bool) -> tuple[Finding, ...]:
        attempts = [attempt for attempt in self.attempts if attempt.promised == promised]
        return tuple(finding for attempt in attempts for finding in attempt.findings if finding.people < self.k)

    @property
    def broken(self) -> bool:
        """Whether anything was learnt about fewer than k people, against the promise."""
        return bool(self.findings)

    @property
    def passed(self) -> bool:
        """Whether nothing was learnt that is promised to stay hidden."""
        return not self.broken

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data, with every finding."""
        return {
            "releases": list(self.releases),
            "k": self.k,
            "broken": self.broken,
            "attacks": [
                {
                    "attack": attempt.attack,
                    "does": attempt.does,
                    "promised": attempt.promised,
                    "not_tried": attempt.not_tried or None,
                    "findings": [finding.to_dict() for finding in attempt.findings],
                }
                | ({"says": list(attempt.says), "figures": dict(attempt.figures)} if attempt.says else {})
                for attempt in self.attempts
            ],
        }

    def _tables(self) -> Tables:
        data = self.to_dict()
        attacks = data["attacks"]
        return {
            "attacks": [row | {"findings": len(row["findings"])} for row in attacks],
            "findings": [finding for row in attacks for finding in row["findings"]],
            "says": [{"attack": row["attack"], "sentence": each} for row in attacks for each in row.get("says", ())],
            "releases": [{"release": name} for name in data["releases"]],
        }

    def to_text(self, most: int = 4) -> str:
        """Write a paragraph per attack, with the findings about the fewest people first."""
        rules = [*([] if self.noisy else [f"k = {self.k}"]), *([self.promise] if self.promise else [])]
        lines = [f"Attacked: {_listed(self.releases)}. The rule to break: {', and '.join(rules)}.", ""]
        for attempt in self.attempts:
            lines += [*_paragraph(attempt, most), ""]
        return "\n".join([*lines, *self._verdict()])

    def __str__(self) -> str:
        return self.to_text()

    def _verdict(self) -> list[str]:
        if self.broken:
            about = in_people(min(finding.people for finding in self.findings))
            return [
                f"BROKEN: something was learnt about fewer than {self.k} people, {_times(len(self.findings))}; "
                f"the worst is about {about}."
            ]
        if self.noisy:
            return [
                "Nothing was learnt that ε does not allow.",
                "No other attack on these files can do better: that is a theorem about noise, whatever somebody knows.",
            ]
        held = f"Nothing was learnt about fewer than {self.k} people"
        if self.beyond:
            held += f" that k promises to hide. Beyond that, something was, {_times(len(self.beyond))}; ε prevents it"
        return [
            f"{held}.",
            "That is what these attacks could do, with what they know; it is no proof that no other can do more.",
            NOT_ATTEMPTED,
        ]


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


def _paragraph(attempt: Attempt, most: int) -> list[str]:
    name = attempt.attack
    if attempt.not_tried:
        return [f"{name}: not tried", f"  {attempt.does}", f"  {attempt.not_tried}"]
    if not attempt.findings:
        return [f"{name}: learnt nothing", f"  {attempt.does}", *(f"  {sentence}" for sentence in attempt.says)]
    times = len(attempt.findings)
    shown = sorted(attempt.findings, key=lambda finding: finding.people)[:most]
    beyond = "" if attempt.promised else ", which k does not cover"
    lines = [f"{name}: LEARNT {'one thing' if times == 1 else f'{times:,} things'}{beyond}", f"  {attempt.does}"]
    lines += [f"  {sentence}" for sentence in attempt.says]
    lines += [f"  - {finding.table}: {finding.learnt}" for finding in shown]
    return [*lines, f"  - … and {times - most:,} more"] if times > most else lines


def _listed(names: Sequence[str]) -> str:
    if len(names) <= 4:
        return ", ".join(names)
    return f"{names[0]}, {names[1]}, … {names[-1]} ({len(names)} in all)"


def in_people(n: int) -> str:
    """Return so many people, in words."""
    return "one person" if n == 1 else f"{n} people"
