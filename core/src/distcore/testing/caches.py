"""What every cache format must hold."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from distcore.contracts import CacheFormat, ShardReader
from distcore.plugins import Plugins


class CacheFormatSuite:
    """Subclass with `name`, and `options` where the defaults are not what you want to try."""

    name: str
    options: Mapping[str, Any] = {}

    @pytest.fixture
    def format(self) -> CacheFormat:
        return Plugins().make("caches", self.name, self.options)

    @pytest.fixture
    def shard(self) -> pa.Table:
        """Every kind of column: float32 with odd bit patterns, int32, a vector, a ragged column with empty rows."""
        random = np.random.default_rng(1)
        rows = 5000
        floats = random.normal(size=rows).astype(np.float32)
        floats[:4] = np.array([np.nan, -0.0, np.inf, 1e-45], np.float32)
        lengths = random.integers(0, 4, rows)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        codes = random.integers(-(2**31), 2**31 - 1, rows).astype(np.int32)
        vector = pa.FixedSizeListArray.from_arrays(pa.array(random.normal(size=rows * 3).astype(np.float32)), 3)
        tokens = pa.array(random.integers(0, 99, offsets[-1]).astype(np.int32))
        return pa.table(
            {
                "x": floats,
                "code": codes,
                "vector": vector,
                "tokens": pa.ListArray.from_arrays(pa.array(offsets), tokens),
            }
        )

    def test_reading_gives_back_every_bit(self, format: CacheFormat, shard: pa.Table) -> None:
        with_all = self._open(format, shard).read()
        assert with_all.schema.names == shard.schema.names
        for name in ("x", "code"):
            assert np.array_equal(_bits(with_all.column(name)), _bits(shard.column(name).combine_chunks()))
        assert np.array_equal(
            _bits(with_all.column("vector").flatten()), _bits(shard.column("vector").combine_chunks().flatten())
        )
        assert with_all.column("tokens").to_pylist() == shard.column("tokens").to_pylist()

    def test_equal_tables_give_equal_bytes(self, format: CacheFormat, shard: pa.Table) -> None:
        """Also when the same rows come in other chunks, and from another instance."""
        again = Plugins().make("caches", self.name, self.options)
        chunks = pa.concat_tables([shard.slice(0, 1), shard.slice(1, 3000), shard.slice(3001)])
        assert _written(format, shard) == _written(format, shard) == _written(again, chunks)

    @pytest.mark.parametrize(("start", "stop"), [(0, 0), (0, 1), (17, 4097), (4999, 5000), (0, None), (4096, None)])
    def test_ranges_of_rows(self, format: CacheFormat, shard: pa.Table, start: int, stop: int | None) -> None:
        reader = self._open(format, shard)
        expected = shard.slice(start, (stop if stop is not None else shard.num_rows) - start)
        found = reader.read(start, stop)
        assert reader.rows == shard.num_rows
        assert found.num_rows == expected.num_rows
        assert found.column("code").to_pylist() == expected.column("code").to_pylist()
        assert found.column("tokens").to_pylist() == expected.column("tokens").to_pylist()

    def test_chosen_columns_in_the_order_asked(self, format: CacheFormat, shard: pa.Table) -> None:
        found = self._open(format, shard).read(10, 20, columns=["code", "x"])
        assert found.schema.names == ["code", "x"]

    def test_an_empty_shard(self, format: CacheFormat, shard: pa.Table) -> None:
        reader = self._open(format, shard.slice(0, 0))
        assert reader.rows == 0
        assert reader.read().schema.names == shard.schema.names

    def test_a_shard_that_was_cut_is_not_read_as_a_shorter_one(self, format: CacheFormat, shard: pa.Table) -> None:
        whole = _written(format, shard)
        for length in (0, len(whole) // 3, len(whole) - 1):
            with pytest.raises(Exception):  # noqa: B017,PT011 - formats raise their own library's errors
                format.open(io.BytesIO(whole[:length])).read()

    def _open(self, format: CacheFormat, shard: pa.Table) -> ShardReader:
        return format.open(io.BytesIO(_written(format, shard)))


def _written(format: CacheFormat, shard: pa.Table) -> bytes:
    target = io.BytesIO()
    format.write(target, shard)
    return target.getvalue()


def _bits(column: pa.Array) -> Any:
    return column.to_numpy(zero_copy_only=False).view(np.int32)
