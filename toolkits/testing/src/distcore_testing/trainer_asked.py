"""What a trainer is asked for it must do or refuse: seed, weights to start from, weights of classes
and losses, a run to go on with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from distcore_testing import data
from distcore_testing.app import app
from distcore_testing.elsewhere import said_elsewhere
from distcore_testing.trainer_runs import digests
from distcore_testing.trainer_told import TrainerTold

CHILD = """
import json, sys
from pathlib import Path
from distcore_testing import data
from distcore_testing.app import app
from distcore_testing.trainer_runs import TrainerRuns, digests
Suite = type("Suite", (TrainerRuns,), {})
Suite.name, Suite.options, Suite.trainer, Suite.outputs, folder, model = json.load(sys.stdin)
trained = digests(Suite.trained(Path(folder), trainer=Suite.brief()).model)
predicted = app().load(model).predict(data.table(40, seed=3)).to_pydict()
print("FOUND" + json.dumps([trained, predicted]))
"""


class TrainerAsked(TrainerTold):
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

    @pytest.mark.parametrize("cut", [{"epochs": 2}, {"train_steps": 20}])
    def test_a_run_that_goes_on_ends_as_if_it_had_not_stopped(
        self, tmp_path: Path, cut: dict[str, int]
    ) -> None:
        """After an epoch, and in the midst of one; or it is refused."""
        from distcore_core.errors import DistcoreError

        if not self.deterministic:
            pytest.skip("one seed can give several models")
        longer = {**self.trainer, "epochs": 3}
        longer |= {"steps_per_checkpoint": 5} if "train_steps" in cut else {}
        try:
            first = self.trained(tmp_path / "first", trainer={**longer, **cut})
            resumed = self.trained(tmp_path / "first", trainer=longer, resume=first.directory)
        except DistcoreError:
            return
        whole = self.trained(tmp_path / "whole", trainer=longer)
        assert digests(resumed.model) == digests(whole.model)
        assert resumed.training_statistics == whole.training_statistics

    def test_a_run_that_a_listener_ended_goes_on_as_if_it_had_not_stopped(
        self, heard: tuple[Any, Any], tmp_path: Path
    ) -> None:
        """Or it is refused. How long a trainer trains may be an option of its own, which the
        test above does not know."""
        from distcore_core.errors import DistcoreError

        if not self.deterministic:
            pytest.skip("one seed can give several models")
        first, _ = self._listened_to(tmp_path, answer="It is enough.")
        try:
            resumed = self.trained(tmp_path, trainer=self.brief(), resume=first.directory)
        except DistcoreError:
            return
        why = "a run that a listener ended is not over: go on with it, or refuse it"
        assert digests(resumed.model) == digests(heard[0].model), why
        assert resumed.training_statistics == heard[0].training_statistics, why

    def test_another_process_trains_and_predicts_the_same(
        self, outcome: Any, short: dict[str, str], tmp_path: Path
    ) -> None:
        """With other hashes, and with nothing of the training in memory."""
        asked = [self.name, self.options, self.trainer, self.outputs, str(tmp_path)]
        given = json.dumps([*asked, str(outcome.model)], default=dict)
        trained, predicted = json.loads(said_elsewhere(CHILD, given=given).rpartition("FOUND")[2])
        assert not self.deterministic or trained == short, "another process trains another model"
        here = app().load(outcome.model).predict(data.table(40, seed=3)).to_pydict()
        assert list(predicted) == list(here)
        for name, values in here.items():
            if all(isinstance(value, float) for value in values):
                values = pytest.approx(values, rel=1e-4, abs=1e-5)
            assert predicted[name] == values, (
                f"another process predicts another {name}: not all of the model is in its files"
            )
