"""Remote folders: several files at once, and what happens to the others when one fails."""

from __future__ import annotations

import io
import logging
import threading

import pytest
from fsspec.asyn import AsyncFileSystem

from distcore_core.errors import DataError
from distcore_data.sources import fetch


class Store(AsyncFileSystem):
    """Files by name: their bytes, or a function that opens them."""

    cachable = False

    def __init__(self, files):
        super().__init__()
        self.files = files

    def open(self, path, mode="rb", **_options):
        found = self.files[path]
        return io.BytesIO(found) if isinstance(found, bytes) else found()

    def info(self, path, **_options):
        found = self.files[path]
        return {"size": len(found)} if isinstance(found, bytes) else {}


class Endless(io.RawIOBase):
    def read(self, size=-1):
        return b"x"


def fetched(store, folder):
    fetch._fetch_all(store, [(name, folder / "box" / name) for name in store.files], "s3://box/")


def test_files_of_a_folder_are_fetched_several_at_once(tmp_path):
    both = threading.Barrier(2, timeout=20)  # passed once two files are open

    def opened():
        both.wait()
        return io.BytesIO(b"rows")

    names = [f"{number}.parquet" for number in range(2 * fetch.AT_ONCE)]
    fetched(Store(dict.fromkeys(names, opened)), tmp_path)
    assert [(tmp_path / "box" / name).read_bytes() for name in names] == [b"rows"] * len(names)


def test_where_one_fails_the_others_stop_and_its_error_is_told(tmp_path):
    def refused():
        raise PermissionError("not for you")

    store = Store({"a.parquet": Endless, "b.parquet": refused, "c.parquet": Endless})
    with pytest.raises(PermissionError, match="not for you"):
        fetched(store, tmp_path)


def test_a_file_that_changed_is_named(tmp_path, monkeypatch):
    store, looks = Store({"a.parquet": b"abc", "b.parquet": b"abc"}), []

    def info(path, **_options):
        looks.append(path)
        return {"size": 3, "ETag": looks.count(path) if path == "b.parquet" else 0}

    monkeypatch.setattr(store, "info", info)
    with pytest.raises(DataError, match=r"s3://box/ \(b\.parquet\): the file changed while"):
        fetched(store, tmp_path)


@pytest.mark.parametrize("kind", [OSError, FileNotFoundError])  # the latter over HTTP
@pytest.mark.parametrize("unasked", [0, 1])
def test_a_remote_that_is_busy_for_a_moment_has_changed_no_file(
    tmp_path, monkeypatch, unasked, kind
):
    """The whole copy was thrown away, and the file said to have changed."""
    store, looks = Store({"a.parquet": b"abc"}), []

    def info(path, **_options):
        looks.append(path)
        if len(looks) == unasked + 1:
            raise kind("503") from RuntimeError("busy")
        return {"size": 3, "ETag": "1"}

    monkeypatch.setattr(store, "info", info)
    fetch._fetch(store, "a.parquet", tmp_path / "a", "s3://box/a.parquet")
    assert (tmp_path / "a").read_bytes() == b"abc"
    assert len(looks) == 2


@pytest.mark.parametrize("there", [2, 4])
def test_a_copy_of_another_length_than_the_file_is_not_taken_for_it(tmp_path, monkeypatch, there):
    """Its version is the same before and after."""
    store = Store({"a.parquet": b"abc"})
    monkeypatch.setattr(store, "info", lambda path, **_options: {"size": there, "ETag": "1"})
    with pytest.raises(DataError, match=r"^s3://box/a\.parquet: the file changed while"):
        fetch._fetch(store, "a.parquet", tmp_path / "a", "s3://box/a.parquet")


def test_large_files_are_told(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(fetch, "TOLD", 1000)
    with caplog.at_level(logging.INFO, "distcore"):
        fetched(Store({"small.parquet": bytes(999), "large.parquet": bytes(1000)}), tmp_path)
    assert caplog.messages == ["Fetching s3://box/ (large.parquet) (1.0 kB)."]


@pytest.mark.parametrize("limit", [0, 3, 4, 5, 9])
def test_no_more_is_copied_than_was_asked_for(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(fetch, "PIECE", 4)
    fetch.copy(lambda: io.BytesIO(b"12345678"), tmp_path / "a", "a", limit=limit)
    assert (tmp_path / "a").read_bytes() == b"12345678"[:limit]
