"""distcore-hdf5 holds what every cache format must hold, with and without compression."""

from typing import ClassVar

import pytest

from distcore.testing import CacheFormatSuite, PluginSuite


class TestPlugin(PluginSuite):
    kind, name = "caches", "hdf5"


class TestDefault(CacheFormatSuite):
    name = "hdf5"


class TestGzip(CacheFormatSuite):
    name = "hdf5"
    options: ClassVar = {"compression": "gzip"}


class TestSmallChunks(CacheFormatSuite):
    name = "hdf5"
    options: ClassVar = {"compression": "gzip", "compression_level": 9, "chunk_rows": 1024}


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["none", "gzip"])
class TestManyFlips(CacheFormatSuite):
    name = "hdf5"
    flips = 1000

    @pytest.fixture(autouse=True)
    def _options(self, compression):
        self.options = {"compression": compression}
