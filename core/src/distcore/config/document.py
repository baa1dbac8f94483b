"""YAML text to plain values, and to the line that each of them stands in; nothing is ever constructed from a tag.

Built on PyYAML's composer, which gives nodes with their places. What comes out is JSON: dicts with string keys, lists,
strings, numbers, booleans and None. Scalars mean what they mean in YAML 1.1 (`on`, `off`, `yes` and `no` are booleans),
but for two of its traps: `1e-3` is a number, and a date stays the text it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from distcore.config.mistakes import dotted, without_passwords
from distcore.errors import ConfigError, Mistake

KeyPath = tuple[str | int, ...]
"""("input_features", 2, "type"): keys of mappings and positions in lists."""

MAX_BYTES = 16 << 20
MAX_DEPTH = 64
MAX_ALIASED = 100_000
"""How many values aliases (`*name`) may add to what is written out; it bounds the memory of an alias bomb."""

_TAG = "tag:yaml.org,2002:"
_SCALARS = frozenset({"null", "bool", "int", "float", "str", "timestamp", "value"})


class Place(NamedTuple):
    """Where a value was written: 1-based line (0: there is no text) and the path that the user wrote it under."""

    line: int
    path: KeyPath


class Places(dict[KeyPath, Place]):
    """The place of every path, followed when values move (an older spelling, a default merged into a feature)."""

    def find(self, path: KeyPath) -> Place:
        """The place of the path, or of the nearest value around it."""
        for end in range(len(path), -1, -1):
            near = self.get(path[:end])
            if near is not None:
                return Place(near.line, near.path + path[end:])
        return Place(0, path)

    def follow(self, value: Any, old: KeyPath, new: KeyPath) -> None:
        """The value that now lies at `new`, and whatever is in it, was written at `old`."""
        self[new] = self.find(old)
        inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, each in inside:
            self.follow(each, (*old, key), (*new, key))

    def mistake(self, path: KeyPath, message: str) -> Mistake:
        line, shown = self.find(path)
        return Mistake(line, dotted(*shown), without_passwords(message))


@dataclass(frozen=True)
class Document:
    """A config before it is understood.

    source: what to call it in errors. raw: the text of each plain scalar that YAML did not read as a string.
    """

    values: dict[str, Any]
    source: str = "config"
    places: Places = field(default_factory=Places)
    raw: dict[KeyPath, str] = field(default_factory=dict)


def read_document(path: str | Path) -> Document:
    """The document in a file. Raises ConfigError where it cannot be read as UTF-8 text or is no YAML mapping."""
    name = str(path)
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise _refuse(name, "there is no such file. Check the path, which is relative to the working folder.") from None
    except IsADirectoryError:
        raise _refuse(name, "this is a folder, not a config. Name the YAML file inside it.") from None
    except OSError as error:
        raise _refuse(name, f"cannot be read: {error.strerror or error}. Check its permissions.") from error
    if len(data) > MAX_BYTES:
        raise _refuse(name, f"is larger than {MAX_BYTES >> 20} MiB. This is hardly a config; check the path.")
    return parse(_decode(data, name), name)


def parse(text: str, source: str = "config") -> Document:
    """The document in a YAML or JSON text. Raises ConfigError with the line of what is wrong."""
    try:
        loader = _Loader(_without_tabs(text))
        root = loader.get_single_node()
        if root is None:
            raise _refuse(source, "is empty. Write input_features and output_features; `distcore init` can begin it.")
        if not isinstance(root, yaml.MappingNode):
            raise _refuse(source, "is not a mapping at its top level. Write `key: value` lines.", _line(root))
        reader = _Reader(loader, source)
        values = reader.value(root, ())
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, source) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        what = f"the character {chr(error.character)!r} is not allowed in YAML. Remove or escape it."
        raise _refuse(source, what, line) from error
    except (ValueError, OverflowError) as error:
        # An escape such as "\UFFFFFFFF" is no character; PyYAML lets Python's own error through.
        raise _refuse(source, f"cannot be parsed: {error}. Correct the escapes in double quotes.") from error
    return Document(values, source, reader.places, reader.raw)


def from_mapping(values: Mapping[Any, Any], source: str = "config") -> Document:
    """The document of a dict: a deep copy, plain values only, without lines."""
    places, raw = Places(), {}

    def copy(value: Any, path: KeyPath, depth: int = 0) -> Any:
        places[path] = Place(0, path)
        if depth > MAX_DEPTH:
            raise ConfigError([places.mistake(path, f"is nested deeper than {MAX_DEPTH} levels. Flatten it.")], source)
        if isinstance(value, Mapping):
            return {str(key): copy(each, (*path, str(key)), depth + 1) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [copy(each, (*path, index), depth + 1) for index, each in enumerate(value)]
        if value is None or isinstance(value, str | bool | int | float):
            if not isinstance(value, str | bool) and value is not None:
                raw[path] = str(value)
            return value
        if hasattr(value, "item") and getattr(value, "shape", None) == ():
            return copy(value.item(), path, depth)
        message = f"is a {type(value).__name__}. Use dicts, lists, strings, numbers, booleans and None."
        raise ConfigError([places.mistake(path, message)], source)

    return Document(copy(values, ()), source, places, raw)


# ------------------------------------------------------------------ nodes to values


class _Loader(yaml.SafeLoader):
    """SafeLoader up to the nodes, no deeper than MAX_DEPTH."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            mark = self.peek_event().start_mark
            raise yaml.composer.ComposerError(None, None, f"nested deeper than {MAX_DEPTH} levels", mark)
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


_Loader.add_implicit_resolver(
    _TAG + "float",
    re.compile(r"^[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)[eE][-+]?[0-9]+$"),
    list("-+.0123456789"),
)


class _Reader:
    """Walks the nodes: values, places, and every reason to refuse them."""

    def __init__(self, loader: _Loader, source: str) -> None:
        self.loader = loader
        self.source = source
        self.places = Places()
        self.raw: dict[KeyPath, str] = {}
        self.seen: set[int] = set()
        self.open: set[int] = set()
        self.aliased = 0

    def refuse(self, node: yaml.Node, path: KeyPath, message: str) -> ConfigError:
        return ConfigError([Mistake(_line(node), dotted(*path), message)], self.source)

    def value(self, node: yaml.Node, path: KeyPath, line: int | None = None) -> Any:
        self.places.setdefault(path, Place(line or _line(node), path))
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
        raise self.refuse(node, path, f"the YAML tag {node.tag!r} is not allowed. Remove it; write a plain value.")

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        self.places.setdefault(path, Place(_line(node), path))
        self._enter(node, path)
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key, value in node.value:
            if key.tag == _TAG + "merge":
                self._merge(value, path, merged)
                continue
            name = self._key(key, path)
            if name in own:
                before = self.places[*path, name].line
                raise self.refuse(
                    key, (*path, name), f"the key is here a second time (first in line {before}). Keep one."
                )
            for stale in [each for each in self.places if each[: len(path) + 1] == (*path, name)] if merged else ():
                del self.places[stale]
            own[name] = self.value(value, (*path, name), _line(key))
        self.open.discard(id(node))
        return {**merged, **own}

    def _key(self, key: yaml.Node, path: KeyPath) -> str:
        if not isinstance(key, yaml.ScalarNode):
            raise self.refuse(key, path, "a key is a list or a mapping. Use plain words as keys.")
        if key.tag.removeprefix(_TAG) not in _SCALARS:
            raise self.refuse(key, path, f"the YAML tag {key.tag!r} is not allowed. Remove it; write a plain key.")
        return str(key.value)

    def _merge(self, node: yaml.Node, path: KeyPath, into: dict[str, Any]) -> None:
        """`<<: *name` or `<<: [*one, *two]`: what is there already wins."""
        for each in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if not isinstance(each, yaml.MappingNode):
                raise self.refuse(each, path, "`<<` merges mappings only. Point it at a mapping.")
            self._count(each, path)
            for name, value in self.mapping(each, path).items():
                into.setdefault(name, value)

    def _scalar(self, node: yaml.ScalarNode, kind: str, path: KeyPath) -> Any:
        if kind in ("str", "value"):
            return str(node.value)
        self.raw[path] = str(node.value)
        try:
            if kind == "int":
                return self.loader.construct_yaml_int(node)
            if kind == "float":
                return self.loader.construct_yaml_float(node)
            if kind == "bool":
                return self.loader.construct_yaml_bool(node)
        except (ValueError, KeyError):
            raise self.refuse(node, path, f"{node.value!r} is no {kind}. Correct it, or remove the tag.") from None
        return None if kind == "null" else str(node.value)

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
            message = f"aliases expand to more than {MAX_ALIASED:,} values (an alias bomb?). Write the values out."
            raise self.refuse(node, path, message)


# ------------------------------------------------------------------ bytes to text, errors to ours


def _decode(data: bytes, name: str) -> str:
    if data[:1] == b"\x80" or data[:4] in (b"PK\x03\x04", b"PAR1", b"\x89HDF", b"\x1f\x8b\x08\x00"):
        raise _refuse(name, "is a binary file (a pickle, an archive or data), not text. Name a YAML or JSON file.")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise _refuse(name, "is UTF-16 text. Save it as UTF-8.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"byte {data[error.start]:#04x} is not UTF-8. Save the file as UTF-8."
        raise _refuse(name, message, line) from None
    if "\0" in text:
        raise _refuse(
            name,
            "holds zero bytes, so it is no text. Name a YAML or JSON file.",
            text.count("\n", 0, text.index("\0")) + 1,
        )
    return text


def _without_tabs(text: str) -> str:
    """JSON may be indented with tabs, YAML may not. Inside JSON's strings a tab is always escaped, so none is lost."""
    if "\t" not in text or not text.lstrip().startswith("{"):
        return text
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text.replace("\t", " ")


def _syntax_error(error: yaml.MarkedYAMLError, source: str) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    problem = error.problem or error.context or "cannot be parsed"
    column = f", column {mark.column + 1}" if mark else ""
    hint = "Correct the YAML there"
    if "cannot start any token" in problem and "\\t" in problem:
        hint = "Indent with spaces, not tabs"
    elif "mapping values are not allowed" in problem:
        hint = "Check the indentation, and quote text that holds a colon"
    elif "another document" in problem:
        problem = "a second document begins"
        hint = "Keep one document; remove the second `---`"
    return _refuse(source, f"YAML syntax error{column}: {problem}. {hint}.", mark.line + 1 if mark else 0)


def _refuse(source: str, message: str, line: int = 0) -> ConfigError:
    return ConfigError([Mistake(line, "", message)], source)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def kind_of(value: Any) -> str:
    """What a value is, in words for an error."""
    names = {bool: "a boolean", int: "a number", float: "a number", str: "text", list: "a list", dict: "a mapping"}
    return names.get(type(value), "nothing" if value is None else f"a {type(value).__name__}")
