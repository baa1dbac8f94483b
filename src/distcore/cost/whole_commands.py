"""What whole commands take, each as a process of its own: seconds and memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from distcore.cost.constants import PREDICTED_AT_ONCE, RANKED, rows_under_way
from distcore.cost.made_tables import categories, config_of, distinct_values, numbers, texts
from distcore_core.errors import DistcoreError
from distcore_data.memory import UNIT_OF_PEAK

ROWS = 200_000
"""Of a table that is preprocessed."""

MANY_ROWS = 3 * ROWS
"""Of the tables by which memory of distinct values and of texts is measured; with fewer, each seems
to take more."""

NUMBERS = 8
"""Columns of a table of numbers."""

TINY = 200
"""Rows of a table that costs nothing but the start."""

MEASURED = """
import resource, subprocess, sys, time
started = time.perf_counter()
done = subprocess.run(sys.argv[1:], capture_output=True)
wall, used = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
sys.stderr.buffer.write(done.stderr)
print(wall, used.ru_utime + used.ru_stime, used.ru_maxrss)
sys.exit(done.returncode)
"""
"""Runs a command, and says seconds, processor seconds and memory of it alone."""


class Starts:
    """Commands that have almost nothing to do, each as a process of its own."""

    def __init__(self, folder: Path) -> None:
        import yaml

        self.folder = folder
        self._timed_words: dict[str, Sequence[str]] = {}
        self.seconds: dict[str, float] = {}
        self.memory: dict[str, float] = {}
        self.predicted = 0.0
        config = folder / "tiny.yaml"
        config.write_text(yaml.safe_dump(config_of("number", 2, folder / "tiny")))
        data = folder / "tiny.csv"
        pacsv.write_csv(numbers(TINY, 2, 4), str(data))
        run = ["--config", str(config), "--dataset", str(data)]
        self._timed("preprocess", ["preprocess", *run])
        self._timed("train", ["train", *run, "-od", str(folder / "runs")])
        self.model = str(folder / "runs" / "experiment_run")
        where = ["-od", str(folder / "predicted")]
        predict = ["predict", "-m", self.model, "--dataset", str(data), *where]
        self._timed("predict", [*predict, "--overwrite"])

    def _timed(self, name: str, words: Sequence[str]) -> None:
        (seconds, memory), (again, _) = command(words), command(words)
        self._timed_words[name] = words
        self.seconds[name], self.memory[name] = min(seconds, again), memory

    def again(self) -> None:
        """Time them once more, a minute later: whoever slowed them down may have gone."""
        for name, words in self._timed_words.items():
            seconds, _ = command(words)
            self.seconds[name] = min(self.seconds[name], seconds)

    def held(self) -> dict[str, float]:
        """Bytes of memory that preprocessing takes beyond nothing, see `Constants`."""
        wide, written = numbers(ROWS, 5 * NUMBERS, 4), texts(MANY_ROWS)
        few, many = (categories(MANY_ROWS, 2, values) for values in (100, MANY_ROWS))
        distinct = self._more("category", many) - self._more("category", few)
        plain = self._more("number", wide)
        byte = plain / (8 * wide.num_columns * ROWS)
        ranked = max(0.0, self._more("ranked", wide) - plain)
        rows = min(MANY_ROWS, rows_under_way())
        of_text = pc.sum(pc.binary_length(written["x0"])).as_py() * rows / MANY_ROWS
        return {
            "byte": byte,
            "distinct": max(0.0, distinct) / (distinct_values(many) - distinct_values(few)),
            "ranked": ranked / (5 * NUMBERS * min(ROWS, RANKED)),
            "text": max(0.0, self._more("text", written) - byte * 8 * rows) / of_text,
        }

    def _more(self, kind: str, table: pa.Table) -> float:
        import yaml

        config, path = self.folder / f"held_{kind}.yaml", self.folder / f"held_{kind}.parquet"
        pq.write_table(table, str(path))
        cache = self.folder / f"held_{kind}"
        config.write_text(yaml.safe_dump(config_of(kind, table.num_columns - 1, cache)))
        _, memory = command(["preprocess", "--config", str(config), "--dataset", str(path)])
        return max(0.0, memory - self.memory["preprocess"])

    def predict_row(self, read: Mapping[str, Any]) -> float:
        """Processor seconds of decoding and writing a row, beyond reading and encoding it. Sees
        what memory it takes."""
        seconds, memory = {}, {}
        for rows in (3 * ROWS, ROWS):
            data = self.folder / f"predict_{rows}.parquet"
            pq.write_table(numbers(rows, 2, 4), str(data))
            words = ["predict", "-m", self.model, "--dataset", str(data), "--overwrite"]
            where = ["-od", str(self.folder / "predicted")]
            found = [command([*words, *where]) for _ in range(2)]
            seconds[rows] = min(spent for spent, _ in found)
            memory[rows] = min(most for _, most in found)
        # Rows under way and the row group of these three columns, `plan` counts by themselves.
        counted = 8 * 3 * ROWS * (read["held"]["byte"] + 1)
        more = memory[ROWS] - self.memory["predict"] - counted
        self.predicted = max(0.0, more / min(ROWS, PREDICTED_AT_ONCE))
        reading = 2 * read["parquet_value"]["number"]
        return max(0.0, (seconds[3 * ROWS] - seconds[ROWS]) / (2 * ROWS) - reading)


def command(words: Sequence[str]) -> tuple[float, int]:
    """(seconds, bytes of memory at the peak) of a command of ours: the processor's seconds, if they
    are fewer than the clock's. Raises DistcoreError if it fails."""
    line = [sys.executable, "-c", MEASURED, sys.executable, "-m", "distcore.cli.main", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        line, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, process_group=0
    ) as process:
        try:
            found, said = process.communicate()
        except BaseException:  # a signal: the command below is nobody's child then
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise DistcoreError(f"`distcore {words[0]}` failed while calibrating: {said.strip()}")
    wall, processor, memory = map(float, found.split())
    return min(wall, processor), int(memory) * UNIT_OF_PEAK
