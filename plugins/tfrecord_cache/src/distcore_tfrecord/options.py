"""The options of the TFRecord cache format."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class TFRecordOptions(BaseModel):
    """`backend.cache_format: {type: tfrecord}`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    compression: Literal["none", "gzip"] = Field(
        default="none",
        description="gzip: smaller files, which TensorFlow reads with `compression_type='GZIP'`; "
        "none: faster.",
    )
    compression_level: int | None = Field(
        default=None,
        ge=1,
        le=9,
        description="Of gzip: 1 is the fastest and the default, 9 makes the smallest files.",
    )

    @model_validator(mode="after")
    def _only_with_gzip(self) -> TFRecordOptions:
        if self.compression == "none" and self.compression_level is not None:
            raise ValueError("compression_level needs compression: gzip")
        return self


MODELS: dict[tuple[str, str], type[BaseModel]] = {("caches", "tfrecord"): TFRecordOptions}
