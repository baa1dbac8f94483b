"""The features of a run: made from the config, fitted by preprocessing, carried by caches and
artifacts as JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from distcore_core.contracts import FEATURE, JSON, Column, Feature, FeatureSet
from distcore_core.contracts.roles import singular
from distcore_core.errors import ArtifactError, ConfigError, ConfigIssue, PluginBroken
from distcore_core.registry.index import Encoder

if TYPE_CHECKING:
    from distcore_core.registry.manager import Plugins

log = logging.getLogger("distcore")

OWN = ("name", "type", "column")
"""What a feature's section says of the feature itself; the rest are options of its type."""


RAW = ("number", "category", "string", "time")
"""What `Feature.raw` may be."""


def agreed(one: str, other: str) -> str | None:
    """How a column is read (`Feature.raw`) that two ask for; None if it cannot be for both."""
    if one == other:
        return one
    return "category" if {one, other} == {"category", "time"} else None


@dataclass(frozen=True)
class Features:
    """A `contracts.FeatureSet`. Before preprocessing, `metadata` and `columns` are empty.

    source_columns: {feature name: name of the column in the dataset}.
    specifications: what `from_json` needs to make the same features again.
    encoders: {type: who encodes it}, and {"kind:name": who offers it} of the members of other
        distributions that their encoded bytes depend on (`Feature.encoded_by`).
    """

    inputs: Sequence[Feature]
    outputs: Sequence[Feature]
    source_columns: Mapping[str, str]
    specifications: Sequence[JSON]
    metadata: Mapping[str, JSON] = field(default_factory=dict)
    columns: Mapping[str, Column] = field(default_factory=dict)
    encoders: Mapping[str, Encoder] = field(default_factory=dict)

    @classmethod
    def of(cls, config: JSON, plugins: Plugins) -> Features:
        """The unfitted features that a resolved config declares.

        Args:
            config: As plain JSON (`TrainJob.config`).
            plugins: Those that make them.

        Raises:
            PluginError: One cannot be made.
            ConfigError: Its options are not what its type takes.
        """
        specifications = [
            {
                "name": each["name"],
                "type": each["type"],
                "column": each.get("column", each["name"]),
                "role": role,
                "options": {name: value for name, value in each.items() if name not in OWN},
            }
            for role in ("input", "output")
            for each in config[f"{role}_features"]
        ]
        return cls._make(specifications, plugins)

    @classmethod
    def from_json(cls, saved: JSON, plugins: Plugins) -> Features:
        """The fitted features that `as_json` wrote.

        Raises:
            ArtifactError: A part is missing, or a plugin that is installed encodes otherwise than
                the one that fitted them.
        """
        try:
            _check_encoders(saved.get("encoders") or {}, plugins)
            return cls._make(saved["features"], plugins).fitted(saved["metadata"])
        except (KeyError, TypeError) as error:
            raise ArtifactError(
                f"The saved features are incomplete ({error!r}). Write the model or the cache "
                "again with this version."
            ) from error

    def as_json(self) -> JSON:
        encoders = {name: each.as_json() for name, each in self.encoders.items()}
        return {
            "features": list(self.specifications),
            "metadata": dict(self.metadata),
            "encoders": encoders,
        }

    def fitted(self, metadata: Mapping[str, JSON]) -> Features:
        """The same features with what preprocessing found.

        Args:
            metadata: {feature: what `Feature.finish` returned}.
        """
        columns = {feature.name: feature.column(metadata[feature.name]) for feature in self}
        return replace(self, metadata=dict(metadata), columns=columns)

    def __iter__(self) -> Any:
        yield from self.inputs
        yield from self.outputs

    @property
    def types(self) -> dict[str, str]:
        """{feature: the name of its type}."""
        return {each["name"]: each["type"] for each in self.specifications}

    def raw(self, roles: Sequence[str] = ("input", "output")) -> dict[str, str]:
        """{dataset column: how to read it}. Raises ConfigError if two features read one column
        in two ways."""
        wanted: dict[str, str] = {}
        for feature in in_roles(self, roles):
            column = self.source_columns[feature.name]
            if feature.raw not in RAW:
                raise PluginBroken(
                    f"{type(feature).__module__}.{type(feature).__qualname__}.raw is "
                    f"{feature.raw!r}, which is none of {', '.join(RAW)}. "
                    "Report this to its authors."
                )
            read = agreed(wanted.get(column, feature.raw), feature.raw)
            if read is None:
                raise ConfigError(
                    [
                        ConfigIssue(
                            0,
                            feature.name,
                            f"column {column!r} is read as {wanted[column]} by another feature and "
                            f"as {feature.raw} here; give the dataset a second column, or use "
                            "types that read alike",
                        )
                    ]
                )
            wanted[column] = read
        return wanted

    @classmethod
    def _make(cls, specifications: Sequence[JSON], plugins: Plugins) -> Features:
        made: dict[str, list[Feature]] = {"input": [], "output": []}
        known: dict[tuple[str, str, str], Any] = {}
        for each in specifications:
            kind, role, options = each["type"], each["role"], each["options"]
            key = (kind, role, json.dumps(options))
            if key not in known:
                valid = plugins.validate(FEATURE.kind, kind, options, role)
                # Only what cannot change is one object of many features.
                known[key] = valid if _frozen(valid) else options
            feature = plugins.make(FEATURE, kind, known[key], column=each["name"], role=role)
            made[role].append(feature)
        sources = {each["name"]: each["column"] for each in specifications}
        types = dict.fromkeys(each["type"] for each in specifications)
        encoders = {name: plugins.encoder("features", name) for name in types}
        own = {each.encoding for each in encoders.values()}
        features = [*made["input"], *made["output"]]
        for kind, name in sorted({pair for each in features for pair in each.encoded_by}):
            encoder = plugins.encoder(kind, name)
            if encoder.encoding not in own:  # that version is there already
                encoders[f"{kind}:{name}"] = encoder
        return cls(
            tuple(made["input"]),
            tuple(made["output"]),
            sources,
            list(specifications),
            encoders=encoders,
        )


def in_roles(features: FeatureSet, roles: Sequence[str]) -> list[Feature]:
    """The features that are "input", "output" or either, inputs first."""
    of_role = {"input": features.inputs, "output": features.outputs}
    return [each for role, some in of_role.items() if role in roles for each in some]


def _frozen(options: Any) -> bool:
    return bool(getattr(options, "model_config", {}).get("frozen"))


def _check_encoders(saved: Mapping[str, Mapping[str, str]], plugins: Plugins) -> None:
    """Compare who fitted the features with who encodes now. Raises ArtifactError naming both."""
    for key, each in saved.items():
        kind, _, name = key.rpartition(":")
        then, now = Encoder(**each), plugins.encoder(kind or "features", name)
        of_type = f"{name} features of this model were fitted with {then.who}"
        of_member = f"features of this model were encoded by {kind} {name!r} of {then.who}"
        what = of_member if kind else of_type
        if then.encoding != now.encoding:
            advice = "Train again."
            if (then.distribution, then.version) != (now.distribution, now.version):
                advice = f"Install {then.distribution}=={then.version}, or train again."
            raise ArtifactError(f"The {what}, and {now.who} encodes otherwise. {advice}")
        if then.version != now.version:
            log.warning("The %s; %s encodes alike.", what, now.who)


def shown(key: str) -> str:
    """A key of `Features.encoders` for people: `feature number`, `tokenizer bpe`."""
    kind, _, name = key.rpartition(":")
    return f"{singular(kind or FEATURE.kind)} {name}"
