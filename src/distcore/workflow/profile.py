"""`--profile`: where the time of a command went, as a table and as a file for speedscope.

The processes of a worker group and of a search's trials on this machine are in it
(`distcore_data.profiling`); what runs on a cluster or was started by a launcher is not, and the
table says so.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from distcore_data import profiling
from distcore_data.own_files import begins_with
from distcore_data.profiling import WAITING, Function, Part, Sampler

if TYPE_CHECKING:
    from distcore_core.progress import Progress
    from distcore_data.stores.run_sync import Mirror

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
ENDING = ".speedscope.json"
BEGINNING = json.dumps({"$schema": SCHEMA, "exporter": "distcore"})[:-1]
"""Of a file that we wrote, which another profile may replace."""

SEARCH = "hyperopt"
"""The command whose work other processes do."""

START, OTHER = "start", "between stages, and the end"
"""What the time outside of stages goes to: before the first, and after it."""

HEAVIEST = 15
"""Functions that the table names."""

IMPORTING = "<frozen importlib."
"""What the files of Python's own import system begin with."""


class Profiled(Protocol):
    """What a profile asks of a session."""

    backend_name: str
    progress: Progress
    directory: Path | None
    mirror: Mirror | None


Seconds = defaultdict[Function, float]

_current: list[Profile] = []
"""The profile under way, if any."""


class Profile:
    """What one command is profiled with. command: its name, and the file's."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.session: Profiled | None = None
        self.others = False
        """Whether other processes are in it."""

    def stage(self) -> str:
        """What the command is at."""
        if self.session is None:
            return START
        progress = self.session.progress
        if not progress.stage:
            return OTHER if progress.stages_finished else START
        note = progress.note
        # With a number in it, such as a loss, it is of a round and says nothing of the stage.
        part = note and not any(each.isdigit() for each in note)
        return f"{progress.stage}: {note}" if part else progress.stage

    def path(self) -> Path:
        """Beside the results, if these are on this machine; else in the working folder."""
        folder = self.session.directory if self.session is not None else None
        if self.session is None or self.session.mirror is not None:
            folder = None
        kept = folder is not None and folder.is_dir()
        return Path(folder if kept and folder is not None else ".", f"{self.command}{ENDING}")

    def check(self) -> None:
        """Raise UserError, before any work, if a file that is no profile of ours lies where the
        results are known to come."""
        from distcore_core.errors import UserError

        session, path = self.session, self.path()
        assert session is not None
        known = session.mirror is not None or self.command == "preprocess"
        if (known or path.parent == session.directory) and not replaceable(path):
            raise UserError(f"{path} {NOT_OURS}. Move it away, or leave --profile out.")

    def missing(self) -> str:
        """The processes of this command that are not in the profile, in words; empty if there are
        none."""
        from distcore_core.registry.index import DEFAULTS

        name = self.session.backend_name if self.session is not None else DEFAULTS["backends"]
        if name != DEFAULTS["backends"]:
            return f"what the backend {name} ran in processes of its own"
        if self.command == SEARCH and not self.others:
            return "the trials, which the executor ran in processes that are not of this machine"
        if "RANK" in os.environ or "OMPI_COMM_WORLD_RANK" in os.environ:
            return "the other processes that the launcher started"
        return ""


def seen(session: Profiled) -> None:
    """A session began: its stages are those of the profile under way. Raises UserError if the
    profile would replace a file that is none of ours."""
    for each in _current:
        each.session = session
        each.check()


NOT_OURS = "exists, is no profile of distcore's, and was left as it is"


def replaceable(path: Path) -> bool:
    """Whether a profile may be written to the path: nothing lies there, or one of ours."""
    try:
        return begins_with(path, BEGINNING)
    except OSError:  # nothing is there, or the writing will say what is wrong
        return True


@contextmanager
def profiled(command: str, wanted: bool = True) -> Iterator[None]:
    """Profile the block, and say and write what was found, however it ends.

    Args:
        command: What is run in the block.
        wanted: Whether to; nothing is done otherwise.
    """
    if not wanted:
        yield
        return
    from distcore_core.errors import DistcoreError, OtherRank
    from distcore_data.temporaries import temporary_folder

    profile = Profile(command)
    with temporary_folder("profile") as folder:
        sampler = Sampler("distcore", profile.stage)
        _current.append(profile)
        os.environ[profiling.FOLDER] = str(folder)
        sampler.start()
        ended: BaseException | None = None
        try:
            yield
        except BaseException as error:
            ended = error
            raise
        finally:
            parts, processor = sampler.stop(), sampler.processor
            del os.environ[profiling.FOLDER]
            _current.remove(profile)
            # Input that is refused leaves everything as it was.
            refused = isinstance(ended, DistcoreError) and ended.exit_code == 2
            left = refused or isinstance(ended, OtherRank | SystemExit)
            if profile.session is not None and not left:
                others, theirs = profiling.of_processes(folder)
                profile.others = bool(others)
                for stage, seconds in theirs.items():
                    processor[stage] += seconds
                _tell(profile, [*parts, *others], processor)


def _tell(profile: Profile, parts: list[Part], processor: Mapping[str, float]) -> None:
    """Print the table, write the file; a place that cannot be written does not undo the work."""
    from distcore_core.io.atomic import write_file

    print(text_of(parts, processor), file=sys.stderr)
    if profile.missing():
        print(f"Not in it: {profile.missing()}.", file=sys.stderr)
    path = profile.path()
    if not replaceable(path):
        print(f"The profile is not kept: {path} {NOT_OURS}.", file=sys.stderr)
        return
    try:
        write_file(path, json.dumps(speedscope(profile.command, parts)).encode())
    except OSError as error:
        print(f"The profile could not be written to {path}: {error.strerror}.", file=sys.stderr)
        return
    print(f"Profile: {path} (open it on https://www.speedscope.app)", file=sys.stderr)


# ------------------------------------------------------------------ the table


def text_of(parts: list[Part], processor: Mapping[str, float]) -> str:
    """The table: stages, then the heaviest functions.

    Args:
        parts: Of all processes.
        processor: {stage: processor seconds of all processes}.
    """
    from distcore_data.table import table

    clock: dict[str, float] = defaultdict(float)
    for each in parts:
        if each.process == "distcore" and each.thread == profiling.MAIN:
            clock[each.stage] += each.seconds
    whole = sum(clock.values())
    stages = [
        (name, f"{seconds:.2f}", _share(seconds, whole), f"{processor.get(name, 0.0):.2f}")
        for name, seconds in clock.items()
    ]
    total = ("all", f"{whole:.2f}", "", f"{sum(processor.values()):.2f}")
    busy, waiting = heaviest(parts)
    both = {each: busy[each] + waiting[each] for each in {*busy, *waiting}}
    summed = sum(both.values())
    functions = [
        (f"{busy[each]:.2f}", f"{waiting[each]:.2f}", _share(both[each], summed), *each)
        for each in sorted(both, key=lambda each: (-both[each], each))[:HEAVIEST]
    ]
    return "\n\n".join(
        [
            table([("STAGE", "SECONDS", "SHARE", "PROCESSOR SECONDS"), *stages, total]),
            table([("PROCESSOR SECONDS", "WAITING", "SHARE", "FUNCTION", "FILE"), *functions]),
        ]
    )


def heaviest(parts: Iterable[Part]) -> tuple[Seconds, Seconds]:
    """Seconds in each function itself, in all threads and processes: (on a processor, waiting).

    All that an import runs is one row, that of the package."""
    busy: Seconds = defaultdict(float)
    waiting: Seconds = defaultdict(float)
    for each in parts:
        waits = each.stack[-1] == WAITING
        calls = each.stack[:-1] if waits else each.stack
        (waiting if waits else busy)[_imported(calls) or calls[-1]] += each.seconds
    return busy, waiting


def _imported(calls: Sequence[Function]) -> Function | None:
    """The import that a stack is in, if it is, and of which package. A look finds it where files
    are asked for, deep in Python's import system: the interpreter is given up there."""
    if not any(call.file.startswith(IMPORTING) for call in calls):
        return None
    modules = (call.file for call in reversed(calls) if call.name == "<module>")
    return Function("import", next(modules, "").partition(os.sep)[0])


def _share(seconds: float, whole: float) -> str:
    return f"{100 * seconds / whole:.0f} %" if whole else ""


# ------------------------------------------------------------------ the file


def speedscope(command: str, parts: Iterable[Part]) -> dict[str, Any]:
    """The document of speedscope's file format: a profile for each thread of each process, the
    stage as its outermost frame.

    What went to one stack is one sample, so a run of days is a file as small as one of minutes."""
    frames: dict[Function, int] = {}
    threads: dict[tuple[str, str], tuple[list[list[int]], list[float]]] = {}
    for each in parts:
        stack = (Function(f"stage: {each.stage}"), *each.stack)
        samples, weights = threads.setdefault((each.process, each.thread), ([], []))
        samples.append([frames.setdefault(function, len(frames)) for function in stack])
        weights.append(each.seconds)
    ours = sorted(threads.items(), key=lambda item: item[0] != ("distcore", profiling.MAIN))
    return {
        "$schema": SCHEMA,
        "exporter": "distcore",
        "name": f"distcore {command}",
        "activeProfileIndex": 0,
        "shared": {
            "frames": [{"name": each.name, "file": each.file or "(none)"} for each in frames]
        },
        "profiles": [
            {
                "type": "sampled",
                "name": f"{process}, {thread}",
                "unit": "seconds",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": samples,
                "weights": weights,
            }
            for (process, thread), (samples, weights) in ours
        ],
    }
