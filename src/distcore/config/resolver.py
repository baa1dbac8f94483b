"""Pass two over a config: each plugin's own model validates its options, and older flat options
find their section."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from distcore.config.mistakes import validated
from distcore.config.run_config import BACKEND_OPTIONS, SECTIONS_OF, FeatureConfig, Ref, RunConfig
from distcore_core.config.document import KeyPath, SourceMap
from distcore_core.config.issues import fields_at, nearest, unknown_option
from distcore_core.contracts import JSON, ROLES, SECTION
from distcore_core.errors import ConfigIssue, PluginNotFound

if TYPE_CHECKING:
    from distcore_core.registry.manager import Plugins

PARTS = {kind: role.section for kind, role in ROLES.items() if role.section}
"""The options of `backend` that name a plugin, by its kind."""

FULLY_CONNECTED = (
    "fc_layers",
    "output_size",
    "use_bias",
    "weights_initializer",
    "bias_initializer",
    "norm",
    "norm_params",
    "activation",
    "dropout",
)
"""Flat options of an output feature that a decoder knows with `fc_` before them (Ludwig before
0.6); of its last layer, too, where it knows them without."""


class Resolver:
    """Validates what a config says to plugins. `issues` holds what was wrong; nothing is raised for
    it.

    defaults: the backend's default processor, loader and trainer, for sections without a type.
    backend: its name, if the config names none.
    """

    def __init__(
        self,
        config: RunConfig,
        plugins: Plugins,
        defaults: Mapping[str, str],
        backend: str | None = None,
    ) -> None:
        self.backend = config.backend.type or backend
        self.given = config
        self.plugins = plugins
        self.defaults = defaults
        self.source_map = SourceMap(config.source_map)
        self.issues: list[ConfigIssue] = []
        self.notes: dict[str, None] = dict.fromkeys(config.notes)
        self._models: dict[tuple[str, str, str], Any] = {}
        self._known: dict[tuple[str, str, str], JSON] = {}

    def config(self) -> RunConfig:
        """The config with every plugin's options as its own model has them."""
        given, backend = self.given, self.given.backend
        self._check_defaults()
        return replace(
            given,
            input_features=tuple(self._feature(each) for each in given.input_features),
            output_features=tuple(self._feature(each) for each in given.output_features),
            model=self._reference("models", given.model, ("model",)),
            extensions=tuple(
                self._reference("extensions", each, ("extensions", index))
                for index, each in enumerate(given.extensions)
            ),
            backend=replace(
                backend,
                options=self._backend_options(),
                cache_format=self._reference(
                    "caches", backend.cache_format, ("backend", "cache_format")
                ),
                **self._parts(),
            ),
            sections={name: self._section(name, values) for name, values in given.sections.items()},
            notes=tuple(self.notes),
            defaults={},
        )

    def completed(self) -> RunConfig:
        """A config that was resolved, with the parts of the backend that it gives no type."""
        return replace(self.given, backend=replace(self.given.backend, **self._parts()))

    def _parts(self) -> dict[str, Any]:
        """The backend's processor, trainer and loader."""
        return {place: self._part(kind, place) for kind, place in PARTS.items()}

    # -------------------------------------------------------------- one plugin

    def _validated(
        self, kind: str, name: str, role: str, options: dict[str, Any], path: KeyPath
    ) -> dict[str, Any]:
        """The options as the plugin's model has them; unchanged if they are wrong."""
        try:
            model: Any = self.plugins.options_model(kind, name, role, options)
        except PluginNotFound as error:
            known = self.plugins.known_elsewhere(kind, name)
            said = [known, str(error), *self._in_another_place(kind, name)]
            self._wrong((*path, "type"), " ".join(each for each in said if each))
            return options
        if model is None:
            for option in options:
                self._wrong((*path, option), unknown_option(option, []))
            return options
        if kind == "features":
            options = self._nested(model, role, options, path)
        return self._by(model, options, path)

    def _in_another_place(self, kind: str, name: str) -> Iterator[str]:
        """Where a part of the backend is named that was given for another one, such as the
        processor `dask` for the backend."""
        for other, place in PARTS.items():
            if kind in ("backends", *PARTS) and name in self.plugins.names(other):
                yield f"There is a {place} {name!r}: that is named in backend.{place}."

    def _by(self, model: Any, options: dict[str, Any], path: KeyPath) -> dict[str, Any]:
        """The options as a model has them; unchanged if they are wrong."""
        made, problems = validated(model, options)
        for problem in problems:
            self._wrong((*path, *problem.path), problem.message)
        if made is None:
            return options
        # Only what was set: a model may tell "not given" from "given as the default", and it
        # validates again.
        return dict(made.model_dump(mode="json", by_alias=True, exclude_unset=True))

    def _model(self, kind: str, name: str, role: str) -> Any:
        key = (kind, name, role)
        if key not in self._models:
            self._models[key] = self.plugins.options_model(kind, name, role)
        return self._models[key]

    def _wrong(self, path: KeyPath, message: str) -> None:
        self.issues.append(self.source_map.issue(path, message))

    def _reference(self, kind: str, reference: Ref, path: KeyPath) -> Ref:
        return replace(
            reference, options=self._validated(kind, reference.type, "", reference.options, path)
        )

    def _part(self, kind: str, name: str) -> Ref | None:
        """The backend's processor, trainer or loader."""
        reference: Ref | None = getattr(self.given.backend, name)
        if reference is None:
            return None
        chosen = reference.type or self.defaults.get(name)
        return (
            self._reference(kind, Ref(chosen, reference.options), ("backend", name))
            if chosen
            else reference
        )

    def _backend_options(self) -> dict[str, Any]:
        """The backend's own options. What neither it nor core knows is told with the nearest
        word of both."""
        options, known = self.given.backend.options, {*BACKEND_OPTIONS}
        if self.backend is not None:
            try:
                model = self._model("backends", self.backend, "")
            except PluginNotFound:
                return self._validated("backends", self.backend, "", options, ("backend",))
            known |= set(fields_at(model, ()) if model is not None else ())
        own = {option: value for option, value in options.items() if option in known}
        for option in options.keys() - own.keys():
            told = self.plugins.known_elsewhere(SECTION.kind, f"backend.{option}")
            self._wrong(("backend", option), told or unknown_option(option, known))
        return (
            own
            if self.backend is None
            else self._validated("backends", self.backend, "", own, ("backend",))
        )

    def _section(self, name: str, values: dict[str, Any]) -> dict[str, Any]:
        """A section that is a plugin's alone."""
        return self._by(
            self.plugins.make(SECTION, name, given=values, plugins=self.plugins), values, (name,)
        )

    # -------------------------------------------------------------- features

    def _feature(self, feature: FeatureConfig) -> FeatureConfig:
        """Of a thousand features most say the same of themselves, and are validated once."""
        key = (feature.type, feature.role, json.dumps(feature.options))
        known = self._known.get(key)
        if known is not None:
            return replace(feature, options=copy.deepcopy(known))
        told, moved = len(self.issues), len(self.source_map)
        path: KeyPath = (f"{feature.role}_features", feature.index)
        options = self._validated("features", feature.type, feature.role, feature.options, path)
        # What is wrong, or moves to another place in the config, is told for each feature.
        if (told, moved) == (len(self.issues), len(self.source_map)):
            self._known[key] = options
        return replace(feature, options=options)

    def _nested(
        self, model: Any, role: str, options: dict[str, Any], path: KeyPath
    ) -> dict[str, Any]:
        """Flat options of the encoder or decoder (Ludwig before 0.6) moved into its section."""
        section = "encoder" if role == "input" else "decoder"
        known = fields_at(model, ())
        if section not in known or not isinstance(options.get(section, {}), dict):
            return options
        inner = dict(options.get(section, {}))
        inside = fields_at(model, (section,), {section: inner})
        moved = dict(options)
        for option in [each for each in options if each not in known]:
            layers = role == "output" and option in FULLY_CONNECTED
            names = [f"fc_{option}", option] if layers else [option]
            targets = [each for each in names if each in inside and each not in inner]
            if targets:
                line, _ = self.source_map.find((*path, option))
                value = moved.pop(option)
                for target in targets:
                    inner[target] = value
                    self.source_map.follow(value, (*path, option), (*path, section, target))
                said = " and ".join(f"`{path[0]}.{section}.{target}`" for target in targets)
                self._note_once(line, f"`{path[0]}.{option}` is an older spelling of {said}")
                moved[section] = inner
        return moved

    def _note_once(self, line: int, told: str) -> None:
        """At the first line of those that say it: of a thousand features most do."""
        if not any(each.endswith(told) for each in self.notes):
            self.notes[f"line {line}: {told}" if line else told] = None

    def _check_defaults(self) -> None:
        """Every section of `defaults`, also of types that no feature has: a type that nobody
        offers is a mistake."""
        installed = set(self.plugins.names("features"))
        for kind, section in self.given.defaults.items():
            if kind not in installed:
                if self.plugins.known_elsewhere("features", kind) is None:
                    message = (
                        f"there is no feature type {kind!r}; "
                        f"{nearest(kind, installed | {'split', 'csv'})}"
                    )
                    self._wrong(("defaults", kind), message)
                continue
            for role, sections in SECTIONS_OF.items():
                options = {name: value for name, value in section.items() if name in sections}
                model = self._model("features", kind, role) if options else None
                if model is not None and not _refuses_all(model):
                    self._validated("features", kind, role, options, ("defaults", kind))


def _refuses_all(model: Any) -> bool:
    """Whether the type cannot have this role at all, so that nothing said for it matters until a
    feature has it."""
    try:
        model.model_validate({})
    except ValidationError as error:
        return any(not each["loc"] for each in error.errors())
    return False
