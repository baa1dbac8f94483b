"""distcore-tfrecord holds what every cache format must hold, with and without compression."""

import struct
from typing import ClassVar

import pytest

from distcore_testing import CacheFormatSuite, PluginSuite
from distcore_tfrecord import format


class TestPlugin(PluginSuite):
    kind, name = "caches", "tfrecord"


def members(content):
    """Where members of a gzip file begin."""
    found = [
        place for place in range(1, len(content)) if content.startswith(b"\x1f\x8b\x08", place)
    ]
    assert found
    return found


class TestDefault(CacheFormatSuite):
    name = "tfrecord"

    def boundaries(self, content):
        """After the first record, the second, and before the last."""
        found = [0]
        while found[-1] < len(content):
            found.append(found[-1] + struct.unpack_from("<Q", content, found[-1])[0] + 16)
        assert found[-1] == len(content)
        return [found[1], found[2], found[-2]]


class TestSmallBlocks(TestDefault):
    """A shard of several blocks, each of which is decoded by itself."""

    flips = 5
    test_another_process_writes_the_same_bytes = None  # it does not know of these blocks

    @pytest.fixture(autouse=True)
    def _blocks(self, monkeypatch):
        monkeypatch.setattr(format, "BLOCK_BYTES", 64 << 10)


class TestSmallBlocksGzip(TestSmallBlocks):
    options: ClassVar = {"compression": "gzip"}

    def boundaries(self, content):
        return members(content)


class TestGzip(CacheFormatSuite):
    name = "tfrecord"
    options: ClassVar = {"compression": "gzip"}

    def boundaries(self, content):
        return members(content)


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["none", "gzip"])
class TestManyFlips(CacheFormatSuite):
    name = "tfrecord"
    flips = 1000

    @pytest.fixture(autouse=True)
    def _options(self, compression):
        self.options = {"compression": compression}
