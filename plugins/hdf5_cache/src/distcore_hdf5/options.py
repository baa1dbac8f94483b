"""The options of the HDF5 cache format."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Hdf5Options(BaseModel):
    """`backend.cache_format: {type: hdf5}`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    compression: Literal["none", "gzip"] = Field(
        default="none",
        description="none: a column lies in one piece, the fastest to write and to read; gzip: in "
        "chunks, bytes split by significance (shuffle) and deflated, which every HDF5 "
        "library reads.",
    )
    compression_level: int | None = Field(
        default=None,
        ge=1,
        le=9,
        description="Of gzip: 1 is the fastest and the default, 9 makes the smallest files.",
    )
    chunk_rows: int | None = Field(
        default=None,
        ge=1024,
        le=1 << 24,
        description="Of gzip: rows of a chunk, the least that is decoded at once; 65536 by "
        "default.",
    )

    @model_validator(mode="after")
    def _only_with_gzip(self) -> Hdf5Options:
        if self.compression == "none":
            for name in ("compression_level", "chunk_rows"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"{name} needs compression: gzip; without compression a column is one piece"
                    )
        return self


MODELS: dict[tuple[str, str], type[BaseModel]] = {("caches", "hdf5"): Hdf5Options}
