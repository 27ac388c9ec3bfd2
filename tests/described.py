"""Say of many columns at once what values say one by one: for tests that vary one thing about all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import kanab as kb
from kanab.counted import Counted
from kanab.description import Covariate, Mean, Number, Quantile, Ratio, Reading, Rows

_OF_METRICS = ("bounds", "resolution", "missing", "min_events", "clip")
_ROWS = {each.name for each in fields(Rows)}
_READING = {each.name for each in fields(Reading)}


def as_values(function: str, **said: Any) -> dict[str, Any]:
    """Return the keywords of a function: ``bounds={"spend": (0, 500)}`` as ``metrics=[Mean("spend", bounds=…)]``."""
    if said.get("plan") is not None and not said.get("metrics"):
        said = {name: value for name, value in said.items() if name not in ("metrics", "adjust", "segments")}
    keywords: dict[str, Any] = {}
    if function in ("readout", "analyze"):
        read = {
            name: said.pop(name)
            for name in [*said]
            if name in _READING and (name != "control" or function == "analyze")
        }
        keywords |= {"reading": Reading(**read)} if read else {}
    if function not in ("make_plan", "analyze"):
        rows = {name: said.pop(name) for name in [*said] if name in _ROWS}
        keywords |= {"rows": Rows(**rows)} if rows else {}
    if (shares := said.pop("shares", None)) is not None:
        said["arms"] = shares
    of = {name: said.pop(name, None) or {} for name in (*_OF_METRICS, "quantiles", "bins", "top")}
    more = {name: _listed(said.pop(name, None)) for name in ("ratios", "numbers", "score", "covariates")}
    if any(of.values()) or any(more.values()):
        said |= _columns(said, of, more, scans=function.startswith("scan"))
    if function == "scan_interactions":
        said.pop("covariates", None)
    return said | keywords


def readout_of(rows: Any, **said: Any) -> kb.Readout:
    """Return `kanab.readout` of rows with such keywords."""
    return kb.readout(rows, **as_values("readout", **said))


def count_of(rows: Any, **said: Any) -> Counted:
    """Return `kanab.count` of rows with such keywords."""
    return kb.count(rows, **as_values("count", **said))


def _listed(names: Any) -> list[str]:
    return [names] if isinstance(names, str) else list(names or ())


def _columns(
    said: Mapping[str, Any], of: Mapping[str, Mapping[str, Any]], more: Mapping[str, list[str]], *, scans: bool
) -> dict[str, Any]:
    metrics = said.get("metrics") or ()
    metrics = [metrics] if isinstance(metrics, str) else list(metrics)
    pairs = [tuple(part.strip() for part in ratio.split("/")) for ratio in more["ratios"]]
    received = [said["treatment_received"]] if said.get("treatment_received") else []
    counted = dict.fromkeys([*metrics, *(part for pair in pairs for part in pair), *received, *of["quantiles"]])
    both = [] if scans else more["covariates"]
    adjust = list(dict.fromkeys([*(said.get("adjust") or ()), *both]))
    numbers = {name for name in adjust if name in more["numbers"] or (name in of["bounds"] and name not in counted)}

    def value(cls: Any, name: str) -> Any:
        known = {field: values[name] for field, values in of.items() if name in values}
        known |= {"score": True} if name in more["score"] else {}
        fields_of = {each.name for each in fields(cls)}
        return cls(name, **{field: each for field, each in known.items() if field in fields_of})

    made = {
        "metrics": [
            *(value(Mean, name) if isinstance(name, str) else name for name in counted),
            *(Ratio(*pair) for pair in pairs),
            *(Quantile(name, at, of["bins"].get(name)) for name, at in of["quantiles"].items()),
        ]
    }
    if scans:
        return made | {"covariates": [value(Covariate, name) for name in more["covariates"]]}
    in_bins = {name: each for name, each in of["bins"].items() if name not in of["quantiles"]}
    of = {**of, "bins": in_bins}
    made |= {"adjust": [value(Number if name in numbers else Covariate, name) for name in adjust]}
    return made | {
        "segments": [value(Covariate, name) for name in dict.fromkeys([*(said.get("segments") or ()), *both])]
    }
