"""Check what survival is read from: days that everybody has, and an event that is 0/1."""

from __future__ import annotations

from kanab.counted import Counted
from kanab.errors import SourceError, flag


def check_survival(counted: Counted) -> None:
    """Raise `SourceError` where days are not days, or an event is not 0/1."""
    for link in (link for link in counted.plan.linkages if link.event is not None):
        table = counted.tallies[link.name]
        days = table.covariates[0]
        if not table.moments_of(link.event).metric.binary:
            raise SourceError(
                f"{link.event!r} is an event, and its column holds more than 0 and 1",
                "Survival needs 1 for people who had the event and 0 for the others.",
            )
        if None in days.levels and table.people_by(days.name)[None]:
            raise SourceError(
                f"some people have no {days.name!r}",
                "Fill in the days until the event, or until the person was last seen, or leave these people out.",
            )
        if days.scores is None:
            raise SourceError(f"{days.name!r} does not hold days as numbers", "Count days from when a person came in.")
        if any(score is not None and score < 0 for score in days.scores):
            raise SourceError(
                f"{days.name!r} has days below 0",
                "Count days from when a person came in; who had the event before is not in the experiment.",
            )
        whole = all(isinstance(level, int) for level in days.levels if level is not None)
        if counted.plan.covariate(days.name).bins is None and not whole:
            raise SourceError(
                f"{days.name!r} holds parts of days",
                f"Round them up, or give edges: {flag('--bin', f'{days.name}=7:14:21:28')}.",
            )
