"""What every store must hold: objects whole or not there, one winner of those who create a name,
listings of what is there now, no credentials shown."""

from __future__ import annotations

import json
import pickle
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from distcore_core.contracts import Credentials
from distcore_data.stores import open_store
from distcore_data.stores.addresses import SCHEMES, store_kind
from distcore_data.stores.store import SMALL, Stat, Store
from distcore_testing.counting import descriptors
from distcore_testing.elsewhere import said_elsewhere

CANARY = "canary-secret-0815"
"""What no text may show."""

THREADS = 8
PROCESSES = 3
CHILD = """
import json, sys, time
from pathlib import Path
from distcore_core.contracts import Credentials
from distcore_data.stores import open_store
address, credentials, mine, folder, processes, names = json.load(sys.stdin)
store = open_store(address, credentials and Credentials(credentials))
store.list()
Path(folder, str(mine)).touch()
while len(ready := list(Path(folder).iterdir())) < processes:
    time.sleep(0.001)
start, won = max(each.stat().st_mtime for each in ready) + 0.2, []
for number, name in enumerate(names):
    while time.time() < start + number / 50:
        pass
    if store.create(name, (f"by {mine} " * 20_000).encode()):
        won.append(name)
print("FOUND" + json.dumps(won))
"""

NAMES = (
    *("a", "A", "a.b", "a..b", "a.", "a-", "a_", "0", "00", "con", "x.tmp", "x.json", "x.json.tmp"),
    *("f/a", "f/A", "f.d/a", "F/a", "1/2/3/4/5/6/7/8", "b" * 128, "b" * 127, "c" * 127 + "/d"),
)
"""Of objects that are all different."""


class StoreSuite:
    """Subclass with `name` (the scheme) and `address(folder)`.

    address: of an empty place; two folders have two. credentials: for `open_store`. many: objects
    that a listing must give whole. large: False if 64 MiB are too many to be written here.
    processes: False if what one process stores no other one sees.
    """

    name: str
    credentials: Credentials | None = None
    many = 1100
    large = True
    processes = True

    def address(self, folder: Path) -> str:
        raise AssertionError("the subclass gives address()")

    def open(self, address: str) -> Store:
        return open_store(address, self.credentials)

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return self.open(self.address(tmp_path))

    def test_its_addresses_lead_to_it(self, tmp_path: Path) -> None:
        """A folder, or another's store, would pass all of this in its place."""
        address = self.address(tmp_path)
        found = store_kind(address)
        assert found == SCHEMES.get(self.name, self.name), f"{address} is of the store {found!r}"

    # -------------------------------------------------------------- one object

    @pytest.mark.parametrize("content", [b"", b"a", bytes(range(256)) * 8192, b"\r\n\x00\xff"])
    def test_what_is_written_is_read(self, store: Store, content: bytes) -> None:
        store.write("a/object.bin", content)
        assert store.read("a/object.bin") == content
        with store.open("a/object.bin", len(content)) as file:
            assert file.read() == content
        assert store.list()["a/object.bin"].bytes == len(content)

    def test_names_are_kept_as_they_are(self, store: Store) -> None:
        """Long ones and deep ones, and those that differ in case or in a dot alone."""
        for name in NAMES:
            store.write(name, name.encode())
        assert set(store.list()) == set(NAMES)
        assert set(store.list("f/")) == {"f/a", "f/A"}
        for name in NAMES:
            assert store.read(name) == name.encode()
        store.delete(NAMES[1:])
        assert set(store.list()) == set(NAMES[:1])

    def test_a_file_is_put_in_place_of_what_was_there(self, store: Store, tmp_path: Path) -> None:
        """Also by a shorter one; the file stays."""
        path = tmp_path / "local"
        for content in (b"the first, which is longer", b"the second", b""):
            path.write_bytes(content)
            store.put("object", path)
            assert store.read("object") == content
            assert path.read_bytes() == content
        with pytest.raises(FileNotFoundError):
            store.put("object", tmp_path / "no such file")
        assert store.read("object") == b""

    def test_an_opened_object_is_a_local_file(self, store: Store) -> None:
        content = bytes(range(256)) * 1000
        store.write("object", content)
        blocks: list[tuple[int, bytes]] = []
        with store.open(
            "object", len(content), lambda start, block: blocks.append((start, block))
        ) as file:
            assert file.fileno() >= 0
            assert file.seek(1000) == 1000
            assert file.read(10) == content[1000:1010]
            assert file.seek(0, 2) == len(content)
        at = 0
        for start, block in blocks:
            at = start if start == 0 else at
            assert start == at, "blocks come in order"
            assert block == content[start : start + len(block)]
            at += len(block)
        assert not blocks or at == len(content)

    def test_what_is_not_there_is_told_as_such(self, store: Store) -> None:
        """By FileNotFoundError, which nothing else is told by; deleting it is fine."""
        store.write("folder/object", b"x")
        for name in ("nothing", "folder/obj", "folder/object/below"):
            with pytest.raises(FileNotFoundError):
                store.read(name)
            with pytest.raises(FileNotFoundError):
                store.open(name, 1)
        store.delete(["nothing", "folder/obj"])
        assert list(store.list()) == ["folder/object"]

    def test_more_than_fits_is_refused_by_read_and_opened(
        self, store: Store, tmp_path: Path
    ) -> None:
        if not self.large:
            pytest.skip("a large object is not written here")
        path = tmp_path / "large"
        marks = {at: b"%08d" % at for at in range(0, SMALL, 1 << 20)}
        with open(path, "wb") as file:
            for at, mark in marks.items():
                file.seek(at)
                file.write(mark)
            file.truncate(SMALL + 1)
        store.put("large", path)
        with pytest.raises(OSError, match="bytes") as told:
            store.read("large")
        assert not isinstance(told.value, FileNotFoundError)
        with store.open("large", SMALL + 1) as opened:
            assert opened.seek(0, 2) == SMALL + 1
            for at, mark in marks.items():
                opened.seek(at)
                assert opened.read(8) == mark, f"byte {at} is another's"

    def test_opened_objects_stay_as_they_are_and_leave_nothing(
        self, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Beside others of the same name in other folders, and whatever becomes of them."""
        temporary = tmp_path / "temporary"
        temporary.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        monkeypatch.setenv("TMPDIR", str(temporary))
        contents = {f"{folder}/00000": folder.encode() * 50_000 for folder in ("one", "two", "six")}
        for name, content in contents.items():
            store.write(name, content)
        store.open("one/00000", 150_000).close()  # what is made for it is made now
        before = descriptors()
        opened = {name: store.open(name, len(content)) for name, content in contents.items()}
        store.write("two/00000", b"another")
        store.delete(["six/00000"])
        for name, file in opened.items():
            assert file.read() == contents[name]
            file.close()
        assert list(temporary.iterdir()) == [], "files outlive their closing"
        assert descriptors() <= before, "files stay open"

    def test_any_thread_may_read(self, store: Store) -> None:
        """One store, from several at once."""
        contents = {f"folder/{number}": b"%04d" % number * 25_000 for number in range(THREADS)}
        for name, content in contents.items():
            store.write(name, content)

        def look(name: str) -> None:
            assert store.read(name) == contents[name]
            with store.open(name, 100_000) as file:
                assert file.read() == contents[name]

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)  # so that they meet on a busy machine too
        try:
            with ThreadPoolExecutor(THREADS) as pool:
                list(pool.map(look, list(contents) * 20))
        finally:
            sys.setswitchinterval(interval)

    # -------------------------------------------------------------- many objects

    def test_a_listing_gives_everything_below_a_prefix(self, store: Store) -> None:
        names = {"a/1", "a/b/2", "ab/3", "a.json", "b", "x_y/1", "x.y/2", "xzy/3"}
        for name in names:
            store.write(name, name.encode())
        assert set(store.list()) == names
        assert set(store.list("a/")) == {"a/1", "a/b/2"}
        assert set(store.list("nothing/")) == set()
        for prefix in ("x_y/", "x.y/"):
            assert len(store.list(prefix)) == 1, "a prefix is a text, and no pattern"
        for name, stat in store.list().items():
            assert isinstance(stat, Stat)
            assert stat.bytes == len(name)
            told = not stat.modified or abs(stat.modified - time.time()) < 86_400
            assert told, f"modified is {stat.modified}: these are no seconds since 1970"

    def test_a_listing_of_many_is_whole(self, store: Store) -> None:
        """Stores answer with a page at a time."""
        names = [f"many/{number:05d}" for number in range(self.many)]
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda name: store.write(name, b"x"), names))
        assert sorted(store.list("many/")) == names
        store.delete(iter(names[1:]))
        assert list(store.list()) == names[:1]

    def test_deleting_takes_these_objects_alone(self, store: Store) -> None:
        for name in ("a", "ab", "b/c", "b/cd", "b/c.d"):
            store.write(name, b"x")
        store.delete(each for each in ("a", "b/c"))
        assert set(store.list()) == {"ab", "b/cd", "b/c.d"}

    def test_another_one_sees_what_is_there_now(self, tmp_path: Path) -> None:
        """Nothing is kept between calls."""
        address = self.address(tmp_path)
        mine, other = self.open(address), self.open(address)
        assert mine.list() == {}
        other.write("object", b"first")
        assert list(mine.list()) == ["object"]
        assert mine.read("object") == b"first"
        other.write("object", b"second, longer")
        assert mine.read("object") == b"second, longer"
        assert mine.list()["object"].bytes == 14
        other.delete(["object"])
        assert mine.list() == {}
        with pytest.raises(FileNotFoundError):
            mine.read("object")
        assert mine.create("object", b"third")

    def test_places_do_not_see_each_other(self, tmp_path: Path) -> None:
        """Also if one's address begins as the other's does."""
        address = self.address(tmp_path)
        mine, other, below = (self.open(address + end) for end in ("", "-more", "/below"))
        mine.write("object", b"mine")
        other.write("object", b"other")
        below.write("object", b"below")
        assert mine.read("object") == b"mine"
        assert other.read("object") == b"other"
        assert set(other.list()) == set(below.list()) == {"object"}
        assert set(mine.list()) == {"object", "below/object"}

    # -------------------------------------------------------------- at once

    def test_of_all_who_create_a_name_one_wins(self, tmp_path: Path) -> None:
        """What decides between processes that build one cache."""
        address = self.address(tmp_path)
        for number in range(5):
            barrier = threading.Barrier(THREADS)

            def attempt(mine: int, name: str = f"name-{number}", gate: Any = barrier) -> bool:
                store = self.open(address)
                gate.wait()
                return store.create(name, f"by {mine}".encode())

            with ThreadPoolExecutor(THREADS) as pool:
                won = list(pool.map(attempt, range(THREADS)))
            assert won.count(True) == 1
            assert self.open(address).read(f"name-{number}") == f"by {won.index(True)}".encode()

    def test_of_all_processes_that_create_a_name_one_wins(self, tmp_path: Path) -> None:
        """A lock of threads does not keep them apart."""
        if not self.processes:
            pytest.skip("another process does not see it")
        address, names = self.address(tmp_path), [f"name-{number}" for number in range(50)]
        ready = tmp_path / "ready"
        ready.mkdir()
        credentials = self.credentials and dict(self.credentials.options)

        def attempt(mine: int) -> list[str]:
            given = [address, credentials, mine, str(ready), PROCESSES, names]
            said = said_elsewhere(CHILD, given=json.dumps(given))
            won: list[str] = json.loads(said.rpartition("FOUND")[2])
            return won

        with ThreadPoolExecutor(PROCESSES) as pool:
            won = list(pool.map(attempt, range(PROCESSES)))
        assert sorted(name for each in won for name in each) == sorted(names)
        store = self.open(address)
        for mine, each in enumerate(won):
            for name in each:
                assert store.read(name) == (f"by {mine} " * 20_000).encode()

    def test_what_was_created_is_kept(self, store: Store) -> None:
        assert store.create("name", b"first") is True
        assert store.create("name", b"second") is False
        assert store.read("name") == b"first"
        store.write("written", b"x")
        assert store.create("written", b"y") is False
        store.delete(["name"])
        assert store.create("name", b"second") is True
        assert store.read("name") == b"second"

    def test_a_reader_sees_one_whole_object_while_it_is_replaced(
        self, store: Store, tmp_path: Path
    ) -> None:
        """By what is written, and by files that are put."""
        contents = [bytes([number]) * (100_000 + number) for number in range(4)]
        files = [tmp_path / f"file-{number}" for number in range(4)]
        for path, content in zip(files, contents, strict=True):
            path.write_bytes(content)
        store.write("object", contents[0])
        for replace in (
            lambda number: store.write("object", contents[number]),
            lambda number: store.put("object", files[number]),
        ):

            def replaced(again: Callable[[int], Any] = replace) -> None:
                for number in range(40):
                    again(number % 4)

            for found in _seen(store, "object", replaced):
                assert found in contents
        assert list(store.list()) == ["object"], "something is left of the writing"

    def test_a_name_that_is_created_has_its_content_at_once(self, store: Store) -> None:
        content = bytes(range(256)) * 2000
        for number in range(20):
            name = f"name-{number}"

            def create(name: str = name) -> None:
                assert store.create(name, content)

            for found in _seen(store, name, create):
                assert found in (None, content)

    # -------------------------------------------------------------- what people and workers see

    def test_it_travels_to_workers(self, tmp_path: Path) -> None:
        store = self.open(self.address(tmp_path))
        store.write("object", b"x")
        # A store that this very process pickled: nothing is read from disk.
        again = pickle.loads(pickle.dumps(store))  # noqa: S301
        assert again.read("object") == b"x"
        assert again.url == store.url

    def test_it_says_where_things_lie_and_no_secret(self, tmp_path: Path) -> None:
        address = self.address(tmp_path)
        store = open_store(address, Credentials({"key": CANARY, "secret": CANARY}))
        assert isinstance(store.url, str)
        assert store.where("folder/object").endswith("folder/object")
        assert len({store.where("a"), store.where("b")}) == 2
        for text in (store.url, store.where("object"), repr(store), str(store)):
            assert CANARY not in text


def _seen(store: Store, name: str, work: Callable[[], Any]) -> Iterator[bytes | None]:
    """What a reader finds while another thread works; None: nothing."""
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        while not working.done():
            try:
                yield store.read(name)
            except FileNotFoundError:
                yield None
        working.result()
