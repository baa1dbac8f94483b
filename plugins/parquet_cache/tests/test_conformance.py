"""distcore-parquet holds what every cache format must hold, with each compression."""

import io
from typing import ClassVar

import pyarrow.parquet as pq
import pytest

from distcore_testing import CacheFormatSuite, PluginSuite


class TestPlugin(PluginSuite):
    kind, name = "caches", "parquet"


class ParquetSuite(CacheFormatSuite):
    name = "parquet"

    def boundaries(self, content):
        """After each column of each row group, and before and after the footer."""
        metadata = pq.ParquetFile(io.BytesIO(content)).metadata
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        columns = [group.column(number) for group in groups for number in range(group.num_columns)]
        ends = [column.data_page_offset + column.total_compressed_size for column in columns]
        footer = len(content) - 8 - metadata.serialized_size
        assert footer == max(ends)
        return [4, *ends, len(content) - 8, len(content) - 4]


class TestDefault(ParquetSuite):
    pass


class TestSmallRowGroups(ParquetSuite):
    options: ClassVar = {"row_group_rows": 1024}


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
class TestEveryCompression(ParquetSuite):
    @pytest.fixture(autouse=True)
    def _options(self, compression):
        self.options = {"compression": compression}


@pytest.mark.slow
class TestManyFlips(ParquetSuite):
    flips = 1000
