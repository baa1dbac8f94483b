"""What one task of a processor on a cluster does: read a partition, merge statistics, write a
shard.

For processors whose engine runs functions in other processes. An engine wraps what a task raises in
its own way, and retries or cancels as it likes; so here an error is a value, `Failure`, that comes
back like a result, and the processor raises the one of the first partition in row order: the user
is told the same, whatever the engine. A failure also leaves a mark in a folder that all tasks see,
and later items are then not begun.
"""

from __future__ import annotations

import os
import socket
import traceback
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore_core.contracts import Block, Partition, ShardPlan
from distcore_core.errors import CacheError, DistcoreError
from distcore_data.blame import blame
from distcore_data.os_errors import note_whom
from distcore_data.travelling import portable

if TYPE_CHECKING:
    import pyarrow as pa

FAN_IN = 8
"""Statistics that one task merges."""


# ------------------------------------------------------------------ values


@dataclass(frozen=True)
class Failure:
    """What the task of item `index` raised, on `host`; error None: it was not begun, because an
    earlier one failed."""

    index: int
    error: BaseException | None = None
    host: str = ""


@dataclass(frozen=True)
class Folded:
    """The merged statistics of some partitions. kept: (index, rows, file of the rows or None) of
    each."""

    state: Any
    kept: tuple[tuple[int, int, str | None], ...]
    failure: Failure | None = None


@dataclass(frozen=True)
class Slice:
    """Rows [low, high) of block `index`; the first of them is global row `start`."""

    index: int
    start: int
    low: int
    high: int


# ------------------------------------------------------------------ cutting


def slices(plan: ShardPlan, starts: Sequence[int]) -> list[Slice]:
    """The rows of a plan as slices of blocks, in row order. starts: first row of each block, and
    the number of rows."""
    found = []
    index = bisect_right(starts, plan.start) - 1
    while index < len(starts) - 1 and starts[index] < plan.stop:
        low, high = max(starts[index], plan.start), min(starts[index + 1], plan.stop)
        if low < high:
            found.append(Slice(index, low, low - starts[index], high - starts[index]))
        index += 1
    return found


# ------------------------------------------------------------------ tasks


def read(index: int, partition: Partition, marks: str | None) -> pa.RecordBatch | Failure:
    """Task: the rows of a partition."""
    return attempt(index, marks, partition.read)


def fold(
    index: int, table: pa.RecordBatch | Failure, partial: Callable[[Block], Any], marks: str | None
) -> Folded:
    """Task: the statistics of rows that the engine keeps."""
    if isinstance(table, Failure):
        return Folded(None, (), table)
    return _folded(
        index,
        marks,
        lambda: (partial(Block(index=index, start=None, table=table)), table.num_rows, None),
    )


def read_and_fold(
    index: int,
    partition: Partition,
    partial: Callable[[Block], Any],
    folder: str | None,
    marks: str | None,
) -> Folded:
    """Task: the statistics of a partition. folder: where its rows are kept, as an Arrow file;
    None: they are not."""

    def work() -> tuple[Any, int, str | None]:
        table = partition.read()
        state = partial(Block(index=index, start=None, table=table))
        path = save(table, folder, index) if folder is not None and table.num_rows else None
        _release()  # parsing leaves more behind than the next partition will need
        return state, table.num_rows, path

    return _folded(index, marks, work)


def merge_folded(merge: Callable[[Any, Any], Any], parts: Sequence[Folded]) -> Folded:
    """Task: several of them as one; of failures the first in row order stays."""
    failures = [part.failure for part in parts if part.failure is not None]
    if failures:
        return Folded(None, (), first(failures))
    kept = tuple(each for part in parts for each in part.kept)
    state = attempt(kept[0][0], None, lambda: reduce(merge, [part.state for part in parts]))
    return Folded(None, (), state) if isinstance(state, Failure) else Folded(state, kept)


def write(
    write: Callable[[ShardPlan, list[Block]], Any],
    plan: ShardPlan,
    pieces: Sequence[Slice],
    kept: Sequence[pa.RecordBatch | str | Partition],
    marks: str | None,
) -> Any:
    """Task: write(plan, its rows). kept: of each slice the whole block, its file, or the
    partition to read again."""

    def work() -> Any:
        blocks = []
        for piece, block in zip(pieces, kept, strict=True):
            table = opened(block)
            if table.num_rows < piece.high:
                raise CacheError(
                    f"Partition {piece.index} of the dataset had at least {piece.high} rows when "
                    f"it was read first, and {table.num_rows} now. Leave the data as they are "
                    "while they are preprocessed, and run again."
                )
            blocks.append(
                Block(
                    index=piece.index,
                    start=piece.start,
                    table=table.slice(piece.low, piece.high - piece.low),
                )
            )
        result = write(plan, blocks)
        _release()
        return result

    return attempt(plan.index, marks, work)


# ------------------------------------------------------------------ rows in files


def save(table: pa.RecordBatch, folder: str, index: int) -> str:
    """Keep rows as an uncompressed Arrow file. Each attempt has a file of its own, so a task that
    is run twice, or killed half-way, spoils no one's."""
    import pyarrow as pa

    path = os.path.join(folder, f"{index:06d}-{uuid.uuid4().hex}.arrow")
    with pa.OSFile(os.fsencode(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_batch(table)
    return path


def opened(block: pa.RecordBatch | str | Partition) -> pa.RecordBatch:
    """The rows of a block that was kept: as they are, mapped from their file, or read again."""
    import pyarrow as pa

    if isinstance(block, pa.RecordBatch):
        return block
    if isinstance(block, str):
        with pa.memory_map(os.fsencode(block)) as file:
            return pa.ipc.open_file(file).get_batch(0)
    return block.read()


# ------------------------------------------------------------------ failures


def attempt(index: int, marks: str | None, work: Callable[[], Any]) -> Any:
    """work(), or a Failure: what it raised, or that an item before this one failed already. marks:
    a folder (see `failed_before`)."""
    if marks is not None and failed_before(marks, index):
        return Failure(index)
    try:
        return work()
    except Exception as error:  # noqa: BLE001 handed to the driver
        blame(error)
        if marks is not None:
            mark(marks, index)
        sent = portable(error)
        if not isinstance(error, DistcoreError):  # what ours says is all
            sent.add_note("".join(traceback.format_exception(error)).rstrip())
        return Failure(index, sent, socket.gethostname())


def mark(marks: str, index: int) -> None:
    """Say that item `index` failed (-1: stop everything), to every task that sees the folder."""
    try:
        Path(marks, str(index)).touch()
    except OSError:
        pass  # the folder is not seen from here, or is full: more is read than need be


def failed_before(marks: str, index: int) -> bool:
    """Whether an item before this one has failed."""
    try:
        names = os.listdir(marks)
    except OSError:
        return False
    # Others are the file system's own, such as `.nfs0000…`.
    return any(int(name) < index for name in names if name.removeprefix("-").isdecimal())


@contextmanager
def waiting_for(engine: str, marks: str | None) -> Iterator[None]:
    """Around the call that waits for an engine's tasks. What they raise comes back as values, so an
    error is its own.

    Args:
        engine: how the user is told of it, such as "on Dask's threads".
        marks: the folder of this pass; a mark then keeps tasks that are not begun from being begun.

    Raises:
        CacheError: the engine failed, with what it said. Errors of ours and interrupts pass as they
            are.
    """
    try:
        yield
    except BaseException as error:
        if marks is not None:
            mark(marks, -1)
        if not isinstance(error, Exception) or isinstance(error, DistcoreError):
            raise
        raise CacheError(
            f"Preprocessing {engine} failed: {type(error).__name__}: {error}. See the log of the "
            "worker that it names. If one ran out of memory, give workers more, or fewer tasks "
            "at a time."
        ) from error


def raise_first(results: Sequence[Any]) -> None:
    """Raise what the first task in row order raised, if any of these results is a Failure."""
    failures = [each for each in results if isinstance(each, Failure)]
    if failures:
        raise_failure(first(failures))


def first(failures: Sequence[Failure]) -> Failure:
    """The failure of the first item in row order that raised something."""
    raised = [each for each in failures if each.error is not None]
    return min(raised or failures, key=lambda each: each.index)


def raise_failure(failure: Failure) -> None:
    """Raise what the task raised. A file that is here, but not where the task ran, is told so."""
    error = failure.error
    assert error is not None, "an item is skipped only if one before it failed"
    missing = error.filename if isinstance(error, FileNotFoundError) else None
    elsewhere = failure.host != socket.gethostname()
    if missing is not None and elsewhere and os.path.exists(os.path.dirname(missing)):
        raise CacheError(
            f"{missing} cannot be reached on {failure.host}, where a task ran. Put the dataset and "
            "backend.cache_dir on storage that every node of the cluster sees under the same path."
        ) from error
    if elsewhere:
        note_whom(error, "a task", failure.host)
    raise error


# ------------------------------------------------------------------ inside


def _folded(
    index: int, marks: str | None, work: Callable[[], tuple[Any, int, str | None]]
) -> Folded:
    found = attempt(index, marks, work)
    if isinstance(found, Failure):
        return Folded(None, (), found)
    state, rows, path = found
    return Folded(state, ((index, rows, path),))


def _release() -> None:
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
