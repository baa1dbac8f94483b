"""What a trainer is asked for it must do or refuse: seed, weights to start from, weights of classes
and losses, a run to go on with; and the run's listeners must hear of it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from distcore_testing.trainer_runs import TrainerRuns, digests


class TrainerAsked(TrainerRuns):
    """See `TrainerSuite`."""

    def honoured(self, short: dict[str, str], folder: Path, **asked: Any) -> bool:
        """Whether a short training so asked gives another model; what is refused, by an error of
        distcore's, counts too."""
        from distcore_core.errors import DistcoreError

        try:
            outcome = self.trained(folder, **{"trainer": self.brief(), **asked})
        except DistcoreError as error:
            return bool(str(error))
        return digests(outcome.model) != short

    def test_the_seed_matters(self, short: dict[str, str], tmp_path: Path) -> None:
        if not self.random:
            pytest.skip("the trainer uses no random numbers")
        outcome = self.trained(tmp_path, seed=43, trainer=self.brief())
        assert digests(outcome.model) != short

    def test_initial_weights_are_honoured_or_refused(
        self, outcome: Any, short: dict[str, str], tmp_path: Path
    ) -> None:
        assert self.honoured(short, tmp_path, model=outcome.model)

    def test_class_weights_are_honoured_or_refused(
        self, short: dict[str, str], tmp_path: Path
    ) -> None:
        if not any(each["type"] == "category" for each in self.outputs):
            pytest.skip("the trainer predicts no category")
        weights = {"class_weights": {"low": 20.0, "mid": 1.0, "high": 1.0}}
        outputs = [
            {**each, "loss": weights} if each["type"] == "category" else dict(each)
            for each in self.outputs
        ]
        assert self.honoured(short, tmp_path, output_features=outputs)

    def test_weights_of_losses_are_honoured_or_refused(
        self, short: dict[str, str], tmp_path: Path
    ) -> None:
        if not self.weighs_losses or len(self.outputs) < 2:
            pytest.skip("each output is fitted by itself")
        first, *others = (dict(each) for each in self.outputs)
        outputs = [{**first, "loss": {"weight": 25.0}}, *others]
        assert self.honoured(short, tmp_path, output_features=outputs)

    def test_a_run_to_go_on_with_is_honoured_or_refused(
        self, outcome: Any, short: dict[str, str], tmp_path: Path
    ) -> None:
        """One of other rows and more epochs: to begin anew would give the short run's model."""
        if not self.deterministic:
            pytest.skip("one seed can give several models")
        copy = shutil.copytree(outcome.directory, tmp_path / "before")
        assert self.honoured(short, tmp_path, resume=copy)

    def test_a_run_that_goes_on_ends_as_if_it_had_not_stopped(self, tmp_path: Path) -> None:
        """Or is refused."""
        from distcore_core.errors import DistcoreError

        if not self.deterministic:
            pytest.skip("one seed can give several models")
        longer = {**self.trainer, "epochs": 3}
        first = self.trained(tmp_path / "first", trainer=self.brief())
        try:
            resumed = self.trained(tmp_path / "first", trainer=longer, resume=first.directory)
        except DistcoreError:
            return
        whole = self.trained(tmp_path / "whole", trainer=longer)
        assert digests(resumed.model) == digests(whole.model)
        assert resumed.training_statistics == whole.training_statistics

    def test_listeners_hear_of_evaluations_and_checkpoints(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In whichever process it trains: each with scores of the run, and folders that are
        there."""
        from distcore_data.stores.run_sync import CHECKPOINTS

        listener = {"type": "distcore-testing-diary", "path": str(tmp_path / "diary.jsonl")}
        _install_diary(tmp_path / "site", monkeypatch)
        outcome = self.trained(tmp_path, trainer=self.brief(), extensions=[listener])
        told = [json.loads(line) for line in Path(listener["path"]).read_text().splitlines()]
        rounds = [each for each in told if each["event"] == "epoch_finished"]
        assert rounds, "no evaluation was told: call `tell_epoch`"
        steps = [each["step"] for each in rounds]
        assert steps == sorted(set(steps))
        assert min(steps) >= 1
        assert [each["epoch"] for each in rounds] == sorted(each["epoch"] for each in rounds)
        curves = outcome.training_statistics["validation"]
        for each in rounds:
            assert each["directory"] == str(outcome.directory)
            found = each["metrics"]["validation"]
            assert {output["name"] for output in self.outputs} <= set(found)
            for output, metrics in found.items():
                for name, value in metrics.items():
                    assert value in curves.get(output, {}).get(name, [value]), (output, name)
        saved = [each for each in told if each["event"] == "checkpoint_saved"]
        kept = [path.name for path in (outcome.directory / CHECKPOINTS).glob("step-*")]
        assert set(kept) <= {Path(each["directory"]).name for each in saved}
        assert all(each["whole"] for each in saved)


def _install_diary(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `distcore_testing.diary` an extension of this process and of those that it starts."""
    info = site / "distcore_testing_diary-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: distcore-testing-diary\nVersion: 1.0\n"
    )
    (info / "entry_points.txt").write_text(
        "[distcore.extensions]\ndistcore-testing-diary = distcore_testing.diary\n"
    )
    monkeypatch.syspath_prepend(str(site))
    paths = filter(None, [str(site), os.environ.get("PYTHONPATH")])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
