"""Kanab as a provider for OpenFeature: flags are experiments, tracking events are metrics.

During a request it serves one person, whose state the caller holds; without one it counts nobody.
"""
# ruff: noqa: ARG002 - OpenFeature says which parameters there are

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from kanab.client import Client, Person
from kanab.errors import MissingExtraError

try:
    from openfeature.evaluation_context import EvaluationContext
    from openfeature.exception import (
        FlagNotFoundError,
        ProviderNotReadyError,
        TargetingKeyMissingError,
        TypeMismatchError,
    )
    from openfeature.flag_evaluation import FlagResolutionDetails, Reason
    from openfeature.provider import AbstractProvider, Metadata
    from openfeature.track import TrackingEventDetails
except ImportError:
    raise MissingExtraError("a provider for OpenFeature", "openfeature") from None

PATIENCE = 10.0
"""Seconds that a provider waits for the collector's config when it is set."""

_TRUTH = {"true": True, "on": True, "false": False, "off": False}
_Value = TypeVar("_Value")


class KanabProvider(AbstractProvider):
    """Evaluates flags for the person being served, and counts what they do.

    Evaluating a flag enrolls: the levels of covariates are attributes of the context. With ``enroll=False``
    evaluation is not yet meeting the change, and ``Person.enroll`` is left to the caller.

    >>> from kanab.client import Http
    >>> from kanab.plan.model import ExperimentPlan, MetricPlan, Plan
    >>> plan = Plan((MetricPlan("bought", binary=True),), (ExperimentPlan("checkout", (("A", 1), ("B", 1))),))
    >>> provider = KanabProvider(Client(plan, Http("http://localhost:8000")))
    >>> details = provider.resolve_string_details("checkout", "A", EvaluationContext("user-1"))
    >>> details.value, str(details.reason)
    ('B', 'SPLIT')
    """

    def __init__(self, client: Client, *, enroll: bool = True, patience: float = PATIENCE) -> None:
        super().__init__()
        self._client, self._enroll, self._patience = client, enroll, patience
        self._served: ContextVar[Person | None] = ContextVar("kanab-person", default=None)

    @contextmanager
    def serving(self, person: Person) -> Iterator[Person]:
        """Evaluate flags and count events for one person, in this thread or task, while the block lasts."""
        token = self._served.set(person)
        try:
            yield person
        finally:
            self._served.reset(token)

    # ── what OpenFeature asks ──────────────────────────────────────────────────────────────────

    def get_metadata(self) -> Metadata:
        """Return the provider's name."""
        return Metadata(name="kanab")

    def initialize(self, evaluation_context: EvaluationContext) -> None:
        """Wait for the collector's config; raise `ProviderNotReadyError` where it does not come in time."""
        if not self._client.ready(self._patience):
            raise ProviderNotReadyError("the collector's config cannot be read")

    def shutdown(self) -> None:
        """Deliver what waits."""
        self._client.close()

    def resolve_string_details(
        self, flag_key: str, default_value: str, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[str]:
        """Return the arm's name."""
        return self._resolve(flag_key, evaluation_context, lambda arm: arm)

    def resolve_boolean_details(
        self, flag_key: str, default_value: bool, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[bool]:
        """Return an arm that is called on or off, true or false, as a boolean."""
        return self._resolve(flag_key, evaluation_context, lambda arm: _TRUTH[arm])

    def resolve_integer_details(
        self, flag_key: str, default_value: int, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[int]:
        """Return an arm that is a whole number."""
        return self._resolve(flag_key, evaluation_context, int)

    def resolve_float_details(
        self, flag_key: str, default_value: float, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[float]:
        """Return an arm that is a number."""
        return self._resolve(flag_key, evaluation_context, float)

    def resolve_object_details(
        self,
        flag_key: str,
        default_value: Sequence[Any] | Mapping[str, Any],
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[Sequence[Any] | Mapping[str, Any]]:
        """Raise `TypeMismatchError`: an arm is a name, never an object."""
        raise TypeMismatchError("arms are texts, numbers or true and false")

    def track(
        self,
        tracking_event_name: str,
        evaluation_context: EvaluationContext | None = None,
        tracking_event_details: TrackingEventDetails | None = None,
    ) -> None:
        """Add the event's value, or 1, to the running total of the metric with the event's name."""
        person = self._served.get()
        value = None if tracking_event_details is None else tracking_event_details.value
        if person is not None:
            person.track(tracking_event_name, 1 if value is None else value)

    # ── within ─────────────────────────────────────────────────────────────────────────────────

    def _resolve(
        self, flag: str, context: EvaluationContext | None, read: Callable[[str], _Value]
    ) -> FlagResolutionDetails[_Value]:
        if self._client.config is None:
            raise ProviderNotReadyError("the collector's config is not known yet")
        if flag not in self._client.config.experiments:
            raise FlagNotFoundError("the plan has no experiment of this name")
        served = self._served.get()
        key = None if context is None else context.targeting_key
        if served is None and not key:
            raise TargetingKeyMissingError("serve a person, or give a targeting key")
        person = served or self._client.person(id=key)
        arm = person.variant(flag)
        if arm is None:
            raise ProviderNotReadyError("this person came before the config was known")
        try:
            value = read(arm)
        except (KeyError, ValueError):
            raise TypeMismatchError("the arms of this experiment are of another type") from None
        if self._enroll and served is not None:
            served.enroll(flag, {} if context is None else context.attributes)
        return FlagResolutionDetails(value, variant=arm, reason=Reason.SPLIT)
