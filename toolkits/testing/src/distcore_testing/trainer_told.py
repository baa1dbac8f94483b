"""What a trainer must tell, what it must hear, and what it must leave as it is: checked by an
extension that listens to its runs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from distcore_testing import data
from distcore_testing.app import app
from distcore_testing.diary import lengths
from distcore_testing.installed import lay_metadata
from distcore_testing.trainer_runs import TrainerRuns, digests

Events = list[dict[str, Any]]


class TrainerTold(TrainerRuns):
    """See `TrainerSuite`."""

    @classmethod
    def _listened_to(
        cls, folder: Path, answer: str = "", trainer: Any = None, **asked: Any
    ) -> tuple[Any, Events]:
        """A short training, and what a listener in it heard. answer: to every evaluation. trainer:
        that section. asked: more arguments of `distcore.train`."""
        diary = folder / "diary.jsonl"
        listener = {"type": "distcore-testing-diary", "path": str(diary), "answer": answer}
        with _diary_installed(folder / "site"):
            config = cls.config(folder, trainer=trainer or cls.brief(), extensions=[listener])
            outcome = cls._trained(config, folder, **asked)
        return outcome, [json.loads(line) for line in diary.read_text().splitlines()]

    @pytest.fixture(scope="class")
    @classmethod
    def heard(cls, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Events]:
        """The outcome of a short training, and what a listener heard."""
        return cls._listened_to(tmp_path_factory.mktemp("heard"))

    # -------------------------------------------------------------- what it tells

    def test_listeners_hear_of_evaluations_and_checkpoints(self, heard: tuple[Any, Events]) -> None:
        """In whichever process it trains: each with scores of the run, and folders that are
        there."""
        from distcore_data.stores.run_sync import CHECKPOINTS

        outcome, told = heard
        rounds = _of("epoch_finished", told)
        assert rounds, "no evaluation was told: call `OpenJob.tell_epoch` after each"
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
        saved = _of("checkpoint_saved", told)
        names = {Path(each["directory"]).name for each in saved}
        kept = {each.name for each in _folders(outcome.directory / CHECKPOINTS)}
        assert kept <= names, (
            f"nobody was told of the checkpoints {sorted(kept - names)}: call "
            "`distcore_torch.tell_checkpoint` once each is whole"
        )
        for each in saved:
            assert each["files"], f"{each['directory']} is empty when it is told"
            if Path(each["directory"]).is_dir():
                assert lengths(each["directory"]) == each["files"], (
                    f"{each['directory']} was told before it was whole"
                )

    def test_the_model_that_is_kept_is_that_of_the_best_evaluation(self, tmp_path: Path) -> None:
        """The best of the metric that was asked for, with a learning rate at which the last is
        seldom the best; or the trainer refuses to judge by it, or judges by its own."""
        from distcore_core.errors import DistcoreError
        from distcore_data.seals import read_lines

        judge = {"validation_field": "y", "validation_metric": "accuracy"}
        section = {**self.trainer, "epochs": 8, "learning_rate": 0.1, **judge}
        try:
            outcome, told = self._listened_to(tmp_path, trainer=section)
        except DistcoreError:
            return
        [fit] = _of("fit", told)
        best, lines = fit["best"], list(read_lines(outcome.directory / "training_log.jsonl"))
        field, metric = best["feature"], best["metric"]
        judged = [each["value"] for each in lines if each["value"] is not None]
        if (field, metric) == ("y", "accuracy") and not any(each["scored"] for each in lines):
            assert best["value"] == max(judged), "an evaluation with a higher accuracy was not kept"
        rows = data.table().slice(400, 100)
        found = app().evaluate(outcome.model, rows, output_directory=tmp_path / "scores")
        assert found[field][metric] == pytest.approx(best["value"], rel=1e-3, abs=1e-5), (
            f"the model has another {metric} of {field} than `TrainResult.best` says"
        )

    def test_every_evaluation_is_in_the_training_log(self, heard: tuple[Any, Events]) -> None:
        """`Progress.tell` brings it there, to the lines that people read, and to searches."""
        from distcore_data.seals import read_lines

        outcome, told = heard
        log = outcome.directory / "training_log.jsonl"
        assert log.exists(), (
            "training_log.jsonl is missing: call `progress.tell(Round(…))` after each evaluation"
        )
        lines = list(read_lines(log))
        rounds = {each["step"]: each["metrics"] for each in _of("epoch_finished", told)}
        assert [each["step"] for each in lines] == list(rounds), (
            "`progress.tell` and `OpenJob.tell_epoch` were not told of the same steps"
        )
        numbers = [each["evaluation"] for each in lines]
        assert all(1 <= before < after for before, after in pairwise([*numbers, numbers[-1] + 1]))
        for each in lines:
            assert 0 < each["epoch"] <= each["epochs"]
            assert each["metrics"] == rounds[each["step"]]
            scores = each["metrics"][each["split"]]
            assert each["value"] == scores[each["feature"]].get(each["metric"])
            assert each["best_evaluation"] is None or each["best_evaluation"] <= each["evaluation"]

    # -------------------------------------------------------------- what it hears

    def test_training_ends_where_a_listener_asks_it_to(
        self, heard: tuple[Any, Events], tmp_path: Path
    ) -> None:
        """With its model, and no step later than the evaluation that was answered: the model has
        the scores that were told of it, so nothing was learned in silence."""
        steps = [each["step"] for each in _of("epoch_finished", heard[1])]
        if len(steps) < 2:
            pytest.skip("the only evaluation is at the end of training")
        outcome, told = self._listened_to(tmp_path, answer="It is enough.")
        later = [each["step"] for each in _of("epoch_finished", told) if each["step"] > steps[0]]
        assert not later, (
            f"asked to end after step {steps[0]}, it evaluated at steps {later}: end training if "
            "`OpenJob.tell_epoch` returns a text"
        )
        assert outcome.model.is_dir()
        rows, last = data.table().slice(400, 100), _of("epoch_finished", told)[-1]["metrics"]
        found = app().evaluate(outcome.model, rows, output_directory=tmp_path / "scores")
        for output, metrics in last["validation"].items():
            for name, value in metrics.items():
                if value is None or name not in found.get(output, {}):
                    continue
                assert found[output][name] == pytest.approx(value, rel=1e-3, abs=1e-5), (
                    f"asked to end, it left another model than the one whose {name} of {output} it "
                    "had told: train no further"
                )

    def test_no_checkpoint_is_written_if_none_is_to_be_kept(
        self, heard: tuple[Any, Events], tmp_path: Path
    ) -> None:
        """Under whatever names it writes them."""
        from distcore_data.stores.run_sync import CHECKPOINTS

        outcome, told = self._listened_to(tmp_path, skip=("skip_save_progress",))
        names = {Path(each["directory"]).name for each in _of("checkpoint_saved", heard[1])}
        found = {each for each in outcome.directory.rglob("*") if each.name in names}
        found.update(_folders(outcome.directory / CHECKPOINTS))
        left = sorted(str(each.relative_to(outcome.directory)) for each in found)
        assert not left, f"`job.save_checkpoints` is False, and these were written: {left}"
        assert not _of("checkpoint_saved", told)

    # -------------------------------------------------------------- what it leaves as it is

    def test_the_config_and_the_process_stay_as_they_are(self, heard: tuple[Any, Events]) -> None:
        """Others work with them after `fit`: random numbers, threads, the environment. Nobody does
        with those of a worker group's ranks, which end with it."""
        [fit] = _of("fit", heard[1])
        assert not fit["changed"], (
            f"`fit` left changed: {', '.join(fit['changed'])}. If a library does so when it is "
            "imported, as scikit-learn does, import it in the module that the factory imports"
        )

    def test_only_rows_of_the_training_split_are_learned(self, tmp_path: Path) -> None:
        """Others may judge. So with every validation row twice, which leaves its scores as they
        are, and with targets of other rows in the test split, the model is the same."""
        import pyarrow as pa

        if not self.deterministic:
            pytest.skip("one seed can give several models")
        table = data.table()
        validation, rest = table.slice(400, 100), table.slice(500)
        targets = [each["name"] for each in self.outputs]
        for name in targets:
            column = rest.column(name)
            moved = pa.concat_arrays(
                [column.slice(1).combine_chunks(), column[:1].combine_chunks()]
            )
            rest = rest.set_column(rest.schema.get_field_index(name), name, moved)
        twice = validation.take([row // 2 for row in range(200)])
        # Statistics of columns are of all splits: both runs have the same values in each column.
        models = []
        for held, tested in (
            (validation, pa.concat_tables([validation, table.slice(500)])),
            (twice, rest),
        ):
            folder = tmp_path / str(held.num_rows)
            config = self.config(folder, trainer=self.brief())
            splits = (table.slice(0, 400), held, tested)
            models.append(digests(self._trained(config, folder, splits).model))
        assert models[0] == models[1], (
            "the model depends on rows of the validation or test split: weights are learned from "
            '`batches("train")` alone'
        )

    def test_what_was_trained_before_changes_nothing(
        self, short: dict[str, str], tmp_path: Path
    ) -> None:
        """A process may train several models: nothing of one is a default of the next."""
        from distcore_core.errors import DistcoreError

        if not self.deterministic:
            pytest.skip("one seed can give several models")
        first, *others = (dict(each) for each in reversed(self.outputs))
        trainer = {**self.brief(), "epochs": 1, "batch_size": 64, "learning_rate": 0.003}
        with suppress(DistcoreError):
            outputs = [{**first, "loss": {"weight": 25.0}}, *others]
            self.trained(tmp_path / "other", seed=43, trainer=trainer, output_features=outputs)
        again = self.trained(tmp_path / "again", trainer=self.brief())
        assert digests(again.model) == short, (
            "after a training of another config, the same config gave another model: look for "
            "mutable defaults of arguments and of classes"
        )


def _of(event: str, told: Events) -> Events:
    return [each for each in told if each["event"] == event]


def _folders(folder: Path) -> Sequence[Path]:
    """Of checkpoints, whatever they are called; one that begins with a dot is being written."""
    found = folder.iterdir() if folder.is_dir() else ()
    return [each for each in found if each.is_dir() and not each.name.startswith(".")]


@contextmanager
def _diary_installed(site: Path) -> Iterator[None]:
    """Make `distcore_testing.diary` an extension of this process and of those that it starts."""
    name = "distcore-testing-diary"
    lay_metadata(site, name, {"extensions": {name: "distcore_testing.diary"}})
    paths = filter(None, [str(site), os.environ.get("PYTHONPATH")])
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(site))
        patched.setenv("PYTHONPATH", os.pathsep.join(paths))
        yield
