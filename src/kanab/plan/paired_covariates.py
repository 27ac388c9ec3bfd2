"""Pairs of covariates: what an adjustment for several of them at once needs people to be counted by."""

from collections import Counter
from dataclasses import dataclass
from itertools import chain, combinations

from kanab.plan.model import ExperimentPlan, Plan


@dataclass(frozen=True)
class Pair:
    """Two covariates of one experiment, in order of their names."""

    experiment: str
    first: str
    second: str

    @property
    def name(self) -> str:
        """The name of its table, such as checkout/device/tier."""
        return f"{self.experiment}/{self.first}/{self.second}"

    @property
    def covariates(self) -> tuple[str, str]:
        """Both covariates."""
        return self.first, self.second

    def single(self, covariate: str) -> str:
        """Return the name of the table of one of its covariates."""
        return f"{self.experiment}/{covariate}"

    def map_name(self, covariate: str) -> str:
        """Return the name under which the receipt has what was merged of one covariate beyond its own table."""
        return f"{self.name}: {covariate}"


def pairs_of(experiment: ExperimentPlan) -> list[Pair]:
    """Return the pairs that a joint adjustment needs, in the order of their names."""
    return [Pair(experiment.name, *two) for two in combinations(sorted(set(experiment.adjust)), 2)]


def planned_pairs(plan: Plan) -> dict[str, Pair]:
    """Return the pairs of all experiments by the names of their tables; a covariate called so goes before."""
    every = [*chain.from_iterable(map(pairs_of, plan.experiments))]
    taken = Counter([*plan.linkage_names, *(pair.name for pair in every)])
    return {pair.name: pair for pair in every if taken[pair.name] == 1}
