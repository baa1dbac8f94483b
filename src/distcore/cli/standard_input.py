"""`--dataset -`: what comes through standard input, as a file, since data are read more than
once."""

from __future__ import annotations

import atexit
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path

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
    copy = folder / "stdin"
    with copy.open("wb") as target:
        target.write(head)
        shutil.copyfileobj(source, target, 1 << 20)
    format = _format_of(copy)
    path = copy.rename(folder / f"stdin.{format}")
    call(path, f"{STANDARD_INPUT} ({format})")
    return str(path)


def _format_of(path: Path) -> str:
    """What a file is by its content, which is its ending then."""
    from distcore_data.sources.registry import format_by_content
    from distcore_data.sources.unpacking import head_of

    found = format_by_content(path)
    first = head_of(path, 1 << 16).partition(b"\n")[0]
    return "tsv" if found == "csv" and first.count(b"\t") > first.count(b",") else found
