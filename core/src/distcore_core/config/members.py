"""Sections of a config that name a member of a role, such as `encoder: {type: dense}`: the model that also takes one
from outside. Only the member that a config names is loaded."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union

from pydantic import BaseModel, BeforeValidator, create_model
from pydantic.fields import FieldInfo

from distcore_core.contracts import Role

if TYPE_CHECKING:
    from distcore_core.registry.manager import Plugins

M = TypeVar("M", bound=BaseModel)


def with_members(
    model: type[M],
    field: str,
    given: Any,
    role: Role[Any],
    plugins: Plugins,
    *,
    builtin: Collection[str],
    shared: type[BaseModel],
    prefix: str = "",
    tag: str = "type",
) -> type[M]:
    """The model, whose section `field` takes the member from outside that the config names; else the model itself.

    Args:
        given: What the config gives to the model; its section is a name, or a mapping with a `type`. None: the section
            takes every member that is installed and can be loaded, for a schema.
        builtin: Names of the members that the model knows itself.
        shared: The options that every member has beside its own.
        prefix: What the names of entry points have before those in the config (`number.`).
        tag: The option that holds the name. Only for `type` does the bare name stand for the section.

    Raises:
        PluginError: Two distributions offer the name, or the one that does cannot be loaded.
    """
    if given is None:
        return _with_all(model, field, role, plugins, builtin, shared, prefix, tag)
    section = given.get(field) if isinstance(given, Mapping) else None
    name = section.get(tag) if isinstance(section, Mapping) else section if tag == "type" else None
    if not isinstance(name, str) or prefix + name not in plugins.names(role.kind):
        return model
    plugins.find(role.kind, prefix + name)
    if name in builtin:
        return model
    return _with(model, field, _section(name, role, plugins, shared, prefix, tag), tag)


def _with_all(
    model: type[M],
    field: str,
    role: Role[Any],
    plugins: Plugins,
    builtin: Collection[str],
    shared: type[BaseModel],
    prefix: str,
    tag: str,
) -> type[M]:
    from distcore_core.errors import PluginError

    found: list[Any] = [model.model_fields[field].annotation]
    for name in plugins.names(role.kind):
        short = name.removeprefix(prefix)
        if name.startswith(prefix) and short not in builtin:
            try:
                found.append(_section(short, role, plugins, shared, prefix, tag))
            except PluginError:  # told by `distcore plugins`
                continue
    return model if len(found) == 1 else _with(model, field, Union[tuple(found)], tag)  # noqa: UP007 - made of values


def _section(
    name: str, role: Role[Any], plugins: Plugins, shared: type[BaseModel], prefix: str, tag: str
) -> type[BaseModel]:
    own = plugins.options_model(role.kind, prefix + name)
    fields: dict[str, Any] = {tag: (Literal[name], name)}
    bases = (shared,) if own is None else (own, shared)
    doc = (own or shared).__doc__
    made: type[BaseModel] = create_model(f"{role.kind}.{prefix}{name}", __base__=bases, __doc__=doc, **fields)
    return made


def _with(model: type[M], field: str, annotation: Any, tag: str) -> type[M]:
    """The model with another annotation of one field. `encoder: name` stands for `encoder: {type: name}`."""
    info = model.model_fields[field]
    changed = FieldInfo.from_annotated_attribute(annotation, info.default)
    changed.description, changed.default_factory = info.description, info.default_factory
    if tag == "type":
        changed.metadata = [*changed.metadata, BeforeValidator(_mapping)]
    fields: dict[str, Any] = {field: (annotation, changed)}
    return create_model(model.__name__, __base__=model, __doc__=model.__doc__, **fields)


def _mapping(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value
