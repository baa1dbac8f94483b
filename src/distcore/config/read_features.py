"""Pass one over the features: names, types and columns, with the `defaults` of each type under
their own options."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Literal

from distcore.config.run_config import SECTIONS_OF, FeatureConfig
from distcore.config.under_way import DocumentUnderWay, kind_of
from distcore_core.config.document import KeyPath
from distcore_core.config.issues import unknown_option
from distcore_core.contracts.values import COMBINED

Role = Literal["input", "output"]
Features = tuple[FeatureConfig, ...]


def read_features(reader: DocumentUnderWay) -> tuple[dict[str, Any], Features, Features]:
    """(defaults, inputs, outputs); what is wrong is told to the reader and left out."""
    work = _FeatureReader(reader)
    inputs, outputs = tuple(work.features("input")), tuple(work.features("output"))
    work.names_differ((*inputs, *outputs))
    return work.defaults, inputs, outputs


class _FeatureReader:
    def __init__(self, reader: DocumentUnderWay) -> None:
        self.reader = reader
        self.values = reader.values
        self.source_map = reader.source_map
        self.wrong = reader.wrong
        self.defaults = self._defaults()

    def _defaults(self) -> dict[str, Any]:
        """{type: {section: options}}; what is not so is told and left out."""
        good: dict[str, Any] = {}
        known = [name for sections in SECTIONS_OF.values() for name in sections]
        for kind, section in self.reader.mapping(
            ("defaults",), self.values.get("defaults")
        ).items():
            good[kind] = {}
            for name, value in self.reader.mapping(("defaults", kind), section).items():
                if (kind, name) == ("image", "augmentation"):
                    continue  # Ludwig writes it out; a feature of type image is told for itself
                if name not in known:
                    self.wrong(("defaults", kind, name), unknown_option(name, known))
                elif self.reader.mapping(("defaults", kind, name), value) is value:
                    good[kind][name] = value
        return good

    def features(self, role: Role) -> Iterator[FeatureConfig]:
        key = f"{role}_features"
        features = self.values.get(key)
        if not isinstance(features, list) or not features:
            example = "{name: age, type: number}"
            what = (
                "is required"
                if features is None
                else "is empty"
                if features == []
                else f"is {kind_of(features)}"
            )
            self.wrong((key,), f"{what}; give a list of {role} features, such as `- {example}`")
            return
        for index, feature in enumerate(features):
            if not isinstance(feature, dict):
                self.wrong(
                    (key, index),
                    "should be a mapping such as {name: age, type: number}, not "
                    f"{kind_of(feature)}",
                )
                continue
            found = self._feature((key, index), feature, role)
            if found is not None:
                yield found

    def _feature(self, path: KeyPath, feature: dict[str, Any], role: Role) -> FeatureConfig | None:
        before = len(self.reader.issues)
        name = self.reader.text((*path, "name"), feature.get("name"))
        kind = self.reader.text((*path, "type"), feature.get("type"))
        column = self.reader.text((*path, "column"), feature.get("column")) or name
        if len(self.reader.issues) == before:
            for option, value in (("name", name), ("type", kind)):
                if value is None:
                    self.wrong((*path, option), f"is required; each feature needs a {option}")
        for option, text in (("name", name), ("type", kind), ("column", column)):
            if option in feature and text is not None:
                feature[option] = text  # for who reads the document's values
        own = {
            key: value
            for key, value in feature.items()
            if key not in ("name", "type", "column", "proc_column")
        }
        if own.pop("active", True) is not True:
            self.wrong(
                (*path, "active"),
                "Ludwig's `active` is not carried out here; remove the feature, or the option",
            )
        if own.pop("tied", None) is not None:
            self.wrong(
                (*path, "tied"),
                "Ludwig's `tied` encoders are not carried out here; remove the option",
            )
        if name is None or kind is None or column is None:
            return None
        defaults = self.defaults.get(kind, {})
        given = {key: value for key, value in defaults.items() if key in SECTIONS_OF[role]}
        options = self._merged(given, own, ("defaults", kind), path)
        return FeatureConfig(name, kind, column, role, options, int(path[1]))

    def _merged(
        self, given: dict[str, Any], own: dict[str, Any], old: KeyPath, new: KeyPath
    ) -> dict[str, Any]:
        """Defaults under a feature's own options; a section of another `type` replaces the
        default whole."""
        merged = dict(own)
        for name, value in given.items():
            mine = own.get(name)
            if name not in own:
                merged[name] = copy.deepcopy(value)
                self.source_map.follow(value, (*old, name), (*new, name))
            elif isinstance(value, dict) and isinstance(mine, dict) and _same_type(value, mine):
                merged[name] = self._merged(value, mine, (*old, name), (*new, name))
        return merged

    def names_differ(self, features: tuple[FeatureConfig, ...]) -> None:
        first: dict[str, KeyPath] = {}
        for each in features:
            path: KeyPath = (f"{each.role}_features", each.index, "name")
            if each.name in first:
                line = self.source_map.find(first[each.name]).line
                where = f"line {line}" if line else str(first[each.name][0])
                message = (
                    f"the name {each.name!r} is also in {where}; names are unique over inputs and "
                    "outputs. Rename one"
                )
                self.wrong(path, message)
            elif each.role == "output" and each.name == COMBINED:
                message = (
                    f"{each.name!r} is the name of all outputs' loss in the metrics, where this "
                    "output's own would be lost. Name it otherwise, and the data's column as "
                    "`column`"
                )
                self.wrong(path, message)
            first.setdefault(each.name, path)


def _same_type(given: dict[str, Any], own: dict[str, Any]) -> bool:
    return bool(given.get("type") == own.get("type", given.get("type")))
