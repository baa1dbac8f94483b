"""YAML text to plain values, and to the line that each of them stands in.

Built on PyYAML's composer, which gives nodes with their places (yaml_nodes.py). What comes out is
JSON: dicts with string keys, lists, strings, numbers, booleans and None. Scalars mean what they
mean in YAML 1.1 (`on`, `off`, `yes` and `no` are booleans), but for two of its traps: `1e-3` is a
number, and a date stays the text it was.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from distcore.config.yaml_nodes import MAX_DEPTH, Reader, line_of, root_of
from distcore_core.config.document import Document, KeyPath, Place, SourceMap
from distcore_core.errors import ConfigError, ConfigIssue

MAX_BYTES = 16 << 20


def read_document(path: str | Path) -> Document:
    """The document in a file. Raises ConfigError if it cannot be read as UTF-8 text or is no
    YAML mapping."""
    name, path = str(path), os.path.expanduser(path)
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise _refuse(name, f"there is no such file. {_near(Path(path))}") from None
    except IsADirectoryError:
        raise _refuse(
            name, "this is a folder, not a config. Name the YAML file inside it."
        ) from None
    except OSError as error:
        raise _refuse(
            name, f"cannot be read: {error.strerror or error}. Check its permissions."
        ) from error
    except ValueError as error:
        raise _refuse(repr(name), f"is no path ({error}). Check it.") from error
    if len(data) > MAX_BYTES:
        raise _refuse(
            name, f"is larger than {MAX_BYTES >> 20} MiB. This is hardly a config; check the path."
        )
    return parse(_decode(data, name), name)


def parse(text: str, source: str = "config") -> Document:
    """The document in a YAML or JSON text. Raises ConfigError with the line of what is wrong."""
    try:
        loader, root = root_of(_without_tabs(text))
        if root is None:
            raise _refuse(
                source,
                "is empty. Write input_features and output_features; `distcore init` can begin it.",
            )
        if not isinstance(root, yaml.MappingNode):
            raise _refuse(
                source,
                "is not a mapping at its top level. Write `key: value` lines.",
                line_of(root),
            )
        reader = Reader(loader, source)
        values = reader.value(root, ())
    except yaml.MarkedYAMLError as error:
        # Its own text shows the line, which may hold credentials; and so would a traceback with it
        # in the chain.
        raise _syntax_error(error, text, source) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        what = (
            f"the character {chr(error.character)!r} is not allowed in YAML. Remove or escape it."
        )
        raise _refuse(source, what, line) from error
    except (ValueError, OverflowError) as error:
        # An escape such as "\UFFFFFFFF" is no character; PyYAML lets Python's own error through.
        raise _refuse(
            source, f"cannot be parsed: {error}. Correct the escapes in double quotes."
        ) from error
    return Document(values, source, reader.source_map, reader.raw)


def from_mapping(values: Mapping[Any, Any]) -> Document:
    """The document of a dict: a deep copy, plain values only, without lines."""
    source_map, raw = SourceMap(), {}

    def copy(value: Any, path: KeyPath, depth: int = 0) -> Any:
        source_map[path] = Place(0, path)
        if depth > MAX_DEPTH:
            raise ConfigError(
                [source_map.issue(path, f"is nested deeper than {MAX_DEPTH} levels. Flatten it.")],
                "config",
            )
        if isinstance(value, Mapping):
            return {
                str(key): copy(each, (*path, str(key)), depth + 1) for key, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [copy(each, (*path, index), depth + 1) for index, each in enumerate(value)]
        if value is None or isinstance(value, str | bool | int | float):
            if not isinstance(value, str | bool) and value is not None:
                raw[path] = str(value)
            return value
        if hasattr(value, "item") and getattr(value, "shape", None) == ():
            return copy(value.item(), path, depth)
        message = (
            f"is a {type(value).__name__}. Use dicts, lists, strings, numbers, booleans and None."
        )
        raise ConfigError([source_map.issue(path, message)], "config")

    return Document(copy(values, ()), "config", source_map, raw)


def _near(path: Path) -> str:
    """What to do about a path that is not there."""
    if not path.parent.is_dir():
        return (
            f"There is no folder {path.parent} either. Check the path, which is relative to the "
            "working folder."
        )
    near = difflib.get_close_matches(path.name, os.listdir(path.parent), n=1)
    if near:
        return f"Did you mean {path.parent / near[0]}?"
    return "Check the path, which is relative to the working folder."


# ------------------------------------------------------------------ bytes to text, errors to ours


def _decode(data: bytes, name: str) -> str:
    if data[:1] == b"\x80" or data[:4] in (b"PK\x03\x04", b"PAR1", b"\x89HDF", b"\x1f\x8b\x08\x00"):
        raise _refuse(
            name,
            "is a binary file (a pickle, an archive or data), not text. Name a YAML or JSON file.",
        )
    seems = json.detect_encoding(data)  # by which of the first bytes are zero
    if not seems.startswith("utf-8"):
        with suppress(UnicodeDecodeError):
            if "\0" not in data.decode(seems):
                raise _refuse(name, f"is {seems[:6].upper()} text. Save it as UTF-8.")
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
    """JSON may be indented with tabs, YAML may not. Inside JSON's strings a tab is always
    escaped, so none is lost."""
    if "\t" not in text or not text.lstrip().startswith("{"):
        return text
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text.replace("\t", " ")


def _syntax_error(error: yaml.MarkedYAMLError, text: str, source: str) -> ConfigError:
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
    elif mark and text[mark.index - 1 : mark.index + 5] == "${ENV:":
        hint = 'Within { } and [ ] quote the value, "${ENV:NAME}", or give it a line of its own'
    return _refuse(
        source, f"YAML syntax error{column}: {problem}. {hint}.", mark.line + 1 if mark else 0
    )


def _refuse(source: str, message: str, line: int = 0) -> ConfigError:
    return ConfigError([ConfigIssue(line, "", message)], source)
