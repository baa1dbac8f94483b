"""Fit and encode: one pass over the rows for the statistics, then shards of encoded columns at
fixed row numbers.

Statistics are of all given rows, not of the training split alone: that is what Ludwig does, whose
configs run here unmodified, and it takes one pass. `shards.py` holds the pure functions that a
processor runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from distcore_core.contracts import JSON, SPLITS, Column, Processor, ShardPlan, Source, Split
from distcore_core.errors import DataError, UserError
from distcore_data.blame import of_column
from distcore_data.cache.manifest import SHARD_ROWS
from distcore_data.encoding.missing import DROP, FILLS, Ends, Neighbours, neighbours
from distcore_data.encoding.sampling import EVERY_ROW, Sampling
from distcore_data.encoding.shards import (
    BlockStatistics,
    Bound,
    EncodedBy,
    Recipe,
    ShardStatistics,
    ShardSurvey,
    ShardWriter,
    States,
    merge_states,
)
from distcore_data.encoding.splits import GivenSplitter, describe
from distcore_data.encoding.splitter import Splitter
from distcore_data.threads import processors, run_all

if TYPE_CHECKING:
    from distcore_core.progress import Progress
    from distcore_data.cache.builder import CacheBuilder
    from distcore_data.features import Features

log = logging.getLogger("distcore")


@runtime_checkable
class Spelling(Protocol):
    """A `contracts.Feature` whose values are texts. Each set that was given has texts of its own,
    as the type of a column depends on all of its rows: 3 in one, 3.0 in the next."""

    def of_sets(self, state: Any) -> Any:
        """The statistics of all sets with what is one value counted as one, before `finish`."""


@dataclass(frozen=True)
class Fitted:
    """What preprocessing found.

    metadata: of each feature. columns: the encoded ones. rows: of each split. source_rows: rows
        that were read."""

    metadata: dict[str, JSON]
    columns: dict[str, Column]
    rows: dict[Split, int]
    source_rows: int


def fit_and_encode(
    source: Source,
    processor: Processor,
    features: Features,
    splitter: Splitter,
    builder: CacheBuilder,
    *,
    sampling: Sampling = EVERY_ROW,
    dataset: str = "",
    progress: Progress | None = None,
) -> Fitted:
    """Read the source once, fit every feature, and write every shard through the builder (which the
    caller finishes).

    sampling: which rows to use. dataset: how messages call the data. Raises DataError or UserError
        for rows that cannot be read, fitted or split.
    """
    bound, encoded_by = _bound(features), EncodedBy(features.encoders)
    _tell(progress, "read", None)
    try:  # a processor that fails in `scan` may have started its engine
        processor.scan(source, builder.scratch)
        waits = [not sampling.takes_all or each.feature.missing in FILLS for each in bound]
        early = [each for each, wait in zip(bound, waits, strict=True) if not wait]
        late = [each for each, wait in zip(bound, waits, strict=True) if wait]
        states, block_rows = processor.fold(
            BlockStatistics(early, bound[0].column, progress, encoded_by), merge_states(early)
        )
        total = sum(block_rows)
        if not total:
            raise DataError(
                f"{dataset or 'The dataset'} has no rows. Give a dataset with at least one row."
            )
        sample = sampling.of(total)
        sampling.refuse_none(sample, total, dataset)
        hint = partial(sampling.hint, sample, total)
        splitter.place(block_rows)
        plans = plan_shards(total)
        recipe = Recipe(tuple(bound), sample, encoded_by)
        around, carries = _survey(processor, plans, recipe, splitter)
        if late:
            parts = processor.write_shards(plans, ShardStatistics(recipe, tuple(late), around))
            waited: States = reduce(merge_states(late), parts)
            states = {**states, **waited}
        of_sets = isinstance(splitter, GivenSplitter) and len(np.unique(splitter.splits)) > 1
        metadata = _finished(bound, states, of_sets, dataset, hint)
        _tell(progress, "encode", total)
        writer = ShardWriter(recipe, metadata, splitter, tuple(carries), around, builder, progress)
        with ThreadPoolExecutor(1, thread_name_prefix="distcore-metadata") as beside:
            # What it cannot write, the builder's `finish` cannot either, and says so in its turn.
            beside.submit(builder.keep_metadata, metadata)
            rows = _write(processor, plans, writer)
    finally:
        processor.close()
    wanted = total if sample is None else sum(sample.picked(total))
    _check_rows(rows, wanted, dataset, hint, bound)
    columns = {
        each.feature.name: each.feature.column(metadata[each.feature.name]) for each in bound
    }
    return Fitted(metadata, columns, rows, total)


def encode_again(
    source: Source,
    processor: Processor,
    features: Features,
    splitter: Splitter,
    builder: CacheBuilder,
    metadata: Mapping[str, JSON],
    shards: Collection[int],
    *,
    sampling: Sampling,
    progress: Progress,
) -> None:
    """Read the source once, and write the shards of these numbers again, with the metadata that was
    fitted before.

    The other arguments must be those of `fit_and_encode` at that time; then the shards' bytes
    are too."""
    bound, encoded_by = _bound(features), EncodedBy(features.encoders)
    _tell(progress, "read", None)
    try:
        processor.scan(source, builder.scratch)
        _, block_rows = processor.fold(
            BlockStatistics((), bound[0].column, progress, encoded_by), merge_states(())
        )
        total = sum(block_rows)
        splitter.place(block_rows)
        recipe = Recipe(tuple(bound), sampling.of(total), encoded_by)
        plans = plan_shards(total)
        around, carries = _survey(processor, plans, recipe, splitter)
        again = [plan for plan in plans if plan.index in shards]
        _tell(progress, "encode", sum(plan.stop - plan.start for plan in again))
        writer = ShardWriter(recipe, metadata, splitter, tuple(carries), around, builder, progress)
        _write(processor, again, writer)
    finally:
        processor.close()


def plan_shards(rows: int) -> list[ShardPlan]:
    """Shards at fixed row numbers: [0, SHARD_ROWS), [SHARD_ROWS, 2 * SHARD_ROWS), …, the last
    one shorter."""
    starts = range(0, rows, SHARD_ROWS)
    return [
        ShardPlan(index=index, start=start, stop=min(start + SHARD_ROWS, rows))
        for index, start in enumerate(starts)
    ]


# ------------------------------------------------------------------ inside


def _bound(features: Features) -> list[Bound]:
    """Copies of the features: what one keeps of the values it saw last, which lie in the scratch
    folder's files, is gone with the work."""
    return [Bound(copy(each), features.source_columns[each.name]) for each in features]


def _tell(progress: Progress | None, stage: str, total: int | None) -> None:
    if progress is not None:
        progress.begin(stage, total)


def _survey(
    processor: Processor, plans: Sequence[ShardPlan], recipe: Recipe, splitter: Splitter
) -> tuple[tuple[dict[str, Neighbours], ...], list[Any]]:
    """What each shard must know of the others: neighbours of its missing values, and the
    splitter's carry."""
    fills = recipe.fills()
    if not fills and not splitter.surveys:
        return tuple({} for _ in plans), splitter.carries([None] * len(plans))
    surveys = processor.write_shards(plans, ShardSurvey(recipe, splitter))
    around: list[dict[str, Neighbours]] = [{} for _ in plans]
    for column in sorted({each.column for each in fills}):
        ends: list[Ends] = [found[column] for found, _ in surveys]
        for shard, each in zip(around, neighbours(ends), strict=True):
            shard[column] = each
    return tuple(around), splitter.carries([found for _, found in surveys])


def _write(
    processor: Processor, plans: Sequence[ShardPlan], writer: ShardWriter
) -> dict[Split, int]:
    """Write every shard; returns the rows of each split."""
    written = processor.write_shards(plans, writer)
    for entries, _ in written:
        writer.builder.record(entries)
    return {split: sum(counts[split] for _, counts in written) for split in SPLITS}


def _finished(
    bound: Sequence[Bound], states: States, of_sets: bool, dataset: str, hint: Callable[[], str]
) -> dict[str, JSON]:
    """The metadata of each feature, of its statistics, which are given up. of_sets: whether they
    are of several sets, which spell values each in its way."""
    if of_sets:
        for feature in (each.feature for each in bound):
            if isinstance(feature, Spelling):
                states[feature.name] = feature.of_sets(states[feature.name])
    found = run_all(  # popped: of millions of labels a state is as large as what is made of it
        lambda each: _finish(each, states.pop(each.feature.name), dataset, hint),
        bound,
        processors(),
    )
    return {each.feature.name: finished for each, finished in zip(bound, found, strict=True)}


def _finish(bound: Bound, state: Any, dataset: str, hint: Callable[[], str]) -> JSON:
    try:
        return bound.feature.finish(state)
    except UserError as error:
        if type(error) is not DataError:
            raise
        told = f"{of_column(error, bound.feature.name, bound.column)}{hint()}"
        raise DataError(f"{dataset}: {told}" if dataset else told) from error


def _check_rows(
    rows: Mapping[Split, int],
    total: int,
    dataset: str,
    hint: Callable[[], str],
    bound: Sequence[Bound],
) -> None:
    kept = sum(rows.values())
    if kept < total:
        log.warning(
            "%d of %d rows were dropped, because a value is missing in a column whose "
            "missing_value_strategy is drop_row: %s.",
            total - kept,
            total,
            ", ".join(repr(each.column) for each in bound if each.feature.missing == DROP),
        )
    name = dataset or "the dataset"
    if not kept:
        raise DataError(
            f"No row of {name} is left: each misses a value in a column whose "
            "missing_value_strategy is drop_row (the default of output features). Fill the column, "
            f"or choose another strategy.{hint()}"
        )
    if not rows["train"]:
        raise UserError(
            f"The split leaves no row of {name} for training ({describe(rows)}). "
            f"Change preprocessing.split, or give more rows.{hint()}"
        )
    for split in ("validation", "test"):
        if not rows[split]:
            log.info("The split leaves no row for %s.", split)
