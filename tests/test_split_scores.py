"""Metrics of the training, the validation and the test split side by side, of the kept model: in
summary.json, in the report and in a notebook."""

import json
import re
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest

import distcore
from distcore.cli.main import main
from distcore.cli.train import print_scores
from distcore.workflow.shown import headline, html_of, split_scores
from distcore.workflow.split_scores import MOST_ROWS, stretches
from distcore_core.contracts import Split
from distcore_data.cache import open_cache
from distcore_data.figures import partly_scored
from distcore_testing import data

TRAINERS = ("local", "lightgbm")


def experiment(folder, kind="local", table=None, **changes):
    config = data.config(str(folder / "cache")) | changes
    config["backend"]["trainer"] = {"type": kind}
    outcome = distcore.experiment(
        config, table or data.table(), output_directory=folder / "results", view="none"
    )
    return config, outcome, json.loads((Path(outcome.directory) / "summary.json").read_text())


def rows_of(config, split: Split):
    import pyarrow as pa

    with open_cache(distcore.preprocess(config, dataset=data.table())) as reader:
        return data.table().take(pa.array(reader.row_numbers(split)))


@pytest.mark.parametrize("trainer", TRAINERS)
def test_they_are_those_of_the_kept_model_on_these_rows(trainer, tmp_path):
    config, outcome, summary = experiment(tmp_path, trainer)
    found = summary["scores"]["y"]
    for split, name in (("train", "training"), ("validation", "validation"), ("test", "test")):
        again = distcore.evaluate(
            outcome.model, rows_of(config, split), output_directory=tmp_path / split, view="none"
        )["y"]
        told = {metric: values[name] for metric, values in found.items()}
        assert told == pytest.approx(again, rel=1e-4), name
    assert summary["scored_rows"]["training"] == summary["headline"]["rows"]["train"]


def test_the_report_and_a_notebook_show_them(tmp_path):
    _, outcome, summary = experiment(tmp_path)
    page = Path(outcome.report).read_text()
    assert "<small>training · validation</small>" in page
    heads = re.findall(r"<th>metric</th><th>training</th><th>validation</th><th>test</th>", page)
    assert heads
    metric = summary["headline"]["metric"]
    assert summary["scores"]["y"][metric].keys() == {"training", "validation", "test"}
    assert re.search(
        r"\(training [\d.]+, validation [\d.]+, [\d.]+ without inputs\)", headline(outcome)
    )


def test_nearly_faultless_is_not_told_as_faultless(tmp_path):
    head = {"metric": "accuracy", "target": "y", "value": 0.99996, "baseline": 0.49996}
    scores = {"y": {"accuracy": {"training": 0.99998, "validation": 0.99997}}}
    (tmp_path / "summary.json").write_text(json.dumps({"headline": head, "scores": scores}))
    assert headline(SimpleNamespace(directory=tmp_path)) == (
        "accuracy of y 0.99996 (training 0.99998, validation 0.99997, 0.49996 without inputs); "
        f"{tmp_path}"
    )


def test_the_last_table_of_an_experiment_shows_them(tmp_path, capsys):
    _, outcome, summary = experiment(tmp_path)
    print_scores(outcome.test_statistics, split_scores(outcome))
    header, *rows = (line.split() for line in capsys.readouterr().out.splitlines())
    assert header == ["OUTPUT", "METRIC", "TRAINING", "VALIDATION", "TEST"]
    found = {tuple(row[:2]): row[2:] for row in rows}
    for metric, splits in summary["scores"]["y"].items():
        told = [f"{splits[name]:.6g}" for name in ("training", "validation", "test")]
        assert found["y", metric] == told
    print_scores(outcome.test_statistics)
    assert capsys.readouterr().out.split()[:3] == ["OUTPUT", "METRIC", "TEST"]


def test_without_rows_to_test_with_the_last_table_shows_the_others(capsys):
    """It was a header and no line, whatever was known of the other splits."""
    print_scores({}, {"y": {"loss": {"training": 0.5, "validation": 0.25}}})
    found = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert found == [
        ["OUTPUT", "METRIC", "TRAINING", "VALIDATION", "TEST"],
        ["y", "loss", "0.5", "0.25", "–"],
    ]


def test_training_alone_has_them_too(tmp_path):
    config = data.config(str(tmp_path / "cache"))
    outcome = distcore.train(
        config, data.table(), output_directory=tmp_path / "results", view="none"
    )
    page = Path(outcome.report).read_text()
    assert "<th>metric</th><th>training</th><th>validation</th></tr>" in page


@pytest.mark.parametrize("command", ["train", "experiment"])
def test_scores_of_a_sample_say_so_wherever_they_are_shown(command, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(stretches, "__defaults__", (100,))
    config = data.config(str(tmp_path / "cache"))
    source, table = tmp_path / "config.json", tmp_path / "data.parquet"
    source.write_text(json.dumps(config))
    pq.write_table(data.table(), table)
    words = (command, "--config", source, "--dataset", table, "--output_directory", tmp_path / "r")
    assert main([*map(str, words), "--logging_level", "error"]) == 0
    printed = capsys.readouterr().out
    said = "Training: 100 rows, evenly spread over the split."
    (page,) = (tmp_path / "r").glob("*/report.html")
    assert said in page.read_text()
    summary = json.loads((page.parent / "summary.json").read_text())
    assert summary["split_rows"]["training"] > summary["scored_rows"]["training"] == 100
    if command == "experiment":
        assert said in printed
        outcome = SimpleNamespace(directory=page.parent, training_statistics={}, report=None)
        assert f"<p>{said}" in html_of(outcome)


@pytest.mark.parametrize(
    ("summary", "said"),
    [
        ({}, ""),
        ({"scored_rows": {"training": 5}}, ""),
        ({"scored_rows": {"training": 5}, "headline": None}, ""),
        ({"scored_rows": {"training": 5}, "split_rows": {"training": 5}}, ""),
        (
            {"scored_rows": {"training": 5, "validation": 2}, "headline": {"rows": {"train": 9}}},
            "Training: 5 rows, evenly spread over the split.",
        ),
    ],
)
def test_a_summary_of_before_says_what_it_can(summary, said):
    assert partly_scored(summary) == said


def test_what_training_has_evaluated_itself_is_not_evaluated_again(tmp_path):
    trainer = {"epochs": 2, "batch_size": 32, "evaluate_training_set": True}
    _, _, summary = experiment(tmp_path, trainer=trainer)
    assert "scored_rows" not in summary
    assert "training" in summary["scores"]["y"]["roc_auc"]


@pytest.mark.parametrize("rows", [1, MOST_ROWS, MOST_ROWS + 1, 3 * MOST_ROWS + 7, 10**9])
def test_of_a_large_split_rows_from_all_over_it(rows):
    found = list(stretches(rows))
    assert found[0][0] == 0
    assert found[-1][1] == rows
    assert sum(stop - start for start, stop in found) == min(rows, MOST_ROWS)
    assert all(before[1] <= after[0] for before, after in pairwise(found))
    assert sum(stop - start for start, stop in stretches(rows, 7)) == min(rows, 7)
    many = list(stretches(rows, 200_000))
    assert len(many) == (200 if rows > 200_000 else 1)


def test_each_column_says_what_share_of_its_rows_is_missing_or_unknown(tmp_path):
    inputs = [
        {
            "name": "x0",
            "type": "number",
            "preprocessing": {"missing_value_strategy": "fill_with_mean"},
        },
        {"name": "colour", "type": "category", "preprocessing": {"most_common": 2}},
    ]
    _, _, summary = experiment(tmp_path, input_features=inputs)
    found = {each["name"]: each["missing"] for each in summary["columns"]}
    rows = data.table()
    assert found["x0"] == pytest.approx(rows["x0"].null_count / len(rows))
    rarest = rows["colour"].to_pylist().count("blue")
    assert found["colour"] == pytest.approx(rarest / len(rows))
    assert found["y"] is None


def test_dropped_rows_are_no_zero_of_a_category_and_texts_tell_their_share(tmp_path):
    rows = data.table()
    for name in ("colour", "words", "tags"):
        values = rows[name].to_pylist()[:-60] + [None] * 60
        rows = rows.set_column(rows.schema.get_field_index(name), name, [values])
    dropped = {"preprocessing": {"missing_value_strategy": "drop_row"}}
    filled = {"preprocessing": {"missing_value_strategy": "ffill"}}
    inputs = [
        {"name": "colour", "type": "category", **dropped},
        {"name": "x0", "type": "number", **dropped},
        {"name": "words", "type": "text", **dropped},
        {"name": "tags", "type": "set"},
        {"name": "filled", "column": "tags", "type": "set", **filled},
    ]
    _, _, summary = experiment(tmp_path, table=rows, input_features=inputs)
    found = {each["name"]: each["missing"] for each in summary["columns"]}
    assert (found["colour"], found["filled"]) == (None, None)
    assert found["words"] == pytest.approx(0.1)
    empty = [not each for each in rows["tags"].to_pylist()]  # a set of none is missing
    assert found["tags"] == pytest.approx(sum(empty) / len(rows))
    assert found["x0"] == pytest.approx(rows["x0"].null_count / len(rows))


@pytest.mark.parametrize("strategy", ["fill_with_mode", "ffill"])
def test_what_missing_values_were_filled_with_hides_how_many_there_were(strategy, tmp_path):
    """It was called 0.0 %."""
    filled = {"preprocessing": {"missing_value_strategy": strategy}}
    names = (
        {"colour": "category", "x0": "number"} if strategy == "ffill" else {"colour": "category"}
    )
    inputs = [{"name": name, "type": kind, **filled} for name, kind in names.items()]
    _, outcome, summary = experiment(tmp_path, input_features=inputs)
    found = {each["name"]: each["missing"] for each in summary["columns"]}
    assert {found[name] for name in names} == {None}
    assert "<td class=number>–</td>" in Path(outcome.report).read_text()


def validation_loss(table, output, folder, **trainer):
    """(the kept model's loss of the validation rows as training found it, and as `evaluate` does;
    what it predicts of them)."""
    import pyarrow.compute as pc

    config = {
        "input_features": [{"name": "x", "type": "number"}],
        "output_features": [output],
        "preprocessing": {"split": {"type": "fixed"}},
        "trainer": {"early_stop": 0, **trainer},
        "backend": {"type": "local", "cache_dir": str(folder / "cache")},
    }
    outcome = distcore.experiment(config, table, output_directory=folder / "results", view="none")
    summary = json.loads((Path(outcome.directory) / "summary.json").read_text())
    model, rows = distcore.load(outcome.model), table.filter(pc.equal(table["split"], 1))
    found = model.evaluate(rows)[output["name"]]["loss"]
    return summary["scores"][output["name"]]["loss"]["validation"], found, model.predict(rows)


def splits_of(rows):
    return [row % 3 for row in range(rows)]


def test_the_loss_of_rows_that_a_model_is_sure_of_is_no_float32s(tmp_path):
    """Of a wrong row whose logit is 100 the loss is 100; its probability is 1."""
    import pyarrow as pa

    x = [(row * 7 % 300 - 149.5) / 10 for row in range(300)]
    wrong = [row > 200 and row % 10 == 1 for row in range(300)]
    truth = [int((each > 0) != flipped) for each, flipped in zip(x, wrong, strict=True)]
    table = pa.table({"x": x, "y": truth, "split": splits_of(300)})
    output = {"name": "y", "type": "binary"}
    told, again, _ = validation_loss(
        table, output, tmp_path, epochs=40, learning_rate=0.05, validation_metric="accuracy"
    )
    assert again == pytest.approx(told, rel=1e-5)


def test_the_loss_of_a_root_is_one_of_all_rows_whatever_a_batch_has(tmp_path):
    import numpy as np
    import pyarrow as pa

    values = np.random.default_rng(0).normal(size=(2, 300))
    table = pa.table({"x": values[0], "y": values[0] + 3 * values[1] ** 3, "split": splits_of(300)})
    output = {
        "name": "y",
        "type": "number",
        "loss": {"type": "root_mean_squared_error"},
        "preprocessing": {"normalization": "zscore"},
    }
    told, again, predicted = validation_loss(table, output, tmp_path, epochs=2, eval_batch_size=3)
    truth = table["y"].to_numpy()
    errors = (predicted["y_predictions"].to_numpy() - truth[1::3]) / truth.std(ddof=1)
    assert told == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-4)
    assert again == pytest.approx(told, rel=1e-5)
