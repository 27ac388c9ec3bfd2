"""The same examples in every run, so that a failure can be seen again, however busy the machine is."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")
