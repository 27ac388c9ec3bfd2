"""A/B testing that keeps counts and sums, not people.

>>> import numpy as np, kanab as kb
>>> rng = np.random.default_rng(1)
>>> people = {"variant": rng.choice(["A", "B"], 900), "bought": rng.random(900) < 0.2}
>>> print(kb.readout(people, arm="variant", metrics=["bought"]).effects[0].effect)
bought: B − A = 0.007087 ± 0.02535, 95% interval -0.04266 … 0.05683, t(893.7) = 0.2796, p = 0.780
"""

from importlib import import_module
from types import ModuleType

from kanab.analysis.api import analyze, readout
from kanab.analysis.options import Looks
from kanab.analysis.readout import Readout
from kanab.counted import Counted
from kanab.counting.class_table import read_classes
from kanab.counting.columns import count_columns
from kanab.counting.dispatch import count
from kanab.errors import KanabError, PrivacyError
from kanab.plan.file import read_plan
from kanab.plan.model import Plan, make_plan
from kanab.privacy.batches import add_releases
from kanab.privacy.gate import release
from kanab.privacy.ledger import Ledger, read_ledger
from kanab.privacy.release import Receipt, Release
from kanab.privacy.release_file import read_release, write_release
from kanab.stats.bayes import Prior
from kanab.stats.margins import Margin
from kanab.tally.factor import Factor
from kanab.tally.metric import Metric
from kanab.tally.tally import Tally

__version__ = "0.1.0"

__all__ = [
    "Counted",
    "Factor",
    "KanabError",
    "Ledger",
    "Looks",
    "Margin",
    "Metric",
    "Plan",
    "Prior",
    "PrivacyError",
    "Readout",
    "Receipt",
    "Release",
    "Tally",
    "add_releases",
    "analyze",
    "count",
    "count_columns",
    "make_plan",
    "read_classes",
    "read_ledger",
    "read_plan",
    "read_release",
    "readout",
    "release",
    "write_release",
]

_ROOMS = ("planning", "scan")


def __getattr__(name: str) -> ModuleType:
    """Import a room when it is first asked for: ``kb.planning``, ``kb.scan``."""
    if name in _ROOMS:
        return import_module(f"kanab.{name}")
    raise AttributeError(f"module 'kanab' has no attribute {name!r}")
