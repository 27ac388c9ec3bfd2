"""Say of many columns at once what values say one by one: for tests that vary one thing about all of them."""

from dataclasses import fields
from itertools import chain
from typing import Any

import kanab as kb
from kanab.counted import Counted
from kanab.description import Covariate, Mean, Number, Quantile, Ratio, Reading, Rows

OF_COLUMNS = ("bounds", "resolution", "missing", "min_events", "clip", "bins", "top")


def as_values(function: str, **said: Any) -> dict[str, Any]:
    """Return the keywords of a function: ``bounds={"spend": (0, 500)}`` as ``metrics=[Mean("spend", bounds=…)]``."""
    if said.get("plan") is not None and not said.get("metrics"):
        said = {name: value for name, value in said.items() if name not in ("metrics", "adjust", "segments")}
    takes = {Reading: function in ("readout", "analyze"), Rows: function not in ("make_plan", "analyze")}
    for cls in (cls for cls, taken in takes.items() if taken):
        names = {each.name for each in fields(cls)} & said.keys() - ({"control"} if function == "readout" else set())
        values = {name: said.pop(name) for name in names}
        said |= {cls.__name__.lower(): cls(**values)} if values else {}
    if (shares := said.pop("shares", None)) is not None:
        said["arms"] = shares
    of = {name: dict(said.pop(name, None) or {}) for name in OF_COLUMNS}
    of["at"] = said.pop("quantiles", None) or {}
    more = {name: _listed(said.pop(name, None)) for name in ("ratios", "numbers", "score", "covariates")}
    of["score"] = dict.fromkeys(more["score"], True)
    if not any(of.values()) and not any(more.values()):
        return said

    def value(cls: Any, name: str) -> Any:
        return cls(
            name, **{field.name: of[field.name][name] for field in fields(cls) if name in of.get(field.name, ())}
        )

    pairs = [[part.strip() for part in ratio.split("/")] for ratio in more["ratios"]]
    counted = [
        *_listed(said.get("metrics")),
        *chain.from_iterable(pairs),
        *_listed(said.get("treatment_received")),
        *of["at"],
    ]
    counted = list(dict.fromkeys(counted))
    bins = {name: of["bins"].pop(name) for name in of["at"] if name in of["bins"]}
    metrics = [value(Mean, name) if isinstance(name, str) else name for name in counted]
    metrics += [Ratio(*pair) for pair in pairs]
    said["metrics"] = metrics + [Quantile(name, at, bins.get(name)) for name, at in of["at"].items()]
    if function.startswith("scan"):
        of_scan = {"covariates": [value(Covariate, name) for name in more["covariates"]]}
        return said | (of_scan if function == "scan_segments" else {})
    adjust, segments = ([*_listed(said.get(side)), *more["covariates"]] for side in ("adjust", "segments"))
    numbers = {*more["numbers"], *(of["bounds"].keys() - {*map(str, counted)})}
    said["adjust"] = [value(Number if name in numbers else Covariate, name) for name in dict.fromkeys(adjust)]
    return said | {"segments": [value(Covariate, name) for name in dict.fromkeys(segments)]}


def readout_of(rows: Any, **said: Any) -> kb.Readout:
    """Return `kanab.readout` of rows with such keywords."""
    return kb.readout(rows, **as_values("readout", **said))


def count_of(rows: Any, **said: Any) -> Counted:
    """Return `kanab.count` of rows with such keywords."""
    return kb.count(rows, **as_values("count", **said))


def _listed(names: Any) -> list[Any]:
    return [names] if isinstance(names, str) else list(names or ())
