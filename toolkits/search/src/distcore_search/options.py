"""The `hyperopt` section: Ludwig's names and defaults, validated; what Ludwig has and nobody
here does is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from distcore_core.contracts.values import COMBINED
from distcore_core.errors import UserError
from distcore_data.base_options import Count, NonNegative, Options, Whole
from distcore_search.space import AnySpace

if TYPE_CHECKING:
    from distcore_core.contracts import SearchJob
    from distcore_search.rounds import Round

Split = Literal["training", "train", "validation", "test"]
TimeAttribute = Literal["training_iteration", "time_total_s"]

FOREIGN = "needs a package that distcore does not drive; use optuna (TPE) or variant_generator"
ALGORITHMS_NOT_HERE = dict.fromkeys(
    (
        "ax",
        "bayesopt",
        "blendsearch",
        "bohb",
        "cfo",
        "dragonfly",
        "hebo",
        "hyperopt",
        "nevergrad",
        "skopt",
        "zoopt",
    ),
    FOREIGN,
)
CHANGES_TRIALS = "changes the parameters or resources of trials under way; use async_hyperband"
SCHEDULERS_NOT_HERE = {
    **dict.fromkeys(("pbt", "pbt_replay", "pb2", "resource_changing"), CHANGES_TRIALS),
    "hb_bohb": "goes with the search algorithm bohb; use async_hyperband",
}


# ------------------------------------------------------------------ schedulers


class Scheduler(Options):
    """Base of the schedulers. Ludwig's metric and mode may only say what the section says
    anyway."""

    ludwig_only: ClassVar[Mapping[str, Any]] = {"metric": None, "mode": None}

    time_attr: TimeAttribute = Field(
        "training_iteration",
        description="What time is: evaluation rounds (training_iteration), or seconds since the "
        "trial began.",
    )

    @property
    def limit(self) -> int | None:
        """The time after which every trial is stopped."""
        return None

    def time(self, found: Round) -> int:
        """When a round was by `time_attr`: its number, or whole seconds."""
        by_rounds = self.time_attr == "training_iteration"
        return found.number if by_rounds else int(found.seconds)

    def is_over(self, found: Round) -> bool:
        """Whether a trial is stopped after this round, whatever it found."""
        return self.limit is not None and self.time(found) >= self.limit


class Fifo(Scheduler):
    """Every trial runs to its end."""

    type: Literal["fifo"]
    time_attr: TimeAttribute = Field(
        "training_iteration", description="Ludwig's; read by nobody here."
    )


class AsyncHyperband(Scheduler):
    """ASHA: at grace_period, grace_period × reduction_factor, … a trial goes on only if it is
    among the best."""

    type: Literal["async_hyperband", "asynchyperband", "asha"]
    max_t: Count = Field(100, description="Trials are stopped after this much time.")
    grace_period: Count = Field(1, description="No trial is stopped before this much time.")
    reduction_factor: Annotated[float, Field(gt=1)] = Field(
        4, description="One in so many goes on from one level to the next."
    )
    brackets: Count = Field(
        1,
        le=64,
        description="Groups of trials, each beginning to stop later than the one before.",
    )
    stop_last_trials: bool = Field(True, description="Whether trials are stopped after max_t.")

    @model_validator(mode="after")
    def _stops_after_the_grace(self) -> AsyncHyperband:
        if self.grace_period > self.max_t:
            raise ValueError(
                f"grace_period ({self.grace_period}) should be at most max_t ({self.max_t}), after "
                "which every trial is stopped"
            )
        return self

    @property
    def limit(self) -> int | None:
        return self.max_t if self.stop_last_trials else None


class Hyperband(Scheduler):
    """Hyperband: brackets of successive halving."""

    type: Literal["hyperband"]
    max_t: Count = Field(81, description="Trials are stopped after this much time.")
    reduction_factor: Annotated[float, Field(gt=1)] = Field(
        3, description="One in so many goes on from one level to the next."
    )
    stop_last_trials: bool = Field(True, description="Whether trials are stopped after max_t.")

    @property
    def limit(self) -> int | None:
        return self.max_t if self.stop_last_trials else None


class MedianStopping(Scheduler):
    """A trial is stopped where its best value is worse than the median of the others' at that
    time."""

    ludwig_only: ClassVar[Mapping[str, Any]] = {
        "metric": None,
        "mode": None,
        "min_time_slice": 0,
        "hard_stop": True,
    }

    type: Literal["median_stopping_rule", "medianstoppingrule"]
    time_attr: TimeAttribute = Field(
        "time_total_s", description="What time is; as in Ludwig seconds by default."
    )
    grace_period: NonNegative = Field(
        60.0, description="No trial is stopped before this much time."
    )
    min_samples_required: Count = Field(
        3, description="Trials that a median is taken of, at least."
    )


AnyScheduler = Annotated[
    Fifo | AsyncHyperband | Hyperband | MedianStopping, Field(discriminator="type")
]


# ------------------------------------------------------------------ search algorithms


class SearchAlgorithm(Options):
    """Base of the search algorithms."""

    points_to_evaluate: list[dict[str, Any]] | None = Field(
        None, description="Parameters to begin with; those that a point leaves out are drawn."
    )
    max_concurrent: Whole = Field(
        0, description="Most trials beside each other; 0: as many as the executor says."
    )


class Variants(SearchAlgorithm):
    """Every combination of the grid_search parameters, the others drawn at random, num_samples
    times."""

    type: Literal["variant_generator", "random"]
    constant_grid_search: bool = Field(
        False, description="Whether the combinations of one sample share what is drawn at random."
    )
    random_state: int | None = Field(None, description="Seed; default: the config's random_seed.")


class Optuna(SearchAlgorithm):
    """Optuna's tree-structured Parzen estimator."""

    ludwig_only: ClassVar[Mapping[str, Any]] = {
        "space": None,
        "sampler": None,
        "evaluated_rewards": None,
    }

    type: Literal["optuna"]
    seed: int | None = Field(None, description="Seed; default: the config's random_seed.")


AnyAlgorithm = Annotated[Variants | Optuna, Field(discriminator="type")]


# ------------------------------------------------------------------ executors


class ExecutorOptions(Options):
    """What every executor understands; a plugin's own options model adds to it.

    unread: options of Ludwig's that change nothing here, and why; that is said if one of them is
        given."""

    unread: ClassVar[Mapping[str, str]] = {
        "kubernetes_namespace": "trials write to a folder that every node sees"
    }

    num_samples: Count | None = Field(
        None,
        description="Trials, or rounds through the grid; default: 1 if there is a grid_search, "
        "else 10.",
    )
    time_budget_s: Annotated[float, Field(gt=0)] | None = Field(
        None, description="Seconds after which the search stops; default: none (Ludwig's is 3600)."
    )
    max_concurrent_trials: Count | Literal["auto"] | None = Field(
        "auto", description="Trials beside each other; auto: as many as there are resources for."
    )
    cpu_resources_per_trial: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="CPUs of a trial, all its workers together; default: what its trainer asks for "
        "(resources_per_worker, num_threads), else 1 a worker.",
    )
    gpu_resources_per_trial: NonNegative | None = Field(
        None,
        description="GPUs of a trial, all its workers together; default: what its trainer asks for "
        "(resources_per_worker), else 1 a worker if there are GPUs and it uses them.",
    )
    scheduler: AnyScheduler = Field(
        default_factory=lambda: Fifo.model_validate({"type": "fifo"}),
        description="Stops bad trials early.",
    )
    kubernetes_namespace: str | None = Field(None, description="Ludwig's; it changes nothing here.")

    def notes(self) -> list[str]:
        """What to say of the options that change nothing."""
        given = {name: why for name, why in self.unread.items() if getattr(self, name) is not None}
        return [
            f"hyperopt.executor.{name} changes nothing here: {why}." for name, why in given.items()
        ]

    @staticmethod
    def of_worker(job: SearchJob) -> tuple[float, float]:
        """CPUs and GPUs of each worker of a trial, as its trainer asks for them."""
        given = job.resources_per_worker
        return float(given.get("CPU", 1.0)), float(given.get("GPU", job.use_gpu))

    def of_process(self, job: SearchJob, gpus: float) -> tuple[float, float]:
        """CPUs and GPUs of each of a trial's processes, if the trial itself starts them: its share
        of what is given for the trial, else what its trainer asks for.

        Args:
            job: The search.
            gpus: How many there are for one process.

        Raises:
            UserError: Workers would have to share a GPU.
        """
        cpus, wanted = self.of_worker(job)
        wanted = min(wanted, gpus) if job.use_gpu else 0.0
        if self.cpu_resources_per_trial is not None:
            cpus = self.cpu_resources_per_trial / job.workers
        stated = self.gpu_resources_per_trial
        if stated is not None:
            wanted = stated / job.workers
            if job.use_gpu and job.workers > 1 and 0 < wanted < 1:
                raise UserError(
                    f"hyperopt.executor.gpu_resources_per_trial is {stated:g}, but a trial has "
                    f"{job.workers} workers, and each needs a GPU of its own. Make it "
                    f"{job.workers}, or leave it out."
                )
        return cpus or 1.0, wanted

    @field_validator("scheduler", mode="before")
    @classmethod
    def _known_scheduler(cls, value: Any) -> Any:
        value = {"type": value} if isinstance(value, str) else value
        if value is None or value in ({}, {"type": None}):
            return {"type": "fifo"}
        return _refused(value, "scheduler", SCHEDULERS_NOT_HERE)


class ExecutorReference(Options):
    """`hyperopt.executor`; what stands beside `type` is validated by the executor that is named."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: str | None = Field(
        None, description="Name of an installed executor; default: the backend's, else local."
    )


# ------------------------------------------------------------------ the section


class Hyperopt(Options):
    """The `hyperopt` section."""

    goal: Literal["minimize", "maximize"] = Field(
        "minimize", description="What to do with the metric."
    )
    metric: str = Field("loss", description="Metric of the output feature.")
    output_feature: str = Field(
        COMBINED, description="An output feature, or combined for the loss of all."
    )
    split: Split = Field("validation", description="Split on which the metric decides.")
    eval_split: Split = Field(
        "validation", description="Split whose metrics of the kept weights are in the results."
    )
    parameters: dict[str, AnySpace] = Field(
        min_length=1, description="What is searched: dotted names of options, each with its space."
    )
    search_alg: AnyAlgorithm | None = Field(
        None,
        description="How trials are chosen; default: variant_generator with a grid, else the "
        "executor's.",
    )
    executor: ExecutorReference = Field(
        default_factory=lambda: ExecutorReference(type=None), description="How trials are run."
    )

    @field_validator("parameters", mode="before")
    @classmethod
    def _any_case(cls, value: Any) -> Any:
        """The name of a space in any case, as in Ludwig."""
        if not isinstance(value, Mapping):
            return value
        return {
            name: {**each, "space": each["space"].lower()}
            if isinstance(each, Mapping) and isinstance(each.get("space"), str)
            else each
            for name, each in value.items()
        }

    @field_validator("search_alg", mode="before")
    @classmethod
    def _known_algorithm(cls, value: Any) -> Any:
        value = {"type": value} if isinstance(value, str) else value
        if isinstance(value, Mapping) and value.get("type") is None:
            value = (
                {**value, "type": "variant_generator"} if len(value) > ("type" in value) else None
            )
        return _refused(value, "search algorithm", ALGORITHMS_NOT_HERE)

    @field_validator("executor", mode="before")
    @classmethod
    def _executor_of_a_word(cls, value: Any) -> Any:
        return (
            {"type": value}
            if isinstance(value, str)
            else {"type": None}
            if value is None
            else value
        )

    @model_validator(mode="after")
    def _combined_has_a_loss_alone(self) -> Hyperopt:
        if self.output_feature == COMBINED and self.metric != "loss":
            raise ValueError(
                f"combined has the metric loss alone, not {self.metric!r}; name the output feature "
                "in output_feature"
            )
        return self


def _refused(value: Any, what: str, not_here: Mapping[str, str]) -> Any:
    """The value, unless it names something of Ludwig's that is not carried out."""
    name = value.get("type") if isinstance(value, Mapping) else None
    if isinstance(name, str) and name in not_here:
        raise ValueError(f"Ludwig's {what} {name!r} is not carried out here: it {not_here[name]}")
    return value
