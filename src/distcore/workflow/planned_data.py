"""What a plan can say of a dataset and its cache before anything is preprocessed: from what the
source knows, a few of its partitions, and a cache that is there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore.cost.sample import Sample, proportioned, sample_of
from distcore.workflow.prepare import key_of, opened, root_of
from distcore.workflow.session import Session
from distcore_core.contracts import JSON, SPLITS, Partition, Source, TrainJob
from distcore_core.errors import CacheError, ConfigError, DataError
from distcore_data.dataset import Data, JoinedSource
from distcore_data.preprocess_options import SPLITS as OWN_SPLITS
from distcore_data.temporaries import system_folder

if TYPE_CHECKING:
    import pyarrow as pa

    from distcore_core.contracts import Trainer
    from distcore_data.cache import Cache
    from distcore_data.features import Features

SAMPLE_BYTES = 1 << 20
"""How much of a dataset one sampled partition holds."""

SAMPLES = 3
"""Partitions that are read if a dataset does not know its rows; one of fewer is counted whole."""


@dataclass(frozen=True)
class Cached:
    """rows: of each split. features: fitted to what is cached."""

    rows: dict[str, int | None]
    features: Features


@dataclass(frozen=True)
class Seen:
    """sample: some rows. cached: None without a cache. rows: all that there are, in words."""

    sample: Sample
    cached: Cached | None
    rows: str

    def doubts(self, trainer: Trainer, job: TrainJob, validates: bool) -> Iterator[str]:
        """What of the config does not fit the rows that were read, if others may still make it
        fit, and how many these are. Raises the run's ConfigError if there are no others."""
        features = self.sample.features if self.cached is None else self.cached.features
        issues: list[object] = list(self.sample.doubts) if self.cached is None else []
        check = getattr(trainer, "check_features", None)  # trainers may have it (docs/plugins.md)
        if check is not None and features is not None:
            try:
                check(job, features, validates)
            except ConfigError as error:
                if self.sample.whole or self.cached is not None:
                    raise
                issues += error.issues
        for issue in issues:
            yield (
                f"The rows that were looked at do not fit: {str(issue).rstrip('.')}. Unless the "
                "others make it fit, the run is refused once the data are read."
            )
        looked = f"{self.sample.rows:,}"
        if self.cached is None and looked != self.rows:
            yield (
                f"Only {looked} of {self.rows} rows were looked at. What the run refuses of the "
                "others, it refuses once it reads them."
            )


@dataclass(frozen=True)
class Size:
    """rows: how many, exact or estimated. tables: some of them. whole: whether all that are
    fitted."""

    rows: int
    exact: bool
    tables: list[pa.RecordBatch]
    whole: bool


def look(session: Session, data: Data) -> tuple[JSON, JSON, Cache, Seen]:
    """The dataset, the cache, where that would lie, and what was seen of the rows."""
    from distcore_data.cache import Cache

    preprocessing = session.config.preprocessing
    with opened(session, data) as (source, splitter, raw):
        key = key_of(session, data, source, raw)
        where = Cache.at(root_of(session, data), key, session.config.backend.credentials)
        parts = source.parts if isinstance(source, JoinedSource) else [(None, source)]
        sizes = [(code, _size(part, session)) for code, part in parts]
        digest = source.digest()
    rows, exact = sum(size.rows for _, size in sizes), all(size.exact for _, size in sizes)
    # Statistics are of all sets together.
    looked = proportioned([(size.rows, size.tables) for _, size in sizes])
    whole = all(size.whole for _, size in sizes)
    try:
        sample = sample_of(session.features, looked, rows, whole=whole)
    except DataError as error:
        raise DataError(f"{', '.join(data.names().values())}: {error}") from error
    state, found = _cached(session, where)
    splits = found.rows if found is not None else _expected(session, sizes)
    on_disk = [_size_on_disk(each, raw) for each in data.named().values()]
    groups = [each["row_group"] for each in on_disk if each["row_group"]]
    dataset = {
        "names": data.names(),
        "digest": digest,
        "rows": {"count": rows, "exact": exact},
        "bytes": _sum(each["bytes"] for each in on_disk),
        "files": _sum(each["files"] for each in on_disk),
        "row_group": max(groups, key=lambda each: each["bytes"], default=None),
        "sets": {
            name: {"rows": size.rows, "bytes": each["bytes"], "files": each["files"]}
            for name, (_, size), each in zip(data.names(), sizes, on_disk, strict=True)
        },
        "columns": raw,
        "types": session.features.types,
        "split": "given as separate sets" if splitter is None else _split_in_words(preprocessing),
        "splits": {**splits, "exact": state == "hit"},
    }
    kept = (
        sum(count for count in splits.values() if count is not None)
        if None not in splits.values()
        else rows
    )
    cache = {
        "directory": where.directory,
        "key": where.key,
        "state": state,
        "bytes": _stored_bytes(where) if state == "hit" else round(sample.encoded_bytes * kept),
        "free_bytes": None
        if where.in_bucket
        else shutil.disk_usage(_existing(Path(where.directory))).free,
    }
    seen = Seen(sample, found, f"{'' if exact else 'about '}{rows:,}")
    return dataset, cache, where, seen


def _cached(session: Session, cache: Cache) -> tuple[str, Cached | None]:
    """("hit", what is there); ("miss", None); or ("damaged", None), which would be built again."""
    from distcore_data.cache import open_cache
    from distcore_data.cache.files import CacheFiles
    from distcore_data.cache.local import refuse_closed
    from distcore_data.cache.opening import damage_of

    files = CacheFiles(cache.store(), f"{cache.key}/")
    there = bool(files.store.list(files.folder))
    if not there or damage_of(files, cache.key) is not None:
        if not cache.in_bucket:
            refuse_closed(cache.folder)
        return "damaged" if there else "miss", None
    try:
        with open_cache(cache, session.plugins) as reader:
            rows: dict[str, int | None] = {split: reader.rows(split) for split in SPLITS}
            return "hit", Cached(rows, session.features.fitted(reader.metadata))
    except CacheError:
        return "damaged", None


def _expected(session: Session, sizes: list[tuple[int | None, Size]]) -> dict[str, int | None]:
    """About how many rows each split will have; None if only the data's values decide it."""
    preprocessing = session.config.preprocessing
    rows = sum(size.rows for _, size in sizes)
    share = preprocessing.sample_ratio
    if preprocessing.sample_size is not None:
        share = min(1.0, preprocessing.sample_size / max(1, rows))
    if sizes[0][0] is not None:
        given = {code: size.rows for code, size in sizes}
        return {split: round(share * given.get(code, 0)) for code, split in enumerate(SPLITS)}
    if not _has_shares(preprocessing.split.type):
        return dict.fromkeys(SPLITS, None)
    return {
        split: round(share * rows * part)
        for split, part in zip(SPLITS, preprocessing.split.probabilities, strict=True)
    }


def _has_shares(split: str) -> bool:
    """Whether a way to split gives each split its share of the rows, whatever their values."""
    return split != "fixed" and split in OWN_SPLITS


def _split_in_words(preprocessing: Any) -> str:
    split = preprocessing.split
    by = f" by {split.column}" if split.column else ""
    shares = (
        ""
        if not _has_shares(split.type)
        else " " + "/".join(f"{100 * each:g}" for each in split.probabilities)
    )
    return f"{split.type}{by}{shares}"


def _size(source: Source, session: Session) -> Size:
    """Rows of a source, and some of them, from what it knows and a few of its partitions."""
    preprocessing = session.config.preprocessing
    parts = source.partitions(SAMPLE_BYTES)
    known = source.rows()
    chosen = _spread(list(parts)) if known is None or len(parts) <= SAMPLES else [parts[0]]
    tables = [part.read() for part in chosen]
    seen = sum(table.num_rows for table in tables)
    rows = known if known is not None else round(seen / len(chosen) * len(parts))
    exact = known is not None or len(chosen) == len(parts)
    picked = preprocessing.sample_ratio < 1 or preprocessing.sample_size is not None
    return Size(rows, exact, tables, len(chosen) == len(parts) and not picked)


def _spread(parts: list[Partition]) -> list[Partition]:
    """All, or the first, those in the middle, and the last but one (the last may be cut short)."""
    if len(parts) <= SAMPLES:
        return parts
    return [parts[number * (len(parts) - 2) // (SAMPLES - 1)] for number in range(SAMPLES)]


def _size_on_disk(dataset: Any, columns: Mapping[str, str]) -> JSON:
    """{"bytes", "files", "row_group"} of a dataset: of its files, or of these columns of a frame;
    the first row group if they are Parquet. None what lies elsewhere."""
    from distcore_data.sources.fetch import is_url
    from distcore_data.sources.memory import as_table

    if not isinstance(dataset, str | os.PathLike):
        return {
            "bytes": int(as_table(dataset, list(columns)).nbytes),
            "files": 1,
            "row_group": None,
        }
    path = os.fspath(dataset)
    if is_url(path):
        return {"bytes": None, "files": None, "row_group": None}
    files = _files_of(path)
    size = sum(file.stat().st_size for file in files)
    return {"bytes": size, "files": len(files), "row_group": _row_group(files[0], columns)}


def _sum(parts: Iterable[int | None]) -> int | None:
    """None if one is not known."""
    known = list(parts)
    return None if None in known else sum(each for each in known if each is not None)


def _files_of(dataset: str) -> list[Path]:
    from distcore_data.sources.fetch import local_path
    from distcore_data.sources.parquet_files import parquet_files

    path = local_path(dataset)
    return [path] if path.is_file() else parquet_files(path, dataset)


def _row_group(path: Path, columns: Mapping[str, str]) -> JSON | None:
    """{"rows", "bytes", "read_whole"} of a file's first row group: bytes of these columns, packed
    as they are in the file, and of those that are not read in slices, as text is; None for what is
    no Parquet."""
    from distcore_data.sources.fetch import is_parquet
    from distcore_data.sources.parquet_files import column_paths, open_file

    if not is_parquet(path.name):
        return None
    with open_file(path, str(path)) as file:
        if not file.metadata.num_rows:
            return None
        group = file.metadata.row_group(0)
        sizes = {
            name: group.column(at).total_compressed_size
            for at, name in enumerate(column_paths(file))
            if name in columns
        }
    whole = sum(size for name, size in sizes.items() if columns[name] != "string")
    return {"rows": group.num_rows, "bytes": sum(sizes.values()), "read_whole": whole}


def _stored_bytes(cache: Cache) -> int:
    return sum(each.bytes for each in cache.store().list(f"{cache.key}/").values())


def _existing(path: Path) -> Path:
    """The nearest folder that is there."""
    return next((each for each in (path, *path.parents) if each.is_dir()), system_folder())
