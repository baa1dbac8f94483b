"""summary.json: what it says of the best round, and what it looks at for that."""

import json
from pathlib import Path
from types import SimpleNamespace

import distcore
from distcore.workflow import summary_of_test
from distcore.workflow.summary import summary_of
from distcore_core.contracts import TrainResult
from distcore_core.progress import Progress, Round
from distcore_torch import packing, prediction
from distcore_torch.training import scores


def test_the_best_round_is_whole_if_the_trainer_s_result_is_not(tmp_path):
    """The trainers of the documents said {"epoch", "step"}, and the report of their runs was made
    without a headline."""
    progress = Progress()
    progress.tell(
        Round(
            evaluation=1,
            epoch=1.0,
            epochs=1.0,
            step=7,
            metrics={"validation": {"y": {"loss": 0.5}}},
            split="validation",
            feature="y",
            metric="loss",
            value=0.5,
            best=0.5,
            best_evaluation=1,
            patience_left=None,
            seconds=0.1,
        )
    )
    session = SimpleNamespace(
        progress=progress,
        command="train",
        backend_name="local",
        directory=None,
        config=SimpleNamespace(source="", backend=SimpleNamespace(cache_credentials=None)),
    )
    told = {"epoch": 1, "step": 7}
    trained = TrainResult(model=tmp_path, statistics={}, best=told, steps=7, epochs=1.0)
    expected = {**told, "feature": "y", "metric": "loss", "value": 0.5, "evaluation": 1}
    assert summary_of(session, trained)["best"] == expected


def test_a_run_gone_on_with_after_its_last_round_has_the_summary_of_one_that_was_not(place):
    """One that is killed while its results are written: the report had no best evaluation."""
    place.good("experiment")
    path = place.results / "summary.json"
    before = json.loads(path.read_text())
    place.good("experiment", "--model_resume_path", place.results)
    after = json.loads(path.read_text())
    assert before["evaluations"] == before["best"]["evaluation"] == 1
    assert [after[name] for name in ("best", "evaluations", "epochs")] == [
        before[name] for name in ("best", "evaluations", "epochs")
    ]


def test_headline_and_importance_score_and_read_the_main_output_alone(tmp_path, monkeypatch):
    """Of 80 outputs and 40 inputs they took half of an experiment, and the targets of all outputs
    were read once for each."""
    scored: list[str] = []
    read: list[str] = []
    headline, importance, pack = (
        summary_of_test._headline,
        summary_of_test._importance,
        packing.pack,
    )

    class Counted(scores.Scores):
        def update(self, outputs, batch, logits=None):
            scored.extend(each.name for each in self.outputs)
            super().update(outputs, batch, logits)

    def counted_pack(columns, layout, *others, **named):
        read.extend(columns.schema.names)
        return pack(columns, layout, *others, **named)

    def counted(measure):
        def measured(*arguments):
            with monkeypatch.context() as patch:
                patch.setattr(scores, "Scores", Counted)
                patch.setattr(packing, "pack", counted_pack)
                return measure(*arguments)

        return measured

    monkeypatch.setattr(summary_of_test, "_headline", counted(headline))
    monkeypatch.setattr(summary_of_test, "_importance", counted(importance))
    rows = range(60)
    outputs = ["main", "second", "third"]
    config = {
        "input_features": [{"name": name, "type": "number"} for name in ("a", "b")],
        "output_features": [{"name": name, "type": "number"} for name in outputs],
        "trainer": {"epochs": 1},
        "backend": {"type": "local", "cache_dir": str(tmp_path / "caches")},
    }
    data = {name: [row * place for row in rows] for place, name in enumerate(["a", "b", *outputs])}
    outcome = distcore.experiment(config, data, output_directory=str(tmp_path), view="none")
    found = json.loads((Path(outcome.directory) / "summary.json").read_text())
    assert found["headline"]["target"] == "main"
    assert {each["input"] for each in found["importance"]["inputs"]} == {"a", "b"}
    assert scored == ["main"] * 4  # the headline; all inputs; each input dealt out anew
    assert set(read) == {"a", "b", "main"}


def test_an_experiment_predicts_its_test_rows_once(place, monkeypatch):
    """The worst of them were looked for in a pass of their own, which took as long as the test."""
    asked, real = [], prediction.split_batches

    def counted(artifact, reader, split, *more):
        asked.append(split)
        return real(artifact, reader, split, *more)

    monkeypatch.setattr(prediction, "split_batches", counted)
    place.good("experiment")
    assert asked.count("test") == 1
    assert json.loads((place.results / "summary.json").read_text())["worst"]
