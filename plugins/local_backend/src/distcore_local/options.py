"""The options of everything distcore-local offers, each in its own model."""

from typing import ClassVar, Literal

from pydantic import BaseModel, Field, field_validator

from distcore_data.base_options import Options, Resources, Workers


class BackendOptions(Options):
    """`backend: {type: local}`."""


class ProcessorOptions(Options):
    """`backend.processor: {type: local}`."""

    parallelism: int | None = Field(
        None, ge=1, description="Threads that read and encode; default: one a CPU."
    )


class LoaderOptions(Options):
    """`backend.loader`. The order of rows depends on lanes and window_size_bytes, never on where
    the matrix lies."""

    beside_data: ClassVar[tuple[str, ...]] = ("fully_executed", "prefetch")

    fully_executed: bool | Literal["auto"] = Field(
        "auto",
        description="true: hold the packed split in memory; false: keep it in a local scratch file "
        "and read windows; auto: in memory if it takes at most a quarter of what is "
        "free.",
    )
    window_size_bytes: int = Field(
        64 << 20,
        ge=1,
        description="Bytes of packed rows that are shuffled together, over all lanes.",
    )
    lanes: int = Field(
        16,
        ge=1,
        le=65_536,
        description="Lanes that global batches are dealt from: a power of two, no fewer than "
        "workers.",
    )
    prefetch: int = Field(
        2, ge=0, description="Pieces of some batches (4 MiB) made ahead by a thread; 0: none."
    )

    @field_validator("lanes")
    @classmethod
    def _power_of_two(cls, value: int) -> int:
        if value & (value - 1):
            raise ValueError("lanes must be a power of two (1, 2, 4, …)")
        return value


class TrainerOptions(Options):
    """`backend.trainer: {type: local}` and `{type: data_parallel}`."""

    use_gpu: bool | Literal["auto"] = Field(
        "auto", description="Train on GPUs; auto: if there are any."
    )
    num_workers: Workers | None = Field(
        None,
        description="Processes of data_parallel; default: one a GPU, else one a CPU, up to 8 (on a "
        "cluster: one a node). [fewest, most]: a cluster's backend goes on with fewer after a "
        "loss, and with more when there is room again. Of `local`, in exact training alone, whose "
        "bits do not depend on it; default: one, and as many as there are threads if that is "
        "faster.",
    )
    resources_per_worker: Resources = Field(
        default_factory=dict, description="CPU: intra-op threads of a worker."
    )
    logdir: str | None = Field(
        None, description="Where workers write their logs; default: nowhere."
    )
    max_retries: int = Field(
        3,
        ge=0,
        description="How often data_parallel starts again from the last checkpoint after a worker "
        "died.",
    )


MODELS: dict[tuple[str, str], type[BaseModel]] = {
    ("backends", "local"): BackendOptions,
    ("processors", "local"): ProcessorOptions,
    ("loaders", "packed"): LoaderOptions,
    ("trainers", "local"): TrainerOptions,
    ("trainers", "data_parallel"): TrainerOptions,
    ("trainers", "ddp"): TrainerOptions,  # its name in Ludwig's configs
}
