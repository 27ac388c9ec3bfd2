"""Which look it is: said, kept in a looks file, or one for every batch; and what is read after the last one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from kanab.analysis.looks_file import Design, plain_design, read_looks, record_look, recorded_design
from kanab.analysis.options import Looks, read_rule
from kanab.counting.clipping import clipped_metrics
from kanab.description import Reading
from kanab.errors import AnalysisError
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
    """Return what is read at this look, of one experiment of a release.

    Raises `AnalysisError` where planned looks are read and it is not known which of them this is.
    """
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
    kept = recorded_design(looks.file, plan.experiment(experiment).name).get("clip", {})
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
