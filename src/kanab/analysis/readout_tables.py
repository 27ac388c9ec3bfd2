"""The tables of a readout that become DataFrames: every list of ``to_dict``, and what it holds by arm or by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kanab.analysis import methods
from kanab.dataframes import Row, Tables

Data = Mapping[str, Any]


def readout_tables(data: Data) -> Tables:
    """Return the rows of every table of a readout, from its plain data."""
    of_methods = {name: rows for each in methods.METHODS for name, rows in each.frames(data).items()}
    ratio, privacy = data["sample_ratio"], data["privacy"]
    return {
        "effects": data["effects"],
        **of_methods,
        "arms": [*_arms(data)],
        "pooled": [{"arm": arm, "of": of} for arm, ofs in data["pooled"].items() for of in ofs],
        "sample_ratio": [{name: value for name, value in ratio.items() if name not in ("residuals", "shares")}],
        "balance": [row | {"limit": data["balance"]["limit"]} for row in data["balance"]["rows"]],
        "missing": _missing(data),
        "cautions": data["cautions"],
        "decision": [*_decision(data)],
        "rule": [data["rule"]],
        "privacy": [_privacy(privacy)],
        "costs": [{"sentence": sentence} for sentence in privacy["costs"]],
        "merged": [*_merged(privacy)],
        "left_out": [{"table": table, "why": why} for table, why in privacy["left_out"].items()],
        "noise": [*_noise(privacy)],
        "notes": [{"sentence": sentence} for sentence in data["notes"]],
    }


def _privacy(privacy: Data) -> Row:
    """Return the receipt as one row, without what has rows of its own."""
    row = {name: value for name, value in privacy.items() if name not in ("merged", "left_out", "costs")}
    noise = {name: value for name, value in privacy.get("noise", {}).items() if name != "scales"}
    return row | ({"noise": noise} if noise else {})


def _merged(privacy: Data) -> Iterator[Row]:
    """Yield every merged level of a covariate with a level that is in it."""
    for covariate, levels in privacy["merged"].items():
        yield from ({"covariate": covariate, "level": new, "of": of} for new, ofs in levels.items() for of in ofs)


def _noise(privacy: Data) -> Iterator[Row]:
    """Yield the scale of the noise of everything that was published; nothing of releases without ε."""
    for table, scales in privacy.get("noise", {}).get("scales", {}).items():
        yield from ({"table": table, "statistic": name, "scale": scale} for name, scale in scales.items())


def _arms(data: Data) -> Iterator[Row]:
    """Yield people, planned share and residual of every arm; where groups were assigned, how many of them."""
    ratio, clusters = data["sample_ratio"], data["clusters"]
    for arm, people in data["arms"].items():
        row = {
            "arm": arm, "control": arm == data["control"], "people": people,
            "share": ratio["shares"].get(arm), "residual": ratio["residuals"].get(arm),
        }  # fmt: skip
        if clusters is not None:
            by_arm = clusters["people"] or {}
            row |= {"assigned_by": clusters["by"], "clusters": clusters["clusters"].get(arm)}
            row |= {"people": by_arm.get(arm), "rates": clusters["rates"]}
        yield row


def _missing(data: Data) -> list[Row]:
    """Return by metric what became of missing values."""
    rules = {row["metric"]: {name: row[name] for name in ("missing", "people_missing")} for row in data["effects"]}
    return [{"metric": metric} | rule for metric, rule in rules.items() if rule["missing"] is not None]


def _decision(data: Data) -> Iterator[Row]:
    """Yield a row for every sentence behind the decision; nothing where no metric is primary."""
    decision = data["decision"]
    if decision is not None:
        beside = {name: value for name, value in decision.items() if name not in ("arms", "because", "rule")}
        yield from (beside | {"because": sentence} for sentence in decision["because"])
