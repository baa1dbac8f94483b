"""The built-in formats hold what every source must hold."""

import csv
import json
import subprocess

import pyarrow.feather
import pyarrow.parquet

from distcore_testing import SourceSuite


class TestCsv(SourceSuite):
    """A text that was cut is a shorter one."""

    name, damaged = "csv", False

    def write(self, folder, table):
        path = folder / "data.csv"
        with open(path, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(table.column_names)
            for row in table.to_pylist():
                writer.writerow(["" if value is None else value for value in row.values()])
        return path


class TestGzipped(TestCsv):
    """It is unpacked first."""

    def write(self, folder, table):
        path = super().write(folder, table)
        subprocess.run(["gzip", "-n", path], check=True)
        return path.with_suffix(".csv.gz")


class TestTsv(SourceSuite):
    """A text that was cut is a shorter one."""

    name, damaged = "tsv", False

    def write(self, folder, table):
        path = folder / "data.tsv"
        with open(path, "w", newline="") as file:
            writer = csv.writer(file, delimiter="\t")
            writer.writerow(table.column_names)
            for row in table.to_pylist():
                writer.writerow(["" if value is None else value for value in row.values()])
        return path


class TestJsonLines(SourceSuite):
    """A file that was cut at the end of a line is a shorter one."""

    name, damaged = "jsonl", False

    def write(self, folder, table):
        path = folder / "data.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
        return path


class TestJson(SourceSuite):
    name = "json"

    def write(self, folder, table):
        path = folder / "data.json"
        path.write_text(json.dumps(table.to_pylist()))
        return path


class TestParquet(SourceSuite):
    name = "parquet"

    def write(self, folder, table):
        pyarrow.parquet.write_table(table, folder / "data.parquet", row_group_size=60)
        return folder / "data.parquet"


class TestFeather(SourceSuite):
    name = "feather"

    def write(self, folder, table):
        pyarrow.feather.write_feather(table, str(folder / "data.feather"), chunksize=70)
        return folder / "data.feather"
