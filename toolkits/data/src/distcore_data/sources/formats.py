"""What reads one format of datasets, and what it is given; light to import."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from distcore_data.sources.options import DelimitedOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from distcore_core.contracts import Source
    from distcore_data.sources.fetch import Workplace

HEAD_BYTES = 1 << 22
"""Bytes looked at, at most, if only names and first rows are wanted of text."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """A dataset that is to be read.

    Args:
        dataset: As the user gave it: a path, an address, or a frame.
        path: The file, folder or pattern on this machine, downloaded if it was remote; None for a
            frame, and for an address that the format fetches by itself.
        shown: What the user calls it, without secrets, for messages.
        options: How text is to be read; `null_values` and `decimal` count in
            every format.
        place: Where to make what must be unpacked or downloaded; the source's `close` closes it.
        head_bytes: What `sample` reads of text at most.
    """

    dataset: Any
    path: Path | None
    shown: str
    options: DelimitedOptions
    place: Workplace
    head_bytes: int = HEAD_BYTES

    @property
    def local(self) -> Path:
        """The path of what lies on this machine."""
        return self.path if self.path is not None else Path(os.fspath(self.dataset))


@runtime_checkable
class Placed(Protocol):
    """A partition that knows where its rows are, for errors that are found when it was read."""

    def read(self) -> pa.RecordBatch:
        """The rows, as a `contracts.Partition` reads them."""
        ...

    def place_of(self, row: int) -> str:
        """File, and line or row, of a row of the partition, as its own errors tell them."""
        ...


@runtime_checkable
class DataFormat(Protocol):
    """How datasets of one format are read: a member of the role `sources`.

    The name of its entry point is the name of the format (`--data_format`), the ending of its
    files, and the scheme of the addresses that it fetches; a format with several endings has
    several entry points. `held.TableFormat` is the base of one whose files fit into memory.

    folders: whether it reads a folder, or a pattern of files, as one dataset.
    fetches: whether it reads addresses `name://…` by itself. Others are downloaded by fsspec, and
        read as files.
    """

    @property
    def folders(self) -> bool: ...

    @property
    def fetches(self) -> bool: ...

    def open(self, given: Given, raw: Mapping[str, str]) -> Source:
        """Open the dataset for reading.

        Args:
            given: The dataset as it was given, and what was said about it.
            raw: {column: how to read it}. A batch holds these columns in this order: "number" as
                float64, "category" as dictionary<int32, utf8>, "string" as utf8, "time" as
                timestamp[s] where the format has times, and else as "category"; null if a value
                is missing.

        Raises:
            DataError: It cannot be read so; the message names file, line or row, and column.
        """
        ...

    def sample(self, given: Given, rows: int) -> pa.Table:
        """The first rows, every column with the type that it seems to have.

        Args:
            rows: How many at most.
        """
        ...
