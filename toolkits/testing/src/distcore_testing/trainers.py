"""What every trainer must hold: it fits, and its model is saved whole without pickle and
predicts the same again."""

from __future__ import annotations

import hashlib
import json
import math
import zipfile
from pathlib import Path
from typing import Any

import pytest

from distcore_testing import data
from distcore_testing.app import app
from distcore_testing.trainer_asked import TrainerAsked
from distcore_testing.trainer_runs import digests
from distcore_testing.watch import Watch

WRITTEN = (
    "training_statistics.json",
    "test_statistics.json",
    "predictions.parquet",
    "report.html",
    "description.json",
)


class TrainerSuite(TrainerAsked):
    """Subclass with `name`, and `options` of `backend.trainer`.

    trainer: the `trainer` section of the config. outputs: what it can predict, of a binary y, a
    category k and a number z. accuracy: what it must reach on y, where a constant reaches 0.6.
    deterministic: set it to False if one seed can give several models. random: set it to False if
    no random number is used, so that every seed gives the same. weighs_losses: set it to False if
    each output is fitted by itself, so that the weight of its loss changes nothing.
    """

    def test_it_learns(self, outcome: Any) -> None:
        assert outcome.test_statistics["y"]["accuracy"] >= self.accuracy

    def test_every_output_is_learned(self, outcome: Any) -> None:
        """Better than the best constant; classes are the column's own, and not each other's."""
        import numpy as np

        found, table = outcome.test_statistics, data.table()
        names = {each["name"] for each in self.outputs}
        if "k" in names:
            assert found["k"]["accuracy"] > 0.5  # the mean over its three classes
        if "z" in names:
            z = table["z"].to_numpy()
            assert found["z"]["mean_absolute_error"] < 0.9 * np.abs(z - np.median(z)).mean()

    def test_the_scores_are_those_of_the_predictions(self, outcome: Any, tmp_path: Path) -> None:
        """Of every output, computed anew from what the saved model predicts."""
        import numpy as np

        table = data.table(200, seed=5)
        scores = app().evaluate(outcome.model, table, output_directory=tmp_path)
        predicted = app().load(outcome.model).predict(table)
        for each in self.outputs:
            name = each["name"]
            truth = np.asarray(table[name].to_pylist())
            found = np.asarray(predicted[f"{name}_predictions"].to_pylist())
            if each["type"] == "number":
                error = np.abs(found.astype(float) - truth).mean()
                assert scores[name]["mean_absolute_error"] == pytest.approx(error, rel=1e-3), name
                continue
            found, truth = found.astype(str), truth.astype(str)
            right = (found == truth).mean()
            if each["type"] == "category":  # the mean over its classes
                right = np.mean([(found[truth == one] == one).mean() for one in np.unique(truth)])
            assert scores[name]["accuracy"] == pytest.approx(right, abs=1e-6), name

    def test_the_cache_and_the_dataset_stay_as_they_are(self, tmp_path: Path) -> None:
        import pyarrow.csv

        dataset = tmp_path / "data.csv"
        pyarrow.csv.write_csv(data.table(300), dataset)
        config = self.config(tmp_path, trainer=self.brief())
        app().preprocess(config, dataset=str(dataset))

        def contents() -> dict[str, str]:
            files = [dataset, *(tmp_path / "cache").rglob("*")]
            rows = [path for path in files if path.is_file() and path.suffix != ".lock"]
            return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in rows}

        before = contents()
        app().train(config, dataset=str(dataset), output_directory=tmp_path / "results")
        after = contents()
        assert {path: after.get(path) for path in before} == before

    def test_a_model_is_loaded_without_unpickling(
        self, outcome: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whatever it is wrapped in: nothing that a file says is run."""
        model = outcome.model
        app().load(model).predict(data.table(3))  # what is imported for it is imported now
        watch = Watch(monkeypatch.setattr)
        with watch:
            assert app().load(model).predict(data.table(3)).num_rows == 3
        read = sorted(each for each in watch.found if each.startswith("pickle."))
        assert not read, f"a pickle was read: {'; '.join(read)}"

    def test_it_leaves_a_whole_experiment(self, outcome: Any) -> None:
        assert all((outcome.directory / name).stat().st_size > 0 for name in WRITTEN)
        assert outcome.model == outcome.directory / "model"
        assert set(outcome.test_statistics) - {"combined"} == {
            each["name"] for each in self.outputs
        }

    def test_statistics_are_a_value_an_evaluation(self, outcome: Any) -> None:
        """{split: {output feature: {metric: [numbers]}}}, as many of each metric of a split."""
        statistics = json.loads((outcome.directory / "training_statistics.json").read_text())
        assert {"training", "validation"} <= set(statistics) <= {"training", "validation", "test"}
        for outputs in statistics.values():
            curves = [curve for metrics in outputs.values() for curve in metrics.values()]
            assert curves
            assert len({len(curve) for curve in curves}) == 1
            assert all(value is None or math.isfinite(value) for curve in curves for value in curve)
        assert {each["name"] for each in self.outputs} <= set(statistics["validation"])

    def test_a_loaded_model_predicts_every_row_in_order(self, outcome: Any) -> None:
        """Whatever else is in the batch, and the probabilities of classes are probabilities."""
        import numpy as np

        table = data.table(50, seed=9)
        model = app().load(outcome.model)
        whole = model.predict(table)
        part = model.predict(table.slice(20, 5))
        assert whole.num_rows == 50
        for name in whole.column_names:
            expected, found = whole[name].slice(20, 5).to_pylist(), part[name].to_pylist()
            same = (
                np.allclose(expected, found, atol=1e-5)
                if isinstance(found[0], float)
                else expected == found
            )
            assert same, name
        for each in self.outputs:
            prefix = f"{each['name']}_probabilities_"
            classes = [
                whole[name].to_numpy() for name in whole.column_names if name.startswith(prefix)
            ]
            assert (each["type"] == "number") != bool(classes)
            if classes:
                assert np.allclose(sum(classes), 1.0, atol=1e-4)
                assert min(column.min() for column in classes) >= 0.0

    def test_evaluating_the_saved_model_gives_the_same_scores(
        self, outcome: Any, tmp_path: Path
    ) -> None:
        """On the very rows of the test split: what is read back is what was trained."""
        import pyarrow as pa

        from distcore_data.cache import open_cache

        config = self.config(outcome.directory.parent.parent)
        with open_cache(app().preprocess(config, dataset=data.table())) as reader:
            rows = pa.array(reader.row_numbers("test"))
        scores = app().evaluate(outcome.model, data.table().take(rows), output_directory=tmp_path)
        for output, metrics in outcome.test_statistics.items():
            for name, value in metrics.items():
                assert scores[output][name] == pytest.approx(value, rel=1e-4, abs=1e-6), (
                    output,
                    name,
                )

    def test_the_same_seed_gives_the_same_model(self, outcome: Any, tmp_path: Path) -> None:
        again = self.experiment(tmp_path)
        if self.deterministic:
            assert digests(again.model) == digests(outcome.model)
            assert again.test_statistics == outcome.test_statistics

    def test_without_a_validation_split(self, tmp_path: Path) -> None:
        """A user with few rows trains on all but the test rows."""
        preprocessing = {"split": {"type": "random", "probabilities": [0.8, 0.0, 0.2]}}
        trainer = {"epochs": 1, "batch_size": 64, "learning_rate": 0.01}
        outcome = self.experiment(tmp_path, preprocessing=preprocessing, trainer=trainer)
        assert outcome.test_statistics["y"]["accuracy"] is not None

    def test_the_plan_is_json_and_changes_nothing(self, outcome: Any) -> None:
        before = _tree(outcome.directory.parent.parent)
        config = self.config(outcome.directory.parent.parent)
        described = app().plan(config, dataset=data.table())["training"]
        assert json.loads(json.dumps(described)) == described
        assert described["workers"] >= 1
        assert isinstance(described["notes"], list)
        assert _tree(outcome.directory.parent.parent) == before

    def test_nothing_saved_is_a_pickle(self, outcome: Any) -> None:
        for path in outcome.directory.rglob("*"):
            if path.is_file():
                head = path.read_bytes()[:2]
                assert not (head[:1] == b"\x80" and head[1:] in b"\x02\x03\x04\x05"), path
                inside = zipfile.ZipFile(path).namelist() if zipfile.is_zipfile(path) else []
                assert not [name for name in inside if name.endswith((".pkl", ".pickle"))], path

    def test_a_model_that_was_cut_is_refused(self, outcome: Any, tmp_path: Path) -> None:
        import shutil

        from distcore_core.errors import ArtifactError

        copy = shutil.copytree(outcome.model, tmp_path / "model")
        saved = [path for path in copy.iterdir() if path.name != "model.json"]
        assert saved, "the trainer saved nothing through write_artifact"
        for path in saved:
            whole = path.read_bytes()
            path.write_bytes(whole[:-1])
            with pytest.raises(ArtifactError, match=path.name):
                app().load(copy)
            path.write_bytes(whole)
        assert app().load(copy).predict(data.table(3)).num_rows == 3


def _tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Length and time of every file below."""
    found = {path: path.stat() for path in sorted(folder.rglob("*"))}
    return {
        str(path): (each.st_size, each.st_mtime_ns)
        for path, each in found.items()
        if path.is_file()
    }
