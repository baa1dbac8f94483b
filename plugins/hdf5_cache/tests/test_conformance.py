"""distcore-hdf5 holds what every cache format must hold, with and without compression."""

import io
from typing import ClassVar

import pytest

from distcore_hdf5 import index
from distcore_testing import CacheFormatSuite, PluginSuite


class TestPlugin(PluginSuite):
    kind, name = "caches", "hdf5"


class Hdf5Suite(CacheFormatSuite):
    name = "hdf5"

    def boundaries(self, content):
        """After the user block, and before and after each dataset or chunk of one."""
        parts = [
            part for column in index.decode(io.BytesIO(content)).values() for part in column.parts
        ]
        pieces = [piece for part in parts for piece in part.chunks or ((part.offset, part.bytes),)]
        places = {place for offset, length in pieces for place in (offset, offset + length)}
        return sorted(
            place for place in {content.index(b"\x89HDF"), *places} if place < len(content)
        )


class TestDefault(Hdf5Suite):
    pass


class TestGzip(Hdf5Suite):
    options: ClassVar = {"compression": "gzip"}


class TestSmallChunks(Hdf5Suite):
    options: ClassVar = {"compression": "gzip", "compression_level": 9, "chunk_rows": 1024}


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["none", "gzip"])
class TestManyFlips(Hdf5Suite):
    flips = 1000

    @pytest.fixture(autouse=True)
    def _options(self, compression):
        self.options = {"compression": compression}
