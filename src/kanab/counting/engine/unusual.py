"""Count the people who are off the commonest value of their arm in an engine: ``query_unusual``.

People are grouped by arm and value, and these groups by what values leave over of a thousand steps: at most a thousand
rows per arm leave the engine, each with its people and the largest group among them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import ibis
import numpy as np
import sqlglot

from kanab.counted import Unusual
from kanab.counting.engine.answer import Places, Text, parse_int
from kanab.counting.engine.dialects import cached, fetch_texts, query_text, run_query
from kanab.counting.engine.first_people import FirstPeople
from kanab.counting.engine.grids import floor
from kanab.counting.engine.metrics import Measure
from kanab.counting.engine.statement import CountQuery
from kanab.counting.unusual import CENTS, REMAINDERS, count_unusual, off_commonest, plenty
from kanab.plan.joint import Population
from kanab.tally.cells import DROPPED
from kanab.tally.moments import Moments
from kanab.tally.tally import Tally

_BRANCH = """
SELECT {place} AS place, CAST(arm AS TEXT) AS arm, CAST(MOD(c, {last}) AS TEXT) AS rest, CAST(SUM(n) AS TEXT) AS n,
  CAST(MAX(n) AS TEXT) AS top
FROM (
  SELECT {arm} AS arm, {cents} AS c, COUNT(*) AS n FROM kanab_values
  WHERE {arm} IS NOT NULL AND {value} IS NOT NULL GROUP BY {arm}, {cents}, {value}
) AS kanab_groups GROUP BY arm, MOD(c, {last})
"""

_Groups = tuple[np.ndarray, list[int]]

FEW_PEOPLE = 20_000
"""So many people, over all tables, are looked at one by one in memory: grouping them would take an engine longer."""

FIRST_PEOPLE = 16
"""Times as many people as are plenty are looked at first. Among all, no fewer are off the commonest value."""


def query_unusual(
    people: Any,
    query: CountQuery,
    group: Population,
    places: Mapping[str, Places],
    tallies: Mapping[str, Tally],
    *,
    first: FirstPeople | None = None,
) -> dict[str, dict[str, Unusual]]:
    """Count people off the commonest values of every arm, for the metrics of some tables.

    A 0/1 metric needs no query: its sums say it. Where there is one table only, no rule asks. Of many people, the
    first ones, in memory where they were fetched, are nearly always plenty; all are looked at only for metrics where
    they are not.
    """
    if len(query.plan.linkages) < 2:
        return {}
    wanted = [
        (name, measure) for name in group for measure in _measures(query, tallies, name) if not measure.metric.binary
    ]
    enough = plenty(tallies.values())
    everybody = sum(tally.total for tally in tallies.values())
    looked_up: dict[tuple[str, Measure], Unusual] = {}
    if first is not None:
        seen = _of_first(first, wanted, places)
        looked_up = {key: off for key, off in seen.items() if first.everybody or (off >= enough).all()}
    rest = [key for key in wanted if key not in looked_up]
    if rest and everybody > FEW_PEOPLE and (first is None or len(first) < FIRST_PEOPLE * enough):
        some = people.filter(query.anywhere(people)).limit(FIRST_PEOPLE * enough)
        looked_up |= {key: off for key, off in _look_up(some, query, rest, places).items() if (off >= enough).all()}
        rest = [key for key in rest if key not in looked_up]
    looked_up |= _look_up(people, query, rest, places, few=everybody <= FEW_PEOPLE)
    return {
        name: {
            measure.name: np.minimum(
                looked_up[name, measure]
                if (name, measure) in looked_up
                else _of_truths(_part(tallies, name, measure.name)),
                enough,
            )
            for measure in _measures(query, tallies, name)
        }
        for name in group
    }


def _of_first(
    first: FirstPeople, wanted: Sequence[tuple[str, Measure]], places: Mapping[str, Places]
) -> dict[tuple[str, Measure], Unusual]:
    """Return who of the first people is off the commonest value of an arm."""
    arms = {name: first.arms(name, places[name].into) for name in dict.fromkeys(name for name, _ in wanted)}
    enrolled = {name: arm != DROPPED for name, arm in arms.items()}
    return {
        (name, measure): count_unusual(
            first.steps(measure.metric, enrolled[name]), arms[name][enrolled[name]], len(places[name].factor.levels)
        )
        for name, measure in wanted
    }


def _measures(query: CountQuery, tallies: Mapping[str, Tally], experiment: str) -> list[Measure]:
    """Return the metrics that tables of an experiment hold."""
    names = {metric for tally in tallies.values() if experiment in tally.axes for metric in tally.metric_names}
    return [measure for measure in query.measures if measure.name in names]


def _part(tallies: Mapping[str, Tally], experiment: str, metric: str) -> Moments:
    """Return a metric by the arms of an experiment, out of one of its own tables."""
    own = next(
        tally
        for tally in tallies.values()
        if [arm.name for arm in tally.arms] == [experiment] and metric in tally.metric_names
    )
    return own.keep().moments_of(metric)


def _of_truths(part: Moments) -> Unusual:
    """Return who is off the commonest value of a 0/1 metric, from its counts and sums."""
    counts, sums = part.counts.astype(np.int64), part.sums.astype(np.int64)
    remainders = np.zeros((len(counts), REMAINDERS[-1]), dtype=np.int64)
    remainders[:, 0], remainders[:, 1] = counts - sums, sums
    return off_commonest(remainders, np.maximum(sums, counts - sums).tolist())


def _look_up(
    people: Any,
    query: CountQuery,
    wanted: Sequence[tuple[str, Measure]],
    places: Mapping[str, Places],
    *,
    few: bool = False,
) -> dict[tuple[str, Measure], Unusual]:
    """Ask the engine for the values of all arms and metrics that are wanted: in groups, or of few people one by one."""
    if not wanted:
        return {}
    measures = {measure.place: measure for _, measure in wanted}
    columns = {query.arms[name].column: query.arms[name].expression(people) for name, _ in wanted}
    for place, measure in measures.items():
        columns[f"v{place}"] = _steps(people, measure)
        columns[f"c{place}"] = _cent_steps(columns[f"v{place}"], measure.metric.scale)
    backend = people.get_backend()
    sizes = [len(places[name].factor.levels) for name, _ in wanted]
    groups: list[_Groups] = [(np.zeros((size, REMAINDERS[-1]), dtype=np.int64), [0] * size) for size in sizes]
    if few:
        rows = list(fetch_texts(people.select(**columns)))
        values = {name: [row[place] for row in rows] for place, name in enumerate(columns)}
        return {
            (name, measure): _of_values(
                values[query.arms[name].column], values[f"v{measure.place}"], values[f"c{measure.place}"], places[name],
                group,
            )
            for (name, measure), group in zip(wanted, groups, strict=True)
        }  # fmt: skip
    text = "\nUNION ALL\n".join(
        _BRANCH.format(
            place=place,
            last=REMAINDERS[-1],
            arm=query.arms[name].column,
            value=f"v{measure.place}",
            cents=f"c{measure.place}",
        )
        for place, (name, measure) in enumerate(wanted)
    )
    tree = sqlglot.parse_one(text)
    if query.engine.native:
        tree = tree.transform(lambda node: node.this if isinstance(node, sqlglot.exp.Cast) else node)
    branches = tree.sql(dialect=backend.dialect, identify=True)
    stage = sqlglot.exp.to_identifier("kanab_values", quoted=True).sql(dialect=backend.dialect)
    with cached(people.select(**columns), query.engine) as values:
        answer = run_query(backend, f"WITH {stage} AS (\n{query_text(values)}\n)\n{branches}")
        for number, arm, rest, n, top in query.engine.text_rows(answer):
            place = int(number)
            spot = places[wanted[place][0]].into.get(arm, DROPPED)
            if spot != DROPPED:
                remainders, most = groups[place]
                remainders[spot, parse_int(rest) % REMAINDERS[-1]] += parse_int(n)
                most[spot] = max(most[spot], parse_int(top))
    return {key: off_commonest(remainders, most) for key, (remainders, most) in zip(wanted, groups, strict=True)}


def _of_values(
    arms: Sequence[Text], steps: Sequence[Text], cents: Sequence[Text], places: Places, group: _Groups
) -> Unusual:
    """Count people off the commonest values from everybody's own, as texts."""
    remainders, most = group
    times: Counter[tuple[int, Text]] = Counter()
    for arm, value, left in zip(arms, steps, cents, strict=True):
        spot = DROPPED if arm is None else places.into.get(arm, DROPPED)
        if spot != DROPPED and value is not None:
            remainders[spot, parse_int(left) % REMAINDERS[-1]] += 1
            times[spot, value] += 1
            most[spot] = max(most[spot], times[spot, value])
    return off_commonest(remainders, most)


def _steps(people: Any, measure: Measure) -> Any:
    """Return grid steps as 64-bit integers; nothing for people who are left out."""
    careful = replace(measure, careful=True, doubles=False)
    steps = careful.clamped(careful.steps(careful.value(people, ibis.literal(True))))
    return steps if careful.leaves_out else steps.fill_null(0)


def _cent_steps(steps: Any, scale: int) -> Any:
    """Return what ``cent_steps`` returns in memory."""
    return steps if scale <= CENTS else floor(steps.cast("float64") * (CENTS / scale) + 0.5).cast("int64")
