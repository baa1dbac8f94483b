"""distcore-parquet holds what every cache format must hold, with each compression."""

from typing import ClassVar

import pytest

from distcore.testing import CacheFormatSuite, PluginSuite


class TestPlugin(PluginSuite):
    kind, name = "caches", "parquet"


class TestDefault(CacheFormatSuite):
    name = "parquet"


class TestSmallRowGroups(CacheFormatSuite):
    name = "parquet"
    options: ClassVar = {"row_group_rows": 1024}


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
class TestEveryCompression(CacheFormatSuite):
    name = "parquet"

    @pytest.fixture(autouse=True)
    def _options(self, compression):
        self.options = {"compression": compression}


@pytest.mark.slow
class TestManyFlips(CacheFormatSuite):
    name = "parquet"
    flips = 1000
