"""What the kept model reaches on the rows it was trained on and chosen by, beside the test split:
for the report."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from distcore_core.contracts import JSON, Split

if TYPE_CHECKING:
    import pyarrow as pa

    from distcore.workflow.session import Session
    from distcore_data.artifact import Artifact
    from distcore_data.cache import Cache, CacheReader

SPLITS: dict[str, Split] = {"training": "train", "validation": "validation"}

MOST_ROWS, PIECES, STRETCH = 50_000, 50, 1000
"""Rows of a split that are scored; of a larger one so many stretches at least, evenly spread, of
so many rows at most: of rows sorted by class each is of one."""

log = logging.getLogger("distcore")


def add_split_scores(session: Session, cache: Cache, model: Path, summary: JSON) -> None:
    """Put the scores of training and validation rows into a summary, if training did not find
    every metric of them; `scored_rows`: of how many rows, and `split_rows`: of how many that there
    are, {split: number}.

    A network's running loss of the training rows, of weights that changed under them, is replaced.
    """
    from distcore_data.artifact import open_artifact
    from distcore_data.cache import open_cache

    try:
        artifact = open_artifact(model, plugins=session.plugins, trust=True)
        with open_cache(cache, session.plugins) as reader:
            for name, split in SPLITS.items():
                if reader.rows(split) and _lacking(summary["scores"], artifact, name):
                    _score(session, summary, reader, artifact, name)
    except Exception as error:  # noqa: BLE001 - a table less must not cost a trained model
        log.warning(
            "The report lacks scores of the training rows: %s: %s", type(error).__name__, error
        )


def stretches(rows: int, most: int = MOST_ROWS) -> Iterator[tuple[int, int]]:
    """Which rows of a split are looked at: [start, stop) of each stretch, in order. Tables are
    sorted: the first rows are not like the others."""
    if rows <= most:
        yield 0, rows
        return
    pieces = min(most, max(PIECES, most // STRETCH))
    length = most // pieces
    for piece in range(pieces):
        start = piece * (rows - length) // max(1, pieces - 1)
        yield start, start + length


def read_stretches(
    reader: CacheReader, split: Split, most: int, names: Sequence[str]
) -> pa.RecordBatch:
    """Columns of those rows of a split."""
    import pyarrow as pa

    parts = [reader.read(split, *each, names) for each in stretches(reader.rows(split), most)]
    return pa.Table.from_batches(parts).combine_chunks().to_batches()[0]


def _lacking(scores: JSON, artifact: Artifact, name: str) -> bool:
    """Whether a metric of an output feature is not known of the split."""
    features = artifact.features
    return any(
        name not in scores.get(each.name, {}).get(metric, {})
        for each in features.outputs
        for metric in each.network().metrics(features.metadata[each.name])
    )


def _score(
    session: Session, summary: JSON, reader: CacheReader, artifact: Artifact, name: str
) -> None:
    from distcore_torch.prediction import split_batches
    from distcore_torch.training.scores import Scores

    split = SPLITS[name]
    parts = list(stretches(reader.rows(split)))
    rows = sum(stop - start for start, stop in parts)
    found = Scores(artifact.features, split=name)
    size = session.config.trainer.eval_batch_size
    session.progress.begin("scores", total=rows)
    for batch, outputs in split_batches(artifact, reader, split, size, parts):
        found.update(outputs, batch)
        session.progress.done += batch.rows
    session.progress.end()
    summary.setdefault("scored_rows", {})[name] = rows
    summary.setdefault("split_rows", {})[name] = reader.rows(split)
    for output, metrics in found.compute().items():
        for metric, value in metrics.items():
            summary["scores"].setdefault(output, {}).setdefault(metric, {})[name] = value
