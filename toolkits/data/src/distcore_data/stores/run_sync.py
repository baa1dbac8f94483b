"""A run's folder in a bucket. It is worked on in a folder of the machine, and copied from there
file by file.

What belongs together (a checkpoint, a model) is a folder with one file that holds the digests of
the others. Of such a folder that file is put last and deleted first: what has it was whole when it
was put, and whoever was killed in between leaves a folder without it, which no reader takes for
one. A file that stands for itself is replaced by one put.

    <address>/started.json                              put on condition that there is none: whose
                                                        folder this is
    <address>/running.json                              while a process is at work there; changed
                                                        every few seconds
    <address>/description.json, report.html, …          each as soon as it is written, or when the
                                                        run ends
    <address>/checkpoints/step-00000123/manifest.json   put before the step counts as saved
    <address>/model/model.json
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from distcore_core.contracts import ResultsStore
from distcore_core.errors import StoreError, TrainingError, UserError
from distcore_core.io.atomic import DirectoryBuilder
from distcore_core.io.temporaries import BUILDING, REMOVING
from distcore_data.os_errors import FULL, REFUSED, explained
from distcore_data.stores import NAME, Credentials, Stat, Store, open_store
from distcore_data.stores.addresses import without_password
from distcore_data.stores.lease import is_lost
from distcore_data.temporaries import system_folder, temporary_folder

STARTED = "started.json"
"""What claims a run's folder."""

CHECKPOINTS, MODEL = "checkpoints", "model"
"""Folders of an experiment; what is in them is copied as a whole, by those who write it."""

MANIFEST = "manifest.json"
"""What a checkpoint is put with last."""

RUNNING = "running.json"
"""In a bucket, what a process that is at work in a run's folder changes every few seconds."""

WAITS = "waiting.json"
"""In the folder of a run that has no heartbeat yet, because it waits for another training of its
process."""

RESUME = "--model_resume_path"

log = logging.getLogger("distcore")


class RunTaken(StoreError):
    """Another process has gone on with the run."""

    recurs = True


def how_to_go_on(checkpoint: object, home: object) -> str:
    """A sentence: the last checkpoint of a run, and how to go on from it.

    Args:
        checkpoint: Its path or address.
        home: The run's.
    """
    return f"The last checkpoint is {checkpoint}; go on from it with {RESUME} {home}"


def newest_checkpoint(folder: Path | None, mirror: ResultsStore | None) -> str:
    """The path or address of the checkpoint of the most steps that a run has saved; "" if there is
    none.

    Args:
        folder: The run's, on this machine; None: it has none.
        mirror: Its bucket, where a checkpoint must have come to count.

    Raises:
        StoreError: The bucket cannot be asked.
    """
    if mirror is not None:
        found = mirror.folders(CHECKPOINTS, MANIFEST)
        return mirror.where(max(found, key=_by_step)) if found else ""
    saved = folder.glob(f"{CHECKPOINTS}/step-*") if folder is not None else ()
    return max((str(each) for each in saved if not each.suffix), key=_by_step, default="")


def _by_step(name: str) -> tuple[int, str]:
    """A key by which folders of checkpoints are in the order of their steps, also beyond eight
    digits."""
    return len(name), name


class Mirror:
    """A folder of results in a store. url: its address, for people. Pickles, credentials included,
    into a worker's job.

    Raises StoreError, naming the object and the cause, if the store cannot be asked, after
    bounded retries, and by whatever puts or removes something of a run if another process has
    taken it over, and is at work."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.url = store.url
        self.holder = ""
        """The `Lease.id` of RUNNING, if the run's process holds it."""
        self._put: dict[str, tuple[int, int]] = {}

    @classmethod
    def at(cls, address: str, credentials: Credentials | None = None) -> Mirror:
        """The one at an address. Contacts nothing. credentials: None for what the environment
        gives."""
        return cls(open_store(address, credentials))

    @classmethod
    def begin(
        cls,
        root: str,
        name: str,
        credentials: Credentials | None = None,
        makes_room: Callable[[Mirror], bool] = lambda _: False,
    ) -> Mirror:
        """A fresh one at `<root>/<name>`, with a number behind it if something lies there: two runs
        share none.

        Args:
            root, name: The address of all runs, and what this one is called there.
            credentials: None for what the environment gives.
            makes_room: Asked for each that was claimed before: true if it is the caller's now.

        Raises:
            UserError: No object can have that name.
        """
        if not NAME.fullmatch(name) or "/" in name:
            raise UserError(
                f"{name!r} cannot be the name of a folder in a bucket: give an --experiment_name "
                "and a --model_name of letters, digits, '.', '_' and '-'."
            )
        mark = {
            "host": socket.gethostname(),
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        content = (json.dumps({**mark, "run": uuid.uuid4().hex}, indent=2) + "\n").encode()
        number = 0
        while True:
            mirror = cls.at(
                f"{root.rstrip('/')}/{name}{f'_{number}' if number else ''}", credentials
            )
            if not mirror.store.list() and mirror.store.create(STARTED, content):
                return mirror
            if makes_room(mirror):
                mirror.store.write(STARTED, content)
                return mirror
            number += 1

    def where(self, name: str) -> str:
        """The whole address of what has the name, for messages."""
        return self.store.where(name)

    def __repr__(self) -> str:
        return f"Mirror({self.url!r})"

    # ---------------------------------------------------------- folders that are whole or not there

    def put_folder(self, name: str, folder: Path, last: str) -> None:
        """Copy a folder of plain files, of which `last` says what belongs to it, in place of
        what had the name."""
        self._require_held()
        before = self.store.list(f"{name}/")
        if f"{name}/{last}" in before:
            self.store.delete([f"{name}/{last}"])
        names = sorted(path.name for path in folder.iterdir() if path.name != last)
        for each in (*names, last):
            self.store.put(f"{name}/{each}", folder / each)
        self.store.delete(sorted(before.keys() - {f"{name}/{each}" for each in (*names, last)}))

    def get_folder(self, name: str, folder: Path, last: str) -> None:
        """Copy it to this machine, in place of what has the folder's name; nothing to do if it is
        the same already.

        name: "" for the mirror itself. What came is for the reader to check. Raises
        FileNotFoundError if there is none, StoreError if it was replaced meanwhile, TrainingError
        if this machine has no room for it."""
        prefix = f"{name}/" if name else ""
        found = self._files_in(prefix)
        if prefix + last not in found:
            raise FileNotFoundError(self.where(prefix + last))
        size = found[prefix + last].bytes
        wanted = self._bytes(prefix + last, size)
        if (folder / last).is_file() and (folder / last).read_bytes() == wanted:
            return
        with (
            self._room_for(name, folder.parent),
            DirectoryBuilder(folder) as building,
        ):
            try:
                for each in sorted(found.keys() - {prefix + last}):
                    self._get(each, found[each].bytes, building / each[len(prefix) :])
                same = (
                    self._files_in(prefix) == found and self._bytes(prefix + last, size) == wanted
                )
            except FileNotFoundError:
                same = False
            if not same:
                raise StoreError(
                    f"{self.where(name).rstrip('/')} was replaced or removed while it was copied "
                    "from there. Nothing of it is kept. Run the same command again once nobody "
                    "writes there."
                )
            (building / last).write_bytes(wanted)

    def _files_in(self, prefix: str) -> dict[str, Stat]:
        """What lies in a folder itself, not in folders of it."""
        found = self.store.list(prefix)
        return {name: stat for name, stat in found.items() if "/" not in name[len(prefix) :]}

    def folders(self, name: str, last: str = "") -> list[str]:
        """Names of the folders in a folder, in order; with `last`, of those that have that file."""
        inside = [each.split("/") for each in self.store.list(f"{name}/")]
        found = {parts[1] for parts in inside if len(parts) == 3 and last in ("", parts[2])}
        return [f"{name}/{each}" for each in sorted(found)]

    def remove_folder(self, name: str, last: str) -> None:
        """Delete a folder, the file that makes it one first."""
        self._require_held()
        found = self.store.list(f"{name}/")
        self.store.delete(sorted(found, key=lambda each: (each != f"{name}/{last}", each)))

    # -------------------------------------------------------------- files that stand for themselves

    def put_file(self, name: str, path: Path) -> None:
        """Copy a file, in place of what had the name."""
        self._require_held()
        self._put_file(name, path)

    def _put_file(self, name: str, path: Path) -> None:
        status = path.stat()
        self.store.put(name, path)
        self._put[name] = (status.st_mtime_ns, status.st_size)

    def put_files(self, folder: Path) -> None:
        """Copy the files of a run's folder that were not put yet, but for checkpoints and
        models. One that is removed meanwhile is passed over."""
        self._require_held()
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if (
                name.partition("/")[0] in (CHECKPOINTS, MODEL)
                or path.is_symlink()
                or not path.is_file()
            ):
                continue
            if name.startswith(".") or "/." in name or BUILDING in name or REMOVING in name:
                continue
            if not NAME.fullmatch(name):
                if name not in self._put:  # told once, not at every checkpoint
                    self._put[name] = 0, 0
                    log.warning("%s stays on this machine: no object can have its name.", path)
                continue
            with suppress(FileNotFoundError):
                status = path.stat()
                if self._put.get(name) != (status.st_mtime_ns, status.st_size):
                    self._put_file(name, path)

    def delete_file(self, name: str) -> None:
        """Delete a file; one that is gone already is fine."""
        self._require_held()
        self._put.pop(name, None)
        self.store.delete([name])

    def get_file(self, name: str, path: Path, size: int | None = None) -> None:
        """Copy a file to this machine. size: in bytes, if it is known. Raises FileNotFoundError."""
        self._get(name, self._size(name) if size is None else size, path)

    def read(self, name: str) -> bytes:
        """A whole file, of any size. Raises FileNotFoundError."""
        return self._bytes(name, self._size(name))

    def _bytes(self, name: str, size: int) -> bytes:
        with self._opened(name, size, system_folder()) as file:
            return file.read()

    def _size(self, name: str) -> int:
        found = self.store.list(name.rpartition("/")[0]).get(name)
        if found is None:
            raise FileNotFoundError(self.store.where(name))
        return found.bytes

    def get_files(self, folder: Path, suffix: str, last: str) -> None:
        """Copy the files that lie in the mirror itself, not in folders of it, and end so; `last`
        after the others, if it is one of them."""
        for name, stat in sorted(self.store.list().items(), key=lambda each: each[0] == last):
            if "/" not in name and name.endswith(suffix):
                with suppress(FileNotFoundError):  # it was removed since it was listed
                    self._get(name, stat.bytes, folder / name)

    def remove(self) -> None:
        """Delete everything, the claim last."""
        self._require_held()
        self.store.delete(sorted(self.store.list(), key=lambda each: (each == STARTED, each)))
        self.holder = ""  # that of a lease which is gone, too

    def _require_held(self) -> None:
        if self.holder and is_lost(self.store, RUNNING, self.holder):
            raise RunTaken(
                f"Another process has gone on with the run in {self.url}: this one was paused, or "
                "its bucket did not answer, for so long that it was taken for dead. It saves "
                "nothing more there. Use what the other one writes."
            )

    def _get(self, name: str, size: int, path: Path) -> None:
        with self._opened(name, size, path.parent) as source, open(path, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)

    @contextmanager
    def _opened(self, name: str, size: int, folder: Path) -> Iterator[BinaryIO]:
        """The whole file. One that grew since its size was told comes with a byte too many, and
        without the others: it is opened again."""
        with self._room_for(name, folder):
            while True:
                with self.store.open(name, size) as file:
                    if file.seek(0, os.SEEK_END) <= size:
                        file.seek(0)
                        yield file
                        return
                size = self._size(name)

    def _room_for(self, name: str, folder: Path) -> AbstractContextManager[None]:
        """Says what to do if this machine has no room for a copy."""
        advice = "point TMPDIR to a larger disk"
        what = f"a copy of {self.store.where(name)}"
        return explained(folder, what, TrainingError, advice=advice, only=FULL | REFUSED)


@contextmanager
def working_folder(mirror: ResultsStore) -> Iterator[Path]:
    """A folder of this machine to work in, named as the one in the bucket; it is gone when the
    block ends."""
    with temporary_folder("run") as parent:
        folder = Path(parent, os.path.basename(without_password(mirror.url)))
        folder.mkdir()
        yield folder
