"""manifest.json: what a cache holds, written last, and checked before anything else of the cache
is believed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from distcore_core.contracts import JSON, SPLITS, Column, PluginRef, Split
from distcore_core.errors import CacheError
from distcore_data.seals import sealed, unsealed

CACHE_VERSION = 3
"""Raised whenever the same data and config would be encoded or laid out differently; part of
every cache's key."""

SHARD_ROWS = 262_144
"""Global rows of a shard: shard k covers rows [k * SHARD_ROWS, (k + 1) * SHARD_ROWS)."""

MANIFEST = "manifest.json"
ROWS = "rows"
"""The folder of the split map, beside those of the splits."""

KEY_LENGTH = 40
KEY = re.compile(rf"[0-9a-f]{{{KEY_LENGTH}}}", re.ASCII)
"""The name of a cache, which nobody else would choose: its folder may lie among a user's files."""

VERSION = re.compile(r"[0-9a-f]{32}", re.ASCII)
FILE_NAME = re.compile(
    r"(train|validation|test|rows|metadata)/[0-9]{5,12}(\.[a-z0-9]{1,16}){1,3}", re.ASCII
)
HEX = re.compile(r"[0-9a-f]+", re.ASCII)

RECIPE_LENGTH = 28
"""Digits of a key for data and config alone; the rest is for the versions of what encodes them."""

METADATA = "metadata"
"""The folder of what the features found, if that is too large to stand in the manifest."""

INLINE_BYTES = 4 << 20
"""Metadata of more bytes lie in a file of their own."""

MOST_METADATA = 1 << 30
"""Bytes of metadata that are read back, so no more are written; a model holds them too."""

Part = Split | Literal["rows", "metadata"]


class OtherVersion(CacheError):
    """A cache that a distcore of another CACHE_VERSION built. Nothing says that it is damaged."""


def same_recipe(key: str, other: str) -> bool:
    """Whether two keys are of the same data and config."""
    return key[:RECIPE_LENGTH] == other[:RECIPE_LENGTH]


@dataclass(frozen=True)
class FileEntry:
    """One file of a cache: the part it belongs to (a split, "rows" for the split map, or
    "metadata"), its number, its name relative to the cache's folder, its rows and bytes, and its
    digests."""

    part: Part
    index: int
    file: str
    rows: int
    bytes: int
    xxh3: str
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """A manifest that was checked. document: the plain JSON it came from.

    large: the file of the metadata, if they are large; `metadata` is then empty. made_by: who
    encoded what, see `index.Encoder`. version: in a bucket, the folder beside the manifest that
    holds the files; in a folder they lie beside it."""

    key: str
    format: PluginRef
    columns: dict[str, Column]
    metadata: dict[str, JSON]
    splits: dict[Split, tuple[FileEntry, ...]]
    split_map: tuple[FileEntry, ...]
    document: JSON
    version: str | None = None
    large: FileEntry | None = None

    @property
    def made_by(self) -> JSON:
        return dict(self.document.get("made_by") or {})

    def rows(self, split: Split) -> int:
        return sum(entry.rows for entry in self.splits[split])

    def files(self) -> list[FileEntry]:
        """Every file of the cache but the manifest."""
        shards = [*(entry for split in SPLITS for entry in self.splits[split]), *self.split_map]
        return shards if self.large is None else [*shards, self.large]


def canonical(value: Any) -> bytes:
    """JSON with one spelling for equal values: sorted keys, no spaces, no NaN. Raises ValueError
    or TypeError."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def digest_of(value: Any) -> str:
    """sha256 of the canonical JSON, in hex."""
    return hashlib.sha256(canonical(value)).hexdigest()


def file_name(part: Part, index: int, suffix: str) -> str:
    """`train/00000.parquet`."""
    return f"{part}/{index:05d}{suffix}"


def encode_manifest(
    key: str,
    format: PluginRef,
    columns: Iterable[Column],
    metadata: Mapping[str, JSON],
    source: JSON,
    files: Sequence[FileEntry],
    version: str | None = None,
    made_by: Mapping[str, Any] | None = None,
) -> bytes:
    """The bytes of manifest.json. metadata: none, if the files have some of their own. made_by: who
    encoded what.

    Equal caches give equal bytes: nothing of time, machine or path is in it, but for the random
    name of the folder of this version in a bucket."""
    splits = {}
    for split in SPLITS:
        shards = [_plain(entry) for entry in files if entry.part == split]
        splits[split] = {"rows": sum(shard["rows"] for shard in shards), "shards": shards}
    document: JSON = {
        "version": CACHE_VERSION,
        "key": key,
        "format": {"name": format.name, "options": dict(format.options)},
        "columns": [
            {"name": each.name, "dtype": each.dtype, "width": each.width} for each in columns
        ],
        "metadata": dict(metadata),
        "source": source,
        "shard_rows": SHARD_ROWS,
        "splits": splits,
        "split_map": [_plain(entry) for entry in files if entry.part == ROWS],
        "large": [_plain(entry) for entry in files if entry.part == METADATA],
        "made_by": dict(made_by or {}),
        **({"folder": version} if version is not None else {}),
    }
    try:
        return sealed(document, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise CacheError(
            f"The cache's {MANIFEST} cannot be written: {error}. Report this."
        ) from error


def encode_metadata(metadata: Mapping[str, JSON]) -> bytes:
    """The metadata of features as a file. Raises CacheError for what is no JSON, or more than is
    read back."""
    try:
        return sealed({"metadata": dict(metadata)}, sort_keys=True, most_bytes=MOST_METADATA)
    except TypeError as error:
        raise CacheError(
            f"The metadata of the encoded columns is not plain JSON: {error}. Report this to the "
            "feature's authors."
        ) from error
    except ValueError as error:
        raise CacheError(
            f"The metadata of the encoded columns cannot be kept: {error}. Lower most_common of "
            "the features with the largest vocabularies, or leave out a column that is as good as "
            "unique; if it is not plain JSON, report this to the feature's authors."
        ) from error


def parse_metadata(content: bytes) -> dict[str, JSON]:
    """What `encode_metadata` wrote. Raises ValueError or KeyError."""
    return dict(unsealed(content, most_bytes=MOST_METADATA)["metadata"])


def parse_manifest(content: bytes, key: str, where: str) -> Manifest:
    """Check a manifest's bytes. Raises CacheError saying what is wrong with the one at `where`."""
    try:
        return _parse(unsealed(content), key)
    except OtherVersion as error:
        raise OtherVersion(f"{where} {error}") from None
    except CacheError as error:
        raise CacheError(f"{where} {error} {REBUILD}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise CacheError(f"{where} is damaged ({reason}). {REBUILD}") from error


REBUILD = "Run the same command again: the cache is rebuilt; or delete its folder."
"""What to do about damage that the next run sees by itself: in the manifest, or in the sizes of
files."""


def _plain(entry: FileEntry) -> JSON:
    return {name: value for name, value in asdict(entry).items() if name != "part"}


def _parse(document: JSON, key: str) -> Manifest:
    version = int(document["version"])
    if version != CACHE_VERSION:
        who, then = "an older", "`distcore cache prune --unused` frees its space."
        if version > CACHE_VERSION:
            who, then = "a newer", "Read it with that one."
        raise OtherVersion(
            f"was written by {who} distcore (cache version {version}; this one reads "
            f"{CACHE_VERSION}). {then}"
        )
    if document["shard_rows"] != SHARD_ROWS:
        raise ValueError(f"its shards have {document['shard_rows']} rows, and not {SHARD_ROWS}")
    if document["key"] != key:
        raise CacheError(f"belongs to the cache {document['key']!r}, not to {key!r}.")
    splits: dict[Split, tuple[FileEntry, ...]] = {}
    for split in SPLITS:
        splits[split] = _entries(split, document["splits"][split]["shards"])
        if document["splits"][split]["rows"] != sum(entry.rows for entry in splits[split]):
            raise ValueError(f"the rows of {split} do not add up")
    folder = document.get("folder")
    if folder is not None and not (isinstance(folder, str) and VERSION.fullmatch(folder)):
        raise ValueError(f"it names the folder {folder!r}, which is none of a cache")
    columns = [
        Column(name=each["name"], dtype=each["dtype"], width=each["width"])
        for each in document["columns"]
    ]
    return Manifest(
        key=key,
        format=PluginRef(
            kind="caches",
            name=document["format"]["name"],
            options=dict(document["format"]["options"]),
        ),
        columns={column.name: column for column in columns},
        metadata=dict(document["metadata"]),
        splits=splits,
        split_map=_entries("rows", document["split_map"]),
        document=document,
        version=folder,
        large=next(iter(_entries("metadata", document["large"])), None),
    )


def _entries(part: Part, shards: list[JSON]) -> tuple[FileEntry, ...]:
    entries = tuple(FileEntry(part=part, **shard) for shard in shards)
    for entry in entries:
        if not (isinstance(entry.file, str) and FILE_NAME.fullmatch(entry.file)):
            raise ValueError(f"it names the file {entry.file!r}, which is no file of a cache")
        if not entry.file.startswith(file_name(part, entry.index, "")):
            raise ValueError(f"it names {entry.file!r} as shard {entry.index} of {part}")
        numbers = (entry.index, entry.rows, entry.bytes)
        if (
            not all(type(number) is int and number >= 0 for number in numbers)
            or entry.rows > SHARD_ROWS
        ):
            raise ValueError(f"the numbers of {entry.file} make no sense")
        if not (HEX.fullmatch(entry.xxh3) and HEX.fullmatch(entry.sha256)):
            raise ValueError(f"the digests of {entry.file} make no sense")
    if list(entries) != sorted(entries, key=lambda entry: entry.index):
        raise ValueError(f"the shards of {part} are not in order")
    return entries
