"""Sections of a config that name a member of a role, such as `encoder: {type: dense}`: the model
that also takes one from outside, and how the member is made. Only the member that a config names
is loaded."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, WrapValidator, create_model
from pydantic.fields import FieldInfo
from pydantic_core import PydanticKnownError

from distcore_core.config.issues import nearest
from distcore_core.contracts import Role
from distcore_core.errors import PluginError

if TYPE_CHECKING:
    from distcore_core.registry.manager import Plugins

M = TypeVar("M", bound=BaseModel)
R = TypeVar("R")


def make_named(plugins: Plugins, role: Role[R], name: str, section: Any, /, **context: Any) -> R:
    """The member that a section of a config names, made with the section as its options if it takes
    any.

    Args:
        name: As an entry point offers it.
        section: Validated, by the model of `with_members`.
        context: What the role gives its members.

    Raises:
        PluginError: As `Plugins.make`.
    """
    options = section if plugins.options_model(role.kind, name) is not None else None
    return plugins.make(role, name, options, **context)


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
    """The model, whose section `field` takes the member from outside that the config names; else
    the model itself.

    Args:
        given: What the config gives to the model; its section is a name, or a mapping with a
            `type`. None: the section takes every member that is installed and can be loaded, for a
            schema.
        builtin: Names of the members that the model knows itself.
        shared: The options that every member has beside its own.
        prefix: What the names of entry points have before those in the config (`number.`).
        tag: The option that holds the name. Only for `type` does the bare name stand for the
            section.

    Raises:
        PluginError: Two distributions offer the name, or the one that does cannot be loaded.
    """
    members = _Members(role, plugins, shared, prefix, tag)
    if given is None:
        found: list[Any] = [model.model_fields[field].annotation, *members.loadable(builtin)]
        return model if len(found) == 1 else members.taken_by(model, field, Union[tuple(found)])  # noqa: UP007
    section = given.get(field) if isinstance(given, Mapping) else None
    name = section.get(tag) if isinstance(section, Mapping) else section if tag == "type" else None
    if not isinstance(name, str):
        return model
    if prefix + name not in plugins.names(role.kind):
        outside = members.outside(builtin)
        if not outside:
            return model
        return members.taken_by(
            model, field, members.told(model, field, name, [*builtin, *outside])
        )
    plugins.find(role.kind, prefix + name)
    if name in builtin:
        return model
    plugins.named_members.add((role.kind, prefix + name))
    return members.taken_by(model, field, members.section(name))


def with_member_list(
    model: type[M],
    field: str,
    given: Any,
    role: Role[Any],
    plugins: Plugins,
    *,
    shared: type[BaseModel],
) -> type[M]:
    """The model, whose list `field` holds names and sections of members, all of them from outside.

    Arguments and errors: as `with_members`.
    """
    members = _Members(role, plugins, shared, "", "type")
    if given is None:
        known: Any = Union[tuple(members.loadable(()))] if members.outside(()) else Any  # noqa: UP007
        annotation: Any = list[known]
    else:
        section = given.get(field) if isinstance(given, Mapping) else None
        if not isinstance(section, list | tuple) or not section:
            return model
        annotation = tuple[tuple(_of_list(members, each) for each in section)]  # type: ignore[misc]
    info = model.model_fields[field]
    fields: dict[str, Any] = {field: (annotation, Field((), description=info.description))}
    return create_model(model.__name__, __base__=model, __doc__=model.__doc__, **fields)


def _of_list(members: _Members, given: Any) -> Any:
    """The annotation of one of a list: the section of the member that it names."""
    name = given.get("type") if isinstance(given, Mapping) else given
    if not isinstance(name, str):
        name = ""
    if name in members.plugins.names(members.role.kind):
        members.plugins.find(members.role.kind, name)
        members.plugins.named_members.add((members.role.kind, name))
        return Annotated[members.section(name), BeforeValidator(_mapping)]
    installed = members.outside(())

    def refuse(value: Any) -> Any:
        who = f"no installed plugin offers the {members.role.singular} {name!r}"
        wanted = f"should be a name, or a mapping with a type, of a {members.role.singular}"
        known = nearest(name, installed) if installed else "none is installed"
        raise ValueError(f"{who if name else wanted}; {known}")

    return Annotated[Any, BeforeValidator(refuse)]


@dataclass(frozen=True)
class _Members:
    """Those of a role, as a section takes them; the fields are arguments of `with_members`."""

    role: Role[Any]
    plugins: Plugins
    shared: type[BaseModel]
    prefix: str
    tag: str

    def section(self, name: str) -> type[BaseModel]:
        """The model of a section that names this member."""
        own = self.plugins.options_model(self.role.kind, self.prefix + name)
        fields: dict[str, Any] = {self.tag: (Literal[name], name)}
        bases = (self.shared,) if own is None else (own, self.shared)
        made: type[BaseModel] = create_model(
            f"{self.role.kind}.{self.prefix}{name}",
            __base__=bases,
            __doc__=(own or self.shared).__doc__,
            **fields,
        )
        return made

    def loadable(self, builtin: Collection[str]) -> Iterator[type[BaseModel]]:
        """The sections of all members from outside but those that are broken, which
        `distcore plugins` tells."""
        for name in self.outside(builtin):
            with suppress(PluginError):
                yield self.section(name)

    def outside(self, builtin: Collection[str]) -> list[str]:
        """Names that other plugins offer, as a config has them."""
        names = self.plugins.names(self.role.kind)
        found = [name.removeprefix(self.prefix) for name in names if name.startswith(self.prefix)]
        return [name for name in found if name not in builtin]

    def told(self, model: type[M], field: str, name: str, known: list[str]) -> Any:
        """The annotation of a section that names nobody: what is wrong is told with the names
        from outside, too."""
        tags = {
            "discriminator": f"'{self.tag}'",
            "tag": name,
            "expected_tags": ", ".join(map(repr, known)),
        }

        def check(value: Any, handler: Any) -> Any:
            try:
                return handler(value)
            except ValidationError as error:
                kinds = {each["type"]: each["loc"][-1:] for each in error.errors()}
                if "union_tag_invalid" in kinds or kinds.get("literal_error") in ((), (self.tag,)):
                    raise PydanticKnownError("union_tag_invalid", tags) from None
                raise

        info = model.model_fields[field]
        union = Field(discriminator=info.discriminator) if info.discriminator else Field()
        return Annotated[info.rebuild_annotation(), union, WrapValidator(check)]

    def taken_by(self, model: type[M], field: str, annotation: Any) -> type[M]:
        """The model with another annotation of one field. `encoder: name` stands for
        `encoder: {type: name}`."""
        info = model.model_fields[field]
        changed = FieldInfo.from_annotated_attribute(annotation, info.default)
        changed.description, changed.default_factory = info.description, info.default_factory
        if self.tag == "type":
            changed.metadata = [*changed.metadata, BeforeValidator(_mapping)]
        fields: dict[str, Any] = {field: (annotation, changed)}
        return create_model(model.__name__, __base__=model, __doc__=model.__doc__, **fields)


def _mapping(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value
