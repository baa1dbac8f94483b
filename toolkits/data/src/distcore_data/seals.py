"""JSON that is read back: bounded when it is read, and sealed with a digest of itself if a changed
bit would matter.

A sealed document is plain JSON whose first value, "digest", is the sha256 of every byte that
follows it. `parse_json` is the only way of ours from text of outside to JSON values.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import logging
import math
import os
import re
import stat
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

from distcore_core.contracts.values import JSON
from distcore_core.errors import UserError
from distcore_data.json_text import MOST_DEPTH, PLAIN, STRING, TOO_DEEP, in_line, indented

log = logging.getLogger("distcore")

MOST_BYTES = 64 << 20
"""Bytes of a document that are read, unless whoever reads it says otherwise."""

MOST_CONTAINERS = 1 << 20
"""Lists and mappings of a document; more are refused before they are made. An empty one takes 64
bytes of memory for two of text."""

LONGEST_INTEGER = 40
"""Digits; what is longer is no number of ours, and turning it into one takes time that grows
with its square."""

LONG_INTEGER = re.compile(rb"[0-9]{%d}" % LONGEST_INTEGER)
"""What may be one; a sign is a character of it too."""

BLOCK, LINE = '{\n "digest": "%s",', '{"digest": "%s",'
"""How a sealed document begins, over several lines or in one."""


def parse_json(
    content: bytes | str,
    *,
    most_bytes: int = MOST_BYTES,
    finite: bool = True,
) -> Any:
    """The value of a JSON text from outside.

    Args:
        content: UTF-8 bytes, with or without a byte order mark, or text.
        most_bytes: More are refused before they are looked at.
        finite: Refuse NaN and infinities, which are no JSON; Python writes them all the same.

    Raises:
        ValueError: It is no JSON, too large, too deep, has a key twice or a number that none can
            hold; says which in words that hold nothing of the content but names of keys.
    """
    if len(content) > most_bytes:
        raise ValueError(_too_large(len(content), most_bytes))
    text = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    brackets = text.count(b"{") + text.count(b"[")
    if brackets > MOST_CONTAINERS:
        outside = STRING.sub(b"", text)
        brackets = outside.count(b"{") + outside.count(b"[")
    if brackets > MOST_CONTAINERS:
        raise ValueError(f"it holds more than {MOST_CONTAINERS} lists and mappings")
    hooks: dict[str, Any] = {"parse_constant": _constant, "parse_float": _number} if finite else {}
    try:
        decoded = content if isinstance(content, str) else content.decode("utf-8-sig")
        if LONG_INTEGER.search(text):
            hooks["parse_int"] = _integer
        value = json.loads(decoded, object_pairs_hook=_mapping, **hooks)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"it is no JSON: {error.msg} ({where})") from None
    if brackets > MOST_DEPTH and isinstance(value, dict | list):  # fewer are nested no deeper
        _check_depth(value)
    return value


def mapping_of(pairs: list[tuple[str, Any]], twice: Callable[[str], Exception]) -> JSON:
    """The pairs of a mapping, as `object_pairs_hook` is given them, as a dictionary.

    twice: the error to raise for a key that is there more than once."""
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise twice(next(key for key, count in counts.items() if count > 1))
    return found


def sealed(
    document: JSON, *, sort_keys: bool = False, line: bool = False, most_bytes: int = MOST_BYTES
) -> bytes:
    """A mapping as readable JSON, with the sha256 of every byte that follows as its first value.

    Args:
        document: Plain JSON, and not empty.
        sort_keys: For equal bytes of equal documents, whatever the order of their keys.
        line: All in one line, for files to which lines are added.
        most_bytes: What those read who will read it.

    Raises:
        TypeError, ValueError: It is not plain JSON, or larger than that.
    """
    if not document:
        raise ValueError("there is nothing to seal")
    pieces = iter([in_line(document, sort_keys)] if line else indented(document, sort_keys))
    # A lone surrogate, as in a file name that is not UTF-8, becomes the escape that JSON has for
    # it. The metadata of tall columns are large: no piece is kept beside the whole.
    first = (" " if line else "") + next(pieces).removeprefix("{")
    seal, digest, file = LINE if line else BLOCK, hashlib.sha256(), io.BytesIO()
    file.write((seal % digest.hexdigest()).encode())  # of the same size as the one to come
    for each in chain([first], pieces, ["\n"]):
        piece = each.encode("utf-8", "backslashreplace")
        digest.update(piece)
        file.write(piece)
    file.seek(0)
    file.write((seal % digest.hexdigest()).encode())
    content = file.getvalue()
    if len(content) > most_bytes:
        raise ValueError(f"it would have {len(content)} bytes, and {most_bytes} are read back")
    return content


def unsealed(content: bytes, *, most_bytes: int = MOST_BYTES) -> JSON:
    """The document that `sealed` made these bytes from.

    Raises:
        ValueError: One bit of them is another; or see `parse_json`.
    """
    if len(content) > most_bytes:
        raise ValueError(_too_large(len(content), most_bytes))
    seal = BLOCK if content.startswith(b"{\n") else LINE
    rest = memoryview(content)[len(seal) + 62 :]
    if not content.startswith((seal % hashlib.sha256(rest).hexdigest()).encode()):
        raise ValueError("its content does not match its own digest")
    document: JSON = parse_json(content, most_bytes=most_bytes)
    del document["digest"]
    return document


def read_sealed(path: Path, advice: str) -> JSON:
    """The document of a sealed file.

    Args:
        path: The file.
        advice: What to do if it is damaged: the end of the error's message.

    Raises:
        FileNotFoundError: There is none.
        UserError: It was changed after it was written, or cannot be read.
    """
    try:
        return unsealed(read_bounded(path))
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise UserError(damaged(path, error, advice)) from None


def read_bounded(path: Path, most_bytes: int = MOST_BYTES, *, pipe: bool = False) -> bytes:
    """The bytes of a file.

    Args:
        path: The file.
        most_bytes: More are refused before they are read.
        pipe: Take a pipe too, which may never be written to.

    Raises:
        ValueError: There are more, or it is another kind of file.
        OSError: As the system gave it.
    """
    if not pipe:
        refuse_special(path)
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most_bytes:
            raise ValueError(_too_large(size, most_bytes))
        # A read takes the memory that it is asked for, whatever the file holds; a pipe has no size.
        content = file.read((size or most_bytes) + 1)
    if len(content) > most_bytes:
        raise ValueError(_too_large(len(content), most_bytes))
    return content


def is_special(path: Path) -> bool:
    """Whether it is a pipe or a device, to open which may last for ever; to open a folder tells
    its errno."""
    mode = os.stat(path).st_mode
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def refuse_special(path: Path) -> None:
    """Raise ValueError for a pipe or a device."""
    if is_special(path):
        raise ValueError("it is a pipe or a device")


def refuse_link(path: Path) -> None:
    """Raise OSError for a link in a run's folder, behind which is somebody else's file."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, "it is a link, and what is added would go elsewhere", str(path))


def append(path: Path, lines: bytes, *, force: bool = False) -> None:
    """Append lines to a file: all of them, or none if the system refuses some; behind a last one
    that was cut short they begin anew.

    Args:
        path: The file; it need not be there yet.
        lines: Whole ones.
        force: Force them to disk, too.

    Raises:
        OSError: As the system gave it.
    """
    with open(path, "a+b", buffering=0) as file:
        size = file.tell()
        file.seek(max(0, size - 1))
        torn = file.read(1) not in (b"", b"\n")
        left = memoryview(b"\n" + lines if torn else lines)
        try:
            while left:  # a disk that gets full takes a part of them, and says nothing
                left = left[file.write(left) :]
            if force:
                os.fsync(file.fileno())
        except OSError:
            file.truncate(size)
            raise


def read_lines(path: Path) -> list[JSON]:
    """The documents of a file of sealed lines; [] if there is none. One that was changed is passed
    over with a warning, a last one that a kill cut short (or that is being written) without."""
    try:
        content = read_bounded(path)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        log.warning("%s", damaged(path, error, "It is passed over."))
        return []
    found = []
    for number, line in enumerate(content.split(b"\n")[:-1], 1):
        try:
            found.append(unsealed(line + b"\n"))
        except ValueError as error:
            log.warning("%s", damaged(f"{path}, line {number},", error, "It is passed over."))
    return found


def damaged(where: object, error: Exception, advice: str) -> str:
    """What is said of a file that is not as it was written, or that this user may not read."""
    if isinstance(error, PermissionError):
        return f"{where} may not be read by this user. Change its permissions, or copy it."
    reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    return f"{where} is damaged, or was changed after it was written ({reason}). {advice}"


# ------------------------------------------------------------------ inside


def _mapping(pairs: list[tuple[str, Any]]) -> JSON:
    return mapping_of(
        pairs, lambda key: ValueError(f"it has the key {key[:80]!r} twice in one mapping")
    )


def _constant(name: str) -> float:
    raise ValueError(f"it holds {name}, which is no number of JSON")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("it holds a number that is too large")
    return value


def _integer(text: str) -> int:
    if len(text) > LONGEST_INTEGER:
        raise ValueError(f"it holds a number of {len(text)} digits")
    return int(text)


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MOST_DEPTH + 1):
        inside = (each.values() if isinstance(each, dict) else each for each in level)
        level = [
            each
            for values in inside
            if not PLAIN.issuperset(map(type, values))  # of a million texts by compiled code
            for each in values
            if isinstance(each, (dict, list))
        ]
        if not level:
            return
    raise ValueError(TOO_DEEP)


def _too_large(size: int, most: int) -> str:
    return f"it has {size} bytes, and {most} are read"
