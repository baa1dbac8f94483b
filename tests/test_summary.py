"""summary.json: what it says of the best round."""

from types import SimpleNamespace

from distcore.workflow.summary import summary_of
from distcore_core.contracts import TrainResult
from distcore_core.progress import Progress, Round


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
        config=SimpleNamespace(source="", backend=SimpleNamespace(cache_credentials=None)),
    )
    told = {"epoch": 1, "step": 7}
    trained = TrainResult(model=tmp_path, statistics={}, best=told, steps=7, epochs=1.0)
    expected = {**told, "feature": "y", "metric": "loss", "value": 0.5, "evaluation": 1}
    assert summary_of(session, trained)["best"] == expected
