"""For every test of the workspace: no time limit for a property's example, because a busy machine is no bug."""

from hypothesis import settings

settings.register_profile("distcore", deadline=None)
settings.load_profile("distcore")
