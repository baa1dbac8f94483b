"""Every row of a dataset through a model in this process, for `predict` and `evaluate` (elsewhere: `pieces/`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from distcore_torch.prediction import Request, checked, encoded_stream, predicted, scored_batches

if TYPE_CHECKING:
    import pyarrow as pa

    from distcore.workflow.model_session import ModelSession
    from distcore_core.progress import Progress
    from distcore_torch.evaluation import Evaluation


@contextmanager
def answered_here(
    session: ModelSession, request: Request, evaluation: Evaluation | None
) -> Iterator[Iterator[pa.RecordBatch]]:
    """Every row of the dataset through the model in this process; gives the predictions in row order, as they are read.

    evaluation: what is scored while they are read."""
    artifact, progress = session.artifact, session.progress
    roles = ("input",) if evaluation is None else ("input", "output")
    with encoded_stream(artifact, request.dataset, roles, request.data_format) as (source, stream):
        if evaluation is None:
            yield checked(_counted(predicted(artifact, stream, request.rows), progress), source)
        else:
            batches = scored_batches(artifact, stream, request.rows, evaluation.cut)
            yield checked(evaluation.run(batches, progress, request.decode), source)


def _counted(parts: Iterator[tuple[Iterator[pa.RecordBatch], int]], progress: Progress) -> Iterator[pa.RecordBatch]:
    for batches, read in parts:
        yield from batches
        progress.done += read
