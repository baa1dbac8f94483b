"""The config of a run as one value: its features, model, trainer, backend, and where each was
written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal

from distcore_core.config.document import STEP, KeyPath, SourceMap
from distcore_core.config.issues import dotted
from distcore_core.errors import ConfigError, ConfigIssue
from distcore_core.registry.index import DEFAULTS

if TYPE_CHECKING:
    from distcore_core.contracts import JSON, Role
    from distcore_data.preprocess_options import Preprocessing
    from distcore_data.stores import Credentials
    from distcore_torch.train_options import TrainerOptions

DEFAULT_SEED = 42
"""Ludwig's."""

SEED = "whole number from 0 to 2**63 - 1"
"""What a seed may be, in words."""

SECTIONS_OF = {"input": ("preprocessing", "encoder"), "output": ("decoder", "loss")}
"""The sections of a feature in `defaults`, which has those of both roles of a type."""


@dataclass(frozen=True)
class FeatureConfig:
    """One input or output feature.

    column: of the dataset. options: what is left for the plugin of its type; after `resolve`, as
    its model has them (only what was set, so that they validate again to the same). index: position
    in its section as written.
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


BACKEND_OPTIONS = (
    "type",
    "cache_dir",
    "cache_format",
    "cache_credentials",
    "processor",
    "trainer",
    "loader",
)
"""Options of the section `backend` that every backend has."""


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

    def named(self, role: Role[Any]) -> Ref | None:
        """What the section says of a role that a backend has a default for."""
        found: Ref | None = getattr(self, str(role.section))
        return found

    @property
    def credentials(self) -> Credentials | None:
        """What the buckets of the run's cache and results are opened with; None: what the
        environment gives."""
        from distcore_data.stores import Credentials

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

    model: its options hold the `combiner`. hyperopt: as written; training does not read it.
    sections: those that are plugins' alone; after `resolve`, what was set, as their models have it.
    defaults: as written, and already merged in features. notes: older spellings that were
    understood, for people. source_map: where things were written, for the mistakes of pass two.
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
    sections: Mapping[str, JSON] = field(default_factory=dict)
    defaults: JSON = field(default_factory=dict, compare=False, repr=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    source: str = field(default="config", compare=False)
    source_map: SourceMap = field(default_factory=SourceMap, compare=False, repr=False)

    def as_json(self) -> JSON:
        """The config in the words of a config file, without credentials; `load_config` reads it
        back."""
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
            **self.sections,
        }
        return {name: part for name, part in whole.items() if part is not None}


def located(error: ConfigError, config: RunConfig) -> ConfigError:
    """The same mistakes with the lines of the config's text, if whoever found them (during the
    work) had none."""
    features = {
        each.name: (section, number)
        for section in ("input_features", "output_features")
        for number, each in enumerate(getattr(config, section))
    }

    def placed(issue: ConfigIssue) -> ConfigIssue:
        steps = STEP.findall(issue.path)
        path: KeyPath = tuple(int(each[1:-1]) if each.startswith("[") else each for each in steps)
        if path and path[0] in features:
            path = (*features[str(path[0])], *path[1:])
        found = config.source_map.find(path)
        return ConfigIssue(found.line, dotted(*found.path), issue.message) if found.line else issue

    issues = [issue if issue.line or not issue.path else placed(issue) for issue in error.issues]
    return ConfigError(issues, config.source if error.source == "config" else error.source)


def is_seed(value: Any) -> bool:
    """Whether a value may be `random_seed`."""
    return isinstance(value, Integral) and not isinstance(value, bool) and 0 <= int(value) < 1 << 63
