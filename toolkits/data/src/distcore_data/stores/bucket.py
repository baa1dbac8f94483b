"""A bucket as a `Store`, through fsspec: s3, gs, abfs, and memory for tests. Its requests are
repeated by `retries.py`, bounded, and its large objects come in pieces, several at a time, into
a local file without a name."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast

from distcore_core.errors import StoreError, UserError
from distcore_data.stores.addresses import store_kind, without_password
from distcore_data.stores.blocks import Blocks, blocks_of
from distcore_data.stores.filesystems import (
    modified,
    open_filesystem,
    put_if_absent,
    seconds,
    secrets_of,
)
from distcore_data.stores.retries import persistently, status_of
from distcore_data.stores.store import (
    NAME,
    SMALL,
    Credentials,
    Seen,
    Stat,
    checked,
    read_if_there,
)
from distcore_data.temporaries import unnamed_file

PIECE = 16 << 20
"""Bytes of one request for a large object."""

REQUESTS = 8
"""Requests for pieces of one object that are under way at once; each holds a block (from S3) or
a piece in memory."""

ONE_PUT = 64 << 20
"""Objects up to this size are one request; larger ones go up in parts of this size, two at a
time."""

UPLOAD: Mapping[str, Mapping[str, Any]] = {"s3": {"chunksize": ONE_PUT, "max_concurrency": 2}}

T = TypeVar("T")


class _Opened(NamedTuple):
    """files: the filesystem. root: the address's path in it. blocks: how objects are read from
    it. pool: fetches pieces."""

    files: Any
    root: str
    blocks: Blocks
    pool: ThreadPoolExecutor


class Bucket:
    """A `Store` at an address. Pickles with its credentials; opened in each process when first
    used."""

    def __init__(self, url: str, credentials: Credentials | None = None) -> None:
        self.kind = store_kind(url)
        scheme, mark, rest = url.partition("://")
        self.address = f"{scheme.lower()}{mark}{rest.rstrip('/')}"
        self.url = without_password(self.address)
        self.credentials = credentials
        self._secrets = tuple(secrets_of(credentials)) if credentials else ()
        # Nobody else could see into a process's memory.
        self._only = os.getpid() if self.kind == "memory" else None
        self._opened: tuple[int, _Opened] | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Bucket({self.url!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in {**self.__dict__, "_opened": None}.items()
            if name != "_lock"
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def where(self, name: str) -> str:
        return f"{self.url}/{name}"

    def list(self, prefix: str = "") -> dict[str, Stat]:
        """Objects below a prefix, in one listing (of as many pages as it takes)."""
        root, folder = self._root(), prefix.rstrip("/")

        def ask(files: Any, start: str) -> dict[str, Any]:
            return cast("dict[str, Any]", files.find(f"{start}/", detail=True))

        try:
            found = self._ask(folder, "listed", ask)
        except FileNotFoundError:  # some filesystems say this of an empty folder
            return {}
        start = f"{root}/{folder}/" if folder else f"{root}/"
        return {
            path[len(root) + 1 :]: Stat(int(each["size"]), modified(each))
            for path, each in found.items()
            if each["type"] == "file"
            and path.startswith(start)
            and NAME.fullmatch(path[len(root) + 1 :])
        }

    def read(self, name: str) -> bytes:
        """A whole small object."""
        content = self._range(checked(name), 0, SMALL + 1)
        if len(content) > SMALL:
            raise OSError(f"it has more than {SMALL} bytes")
        return content

    def open(self, name: str, size: int, seen: Seen | None = None) -> BinaryIO:
        """The object in a temporary file without a name, on the disk of $TMPDIR."""
        checked(name)
        # A byte more is asked for than there should be, so that a longer object shows.
        starts = range(0, size + 1, PIECE)
        tell = seen if len(starts) == 1 else None
        target = unnamed_file("shard")

        def fetch(start: int) -> int:
            return self._ask(
                name, "read", lambda _, path: copy(path, start, min(start + PIECE, size + 1))
            )

        def copy(path: str, start: int, stop: int) -> int:
            end = 0
            for block in self._there().blocks(path, start, stop):
                if tell is not None:
                    tell(start, block)
                left = memoryview(block)
                while left:
                    written = os.pwrite(target.fileno(), left, start)
                    left, start = left[written:], start + written
                    end = start
            return end

        pieces: list[Future[int]] = []
        try:
            # In one go: a full disk is told before anything is fetched, and writing takes a quarter
            # less time.
            if hasattr(os, "posix_fallocate"):  # not on macOS
                os.posix_fallocate(target.fileno(), 0, size + 1)
            if len(starts) > 1:
                pieces = [self._there().pool.submit(fetch, start) for start in starts]
            target.truncate(max([each.result() for each in pieces] or [fetch(0)]))
        except BaseException:
            # Once it is closed, its number may be another file's, to which they would write.
            for each in pieces:
                each.cancel()
            wait(pieces)
            target.close()
            raise
        return target

    def put(self, name: str, path: Path) -> None:
        """Upload a file; large ones in parts, which are given up again when that fails."""
        if self.kind == "memory":  # fsspec's copy of a file shows while it is under way
            return self.write(name, path.read_bytes())
        options, large = UPLOAD.get(self.kind, {}), path.stat().st_size >= ONE_PUT
        try:
            self._ask(
                checked(name),
                "written",
                lambda files, target: files.put_file(str(path), target, **options),
                absence=False,
            )
        except BaseException:
            if large:
                # The next build gives them up, and the error under way matters more.
                with suppress(StoreError):
                    self.abort_uploads(name)
            raise

    def write(self, name: str, content: bytes) -> None:
        """Write or replace an object."""
        self._ask(
            checked(name),
            "written",
            lambda files, path: files.pipe_file(path, content),
            absence=False,
        )

    def create(self, name: str, content: bytes) -> bool:
        """One conditional put (If-None-Match, generation 0). Whatever is said of it, what lies
        there then decides."""

        def attempt(files: Any, path: str) -> bool:
            try:
                put_if_absent(files, self.kind, path, content)
            except FileExistsError:
                # Perhaps by us: a request that was never answered may have been carried out.
                return read_if_there(self, name) == content
            except Exception as error:
                if status_of(error) == 501:
                    raise StoreError(self._no_conditions()) from error
                found = read_if_there(self, name)
                if found is None:
                    raise
                return found == content
            return True

        return self._ask(checked(name), "created", attempt, absence=False)

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects, one request each; the last error is raised once all were tried."""
        failed: StoreError | None = None
        for name in names:
            checked(name)
            try:
                self._ask(name, "deleted", lambda files, path: files.rm_file(path))
            except FileNotFoundError:
                continue
            except StoreError as error:
                failed = error
        if failed is not None:
            raise failed

    def abort_uploads(self, prefix: str, before: float | None = None) -> int:
        """Give up uploads in parts that nobody finished, below a prefix; returns how many.

        before: only those begun before that time by the store's clock. Other stores than S3 show
            none of theirs."""
        if self.kind != "s3":
            return 0

        def ask(files: Any, path: str) -> int:
            bucket, _, key = path.partition("/")
            answer = files.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=key)
            left = [
                each
                for each in answer.get("Uploads", ())
                if before is None or seconds(each["Initiated"]) < before
            ]
            for each in left:
                with suppress(FileNotFoundError):
                    files.call_s3(
                        "abort_multipart_upload",
                        Bucket=bucket,
                        Key=each["Key"],
                        UploadId=each["UploadId"],
                    )
            return len(left)

        return self._ask(prefix, "cleared of unfinished uploads", ask)

    # -------------------------------------------------------------- inside

    def _there(self) -> _Opened:
        """What the address leads to, opened in this process once."""
        with self._lock:
            if self._opened is None or self._opened[0] != os.getpid():
                if self._only not in (None, os.getpid()):
                    raise UserError(
                        f"{self.url} is the memory of one process, and this is another. Give a "
                        "folder or a bucket in backend.cache_dir if work runs in several processes."
                    )
                files, root = open_filesystem(self.address, self.kind, self.credentials)
                self._opened = (
                    os.getpid(),
                    _Opened(
                        files,
                        root,
                        blocks_of(files, self.kind, 2 * REQUESTS),
                        ThreadPoolExecutor(REQUESTS, thread_name_prefix="distcore-fetch"),
                    ),
                )
            return self._opened[1]

    def _root(self) -> str:
        return self._there().root

    def _path(self, name: str) -> str:
        return f"{self._root()}/{checked(name)}"

    def _ask(self, name: str, doing: str, work: Callable[[Any, str], T], absence: bool = True) -> T:
        """work(filesystem, path of the object), persistently."""
        path = self._path(name) if name else self._root()
        files = self._there().files
        return persistently(
            lambda: work(files, path), self.where(name), doing, self._secrets, absence=absence
        )

    def _range(self, name: str, start: int, stop: int) -> bytes:
        """Bytes [start, stop) of an object, or those of them that there are."""
        return self._ask(
            name, "read", lambda _, path: b"".join(self._there().blocks(path, start, stop))
        )

    def _no_conditions(self) -> str:
        return (
            f"The store at {self.url} does not put an object on condition that there is none, and "
            "without that two builders could not be told apart. Use one that does (S3 itself, "
            "Google's, Azure's, MinIO), or a folder."
        )
