"""JSON Schema (2020-12) of the whole config for what is installed, and its reference for people,
from the same models.

Today's spellings only: older ones (`training`, `encoder: dense`, …) are read, but an editor should
not offer them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from distcore.config import DEFAULT_SEED
from distcore.config.run_config import SECTIONS_OF
from distcore_core.contracts import JSON, ROLES, SECTION
from distcore_core.errors import DistcoreError
from distcore_core.registry.index import DEFAULTS, all_offers
from distcore_core.registry.manifest import Stated, stated

if TYPE_CHECKING:
    from pydantic import BaseModel

    from distcore_core.registry.manager import Plugins

DIALECT = "https://json-schema.org/draft/2020-12/schema"
KINDS = (
    "features",
    "models",
    "backends",
    "caches",
    "processors",
    "trainers",
    "loaders",
    "extensions",
    "executors",
    SECTION.kind,
)


def json_schema(plugins: Plugins) -> JSON:
    """The schema. A plugin that is broken is left out; `$comment` says which and why."""
    return _Builder(plugins).whole()


def reference_markdown(plugins: Plugins) -> str:
    """The config reference: every section and option with type, default and description."""
    from distcore.config.reference import render

    return render(json_schema(plugins))


class _Builder:
    def __init__(self, plugins: Plugins) -> None:
        from distcore.workflow.listing import rows

        self.plugins = plugins
        self.defs: JSON = {}
        self.names: dict[str, list[str]] = {kind: [] for kind in KINDS}
        self.left_out: list[str] = []
        # Of what toolkits and plugins declare, too: their sections leave a member out that is
        # broken.
        members = sorted(all_offers().keys() - ROLES.keys())
        for row in rows(plugins, kinds=(*KINDS, *members)):
            if row.state == "ok":
                self.names.setdefault(row.role, []).append(row.name)
            elif row.state == "broken":
                self.left_out.append(
                    f"{row.role} {row.name} ({row.distribution} {row.version}): {row.error}"
                )

    def whole(self) -> JSON:
        inputs, outputs = self.features("input"), self.features("output")
        properties: JSON = {
            "input_features": inputs,
            "output_features": outputs,
            "preprocessing": self.section("preprocessing"),
            "combiner": self.combiner(),
            "model": self.model(),
            "trainer": self.section("trainer"),
            "defaults": self.defaults(),
            "backend": self.backend(),
            "plugins": _object(
                {
                    "block": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "Names of plugins (`hdf5`), those of one group "
                        "(`caches:hdf5`), or distributions (`distcore-hdf5`). The environment "
                        "variable DISTCORE_BLOCK adds others, with commas between them.",
                    }
                },
                "Plugins that are not used.",
            ),
            "extensions": {
                "type": "array",
                "items": self.reference("extensions", "", "An installed extension."),
                "description": "What listens to the run.",
            },
            "random_seed": {
                "type": "integer",
                "minimum": 0,
                "maximum": (1 << 63) - 1,
                "default": DEFAULT_SEED,
                "description": "Every random number of a run follows from it.",
            },
            "hyperopt": self.hyperopt(),
            "model_type": {
                "const": "ecd",
                "description": "Ludwig's; accepted, nothing else is carried out.",
            },
            "ludwig_version": {"type": "string", "description": "Ludwig's; accepted and not read."},
        }
        properties |= {
            name: self.section(name) for name in self.names[SECTION.kind] if name not in properties
        }
        schema: JSON = {
            "$schema": DIALECT,
            "title": "distcore config",
            "type": "object",
            "properties": {name: each for name, each in properties.items() if each},
            "required": ["input_features", "output_features"],
            "additionalProperties": False,
            "$defs": self.defs,
        }
        if self.left_out:
            schema["$comment"] = "Left out, for they are broken: " + "; ".join(self.left_out)
        return schema

    # -------------------------------------------------------------- sections

    def section(self, name: str) -> JSON:
        """A section as the model of whoever carries it out has it; empty if nobody does, or who
        does is broken."""
        if name not in self.names[SECTION.kind]:
            return {}
        return self.embed(name, self.plugins.make(SECTION, name, given=None, plugins=self.plugins))

    def features(self, role: str) -> JSON:
        known = {name: self.options("features", name, role) for name in self.names["features"]}
        offered = {name: reference for name, reference in known.items() if reference is not None}
        properties: JSON = {
            "name": {
                "type": "string",
                "minLength": 1,
                "description": "Name of the feature, unique in the config.",
            },
            "type": {"enum": sorted(offered), "description": "Type of the feature."},
            "column": {
                "type": "string",
                "description": "Column of the dataset; default: the name.",
            },
        }
        item = _chosen(properties, offered, required=["name", "type"])
        return {
            "type": "array",
            "minItems": 1,
            "items": item,
            "description": f"The columns that are {role}s.",
        }

    def defaults(self) -> JSON:
        """Of each type: encoder and preprocessing as an input has them, decoder and loss as an
        output has them."""
        sections: JSON = {}
        for name in self.names["features"]:
            parts: JSON = {}
            for role, wanted in SECTIONS_OF.items():
                known = self.defs.get(f"features.{name}.{role}", {}).get("properties", {})
                parts |= {part: known[part] for part in wanted if part in known}
            sections[name] = _object(
                parts, f"Options of every {name} feature that does not give its own."
            )
        return _object(sections, "Options by feature type, under each feature's own.")

    def combiner(self) -> JSON:
        if (
            DEFAULTS["models"] not in self.names["models"]
            or self.options("models", DEFAULTS["models"]) is None
        ):
            return {}
        known = self.defs[f"models.{DEFAULTS['models']}"]["properties"]
        return dict(known["combiner"]) if "combiner" in known else {}

    def model(self) -> JSON:
        offered = {name: self.options("models", name) for name in self.names["models"]}
        return _either_word(offered, "What makes the network.", DEFAULTS["models"])

    def backend(self) -> JSON:
        properties: JSON = {
            "type": {
                "type": ["string", "null"],
                "description": "Where work runs; default: what is detected.",
            },
            "cache_dir": {
                "type": ["string", "null"],
                "description": "Folder, or address of a store; default: `.distcore_cache` beside "
                "the dataset.",
            },
            "cache_credentials": {
                "type": ["object", "string", "null"],
                "description": "What the buckets of cache and results are opened with, or the "
                "path of a JSON file with it. Never shown.",
            },
            "cache_format": self.reference(
                "caches", DEFAULTS["caches"], "How encoded columns lie in files."
            ),
            "processor": self.reference("processors", "", "What turns rows into encoded columns."),
            "trainer": self.reference("trainers", "", "How the model is fitted."),
            "loader": self.reference("loaders", "", "The way from cache to batches."),
        }
        offered = {name: self.options("backends", name) for name in self.names["backends"]}
        section = _chosen(
            properties, {name: each for name, each in offered.items() if each}, required=[]
        )
        section["description"] = "Where and through what the run goes."
        return {
            "anyOf": [{"type": "string"}, section, {"type": "null"}],
            "description": section["description"],
        }

    def hyperopt(self) -> JSON:
        section = self.section("hyperopt")
        if not section:
            return {}
        what = "How trials are run; default: the backend's executor, else local."
        self.defs["hyperopt"]["properties"]["executor"] = self.reference("executors", "", what)
        self.defs.pop("hyperopt.ExecutorReference", None)
        description = (
            "What `distcore hyperopt` searches, and how; the other commands do not read it."
        )
        return {"anyOf": [section, {"type": "null"}], "description": description}

    def reference(self, kind: str, default: str, description: str) -> JSON:
        return _either_word(
            {name: self.options(kind, name) for name in self.names[kind]}, description, default
        )

    # -------------------------------------------------------------- models

    def options(self, kind: str, name: str, role: str = "") -> JSON | None:
        """A `$ref` to the options of a plugin; None if it cannot be used (in this role)."""
        key = ".".join(part for part in (kind, name, role) if part)
        if key not in self.defs:
            said = stated(self.plugins.find(kind, name))
            if said is not None:
                return self._stated(key, said, role)
            try:
                model = self.plugins.options_model(kind, name, role)
            except DistcoreError as error:
                self.left_out.append(f"{kind} {name}: {error}")
                return None
            if model is None:
                return {"type": "object"}
            if _refuses(model):
                return None
            self.embed(key, model)
            # Whoever refers to it forbids what neither names: `unevaluatedProperties`.
            self.defs[key].pop("additionalProperties", None)
        return {"$ref": f"#/$defs/{key}"}

    def _stated(self, key: str, said: Stated, role: str) -> JSON | None:
        """The same of a plugin that is not imported, because its manifest tells of it."""
        if role not in said.options:
            return None
        options = said.options[role]
        if options is None:
            return {"type": "object"}
        self._put(key, json.loads(json.dumps(options).replace('"#/$defs/', f'"#/$defs/{key}.')))
        self.defs[key].pop("additionalProperties", None)
        return {"$ref": f"#/$defs/{key}"}

    def embed(self, key: str, model: type[BaseModel]) -> JSON:
        """Put a model's schema, and those it refers to, under `$defs`; returns a reference to
        it."""
        self._put(key, model.model_json_schema(ref_template=f"#/$defs/{key}.{{model}}"))
        return {"$ref": f"#/$defs/{key}"}

    def _put(self, key: str, schema: JSON) -> None:
        schema = copy.deepcopy(schema)
        for name, inner in schema.pop("$defs", {}).items():
            self.defs[f"{key}.{name}"] = inner
        self.defs[key] = schema


def _refuses(model: type[BaseModel]) -> bool:
    """A model without options that accepts nothing says that the plugin does not play this role."""
    from pydantic import ValidationError

    if model.model_fields:
        return False
    try:
        model.model_validate({})
    except ValidationError:
        return True
    return False


def _object(properties: JSON, description: str) -> JSON:
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "description": description,
    }


def _chosen(properties: JSON, offered: JSON, required: Iterable[str]) -> JSON:
    """An object whose `type` decides which further options it has."""
    section: JSON = {"type": "object", "properties": properties, "unevaluatedProperties": False}
    cases = [
        {"if": {"properties": {"type": {"const": name}}, "required": ["type"]}, "then": reference}
        for name, reference in sorted(offered.items())
    ]
    if cases:
        section["allOf"] = cases
    return {**section, "required": list(required)} if required else section


def _either_word(offered: dict[str, JSON | None], description: str, default: str) -> JSON:
    """A plugin's name, or a mapping with its `type` and its options; without a type, the
    default's."""
    known = {name: each for name, each in offered.items() if each is not None}
    if not known:
        return {
            "type": ["string", "object", "null"],
            "description": f"{description} None is installed.",
        }
    kind: JSON = {"enum": sorted(known), "description": "Which one."}
    section = _chosen({"type": kind}, known, required=[])
    candidates = [known[default]] if default in known else [known[name] for name in sorted(known)]
    section["allOf"].append({"if": {"not": {"required": ["type"]}}, "then": {"anyOf": candidates}})
    whole: JSON = {
        "anyOf": [{"enum": sorted(known)}, section, {"type": "null"}],
        "description": description,
    }
    return {**whole, "default": default} if default else whole
