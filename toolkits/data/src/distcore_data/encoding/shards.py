"""The pure functions that a processor runs over blocks and shards: statistics, surveys, and encoded
shards.

Each is an object that pickles, because an engine may run it elsewhere. What it gives for a shard
depends on the rows of the shard and on what the object holds, never on how the rows were cut into
blocks.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distcore_core.contracts import JSON, SPLITS, Block, Column, Feature, ShardPlan, Split
from distcore_core.errors import DataError, PluginBroken, PluginError, UserError
from distcore_core.registry.index import Encoder
from distcore_data.arrow import from_numpy, one_array
from distcore_data.blame import bad_row, blame_row, of_column
from distcore_data.columns import arrow_type, fits
from distcore_data.encoding.missing import (
    DROP,
    FILLS,
    Ends,
    Neighbours,
    dropped,
    ends,
    fill,
)
from distcore_data.encoding.sampling import Sample
from distcore_data.encoding.splitter import Rows, Splitter
from distcore_data.threads import spread

if TYPE_CHECKING:
    from distcore_core.progress import Progress
    from distcore_data.cache.builder import CacheBuilder
    from distcore_data.cache.manifest import FileEntry

States = dict[str, Any]


@dataclass(frozen=True)
class Bound:
    """A feature and the dataset's column that it reads."""

    feature: Feature
    column: str


@dataclass(frozen=True)
class EncodedBy:
    """Who encodes, by the keys of `Features.encoders`; a copy in another process looks whether they
    do there."""

    encoders: Mapping[str, Encoder] = field(default_factory=dict)
    elsewhere: bool = False

    def check(self) -> None:
        """Raises UserError if another release, which encodes otherwise, is installed here."""
        if self.elsewhere:
            _refuse_others(tuple(self.encoders.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return EncodedBy, (dict(self.encoders), True)


@dataclass(frozen=True)
class Recipe:
    """Which columns make which features, from which rows."""

    features: tuple[Bound, ...]
    sample: Sample | None = None
    encoded_by: EncodedBy = field(default_factory=EncodedBy)

    def fills(self) -> list[Bound]:
        """The features whose missing values come from other rows."""
        return [each for each in self.features if each.feature.missing in FILLS]

    def open(self, blocks: Sequence[Block], plan: ShardPlan) -> Shard:
        """The shard's rows, but for those that are not in the sample. Raises as `EncodedBy`."""
        self.encoded_by.check()
        numbers = np.arange(plan.start, plan.stop, dtype=np.int64)
        names = blocks[0].table.schema.names
        columns = {
            name: pa.chunked_array([block.table.column(name) for block in blocks]) for name in names
        }
        if self.sample is None:
            return Shard(self, numbers, columns, len(numbers), None)
        kept = np.flatnonzero(self.sample.mask(numbers))
        columns = {name: column.take(from_numpy(kept)) for name, column in columns.items()}
        return Shard(self, numbers[kept], columns, len(numbers), kept)


@dataclass(frozen=True)
class Shard:
    """Some rows: numbers int64 [n] and columns [n]. size: rows of the plan; sampled: which of those
    these are, or None.

    Of the n rows, `kept` are those that are not dropped for a missing value."""

    recipe: Recipe
    numbers: np.ndarray
    columns: Mapping[str, pa.ChunkedArray]
    size: int
    sampled: np.ndarray | None

    @cached_property
    def kept(self) -> np.ndarray | None:
        """Places of the rows that are not dropped, increasing; None: all."""
        strict = [each.column for each in self.recipe.features if each.feature.missing == DROP]
        missing = dropped(self.columns[name] for name in dict.fromkeys(strict))
        return None if missing is None else np.flatnonzero(~missing)

    def rows(self, needs: Iterable[str]) -> Rows:
        """What a splitter is shown."""
        columns = {name: self.columns[name] for name in needs}
        if self.kept is None:
            return Rows(self.numbers, columns)
        places = from_numpy(self.kept)
        return Rows(
            self.numbers[self.kept], {name: column.take(places) for name, column in columns.items()}
        )

    def values(self, bound: Bound, around: Mapping[str, Neighbours]) -> list[pa.Array]:
        """The feature's column in pieces, filled from neighbours if that is its strategy; no row
        dropped."""
        column = self.columns[bound.column]
        if bound.feature.missing in FILLS:
            return [fill(column, bound.feature.missing, around[bound.column])]
        return list(column.chunks)

    def encoded(
        self, bound: Bound, metadata: JSON, around: Mapping[str, Neighbours]
    ) -> pa.ChunkedArray:
        """The feature's encoded column, of the kept rows, in pieces."""
        pieces, numbers = self.values(bound, around), self.numbers
        if self.kept is not None:
            pieces, numbers = _taken(pieces, self.kept), numbers[self.kept]

        def encode(piece: pa.Array) -> pa.Array:
            found = bound.feature.encode(piece, metadata)
            if found is None or getattr(found, "ndim", 1) != 1:
                fault = (
                    f"gave {type(found).__name__} for column {bound.column!r}, and no Arrow array"
                )
                raise _broken(bound.feature.encode, fault)
            if len(found) != len(piece):
                raise _broken(
                    bound.feature.encode,
                    f"gave {len(found)} values for {len(piece)} rows of column {bound.column!r}",
                )
            return found

        found = pa.chunked_array(_of_pieces(encode, bound, pieces, numbers))
        declared = bound.feature.column(metadata)
        if not isinstance(declared, Column):
            fault = f"gave {type(declared).__name__} for column {bound.column!r}, and no Column"
            raise _broken(bound.feature.column, fault)
        if not fits(found.type, declared):
            raise _broken(
                bound.feature.encode,
                f"made {found.type} of column {bound.column!r}, but the feature's `column` says "
                f"{arrow_type(declared)}",
            )
        return found


@dataclass
class Ticks:
    """Counts rows for whoever draws them; a copy in another process counts for nobody."""

    progress: Progress | None = None
    lock: Any = field(default_factory=threading.Lock)

    def add(self, rows: int) -> None:
        if self.progress is not None:
            with self.lock:
                self.progress.done += rows

    def __reduce__(self) -> tuple[Any, ...]:
        return Ticks, ()


class BlockStatistics:
    """block → {feature: statistics of its column}, of the features whose columns it has.

    counted: The rows of blocks that have this column are counted."""

    def __init__(
        self,
        features: Sequence[Bound],
        counted: str,
        progress: Progress | None,
        encoded_by: EncodedBy | None = None,
    ) -> None:
        self.features, self.counted = tuple(features), counted
        self.ticks = Ticks(progress)
        self.encoded_by = encoded_by or EncodedBy()

    def __call__(self, block: Block) -> States:
        self.encoded_by.check()
        there = set(block.table.schema.names)
        # Where it begins is not known while blocks are read out of order.
        part = "" if block.start is not None or block.index == 0 else f" of part {block.index}"
        numbers = np.arange(block.table.num_rows) + (block.start or 0)
        states = {
            each.feature.name: _of_pieces(
                each.feature.partial, each, [block.table.column(each.column)], numbers, part
            )[0]
            for each in self.features
            if each.column in there
        }
        if self.counted in there:
            self.ticks.add(block.table.num_rows)
        return states


def merge_states(features: Sequence[Bound]) -> Callable[[States, States], States]:
    """The merge of what `BlockStatistics` and `ShardStatistics` give; either side may lack
    features."""
    return _Merge({each.feature.name: each.feature for each in features})


@dataclass(frozen=True)
class _Merge:
    features: Mapping[str, Feature]

    def __call__(self, left: States, right: States) -> States:
        both = {
            name: self.features[name].merge(state, right[name])
            for name, state in left.items()
            if name in right
        }
        return {**left, **right, **both}


@dataclass(frozen=True)
class ShardSurvey:
    """shard → ({column to be filled: its ends}, what the splitter found)."""

    recipe: Recipe
    splitter: Splitter

    def __call__(self, plan: ShardPlan, blocks: list[Block]) -> tuple[dict[str, Ends], Any]:
        shard = self.recipe.open(blocks, plan)
        found = {each.column: ends(shard.columns[each.column]) for each in self.recipe.fills()}
        return found, self.splitter.survey(shard.rows(self.splitter.needs))


@dataclass(frozen=True)
class ShardStatistics:
    """shard → {feature: statistics}, for features whose values depend on other rows or on the
    row's number."""

    recipe: Recipe
    features: tuple[Bound, ...]
    around: Sequence[Mapping[str, Neighbours]]

    def __call__(self, plan: ShardPlan, blocks: list[Block]) -> States:
        shard = self.recipe.open(blocks, plan)
        states = {}
        for each in self.features:
            pieces = shard.values(each, self.around[plan.index])
            parts = _of_pieces(each.feature.partial, each, pieces, shard.numbers)
            merged = parts[0]
            for part in parts[1:]:
                merged = each.feature.merge(merged, part)
            states[each.feature.name] = merged
        return states


class ShardWriter:
    """shard → its files, and how many rows of it are in each split."""

    def __init__(
        self,
        recipe: Recipe,
        metadata: Mapping[str, JSON],
        splitter: Splitter,
        carries: Sequence[Any],
        around: Sequence[Mapping[str, Neighbours]],
        builder: CacheBuilder,
        progress: Progress | None = None,
    ) -> None:
        self.recipe, self.metadata, self.builder = recipe, metadata, builder
        self.splitter, self.carries, self.around = splitter, carries, around
        self.ticks = Ticks(progress)

    def __call__(
        self, plan: ShardPlan, blocks: list[Block]
    ) -> tuple[list[FileEntry | None], dict[Split, int]]:
        shard = self.recipe.open(blocks, plan)
        assign, kept = self.splitter.assign, shard.rows(self.splitter.needs)
        splits = np.asarray(assign(kept, self.carries[plan.index]))
        if splits.shape != kept.numbers.shape:
            raise _broken(assign, f"gave {splits.shape} splits for {len(kept.numbers)} rows")
        # Rows of train first, then validation, then test: one gather a column, and each split is a
        # slice of it.
        places = [np.flatnonzero(splits == code).astype(np.int32) for code in range(len(SPLITS))]
        if sum(map(len, places)) < len(splits):
            other = np.setdiff1d(splits, range(len(SPLITS)))[0]
            raise _broken(assign, f"gave a row the split {other}, which is none of 0, 1 and 2")
        entries: list[FileEntry | None] = [
            self.builder.write_split_map(plan.index, self._map(shard, splits))
        ]
        order = from_numpy(np.concatenate(places))

        def encode(each: Bound) -> pa.Array:
            metadata = self.metadata[each.feature.name]
            column = one_array(shard.encoded(each, metadata, self.around[plan.index]))
            return pc.take(column, order, boundscheck=False)

        def write(split: Split) -> FileEntry | None:
            rows = table.slice(starts[split], counts[split])
            return self.builder.write_shard(split, plan.index, rows)

        features = self.recipe.features
        names = [each.feature.name for each in features]
        table = pa.table(spread(encode, features), names=names)
        counts = {split: len(rows) for split, rows in zip(SPLITS, places, strict=True)}
        starts = dict(zip(SPLITS, accumulate(counts.values(), initial=0), strict=False))
        entries += spread(write, [split for split in SPLITS if counts[split]])
        self.ticks.add(shard.size)
        return entries, counts

    def _map(self, shard: Shard, splits: np.ndarray) -> np.ndarray:
        """The split of each row of the plan: int8 [size], -1 for a row that was dropped or not
        sampled."""
        for places, count in ((shard.kept, len(shard.numbers)), (shard.sampled, shard.size)):
            if places is not None:
                whole = np.full(count, -1, np.int8)
                whole[places] = splits
                splits = whole
        return splits


# ------------------------------------------------------------------ inside


@cache
def _refuse_others(encoders: tuple[tuple[str, Encoder], ...]) -> None:
    """Once a process. Where a name is not offered, or by two of whom the config blocks one, no
    version is known."""
    from distcore_core.registry.manager import environment_plugins
    from distcore_data.features import shown

    for key, there in encoders:
        kind, _, name = key.rpartition(":")
        try:
            here = environment_plugins().encoder(kind or "features", name)
        except PluginError:
            continue
        if here.encoding != there.encoding:
            raise UserError(
                f"{shown(key).capitalize()} is encoded by {there.who} where the command was given, "
                f"and otherwise by {here.who} on {socket.gethostname()} (process {os.getpid()}). "
                f"Install {there.distribution}=={there.version} there, and run again."
            )


def _broken(method: Any, fault: str) -> PluginBroken:
    """What to raise for a plugin's method that gives what its role does not allow."""
    kind = type(method.__self__)
    name = f"{kind.__module__}.{kind.__qualname__}.{method.__name__}"
    return PluginBroken(f"{name} {fault}. Report this to its authors.")


def _of_pieces(
    work: Callable[[pa.Array], Any],
    bound: Bound,
    pieces: Sequence[pa.Array],
    rows: np.ndarray,
    part: str = "",
) -> list[Any]:
    """work(piece) of each piece of a feature's column; what it raises gets a note of column and
    row, or tells the row if it is a DataError.

    rows: int64 [n], their numbers. part: of what, if not of the dataset."""
    found, start = [], 0
    for piece in pieces:
        try:
            found.append(work(piece))
        except Exception as error:
            numbers = rows[start : start + len(piece)]
            if isinstance(error, DataError):
                told = of_column(error, bound.feature.name, bound.column)
                told = bad_row(told, numbers, piece, work, part)
                if told is not error:
                    raise told from error
            blame_row(error, bound.column, numbers, piece, work, part)
            raise
        start += len(piece)
    return found


def _taken(pieces: Sequence[pa.Array], kept: np.ndarray) -> list[pa.Array]:
    """The kept rows of each piece."""
    found, start = [], 0
    for piece in pieces:
        low, high = np.searchsorted(kept, (start, start + len(piece)))
        found.append(
            piece if high - low == len(piece) else piece.take(from_numpy(kept[low:high] - start))
        )
        start += len(piece)
    return found
