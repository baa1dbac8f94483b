"""How long and how much: constants are kept and believed only where they were measured, estimates
follow from them, and the traffic of many workers is what the exchanges really send."""

import json
import math
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import torch
from tests.conftest import Place

import distcore
from distcore.cli.main import main
from distcore.cli.plan_text import render
from distcore.cost import calibrate, whole_commands
from distcore.cost import constants as kept
from distcore.cost.calibrate import fitted_rates
from distcore.cost.constants import Constants, StepRates
from distcore.cost.made_tables import config_of, distinct_values, numbers
from distcore.cost.sample import distinct_among, sample_of, trial_of
from distcore.cost.scale import Scale, ring, sliced_tree, step_seconds, workers_up_to
from distcore.workflow.run import train_job
from distcore.workflow.session import resolved_session
from distcore_core.contracts import Rank
from distcore_core.errors import ConfigError, UserError
from distcore_data.cache import Cache
from distcore_data.features import Features
from distcore_data.threads import processors
from distcore_testing import data
from distcore_torch.training.determinism import one_thread
from distcore_torch.training.exact.exchange import Shares, SlicedTree

SOME = Constants(
    csv_byte=1e-9,
    csv_value={"number": 5e-8, "category": 4e-8},
    parquet_value={"number": 3e-8, "category": 2e-8},
    text_byte={"csv": 2e-8, "parquet": 2e-8},
    distinct=1e-6,
    ranked=2e-7,
    column=1e-3,
    file=2e-5,
    parallel=0.9,
    step={"1": StepRates(3e-6, 1e-11, 1e-10, 2e-10), "2": StepRates(3e-6, 5e-12, 1e-10, 2e-10)},
    score_row=1e-7,
    predict_row=2e-6,
    saved_byte=3e-9,
    start={"preprocess": 0.5, "train": 2.0, "predict": 1.5},
    memory={"preprocess": 1.2e8, "train": 4e8, "predict": 3e8},
    held={"byte": 2.0, "text": 5.0, "distinct": 100.0, "ranked": 20.0},
    predicted=1000.0,
    message=1e-4,
    sent_byte=1e-9,
)


@pytest.fixture
def calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return kept.save(SOME)


# ------------------------------------------------------------------ constants


def test_constants_are_kept_for_this_machine_alone(
    calibrated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kept.load() == SOME
    monkeypatch.setattr(kept, "processors", lambda: 999)
    said = kept.load()
    assert isinstance(said, str)
    assert "another number of processors" in said
    assert "doctor --calibrate" in said


def test_damaged_constants_are_told_and_not_used(calibrated: Path) -> None:
    content = calibrated.read_bytes()
    calibrated.write_bytes(content.replace(b"0.9", b"0.8"))
    said = kept.load()
    assert isinstance(said, str)
    assert str(calibrated) in said
    assert "doctor --calibrate" in said


def test_a_place_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for keep in (kept.check_place, lambda: kept.save(SOME)):
        with pytest.raises(UserError, match="XDG_CACHE_HOME"):
            keep()
    said = str(kept.load())
    assert said.startswith(f"not calibrated: {kept.path()} cannot be read (Not a directory)")
    assert "XDG_CACHE_HOME" in said


def test_a_place_that_cannot_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a folder of somebody else's: an estimate is left out, and the plan is told."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ("long" * 100)))
    assert "cannot be read (File name too long)" in str(kept.load())


def test_a_folder_in_place_of_the_constants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept.path().mkdir(parents=True)
    with pytest.raises(UserError, match="Is a directory"):
        kept.check_place()


def test_a_place_is_looked_at_before_a_minute_of_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert main(["doctor", "--calibrate"]) == 2
    said = capsys.readouterr().err
    assert "XDG_CACHE_HOME" in said
    assert "Measuring" not in said


@pytest.mark.parametrize("busy", [True, False])
def test_that_others_ran_while_it_was_measured_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    busy: bool,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    clock = iter([(1.0, 2.0, 3.0, 4.0, 100.0), (21.0, 7.0, 28.0, 9.0, 300.0 if busy else 200.0)])
    monkeypatch.setattr(os, "times", lambda: next(clock))
    monkeypatch.setattr("distcore.cost.calibrate.measure", lambda say: SOME)
    assert main(["doctor", "--calibrate"]) == 0
    said = capsys.readouterr().err
    assert ("of 200 s these measurements had a processor for 55, so" in said) is busy
    assert bool(said) is busy


def test_rates_are_those_of_the_nearest_number_of_threads() -> None:
    assert SOME.rates(1) == SOME.step["1"]
    assert SOME.rates(16) == SOME.step["2"]


def test_rates_are_found_again_and_none_is_negative() -> None:
    work = np.array([[100, 1e9, 1e6], [300, 1e6, 1e6], [50, 1e7, 1e9], [80, 5e9, 1e8]], float)
    rates = [3e-6, 1e-11, 1e-10]
    assert fitted_rates(work, work @ rates) == pytest.approx(rates)
    assert min(fitted_rates(work, np.ones(4))) >= 0
    work = np.random.default_rng(0).uniform(1, 2, (20, 3))
    first, second, none = fitted_rates(work, work @ [3, 2, -0.1])
    assert (first, second) == pytest.approx((3, 2), rel=0.1)
    assert none == 0


def test_the_constants_of_preprocessing_are_found_again(monkeypatch, tmp_path) -> None:
    """Of tables that are written as they are, and commands that take what known constants say."""
    monkeypatch.setattr(calibrate, "TALL_ROWS", 4000)
    monkeypatch.setattr(calibrate, "FILES", 3)
    monkeypatch.setattr(calibrate, "processors", lambda: 3)
    value = {"number": 3e-6, "category": 5e-6, "date": 7e-6}

    def preprocessed(path: Path, config: Any) -> calibrate._Run:
        several, csv = path.is_dir(), path.suffix == ".csv"
        files = sorted(path.iterdir()) if several else [path]
        tables = [pacsv.read_csv(each) if csv else pq.read_table(each) for each in files]
        values = sum(each.num_rows * each.num_columns for each in tables)
        kind, seconds = config["input_features"][0]["type"], 0.5
        if kind == "text":
            seconds += (3e-8 + 2e-8 * csv) * pc.sum(pc.binary_length(tables[0]["x0"])).as_py()
        elif path.stem not in ("nothing", "columns"):
            seconds += value[kind] * (2 if csv else 1) * values + 2e-8 * csv * path.stat().st_size
        seconds += 1e-4 * distinct_values(tables[0]) if path.stem == "many" else 0
        seconds += 1e-5 * 4000 * 8 if "'ple'" in str(config) else 0
        seconds += 1e-2 * (200 - 8) if path.stem == "columns" else 0
        seconds += 1e-3 * 9 * 3 if several else 0
        return calibrate._Run(seconds, seconds / 2, path.stat().st_size)

    monkeypatch.setattr(calibrate, "_preprocessed", preprocessed)
    found = calibrate._constants(calibrate._measured(tmp_path))
    for name, expected in {
        "csv_byte": 2e-8,
        "csv_value": {kind: 2 * each for kind, each in value.items()},
        "parquet_value": value,
        "text_byte": {"csv": 3e-8, "parquet": 3e-8},
        "distinct": 1e-4,
        "ranked": 1e-5,
        "column": 1e-2,
        "file": 1e-3,
        "parallel": 2 / 3,
    }.items():
        assert found[name] == pytest.approx(expected, rel=1e-6), name


# ------------------------------------------------------------------ the sample


def test_how_many_distinct_values_there_are_among_all_rows() -> None:
    dice = np.random.default_rng(0)
    looked = dice.integers(0, 50_000, 20_000)
    seen = len(set(looked.tolist()))
    assert distinct_among(1_000_000, seen, 20_000) == pytest.approx(50_000, rel=0.05)
    assert distinct_among(1_000_000, 20_000, 20_000) == 1_000_000
    assert distinct_among(1_000_000, 3, 20_000) == pytest.approx(3, rel=0.01)
    assert distinct_among(0, 0, 0) == 0


# ------------------------------------------------------------------ plan


def test_types_are_asked_for_once_however_many_columns_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    types = Features.types.fget
    monkeypatch.setattr(Features, "types", property(lambda self: asked.append(1) or types(self)))
    session = resolved_session("plan", config_of("category", 20, tmp_path / "cache"))
    read = session.features.raw()
    columns = [pa.array(["a", "b"] if name != "y" else ["0", "1"]) for name in read]
    batch = pa.RecordBatch.from_arrays(
        [each.dictionary_encode() for each in columns], names=list(read)
    )
    assert sample_of(session.features, [batch], 100).features is not None
    assert len(asked) == 1


def test_without_constants_the_plan_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    planned = distcore.plan(data.config(str(tmp_path / "cache")), data.table())
    assert planned["cost"]["calibrated"] is False
    assert "takes       not calibrated: run `distcore doctor --calibrate`" in render(planned)
    assert "--workers" not in render(planned)
    asked = distcore.plan(data.config(str(tmp_path / "cache")), data.table(), scale=Scale(4))
    assert "doctor --calibrate`; --workers needs that, too" in render(asked)


def test_what_a_start_takes_is_the_least_of_two_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All were timed within some seconds, in which others might want the machine."""
    seconds = iter([9.0, 8.0, 9.0, 8.0, 9.0, 8.0, 0.5, 2.0, 8.5])
    monkeypatch.setattr(whole_commands, "command", lambda words: (next(seconds), 1))
    starts = whole_commands.Starts(tmp_path)
    assert starts.seconds == {"preprocess": 8.0, "train": 8.0, "predict": 8.0}
    starts.again()
    assert starts.seconds == {"preprocess": 0.5, "train": 2.0, "predict": 8.0}


def test_each_stage_has_its_seconds_and_memory(calibrated: Path, tmp_path: Path) -> None:
    def stages(rows: int, **changes: Any) -> dict[str, Any]:
        config = data.config(str(tmp_path / "cache"), **changes)
        cost = distcore.plan(config, data.table(rows))["cost"]
        assert (cost["calibrated"], cost["why"]) == (True, "")
        return {each["stage"]: each for each in cost["stages"]}

    few, many = stages(600), stages(6000)
    assert list(few) == ["preprocess", "train", "predict"]
    starts = SOME.start
    for name, each in few.items():
        assert each["seconds"] > starts[name]
        assert each["memory_bytes"] > SOME.memory[name]
        assert many[name]["seconds"] > each["seconds"]
    more = many["predict"]["memory_bytes"] - few["predict"]["memory_bytes"]
    assert more >= 5400 * SOME.predicted
    seconds = [
        stages(6000, trainer={"epochs": epochs, "batch_size": 64})["train"]["seconds"]
        for epochs in (1, 10, 19)
    ]
    assert seconds[2] - seconds[1] == pytest.approx(seconds[1] - seconds[0])
    once = seconds[0] - (seconds[1] - seconds[0]) / 9 - starts["train"]
    assert 0 < once < seconds[0]  # the report's scores


def test_quantiles_cost_by_the_value(calibrated: Path, tmp_path: Path) -> None:
    """`init` asks for them of every number of a table of some thousand rows."""

    def stages(columns: int, rows: int, kind: str) -> dict[str, Any]:
        config = config_of(kind, columns, tmp_path / "cache")
        found = distcore.plan(config, numbers(rows, columns, 4))["cost"]["stages"]
        return {each["stage"]: each for each in found}

    used = max(1.0, processors() * SOME.parallel)
    for rows in (5_000, 40_000):
        plain, ranked = stages(3, rows, "number"), stages(3, rows, "ranked")
        more = ranked["preprocess"]["seconds"] - plain["preprocess"]["seconds"]
        assert more == pytest.approx(SOME.ranked * 3 * rows / used)
        held = ranked["preprocess"]["memory_bytes"] - plain["preprocess"]["memory_bytes"]
        assert held == pytest.approx(SOME.held["ranked"] * 3 * min(rows, 1 << 14), abs=2)


@pytest.mark.parametrize("split", [(1000, 2000), (5000, 5900), (100, 200)])
def test_sets_cost_what_they_cost_as_one(
    calibrated: Path, tmp_path: Path, split: tuple[int, int]
) -> None:
    """Texts and distinct values of the others count as those of the training set."""
    rows = 6000
    table = pa.table(
        {
            "few": [f"{min(row, 1000)}" for row in range(rows)],
            "words": ["a b" * (1 + row // 1000) for row in range(rows)],
            "y": np.arange(rows) % 2,
        }
    )
    config = data.config(str(tmp_path / "cache")) | {
        "input_features": [{"name": "few", "type": "category"}, {"name": "words", "type": "text"}],
        "output_features": [{"name": "y", "type": "binary"}],
    }
    edges = [0, *split, rows]
    names = ("training_set", "validation_set", "test_set")
    sets = {
        name: table.slice(edges[number], edges[number + 1] - edges[number])
        for number, name in enumerate(names)
    }

    def stages(**given: Any) -> dict[str, Any]:
        return {each["stage"]: each for each in distcore.plan(config, **given)["cost"]["stages"]}

    apart, one = stages(**sets), stages(dataset=table)
    of_files = 2 * 3 * SOME.file / (0.9 * max(1, processors()))
    for stage in ("preprocess", "predict"):
        assert apart[stage]["seconds"] == pytest.approx(one[stage]["seconds"], abs=4 * of_files)
        assert apart[stage]["memory_bytes"] == pytest.approx(one[stage]["memory_bytes"], rel=1e-6)


def test_each_set_is_of_its_own_format(calibrated: Path, tmp_path: Path) -> None:
    config, table = data.config(str(tmp_path / "cache")), data.table(6000)
    paths = {name: str(tmp_path / f"data.{name}") for name in ("csv", "parquet", "jsonl")}
    pacsv.write_csv(table, paths["csv"])
    pq.write_table(table, paths["parquet"])
    Path(paths["jsonl"]).write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))

    def seconds(train: str, test: str) -> float:
        cost = distcore.plan(config, training_set=paths[train], test_set=paths[test])["cost"]
        found = {each["stage"]: each["seconds"] for each in cost["stages"]}
        return float(found.get("preprocess", -1.0))

    texts, files = seconds("csv", "csv"), seconds("parquet", "parquet")
    mixed = seconds("csv", "parquet")
    assert 0 < files < mixed < texts
    assert mixed == pytest.approx(seconds("parquet", "csv"))
    assert mixed == pytest.approx((texts + files) / 2, rel=1e-3)
    assert seconds("csv", "jsonl") == -1  # not measured


def test_memory_of_row_groups(
    calibrated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large ones are read whole, also what lies behind the rows under way; small ones many at
    once."""
    from distcore.cost import estimate

    monkeypatch.setattr(estimate, "rows_under_way", lambda: 2 * 300)
    monkeypatch.setattr(estimate, "processors", lambda: 2)
    config, path = data.config(str(tmp_path / "cache")), tmp_path / "table.parquet"

    def planned(rows: int, partition: int) -> tuple[dict[str, int], float]:
        monkeypatch.setattr(estimate, "TARGET_BYTES", partition)
        pq.write_table(data.table(6000), str(path), row_group_size=rows)
        found = distcore.plan(config, str(path))
        return found["dataset"]["row_group"], found["cost"]["stages"][0]["memory_bytes"]

    (none, least), (large, most) = planned(600, 0), planned(6000, 0)
    assert (none["rows"], large["rows"]) == (600, 6000)
    assert none["bytes"] < large["bytes"] < path.stat().st_size
    assert most - least == pytest.approx(0.9 * large["bytes"], abs=1)
    assert planned(600, 20_000)[1] - least == 2 * 20_000
    assert planned(600, 1 << 20)[1] - least == path.stat().st_size


def test_a_set_by_its_address_beside_one_on_disk(calibrated: Path, tmp_path: Path) -> None:
    """How many bytes both have together is not known."""
    pq.write_table(data.table(), str(path := tmp_path / "table.parquet"))
    config = data.config(str(tmp_path / "cache"))
    found = distcore.plan(config, training_set=str(path), test_set=f"local://{path}")
    assert found["dataset"]["bytes"] is None
    assert found["dataset"]["row_group"]["rows"] == data.table().num_rows
    assert found["cost"]["stages"][0]["memory_bytes"] > 0


def test_of_a_wide_table_it_is_told_that_a_step_is_tried(
    calibrated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    caplog.set_level("INFO", "distcore")
    config, table = data.config(str(tmp_path / "cache")), data.table()
    distcore.plan(config, table)
    assert "A step of the network" not in caplog.text
    monkeypatch.setattr("distcore.cost.estimate.WIDE", 2)
    distcore.plan(config, table)
    assert "columns is tried" in caplog.text


def test_a_cache_that_is_there_costs_nothing(calibrated: Path, tmp_path: Path) -> None:
    config, table = data.config(str(tmp_path / "cache")), data.table()
    distcore.preprocess(config, table)
    stage = distcore.plan(config, table)["cost"]["stages"][0]
    assert (stage["stage"], stage["seconds"], stage["of"]) == (
        "preprocess",
        0,
        "the cache is there",
    )


@pytest.mark.parametrize("width", [8, 128])
def test_the_work_of_a_step_is_that_of_its_layers(
    width: int, calibrated: Path, tmp_path: Path
) -> None:
    """Also of layers that torch does not multiply by its usual operators."""
    table = data.table()
    combiner = {"type": "concat", "num_fc_layers": 2, "output_size": width}
    session = resolved_session("plan", data.config(str(tmp_path / "cache"), combiner=combiner))
    sample = sample_of(session.features, table.combine_chunks().to_batches()[:1], table.num_rows)
    job = train_job(session, Cache.at(str(tmp_path), "0", None))
    trial = trial_of(job, sample, 1000, session.plugins)
    assert trial is not None
    with one_thread():
        work = trial.work()
    layers = [each for each in trial.module.modules() if isinstance(each, torch.nn.Linear)]
    assert work.rows == 1000
    assert work.parameters == sum(each.numel() for each in trial.module.parameters())
    assert work.forward.flops == sum(
        2 * 1000 * each.in_features * each.out_features for each in layers
    )
    assert 2 * work.forward.flops <= work.train.flops <= 3 * work.forward.flops
    assert work.train.calls > work.forward.calls > 0
    assert work.train.bytes > work.forward.bytes > 0


def test_the_gradient_of_a_table_is_gone_through_once(calibrated: Path, tmp_path: Path) -> None:
    """Zeroed, and some rows added to; then its norm is taken, and an update reads four tables."""
    table = pa.table({"x0": [f"v{each}" for each in range(100_000)], "y": [0, 1] * 50_000})
    config = config_of("category", 1, tmp_path / "cache", combiner={"type": "concat"})
    session = resolved_session("plan", config)
    sample = sample_of(session.features, table.combine_chunks().to_batches(), table.num_rows)
    job = train_job(session, Cache.at(str(tmp_path), "0", None))
    trial = trial_of(job, sample, 100, session.plugins)
    assert trial is not None
    work = trial.work()
    assert work.train.far == pytest.approx(6 * 4 * work.parameters, rel=0.01)
    assert work.forward.far == 0


def test_a_step_has_no_more_rows_than_there_are(calibrated: Path, tmp_path: Path) -> None:
    config = data.config(str(tmp_path / "cache"), trainer={"batch_size": 10**9})
    assert distcore.plan(config, dataset=data.table())["cost"]["stages"][1]["step_seconds"] < 60


def test_a_class_that_the_sample_lacks_is_no_mistake(calibrated: Path, tmp_path: Path) -> None:
    """Rows sorted by their class show the last one to nobody who reads the first megabytes."""
    path = tmp_path / "sorted.csv"
    rows = "".join(f"{each:_^40},{'ab'[each % 2]}\n" for each in range(90_000))
    path.write_text(f"x,y\n{rows}0,c\n")
    config = data.config(str(tmp_path / "cache")) | {
        "input_features": [{"name": "x", "type": "category"}],
        "output_features": [
            {
                "name": "y",
                "type": "category",
                "loss": {
                    "type": "softmax_cross_entropy",
                    "class_weights": {"a": 1, "b": 1, "c": 2},
                },
            }
        ],
    }
    cost = distcore.plan(config, dataset=str(path))["cost"]
    assert cost["why"] == (
        "the trainer's steps are not known beforehand: the rows that were looked at cannot be "
        "fitted by themselves"
    )


@pytest.mark.parametrize("weights", [{"a": 1, "b": 1, "c": 2}, [1, 1, 2]])
def test_a_class_that_no_row_has_is_a_mistake_unless_rows_may_be_lost(
    tmp_path: Path, weights: Any
) -> None:
    """As `train` would say it, if all rows were looked at and each of them is fitted."""
    columns = {"x": [float(each) for each in range(40)], "y": list("ab" * 20)}
    path = tmp_path / "config.yaml"
    inputs = "input_features: [{name: x, type: number, preprocessing: {%s}}]"
    output = f"output_features: [{{name: y, type: category, loss: {{class_weights: {weights}}}}}]"
    path.write_text(f"{inputs % ''}\n{output}\n")
    with pytest.raises(
        ConfigError, match=r"line 2: output_features\[0\].loss.class_weights: (has|names) "
    ):
        distcore.plan(path, dataset=pa.table(columns))

    path.write_text(f"{inputs % 'missing_value_strategy: drop_row'}\n{output}\n")
    holes = columns | {"x": [None, *columns["x"][1:]]}
    assert distcore.plan(path, dataset=pa.table(holes))["dataset"]["rows"]["count"] == 40
    path.write_text(f"{inputs % ''}\n{output}\npreprocessing: {{sample_ratio: 0.5}}\n")
    assert distcore.plan(path, dataset=pa.table(columns))["dataset"]["rows"]["count"] == 40


def test_labels_that_are_numbers_have_as_many_weights_as_others(
    calibrated: Path, tmp_path: Path
) -> None:
    """The values that a few rows did not show are made up, and are none of those they showed."""

    def weights(labels: Sequence[str]) -> int:
        table = pa.table({"x0": pa.array(labels), "y": np.arange(len(labels)) % 2})
        config = config_of("category", 1, tmp_path / "cache", combiner={"type": "concat"})
        session = resolved_session("plan", config)
        batches = table.combine_chunks().to_batches()
        sample = sample_of(session.features, batches, 50 * table.num_rows)
        job = train_job(session, Cache.at(str(tmp_path), "0", None))
        trial = trial_of(job, sample, 100, session.plugins)
        assert trial is not None
        return int(trial.work().parameters)

    drawn = np.random.default_rng(0).integers(0, 20_000, 2000)
    numbers, words = weights([str(each) for each in drawn]), weights([f"w{each}" for each in drawn])
    assert numbers == words > 15_000


def test_looking_and_saving_cost_by_the_weight(calibrated: Path, tmp_path: Path) -> None:
    config = data.config(str(tmp_path / "cache"))

    def epoch(**trainer: Any) -> float:
        changed = {**config, "trainer": {**config["trainer"], **trainer}}
        stages = distcore.plan(changed, data.table(6000))["cost"]["stages"]
        return float(next(each["epoch_seconds"] for each in stages if each["stage"] == "train"))

    looking = epoch(ledger_steps=1)
    assert looking > epoch(ledger_steps=10) > epoch(ledger_steps=0)
    cheap = epoch()
    kept.save(replace(SOME, saved_byte=3e-6))
    assert epoch() > cheap


def test_the_command_line(calibrated: Path, tmp_path: Path, capsys: Any) -> None:
    place = Place(tmp_path / "place", capsys)
    words = ["plan", "--config", str(place.folder / place.config)]
    words += ["--dataset", str(place.folder / place.data)]

    def said(*more: str) -> tuple[int, str]:
        capsys.readouterr()
        code = main([*words, *more])
        found = capsys.readouterr()
        return code, found.out + found.err

    code, text = said("--workers", "6", "--bandwidth", "1", "--latency", "20")
    assert code == 0
    assert "preprocess about" in text
    assert re.search(r"\([\d.]+ (s|min|h) an epoch, [\d.,]+ ms a step of ", text)
    assert "COMMUNICATION" in text
    lines = text.splitlines()
    rows = [
        line.split()[0]
        for line in lines[lines.index(next(x for x in lines if x.startswith("WORKERS"))) + 1 :]
    ]
    assert rows == ["1", "2", "4", "6"]
    for more in (
        ["--workers", "0"],
        ["--workers", "9999"],
        ["--bandwidth", "1"],
        ["--latency", "1"],
    ):
        code, text = said(*more)
        assert code == 2
        assert "--workers" in text
    code, text = said("--workers", "2", "--bandwidth", "0")
    assert (code, "--bandwidth" in text) == (2, True)
    assert "COMMUNICATION" not in said()[1]


# ------------------------------------------------------------------ many workers


def test_exact_training_shares_one_batch_among_as_many_workers_as_it_has_parts(
    calibrated: Path, tmp_path: Path
) -> None:
    def told(**trainer: Any) -> Any:
        options = {"epochs": 1, "batch_size": 64, **trainer}
        config = data.config(str(tmp_path / "cache"), trainer=options)
        return distcore.plan(config, data.table(), scale=Scale(16))["cost"]

    exact, plain = told(exact=True, parts=8), told()
    assert [each["workers"] for each in exact["workers"]] == [1, 2, 4, 8]
    assert {each["rows_per_step"] for each in exact["workers"]} == {64}
    assert "trainer.parts" in exact["why"]
    assert [each["rows_per_step"] for each in plain["workers"]] == [64, 128, 256, 512, 1024]
    assert plain["workers"][0]["communication"] == 0
    assert plain["why"] == ""


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_step_of_several_workers_takes_what_the_table_of_workers_says(
    exact: bool, workers: int, calibrated: Path, tmp_path: Path
) -> None:
    options = {"epochs": 1, "batch_size": 64, "exact": exact, "parts": 8}
    trainer = {"type": "data_parallel", "num_workers": workers, "use_gpu": False}
    backend = {"type": "local", "trainer": trainer}
    config = data.config(str(tmp_path / "cache"), trainer=options, backend=backend)
    found = distcore.plan(config, data.table(), scale=Scale(4))["cost"]
    stage = next(each for each in found["stages"] if each["stage"] == "train")
    row = next(each for each in found["workers"] if each["workers"] == workers)
    assert stage["step_seconds"] == pytest.approx(row["step_seconds"])


def test_gradients_are_exchanged_once_however_many_passes_a_step_has(
    calibrated: Path, tmp_path: Path
) -> None:
    backend = {"type": "local", "trainer": {"type": "data_parallel", "num_workers": 2}}

    def epoch(message: float, passes: int) -> float:
        kept.save(replace(SOME, message=message))
        options = {"epochs": 1, "batch_size": 10, "gradient_accumulation_steps": passes}
        config = data.config(str(tmp_path / "cache"), trainer=options, backend=backend)
        stages = distcore.plan(config, data.table(600))["cost"]["stages"]
        return float(next(each["epoch_seconds"] for each in stages if each["stage"] == "train"))

    one, three = (epoch(1.0, passes) - epoch(0.0, passes) for passes in (1, 3))
    assert one > 2.5 * three > 0


class Counted:
    """Stands for the network: counts what one rank sends to others, and how many messages."""

    def __init__(self, world: int, index: int) -> None:
        self.world, self.index, self.numbers, self.messages = world, index, 0, 0

    def all_to_all(
        self, values: torch.Tensor, sent: Sequence[int], received: Sequence[int]
    ) -> torch.Tensor:
        self.numbers += sum(each for rank, each in enumerate(sent) if rank != self.index)
        self.messages += self.world - 1
        return torch.zeros(sum(received), dtype=values.dtype)

    def all_gather(self, values: torch.Tensor) -> torch.Tensor:
        self.numbers += (self.world - 1) * values.numel()
        self.messages += self.world - 1
        return torch.zeros(self.world * values.numel(), dtype=values.dtype)


@pytest.mark.parametrize(("world", "parts"), [(2, 8), (4, 8), (8, 8), (3, 8), (5, 16), (64, 64)])
def test_the_traffic_of_exact_training_is_what_its_exchange_sends(world: int, parts: int) -> None:
    numel, most, messages = world * 100, 0, 0
    for index in range(world):
        network = Counted(world, index)
        shares = Shares(Rank(index=index, world=world), parts)
        tree = SlicedTree(
            *(shares, numel, torch.float32, torch.device("cpu")),
            *(network.all_to_all, network.all_gather),
        )
        tree.sum()
        most, messages = max(most, network.numbers), network.messages
    traffic = sliced_tree(world, parts, 4 * numel)
    assert traffic.bytes == 4 * most
    assert traffic.messages == messages


def test_a_ring_sends_all_but_one_part_twice() -> None:
    assert ring(1, 1000) == ring(1, 7)
    assert ring(1, 1000).bytes == 0
    assert (ring(4, 1000).bytes, ring(4, 1000).messages) == (1500, 6)
    # However many there are, nobody sends more than everything twice.
    assert ring(4096, 1000).bytes < 2000


def test_a_step_is_computing_and_then_talking() -> None:
    seconds, talking = step_seconds(0.5, ring(2, 1_000_000), SOME, Scale(2))
    assert talking == pytest.approx(2 * 1e-4 + 1_000_000 * 1e-9)
    assert seconds == pytest.approx(0.5 + talking)
    slow = Scale(2, bandwidth=1e6, latency=0.01)
    assert step_seconds(0.5, ring(2, 1_000_000), SOME, slow)[1] == pytest.approx(0.02 + 1.0)


def test_powers_of_two_and_the_last() -> None:
    assert workers_up_to(1) == [1]
    assert workers_up_to(6) == [1, 2, 4, 6]
    assert workers_up_to(4096) == [1 << power for power in range(13)]


# ------------------------------------------------------------------ measuring


@pytest.mark.slow
def test_a_calibration_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert main(["doctor", "--calibrate", "--json"]) == 0
    found = Constants.from_json(json.loads(capsys.readouterr().out))
    assert kept.load() == found
    numbers = [
        *(found.parquet_value["number"], found.text_byte["csv"], found.distinct, found.column),
        *(found.start["train"], found.memory["train"], found.message, found.sent_byte),
        *(sum(vars(each).values()) for each in found.step.values()),
        *found.held.values(),
    ]
    assert all(math.isfinite(each) and each > 0 for each in numbers)


def test_a_calibration_that_is_stopped_leaves_no_command_behind(tmp_path, monkeypatch):
    """The one that was being measured ran on, in a folder that was gone."""
    left = []

    def stopped(process):
        while not left:
            left.extend(psutil.Process(process.pid).children())
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", stopped)
    with pytest.raises(KeyboardInterrupt):
        whole_commands.command(["schema", "--output", str(tmp_path / "schema.json")])
    psutil.wait_procs(left, timeout=10)
    assert [each for each in left if each.is_running()] == []
    assert list(tmp_path.iterdir()) == []
