"""From YAML's nodes to plain values and their places; nothing is constructed from a tag, and
aliases are bounded.

`${ENV:NAME}` in a text is what the environment says; alone and unquoted it is read as YAML reads
what stands there.
"""

from __future__ import annotations

import os
import re
from typing import Any

import yaml

from distcore_core.config.document import KeyPath, Place, SourceMap
from distcore_core.config.issues import dotted
from distcore_core.errors import ConfigError, ConfigIssue

MAX_DEPTH = 64
MAX_ALIASED = 100_000
"""How many values aliases (`*name`) may add to what is written out; it bounds the memory of an
alias bomb."""

MAX_NUMBER = 1000
"""Characters of a number, a truth value or a date at most: Python writes no larger numbers down,
and an hour's notation (`1:59:59`) of thousands takes minutes."""

_TAG = "tag:yaml.org,2002:"
VARIABLE = re.compile(r"\$\{ENV:([^}]*)\}")
_SCALARS = frozenset({"null", "bool", "int", "float", "str", "timestamp", "value"})


class Loader(yaml.SafeLoader):
    """SafeLoader up to the nodes, no deeper than MAX_DEPTH."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            mark = self.peek_event().start_mark
            raise yaml.composer.ComposerError(
                None, None, f"nested deeper than {MAX_DEPTH} levels", mark
            )
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


class CompiledLoader(getattr(yaml, "CSafeLoader", Loader)):  # type: ignore[misc]
    """The same by libyaml, if PyYAML has it, at a tenth of the time. For texts that are PLAIN, in
    which both agree."""


for each in (Loader, CompiledLoader):
    each.add_implicit_resolver(
        _TAG + "float",
        re.compile(r"^[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)[eE][-+]?[0-9]+$"),
        list("-+.0123456789"),
    )

PLAIN = re.compile(r"(?: {0,28}(?:- )?(?![- ?])[A-Za-z0-9_.,:'\"#/()+=<$~;&* -]*(?:\n|\Z))*")
"""Keys, values and lists in lines of their own, less than MAX_DEPTH deep: no flow style, tags,
blocks or escapes."""


def root_of(text: str) -> tuple[yaml.SafeLoader, yaml.Node | None]:
    """The text's one document, None if there is none, and what can construct its scalars. Raises
    yaml.YAMLError with PyYAML's own words."""
    if PLAIN.fullmatch(text):
        try:
            compiled = CompiledLoader(text)
            return compiled, compiled.get_single_node()
        except yaml.YAMLError:
            pass  # PyYAML says what is wrong
    loader = Loader(text)
    return loader, loader.get_single_node()


class Reader:
    """Walks the nodes: values, places, and every reason to refuse them."""

    def __init__(self, loader: yaml.SafeLoader, source: str) -> None:
        self.loader = loader
        self.source = source
        self.source_map = SourceMap()
        self.raw: dict[KeyPath, str] = {}
        self.seen: set[int] = set()
        self.open: set[int] = set()
        self.aliased = 0

    def refuse(self, node: yaml.Node, path: KeyPath, message: str) -> ConfigError:
        return ConfigError([ConfigIssue(line_of(node), dotted(*path), message)], self.source)

    def value(self, node: yaml.Node, path: KeyPath, line: int | None = None) -> Any:
        self.source_map.setdefault(path, Place(line or line_of(node), path))
        self._count(node, path)
        kind = node.tag.removeprefix(_TAG)
        if isinstance(node, yaml.MappingNode) and kind == "map":
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and kind == "seq":
            self._enter(node, path)
            values = [self.value(each, (*path, index)) for index, each in enumerate(node.value)]
            self.open.discard(id(node))
            return values
        if isinstance(node, yaml.ScalarNode) and kind in _SCALARS:
            return self._scalar(node, kind, path)
        raise self.refuse(
            node, path, f"the YAML tag {node.tag!r} is not allowed. Remove it; write a plain value."
        )

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        self.source_map.setdefault(path, Place(line_of(node), path))
        self._enter(node, path)
        values = {
            name: self.value(value, (*path, name), line_of(key))
            for name, (key, value) in self._pairs(node, path).items()
        }
        self.open.discard(id(node))
        return values

    def _pairs(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, tuple[yaml.Node, ...]]:
        """{name: the nodes of its key and value} of a mapping: of its own keys, and of what it
        merges those that are not there already, the first one of a name."""
        merged: dict[str, tuple[yaml.Node, ...]] = {}
        own: dict[str, tuple[yaml.Node, ...]] = {}
        for key, value in node.value:
            if key.tag == _TAG + "merge":
                self._merge(value, path, merged)
                continue
            name = self._key(key, path)
            if name in own:
                before = line_of(own[name][0])
                raise self.refuse(
                    key,
                    (*path, name),
                    f"the key is here a second time (first in line {before}). Keep one.",
                )
            own[name] = key, value
        return {**merged, **own}

    def _key(self, key: yaml.Node, path: KeyPath) -> str:
        if not isinstance(key, yaml.ScalarNode):
            raise self.refuse(key, path, "a key is a list or a mapping. Use plain words as keys.")
        if key.tag.removeprefix(_TAG) not in _SCALARS:
            raise self.refuse(
                key, path, f"the YAML tag {key.tag!r} is not allowed. Remove it; write a plain key."
            )
        return str(key.value)

    def _merge(
        self, node: yaml.Node, path: KeyPath, into: dict[str, tuple[yaml.Node, ...]]
    ) -> None:
        """`<<: *name` or `<<: [*one, *two]`: what is there already wins."""
        for each in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if not isinstance(each, yaml.MappingNode):
                raise self.refuse(each, path, "`<<` merges mappings only. Point it at a mapping.")
            self._enter(each, path)
            self._count(each, path)
            for name, pair in self._pairs(each, path).items():
                self._count(pair[1], path)
                into.setdefault(name, pair)
            self.open.discard(id(each))

    def _scalar(self, node: yaml.ScalarNode, kind: str, path: KeyPath) -> Any:
        if kind == "str" and "${ENV:" in node.value:
            node, kind = self._from_environment(node, path)
        if kind in ("str", "value"):
            return str(node.value)
        self.raw[path] = str(node.value)
        if len(node.value) > MAX_NUMBER:
            raise self.refuse(
                node, path, f"has {len(node.value):,} characters and is no text. Write it shorter."
            )
        try:
            if kind == "int":
                return self.loader.construct_yaml_int(node)
            if kind == "float":
                return self.loader.construct_yaml_float(node)
            if kind == "bool":
                return self.loader.construct_yaml_bool(node)
        except (ValueError, KeyError):
            raise self.refuse(
                node, path, f"{node.value!r} is no {kind}. Correct it, or remove the tag."
            ) from None
        return None if kind == "null" else str(node.value)

    def _from_environment(
        self, node: yaml.ScalarNode, path: KeyPath
    ) -> tuple[yaml.ScalarNode, str]:
        """The scalar with its variables replaced, and its kind."""

        def value_of(found: re.Match[str]) -> str:
            name = found.group(1)
            if name not in os.environ:
                message = (
                    f"the environment variable {name!r} is not set. Set it, or write the value "
                    "here."
                )
                raise self.refuse(node, path, message)
            return os.environ[name]

        alone = not node.style and VARIABLE.fullmatch(node.value)
        text = VARIABLE.sub(value_of, node.value)
        tag = self.loader.resolve(yaml.ScalarNode, text, (True, False)) if alone else _TAG + "str"
        kind = tag.removeprefix(_TAG)
        made = yaml.ScalarNode(tag, text, node.start_mark, node.end_mark)
        return made, kind if kind in _SCALARS else "str"

    def _enter(self, node: yaml.Node, path: KeyPath) -> None:
        if id(node) in self.open:
            raise self.refuse(node, path, "the alias contains itself. Write the value out.")
        self.open.add(id(node))

    def _count(self, node: yaml.Node, path: KeyPath) -> None:
        """Every node met a second time came through an alias."""
        if id(node) not in self.seen:
            self.seen.add(id(node))
            return
        self.aliased += 1
        if self.aliased > MAX_ALIASED:
            message = (
                f"aliases expand to more than {MAX_ALIASED:,} values (an alias bomb?). Write the "
                "values out."
            )
            raise self.refuse(node, path, message)


def line_of(node: yaml.Node) -> int:
    """The 1-based line in which a node begins."""
    return int(node.start_mark.line) + 1
