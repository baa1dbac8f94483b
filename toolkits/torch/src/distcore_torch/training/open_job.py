"""What `TrainJob.open` gives: features, encoded rows as batches, scores, listeners and the
model's folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from distcore_core.contracts import JSON, OpenJob, Predictor, Split, TrainJob
from distcore_core.registry.listening import listening
from distcore_core.registry.manager import Plugins
from distcore_data.artifact import write_artifact
from distcore_data.blame import blaming
from distcore_data.cache import CacheReader, open_cache
from distcore_data.features import Features
from distcore_data.stores.run_sync import MODEL
from distcore_torch.batch import Batch, Layout
from distcore_torch.guests import put_back
from distcore_torch.packing import pack
from distcore_torch.prediction import answers
from distcore_torch.training.job import output_folder
from distcore_torch.training.launched import is_other_rank
from distcore_torch.training.scores import Scores


@contextmanager
def open_job(job: TrainJob) -> Iterator[Opened]:
    """Open a job in this process; `TrainJob.open` says what it raises."""
    plugins = Plugins(job.plugins_block)
    # Under torchrun each does what rank 0 does: once is enough.
    extensions = [] if is_other_rank() else job.config.get("extensions", [])
    with (
        blaming(plugins),
        listening(extensions, plugins, put_back),
        open_cache(job.cache, plugins) as reader,
    ):
        yield Opened(job, plugins, reader, Features.of(job.config, plugins).fitted(reader.metadata))


def tell_checkpoint(job: OpenJob, step: int, directory: Path) -> None:
    """Tell the run's listeners of a checkpoint: the event `checkpoint_saved`.

    Args:
        job: What `TrainJob.open` gave.
        step: Updates of the weights that it holds.
        directory: Its folder, in `checkpoints` of the run's; whole on disk, and in the run's bucket
            if there is one.

    Raises:
        TypeError: The job was opened by something else.
    """
    if not isinstance(job, Opened):
        raise TypeError(f"Give what TrainJob.open gave, and no {type(job).__name__}.")
    job.tell_checkpoint(step, directory)


class Opened:
    """A `contracts.OpenJob` over an open cache."""

    def __init__(
        self, job: TrainJob, plugins: Plugins, reader: CacheReader, features: Features
    ) -> None:
        self.job, self.plugins, self.reader, self.features = job, plugins, reader, features
        self._scores: dict[Split, Scores] = {}

    def rows(self, split: Split) -> int:
        """Of the split."""
        return self.reader.rows(split)

    def batches(
        self, split: Split, columns: Sequence[str] | None = None, rows: int = 65_536
    ) -> Iterator[Batch]:
        """The split in row order, the last batch as long as is left."""
        names = list(self.features.columns if columns is None else columns)
        layout = Layout.of(self.features.columns[name] for name in names)
        last = self.rows(split)
        for start in range(0, last, rows):
            yield pack(
                self.reader.read(split, start, min(start + rows, last), names), layout, start
            )

    def scores(self, predictor: Predictor, split: Split) -> JSON:
        """Every metric of every output feature, and of losses those that need no logits."""
        if not self.rows(split):
            return {}
        if split not in self._scores:
            self._scores[split] = Scores(self.features, split=split)
        scores = self._scores[split]
        try:
            for batch in self.batches(split):
                scores.update(answers(predictor, self.features, batch), batch)
            return scores.compute()
        finally:  # the predictor may fail half-way
            scores.reset()

    def tell_epoch(self, epoch: int, step: int, metrics: Mapping[str, JSON]) -> str:
        """Call the event's listeners."""
        hook = self.plugins.manager.hook
        told = {"epoch": epoch, "step": step, "metrics": metrics, "directory": self.job.directory}
        return " ".join(hook.epoch_finished(**told))

    def tell_checkpoint(self, step: int, directory: Path) -> None:
        """Call the event's listeners."""
        self.plugins.manager.hook.checkpoint_saved(step=step, directory=directory)

    def write_model(
        self, files: Mapping[str, bytes | Callable[[BinaryIO], None]], extra: JSON | None = None
    ) -> Path:
        """See `write_artifact`."""
        return write_artifact(
            output_folder(self.job) / MODEL, self.job, self.features, files, extra
        )
