"""Seconds and peak memory of each stage of a run, from the constants of this machine."""

from __future__ import annotations

import logging
import math
import os
from typing import TYPE_CHECKING

from distcore.cost.constants import (
    PREDICTED_AT_ONCE,
    RANKED,
    Constants,
    StepRates,
    load,
    rows_under_way,
)
from distcore.cost.sample import Sample, trial_of
from distcore.cost.scale import Scale, Traffic, ring, sliced_tree, step_seconds, workers_up_to
from distcore_core.contracts import JSON, TrainJob
from distcore_data.figures import duration, milliseconds
from distcore_data.sources.names import STANDARD_INPUT
from distcore_data.sources.tiles import TARGET_BYTES
from distcore_data.threads import processors

if TYPE_CHECKING:
    from distcore_core.registry.manager import Plugins
    from distcore_torch.training.counted import StepWork, Work

WIDE = 2000
"""From so many columns on, a step of the network takes long enough to be told before."""

TEXTS = ("text", "set", "sequence", "bag")
"""Types whose values cost by their bytes."""

ROW_GROUP = 128 << 20
"""Bytes of a row group of Parquet, decoded, at most as writers make them."""

COPIES = 12
"""Numbers that training holds for each that is learned: the weight, its gradient, two moments, the
best weights, what a checkpoint is written from (a copy of all these but the gradient), and what an
update computes with."""

SAVED, WATCHED = 4, 3
"""The same of a checkpoint (weight, two moments, best weight), and of what the sentinel looks
through."""

LOADED = 5
"""Copies of the encoded rows while a cache is loaded: the file, what was read of it, a column, its
place in the matrix, and what was freed and not given back."""

log = logging.getLogger("distcore")


def estimated(
    job: TrainJob,
    sample: Sample,
    dataset: JSON,
    cache: JSON,
    training: JSON,
    plugins: Plugins,
    scale: Scale | None,
) -> JSON:
    """{"calibrated", "why", "stages": [{"stage", "seconds", "memory_bytes", "of"}, …], "workers"}.

    Args:
        job: What the trainer was asked to plan.
        sample: Some rows.
        dataset: As the plan tells it.
        cache: Likewise.
        training: Likewise.
        plugins: Those that make the model.
        scale: Which numbers of workers to tell of; None: none.
    """
    constants = load()
    if isinstance(constants, str):
        why = constants if scale is None else f"{constants}; --workers needs that, too"
        return {"calibrated": False, "why": why, "stages": [], "workers": []}
    stages = [preprocessing(constants, sample, dataset, cache)]
    work = _step_of(job, sample, training, plugins)
    if work is None:
        unfitted = ": the rows that were looked at cannot be fitted by themselves"
        return {
            "calibrated": True,
            "why": "the trainer's steps are not known beforehand"
            + (unfitted if _has_steps(training) and sample.features is None else ""),
            "stages": [each for each in stages if each],
            "workers": [],
        }
    rates = _rates(constants, job, training)
    stages += [
        _training(constants, rates, job, work, sample, dataset, training),
        _prediction(constants, rates, work, sample, dataset),
    ]
    told = [] if scale is None else _workers(constants, job, work, scale)
    cut = scale is not None and bool(told) and told[-1]["workers"] < scale.workers
    return {
        "calibrated": True,
        "why": "more workers than trainer.parts have nothing to do in exact training"
        if cut
        else "",
        "stages": [each for each in stages if each],
        "workers": told,
    }


def seconds_of(work: Work, rates: StepRates) -> float:
    """Of operators."""
    return work.calls * rates.call + _by_size(work, rates)


def _by_size(work: Work, rates: StepRates) -> float:
    """Without the calls."""
    return work.flops * rates.flop + work.bytes * rates.byte + work.far * rates.far


# ------------------------------------------------------------------ preprocessing


def preprocessing(constants: Constants, sample: Sample, dataset: JSON, cache: JSON) -> JSON | None:
    """The stage; None for a format that was not measured."""
    if cache["state"] == "hit":
        return _stage("preprocess", 0.0, 0, "the cache is there")
    encoding = reading_seconds(constants, sample, dataset)
    if encoding is None:
        return None
    used = max(1.0, processors() * constants.parallel)
    rows = min(dataset["rows"]["count"], rows_under_way())
    memory = constants.memory["preprocess"] + _under_way(constants, sample, dataset, rows)
    memory += constants.held["distinct"] * _distinct(sample, dataset)
    memory += constants.held["ranked"] * sample.ranked * min(dataset["rows"]["count"], RANKED)
    memory += _packed(dataset, rows)
    fixed = constants.start["preprocess"] + constants.column * len(dataset["types"])
    encoding += constants.ranked * sample.ranked * dataset["rows"]["count"]
    return _stage("preprocess", fixed + encoding / used, memory, "")


def reading_seconds(constants: Constants, sample: Sample, dataset: JSON) -> float | None:
    """Processor seconds of reading, fitting and encoding every row; None for a format that was not
    measured."""
    formats, types, seconds = _formats(dataset), dataset["types"], 0.0
    text = sum(sample.text_bytes.get(name, 0.0) for name, kind in types.items() if kind in TEXTS)
    for name, part in dataset["sets"].items():
        format = formats[name]
        if format is None:
            return None
        values = constants.csv_value if format == "csv" else constants.parquet_value
        row = sum(
            values.get(kind, values["category"]) for kind in types.values() if kind not in TEXTS
        )
        seconds += part["rows"] * (row + text * constants.text_byte[format])
        if format == "csv":
            seconds += (part["bytes"] or 0) * constants.csv_byte
    files = sum(
        part["files"] or 1 for name, part in dataset["sets"].items() if formats[name] == "parquet"
    )
    seconds += constants.file * len(types) * max(0, files - 1)
    return seconds + constants.distinct * _distinct(sample, dataset)


def _distinct(sample: Sample, dataset: JSON) -> float:
    """Values of all categories and dates."""
    types = dataset["types"]
    return sum(count for name, count in sample.distinct.items() if types[name] not in TEXTS)


def _under_way(constants: Constants, sample: Sample, dataset: JSON, rows: float) -> float:
    """Bytes of memory for so many rows, from their reading to their encoding."""
    texts = [name for name, kind in dataset["types"].items() if kind in TEXTS]
    of_text = sum(sample.text_bytes.get(name, 0.0) for name in texts)
    others = 8 * (len(dataset["types"]) - len(texts))
    return rows * (constants.held["byte"] * others + constants.held["text"] * of_text)


def _packed(dataset: JSON, rows: float) -> float:
    """Bytes of memory for Parquet as it lies in the files, beyond that of so many rows: row groups
    smaller than a partition are read many at once, and of a larger one the chunks whole, but for
    text."""
    group = dataset["row_group"]
    if group is None:
        return 0.0
    if group["bytes"] < TARGET_BYTES:
        known = dataset["bytes"] or 0  # not if a part of it lies elsewhere
        return float(min(known, processors() * TARGET_BYTES))
    return float(group["read_whole"] * max(0.0, 1 - rows / group["rows"]))


def _formats(dataset: JSON) -> dict[str, str | None]:
    """{name: whose constants hold} of each set."""
    return {name: _format(called) for name, called in dataset["names"].items()}


def _format(called: str) -> str | None:
    """Whose constants hold: "csv" or "parquet", by the name of what is read; None for another.

    A frame and a folder count as Parquet."""
    name = called.lower()
    ending = os.path.splitext(name)[1]
    _, copied, format = name.partition(f"{STANDARD_INPUT} (")
    if copied:
        ending = f".{format[:-1]}"
    if ending in (".csv", ".tsv"):
        return "csv"
    return "parquet" if ending in (".parquet", "") or name.endswith(" in memory") else None


# ------------------------------------------------------------------ training, prediction


def _step_of(job: TrainJob, sample: Sample, training: JSON, plugins: Plugins) -> StepWork | None:
    if not _has_steps(training):
        return None
    if sample.encoded is not None and (columns := sample.encoded.num_columns) >= WIDE:
        log.info(
            "A step of the network of %s columns is tried, which takes a while.", f"{columns:,}"
        )
    rows = int(training["batch_size"])  # or all there are, which may be fewer
    trial = trial_of(job, sample, min(rows, int(training["rows"] or rows)), plugins)
    return None if trial is None else trial.work()


def _has_steps(training: JSON) -> bool:
    return bool(training.get("steps_per_epoch") and training.get("batch_size"))


def _rates(constants: Constants, job: TrainJob, training: JSON) -> StepRates:
    exact = bool(job.config.get("trainer", {}).get("exact"))
    several = training.get("workers", 1) > 1
    return constants.rates(1 if exact or several else training.get("threads", 1))


def _training(
    constants: Constants,
    rates: StepRates,
    job: TrainJob,
    work: StepWork,
    sample: Sample,
    dataset: JSON,
    training: JSON,
) -> JSON:
    workers, passes = training["workers"], training["gradient_accumulation_steps"]
    step, talking = seconds_of(work.train, rates), 0.0
    if workers > 1:
        step, talking, _ = _among(constants, job, work, workers, Scale(1))
    validation = dataset["splits"]["validation"] or 0
    row = seconds_of(work.forward, rates) / work.rows + constants.score_row
    rounds = training["steps_per_epoch"] / max(1, training["steps_per_evaluation"])
    watching = _watching(rates, job, work)
    model = 4 * work.parameters * constants.saved_byte

    def epoch_of(step: float, talking: float, workers: int) -> float:
        whole = passes * (step - talking) + talking + watching
        scoring = validation * row / workers
        return float(training["steps_per_epoch"] * whole + rounds * (scoring + SAVED * model))

    epoch, where = epoch_of(step, talking, workers), ""
    once = constants.start["train"] + row * (training["scored_rows"] or 0) + model
    whole = once + training["epochs"] * epoch
    processes = training.get("processes", 1)
    if processes > 1:  # exact training may go on in them, which have to start too
        shared, talking, _ = _among(constants, job, work, processes, Scale(1))
        quicker = epoch_of(shared, talking, processes)
        several = constants.start["train"] + once + training["epochs"] * quicker
        if several < whole:
            whole, epoch, step = several, quicker, shared
            where = f", in {processes} processes"
    each = f"{duration(epoch, rough=True)} an epoch, {milliseconds(step)} a step"
    told = f"{each} of {work.rows} rows{where}"
    memory = constants.memory["train"] + 4 * COPIES * work.parameters + work.made
    memory += LOADED * sample.encoded_bytes * ((dataset["splits"]["train"] or 0) + validation)
    return {**_stage("train", whole, memory, told), "step_seconds": step, "epoch_seconds": epoch}


def _watching(rates: StepRates, job: TrainJob, work: StepWork) -> float:
    """Seconds of a step that the sentinel takes: of every so many one, it looks twice."""
    from distcore_torch.training.job import train_options

    every = train_options(job).ledger_steps
    return 2 * WATCHED * 4 * work.parameters * rates.far / every if every else 0.0


def _prediction(
    constants: Constants, rates: StepRates, work: StepWork, sample: Sample, dataset: JSON
) -> JSON | None:
    reading = reading_seconds(constants, sample, dataset)
    if reading is None:
        return None
    rows = dataset["rows"]["count"]
    seconds = reading + rows * (constants.predict_row + seconds_of(work.forward, rates) / work.rows)
    # The weights as they were read, and the model's.
    memory = constants.memory["predict"] + 2 * 4 * work.parameters + work.made
    memory += constants.held["distinct"] * _distinct(sample, dataset)
    memory += _under_way(constants, sample, dataset, min(rows, PREDICTED_AT_ONCE))
    # A row group is decoded whole, a csv is cut anywhere.
    if "parquet" in _formats(dataset).values():
        memory += min(8 * len(dataset["types"]) * rows, ROW_GROUP)
    memory += constants.predicted * min(rows, PREDICTED_AT_ONCE)
    return _stage("predict", constants.start["predict"] + seconds, memory, "of all these rows")


# ------------------------------------------------------------------ many workers


def _workers(constants: Constants, job: TrainJob, work: StepWork, scale: Scale) -> list[JSON]:
    """A row for 1, 2, 4, … workers."""
    from distcore_torch.training.job import train_options

    options = train_options(job)
    found = []
    for workers in workers_up_to(scale.workers):
        if options.exact and workers > options.parts:
            break
        seconds, talking, traffic = _among(constants, job, work, workers, scale)
        rows = work.rows * (1 if options.exact else workers)
        found.append(
            {
                "workers": workers,
                "rows_per_step": rows,
                "step_seconds": seconds,
                "rows_per_second": rows / seconds,
                "sent_bytes": math.ceil(traffic.bytes),
                "messages": traffic.messages,
                "communication": talking / seconds,
            }
        )
    return found


def _among(
    constants: Constants, job: TrainJob, work: StepWork, workers: int, scale: Scale
) -> tuple[float, float, Traffic]:
    """(seconds of a step of so many workers, of which for communication, what each sends)."""
    from distcore_torch.training.job import train_options

    options, rates = train_options(job), constants.rates(1)
    size = 4 * work.parameters
    traffic = sliced_tree(workers, options.parts, size) if options.exact else ring(workers, size)
    # An exact run's global batch is shared by the workers; else each brings its own.
    share = 1 / workers if options.exact else 1.0
    computing = work.train.calls * rates.call + share * _by_size(work.train, rates)
    return *step_seconds(computing, traffic, constants, scale), traffic


def _stage(name: str, seconds: float, memory: float, of: str) -> JSON:
    return {"stage": name, "seconds": seconds, "memory_bytes": round(memory), "of": of}
