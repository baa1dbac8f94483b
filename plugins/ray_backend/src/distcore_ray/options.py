"""The options of `backend: {type: ray}`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator


class BackendOptions(BaseModel):
    """`backend: {type: ray}`. Without an address: the cluster that is found, else one of this
    machine alone."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str | None = Field(
        None,
        description="host:port of a cluster's head; auto: the one that is found, or an error; "
        "local: always start one on this machine; default: the one that is found, else "
        "local.",
    )
    num_cpus: int | None = Field(
        None, ge=1, description="CPUs of a cluster that is started on this machine; default: all."
    )
    num_gpus: int | None = Field(
        None, ge=0, description="GPUs of a cluster that is started on this machine; default: all."
    )
    object_store_memory: int | None = Field(
        None,
        ge=80_000_000,
        description="Bytes of the object store of a cluster that is started on this machine.",
    )
    runtime_env: dict[str, Any] = Field(
        default_factory=dict,
        description="Ray's runtime environment of the workers (working_dir, pip, env_vars, …), "
        "handed on as it is.",
    )
    allow_open_cluster: bool = Field(
        False,
        description="Use a cluster that others can reach over the network and that asks for no "
        "token: whoever reaches it can run code there, and read what you send. "
        "DISTCORE_RAY_ALLOW_OPEN_CLUSTER=1 says the same.",
    )
    patience: float = Field(
        600.0,
        gt=0,
        description="Seconds to wait until the cluster has room for the workers, or a node that "
        "runs tasks (nodes may be starting).",
    )

    @field_validator("address")
    @classmethod
    def _a_place(cls, value: str | None) -> str | None:
        if value in (None, "auto", "local"):
            return value
        host, _, port = str(value).rpartition(":")
        if "://" in str(value) or not host or not port.isdecimal():
            raise ValueError(
                f"address {value!r} is not host:port, auto or local; a job server's (http://…) is "
                "for `ray job submit`, and Ray Client's (ray://…) cannot train"
            )
        return value

    @model_validator(mode="after")
    def _only_what_is_started_has_a_size(self) -> BackendOptions:
        if self.sizes and self.address not in (None, "local"):
            raise ValueError(
                f"{' and '.join(self.sizes)} are for a cluster that is started here (address: "
                "local)"
            )
        return self

    @property
    def sizes(self) -> dict[str, Any]:
        """Those that are given of a cluster that is started here, 0 GPUs too."""
        names = ("num_cpus", "num_gpus", "object_store_memory")
        return {name: size for name in names if (size := getattr(self, name)) is not None}


MODELS: dict[tuple[str, str], type[BaseModel]] = {("backends", "ray"): BackendOptions}
