"""Bring a dataset's files to this machine's disk: paths, downloads, and copies that leave room to
others.

What is made lies in one fresh folder under `scratch` (or the system's temporary folder), which
`Workplace.close` removes.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from distcore_core.config.issues import PASSWORD
from distcore_core.errors import DataError
from distcore_data.figures import human_bytes
from distcore_data.os_errors import FULL, room
from distcore_data.temporaries import temporary_folder
from distcore_data.threads import run_all

log = logging.getLogger("distcore")

PARQUET = (".parquet", ".parq", ".pq")
"""The endings of Parquet files, in small letters or capitals."""

PIECE = 1 << 22

AT_ONCE, BLOCK = 8, 1 << 24
"""Files of a folder that are fetched at once, and bytes of a request for one of them. One after
another, each waits for four answers."""

TOLD = 1 << 27
"""Bytes of a file that takes so long that it is told."""

MOST_RATIO = 200
"""Times its size that a compressed file of rows unpacks to at most: text gives 3 to 30, and
zeros 1,000."""

CHAINED = re.compile(r"::(?=(?:[\w.+-]+::)*[\w.+-]+://)")
"""Before each further URL of `zip://a.csv::https://…`."""

KEPT_FREE = 512 << 20
"""Bytes of the disk (of a small one a twentieth) that are left to others."""


class Workplace:
    """A folder under `scratch` for what must be made before it can be read; made when first
    needed. scratch: None for a temporary folder of the system's."""

    def __init__(self, scratch: Path | None) -> None:
        self._scratch = scratch
        self._folder: Path | None = None
        self._made = ExitStack()

    def path(self, name: str) -> Path:
        """A path for a new file or folder of this name."""
        if self._folder is None:
            if self._scratch is None:
                self._folder = self._made.enter_context(temporary_folder("source"))
            else:
                self._scratch.mkdir(parents=True, exist_ok=True)
                self._folder = Path(tempfile.mkdtemp(prefix="source-", dir=self._scratch))
                self._made.callback(shutil.rmtree, self._folder, ignore_errors=True)
        holder = Path(tempfile.mkdtemp(dir=self._folder))
        return holder / (name or "data")

    def close(self) -> None:
        """Remove all that was made."""
        self._folder = None
        self._made.close()


def is_url(dataset: str) -> bool:
    """Whether the dataset is to be fetched by fsspec."""
    return "://" in dataset and not dataset.startswith("file://")


def without_secrets(url: str) -> str:
    """The URL without user, password, query and fragment, for messages and names; also of each part
    of `zip://a.csv::https://…`. Of a password with a slash no part stays, so that a path with an
    `@` behind a password is cut there."""
    return "::".join(map(_bare, CHAINED.split(url)))


def _bare(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url
    host = rest.partition("/")[0]
    users = host.rfind("@") + 1
    if PASSWORD.match(mark + rest):
        before = re.split("[?#]", rest, maxsplit=1)[0]
        users = max(users, before.rfind("@") + 1) or rest.rfind("@") + 1
    rest = rest[users:]
    # Elsewhere a ? may be of a pattern; `?sig=` is not.
    query = r"[?#].*" if scheme.lower().startswith("http") else r"\?[\w-]+=.*"
    return f"{scheme}{mark}{re.sub(query, '', rest)}"


def is_parquet(name: str) -> bool:
    """Whether a file's name is that of a Parquet file."""
    return name.lower().endswith(PARQUET)


def local_path(dataset: str | os.PathLike[str]) -> Path:
    """The path of a dataset that is not remote."""
    return Path(os.path.expanduser(os.fspath(dataset).removeprefix("file://")))


def has_marks(text: str) -> bool:
    """Whether a path, or a part of one, has what glob's patterns have."""
    return any(mark in text for mark in "*?[")


def is_pattern(path: Path) -> bool:
    """Whether a path of this machine is a pattern: a file of that very name comes first."""
    return has_marks(str(path)) and not os.path.exists(path)


def existing(path: Path) -> Path:
    """The path itself. Raises DataError with the nearest name in its folder when there is no
    such file, and for what is neither a file nor a folder."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError as error:
        raise _not_there(path) from error
    except (OSError, ValueError) as error:  # a name that no file can have, links in a circle
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(
            f"{_ended(str(path))}: it cannot be opened ({reason}). Correct the dataset's path."
        ) from error
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise DataError(
            f"{path}: this is a pipe or a device, and a dataset is read more than once. Give "
            "--dataset - and pipe the rows in, or write them to a file."
        )
    return path


def _not_there(path: Path) -> DataError:
    """What to say of a path that nothing has."""
    parent = path.parent
    if path.is_symlink():
        return DataError(
            f"{path}: it is a link to {os.readlink(path)}, which is not there. Correct the link, "
            "or the dataset's path."
        )
    if not parent.is_dir():
        return DataError(
            f"{path}: no such file, and no folder {parent}. Correct the dataset's path."
        )
    near = difflib.get_close_matches(path.name, os.listdir(parent), n=1)
    hint = f"Did you mean {parent / near[0]}?" if near else "Correct the dataset's path."
    return DataError(f"{path}: no such file. {hint}")


def removed(shown: str) -> DataError:
    """What to say of a file that was there before."""
    return DataError(
        f"{shown}: the file was removed, or got another name, while it was being read. Nothing "
        "that was read of it is kept. Put it back, and run again."
    )


def _ended(name: str) -> str:
    return name if len(name) <= 200 else f"{name[:200]}…"


def download(url: str, shown: str, place: Workplace) -> Path:
    """Copy a remote file, the Parquet files of a folder, or those that a glob names; returns the
    local file or folder.

    Raises DataError naming the URL (as `shown`) when it is not there or cannot be fetched."""
    import fsspec

    def told(error: Exception) -> Exception | None:
        return error if shown == url else None  # a traceback would show the whole URL

    try:
        filesystem, path = fsspec.core.url_to_fs(url)
        filesystem.invalidate_cache()  # of what this process has listed earlier
        files, root = _remote_files(filesystem, path, shown)
        target = place.path(os.path.basename(shown.rstrip("/*")))
        if root is None:
            _fetch(filesystem, path, target, shown)
            return target
        targets = []
        for file in files:
            name = os.path.relpath(file, root)
            if name.split("/")[0] == "..":
                raise DataError(
                    f"{shown}: the name of one of its files, {file!r}, leads out of the folder. "
                    "Nothing was read. Whoever made it may mean harm: name the files that you want."
                )
            targets.append(target / name)
        with _unchanged(filesystem, path, files, shown):
            _fetch_all(filesystem, list(zip(files, targets, strict=True)), shown)
        return target
    except DataError:
        raise
    except FileNotFoundError as error:
        if not _is_gone(error):
            raise _not_fetched(shown, url, error.__cause__ or error) from told(error)
        raise DataError(f"{shown}: no such file. Correct the dataset's URL.") from told(error)
    except ImportError as error:
        raise DataError(
            f"{shown}: {error}. Install the package that serves this kind of URL."
        ) from error
    except Exception as error:  # noqa: BLE001 - each fsspec filesystem raises its own kinds
        raise _not_fetched(shown, url, error) from told(error)


VERSION = (
    *("size", "ETag", "etag", "md5Hash", "crc32c", "generation", "VersionId", "version_id"),
    *("LastModified", "last_modified", "mtime", "modified", "updated", "created"),
)
"""What filesystems tell of an object that another version of it has otherwise; each tells some
of these."""


def _fetch_all(filesystem: Any, files: Sequence[tuple[str, Path]], shown: str) -> None:
    """Copy remote files, several at once if the filesystem is made for it. Of those that fail the
    error of the first is raised."""
    from fsspec.asyn import AsyncFileSystem

    if not isinstance(filesystem, AsyncFileSystem):
        for file, target in files:
            _fetch(filesystem, file, target, shown)
        return
    stopping = threading.Event()

    def one(each: tuple[str, Path]) -> None:
        with suppress(_Stopped):
            _fetch(filesystem, *each, shown, block=BLOCK, stopping=stopping)

    run_all(one, files, AT_ONCE, stopping)


class _Stopped(Exception):
    """Another file failed, or the user has stopped the command."""


def _fetch(
    filesystem: Any,
    file: str,
    target: Path,
    shown: str,
    block: int | None = None,
    stopping: threading.Event | None = None,
) -> None:
    """Copy a remote file. Raises DataError if it is another version afterwards: the copy may be
    of both; _Stopped when it is to stop."""
    before = _version(filesystem, file)
    size = before.get("size")
    if isinstance(size, int) and size >= TOLD:
        log.info("Fetching %s (%s).", _named(shown, file), human_bytes(size))
    target.parent.mkdir(parents=True, exist_ok=True)
    sizes = {} if block is None else {"block_size": block}
    try:
        copy(lambda: filesystem.open(file, "rb", **sizes), target, shown, stopping=stopping)
    except (DataError, _Stopped):
        raise
    except Exception as error:  # also what a filesystem raises that noticed by itself
        if _differ(before, _version(filesystem, file)):
            raise _changed(shown, file) from error
        raise
    after = _version(filesystem, file)
    there = after.get("size")
    if _differ(before, after) or (isinstance(there, int) and there != target.stat().st_size):
        raise _changed(shown, file)


def _differ(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether two answers are of two versions: none is no version, but that of a remote that was
    busy for a moment."""
    return bool(before and after and before != after)


@contextmanager
def _unchanged(
    filesystem: Any, path: str, files: Mapping[str, dict[str, Any]], shown: str
) -> Iterator[None]:
    """The block fetches files, as `_listed` told of them. Raises DataError if one is another
    version, or gone, afterwards: the copies may be of two versions of the dataset.

    A file that is another by then is also told of if the block fails, for that is why."""

    def compare() -> None:
        filesystem.invalidate_cache()
        now = _listed(filesystem, path)
        for file, version in files.items():
            if now.get(file) != version:
                raise _changed(shown, file)

    try:
        yield
    except DataError:
        raise
    except Exception:
        try:
            compare()
        except DataError:
            raise
        except Exception:  # noqa: BLE001 - each fsspec filesystem raises its own kinds; the first error tells more
            pass
        raise
    compare()


def _named(shown: str, file: str) -> str:
    name = os.path.basename(file)
    return shown if shown.endswith(name) else f"{shown} ({name})"


def _changed(shown: str, file: str) -> DataError:
    return DataError(
        f"{_named(shown, file)}: the file changed while it was being fetched. Nothing of it is "
        "kept. Run again when it is complete and nobody writes to it."
    )


def _version(filesystem: Any, file: str) -> dict[str, Any]:
    """What the remote says of the file now that tells its versions apart; nothing if it says
    nothing."""
    try:
        filesystem.invalidate_cache()
        found = filesystem.info(file)
    except FileNotFoundError as error:
        return {"gone": True} if _is_gone(error) else {}
    except Exception:  # noqa: BLE001 - each fsspec filesystem raises its own kinds; the copy will show what is wrong
        return {}
    return _version_in(found)


def _is_gone(error: FileNotFoundError) -> bool:
    """Whether the remote says so. fsspec says it of whatever goes wrong over HTTP: a refusal, a
    server's fault, nobody there."""
    cause = error.__cause__
    return cause is None or getattr(cause, "status", None) in (404, 410)


def _version_in(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: found[name] for name in VERSION if found.get(name) is not None}


def _not_fetched(shown: str, url: str, error: BaseException) -> DataError:
    status = getattr(error, "status", None)
    reason = f"HTTP status {status}" if status else type(error).__name__
    if not status and shown == url:  # libraries write a URL, or parts of it, in their own ways
        reason += f": {error}"
    return DataError(f"{shown}: cannot be fetched ({reason}). Check URL, network and credentials.")


def _remote_files(
    filesystem: Any, path: str, shown: str
) -> tuple[dict[str, dict[str, Any]], str | None]:
    """The files that a path names there, with the version of each, and the folder they are relative
    to (None: it names one file)."""
    if shown.startswith(("http://", "https://")):
        return {}, None
    if has_marks(path) and not filesystem.exists(path):
        root = os.path.dirname(re.split(r"[*?\[]", path, maxsplit=1)[0])
    elif filesystem.isdir(path):
        root = path
    else:
        if not filesystem.exists(path):
            raise FileNotFoundError(path)
        return {}, None
    files = _listed(filesystem, path)
    if not files:
        raise DataError(
            f"{shown}: holds no Parquet files. Name a file, or a folder or pattern of *.parquet "
            "files."
        )
    return files, root


def _listed(filesystem: Any, path: str) -> dict[str, dict[str, Any]]:
    """The Parquet files that a folder or a pattern names now, in order, with the version of
    each."""
    look = filesystem.glob if has_marks(path) and not filesystem.isdir(path) else filesystem.find
    found = look(path, detail=True)
    return {file: _version_in(found[file]) for file in sorted(found) if is_parquet(file)}


def copy(
    opened: Callable[[], BinaryIO],
    target: Path,
    shown: str,
    limit: int | None = None,
    most: int | None = None,
    stopping: threading.Event | None = None,
) -> None:
    """Copy a stream into a new file, at most `limit` bytes, and as long as the disk keeps some room
    for others.

    most: bytes of what is unpacked from an honest file. stopping: once it is set, _Stopped is
        raised. Raises DataError saying what was met."""
    try:
        with opened() as source, open(target, "wb") as sink:
            written = 0
            while piece := source.read(PIECE if limit is None else min(PIECE, limit - written)):
                if stopping is not None and stopping.is_set():
                    raise _Stopped
                written += len(piece)
                if most is not None and written > most:
                    raise DataError(
                        f"{shown}: it unpacks to more than {MOST_RATIO} times its size "
                        f"({human_bytes(most)}), as files do that are made to fill a disk. If it "
                        "is what you expect, unpack it yourself and give that."
                    )
                _require_room(target, len(piece), written, shown)
                sink.write(piece)
    except OSError as error:
        if error.errno in FULL:
            raise no_room(shown, target) from error
        raise


def no_room(shown: str, target: Path) -> DataError:
    """What to say of a full disk that a copy of the dataset was to lie on."""
    return DataError(
        f"{shown}: there is no room for it in {target.parent}{room(target.parent)}. Make room, or "
        "point TMPDIR to a larger disk."
    )


def _require_room(target: Path, wanted: int, written: int, shown: str) -> None:
    """Raise DataError before the disk is full: others write to it, too."""
    disk = shutil.disk_usage(target.parent)
    if disk.free - wanted < min(KEPT_FREE, disk.total // 20):
        raise DataError(
            f"{shown}: there is no room for it in {target.parent}: {human_bytes(written)} of it "
            f"would leave {human_bytes(max(0, disk.free - wanted))} of {human_bytes(disk.total)} "
            "free. Make room, or point TMPDIR to a larger disk."
        )
