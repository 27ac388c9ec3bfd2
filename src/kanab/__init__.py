"""A/B testing that keeps counts and sums, not people.

>>> import numpy as np, kanab as kb
>>> rng = np.random.default_rng(1)
>>> people = {"variant": rng.choice(["A", "B"], 900), "bought": rng.random(900) < 0.2}
>>> print(kb.readout(people, arm="variant", metrics=["bought"]).effects[0].effect)
bought: B − A = 0.007087 ± 0.02535, 95% interval -0.04260 … 0.05710, z = 0.2799, p = 0.780

The names here are the everyday ones. Single statistics are in ``kanab.stats``, power and forecasts in
``kanab.planning``, scans of many experiments in ``kanab.scan``, what many of them say together in
``kanab.portfolio``, and errors in ``kanab.errors``.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kanab import counting as counting
    from kanab import errors as errors
    from kanab import plan as plan
    from kanab import planning as planning
    from kanab import portfolio as portfolio
    from kanab import privacy as privacy
    from kanab import scan as scan
    from kanab import stats as stats
    from kanab import tally as tally
    from kanab.analysis.api import analyze
    from kanab.analysis.from_source import readout
    from kanab.analysis.models import fit
    from kanab.analysis.options import Looks
    from kanab.analysis.readout import Readout
    from kanab.counted import Counted
    from kanab.counting.columns import count_columns
    from kanab.counting.dispatch import count
    from kanab.description import Covariate, Mean, Number, Quantile, Ratio, Reading, Rows
    from kanab.errors import KanabError, PrivacyError
    from kanab.inspection.attack.run import attack
    from kanab.inspection.audit_report import audit
    from kanab.plan.file import read_plan
    from kanab.plan.model import Plan, make_plan
    from kanab.planning.calculator import power
    from kanab.privacy.batches import add_releases
    from kanab.privacy.gate import release
    from kanab.privacy.ledger import Ledger, read_ledger
    from kanab.privacy.release import Release
    from kanab.privacy.release_json import read_release, write_release
    from kanab.stats.margins import Margin
    from kanab.stats.posteriors import Prior
    from kanab.tally.metric import Metric
    from kanab.tally.tally import Tally

__version__ = "0.1.0"

__all__ = [
    "Counted",
    "Covariate",
    "KanabError",
    "Ledger",
    "Looks",
    "Margin",
    "Mean",
    "Metric",
    "Number",
    "Plan",
    "Prior",
    "PrivacyError",
    "Quantile",
    "Ratio",
    "Reading",
    "Readout",
    "Release",
    "Rows",
    "Tally",
    "add_releases",
    "analyze",
    "attack",
    "audit",
    "count",
    "count_columns",
    "fit",
    "make_plan",
    "power",
    "read_ledger",
    "read_plan",
    "read_release",
    "readout",
    "release",
    "write_release",
]

_NAMES_BY_HOME = {
    "analysis.api": "analyze",
    "analysis.from_source": "readout",
    "analysis.models": "fit",
    "analysis.options": "Looks",
    "analysis.readout": "Readout",
    "counted": "Counted",
    "counting.columns": "count_columns",
    "counting.dispatch": "count",
    "description": "Covariate Mean Number Quantile Ratio Reading Rows",
    "errors": "KanabError PrivacyError",
    "inspection.attack.run": "attack",
    "inspection.audit_report": "audit",
    "plan.file": "read_plan",
    "plan.model": "Plan make_plan",
    "planning.calculator": "power",
    "privacy.batches": "add_releases",
    "privacy.gate": "release",
    "privacy.ledger": "Ledger read_ledger",
    "privacy.release": "Release",
    "privacy.release_json": "read_release write_release",
    "stats.margins": "Margin",
    "stats.posteriors": "Prior",
    "tally.metric": "Metric",
    "tally.tally": "Tally",
}
_HOMES: dict[str, str] = {}
for _home, _names in _NAMES_BY_HOME.items():
    _HOMES |= dict.fromkeys(_names.split(), _home)
_PACKAGES = ("counting", "errors", "plan", "planning", "portfolio", "privacy", "scan", "stats", "tally")
"""Where further public names are."""


if not TYPE_CHECKING:  # so that a type checker still knows which names there are

    def __getattr__(name: str) -> Any:
        """Import a name when it is first used; say where any other name is."""
        from contextlib import suppress  # noqa: PLC0415 - not names of this package
        from importlib import import_module  # noqa: PLC0415

        if name in _PACKAGES:
            return import_module(f"kanab.{name}")
        if name in _HOMES:
            globals()[name] = getattr(import_module(f"kanab.{_HOMES[name]}"), name)
            return globals()[name]
        hint = ""
        for package in () if name.startswith("_") else _PACKAGES:
            with suppress(ImportError):  # the others are there without a package that was deleted
                hint = hint or (
                    f"; it is in kanab.{package}" if hasattr(import_module(f"kanab.{package}"), name) else ""
                )
        raise AttributeError(f"module 'kanab' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_PACKAGES, "__version__"])
