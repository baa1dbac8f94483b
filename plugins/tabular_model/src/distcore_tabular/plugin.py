"""What distcore-tabular offers: features for tables and text, the network they declare, and the
user's own module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distcore_core.plugin import hookimpl

DISTCORE_API = (1, 0)

DATA_VERSION = 4
"""Raised whenever these features encode the same rows otherwise: caches and models of another
are then refused."""


@hookimpl
def distcore_make_feature(name: str, column: str, role: str, options: Any, plugins: Any) -> Any:
    from distcore_tabular import features

    return features.make(name, column, role, options, tuple(sorted(plugins.block)))


@hookimpl
def distcore_make_member(kind: str, name: str, options: Any, context: Mapping[str, Any]) -> Any:
    from distcore_tabular.builtin import make

    return make(kind, name, options, context)


@hookimpl
def distcore_make_model(name: str, options: Any, plugins: Any) -> Any:
    if name == "tabular":
        from distcore_tabular.network import TabularModel

        return TabularModel(options, tuple(sorted(plugins.block)))
    if name == "module":
        from distcore_tabular.module import ModuleModel

        return ModuleModel(options)
    return None


@hookimpl
def distcore_options_model(
    kind: str, name: str, role: str, given: Any, plugins: Any
) -> type | None:
    from distcore_tabular.options_models import model_of, with_members_of

    found = model_of(kind, name, role)
    return found if found is None else with_members_of(found, name, role, given, plugins)


@hookimpl
def distcore_check(kind: str, name: str, options: Any) -> None:
    if (kind, name) == ("models", "module"):
        from distcore_tabular.module import ModuleModel

        ModuleModel(options).check()


@hookimpl
def distcore_describe_model(model: Any, saved: bool) -> Any:
    from torch import nn

    if not isinstance(model, nn.Module) and not (
        isinstance(model, type) and issubclass(model, nn.Module)
    ):
        return None
    from distcore_tabular.module import describe

    return describe(model, saved)


@hookimpl
def distcore_upgrade_config(document: Any) -> list[str]:
    from distcore_tabular.ludwig_upgrade import upgrade

    return upgrade(document)


@hookimpl
def distcore_known_elsewhere(kind: str, name: str) -> str | None:
    from distcore_tabular.ludwig_upgrade import known

    return known(kind, name)
