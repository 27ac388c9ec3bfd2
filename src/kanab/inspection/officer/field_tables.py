"""The tables and fields of a release in words: what is kept, how it is limited, why it is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kanab.errors import listed

Data = Mapping[str, Any]
Row = tuple[str, ...]


def table_rows(release: Data) -> list[Row]:
    """One row per table: name, question, classes, smallest class, sums, squares."""
    return [
        (
            one["table"],
            "; ".join(one["why"]),
            f"{one['classes']:,}",
            f"{one['smallest_class']:,}",
            listed(metric["name"] for metric in one["metrics"]) or "nothing",
            "; ".join(_squares(one)) or "nothing",
        )
        for one in release["tables"]
    ]


def _squares(table: Data) -> Iterator[str]:
    for metric in table["metrics"]:
        if metric["squares"]:
            yield f"{metric['name']} by {', by '.join(' × '.join(by) for by in metric['squares'])}"
    for product in table["products"]:
        yield f"products of {' and '.join(product['metrics'])} by {' × '.join(product['by'])}"


def field_rows(release: Data) -> list[Row]:
    """One row per arm column, covariate and metric, whichever tables it is in, and one for people."""
    tables = release["tables"]
    arms = {arm["name"]: arm for one in tables for arm in one["arms"]}
    covariates = {one["covariate"]["name"]: one for one in tables if one["covariate"] is not None}
    metrics = {metric["name"]: metric for one in tables for metric in one["metrics"]}
    return [
        *(_arms(one) for one in arms.values()),
        *(_covariate(one) for one in covariates.values()),
        (
            "people",
            "how many, class by class",
            f"nobody or at least {release['k']}",
            "an average is a sum divided by people",
        ),
        *(_metric(one, tables) for one in metrics.values()),
    ]


def _arms(arm: Data) -> Row:
    source = "declared in the plan" if arm["declared"] else "as found in the data"
    return (f"{arm['name']} (arms)", listed(arm["levels"]), source, "says who is compared with whom")


def _covariate(table: Data) -> Row:
    one = table["covariate"]
    merged = [f"{new} stands for {listed(olds)}" for new, olds in one["merged"].items()]
    limits = "; ".join([one["origin"], *merged])
    return (f"{one['name']} (covariate)", f"levels {listed(one['levels'])}", limits, "; ".join(table["why"]))


def _metric(metric: Data, tables: Sequence[Data]) -> Row:
    own = [one for table in tables for one in table["metrics"] if one["name"] == metric["name"]]
    kept = ["sums by class" if any(one["sums"] == "class" for one in own) else "sums by arm"]
    if any(one["squares"] for one in own):
        kept.append("sums of squares")
    why = f"the effect on {metric['name']}"
    why += ", and how sure it is" if len(kept) > 1 or metric["binary"] else ""
    return (f"{metric['name']} (metric)", ", ".join(kept), "; ".join(metric["limits"]), why)
