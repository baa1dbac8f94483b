"""Measure the constants of this machine: tables of one kind of column are preprocessed, networks of
several shapes are stepped, and two processes send each other numbers.

Preprocessing is measured in processor time, because others may use this machine meanwhile; of steps
it is the median, which a training of many pays.
"""

from __future__ import annotations

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

from distcore.cost.constants import Constants, StepRates
from distcore.cost.made_tables import categories, config_of, days, distinct_values, numbers, texts
from distcore.cost.whole_commands import NUMBERS, ROWS, TINY, Starts
from distcore_core.contracts import JSON
from distcore_core.errors import DistcoreError
from distcore_core.io.atomic import write_new_file
from distcore_data.memory import keep_freed_memory
from distcore_data.temporaries import temporary_folder
from distcore_data.threads import processors

TALL_ROWS = 4 * ROWS
"""Of the tables by which seconds of a value are measured: enough to keep every processor at work,
and for what a table costs by itself to be little."""

CATEGORIES, DATES = 8, 4
"""Columns of such tables."""

COLUMNS = 200
"""Of a table whose rows cost nothing beside its columns."""

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


def measure(say: Say = lambda text: None) -> Constants:
    """Everything, in about a minute. say: is told what is measured next."""
    with temporary_folder("calibration") as folder:
        say("what commands cost that have nothing to do")
        starts = Starts(folder)
        say("preprocessing")
        read = {**_constants(_measured(folder)), "held": starts.held()}
        say("steps of networks")
        steps, score = _steps(folder)
        saved = _saved_byte(folder)
        say("prediction")
        predict = starts.predict_row(read)
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


@dataclass(frozen=True)
class _Measured:
    """Preprocessings of the tables `made`: {(table, ending): what it took}, and, as Parquet, of
    nothing, of many columns, of the ranked numbers of `short`, of a folder of `nothing`."""

    made: Mapping[str, pa.Table]
    found: Mapping[tuple[str, str], _Run]
    nothing: _Run
    wide: _Run
    ranked: _Run
    files: _Run


def _measured(folder: Path) -> _Measured:
    made = {
        "nothing": numbers(TINY, NUMBERS, 4),
        "short": numbers(TALL_ROWS, NUMBERS, 4),
        "long": numbers(TALL_ROWS, NUMBERS, 16),
        "few": categories(TALL_ROWS, CATEGORIES, 100),
        "many": categories(TALL_ROWS, 2, TALL_ROWS // 2),  # each value in two rows or three
        "dates": days(TALL_ROWS, DATES),
        "text": texts(ROWS // 4),
        "columns": numbers(TINY, COLUMNS, 4),
    }
    kinds = {"few": "category", "many": "category", "dates": "date", "text": "text"}

    def run(name: str, ending: str, kind: str | None = None) -> _Run:
        path = folder / f"{name}.{ending}"
        table, kind = made[name], kind or kinds.get(name, "number")
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
    ranked = run("short", "parquet", "ranked")
    several = folder / "files"
    several.mkdir()
    for number in range(FILES):
        pq.write_table(made["nothing"], str(several / f"{number}.parquet"))
    files = _preprocessed(several, config_of("number", NUMBERS, folder / "cache"))
    return _Measured(made, found, nothing, wide, ranked, files)


def _constants(measured: _Measured) -> dict[str, Any]:
    """The constants of preprocessing, by name."""
    made, found, nothing = measured.made, measured.found, measured.nothing
    ranked = measured.ranked.seconds - found["short", "parquet"].seconds
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

    of_rows = FILES * TINY * (NUMBERS + 1) * spent["short", "parquet"] / values["short"]
    of_files = max(0.0, measured.files.seconds - nothing.seconds - of_rows)
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
        "distinct": extra / distinct_values(made["many"]),
        "ranked": max(0.0, ranked) / (TALL_ROWS * NUMBERS),
        "column": max(0.0, measured.wide.seconds - nothing.seconds) / (COLUMNS - NUMBERS),
        "file": of_files / (FILES * (NUMBERS + 1)),
        "parallel": min(1.0, max(LEAST_PARALLEL, busy / processors())),
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
            numbers(4096, columns, 4)
            if kind == "number"
            else categories(max(4096, values), columns, values)
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
