"""Predict and evaluate by pieces of the dataset, as tasks of a backend that runs them on other
machines.

The driver cuts the dataset into partitions, as it would to read them itself, and some neighbouring
ones make a piece: where the cuts are depends on the dataset alone. Tasks (task.py) answer pieces in
any order and on any machine; what they found (packed.py) comes back in row order and is kept on
disk (store.py). Once all is there, it is written in the rows' order. So the bytes are those of a
run in one process, and a driver that was killed goes on where it stood.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from distcore.workflow.partitioned.store import Store, opened_store
from distcore.workflow.partitioned.task import Answer, Model, Survey, Task, key_of
from distcore.workflow.receipt import distributions
from distcore_core.errors import DataError, DistcoreError, Stopped
from distcore_data.figures import several
from distcore_data.os_errors import is_of_the_system
from distcore_torch.signals import signal_of

if TYPE_CHECKING:
    import pyarrow as pa

    from distcore.workflow.model_session import ModelSession
    from distcore_core.contracts import Partition, Source
    from distcore_torch.evaluation import Evaluation
    from distcore_torch.prediction import Request

VERSION = 4
"""Of what is kept on disk, and of how datasets are cut."""

log = logging.getLogger("distcore")


@contextmanager
def answered_in_pieces(
    session: ModelSession,
    request: Request,
    evaluation: Evaluation | None,
    beside: Source | None = None,
) -> Iterator[Iterator[pa.RecordBatch]]:
    """Every row of the dataset through the model on the session's backend; gives the predictions in
    row order.

    evaluation: what scores are added to while the predictions are read. beside: see `checked`.
    Inside, what was found lies in the session's directory; it is removed when the block ends well,
    or when the data turn out to be wrong as the pieces are found or read, and is kept for the next
    run after anything else."""
    from distcore_data.dataset import Data
    from distcore_data.encoding.stream import TARGET_BYTES
    from distcore_torch.prediction import targets_explained

    assert session.directory is not None
    artifact = session.artifact
    answer = Answer(
        Model.of(artifact, session.trust), evaluation is not None, request.decode, request.rows
    )
    data, raw = (
        Data(request.dataset, format=request.data_format),
        artifact.features.raw(answer.roles),
    )
    with (
        targets_explained(artifact.features),
        data.open(raw, artifact.delimited(), artifact.plugins) as source,
    ):
        partitions = source.partitions(TARGET_BYTES)
        readers = [
            f"{each.distribution} {each.data}" for each in data.readers(artifact.plugins).values()
        ]
        used = [each["distribution"] for each in artifact.manifest["plugins"]]
        key = _key(answer, used, source, request.data_format, partitions, readers)
        bucket = session.mirror.store if session.mirror is not None else None
        with opened_store(session.directory, bucket, key) as store:
            try:
                with _cleared_if_wrong(store):
                    tasks = _tasks(session, answer, partitions)
                    _answer_missing(session, answer, tasks, store, source)
                read = _read(session, answer, tasks, store, evaluation)
                yield _in_order(read, store, source, evaluation, beside)
            except BaseException as error:
                _say_how_to_go_on(store, error)
                raise
            store.clear()


def _key(
    answer: Answer,
    used: Sequence[str],
    source: Source,
    data_format: str | None,
    partitions: Sequence[Partition],
    readers: Sequence[str],
) -> str:
    """Of all that decides what is found about the pieces. used: the distributions that the model
    names. readers: of the data, if these are not our own."""
    return key_of(
        {
            "version": VERSION,
            "installed": distributions(used),
            "answer": answer.name(),
            "dataset": [source.digest(), data_format, len(partitions), *readers],
        }
    )


def _tasks(session: ModelSession, answer: Answer, partitions: Sequence[Partition]) -> list[Task]:
    """The pieces. If missing values come from other rows, tasks look for those first."""
    from distcore_data.encoding.stream import columns_to_survey, surroundings
    from distcore_torch.prediction import partitions_together

    together = partitions_together(len(partitions))
    tasks = [
        Task(tuple(partitions[at : at + together])) for at in range(0, len(partitions), together)
    ]
    columns = columns_to_survey(session.artifact.features, answer.roles)
    if not columns:
        return tasks
    found = [ends for each in session.backend.map(Survey(tuple(columns)), tasks) for ends in each]
    around = surroundings(found)
    return [
        replace(task, around=tuple(around[number * together : (number + 1) * together]))
        for number, task in enumerate(tasks)
    ]


def _answer_missing(
    session: ModelSession, answer: Answer, tasks: Sequence[Task], store: Store, source: Source
) -> None:
    """Have every piece answered that is not in the store. What is kept there is of the data that
    were digested."""
    there = store.there()
    missing = [index for index in range(len(tasks)) if store.name(index) not in there]
    store.done = len(tasks) - len(missing)
    if store.done:
        pieces = several(len(tasks), "piece")
        log.info("%d of %s found in %s.", store.done, pieces, store.place)
    contents = session.backend.map(answer, [tasks[index] for index in missing])
    for index, content in zip(missing, contents, strict=True):
        source.check_unchanged(content=False)
        session.progress.done += store.put(index, content).rows


def _in_order(
    read: Iterator[pa.RecordBatch],
    store: Store,
    source: Source,
    evaluation: Evaluation | None,
    beside: Source | None,
) -> Iterator[pa.RecordBatch]:
    """The predictions of all pieces; what was scored goes to the evaluation. Whatever ends the one
    who reads them is no error of the input."""
    from distcore_torch.prediction import checked

    with _cleared_if_wrong(store):
        yield from checked(read, source, evaluation, beside)


@contextmanager
def _cleared_if_wrong(store: Store) -> Iterator[None]:
    """Remove the pieces if the data turn out to be wrong; not for what one machine lacks."""
    try:
        yield
    except DataError as error:
        if not is_of_the_system(error):
            with suppress(OSError, DistcoreError):
                store.clear()
        raise


def _read(
    session: ModelSession,
    answer: Answer,
    tasks: Sequence[Task],
    store: Store,
    evaluation: Evaluation | None,
) -> Iterator[pa.RecordBatch]:
    from distcore_data.encoding.stream import tell_left_out, tell_unknown
    from distcore_torch.decoding import numbered_from

    rows, left_out, first = 0, 0, -1
    features = session.artifact.features
    unknown = {each.name for each in features.inputs}
    for index, task in enumerate(tasks):
        found, start = store.get(index) or store.put(index, answer(task)), rows
        if found.left_out and first < 0:
            first = rows + found.first
        rows, left_out = rows + found.rows, left_out + found.left_out
        unknown &= set(found.unknown)
        if evaluation is not None and found.evaluation is not None:
            evaluation.add(found.evaluation)
            yield from numbered_from(start, found.batches)
        else:
            yield from found.batches
    tell_left_out(rows, left_out, first)
    tell_unknown(rows - left_out, unknown, features)


def _say_how_to_go_on(store: Store, error: BaseException) -> None:
    """Say that what is done is kept. Raises Stopped with that text if a signal stopped the work."""
    if not store.done:
        return
    kept = (
        f"What is done ({several(store.done, 'piece')}) is kept in {store.place}: run the same "
        "command again to go on from there."
    )
    if isinstance(error, KeyboardInterrupt):
        raise Stopped(kept, signal_of(error)) from None
    log.warning("%s", kept)
