"""Some rows of a dataset, fitted and encoded by themselves: how wide they are, and a batch to try a
network with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distcore_core.contracts import JSON
from distcore_core.errors import ConfigError, ConfigIssue, DataError
from distcore_data.arrow import from_numpy
from distcore_data.blame import of_column
from distcore_data.encoding.missing import DROP
from distcore_data.encoding.texts import without_unused

if TYPE_CHECKING:
    from distcore_core.contracts import Feature, TrainJob
    from distcore_core.registry.manager import Plugins
    from distcore_data.features import Features
    from distcore_torch.training.counted import Trial


MOST_MADE_UP = 1_000_000
"""Values of a category beyond the sample's that a network is tried with."""


@dataclass(frozen=True)
class Sample:
    """rows: read. encoded_bytes: about what a row takes when it is encoded.

    text_bytes: {feature: bytes of a value}, if its values are text.
    distinct: {feature: about how many distinct values the dataset has}, likewise.
    ranked: columns whose quantiles are needed.
    features, encoded: fitted to these rows, and the first of them encoded; None if they cannot be
        fitted by themselves (no value, one class).
    whole: whether these are all rows that will be fitted.
    doubts: why config and rows do not fit, if other rows may still make them fit.
    """

    rows: int
    encoded_bytes: float
    text_bytes: dict[str, float]
    distinct: dict[str, float]
    ranked: int
    features: Features | None
    encoded: pa.RecordBatch | None
    whole: bool = False
    doubts: tuple[ConfigIssue | DataError, ...] = ()


def sample_of(
    features: Features, tables: Sequence[pa.RecordBatch], rows: int, *, whole: bool = False
) -> Sample:
    """Of some partitions of a dataset, at least one.

    A category is fitted to as many values as the whole dataset is thought to have, made up beyond
    the sample's, so that a network is as large as it will be.

    Args:
        features: Not fitted.
        tables: The partitions.
        rows: About how many the dataset has.
        whole: Whether these are all that will be fitted.

    Raises:
        ConfigError, DataError: The config and the values do not fit, and there are no others.
    """
    first, types = tables[0], features.types
    metadata: dict[str, JSON] = {}
    arrays: dict[str, pa.Array] = {}
    text: dict[str, float] = {}
    distinct: dict[str, float] = {}
    size = 0
    doubts: list[ConfigIssue | DataError] = []
    for feature in features:
        source, seen = features.source_columns[feature.name], 0
        values = first.column(source)
        plain = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
        if pa.types.is_string(plain.type) or pa.types.is_large_string(plain.type):
            bytes_of_text = pc.sum(pc.binary_length(plain)).as_py() or 0
            text[feature.name] = bytes_of_text / max(1, len(plain))
            seen = pc.count_distinct(plain).as_py()
            distinct[feature.name] = distinct_among(rows, seen, len(plain))
        more = round(distinct.get(feature.name, 0)) - seen
        if whole or types[feature.name] != "category" or more <= seen // 20:
            more = 0
        try:
            metadata[feature.name] = _fitted(
                feature, [each.column(source) for each in tables], more
            )
            arrays[feature.name] = feature.encode(values, metadata[feature.name])
            size += arrays[feature.name].nbytes
        except (ConfigError, DataError) as error:  # all rows perhaps can be fitted
            told = error
            if isinstance(error, DataError):
                told = of_column(error, feature.name, source)
            if whole and not any(_drops(features, table, source) for table in tables):
                if told is not error:
                    raise told from error
                raise
            doubts += told.issues if isinstance(told, ConfigError) else [told]
            size += 4 * first.num_rows
    fitted = len(metadata) == len(list(features)) and first.num_rows > 0
    return Sample(
        sum(table.num_rows for table in tables),
        size / max(1, first.num_rows),
        text,
        distinct,
        sum("quantiles" in each for each in metadata.values()),
        features.fitted(metadata) if fitted else None,
        pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays)) if fitted else None,
        whole,
        tuple(doubts),
    )


def _fitted(feature: Feature, columns: Sequence[pa.Array], made_up: int) -> JSON:
    """The metadata of one feature, fitted to its column of each table and to so many other values.
    Raises ConfigError or DataError if it cannot be fitted."""
    partial = feature.partial(columns[0])
    for each in columns[1:]:
        partial = feature.merge(partial, feature.partial(each))
    if made_up:
        feature.finish(partial)  # what is made up is nobody's mistake
        partial = feature.merge(partial, feature.partial(_made_up(made_up, columns[0])))
    return feature.finish(partial)


def proportioned(sets: Sequence[tuple[int, Sequence[pa.RecordBatch]]]) -> list[pa.RecordBatch]:
    """All of the rows, of which the first table has as many of each set as is its share of all.

    Args:
        sets: About how many rows each has, and some of them, at least one table.
    """
    if len(sets) == 1:
        return list(sets[0][1])
    share = min(tables[0].num_rows / max(1, rows) for rows, tables in sets)
    first, others = [], []
    for rows, (table, *more) in sets:
        taken = min(table.num_rows, max(1, round(share * rows)))
        first.append(_tidy(table.slice(0, taken)))
        others += [_tidy(table.slice(taken)), *more]
    joined = pa.Table.from_batches(first).unify_dictionaries().combine_chunks().to_batches()
    return [*joined[:1], *(each for each in others if each.num_rows)]


def _tidy(table: pa.RecordBatch) -> pa.RecordBatch:
    """The same with dictionaries of what occurs, as features expect."""
    columns = [
        without_unused(each) if pa.types.is_dictionary(each.type) else each
        for each in table.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def trial_of(job: TrainJob, sample: Sample, rows: int, plugins: Plugins) -> Trial | None:
    """The config's network with a batch of the sample's rows; None if these cannot be fitted by
    themselves.

    Args:
        job: Whose config it is; its cache is not looked at.
        sample: Of the data.
        rows: Of a step.
        plugins: Those that make the model.
    """
    from distcore_torch.training.counted import Trial

    if sample.features is None or sample.encoded is None:
        return None
    return Trial(job, sample.features, sample.encoded, rows, plugins)


def distinct_among(rows: int, seen: int, looked: int) -> float:
    """About how many distinct values `rows` rows have, if `looked` of them have `seen`, and each
    value is as likely as any other: D of which 1 - exp(-rows / D) were met."""
    if not looked or seen >= looked:
        return float(rows)
    low, high = float(seen), float(rows) * looked
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _met(middle, looked) < seen else (low, middle)
    return max(float(seen), _met(high, rows))


def _met(values: float, rows: int) -> float:
    return -values * math.expm1(-rows / values) if values else 0.0


def _drops(features: Features, table: pa.RecordBatch, column: str) -> bool:
    """Whether a row with a value of a column may be left out for what another misses."""
    strict = {features.source_columns[each.name] for each in features if each.missing == DROP}
    return any(table.column(name).null_count for name in strict - {column})


def _made_up(count: int, like: pa.Array) -> pa.Array:
    """So many values that no other column has, of the type of another array."""
    numbers = pc.cast(from_numpy(np.arange(min(count, MOST_MADE_UP))), pa.string())
    # White space around a value is no part of it, so the mark stands between.
    marked = pc.binary_join_element_wise("made", numbers, "\x1f")
    return (
        marked.dictionary_encode() if pa.types.is_dictionary(like.type) else marked.cast(like.type)
    )
