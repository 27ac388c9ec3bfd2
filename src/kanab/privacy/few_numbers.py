"""Rule 4: few numbers about few people, for metrics that are marked sensitive.

Where values are whole, many sums about few people with an unusual value can be solved for who they are. So at least
twice as many people of an arm are off the commonest value as there are published numbers about the arm, or nobody is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kanab.counted import Counted
from kanab.privacy.budget import enough_unusual
from kanab.privacy.class_rules import Draft
from kanab.privacy.joint_rules import as_published, first_linkages, published_totals
from kanab.privacy.overlap import Column, Place, ShownTable, column

WHY = "it is sensitive, and its tables hold too many numbers about the few people off its commonest value"


def few_numbers(counted: Counted, drafts: Mapping[str, Draft], earlier: Sequence[ShownTable] = ()) -> dict[Place, str]:
    """Return the tables in which a sensitive metric is withheld, with the reason: later ones give way."""
    signatures = counted.signatures
    assert signatures is not None, "callers check this"
    withheld: dict[Place, str] = {}
    for metric in (each.name for each in counted.plan.counted_metrics if each.sensitive != "no"):
        off = signatures.values[metric].off
        fixed = [table.columns[0] for table in earlier if metric in table.tally.metric_names]
        for linkage in first_linkages(counted.plan):
            arms = column(counted, published_totals(linkage, counted))
            kept = list(fixed)
            for name, draft in drafts.items():
                if draft.why or linkage.experiments[0] not in draft.linkage.experiments or len(draft.linkage.axes) < 2:
                    continue
                classes = column(counted, as_published(draft))
                if _enough([*kept, classes], arms, off, signatures.people):
                    kept.append(classes)
                elif metric in draft.tally.metric_names:
                    withheld[name, metric] = f"{metric} is withheld in {name}: {WHY}"
    return withheld


def _enough(tables: Sequence[Column], arms: Column, off: Column, people: Column) -> bool:
    """Return whether enough people of every arm are off the commonest value for all numbers about the arm."""
    for arm in range(int(arms.max()) + 1):
        inside = (arms == arm) & (people > 0)
        numbers = 1 + sum(len(np.unique(classes[inside & (classes >= 0)])) - 1 for classes in tables)
        few = int(off[inside].sum())
        if few and not enough_unusual(few, numbers):
            return False
    return True
