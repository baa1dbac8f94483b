"""The options of the Dask processor."""

from __future__ import annotations

from pydantic import BaseModel, Field

from distcore_data.cluster_options import ClusterOptions


class DaskOptions(ClusterOptions):
    """`backend.processor: {type: dask}`."""

    persist: bool = Field(
        default=True,
        description="true: a cluster keeps the rows it has read (in workers' memory or Ray's "
        "object store, which spill to disk) until they are written; false: they wait "
        "in files beside the cache. Dask's threads always use files.",
    )
    address: str | None = Field(
        default=None,
        min_length=1,
        description="A dask.distributed scheduler, such as tcp://host:8786. Default: the Ray "
        "cluster that this process is connected to, else Dask's own threads on this "
        "machine.",
    )


MODELS: dict[tuple[str, str], type[BaseModel]] = {("processors", "dask"): DaskOptions}
