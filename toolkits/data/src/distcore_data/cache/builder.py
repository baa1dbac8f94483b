"""What fills a cache's folder: shards from any thread or process, then the split map, then the
manifest, last."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np
import pyarrow as pa

from distcore_core.contracts import (
    CACHE_FORMAT,
    JSON,
    SPLITS,
    CacheFormat,
    Column,
    PluginRef,
    Split,
)
from distcore_core.errors import CacheError
from distcore_core.io.atomic import write_new_file
from distcore_core.io.digest import Digest
from distcore_core.io.temporaries import temporary_name
from distcore_data.arrow import from_numpy
from distcore_data.cache.manifest import (
    INLINE_BYTES,
    MANIFEST,
    SHARD_ROWS,
    FileEntry,
    Part,
    encode_manifest,
    encode_metadata,
    file_name,
)
from distcore_data.cache.syncer import Syncer
from distcore_data.os_errors import explained

if TYPE_CHECKING:
    from distcore_core.registry.manager import Plugins

SPLIT_CODES: Mapping[Split, int] = {split: code for code, split in enumerate(SPLITS)}
"""How the split map spells a split; -1 is a row that was dropped."""

SPLIT_COLUMN = "split"

ADVICE = "choose another folder with backend.cache_dir"


class CacheBuilder:
    """A cache under construction, in a folder that no reader looks into.

    Methods may be called from several threads; `close` ends what they left under way. A pickled
    copy writes shards from another process on the same disk (that of a `BucketBuilder`: on any
    machine); hand its entries to `record` in the process where `finish` is called.

    maker: Of `format`; made when the first shard is written, unless it was given before.
    """

    version: str | None = None
    """The folder of the files, if the cache has one for each version."""

    def __init__(
        self, folder: Path, key: str, format: PluginRef, plugins: Plugins | None = None
    ) -> None:
        self.folder = folder
        self.key = key
        self.format = format
        self.finished = False
        self._plugins = plugins
        self._block = tuple(plugins.block) if plugins is not None else ()
        self.maker: CacheFormat | None = None
        self._entries: dict[str, FileEntry] = {}
        self._split_rows: dict[int, dict[str, int]] = {}
        self._inline: Mapping[str, JSON] | None = None
        self._lock = threading.Lock()
        self._syncer: Syncer | None = Syncer()

    def __getstate__(self) -> dict[str, Any]:
        # A copy forces each file to disk before it tells of it: nobody waits for its threads.
        fresh: dict[str, Any] = {
            "_plugins": None,
            "maker": None,
            "_entries": {},
            "_split_rows": {},
            "_inline": None,
            "_syncer": None,
        }
        return {
            name: value for name, value in {**self.__dict__, **fresh}.items() if name != "_lock"
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    @property
    def scratch(self) -> Path:
        """A folder on the same disk for whatever must be kept while building; gone before the
        cache is committed."""
        path = self.folder / "scratch"
        path.mkdir(exist_ok=True)
        return path

    def write_shard(
        self, split: Split, index: int, table: pa.Table | pa.RecordBatch
    ) -> FileEntry | None:
        """Write the rows of a split that lie in global rows [index * SHARD_ROWS, (index + 1) *
        SHARD_ROWS), in order.

        Written again (a retried task), the file is replaced. A table without rows makes no file
        and gives None."""
        if split not in SPLITS:
            raise ValueError(f"no split {split!r}; splits are {', '.join(SPLITS)}")
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        return self._write(split, index, table) if table.num_rows else None

    def write_split_map(self, index: int, splits: np.ndarray) -> FileEntry:
        """Write the split of each global row of shard `index`: int8 codes of SPLIT_CODES, -1 for
        a dropped row."""
        codes = np.ascontiguousarray(splits, dtype=np.int8)
        if codes.ndim != 1 or not 0 < len(codes) <= SHARD_ROWS:
            raise ValueError(
                f"the split map of a shard is 1 to {SHARD_ROWS} codes, got shape {codes.shape}"
            )
        entry = self._write(
            "rows", index, pa.Table.from_arrays([from_numpy(codes)], names=[SPLIT_COLUMN])
        )
        with self._lock:
            self._split_rows[index] = {
                split: int((codes == code).sum()) for split, code in SPLIT_CODES.items()
            }
        return entry

    def record(self, entries: Iterable[FileEntry | None]) -> None:
        """Take note of files that a pickled copy of this builder wrote; those written here are
        known already."""
        with self._lock:
            self._entries.update((entry.file, entry) for entry in entries if entry is not None)

    def keep_metadata(self, metadata: Mapping[str, JSON]) -> None:
        """Write the metadata of each feature, if they are too large for the manifest. `finish`
        does it too, but those of large vocabularies are better written beside the shards."""
        content, inline = encode_metadata(metadata), metadata
        if len(content) > INLINE_BYTES:
            name = file_name("metadata", 0, ".json")
            digest = self._store(name, lambda file: cast(None, file.write(content)))
            self.record(
                [FileEntry("metadata", 0, name, 0, digest.bytes, digest.xxh3, digest.sha256)]
            )
            inline = {}
        self._inline = inline

    def finish(
        self,
        columns: Iterable[Column],
        metadata: Mapping[str, JSON],
        source: JSON,
        rows: Mapping[Split, int] | None = None,
        made_by: Mapping[str, Any] | None = None,
    ) -> None:
        """Check that everything was written, and write the manifest.

        columns: every encoded column. metadata: of each feature, as `keep_metadata` had it. source:
            {"digest", "rows"} of the raw data.
        rows: rows of each split, compared with what was written.
        made_by: who encoded what. Raises CacheError if something is missing."""
        self._check(self._files(), source, rows)
        if self._inline is None:
            self.keep_metadata(metadata)
        assert self._inline is not None
        found = encode_manifest(
            self.key,
            self.format,
            columns,
            self._inline,
            source,
            self._files(),
            self.version,
            made_by,
        )
        self._seal(found)
        self.finished = True

    def close(self) -> None:
        """Return when no thread of this builder touches the folder any more."""
        if self._syncer is not None:
            self._syncer.close()

    def sync(self) -> None:
        """Return when every file that was written here is on disk. Raises CacheError for one that
        could not be forced."""
        with explained(self.folder.parent, "the cache", advice=ADVICE):
            if self._syncer is not None:
                self._syncer.wait()

    def synced(self) -> set[str]:
        """Relative paths of the files that were forced to disk before the manifest was written."""
        return {MANIFEST, *self._entries}

    # -------------------------------------------------------------- inside

    def _files(self) -> list[FileEntry]:
        return sorted(self._entries.values(), key=lambda entry: (entry.part, entry.index))

    def _store(self, name: str, fill: Callable[[BinaryIO], None]) -> Digest:
        """Keep a file of the cache under its name, in place of what a retried task left there.

        It has the name once it is whole: a worker that was given up may wake behind the one that
        wrote the file that counts, and be killed."""
        path = self.folder / name
        with explained(self.folder.parent, "the cache", advice=ADVICE):
            path.parent.mkdir(exist_ok=True)
            temporary = temporary_name(path)
            sync = None if self._syncer is None else self._syncer.add
            digest = write_new_file(temporary, fill, sync)
            os.replace(temporary, path)
            return digest

    def _seal(self, manifest: bytes) -> None:
        """Everything is written and checked; this is the manifest."""
        shutil.rmtree(self.folder / "scratch", ignore_errors=True)
        self.sync()
        with explained(self.folder.parent, "the cache", advice=ADVICE):
            for left in self.folder.glob("*/.*.tmp"):  # by workers that were killed
                left.unlink(missing_ok=True)
            write_new_file(self.folder / MANIFEST, manifest)

    def _write(self, part: Part, index: int, table: pa.Table) -> FileEntry:
        maker = self._format()
        name = file_name(part, index, maker.suffix)

        def fill(file: BinaryIO) -> None:
            maker.write(file, table)

        digest = self._store(name, fill)
        entry = FileEntry(
            part, index, name, table.num_rows, digest.bytes, digest.xxh3, digest.sha256
        )
        self.record([entry])
        return entry

    def _format(self) -> CacheFormat:
        with self._lock:
            if self.maker is None:
                if self._plugins is None:
                    from distcore_core.registry.manager import Plugins

                    self._plugins = Plugins(self._block)
                self.maker = self._plugins.make(
                    CACHE_FORMAT, self.format.name, dict(self.format.options)
                )
            return self.maker

    def _check(
        self, files: list[FileEntry], source: JSON, rows: Mapping[Split, int] | None
    ) -> None:
        mapped = [entry for entry in files if entry.part == "rows"]
        if [entry.index for entry in mapped] != list(range(len(mapped))) or any(
            entry.rows != SHARD_ROWS for entry in mapped[:-1]
        ):
            raise CacheError(
                "The split map has gaps. Report this: the processor did not give every shard."
            )
        total = sum(entry.rows for entry in mapped)
        if total != source["rows"]:
            raise CacheError(
                f"The source has {source['rows']} rows, but the split map covers {total}. "
                "Report this: the processor lost or repeated rows."
            )
        written: dict[tuple[str, int], int] = {
            (entry.part, entry.index): entry.rows for entry in files
        }
        for index, counts in self._split_rows.items():
            for split, count in counts.items():
                found = written.get((split, index), 0)
                if found != count:
                    raise CacheError(
                        f"Shard {index} of {split} should have {count} rows, but {found} were "
                        "written. Report this: the processor lost or repeated rows."
                    )
        for split, count in (rows or {}).items():
            found = sum(entry.rows for entry in files if entry.part == split)
            if found != count:
                raise CacheError(
                    f"{split} should have {count} rows, but {found} were written. Report this."
                )
