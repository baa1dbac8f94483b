"""What a task does, on whatever machine it runs: open the model once a process, and answer one
piece of the rows.

A worker may be on another machine, so a task brings the model with it: its files, if they are few
bytes, beside the folder's path, if the worker may find the same model by its digest. The data it
does not bring: a dataset that is too large for one machine must lie where all of them can read it
(or be a frame, whose rows travel with their partitions).
"""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore.workflow.partitioned.packed import Found, packed
from distcore_core.contracts import JSON, Partition
from distcore_core.errors import ArtifactError, DataError, UserError
from distcore_core.io.digest import digest_file
from distcore_core.progress import Progress
from distcore_data.os_errors import is_of_the_system
from distcore_data.run_files import MODEL_JSON
from distcore_data.temporaries import temporary_folder

if TYPE_CHECKING:
    from distcore_core.contracts import ResultsStore
    from distcore_data.artifact import Artifact
    from distcore_data.encoding.missing import Ends, Neighbours
    from distcore_data.encoding.stream import EncodedStream

SHIPPED_BYTES = 64 << 20
"""A model of more bytes is not brought along: it must lie where every machine can read it."""

_opened: dict[str, Artifact] = {}
"""The model that this process answered with last, by the digest of its model.json: one at a
time, models are large."""

_opening = threading.Lock()


@dataclass(frozen=True)
class Model:
    """A saved model for other processes. digest: sha256 of model.json, which holds those of the
    other files.

    place: its absolute folder, or the bucket that every process copies it from. files: {name:
    content}, or None if they are too large to travel, or need not. block: names of plugins not
    to be used."""

    place: Path | ResultsStore
    digest: str
    files: Mapping[str, bytes] | None = field(repr=False)
    trust: bool
    block: tuple[str, ...]

    @classmethod
    def of(cls, artifact: Artifact, trust: bool) -> Model:
        folder, block = artifact.place, tuple(sorted(artifact.plugins.block))
        if not isinstance(folder, Path):
            return cls(folder, artifact.digest, None, trust, block)
        names = (MODEL_JSON, *artifact.manifest["files"])
        small = sum((folder / name).stat().st_size for name in names) <= SHIPPED_BYTES
        files = {name: (folder / name).read_bytes() for name in names} if small else None
        return cls(folder.absolute(), artifact.digest, files, trust, block)

    def open(self) -> Artifact:
        """The model, open: once a process. Raises ArtifactError if this machine cannot have it."""
        with _opening:
            if self.digest not in _opened:
                found = self._opened_here()
                if found.digest != self.digest:
                    at = self.place if isinstance(self.place, Path) else self.place.url
                    raise ArtifactError(
                        f"The model in {at} was replaced meanwhile. Run the command again."
                    )
                _opened.clear()
                _opened[self.digest] = found
            return _opened[self.digest]

    def _opened_here(self) -> Artifact:
        from distcore_core.registry.manager import Plugins
        from distcore_data.artifact import open_artifact

        plugins = Plugins(self.block)
        if not isinstance(self.place, Path):
            return open_artifact(self.place, plugins=plugins, trust=self.trust)
        path = self.place / MODEL_JSON
        if path.is_file() and digest_file(path).sha256 == self.digest:
            return open_artifact(self.place, plugins=plugins, trust=self.trust)
        if self.files is None:
            raise ArtifactError(
                f"The model {self.place} cannot be seen from {socket.gethostname()}, and is too "
                f"large to travel with every task (more than {SHIPPED_BYTES >> 20} MiB). Put it "
                "where every machine of the cluster can read it, or give --backend local."
            )
        with temporary_folder("model") as folder:
            for name, content in self.files.items():
                (folder / name).write_bytes(content)
            return open_artifact(folder, plugins=plugins, trust=self.trust)


@dataclass(frozen=True)
class Task:
    """Some neighbouring partitions of a dataset. around: what lies around each, if values are
    filled from there."""

    partitions: Sequence[Partition]
    around: Sequence[Mapping[str, Neighbours]] = ()


@dataclass(frozen=True)
class Answer:
    """Called with a task: its rows through the model, as `packed` bytes.

    score: the rows hold targets, and are scored. decode: predictions are wanted. rows: of a
        forward pass."""

    model: Model
    score: bool
    decode: bool
    rows: int

    @property
    def roles(self) -> tuple[str, ...]:
        return ("input", "output") if self.score else ("input",)

    def name(self) -> JSON:
        """All that decides the answers to a task, but for the task."""
        return {
            "model": self.model.digest,
            "score": self.score,
            "decode": self.decode,
            "rows": self.rows,
        }

    def __call__(self, task: Task) -> bytes:
        from distcore_data.encoding.stream import EncodedStream

        artifact = self.model.open()
        # One thread reads ahead of the model; there are as many tasks at once as the machine has
        # CPUs.
        stream = EncodedStream(
            task.partitions, artifact.features, self.roles, task.around, threads=1
        )
        with _of_this_machine():
            return packed(self._found(artifact, stream))

    def _found(self, artifact: Artifact, stream: EncodedStream) -> Found:
        from distcore_torch.decoding import RowNumbers
        from distcore_torch.evaluation import Evaluation
        from distcore_torch.prediction import predicted, scored_batches

        batches: list[Any] = []
        state = None
        if self.score:
            evaluation = Evaluation(artifact.features)
            numbers = RowNumbers() if self.decode else None
            scored = scored_batches(artifact, stream, self.rows, numbers)
            batches += evaluation.run(scored, Progress(), numbers)
            state = evaluation.state()
        else:
            for parts, _ in predicted(artifact, stream, self.rows):
                batches += parts
        left_out = stream.dropped
        first = int(left_out[0]) if len(left_out) else -1
        unknown = tuple(sorted(stream.unknown))
        return Found(
            stream.rows, len(left_out), first, unknown, batches if self.decode else (), state
        )


@dataclass(frozen=True)
class Survey:
    """Called with a task: the first and last values of the columns in each of its partitions."""

    columns: tuple[str, ...]

    def __call__(self, task: Task) -> list[dict[str, Ends]]:
        from distcore_data.encoding.stream import survey

        with _of_this_machine():
            return [survey(partition, self.columns) for partition in task.partitions]


def key_of(name: JSON) -> str:
    """A short name for content: the first 128 bits of its sha256, in hex."""
    return hashlib.sha256(json.dumps(name, sort_keys=True).encode()).hexdigest()[:32]


@contextmanager
def _of_this_machine() -> Iterator[None]:
    """What this machine cannot see or read is no DataError, for which the pieces that are done
    would be removed; a pickled error does not say what it came of."""
    try:
        yield
    except FileNotFoundError as error:
        raise UserError(
            f"{error.filename or error} cannot be seen from {socket.gethostname()}, a machine of "
            "the cluster. Put the dataset where every machine can read it under the same path, "
            "give it as a frame from Python, or give --backend local."
        ) from error
    except DataError as error:
        if is_of_the_system(error):
            raise UserError(f"{error} (On {socket.gethostname()}.)") from error
        raise
