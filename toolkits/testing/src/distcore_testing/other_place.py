"""What a cache format does in a process where everything is otherwise that a shard's bytes must not
depend on; and what of a file its reader runs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore_testing.elsewhere import said_elsewhere
from distcore_testing.watch import Watch

if TYPE_CHECKING:
    import pyarrow as pa

AHEAD = 40 * 86_400 + 3_723
"""Seconds by which the other process's clock is ahead: its date, hour and minute are others."""

SCRIPT = "import sys; from distcore_testing.other_place import child; child(sys.argv[1:])"


def in_another_place(
    name: str,
    options: Mapping[str, Any],
    table: pa.Table,
    folder: Path,
    changes: Sequence[str] | None = None,
) -> Any:
    """Write a shard and read it again in another process, whose hashes are others.

    Args:
        name, options: Of the cache format.
        table: Of the shard.
        folder: Empty, and the other process's own.
        changes: Keys of `CHANGES`; None: all of them.

    Returns:
        {"digest": sha256 of the file, "ran": what reading it ran, a text each}.
    """
    import pyarrow as pa

    with (
        pa.OSFile(str(folder / "table"), "wb") as file,
        pa.ipc.new_file(file, table.schema) as writer,
    ):
        writer.write_table(table)
    wanted = list(CHANGES if changes is None else changes)
    said = said_elsewhere(SCRIPT, name, json.dumps(dict(options)), str(folder), json.dumps(wanted))
    return json.loads(said.rpartition("FOUND")[2])


def child(words: Sequence[str]) -> None:
    """The other process: changes itself before it imports the format, which may keep what it finds.

    Args:
        words: Name, options, folder and changes, as `in_another_place` gives them.
    """
    name, options, folder, changes = words
    ran = Watch()
    for each in json.loads(changes):
        CHANGES[each](folder)

    import hashlib
    import io

    import pyarrow as pa

    from distcore_core.contracts import CACHE_FORMAT
    from distcore_core.registry.manager import Plugins

    with pa.OSFile(os.path.join(folder, "table")) as source:
        table = pa.ipc.open_file(source).read_all()
    format = Plugins().make(CACHE_FORMAT, name, json.loads(options))

    def write() -> bytes:
        if NAMED not in changes:
            memory = io.BytesIO()
            format.write(memory, table)
            return memory.getvalue()
        with open(os.path.join(folder, "another name.tmp"), "w+b") as target:
            format.write(target, table)
            target.seek(0)
            return target.read()

    def read(content: bytes) -> None:
        reader = format.open(io.BytesIO(content))
        reader.read()
        reader.read(1, 2, table.column_names[:1])
        reader.close()

    # What is imported for it is imported now, and the code that runs then is no file's.
    read(write())
    if TIME in changes:
        _later_dates(type(format).__module__.partition(".")[0])
    content = write()
    with ran:
        read(content)
    digest = hashlib.sha256(content).hexdigest()
    print("FOUND" + json.dumps({"digest": digest, "ran": sorted(ran.found)}), flush=True)
    os._exit(0)  # at the interpreter's end a busy machine's thread pool of Arrow may abort


# ------------------------------------------------------------------ what is otherwise


def _another_time(folder: str) -> None:
    import time

    now, nanoseconds = time.time, time.time_ns
    local, form, text = time.localtime, time.strftime, time.asctime

    def of_now(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda seconds=None: function(time.time() if seconds is None else seconds)

    replaced: dict[str, Any] = {
        "time": lambda: now() + AHEAD,
        "time_ns": lambda: nanoseconds() + AHEAD * 10**9,
        "localtime": of_now(local),
        "gmtime": of_now(time.gmtime),
        "ctime": of_now(time.ctime),
        "strftime": lambda style, of=None: form(style, of or local(time.time())),
        "asctime": lambda of=None: text(of or local(time.time())),
    }
    for name, function in replaced.items():
        setattr(time, name, function)


def _later_dates(package: str) -> None:
    """Let `datetime` be ahead too: in the plugin's own modules, and for who imports it from now on.

    Extension modules that are imported later, such as pandas', do not bear another class there."""
    import datetime

    ahead, moment, day = datetime.timedelta(seconds=AHEAD), datetime.datetime, datetime.date

    class Later(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return moment.now(tz) + ahead

        @classmethod
        def utcnow(cls) -> Any:
            return moment.now(datetime.UTC).replace(tzinfo=None) + ahead

        @classmethod
        def today(cls) -> Any:
            return moment.now() + ahead

    class Tomorrow(datetime.date):
        @classmethod
        def today(cls) -> Any:
            return day.today() + ahead

    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == package or module is datetime:
            for key, value in list(vars(module).items()):
                if value is moment or value is day:
                    setattr(module, key, Later if value is moment else Tomorrow)


def _another_host(folder: str) -> None:
    import platform
    import socket

    named = os.uname()
    os.environ["HOSTNAME"] = other = "another-host"
    socket.gethostname = socket.getfqdn = lambda *_: other
    platform.node = lambda: other
    os.uname = lambda: os.uname_result((named[0], other, *named[2:]))


def _another_user(folder: str) -> None:
    for name in ("USER", "LOGNAME", "LNAME", "USERNAME"):
        os.environ[name] = "somebody"
    os.environ["HOME"] = folder
    os.getlogin = lambda: "somebody"
    os.getuid = os.geteuid = lambda: 54_321


def _another_folder(folder: str) -> None:
    os.chdir(folder)
    os.environ["PWD"] = os.environ["TMPDIR"] = folder


TIME, HOST, NAMED = "the time", "the host", "the target's name"
CHANGES: Mapping[str, Callable[[str], None]] = {
    TIME: _another_time,
    HOST: _another_host,
    "the user": _another_user,
    "the working folder": _another_folder,
    NAMED: lambda folder: None,
}
"""What is otherwise, in words for people, and what makes it so. The target has no name here."""
