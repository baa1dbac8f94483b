"""Arrow's files on a disk that fails, or in a process that may open no more: the file is not told
to be damaged."""

import errno
import os

import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from distcore_core.errors import DataError
from distcore_data.dataset import Data
from distcore_data.os_errors import in_words
from distcore_data.sources import encoding, parquet_files
from distcore_data.sources import feather as arrow_files
from distcore_data.sources.datafile import DataFile

TABLE = pa.table({"a": [1.0, 2.0]})


@pytest.fixture(params=["parquet", "feather"])
def path(request, tmp_path):
    found = tmp_path / f"x.{request.param}"
    (parquet.write_table if request.param == "parquet" else feather.write_feather)(TABLE, found)
    return found


def failing(number):
    def fails(*_, **__):
        raise OSError(number, os.strerror(number)) if number else OSError("its bytes")

    return fails


def test_what_a_disk_refuses_is_no_damage(path, monkeypatch):
    with Data(path).open({"a": "number"}) as source:
        (partition,) = source.partitions(1 << 20)
        module = parquet_files if path.suffix == ".parquet" else arrow_files
        assert partition.read().num_rows == 2
        monkeypatch.setattr(module.pa, "OSFile", failing(errno.ESTALE))
        monkeypatch.setattr(type(partition), "_rows", failing(errno.ESTALE), raising=False)
        with pytest.raises(DataError, match="the system cannot read it"):
            partition.read()


def test_a_process_that_may_open_no_more_files_says_so(path, monkeypatch):
    monkeypatch.setattr(pa, "OSFile", failing(errno.EMFILE))
    module = parquet_files if path.suffix == ".parquet" else arrow_files
    with pytest.raises(OSError, match=r"^\[Errno 24\]") as caught:
        module.open_file(path, "x")
    assert in_words(caught.value).startswith(f"{path}: the system refused (too many open files")


def test_batches_that_cannot_be_read_name_who_is_to_blame(tmp_path, monkeypatch):
    path = tmp_path / "x.parquet"
    parquet.write_table(TABLE, path)
    file = DataFile.at(path, "x.parquet")
    assert sum(each.num_rows for each in parquet_files.checked_batches(file)) == 2
    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", failing(errno.EIO))
    with pytest.raises(OSError, match=r"^\[Errno 5\] .*: 'x\.parquet'"):
        list(parquet_files.checked_batches(file))
    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", failing(None))
    with pytest.raises(DataError, match=r"x\.parquet: the file is damaged"):
        list(parquet_files.checked_batches(file))


def test_what_arrow_finds_wrong_is_damage():
    with pytest.raises(DataError, match=r"x: row group 0 is damaged \(no\)\. Write"):
        encoding.refuse_damaged("x", "row group 0", pa.ArrowInvalid("no"))
