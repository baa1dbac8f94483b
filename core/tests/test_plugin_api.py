"""The one module of core that authors import has all that they need."""

import inspect

from distcore_core import contracts, errors, hooks, plugin

INTERNAL = {"T", "singular"}
"""A type variable, and how the registry calls a role."""


def test_every_role_value_and_error_is_there():
    raised = {
        name
        for name, each in vars(errors).items()
        if inspect.isclass(each) and each.__module__ == errors.__name__
    }
    assert set(contracts.__all__) - INTERNAL | raised | {"hookimpl", "Progress"} <= set(
        plugin.__all__
    )


def test_every_name_is_the_one_of_its_own_module():
    assert plugin.hookimpl is hooks.hookimpl
    for name in set(contracts.__all__) - INTERNAL:
        assert getattr(plugin, name) is getattr(contracts, name)
