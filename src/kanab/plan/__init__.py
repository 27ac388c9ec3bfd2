"""What may be counted: experiments, covariates, metrics, periods and k. Others import `Plan` and `read_plan`."""

from kanab.plan.file import parse_plan, plan_digest
from kanab.plan.periods import Span

__all__ = ["Span", "parse_plan", "plan_digest"]
