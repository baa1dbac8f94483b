"""Commands in forks of a process that has imported everything already, each killed right before
its n-th call of whatever makes, changes, forces, locks or removes files, or told there that the call
failed.

Run as a program: a JSON object a line, {"words": the command line, "at": n or 0 for none, "errors":
{call: the number of the error that it meets}, none to be killed}, is answered by two: {"process": of
the fork}, and once it has ended {"code": exit code, or -9, "calls": the names of such calls, "said":
what was said}.
"""

import atexit
import builtins
import fcntl
import functools
import importlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

CALLS = (
    *("open", "write", "fsync", "fdatasync", "truncate", "ftruncate"),
    *("rename", "replace", "link", "symlink", "unlink", "remove", "mkdir", "rmdir"),
)
"""Of the module os; and `open` for writing."""


class Killing:
    """The program, from a test.

    Args:
        folder: Where the commands run.
        settings: {"module:name": value} that the commands find in place of their own.

    Attributes:
        process: The command that runs, or ran last.
    """

    def __init__(self, folder: Path, settings: Mapping[str, float] | None = None) -> None:
        self.process = 0
        self._program = subprocess.Popen(
            [sys.executable, __file__, str(folder), json.dumps(dict(settings or {}))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(folder / "tmp"), "OMP_NUM_THREADS": "1"},
        )

    def run(
        self, *words: object, at: int = 0, errors: Mapping[str, int] | None = None
    ) -> dict[str, Any]:
        """A command, killed before that call, or not at all (0).

        errors: {call: number of the error that is met there instead}."""
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        request = {"words": list(map(str, words)), "at": at, "errors": dict(errors or {})}
        self._program.stdin.write(json.dumps(request) + "\n")
        self._program.stdin.flush()
        self.process = json.loads(self._program.stdout.readline())["process"]
        found: dict[str, Any] = json.loads(self._program.stdout.readline())
        return found

    def close(self) -> None:
        self._program.communicate()


class Counted:
    """Calls before which this process counts, and is killed, or meets an error, at its number."""

    def __init__(self, at: int, errors: Mapping[str, int]) -> None:
        self.at, self.errors = at, errors
        self.calls: list[str] = []

    def before(self, name: str, given: tuple[Any, ...]) -> None:
        self.calls.append(name)
        if len(self.calls) == self.at and name in self.errors:
            number = self.errors[name]
            raise OSError(
                number, os.strerror(number), *[each for each in given[:1] if is_path(each)]
            )
        if len(self.calls) == self.at and not self.errors:
            os.kill(os.getpid(), signal.SIGKILL)

    def function(self, name: str, function: Any, *, writing_only: bool = False) -> Any:
        """The function, counted."""

        @functools.wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            mode = named.get("mode", given[1] if len(given) > 1 else "r")
            if not (writing_only and not set(str(mode)) & set("wax+")):
                self.before(name, given)
            return function(*given, **named)

        return call


def is_path(given: Any) -> bool:
    return isinstance(given, str | bytes | os.PathLike)


def command(words: list[str], counted: Counted, answer: int) -> None:
    """In a fork: the command line to its end."""
    from distcore.cli.main import main

    for place, value in json.loads(sys.argv[2]).items():
        module, _, name = place.partition(":")
        setattr(importlib.import_module(module), name, value)
    send = os.write
    for name in CALLS:
        setattr(os, name, counted.function(name, getattr(os, name)))
    builtins.open = io.open = counted.function("open", io.open, writing_only=True)
    if counted.errors:
        fcntl.flock = counted.function("flock", fcntl.flock)
    try:
        code = main(words)
    except SystemExit as exit:  # argparse's own way out
        code = int(exit.code or 0)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    known = [name for name in sys.modules if name.partition(".")[0] != "tests"]
    send(answer, json.dumps({"calls": counted.calls, "modules": known}).encode())
    os._exit(code)


def forked(words: list[str], at: int, errors: Mapping[str, int]) -> dict[str, Any]:
    """The answer to a request. What a command that was not killed had imported is imported here,
    for the forks to come."""
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile() as answer:
        child = os.fork()
        if child == 0:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            command(words, Counted(at, errors), answer.fileno())
        print(json.dumps({"process": child}), flush=True)
        _, status = os.waitpid(child, 0)
        said.seek(0)
        answer.seek(0)
        found = json.loads(answer.read() or "{}")
        for name in found.get("modules", ()) if at == 0 else ():
            with suppress(ImportError):  # names that nothing imports by
                importlib.import_module(name)
        return {
            "code": os.waitstatus_to_exitcode(status),
            "calls": found.get("calls", []),
            "said": said.read(),
        }


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    Path(os.environ["TMPDIR"]).mkdir(exist_ok=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(forked(**request)), flush=True)
