"""Which look it is: said, kept in a looks file, or one for every batch; and what is read after the last one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec

from kanab.analysis.options import Looks, read_rule
from kanab.atomicfile import read_text, write_whole
from kanab.counting.clipping import clipped_metrics
from kanab.description import Reading
from kanab.errors import AnalysisError, SourceError, listed
from kanab.plan.model import ExperimentPlan, Plan
from kanab.privacy.batches import add_releases
from kanab.privacy.release import Tables
from kanab.stats.cautions import Caution, design_ended
from kanab.stats.spending import CLOSEST

NO_LOOK = (
    f"The latest batch adds less than {100 * CLOSEST:g} % of the people and is no look of its own: "
    "it is read with the next one."
)


@dataclass(frozen=True)
class CurrentLook:
    """What is read at this look, and how; ``record`` keeps it, where there is a looks file."""

    released: Tables
    looks: Looks | None
    cautions: tuple[Caution, ...] = ()
    notes: tuple[str, ...] = ()
    record: Callable[[], None] = lambda: None


def current_look(released: Tables, experiment: str | None, options: Reading) -> CurrentLook:
    """Return what is read at this look, of one experiment of a release."""
    looks, plan = options.looks, released.plan.experiment(experiment)
    if looks is None:
        return CurrentLook(released, looks)
    if looks.looks is None and looks.planned is None and looks.method == "spending":
        looks = replace(looks, looks=plan.looks)
    if looks.looks is None and looks.planned is None:
        looks = replace(looks, planned=read_rule(plan.decision, options.decision).people)
    if looks.method == "always-valid":
        return CurrentLook(released, looks)
    if looks.looks is None and looks.planned is None:
        raise AnalysisError(
            "how many looks are planned is not said", "Give looks=… or planned=… (--looks 5, --planned 100000)."
        )
    looks = replace(looks, anew=released.receipt.noise is not None and not released.parts)
    if looks.earlier is not None:
        return CurrentLook(released, looks)
    if looks.file is not None:
        return _by_file(released, plan, replace(options, looks=looks))
    if released.parts:
        return _by_batches(released, plan, looks)
    if released.chained and released.receipt.batch is not None:
        return CurrentLook(released, replace(looks, earlier=()))
    raise AnalysisError(
        "it is not known which of the planned looks this is: a source that may have grown does not say",
        "Say how many people there were at each earlier look, none at the first: earlier=[7500, 15000] "
        "(--looks-at 7500,15000, or --looks-at none); or let Kanab keep them: file='looks.json' "
        "(--looks-file looks.json); or release cohorts, each of which is a look.",
    )


def _by_batches(released: Tables, plan: ExperimentPlan, looks: Looks) -> CurrentLook:
    """Take every batch for a look; what came after the last planned one, or adds next to nothing, is left out."""
    batches = [part for part in released.parts if part.tables_of(plan.name)]
    people = 0
    times: list[tuple[int, int]] = []  # people, and batches so far
    ended = False
    for number, batch in enumerate(batches, start=1):
        people += batch.totals(plan.name).total
        if not ended and (not times or people >= times[-1][0] * (1 + CLOSEST)):
            times.append((people, number))
            ended = len(times) == looks.looks or looks.reached_by([before for before, _ in times])
    looks = replace(looks, earlier=tuple(before for before, _ in times[:-1]))
    used = batches[: times[-1][1]] if times else batches
    if len(used) == len(batches):
        return CurrentLook(released, looks)
    if not ended:
        return CurrentLook(add_releases(used), looks, notes=(NO_LOOK,))
    last = used[-1].receipt.batch
    caution = design_ended(len(times), f"batch {len(used)}" if last is None else last.through)
    return CurrentLook(add_releases(used), looks, (caution,))


def _by_file(released: Tables, plan: ExperimentPlan, options: Reading) -> CurrentLook:
    """Take the looks that a file holds for the earlier ones, unless the last of them had the same people."""
    looks = options.looks
    assert looks is not None
    file = looks.file
    assert file is not None
    people = released.totals(plan.name).total
    recorded = read_looks(file, plan.name, _design(released, plan, options, looks))
    before = [look.people for look in recorded.looks]
    if before and people == before[-1]:
        before, looks = before[:-1], replace(looks, last=looks.last or recorded.looks[-1].last)
    elif before and people < before[-1]:
        raise AnalysisError(
            "there are fewer people than at the last look",
            "Looks are at everybody counted so far: give the whole source, or begin another looks file.",
        )
    elif recorded.ended:
        raise AnalysisError(
            f"the design ended with look {len(before)} on {recorded.looks[-1].on}; people who came later have no look",
            "Its answer is the one of that look: read it again from the people up to it (--where). "
            "To go on, plan another experiment with other people.",
        )
    last = looks.is_last([*before, people])
    record = partial(record_look, file, plan.name, recorded, people, last=last)
    return CurrentLook(released, replace(looks, earlier=before, file=None), record=record)


def clipped_before(looks: Looks | None, plan: Plan, experiment: str | None) -> dict[str, tuple[str, float]]:
    """Return the points and bounds of metrics that were clipped at the first look, where a looks file keeps them."""
    if looks is None or looks.file is None:
        return {}
    recorded = _experiments(looks.file).get(plan.experiment(experiment).name)
    kept = {} if recorded is None else recorded.design.get("clip", {})
    return {name: (point, bound) for name, (point, bound) in kept.items()}


def _design(released: Tables, plan: ExperimentPlan, options: Reading, looks: Looks) -> Design:
    """Return what must stay as it was planned from look to look."""
    control = plan.control if options.control is None else options.control
    clipped = clipped_metrics(released.receipt.choices, released.plan)
    return plain_design(
        **({"clip": clipped} if clipped else {}),
        looks=looks.looks,
        planned=looks.planned,
        spending=looks.spending,
        confidence=options.confidence,
        alternative=options.alternative,
        correction=options.correction,
        metrics=[*released.plan.metric_names, *map("/".join, released.plan.ratios)],
        adjust=plan.adjust,
        segments=plan.segments,
        control=None if control is None else str(control),
        pooled=sorted(map(str, options.pool or ())),
    )


# ── the looks file: how many people were counted at each look, and by which design ──────────────────

FORMAT = "kanab-looks/1"

Design = dict[str, Any]


class RecordedLook(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One look: everybody counted up to it, the day (UTC), and whether it ended the design."""

    people: int
    on: str
    last: bool = False


class RecordedLooks(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The looks at one experiment, in their order, and the design that they belong to."""

    design: Design
    looks: tuple[RecordedLook, ...] = ()

    @property
    def ended(self) -> bool:
        """Whether its last look has been."""
        planned = self.design["looks"]
        return bool(self.looks) and (self.looks[-1].last or (planned is not None and len(self.looks) >= planned))


class _File(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    format: str
    experiments: dict[str, RecordedLooks]


def read_looks(path: str | PathLike[str], experiment: str, design: Design) -> RecordedLooks:
    """Return the looks at an experiment so far, none where there is no file yet."""
    recorded = _experiments(path).get(experiment, RecordedLooks(design))
    changed = [name for name in recorded.design | design if recorded.design.get(name) != design.get(name)]
    if changed:
        before = listed(f"{name} was {_spoken(recorded.design.get(name))}" for name in changed)
        raise AnalysisError(
            f"the looks at {experiment} in {Path(path).name} belong to another design: {before}",
            "Read it as it was planned; another design needs other people and a looks file of its own.",
        )
    return recorded


def record_look(
    path: str | PathLike[str], experiment: str, recorded: RecordedLooks, people: int, *, last: bool
) -> None:
    """Add a look to the file, whole or not at all; one with the same people as the last is the same look."""
    if recorded.looks and recorded.looks[-1].people == people:
        before, on = recorded.looks[:-1], recorded.looks[-1].on
    else:
        before, on = recorded.looks, datetime.now(UTC).date().isoformat()
    experiments = _experiments(path)
    if experiments.get(experiment, recorded) != recorded:
        raise SourceError(f"another look at {experiment} was added to {Path(path).name} meanwhile", "Run it again.")
    looks = (*before, RecordedLook(people, on, last))
    experiments[experiment] = RecordedLooks(recorded.design, looks)
    text = msgspec.json.format(msgspec.json.encode(_File(FORMAT, experiments)), indent=2).decode()
    write_whole(path, f"{text}\n")


def _experiments(path: str | PathLike[str]) -> dict[str, RecordedLooks]:
    if not Path(path).exists():
        return {}
    otherwise = "is not a looks file", "Name the file that --looks-file wrote, or a new one."
    try:
        file = msgspec.json.decode(read_text(path, otherwise=otherwise), type=_File)
    except msgspec.MsgspecError:
        file = None
    if file is None or file.format != FORMAT or not all("looks" in own.design for own in file.experiments.values()):
        raise SourceError(f"{Path(path).name} {otherwise[0]}", otherwise[1])
    return file.experiments


def _spoken(value: Any) -> str:
    if isinstance(value, dict):  # what was clipped: the point, not the bound that the data gave
        return listed(f"{name}={point}" for name, (point, _) in value.items())
    if isinstance(value, list):
        return listed(map(str, value)) if value else "none"
    return "not given" if value is None else str(value)


def plain_design(**parts: Any) -> Design:
    """Return a design as the file holds it: tuples are lists, names are texts."""
    plain: Mapping[str, Any] = msgspec.json.decode(msgspec.json.encode(parts))
    return dict(plain)
