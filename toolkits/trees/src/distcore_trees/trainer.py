"""TreeTrainer: a `contracts.Trainer` over a library of boosted trees, one forest for each output
feature."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from distcore_core.config.issues import nearest
from distcore_core.contracts import (
    JSON,
    Backend,
    Batch,
    FeatureSet,
    TrainJob,
    TrainResult,
)
from distcore_core.contracts.values import COMBINED
from distcore_core.errors import ArtifactError, ConfigError, ConfigIssue, UserError
from distcore_core.progress import Progress
from distcore_torch.training.bound import BoundTrainer
from distcore_torch.training.monitor import tell_passed_over
from distcore_trees.options import HOW_FAST, TreeOptions
from distcore_trees.outputs import Output, outputs_of, refuse_ragged
from distcore_trees.rows import Rows, beside, category_columns, matrix, target_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distcore_torch.training.open_job import Opened
    from distcore_trees.boosting import Boosting, Growing
    from distcore_trees.checkpoints import Checkpoints
    from distcore_trees.forest import Forest, Part, Saved

OptionsType = TypeVar("OptionsType", bound=TreeOptions)


class TreeTrainer(BoundTrainer, Generic[OptionsType]):
    """Boosts in one process, whose threads share the work.

    name: of the trainer, for messages. ending: of the files of trees. losses: types of losses that
    the library has an objective for.
    """

    name: str
    ending: str
    losses: Collection[str]

    def __init__(self, options: OptionsType) -> None:
        self.options = options

    @abstractmethod
    def begin(
        self,
        output: Output,
        train: Rows,
        validation: Rows | None,
        seed: int,
        before: bytes | None,
    ) -> Forest:
        """A forest for an output feature.

        Args:
            output: What is to be fitted.
            train, validation: Rows; None if there is no such split.
            seed: Every random number is keyed by it. Below 2**32, of which libraries look at no
                more bits.
            before: What `Forest.content` gave, to go on from; None to begin anew.

        Raises:
            UserError: The library cannot do what the options ask for.
        """

    @abstractmethod
    def open(self, content: bytes) -> Saved:
        """Trees that `Forest.first` gave.

        Raises:
            ValueError: They are none that the library can read.
        """

    # ---------------------------------------------------------- contracts.Trainer

    @property
    def resources_per_worker(self) -> Mapping[str, float]:
        """The threads, if their number is given."""
        return {"CPU": self.options.num_threads} if self.options.num_threads else {}

    @property
    def bound(self) -> JSON:
        """Every option but that of the threads."""
        found: JSON = self.options.model_dump(mode="json", exclude=set(HOW_FAST))
        return found

    def plan(self, job: TrainJob, backend: Backend) -> JSON:
        """What `fit` would do."""
        return {
            "workers": 1,
            "threads": self.options.num_threads or backend.resources().cpus,
            "num_boost_round": self.options.num_boost_round,
            "trees_per_evaluation": self.options.period,
            "notes": [
                "Trees are boosted on whole columns: nothing of the config's `trainer` and "
                "`combiner` applies but the metric that picks the best round, which is the loss "
                "unless trainer.validation_metric names another."
            ],
        }

    def check_features(self, job: TrainJob, features: FeatureSet, validates: bool) -> None:
        """Raise what `fit` raises of features and losses that trees cannot have, and of a
        validation_metric that no output has.

        Args:
            job: Its config is looked at.
            features: Fitted.
            validates: Whether there are validation rows.
        """
        self._aims(features, job.config.get("trainer") or {})

    def fit(self, job: TrainJob, backend: Backend, progress: Progress) -> TrainResult:
        """Boost, and write the model folder.

        Raises:
            UserError: An input whose column is ragged (text, set), an output or a loss that trees
                cannot predict.
            ConfigError: A validation_metric that no output has.
            CheckpointError: There is none to go on from.
        """
        from distcore_torch.training.open_job import open_job
        from distcore_trees.checkpoints import Checkpoints

        if job.initial_weights is not None:
            raise UserError(
                f"The trainer {self.name} does not start from another model's trees: they split "
                "on values as they were encoded for that model. Leave out its path."
            )
        with open_job(job) as opened:
            checkpoints = Checkpoints(opened, self.options, self.bound)
            seed = (job.seed ^ job.seed >> 32) & 0xFFFFFFFF
            boosting = self._boosting(opened, seed, checkpoints, progress)
            boosting.run()
            files = {
                f"trees-{number}.{self.ending}": each.forest.first(boosting.kept(each))
                for number, each in enumerate(boosting.forests)
            }
            saved = [self.open(content) for content in files.values()]
            self._tell_of_the_model(boosting, saved)
            progress.end()
            best = self._best(boosting)
            extra = {"best": best, **({"stopped": boosting.stopped} if boosting.stopped else {})}
            model = opened.write_model(files, extra)
        return TrainResult(
            model=model,
            statistics=boosting.statistics,
            best=best,
            steps=boosting.rounds,
            epochs=float(boosting.rounds),
        )

    def load(self, directory: Path, features: FeatureSet, *, trust: bool = False) -> TreePredictor:
        """Open the saved trees: the library's own format, which is numbers and no code.

        Raises:
            ArtifactError: A file that the library cannot read.
        """
        forests = {}
        for number, feature in enumerate(features.outputs):
            path = directory / f"trees-{number}.{self.ending}"
            try:
                forests[feature.name] = self.open(path.read_bytes())
            except (OSError, ValueError) as error:
                raise ArtifactError(
                    f"{path} cannot be read by {self.name} ({error}). Train again."
                ) from error
        return TreePredictor(forests, features)

    # ---------------------------------------------------------- inside

    def _boosting(
        self, job: Opened, seed: int, checkpoints: Checkpoints, progress: Progress
    ) -> Boosting:
        """Everything as it is before the first round, or as a checkpoint has it."""
        from distcore_torch.decoding import clipped
        from distcore_trees.boosting import Boosting, Growing, Standing

        wanted = job.job.config.get("trainer") or {}
        outputs, metrics = self._aims(job.features, wanted)
        if not job.rows("train"):
            raise UserError(
                "The training split has no rows. Change preprocessing.split, or give more data."
            )
        before = checkpoints.newest(len(outputs))
        parts: list[Part] = ["train", "validation"] if job.rows("validation") else ["train"]
        if len(parts) == 1 and wanted.get("validation_metric") not in (None, "loss"):
            tell_passed_over(wanted["validation_metric"], "all are kept")
        inputs = {part: matrix(job, part) for part in parts}
        codes = category_columns(job.features)
        progress.begin(
            "train",
            total=self.options.num_boost_round,
            unit="rounds",
            rows_per_unit=job.rows("train"),
        )
        forests: list[Growing] = []
        for number, (output, feature) in enumerate(zip(outputs, job.features.outputs, strict=True)):
            rows = {
                part: Rows.of(output, inputs[part], target_of(job, part, output.name), codes)
                for part in parts
            }
            trees = before.trees[number] if before is not None else None
            forest = self.begin(output, rows["train"], rows.get("validation"), seed, trees)
            standing = Standing.of(before.standings[number]) if before is not None else Standing()
            known = metrics[output.name]
            watched, asked_for = self._watched(output.name, known, wanted)
            watched = watched if len(parts) > 1 else "loss"
            clip = partial(clipped, job.features, output.name)
            forests.append(
                Growing(feature, forest, rows, standing, known, clip, watched, asked_for)
            )
        statistics = before.statistics if before is not None else {}
        boosting = Boosting(
            job,
            self.options,
            forests,
            statistics,
            lambda rounds: checkpoints.save(rounds, forests, statistics),
            progress,
        )
        progress.first = progress.done = boosting.rounds  # `first` first: it is read meanwhile
        return boosting

    def _aims(
        self, features: FeatureSet, wanted: JSON
    ) -> tuple[list[Output], dict[str, Mapping[str, Any]]]:
        """The output features and each one's metrics. Raises what `fit` does of features, losses
        and metrics. wanted: the section `trainer`."""
        refuse_ragged(features, self.name)
        outputs = outputs_of(features, self.name, self.losses)
        metrics = {
            output.name: feature.network().metrics(output.metadata)
            for output, feature in zip(outputs, features.outputs, strict=True)
        }
        _check_watched(metrics, wanted)
        return outputs, metrics

    def _watched(self, name: str, metrics: Collection[str], wanted: JSON) -> tuple[str, bool]:
        """The metric that picks an output feature's best round, and whether that feature, or a
        metric that not every one has, is said to decide. wanted: the section `trainer`."""
        asked, of = wanted.get("validation_metric"), wanted.get("validation_field")
        watched = str(asked) if asked in metrics and of in (None, name) else "loss"
        return watched, of == name or (of is None and watched != "loss")

    def _tell_of_the_model(self, boosting: Boosting, saved: list[Saved]) -> None:
        """The last evaluation is of the trees that are kept. Where a listener ended training it may
        be so already."""
        forests = boosting.forests
        whole = all(boosting.kept(each) == each.standing.rounds for each in forests)
        if boosting.stopped and whole:
            return

        def outputs(each: Growing, part: Part) -> NDArray[np.float32]:
            return saved[forests.index(each)].outputs(each.rows[part].inputs)

        kept = boosting.kept(boosting.lead)
        boosting.tell(boosting.metrics(outputs), None if kept == boosting.rounds else kept)

    def _best(self, boosting: Boosting) -> JSON:
        """What the model's evaluation is, for the result: `contracts.TrainResult.best`."""
        lead, split = boosting.lead, "validation" if boosting.validates else "training"
        name, rounds = lead.feature.name, boosting.kept(lead)
        value = boosting.statistics[split][name][lead.watched][-1]
        return {
            "epoch": rounds,
            "step": rounds,
            "value": value,
            "metric": lead.watched,
            "feature": name,
        }


def _check_watched(metrics: Mapping[str, Collection[str]], wanted: JSON) -> None:
    """Raise ConfigError for a metric that no output has that it may be of. metrics: of each output;
    wanted: the section `trainer`."""
    asked, of = wanted.get("validation_metric"), wanted.get("validation_field")
    if of is not None and of not in (*metrics, COMBINED):
        raise _issue("validation_field", f"no output feature {of!r}; {nearest(of, metrics)}")
    known = {"loss"}.union(*(each for name, each in metrics.items() if of in (None, name)))
    if asked is not None and asked not in known:
        whose = "no output feature has a" if of is None else f"{of} has no"
        raise _issue("validation_metric", f"{whose} metric {asked!r}; {nearest(asked, known)}")


def _issue(option: str, message: str) -> ConfigError:
    return ConfigError([ConfigIssue(0, f"trainer.{option}", message)])


class TreePredictor:
    """A `contracts.Predictor` over one saved forest for each output feature."""

    def __init__(self, forests: Mapping[str, Saved], features: FeatureSet) -> None:
        self.forests = forests
        self.names = [feature.name for feature in features.inputs]

    def predict(self, batch: Batch) -> dict[str, NDArray[np.float32]]:
        """{output: probabilities [B] or [B, classes], or encoded values [B]}."""
        rows = beside(batch, self.names)
        return {name: forest.outputs(rows) for name, forest in self.forests.items()}
