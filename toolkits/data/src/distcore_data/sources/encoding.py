"""Text as UTF-8: what a file's encoding is, and a copy in UTF-8 if it is another."""

from __future__ import annotations

import codecs
import errno
import json
import os
from pathlib import Path
from typing import NoReturn

import pyarrow as pa

from distcore_core.errors import DataError
from distcore_data.os_errors import FULL, system_cause
from distcore_data.sources.fetch import PIECE, Workplace, no_room
from distcore_data.sources.ranges import line_number
from distcore_data.sources.unpacking import MAGIC

HEAD = 1 << 18
UTF8_MARK = codecs.BOM_UTF8
TURN, UNPACK = "Turn it into csv or parquet first.", "Unpack it first."
KINDS = (
    (b"PAR1", "a Parquet file", "Give its format as parquet."),
    (b"ARROW1", "an Arrow IPC (feather) file", "Give its format as feather."),
    (b"FEA1", "a feather file of version 1", TURN),
    (b"\xff\xff\xff\xff", "an Arrow stream", TURN),
    (b"\x89HDF", "an HDF5 file", TURN),
    *(
        (magic, f"{'an' if name == 'xz' else 'a'} {name} file", UNPACK)
        for magic, name in MAGIC.items()
    ),
    (b"PK\x03\x04", "a zip archive (or an Excel workbook)", TURN),
    (b"SQLite format 3", "an SQLite database", TURN),
    (b"%PDF", "a PDF document", TURN),
)
TAR, TAR_AT = b"ustar", 257
MARKED = ("utf-16", "utf-32")
"""What `json.detect_encoding` calls a text that begins with a mark of one of these."""


def refuse_binary(path: Path, shown: str) -> None:
    """Raise DataError when the file's head shows that it is no text, saying what it seems to be."""
    with open(path, "rb") as file:
        head = file.read(HEAD)
    _refuse_other(head, shown, "text")
    _refuse_pickle(head, shown)
    at, seems = head.find(b"\0"), json.detect_encoding(head)
    if at >= 0 and seems not in MARKED:
        # Of letters that are not Latin ones, the first bytes do not tell.
        what, set_to = (
            ("If it is UTF-16 text", "utf-16-le or utf-16-be")
            if seems == "utf-8"
            else (f"If it is {seems.upper()} text, as it seems", seems)
        )
        raise DataError(
            f"{shown}: byte {at} (line {head.count(10, 0, at) + 1}) is NUL, so this is not UTF-8 "
            f"text. {what}, set preprocessing.csv.encoding to {set_to}; otherwise write it as csv "
            "or parquet."
        )


def refuse_other_than_json(path: Path, shown: str, lines: bool) -> None:
    """Raise DataError when the file's head shows that it is no text, or none of those in which
    JSON is read: lines in UTF-8, a document in UTF-16 or UTF-32 too."""
    with open(path, "rb") as file:
        head = file.read(HEAD)
    _refuse_other(head, shown, "JSON")
    seems = json.detect_encoding(head)
    if lines and not seems.startswith("utf-8"):
        raise DataError(
            f"{shown}: this is {seems.upper()} text, and JSON lines are read in UTF-8. Write it in "
            f"UTF-8: iconv -f {seems} -t utf-8."
        )


def behind_mark(text: pa.Buffer) -> pa.Buffer:
    """A text from within a file, for Arrow's readers of csv, which drop a byte order mark at the
    beginning: one that is there is the first value's, as it would be further on."""
    if bytes(text[: len(UTF8_MARK)]) != UTF8_MARK:
        return text
    return pa.py_buffer(UTF8_MARK + bytes(memoryview(text)))


def refuse_foreign(path: str | Path, shown: str, what: str, error: Exception) -> NoReturn:
    """Raise DataError for a file that Arrow cannot open as `what`: what it seems to be by its head,
    else Arrow's own words.

    Raises FileNotFoundError for one that is not there: on another machine than the one that
    found it, say; and an OSError, if a disk or the system's limits are to blame."""
    if not os.path.lexists(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from error
    _raise_what_the_system_said(path, error)
    if Path(path).is_file():
        with open(path, "rb") as file:
            head = file.read(HEAD)
        _refuse_other(head, shown, what)
        _refuse_pickle(head, shown)
    raise DataError(
        f"{shown}: not a whole {what} file: {words_of(error)}. Write it again, or give another "
        "data format."
    )


def refuse_damaged(shown: str, what: str, error: Exception) -> NoReturn:
    """Raise DataError for a file whose content Arrow cannot read; an OSError, if a disk or the
    system's limits are to blame. what: of the file cannot be read."""
    _raise_what_the_system_said(shown, error)
    raise DataError(
        f"{shown}: {what} is damaged ({words_of(error)}). Write the file again."
    ) from error


def _raise_what_the_system_said(path: str | Path, error: Exception) -> None:
    """Raise OSError if a disk or the system's limits are to blame: Arrow's own names no file."""
    if (found := system_cause(error)) is not None:
        raise OSError(found.errno, found.strerror, str(path)) from error


def words_of(error: Exception) -> str:
    """An error of Arrow's in one line, without the stop at its end, to stand inside a sentence."""
    return " ".join(str(error).split()).rstrip(".")


def _refuse_other(head: bytes, shown: str, wanted: str) -> None:
    """Raise DataError for a file that by its first bytes is none of the kind that is wanted."""
    if head.startswith(TAR, TAR_AT):
        raise DataError(f"{shown}: this is a tar archive, not {wanted}. {UNPACK}")
    for magic, what, advice in KINDS:
        if head.startswith(magic) and wanted not in what:
            raise DataError(f"{shown}: this is {what}, not {wanted}. {advice}")


def _refuse_pickle(head: bytes, shown: str) -> None:
    if head.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")) or _is_old_pickle(
        head
    ):
        raise DataError(
            f"{shown}: this is a Python pickle and was not opened: a pickle can run any code. "
            f"Write the data as csv or parquet instead."
        )


def _is_old_pickle(head: bytes) -> bool:
    """Protocols 0 and 1: a GLOBAL opcode of an importable name early on, and STOP at the end of
    what is short."""
    if not head.startswith((b"c", b"(", b"]", b"}", b"ccopy_reg", b"cnumpy", b"cpandas")):
        return False
    return head.startswith(
        (b"ccopy_reg\n", b"c__builtin__\n", b"cnumpy", b"cpandas", b"cos\n", b"cposix\n")
    ) or (
        head.rstrip().endswith(b".")
        and head[1:2] in (b"l", b"d", b"q", b"i")
        and b"\np0\n" in head[:8] + b"\n"
    )


def as_utf8(
    path: Path, shown: str, encoding: str | None, place: Workplace, limit: int | None
) -> Path:
    """A path to the same text in UTF-8: the file itself if it is already, otherwise a copy.

    encoding: None means UTF-8, or UTF-16 or UTF-32 if there is a mark. Raises DataError naming
    line and byte if the text is not in that encoding.
    """
    with open(path, "rb") as file:
        head = file.read(HEAD)
    if encoding is None and (marked := json.detect_encoding(head)) in MARKED:
        encoding = marked
    try:
        name = codecs.lookup(encoding or "utf-8").name
        "a".encode(name)  # which refuses codecs that are not of texts, such as base64
    except (LookupError, ValueError) as error:
        raise DataError(
            f"{shown}: no encoding is called {encoding!r}. Set preprocessing.csv.encoding to "
            "utf-8, latin-1, cp1252, utf-16 or another that Python knows."
        ) from error
    if name in ("utf-8", "utf-8-sig", "ascii"):
        check_utf8(head, shown, whole=len(head) < HEAD)
        return path
    target = place.path(path.name)
    decoder = codecs.getincrementaldecoder(name)()
    done = 0
    try:
        with open(path, "rb") as source, open(target, "wb") as sink:
            while piece := source.read(PIECE):
                sink.write(decoder.decode(piece).encode())
                done += len(piece)
                if limit is not None and done >= limit:
                    return target
            sink.write(decoder.decode(b"", final=True).encode())
    except OSError as error:
        if error.errno in FULL:
            raise no_room(shown, target) from error
        raise
    except UnicodeDecodeError as error:
        good = error.object[: error.start].decode(name, errors="replace")
        line = line_number(target, target.stat().st_size) + good.count("\n")
        _fail(shown, line, len(good) - good.rfind("\n") - 1, error.object[error.start], name)
    return target


def check_utf8(text: bytes, shown: str, first_line: int = 1, whole: bool = True) -> None:
    """Raise DataError naming line and byte when the text is not UTF-8; whole: False lets its
    last character be cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(text, final=whole)
    except UnicodeDecodeError as error:
        bad = error.start
        _fail(
            shown,
            first_line + text.count(b"\n", 0, bad),
            bad - text.rfind(b"\n", 0, bad) - 1,
            text[bad],
            "utf-8",
        )


def _fail(shown: str, line: int, at: int, byte: int, encoding: str) -> NoReturn:
    raise DataError(
        f"{shown}, line {line}: byte 0x{byte:02x} at position {at + 1} of the line is not "
        f"{encoding.upper()}. Set preprocessing.csv.encoding to what the file is written in, often "
        "latin-1 or cp1252."
    )
