"""distcore-tfrecord holds what every cache format must hold, with and without compression."""

import struct
from typing import ClassVar

import pytest

from distcore_testing import CacheFormatSuite, PluginSuite


class TestPlugin(PluginSuite):
    kind, name = "caches", "tfrecord"


class TestDefault(CacheFormatSuite):
    name = "tfrecord"

    def boundaries(self, content):
        """After the first record, the second, and before the last."""
        found = [0]
        while found[-1] < len(content):
            found.append(found[-1] + struct.unpack_from("<Q", content, found[-1])[0] + 16)
        assert found[-1] == len(content)
        return [found[1], found[2], found[-2]]


class TestGzip(CacheFormatSuite):
    name = "tfrecord"
    options: ClassVar = {"compression": "gzip"}

    def boundaries(self, content):
        """Where members of the gzip file begin."""
        found = [place for place in range(1, len(content)) if content.startswith(b"\x1f\x8b\x08", place)]
        assert found
        return found


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["none", "gzip"])
class TestManyFlips(CacheFormatSuite):
    name = "tfrecord"
    flips = 1000

    @pytest.fixture(autouse=True)
    def _options(self, compression):
        self.options = {"compression": compression}
