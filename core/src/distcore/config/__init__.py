"""The config of a run: its shape, and the two passes that read it.

Pass one (`load_config`) reads names and structure and what core itself understands, without importing any plugin.
Pass two (`resolve`) lets each plugin's own model validate its options. Every mistake of both is told at once, with its
line, its path and the nearest right word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from distcore.config.document import Document, Places
from distcore.config.preprocess_options import Preprocessing
from distcore.config.train_options import TrainerOptions
from distcore.errors import ConfigError, DistcoreError
from distcore.offers import DEFAULTS

if TYPE_CHECKING:
    from distcore.plugins import Plugins
    from distcore.stores import Credentials

JSON = dict[str, Any]

DEFAULT_SEED = 42
"""Ludwig's."""


@dataclass(frozen=True)
class FeatureConfig:
    """One input or output feature.

    column: of the dataset. options: what is left for the plugin of its type; after `resolve`, as its model has them
    (only what was set, so that they validate again to the same). index: position in its section as written.
    """

    name: str
    type: str
    column: str
    role: Literal["input", "output"]
    options: JSON = field(default_factory=dict)
    index: int = field(default=0, compare=False, repr=False)

    def as_json(self) -> JSON:
        return {"name": self.name, "type": self.type, "column": self.column, **self.options}


@dataclass(frozen=True)
class Ref:
    """A plugin by name, with its options. type: "" is the backend's default, with these options.

    named: whether somebody wrote the type, which is else the default of all configs."""

    type: str
    options: JSON = field(default_factory=dict)
    named: bool = field(default=True, compare=False, repr=False)

    def as_json(self) -> JSON:
        return {**({"type": self.type} if self.type else {}), **self.options}


@dataclass(frozen=True)
class BackendConfig:
    """The `backend` section. type: None is to be detected. options: the backend's own.

    cache_credentials: never shown, never part of `as_json`."""

    type: str | None = None
    options: JSON = field(default_factory=dict)
    cache_dir: str | None = None
    cache_format: Ref = Ref(DEFAULTS["caches"], named=False)
    cache_credentials: JSON | None = field(default=None, repr=False)
    processor: Ref | None = None
    trainer: Ref | None = None
    loader: Ref | None = None

    @property
    def credentials(self) -> Credentials | None:
        """What the buckets of the run's cache and results are opened with; None: what the environment gives."""
        from distcore.stores import Credentials

        return Credentials(self.cache_credentials) if self.cache_credentials is not None else None

    def as_json(self) -> JSON:
        parts: JSON = {"type": self.type, "cache_dir": self.cache_dir, **self.options}
        for name in ("cache_format", "processor", "trainer", "loader"):
            reference = getattr(self, name)
            parts[name] = reference.as_json() if reference is not None else None
        return {name: part for name, part in parts.items() if part is not None}


@dataclass(frozen=True)
class RunConfig:
    """A whole config: plain values that pickle.

    model: its options hold the `combiner`. hyperopt: as written; training does not read it. defaults: as written, and
    already merged into the features. notes: older spellings that were understood, for people. places: where things were
    written, for the mistakes of pass two.
    """

    input_features: tuple[FeatureConfig, ...]
    output_features: tuple[FeatureConfig, ...]
    preprocessing: Preprocessing
    model: Ref
    trainer: TrainerOptions
    backend: BackendConfig = BackendConfig()
    plugins_block: tuple[str, ...] = ()
    extensions: tuple[Ref, ...] = ()
    random_seed: int = DEFAULT_SEED
    hyperopt: JSON | None = None
    defaults: JSON = field(default_factory=dict, compare=False, repr=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    source: str = field(default="config", compare=False)
    places: Places = field(default_factory=Places, compare=False, repr=False)

    def as_json(self) -> JSON:
        """The config in the words of a config file, without credentials; `load_config` reads it back."""
        model = dict(self.model.options)
        whole: JSON = {
            "input_features": [each.as_json() for each in self.input_features],
            "output_features": [each.as_json() for each in self.output_features],
            "preprocessing": self.preprocessing.model_dump(mode="json"),
            "combiner": model.pop("combiner", None),
            "model": {"type": self.model.type, **model},
            "trainer": self.trainer.model_dump(mode="json"),
            "backend": self.backend.as_json(),
            "plugins": {"block": list(self.plugins_block)} if self.plugins_block else None,
            "extensions": [each.as_json() for each in self.extensions] or None,
            "random_seed": self.random_seed,
            "hyperopt": self.hyperopt,
        }
        return {name: part for name, part in whole.items() if part is not None}


def load_config(
    source: str | Path | Mapping[str, Any] | Document | RunConfig,
    *,
    text: str | None = None,
    backend: str | None = None,
    random_seed: int | None = None,
) -> RunConfig:
    """Pass one. Raises ConfigError with every mistake (also those of pass two, where the first pass found any).

    source: path of a YAML or JSON file, a mapping, YAML text of several lines, or what a pass before gave.
    text: the YAML text itself; `source` is then its name. backend, random_seed: override what the config says.
    """
    if isinstance(source, RunConfig):
        return with_overrides(source, backend=backend, random_seed=random_seed)
    from distcore.config.read import read

    config, mistakes = read(document_of(source, text))
    config = with_overrides(config, backend=backend, random_seed=random_seed)
    if mistakes:
        raise ConfigError(sorted({*mistakes, *_mistakes_of_plugins(config)}), config.source)
    return config


def resolve(
    config: RunConfig, plugins: Plugins, defaults: Mapping[str, str] | None = None, backend: str | None = None
) -> RunConfig:
    """Pass two: every plugin's options validated by its own model. Raises ConfigError with every mistake, PluginError
    where a plugin that is named cannot be used.

    defaults: {"processor" | "loader" | "trainer": name} of the backend, for a section that gives options and no type;
    without it such a section is left as it is. backend: the one that was detected, where the config names none.
    What is resolved can be resolved again, with more defaults.
    """
    from distcore.config.resolver import Resolver

    resolver = Resolver(config, plugins, defaults or {}, backend)
    resolved = resolver.config()
    if resolver.mistakes:
        raise ConfigError(sorted(set(resolver.mistakes)), config.source)
    return resolved


def with_overrides(config: RunConfig, *, backend: str | None = None, random_seed: int | None = None) -> RunConfig:
    """The config as the command line wants it. Overriding the backend keeps the rest of its section."""
    if backend is not None:
        config = replace(config, backend=replace(config.backend, type=backend))
    if random_seed is not None:
        config = replace(config, random_seed=random_seed)
    return config


def document_of(source: str | Path | Mapping[str, Any] | Document, text: str | None = None) -> Document:
    """The document of what `load_config` takes. Raises ConfigError where it cannot be read."""
    from distcore.config.document import from_mapping, parse, read_document

    if text is not None:
        return parse(text, str(source) if isinstance(source, str | Path) else "config")
    if isinstance(source, Document):
        return source
    if isinstance(source, Mapping):
        return from_mapping(source)
    if isinstance(source, str) and ("\n" in source or source.lstrip().startswith("{")):
        return parse(source)
    return read_document(source)


def _mistakes_of_plugins(config: RunConfig) -> list[Any]:
    """What pass two would say about a config that pass one found wrong, so that both are told at once."""
    from distcore.config.resolver import Resolver
    from distcore.plugins import Plugins

    try:
        resolver = Resolver(config, Plugins(config.plugins_block), {})
        resolver.config()
    except DistcoreError:
        return []  # a plugin that cannot be used is told once the config itself is right
    return resolver.mistakes
