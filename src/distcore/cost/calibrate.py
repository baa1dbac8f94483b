"""Measure the constants of this machine: tables of one kind of column are preprocessed, networks of
several shapes are stepped, and two processes send each other numbers.

Preprocessing is measured in processor time, and steps by the least time that one took, because
others may use this machine meanwhile.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from distcore.cost.constants import PREDICTED_AT_ONCE, Constants, StepRates, rows_under_way
from distcore_core.contracts import JSON
from distcore_core.errors import DistcoreError
from distcore_core.io.atomic import write_new_file
from distcore_data.memory import keep_freed_memory
from distcore_data.temporaries import temporary_folder
from distcore_data.threads import processors

ROWS = 200_000
"""Of a table that is preprocessed."""

TALL_ROWS = 4 * ROWS
"""Of the tables by which seconds of a value are measured: enough to keep every processor at work,
and for what a table costs by itself to be little."""

MANY_ROWS = 3 * ROWS
"""Of the tables by which memory of distinct values and of texts is measured; with fewer, each seems
to take more."""

NUMBERS, CATEGORIES, DATES, WORDS = 8, 8, 4, 12
"""Columns of such a table, and words of a text."""

COLUMNS = 200
"""Of a table whose rows cost nothing beside its columns."""

TINY = 200
"""Rows of a table that costs nothing but the start."""

FILES = 200
"""Of a folder of such tables."""

STEP_SECONDS = 0.4
"""For which each network is stepped."""

SAVED_BYTES = 64 << 20
"""Of a file of weights."""

LEAST_PARALLEL = 0.6
"""Share of each processor that preprocessing uses at least; less was seen only if other programs
wanted them at the same time."""

Say = Callable[[str], None]

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


def measure(say: Say = lambda text: None) -> Constants:
    """Everything, in about a minute. say: is told what is measured next."""
    with temporary_folder("calibration") as folder:
        say("what commands cost that have nothing to do")
        starts = Starts(folder)
        say("preprocessing")
        read = _reading(folder, starts)
        say("steps of networks")
        steps, score = _steps(folder)
        saved = _saved_byte(folder)
        say("prediction")
        predict = starts.predict_row(read, steps)
        say("messages between processes")
        from distcore_torch.training.link import measured

        message, sent = measured()
        starts.again()
    return Constants(
        **read,
        step=steps,
        score_row=score,
        predict_row=predict,
        saved_byte=saved,
        start=starts.seconds,
        memory=starts.memory,
        predicted=starts.predicted,
        message=message,
        sent_byte=sent,
    )


# ------------------------------------------------------------------ tables


def _numbers(rows: int, columns: int, digits: int) -> pa.Table:
    dice = np.random.default_rng(columns)
    found = {f"x{i}": dice.standard_normal(rows).round(digits) for i in range(columns)}
    return _with_target(found, rows)


def _categories(rows: int, columns: int, values: int) -> pa.Table:
    dice = np.random.default_rng(values)
    found = {f"x{i}": dice.integers(0, values, rows).astype(str) for i in range(columns)}
    return _with_target(found, rows)


def _days(rows: int, columns: int) -> pa.Table:
    dice, first = np.random.default_rng(columns), np.datetime64("2020-01-01", "D")
    found = {f"x{i}": first + dice.integers(0, 1000, rows) for i in range(columns)}
    return _with_target(found, rows)


def _distinct(table: pa.Table) -> int:
    """Values of all its categories."""
    return sum(len(table[name].unique()) for name in table.column_names if name != "y")


def _texts(rows: int) -> pa.Table:
    dice = np.random.default_rng(rows)
    words = pa.array([f"w{number}" for number in range(5000)])
    chosen = words.take(pa.array(dice.integers(0, len(words), rows * WORDS)))
    ends = pa.array(np.arange(0, rows * WORDS + 1, WORDS), pa.int32())
    return _with_target({"x0": pc.binary_join(pa.ListArray.from_arrays(ends, chosen), " ")}, rows)


def _with_target(columns: Mapping[str, Any], rows: int) -> pa.Table:
    return pa.table({**columns, "y": np.arange(rows) % 2})


def config_of(kind: str, columns: int, cache: Path, **changes: Any) -> JSON:
    """A config whose inputs x0, x1, … are all of one type."""
    by_kind: dict[str, JSON] = {
        "number": {"preprocessing": {"normalization": "zscore"}},
        "category": {"preprocessing": {"most_common": 1_000_000}},
        "text": {"encoder": {"type": "embed"}},
        "date": {},
    }
    options = by_kind[kind]
    return {
        "input_features": [{"name": f"x{i}", "type": kind, **options} for i in range(columns)],
        "output_features": [{"name": "y", "type": "binary"}],
        "trainer": {"epochs": 1, "batch_size": 1024},
        "backend": {"type": "local", "cache_dir": str(cache)},
    } | changes


# ------------------------------------------------------------------ preprocessing


@dataclass(frozen=True)
class _Run:
    """A preprocessing: processor seconds, those of the clock, and bytes of the file."""

    seconds: float
    wall: float
    bytes: int

    def beside(self, nothing: _Run) -> float:
        """Processors that it used for what it did beyond nothing."""
        return (self.seconds - nothing.seconds) / max(1e-3, self.wall - nothing.wall)


def _reading(folder: Path, starts: Starts) -> dict[str, Any]:
    """The constants of preprocessing, by name."""
    made = {
        "nothing": _numbers(TINY, NUMBERS, 4),
        "short": _numbers(TALL_ROWS, NUMBERS, 4),
        "long": _numbers(TALL_ROWS, NUMBERS, 16),
        "few": _categories(TALL_ROWS, CATEGORIES, 100),
        "many": _categories(TALL_ROWS, 2, TALL_ROWS // 2),  # each value in two rows or three
        "dates": _days(TALL_ROWS, DATES),
        "text": _texts(ROWS // 4),
        "columns": _numbers(TINY, COLUMNS, 4),
    }
    kinds = {"few": "category", "many": "category", "dates": "date", "text": "text"}

    def run(name: str, ending: str) -> _Run:
        path = folder / f"{name}.{ending}"
        table, kind = made[name], kinds.get(name, "number")
        (pacsv.write_csv if ending == "csv" else pq.write_table)(table, str(path))
        return _preprocessed(path, config_of(kind, table.num_columns - 1, folder / "cache"))

    nothing, wide = run("nothing", "parquet"), run("columns", "parquet")
    found = {
        (name, ending): run(name, ending)
        for name, ending in (
            *(("short", "csv"), ("long", "csv"), ("short", "parquet"), ("few", "csv")),
            *(("few", "parquet"), ("many", "parquet"), ("dates", "csv"), ("dates", "parquet")),
            *(("text", "csv"), ("text", "parquet")),
        )
    }
    spent = {key: max(0.0, each.seconds - nothing.seconds) for key, each in found.items()}
    sizes = {key: each.bytes for key, each in found.items()}
    byte = max(
        0.0,
        (spent["long", "csv"] - spent["short", "csv"])
        / (sizes["long", "csv"] - sizes["short", "csv"]),
    )
    values = {
        name: made[name].num_rows * made[name].num_columns
        for name in ("short", "few", "many", "dates")
    }

    def of_csv(name: str) -> float:
        return max(0.0, spent[name, "csv"] - byte * sizes[name, "csv"]) / values[name]

    several = folder / "files"
    several.mkdir()
    for number in range(FILES):
        pq.write_table(made["nothing"], str(several / f"{number}.parquet"))
    files = _preprocessed(several, config_of("number", NUMBERS, folder / "cache"))
    of_rows = FILES * TINY * (NUMBERS + 1) * spent["short", "parquet"] / values["short"]
    of_files = max(0.0, files.seconds - nothing.seconds - of_rows)
    text = pc.sum(pc.binary_length(made["text"]["x0"])).as_py()
    of_few = spent["few", "parquet"] / values["few"]
    extra = max(0.0, spent["many", "parquet"] - values["many"] * of_few)
    busy = max(each.beside(nothing) for each in found.values())
    return {
        "csv_byte": byte,
        "csv_value": {
            "number": of_csv("short"),
            "category": of_csv("few"),
            "date": of_csv("dates"),
        },
        "parquet_value": {
            "number": spent["short", "parquet"] / values["short"],
            "category": of_few,
            "date": spent["dates", "parquet"] / values["dates"],
        },
        "text_byte": {
            "csv": max(0.0, spent["text", "csv"] - byte * text) / text,
            "parquet": spent["text", "parquet"] / text,
        },
        "distinct": extra / _distinct(made["many"]),
        "column": max(0.0, wide.seconds - nothing.seconds) / (COLUMNS - NUMBERS),
        "file": of_files / (FILES * (NUMBERS + 1)),
        "parallel": min(1.0, max(LEAST_PARALLEL, busy / processors())),
        "held": starts.held(),
    }


def _preprocessed(path: Path, config: JSON) -> _Run:
    """The least of three."""
    from distcore import interface
    from distcore.workflow.results import remove_cache

    seconds, walls = [], []
    for _ in range(3):
        wall, processor = time.perf_counter(), time.process_time()
        cache = interface.preprocess(config, str(path), view="none")
        seconds.append(time.process_time() - processor)
        walls.append(time.perf_counter() - wall)
        remove_cache(cache)
    return _Run(min(seconds), min(walls), path.stat().st_size)


# ------------------------------------------------------------------ steps


NETWORKS: Sequence[tuple[str, int, int, JSON, int]] = (
    ("number", 10, 10, {"type": "concat", "num_fc_layers": 2, "output_size": 16}, 32),
    ("number", 10, 10, {"type": "concat", "num_fc_layers": 6, "output_size": 32}, 128),
    ("number", 200, 10, {"type": "concat", "num_fc_layers": 2, "output_size": 256}, 1024),
    ("number", 20, 10, {"type": "concat", "num_fc_layers": 3, "output_size": 768}, 1024),
    ("category", 8, 100, {"type": "concat", "num_fc_layers": 2, "output_size": 64}, 1024),
    ("category", 4, 50_000, {"type": "concat", "num_fc_layers": 2, "output_size": 64}, 1024),
    ("category", 2, 200_000, {"type": "concat", "num_fc_layers": 2, "output_size": 64}, 1024),
)
"""What is stepped: kind of the inputs, how many, distinct values, combiner, rows of a step.

The tables of the last two lie in memory. None has one of a few million numbers: such a one lies in
some machines' caches and not in others', and would make either kind of byte wrong."""


def _steps(folder: Path) -> tuple[dict[str, StepRates], float]:
    """({threads: the rates of a step}, seconds to score a row)."""
    import torch

    from distcore_torch.training.counted import median_seconds

    keep_freed_memory()  # as training does
    usual = torch.get_num_threads()
    found: dict[str, StepRates] = {}
    score = 0.0
    try:
        for threads in sorted({1, usual}):
            torch.set_num_threads(threads)
            rows, seconds = [], []
            for trial in _trials(folder):
                work = trial.work()
                for each, function in ((work.train, trial.step), (work.forward, trial.forward)):
                    rows.append([each.calls, each.flops, each.bytes, each.far])
                    seconds.append(median_seconds(function, STEP_SECONDS / 2))
                scored = median_seconds(trial.score, STEP_SECONDS / 4)
                if work.rows == 1024:
                    score = max(0.0, scored - seconds[-1]) / work.rows
            found[str(threads)] = StepRates(*fitted_rates(np.array(rows, float), np.array(seconds)))
    finally:
        torch.set_num_threads(usual)
    return found, score


def _trials(folder: Path) -> Iterator[Any]:
    from distcore.cost.sample import sample_of, trial_of
    from distcore.workflow.run import train_job
    from distcore.workflow.session import resolved_session
    from distcore_data.cache import Cache

    for kind, columns, values, combiner, rows in NETWORKS:
        table = (
            _numbers(4096, columns, 4)
            if kind == "number"
            else _categories(max(4096, values), columns, values)
        )
        session = resolved_session(
            "plan", config_of(kind, columns, folder / "cache", combiner=combiner)
        )
        sample = sample_of(
            session.features, table.combine_chunks().to_batches()[:1], table.num_rows
        )
        job = train_job(session, Cache.at(str(folder), "0", None))
        trial = trial_of(job, sample, rows, session.plugins)
        session.backend.close()
        if trial is None:
            raise DistcoreError("A network of the calibration could not be built. Report this.")
        yield trial


def fitted_rates(work: np.ndarray, seconds: np.ndarray) -> list[float]:
    """Seconds of each kind of work (`StepRates`), none below 0; the relative errors are least.

    Args:
        work: How much of each kind each step does: [n, kinds].
        seconds: Of each: [n].
    """
    scaled = work / seconds[:, None]
    used = list(range(scaled.shape[1]))
    found = np.zeros(scaled.shape[1])
    while used:
        solved = np.linalg.lstsq(scaled[:, used], np.ones(len(seconds)), rcond=None)[0]
        if (solved >= 0).all():
            found[used] = solved
            break
        del used[int(solved.argmin())]
    return [float(each) for each in found]


def _saved_byte(folder: Path) -> float:
    """Seconds of writing a byte of a checkpoint: the median of three files."""
    import torch

    from distcore_torch.training.tensorfile import tensor_writer

    write, seconds = tensor_writer({"weights": torch.zeros(SAVED_BYTES // 4)}), []
    for number in range(3):
        started = time.perf_counter()
        write_new_file(folder / f"{number}.safetensors", write)
        seconds.append(time.perf_counter() - started)
    return float(np.median(seconds)) / SAVED_BYTES


# ------------------------------------------------------------------ whole commands


class Starts:
    """Commands that have almost nothing to do, each as a process of its own."""

    def __init__(self, folder: Path) -> None:
        import yaml

        self.folder = folder
        self._timed_words: dict[str, Sequence[str]] = {}
        self.seconds: dict[str, float] = {}
        self.memory: dict[str, float] = {}
        self.predicted = 0.0
        self._config = folder / "tiny.yaml"
        self._config.write_text(yaml.safe_dump(config_of("number", 2, folder / "tiny")))
        data = folder / "tiny.csv"
        pacsv.write_csv(_numbers(TINY, 2, 4), str(data))
        run = ["--config", str(self._config), "--dataset", str(data)]
        self._timed("preprocess", ["preprocess", *run])
        self._timed("train", ["train", *run, "-od", str(folder / "runs")])
        model = str(folder / "runs" / "experiment_run")
        self.model = model
        predict = ["predict", "-m", model, "--dataset", str(data), "-od", str(folder / "predicted")]
        self._timed("predict", [*predict, "--overwrite"])

    def _timed(self, name: str, words: Sequence[str]) -> None:
        (seconds, memory), (again, _) = _command(words), _command(words)
        self._timed_words[name] = words
        self.seconds[name], self.memory[name] = min(seconds, again), memory

    def again(self) -> None:
        """Time them once more, a minute later: whoever slowed them down may have gone."""
        for name, words in self._timed_words.items():
            seconds, _ = _command(words)
            self.seconds[name] = min(self.seconds[name], seconds)

    def held(self) -> dict[str, float]:
        """Bytes of memory that preprocessing takes beyond nothing, see `Constants`."""
        wide, texts = _numbers(ROWS, 5 * NUMBERS, 4), _texts(MANY_ROWS)
        few, many = (_categories(MANY_ROWS, 2, values) for values in (100, MANY_ROWS))
        distinct = self._more("category", many) - self._more("category", few)
        byte = self._more("number", wide) / (8 * wide.num_columns * ROWS)
        rows = min(MANY_ROWS, rows_under_way())
        of_text = pc.sum(pc.binary_length(texts["x0"])).as_py() * rows / MANY_ROWS
        return {
            "byte": byte,
            "distinct": max(0.0, distinct) / (_distinct(many) - _distinct(few)),
            "text": max(0.0, self._more("text", texts) - byte * 8 * rows) / of_text,
        }

    def _more(self, kind: str, table: pa.Table) -> float:
        import yaml

        config, path = self.folder / f"held_{kind}.yaml", self.folder / f"held_{kind}.parquet"
        pq.write_table(table, str(path))
        cache = self.folder / f"held_{kind}"
        config.write_text(yaml.safe_dump(config_of(kind, table.num_columns - 1, cache)))
        _, memory = _command(["preprocess", "--config", str(config), "--dataset", str(path)])
        return max(0.0, memory - self.memory["preprocess"])

    def predict_row(self, read: Mapping[str, Any], steps: Mapping[str, StepRates]) -> float:
        """Processor seconds of decoding and writing a row, beyond reading and encoding it. Sees
        what memory it takes."""
        seconds, memory = {}, {}
        for rows in (3 * ROWS, ROWS):
            data = self.folder / f"predict_{rows}.parquet"
            pq.write_table(_numbers(rows, 2, 4), str(data))
            words = ["predict", "-m", self.model, "--dataset", str(data), "--overwrite"]
            where = ["-od", str(self.folder / "predicted")]
            found = [_command([*words, *where]) for _ in range(2)]
            seconds[rows] = min(spent for spent, _ in found)
            memory[rows] = min(most for _, most in found)
        # Rows under way and the row group of these three columns, `plan` counts by themselves.
        counted = 8 * 3 * ROWS * (read["held"]["byte"] + 1)
        more = memory[ROWS] - self.memory["predict"] - counted
        self.predicted = max(0.0, more / min(ROWS, PREDICTED_AT_ONCE))
        reading = 2 * read["parquet_value"]["number"]
        return max(0.0, (seconds[3 * ROWS] - seconds[ROWS]) / (2 * ROWS) - reading)


def _command(words: Sequence[str]) -> tuple[float, int]:
    """(seconds, bytes of memory at the peak) of a command of ours: the processor's seconds, if they
    are fewer than the clock's. Raises DistcoreError if it fails."""
    line = [sys.executable, "-c", MEASURED, sys.executable, "-m", "distcore.cli.main", *words]
    done = subprocess.run(line, capture_output=True, text=True, env=dict(os.environ), check=False)
    if done.returncode:
        said = done.stderr.strip()
        raise DistcoreError(f"`distcore {words[0]}` failed while calibrating: {said}")
    wall, processor, memory = map(float, done.stdout.split())
    return min(wall, processor), int(memory) * (1 if sys.platform == "darwin" else 1024)
