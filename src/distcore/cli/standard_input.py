"""`--dataset -`: what comes through standard input, as a file, since data are read more than
once."""

from __future__ import annotations

import atexit
import shutil
import sys
from contextlib import ExitStack

from distcore_core.errors import UserError


def spooled() -> str:
    """The path of a copy of standard input, which lies there until this process ends.

    Raises:
        UserError: Nothing comes, or standard input is a terminal.
    """
    from distcore_data.sources.names import STANDARD_INPUT, call
    from distcore_data.temporaries import temporary_folder

    source = sys.stdin.buffer
    if source.isatty():
        raise UserError("--dataset - reads standard input, which is a terminal. Pipe data into it.")
    stack = ExitStack()
    atexit.register(stack.close)
    folder = stack.enter_context(temporary_folder("stdin"))
    head = source.read(1 << 16)
    if not head:
        raise UserError("--dataset - reads standard input, and nothing came. Pipe data into it.")
    format = format_of(head)
    path = folder / f"stdin.{format}"
    call(path, f"{STANDARD_INPUT} ({format})")
    with path.open("wb") as target:
        target.write(head)
        shutil.copyfileobj(source, target, 1 << 20)
    return str(path)


def format_of(head: bytes) -> str:
    """The suffix of a file that begins so."""
    for magic, suffix in ((b"PAR1", "parquet"), (b"ARROW1", "feather"), (b"{", "jsonl")):
        if head.lstrip().startswith(magic):
            return suffix
    first = head.partition(b"\n")[0]
    return "tsv" if first.count(b"\t") > first.count(b",") else "csv"
