"""The options of the Parquet cache format."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class ParquetOptions(BaseModel):
    """`backend.cache_format: {type: parquet}`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    compression: Literal["lz4", "snappy", "zstd", "none"] = Field(
        default="lz4",
        description="lz4, snappy: codes and tokens are compressed, floats are not (they hardly "
        "shrink); zstd: everything is, for the smallest files; none: for the fastest "
        "writing.",
    )
    row_group_rows: int = Field(
        default=65_536,
        ge=1024,
        le=1 << 24,
        description="Rows of a row group: the least that is decoded at once.",
    )


MODELS: dict[tuple[str, str], type[BaseModel]] = {("caches", "parquet"): ParquetOptions}
