"""The config of a run: its shape, and the two passes that read it.

Pass one (`load_config`) turns older spellings into today's, through the plugins that know them, and
reads names and structure and what the app itself understands; no other plugin is imported.
Pass two (`resolve`) lets each plugin's own model validate its options. Every mistake of both is
told at once, with its line, its path and the nearest right word.
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore.config.run_config import (
    DEFAULT_SEED,
    SEED,
    BackendConfig,
    FeatureConfig,
    Ref,
    RunConfig,
    is_seed,
)
from distcore_core.config.document import Document, Place, SourceMap
from distcore_core.errors import ConfigError, DistcoreError, UserError

if TYPE_CHECKING:
    from distcore.config.resolver import Resolver
    from distcore_core.registry.manager import Plugins

__all__ = [
    "DEFAULT_SEED",
    "BackendConfig",
    "FeatureConfig",
    "Ref",
    "RunConfig",
    "document_of",
    "load_config",
    "resolve",
    "with_overrides",
]


def load_config(
    source: str | Path | Mapping[str, Any] | Document | RunConfig | None,
    *,
    backend: str | None = None,
    random_seed: int | None = None,
    plugins: Plugins | None = None,
) -> RunConfig:
    """Pass one. Raises ConfigError with every mistake (also those of pass two, if the first pass
    found any).

    source: path of a YAML or JSON file, a mapping, YAML text of several lines, or what a pass
        before gave.
    backend, random_seed: override what the config says.
    plugins: those at hand; without them the installed ones that the config does not block.
    """
    if isinstance(source, RunConfig):
        return with_overrides(source, backend=backend, random_seed=random_seed)
    from distcore.config.read import read

    config, issues = read(document_of(source), plugins)
    config = with_overrides(config, backend=backend, random_seed=random_seed)
    if issues:
        raise ConfigError(sorted({*issues, *_mistakes_of_plugins(config)}), config.source)
    return config


def resolve(
    config: RunConfig,
    plugins: Plugins,
    defaults: Mapping[str, str] | None = None,
    backend: str | None = None,
) -> RunConfig:
    """Pass two: every plugin's options validated by its own model. Raises ConfigError with every
    mistake, PluginError if a plugin that is named cannot be used.

    defaults: {"processor" | "loader" | "trainer": name} of the backend, for a section that gives
    options and no type; without it such a section is left as it is. backend: the one that was
    detected, if the config names none. What is resolved can be resolved again, with more defaults.
    """
    from distcore.config.resolver import Resolver

    return _of(resolver := Resolver(config, plugins, defaults or {}, backend), resolver.config())


def completed(
    config: RunConfig, plugins: Plugins, defaults: Mapping[str, str], backend: str
) -> RunConfig:
    """A config that was resolved without the backend's defaults, as if it had been resolved with
    them: a thousand features are not validated again. Raises as `resolve`."""
    from distcore.config.resolver import Resolver

    return _of(resolver := Resolver(config, plugins, defaults, backend), resolver.completed())


def _of(resolver: Resolver, resolved: RunConfig) -> RunConfig:
    if resolver.issues:
        raise ConfigError(sorted(set(resolver.issues)), resolver.given.source)
    return resolved


def with_overrides(
    config: RunConfig, *, backend: str | None = None, random_seed: int | None = None
) -> RunConfig:
    """The config as the command line wants it. Overriding the backend keeps the rest of its
    section. Raises UserError for a seed or a backend's name that is none."""
    if backend is not None:
        if not isinstance(backend, str):
            raise UserError(
                f"backend is {backend!r}, and no name. Give its name, and its options in the "
                "config's section `backend`."
            )
        given = SourceMap(config.source_map)
        given[("backend", "type")] = Place(0, ("--backend",))
        config = replace(config, backend=replace(config.backend, type=backend), source_map=given)
    if random_seed is not None:
        if not is_seed(random_seed):
            raise UserError(f"--random_seed should be a {SEED}, not {random_seed}.")
        config = replace(config, random_seed=int(random_seed))  # it may be numpy's
    return config


def document_of(source: str | Path | Mapping[str, Any] | Document | None) -> Document:
    """The document of what `load_config` takes. Raises UserError if there is none, ConfigError
    if it cannot be read."""
    from distcore.config.yaml_document import from_mapping, parse, read_document

    if source is None:
        raise UserError(
            "No config was given. Give one with --config or --config_str; `distcore init` writes "
            "one."
        )
    if isinstance(source, Document):
        return source
    if isinstance(source, Mapping):
        return from_mapping(source)
    if isinstance(source, str) and _is_text(source):
        return parse(source)
    if not isinstance(source, str | os.PathLike):
        raise UserError(
            f"The config is {reprlib.repr(source)}. Give the path of a YAML file, YAML text of "
            "several lines, or a mapping."
        )
    return read_document(source)


def _is_text(source: str) -> bool:
    """Whether it is YAML, and not the name of a file, which may hold anything too."""
    return ("\n" in source or source.lstrip().startswith("{")) and not os.path.exists(source)


def _mistakes_of_plugins(config: RunConfig) -> list[Any]:
    """What pass two would say about a config that pass one found wrong, so that both are told at
    once."""
    from distcore.config.resolver import Resolver
    from distcore_core.registry.manager import Plugins

    try:
        resolver = Resolver(config, Plugins(config.plugins_block), {})
        resolver.config()
    except DistcoreError:
        return []  # a plugin that cannot be used is told once the config itself is right
    return resolver.issues
