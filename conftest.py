"""For every test of the workspace: no time limit for a property's example, because a busy machine is no bug."""

from hypothesis import HealthCheck, settings

settings.register_profile("distcore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("distcore")
