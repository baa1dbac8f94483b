"""A plugin for an API that is not this core's."""

DISTCORE_API = (2, 0)
