"""Stores with a fault each, around folders of this machine."""

from __future__ import annotations

import os
import re
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

from tests.mutants.harness import Mutants

from distcore_core.hooks import hookimpl
from distcore_data.stores.local import LocalStore
from distcore_data.stores.store import SMALL
from distcore_testing import StoreSuite


def address(self, folder):
    return f"{self.name}://bucket{folder}/store"


DISTCORE_API = (1, 0)
MUTANTS = Mutants("stores", StoreSuite, {"address": address, "many": 50})
LOCK = threading.Lock()


@MUTANTS.sound
class Shelf(LocalStore):
    """A folder of this machine."""

    def __init__(self, place, credentials):
        super().__init__(Path(place.partition("://bucket")[2]))
        self.credentials = credentials


@MUTANTS.fault("test_a_reader_sees_one_whole_object_while_it_is_replaced", quick=True)
class Torn(Shelf):
    """Writes where a reader may look meanwhile."""

    def write(self, name, content):
        with open(self._made(name), "wb") as file:
            for start in range(0, len(content), 1000):
                file.write(content[start : start + 1000])
                file.flush()


@MUTANTS.fault("test_of_all_who_create_a_name_one_wins")
class Racing(Shelf):
    """Looks whether a name is there, and then writes it."""

    def create(self, name, content):
        if self._path(name).exists():
            return False
        self.write(name, content)
        return True


@MUTANTS.fault("test_what_was_created_is_kept")
class Replacing(Shelf):
    """Creating a name replaces what has it."""

    def create(self, name, content):
        self.write(name, content)
        return True


@MUTANTS.fault("test_another_one_sees_what_is_there_now")
class Caching(Shelf):
    """Keeps its listing."""

    def list(self, prefix=""):
        if not hasattr(self, "kept"):
            self.kept = super().list()
        return {name: each for name, each in self.kept.items() if name.startswith(prefix)}


@MUTANTS.fault("test_a_listing_gives_everything_below_a_prefix")
class Flat(Shelf):
    """A folder's listing leaves out what lies in folders below it."""

    def list(self, prefix=""):
        depth = prefix.count("/")
        found = super().list(prefix)
        return {name: each for name, each in found.items() if name.count("/") <= depth}


@MUTANTS.fault("test_a_listing_of_many_is_whole")
class Paged(Shelf):
    """Gives the first page alone."""

    def list(self, prefix=""):
        return dict(sorted(super().list(prefix).items())[:40])


@MUTANTS.fault("test_deleting_takes_these_objects_alone")
class Sweeping(Shelf):
    """Deletes whatever begins as a name does."""

    def delete(self, names):
        every = super().list()
        super().delete([each for name in names for each in every if each.startswith(name)])


@MUTANTS.fault("test_what_is_not_there_is_told_as_such")
class Vague(Shelf):
    """An object that is not there is empty."""

    def read(self, name):
        return super().read(name) if self._path(name).is_file() else b""


@MUTANTS.fault("test_what_is_not_there_is_told_as_such")
class Strict(Shelf):
    """Deleting what is gone already is an error."""

    def delete(self, names):
        for name in names:
            os.unlink(self._path(name))


@MUTANTS.fault("test_what_is_written_is_read")
class Translating(Shelf):
    """Turns the ends of lines into this system's."""

    def read(self, name):
        return super().read(name).replace(b"\r\n", b"\n")


@MUTANTS.fault("test_it_travels_to_workers")
class Staying(Shelf):
    """Holds a lock, which does not pickle."""

    def __init__(self, place, credentials):
        import threading

        super().__init__(place, credentials)
        self.lock = threading.Lock()


@MUTANTS.fault("test_it_says_where_things_lie_and_no_secret")
class Telling(Shelf):
    """Shows what it was opened with."""

    def __repr__(self):
        return f"Telling({self.root}, {self.credentials and self.credentials.options})"


@MUTANTS.fault("test_more_than_fits_is_refused_by_read_and_opened")
class Greedy(Shelf):
    """Reads whatever there is into memory."""

    def read(self, name):
        path = self._path(name)
        return path.read_bytes() if path.stat().st_size > SMALL else super().read(name)


@MUTANTS.fault("test_places_do_not_see_each_other")
class Merged(Shelf):
    """Forgets where its address ends."""

    def __init__(self, place, credentials):
        super().__init__(place.partition("-more")[0], credentials)


NAMES = "test_names_are_kept_as_they_are"


@MUTANTS.fault(NAMES)
class Folding(Shelf):
    """Names that differ in case alone are one."""

    def _path(self, name):
        return super()._path(name.lower())


@MUTANTS.fault(NAMES)
class Cutting(Shelf):
    """Of long names the beginning counts."""

    def _path(self, name):
        return super()._path("/".join(part[:100] for part in name.split("/")))


@MUTANTS.fault(NAMES)
class Hiding(Shelf):
    """What ends as its own unfinished files do is not listed."""

    def list(self, prefix=""):
        found = super().list(prefix)
        return {name: each for name, each in found.items() if not name.endswith(".tmp")}


@MUTANTS.fault("test_a_reader_sees_one_whole_object_while_it_is_replaced")
class PutsInPlace(Shelf):
    """A file is put where a reader may look meanwhile."""

    def put(self, name, path):
        with open(path, "rb") as file, open(self._made(name), "wb") as target:
            while part := file.read(1000):
                target.write(part)
                target.flush()


@MUTANTS.fault("test_a_name_that_is_created_has_its_content_at_once")
class CreatesInPlace(Shelf):
    """A name that is created is there before its content is."""

    def create(self, name, content):
        try:
            with open(self._made(name), "xb") as file:
                for start in range(0, len(content), 100):
                    file.write(content[start : start + 100])
                    file.flush()
        except FileExistsError:
            return False
        return True


@MUTANTS.fault("test_of_all_processes_that_create_a_name_one_wins", quick=True)
class LocksThreads(Shelf):
    """Of those who create a name, a lock keeps threads apart, and no processes."""

    def create(self, name, content):
        with LOCK:
            if self._path(name).exists():
                return False
            self.write(name, content)
            return True


LISTING = "test_a_listing_gives_everything_below_a_prefix"


@MUTANTS.fault(LISTING)
class Milliseconds(Shelf):
    """A listing tells times in milliseconds, so that whoever uses a cache has long been dead."""

    def list(self, prefix=""):
        found = super().list(prefix)
        return {name: replace(each, modified=each.modified * 1000) for name, each in found.items()}


@MUTANTS.fault(LISTING)
class Like(Shelf):
    """A prefix is a pattern of SQL, where `_` is any character."""

    def list(self, prefix=""):
        pattern = re.compile(re.escape(prefix).replace("_", "."))
        return {name: each for name, each in super().list().items() if pattern.match(name)}


OPENED = "test_opened_objects_stay_as_they_are_and_leave_nothing"


@MUTANTS.fault(OPENED)
class ByLastName(Shelf):
    """Fetches what is opened into a file that the last part of the name names."""

    def open(self, name, size, seen=None):
        path = Path(tempfile.gettempdir(), name.rpartition("/")[2])
        path.write_bytes(super().open(name, size).read())
        file = path.open("rb")
        if size < 1000:
            path.unlink()
        return file


@MUTANTS.fault(OPENED)
class LeavesFetched(Shelf):
    """What was fetched to be opened stays."""

    def open(self, name, size, seen=None):
        with tempfile.NamedTemporaryFile(delete=False) as file:
            file.write(super().open(name, size).read())
        return open(file.name, "rb")


@MUTANTS.fault("test_more_than_fits_is_refused_by_read_and_opened")
class PartsInTurn(Shelf):
    """Of a large file's parts, the one that is sent first is the last of all."""

    def put(self, name, path):
        content = path.read_bytes()
        size = 16 << 20
        self.write(name, content[size : 2 * size] + content[:size] + content[2 * size :])


@MUTANTS.fault("test_any_thread_may_read")
class OneBuffer(Shelf):
    """Reads into a buffer that all threads share."""

    def read(self, name):
        with super().open(name, 0) as file:
            size = os.fstat(file.fileno()).st_size
            if len(getattr(self, "buffer", b"")) < size:
                self.buffer = bytearray(size)
            file.readinto(self.buffer)
            return bytes(self.buffer[:size])


@hookimpl
def distcore_make_member(kind, name, context):
    made = MUTANTS.named(name)
    return made and made(**context)
