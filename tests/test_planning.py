"""A plan says what a run would do, and changes nothing."""

import json
import os
import re

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

import distcore
from distcore.cli.main import main
from distcore.cli.plan_text import render
from distcore_core.errors import ConfigError, DataError, UserError
from distcore_testing import data


@pytest.fixture
def folder(tmp_path):
    pa.csv.write_csv(data.table(), tmp_path / "data.csv")
    return tmp_path


def tree(folder):
    found = {path: path.stat() for path in sorted(folder.rglob("*"))}
    return {
        str(path): (each.st_size, each.st_mtime_ns, each.st_ino) for path, each in found.items()
    }


def config(folder, **changes):
    return data.config(str(folder / "cache"), **changes)


def test_of_a_cache_in_a_bucket_nobody_says_what_is_free(folder):
    """The plan ended in a TypeError until the cache was built."""
    bucket = data.config(f"memory://{folder.name}/cache")
    told = render(distcore.plan(bucket, str(folder / "data.csv")))
    assert f"miss: memory://{folder.name}/cache/" in told
    assert "are free" not in " ".join(told.split())
    here = render(distcore.plan(config(folder), str(folder / "data.csv")))
    assert "are free" in " ".join(here.split())


def test_it_changes_nothing_and_then_the_run_does_what_it_said(folder, monkeypatch):
    monkeypatch.chdir(folder)
    before = tree(folder)
    planned = distcore.plan(config(folder), str(folder / "data.csv"))
    assert tree(folder) == before
    assert json.loads(json.dumps(planned)) == planned
    assert planned["cache"]["state"] == "miss"
    outcome = distcore.train(
        config(folder), str(folder / "data.csv"), output_directory=folder / "results"
    )
    cache = folder / "cache" / planned["cache"]["key"]
    assert cache.is_dir()
    written = sum(path.stat().st_size for path in cache.rglob("*.parquet"))
    assert written / 4 < planned["cache"]["bytes"] < written * 4
    before = tree(folder)
    again = distcore.plan(config(folder), str(folder / "data.csv"))
    assert tree(folder) == before
    assert again["cache"]["state"] == "hit"
    assert again["dataset"]["splits"]["exact"]
    description = json.loads((outcome.directory / "description.json").read_text())
    assert {
        split: again["dataset"]["splits"][split] for split in description["data"]["rows"]
    } == description["data"]["rows"]
    rows = again["dataset"]["splits"]["train"]
    assert again["training"]["steps_per_epoch"] == -(-rows // 64)
    assert again["training"]["steps"] == 2 * -(-rows // 64)
    assert again["training"]["epochs"] == 2
    used = {(each["kind"], each["name"]) for each in description["plugins"]}
    assert used == {(each["role"], each["name"]) for each in again["plugins"]}


def test_without_a_cache_splits_and_steps_are_expected_ones(folder):
    planned = distcore.plan(config(folder), str(folder / "data.csv"))
    assert planned["dataset"]["splits"] == {
        "train": 420,
        "validation": 60,
        "test": 120,
        "exact": False,
    }
    assert planned["training"]["steps_per_epoch"] == 7
    assert "about 420 train" in render(planned)


@pytest.mark.parametrize("closed", [".", "manifest.json"])
def test_a_cache_that_another_user_keeps_closed_is_told_as_by_the_run(
    closed, public_folder, as_another_user
):
    """It was said to be damaged, or not there, and to be built."""
    pa.csv.write_csv(data.table(), public_folder / "data.csv")
    cache = distcore.preprocess(config(public_folder), str(public_folder / "data.csv"))
    (cache.folder / closed).chmod(0o600)

    def plan():
        with pytest.raises(UserError) as caught:
            distcore.plan(config(public_folder), str(public_folder / "data.csv"))
        return str(caught.value)

    assert f"this user may not read {cache.folder / closed} (permission" in as_another_user(plan)


def test_a_damaged_cache_is_told(folder):
    cache = distcore.preprocess(config(folder), str(folder / "data.csv"))
    shard = next(cache.folder.glob("train/*.parquet"))
    shard.write_bytes(shard.read_bytes()[:-1])
    planned = distcore.plan(config(folder), str(folder / "data.csv"))
    assert planned["cache"]["state"] == "damaged"
    assert "damaged" in render(planned)


@pytest.mark.parametrize("form", ["parquet", "feather", "frame"])
def test_rows_are_exact_where_the_format_knows_them(folder, form):
    table = data.table(5000)
    path = folder / f"data.{form}"
    if form == "parquet":
        pa.parquet.write_table(table, path, row_group_size=700)
    elif form == "feather":
        pa.feather.write_feather(table, path)
    dataset = table if form == "frame" else str(path)
    planned = distcore.plan(config(folder), dataset)
    assert planned["dataset"]["rows"] == {"count": 5000, "exact": True}
    assert planned["dataset"]["bytes"] > 0


@pytest.mark.parametrize("form", ["csv", "jsonl", "csv.gz"])
def test_rows_of_text_are_estimated_from_samples(folder, form, monkeypatch):
    monkeypatch.setattr("distcore.workflow.planned_data.SAMPLE_BYTES", 20_000)
    table = data.table(5000)
    path = folder / f"large.{form}"
    if form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        with pa.output_stream(path) as sink:
            pa.csv.write_csv(table, sink)
    rows = distcore.plan(config(folder), str(path))["dataset"]["rows"]
    assert not rows["exact"]
    assert rows["count"] == pytest.approx(5000, rel=0.05)


def test_small_text_is_counted(folder):
    assert distcore.plan(config(folder), str(folder / "data.csv"))["dataset"]["rows"] == {
        "count": 600,
        "exact": True,
    }


def test_given_sets_and_fixed_splits(folder):
    table = data.table()
    sets = {
        "training_set": table.slice(0, 400),
        "validation_set": table.slice(400, 150),
        "test_set": table.slice(550),
    }
    splits = distcore.plan(config(folder), **sets)["dataset"]["splits"]
    assert splits == {"train": 400, "validation": 150, "test": 50, "exact": False}
    fixed = table.append_column("split", pa.array([row % 3 for row in range(600)]))
    planned = distcore.plan(config(folder, preprocessing={"split": {"type": "fixed"}}), fixed)
    assert planned["dataset"]["splits"]["train"] is None
    assert planned["training"]["steps_per_epoch"] is None
    assert "split" in planned["dataset"]["columns"]
    assert "are known once the column is read" in render(planned)
    assert planned["training"]["scored_rows"] is None
    assert "scored rows" not in render(planned)


def given_sets(folder, table, cuts=(400, 550), forms=("csv", "csv", "csv")):
    """The table's rows as three files."""
    found, edges = {}, [0, *cuts, table.num_rows]
    for number, (name, form) in enumerate(zip(data_sets(), forms, strict=True)):
        rows = table.slice(edges[number], edges[number + 1] - edges[number])
        path = folder / f"{name}.{form}"
        (pa.csv.write_csv if form == "csv" else pa.parquet.write_table)(rows, str(path))
        found[name] = str(path)
    return found


def data_sets():
    return ["training_set", "validation_set", "test_set"]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_every_set_is_looked_at(folder, form):
    sets = given_sets(folder, data.table(), forms=(form,) * 3)
    planned = distcore.plan(config(folder), **sets)
    dataset = planned["dataset"]
    sizes = {name: os.path.getsize(path) for name, path in sets.items()}
    assert dataset["rows"] == {"count": 600, "exact": True}
    assert (dataset["bytes"], dataset["files"]) == (sum(sizes.values()), 3)
    assert dataset["sets"] == {
        name: {"rows": rows, "bytes": sizes[name], "files": 1}
        for name, rows in zip(sets, (400, 150, 50), strict=True)
    }
    assert not [each for each in planned["notes"] if "looked at" in each]


def test_what_a_later_set_holds_is_refused_in_the_run_s_words(folder):
    table = data.table().append_column("day", pa.array(["2020-01-31"] * 599 + ["soon"]))
    given = config(folder)
    given["input_features"] += [{"name": "when", "column": "day", "type": "date"}]
    with pytest.raises(DataError, match="'soon' is not a date"):
        distcore.plan(given, **given_sets(folder, table))


@pytest.mark.parametrize("cuts", [(400, 550), (20, 40), (590, 599)])
def test_a_class_of_a_later_set_alone_is_a_class(folder, cuts):
    table = data.table()
    last = pa.array([f"{each}" for each in table["k"].to_pylist()[:-1]] + ["rare"])
    table = table.set_column(table.column_names.index("k"), "k", last)
    asked = weighted(folder, low=1, mid=2, high=3, rare=4)
    assert not doubts(distcore.plan(asked, **given_sets(folder, table, cuts)))


def test_the_largest_row_group_of_all_sets_counts(folder):
    sets = given_sets(folder, data.table(), (50, 500), ("parquet",) * 3)
    assert distcore.plan(config(folder), **sets)["dataset"]["row_group"]["rows"] == 450


def test_a_sample_is_counted_as_one(folder):
    planned = distcore.plan(
        config(folder, preprocessing={"sample_size": 100}), str(folder / "data.csv")
    )
    assert planned["dataset"]["splits"]["train"] == 70


def test_only_declared_columns_are_read(folder):
    assert set(distcore.plan(config(folder), data.table())["dataset"]["columns"]) == {
        "x0",
        "x1",
        "colour",
        "y",
    }


def test_a_stream_that_comes_once_is_read_once(folder):
    """Its size was asked for by reading it again: 0 bytes."""
    table = data.table()
    planned = distcore.plan(config(folder), table.to_reader())
    assert planned["dataset"]["bytes"] == distcore.plan(config(folder), table)["dataset"]["bytes"]


def test_workers_on_one_machine_without_gpus_get_a_word(folder, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    changed = config(folder)
    changed["backend"]["trainer"] = {"type": "data_parallel", "num_workers": 3, "use_gpu": False}
    planned = distcore.plan(changed, data.table(), gpus=-1)
    assert planned["training"]["workers"] == 3
    assert any("threads of one process are about as fast" in note for note in planned["notes"])
    trainer = next(each for each in planned["plugins"] if each["role"] == "trainers")
    assert (trainer["name"], trainer["why"]) == ("data_parallel", "named in the config")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "7"


def test_what_is_named_is_told_from_what_is_the_default(folder):
    """Also if a section has other options and no name."""

    def why(**changes):
        plugins = distcore.plan(config(folder, **changes), str(folder / "data.csv"))["plugins"]
        return {
            each["role"]: each["why"] for each in plugins if each["role"] in ("caches", "models")
        }

    default = "default, as the config names none"
    assert why() == {"caches": default, "models": default}
    options = {"type": "local", "cache_format": {"compression": "zstd"}}
    assert why(backend=options, combiner={"type": "concat"}) == {
        "caches": default,
        "models": default,
    }
    named = {"type": "local", "cache_format": "parquet"}
    assert why(backend=named, model="tabular") == {
        "caches": "named in the config",
        "models": "named in the config",
    }


def test_older_spellings_are_noted(folder):
    changed = config(folder)
    changed["training"] = changed.pop("trainer")
    planned = distcore.plan(changed, data.table())
    assert any("training" in note for note in planned["notes"])


def test_what_the_run_would_refuse_the_plan_refuses(folder):
    with pytest.raises(DataError, match="colour"):
        distcore.plan(config(folder), data.table().drop(["colour"]))
    with pytest.raises(ConfigError, match="epochs"):
        distcore.plan(config(folder, trainer={"epochs": -1}), data.table())
    with pytest.raises(UserError, match="No data"):
        distcore.plan(config(folder))


@pytest.mark.parametrize(
    ("outputs", "said"),
    [
        ([{"name": "k", "type": "binary"}], "'k' holds 3 different values"),
        ([{"name": "y", "type": "binary"}], "'colour': .* is not a date"),
    ],
)
def test_values_that_do_not_fit_are_told_if_there_are_no_others(folder, outputs, said):
    given = config(folder, output_features=outputs)
    if "colour" in said:
        given["input_features"] = [{"name": "colour", "type": "date"}]
    for command in (distcore.plan, distcore.preprocess):
        with pytest.raises(DataError, match=said) as caught:
            command(given, data.table())
        assert caught.value.__cause__ is not caught.value  # who follows causes would not end


@pytest.mark.parametrize("metric", [{"validation_metric": "accurac"}, {"validation_field": "x"}])
def test_a_metric_that_is_not_there_is_refused_in_the_run_s_words(folder, metric):
    asked = config(folder, trainer={"epochs": 1, **metric})
    with pytest.raises(ConfigError) as planned:
        distcore.plan(asked, data.table())
    with pytest.raises(ConfigError) as run:
        distcore.train(asked, data.table(), output_directory=folder / "results")
    assert str(planned.value) == str(run.value)
    distcore.preprocess(config(folder), data.table())
    with pytest.raises(ConfigError):
        distcore.plan(asked, data.table())


def test_devices_that_are_not_there_are_refused(folder, monkeypatch):
    monkeypatch.setattr("distcore_local.backend.gpus", lambda: 0)
    with pytest.raises(UserError, match="--gpus 0: no GPU can be used here"):
        distcore.plan(config(folder), data.table(), gpus="0")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    asked = config(folder)
    asked["backend"]["trainer"] = {"type": "local", "use_gpu": True}
    with pytest.raises(UserError, match="torch sees no GPU here"):
        distcore.plan(asked, data.table())


def test_more_workers_than_gpus_are_refused_in_the_run_s_words(folder, monkeypatch):
    monkeypatch.setattr("distcore_local.backend.gpus", lambda: 2)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    asked = config(folder)
    asked["backend"]["trainer"] = {"type": "data_parallel", "num_workers": 3}
    for use_gpu in ("auto", True):
        asked["backend"]["trainer"]["use_gpu"] = use_gpu
        with pytest.raises(UserError, match=r"3 workers cannot have a GPU each.*may use 2") as said:
            distcore.plan(asked, data.table(), gpus="0,1")
    with pytest.raises(UserError) as run:
        distcore.train(asked, data.table(), gpus="0,1", output_directory=folder / "results")
    assert str(run.value) == str(said.value)
    for fits in ({"num_workers": 2}, {"use_gpu": False}):
        asked["backend"]["trainer"].update(fits)
        assert distcore.plan(asked, data.table(), gpus="0,1")["training"]["workers"] >= 2


def weighted(folder, **weights):
    loss = {"type": "softmax_cross_entropy", "class_weights": weights}
    return config(folder, output_features=[{"name": "k", "type": "category", "loss": loss}])


def doubts(planned):
    return [each for each in planned["notes"] if "looked at do not fit" in each]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_weights_that_fit_no_data_are_refused_whatever_the_partitions(folder, form, monkeypatch):
    monkeypatch.setattr("distcore.workflow.planned_data.SAMPLE_BYTES", 20_000)
    path = folder / f"parts.{form}"
    if form == "csv":
        pa.csv.write_csv(data.table(), path)
    else:
        pa.parquet.write_table(data.table(), path, row_group_size=300)
    assert not doubts(distcore.plan(weighted(folder, low=1, mid=2, high=3), path))
    with pytest.raises(ConfigError, match="has none for"):
        distcore.plan(weighted(folder, low=1, middle=2, high=3), path)


def test_what_other_rows_may_mend_is_told(folder, monkeypatch):
    monkeypatch.setattr("distcore.workflow.planned_data.SAMPLE_BYTES", 5_000)
    path = str(folder / "data.csv")
    [told] = doubts(distcore.plan(weighted(folder, low=1, middle=2, high=3), path))
    assert "class_weights: has none for ['mid']" in told
    fits = config(folder, trainer={"validation_metric": "f"})
    [told] = doubts(distcore.plan(fits, path))
    assert "no output feature has a metric 'f'" in told


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_how_many_rows_were_looked_at_is_told(folder, form, monkeypatch):
    table = data.table().append_column("day", pa.array(["2020-01-31"] * 599 + ["soon"]))
    given = config(folder)
    given["input_features"] += [{"name": "when", "column": "day", "type": "date"}]
    path = folder / f"dates.{form}"

    def plan(rows):
        if form == "csv":
            pa.csv.write_csv(rows, path)
        else:
            pa.parquet.write_table(rows, path, row_group_size=100)
        return distcore.plan(given, path)

    with pytest.raises(DataError, match="'soon' is not a date"):
        plan(table.slice(300))
    monkeypatch.setattr("distcore.workflow.planned_data.SAMPLE_BYTES", 5_000)
    planned = plan(table)
    [told] = [each for each in planned["notes"] if "Only" in each]
    about = "about " if form == "csv" else ""
    rows = planned["dataset"]["rows"]["count"]
    assert f"of {about}{rows:,} rows were looked at" in told
    assert not doubts(planned)
    [told] = doubts(plan(table.take([599, *range(599)])))
    assert "Column 'day' (feature 'when'): 'soon' is not a date" in told
    plan(table.slice(0, 599))
    distcore.preprocess(given, path, view="none")
    assert not [each for each in distcore.plan(given, path)["notes"] if "Only" in each]


def test_the_command(folder, capsys):
    (folder / "config.json").write_text(json.dumps(config(folder)))
    words = ["plan", "--config", str(folder / "config.json"), "--dataset", str(folder / "data.csv")]
    before = tree(folder)
    assert main(words) == 0
    text = capsys.readouterr().out
    for part in ("local", "600 rows", "miss", "parquet", "distcore-tabular", "7 steps an epoch"):
        assert part in text
    assert main([*words, "--json", "--random_seed", "7"]) == 0
    assert json.loads(capsys.readouterr().out)["random_seed"] == 7
    assert tree(folder) == before


def test_a_slow_step_is_told_without_powers_of_ten(folder):
    planned = distcore.plan(config(folder), data.table(60))
    sizes = {"rows_per_step": 256, "rows_per_second": 20, "sent_bytes": 0, "messages": 0}
    slow = {"workers": 2, "step_seconds": 12.345, "communication": 0.5, **sizes}
    planned["cost"]["workers"] = [slow]
    assert re.search(r"\n2 +256 +12,345 +20 ", render(planned))


def test_of_thousands_of_columns_some_are_named(folder):
    planned = distcore.plan(config(folder), data.table(60))
    planned["dataset"]["columns"] = {f"x{number}": "number" for number in range(50)}
    told = render(planned)
    assert "50 columns: x0, " in told
    assert " x49\n" in told
    planned["dataset"]["columns"] |= {f"y{number}": "number" for number in range(9950)}
    assert " x49 and 9,950 more\n" in render(planned)
    assert "y0" not in render(planned)


def test_large_predictions_are_told(tmp_path, monkeypatch):
    """A probability for each class of each row: of 2,000 classes and a million rows 8 GB."""

    def told(table):
        given = {
            "input_features": [{"name": "x", "type": "number"}],
            "output_features": [{"name": "y", "type": "category"}],
            "preprocessing": {"split": {"type": "random", "probabilities": [0.5, 0.25, 0.25]}},
            "backend": {"type": "local", "cache_dir": str(tmp_path)},
        }
        return [each for each in distcore.plan(given, table)["notes"] if "probability" in each]

    monkeypatch.setattr("distcore.workflow.planning.LARGE_PREDICTIONS", 4 * 40 * 100)
    rows = range(400)
    many = pyarrow.table({"x": [float(row) for row in rows], "y": [f"c{row % 40}" for row in rows]})
    few = pyarrow.table({"x": [float(row) for row in rows], "y": [f"c{row % 30}" for row in rows]})
    (note,) = told(many)
    assert "each of about 40 classes: 160 bytes a row, 16.0 kB of the test split" in note
    assert "--skip_save_predictions" in note
    assert told(few) == []


def test_credentials_are_not_in_it(folder):
    changed = config(folder)
    changed["backend"]["cache_credentials"] = {"key": "hush-hush"}
    planned = distcore.plan(changed, data.table())
    assert "hush-hush" not in json.dumps(planned) + render(planned)


@pytest.mark.parametrize("work", [distcore.plan, distcore.train])
def test_too_few_lanes_are_refused_by_plan_as_by_training(work, folder, monkeypatch):
    monkeypatch.chdir(folder)
    few = config(folder, backend={"loader": {"lanes": 2}}, trainer={"exact": True, "parts": 4})
    with pytest.raises(ConfigError, match="2 lanes cannot be shared by 4 parts; set it to 4"):
        work(few, str(folder / "data.csv"))


def test_a_column_that_nobody_asks_for_need_not_fit_arrow(folder):
    """Training takes such a frame, and plan refused it."""
    frame = data.table().to_pandas().assign(other=[object()] * data.table().num_rows)
    said = distcore.plan(config(folder), frame)["dataset"]
    assert said["rows"]["count"] == len(frame)
    assert said == distcore.plan(config(folder), frame.drop(columns="other"))["dataset"]


def test_a_parquet_file_is_known_by_its_ending_in_capitals_too(folder):
    for name in ("small.parquet", "CAPITALS.PARQUET"):
        pa.parquet.write_table(data.table(), folder / name)
    small, capitals = (
        distcore.plan(config(folder), str(folder / name))["dataset"]["row_group"]
        for name in ("small.parquet", "CAPITALS.PARQUET")
    )
    assert small is not None
    assert capitals == small


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ({"class": "torch.nn:Linaer"}, "model.class: torch.nn has no Linaer"),
        ({"class": "torch.nn:ReLU", "options": {"width": 3}}, "model.options: .* 'width'"),
    ],
)
def test_a_network_that_is_not_there_is_told_before_any_data_are_read(folder, model, told):
    asked = config(folder, model={"type": "module", **model})
    del asked["combiner"]
    for function in (distcore.plan, distcore.train):
        with pytest.raises(ConfigError, match=told):
            function(asked, str(folder / "data.csv"))
    assert not (folder / "cache").exists()
