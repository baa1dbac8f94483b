"""New data through fitted features, for prediction and evaluation: encoded batches in the order of
the rows.

Missing values are treated as at fit time. As in Ludwig, that includes drop_row: a row that misses a
value of an input with that strategy cannot be predicted, and one that misses such a target cannot
be scored, so it is left out, with a warning; `EncodedStream.dropped` names these rows. Of an input
that is empty, or of which the model knows no value, there is a warning, too.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from distcore_core.contracts import Block, Partition, ShardPlan, Source
from distcore_data.arrow import one_array, to_numpy
from distcore_data.blame import BadRow
from distcore_data.encoding.missing import Ends, Neighbours, ends, neighbours
from distcore_data.encoding.shards import Bound, Recipe
from distcore_data.features import Features, in_roles
from distcore_data.printable import listed
from distcore_data.sources.together import read_together
from distcore_data.threads import processors

TARGET_BYTES = 4 << 20
"""Bytes of the dataset that are read at once."""

MOST_TOGETHER = 8
"""Partitions at most that are encoded as one."""

COLUMNS_ALONE = 128
"""Columns of a dataset whose partitions, of 4,096 numbers a column, are worth encoding alone."""

FEWEST_ROWS = 20
"""Rows from which it is told that the model knows no value of a column: of fewer, all may be
new."""

log = logging.getLogger("distcore")


def encode_stream(
    source: Source,
    features: Features,
    roles: Sequence[str] = ("input", "output"),
    target_bytes: int = TARGET_BYTES,
) -> EncodedStream:
    """Encode every row of a source with fitted features; iterate over (start, batch).

    roles: ("input",) for prediction, ("input", "output") for evaluation. start: how many rows came
        before.
    batch: a column for each feature, [n]. Raises DataError or UserError as reading and encoding do.
    """
    return EncodedStream(source.partitions(target_bytes), features, roles)


def columns_to_survey(features: Features, roles: Sequence[str]) -> list[str]:
    """The dataset's columns whose missing values are filled from other rows."""
    return sorted({each.column for each in _recipe(features, roles).fills()})


def survey(partition: Partition, columns: Sequence[str]) -> dict[str, Ends]:
    """Read a partition for the first and last values of the columns."""
    table = partition.read()
    return {name: ends(pa.chunked_array([table.column(name)])) for name in columns}


def surroundings(found: Sequence[Mapping[str, Ends]]) -> list[dict[str, Neighbours]]:
    """What lies around each of the partitions, from what `survey` found in all of them, in
    order."""
    names = list(found[0]) if found else []
    by_name = {name: neighbours([each[name] for each in found]) for name in names}
    return [{name: by_name[name][number] for name in by_name} for number in range(len(found))]


def _recipe(features: Features, roles: Sequence[str]) -> Recipe:
    chosen = in_roles(features, roles)
    return Recipe(tuple(Bound(each, features.source_columns[each.name]) for each in chosen))


def tell_left_out(rows: int, left_out: int, first: int) -> None:
    """Warn that rows were left out of `rows`; first: the number of the first of them, counted
    from 0."""
    if left_out:
        log.warning(
            "%d of %d rows were left out, because a value with the strategy drop_row is missing; "
            "the first is row %d (counted from 0).",
            left_out,
            rows,
            first,
        )


def tell_unknown(rows: int, names: Collection[str], features: Features) -> None:
    """Warn of inputs that have no value in `rows` rows that the model knows: most often they are
    written otherwise than when it was trained, or no longer at all, and it answers all the same."""
    if rows < FEWEST_ROWS:
        return
    codes = _unknown_codes(features)
    empty = [name for name in features.source_columns if name in names and name not in codes]
    if empty:
        log.warning(
            "No row of %s has a value in %s, and the model was trained with values there: each "
            "has what stands in for a missing one. Look whether the data are whole.",
            f"{rows:,}",
            listed([repr(features.source_columns[name]) for name in empty], 5),
        )
    for feature in features.inputs:
        if feature.name in names and feature.name in codes:
            metadata = features.metadata[feature.name]
            labels = feature.labels(metadata) or ()
            known = [each for code, each in enumerate(labels) if code != metadata["unknown"]]
            shown = [*map(repr, known[:3]), *(["…"] if len(known) > 3 else [])]
            log.warning(
                "Column %r has no value, in %s rows, that the model was trained on%s: all of them "
                "are one unknown value to it. Look whether they are written as they were then.",
                features.source_columns[feature.name],
                f"{rows:,}",
                f" ({', '.join(shown)})" if shown else "",
            )


def _unknown_codes(features: Features) -> dict[str, int]:
    """{input: the code of what the model does not know}, of those that have one for each row."""
    return {
        each.name: features.metadata[each.name]["unknown"]
        for each in features.inputs
        if features.columns[each.name].width == 1
        and features.metadata[each.name].get("unknown", -1) >= 0
    }


class Piece(NamedTuple):
    """Some rows in order. first: row number of the first. read: rows of the source.

    kept: places among these of the rows in the batch, or None for all."""

    first: int
    read: int
    kept: np.ndarray | None
    batch: pa.RecordBatch


class _Encoded(NamedTuple):
    """A partition. read: its rows; kept: places of those that the batch has, or None for all.
    empty: columns of the dataset without a value in it, and in those that it was encoded with."""

    read: int
    kept: np.ndarray | None
    batch: pa.RecordBatch
    empty: Collection[str]


class EncodedStream:
    """What `encode_stream` gives. Threads read ahead, a few partitions at most; memory does not
    grow with the rows.

    partitions: in row order. around: what lies around each of them, if that is known already (these
    are then some partitions of a larger dataset, and nobody is told here about rows that are left
    out and values that are unknown). threads: 0 for one a CPU.
    rows: rows of the source that were read so far. dropped: row numbers that were left out, int64,
        in order. unknown: inputs that had no value so far, or none that the model knows.
    """

    def __init__(
        self,
        partitions: Sequence[Partition],
        features: Features,
        roles: Sequence[str],
        around: Sequence[Mapping[str, Neighbours]] | None = None,
        threads: int = 0,
    ) -> None:
        self.recipe = _recipe(features, roles)
        self.features, self.metadata = features, features.metadata
        self.partitions = partitions
        self.rows = 0
        self.unknown: set[str] = set()
        self._dropped: list[np.ndarray] = []
        self._around = around
        self._surveyed = columns_to_survey(features, roles)
        wide = len(self.recipe.features) // COLUMNS_ALONE
        self._together = 1 if self._surveyed else max(1, min(MOST_TOGETHER, wide))
        runs = -(-len(partitions) // self._together)
        # As many partitions are under way at once if they go together: memory stays what it was.
        several = max(2, processors() // self._together)
        self._threads = max(1, min(threads or processors(), several, runs))

    @property
    def dropped(self) -> np.ndarray:
        return np.concatenate(self._dropped) if self._dropped else np.zeros(0, np.int64)

    def __iter__(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        start = 0
        for piece in self.pieces():
            if piece.batch.num_rows:
                yield start, piece.batch
            start += piece.batch.num_rows

    def pieces(self) -> Iterator[Piece]:
        """Every partition with which of its rows were kept, also those of which none was."""
        self.rows, self._dropped, kept_rows = 0, [], 0
        self.unknown = {each.name for each in self.features.inputs}
        codes, columns = _unknown_codes(self.features), self.features.source_columns
        with ThreadPoolExecutor(self._threads, thread_name_prefix="distcore-encode") as pool:
            around = self._survey(pool)
            for read, kept, batch, empty in chain.from_iterable(self._ahead(pool, around)):
                if kept is not None:
                    left_out = np.setdiff1d(np.arange(read), kept, assume_unique=True)
                    self._dropped.append(left_out + self.rows)
                self.unknown = {
                    name
                    for name in self.unknown
                    if columns[name] in empty
                    or (name in codes and (to_numpy(batch.column(name)) == codes[name]).all())
                }
                yield Piece(self.rows, read, kept, batch)
                self.rows += read
                kept_rows += batch.num_rows
        if self._around is None:
            if kept_rows < self.rows:
                tell_left_out(self.rows, self.rows - kept_rows, int(self.dropped[0]))
            tell_unknown(kept_rows, self.unknown, self.features)

    def _ahead(
        self, pool: ThreadPoolExecutor, around: Sequence[Mapping[str, Neighbours]]
    ) -> Iterator[list[_Encoded]]:
        """Partitions encoded by the pool, in order, some together; what is under way when the
        reader stops is waited for."""
        waiting: deque[Future[list[_Encoded]]] = deque()
        try:
            if 0 < len(self.partitions) <= self._together:  # no thread for a row of a service
                yield self._encode(self.partitions, around[0] if around else {})
                return
            for first in range(0, len(self.partitions), self._together):
                run = self.partitions[first : first + self._together]
                waiting.append(pool.submit(self._encode, run, around[first] if around else {}))
                if len(waiting) > self._threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BadRow as error:
            # Of the partition, whose turn comes when all before it were read.
            part = "" if self._around is None else " of a part of the dataset"
            raise BadRow(error.why, self.rows + error.row, part) from error
        finally:
            for each in waiting:
                each.cancel()

    def _encode(
        self, partitions: Sequence[Partition], around: Mapping[str, Neighbours]
    ) -> list[_Encoded]:
        """Some neighbouring partitions; around: what lies around the only one."""
        table, sizes = read_together(partitions)
        shard = self.recipe.open(
            [Block(index=0, start=0, table=table)], ShardPlan(index=0, start=0, stop=table.num_rows)
        )
        columns = {
            each.feature.name: one_array(
                shard.encoded(each, self.metadata[each.feature.name], around)
            )
            for each in self.recipe.features
        }
        empty = {
            name for name in table.column_names if table.column(name).null_count == table.num_rows
        }
        return _apart(pa.record_batch(columns), shard.kept, sizes, empty)

    def _survey(self, pool: ThreadPoolExecutor) -> Sequence[Mapping[str, Neighbours]]:
        """The neighbours of every partition, if missing values are filled from other rows: reads
        everything once."""
        if self._around is not None or not self._surveyed:
            return self._around or []
        return surroundings(
            list(pool.map(lambda partition: survey(partition, self._surveyed), self.partitions))
        )


def _apart(
    batch: pa.RecordBatch, kept: np.ndarray | None, sizes: Sequence[int], empty: Collection[str]
) -> list[_Encoded]:
    """What neighbouring partitions of these sizes gave together, each by itself. kept: places in
    all their rows of those that the batch has, or None for all. empty: as of `_Encoded`."""
    found, start = [], 0
    for size in sizes:
        low, high, places = start, start + size, None
        if kept is not None:
            low, high = (int(place) for place in np.searchsorted(kept, (low, high)))
            places = None if high - low == size else kept[low:high] - start
        found.append(_Encoded(size, places, batch.slice(low, high - low), empty))
        start += size
    return found
