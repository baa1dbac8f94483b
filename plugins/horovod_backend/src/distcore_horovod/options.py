"""The options of everything distcore-horovod offers, each in its own model."""

from typing import Literal

from pydantic import BaseModel, Field, model_validator

from distcore_data.base_options import Options, Resources, Workers


class BackendOptions(Options):
    """`backend: {type: horovod}`."""


class ProcessorOptions(Options):
    """`backend.processor: {type: horovod}`."""

    parallelism: int | None = Field(
        None,
        ge=1,
        description="Threads of each rank that read and encode; default: the rank's share of the "
        "CPUs.",
    )


class TrainerOptions(Options):
    """`backend.trainer: {type: horovod}`."""

    use_gpu: bool | Literal["auto"] = Field(
        "auto", description="Train on GPUs; auto: if there are any."
    )
    num_workers: Workers | None = Field(
        None,
        description="Ranks; default: one a GPU, else one a CPU, up to 8 (on a cluster: one a "
        "node). Under horovodrun or mpirun the launcher's number counts; if ranks come and go "
        "there, batches are planned for this many. [fewest, most]: a cluster's backend goes on "
        "with fewer after a loss.",
    )
    resources_per_worker: Resources = Field(
        default_factory=dict,
        description="CPU: intra-op threads of a rank; on Ray also what is reserved for it.",
    )
    logdir: str | None = Field(None, description="Where ranks write their logs; default: nowhere.")
    max_retries: int = Field(
        3,
        ge=0,
        description="How often a group starts again from the last checkpoint after a rank died. "
        "Under horovodrun and mpirun the launcher ends all ranks: go on with "
        "--model_resume_path, or use horovodrun's elastic mode.",
    )
    compression: Literal["none", "fp16"] = Field(
        "none", description="fp16: gradients travel as 16-bit floats, half the bytes."
    )
    op: Literal["average", "sum", "adasum"] = Field(
        "average",
        description="How the ranks' gradients become one. average: of all rows; sum: that times "
        "the number of ranks; adasum: Horovod's adaptive sum, which needs MPI and a "
        "power of two of ranks.",
    )
    gradient_predivide_factor: float = Field(
        1.0,
        gt=0,
        description="Part of the averaging that is done before the sum: ranks divide by it, the "
        "sum is divided by ranks / factor. For op average.",
    )
    fusion_threshold_mb: int | None = Field(
        None,
        ge=0,
        description="Size up to which Horovod sends tensors together; default: Horovod's (128). "
        "Under a launcher, give it to the launcher (horovodrun --fusion-threshold-mb).",
    )
    allow_network: bool = Field(
        False,
        description="Let a group of several machines meet through Horovod's rendezvous, which is "
        "not authenticated: whoever reaches its port can join. On one machine it "
        "listens on the loopback alone.",
    )

    @model_validator(mode="after")
    def _fit_together(self) -> "TrainerOptions":
        if self.gradient_predivide_factor != 1.0 and self.op != "average":
            raise ValueError(
                f"gradient_predivide_factor goes with op average, not {self.op}; remove one of them"
            )
        if self.compression != "none" and self.op == "adasum":
            raise ValueError("compression fp16 does not go with op adasum; remove one of them")
        return self


MODELS: dict[tuple[str, str], type[BaseModel]] = {
    ("backends", "horovod"): BackendOptions,
    ("processors", "horovod"): ProcessorOptions,
    ("trainers", "horovod"): TrainerOptions,
}
