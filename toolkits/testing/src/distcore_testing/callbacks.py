"""What every callback of the training loop must hold: it changes what is trained or saved, in every
rank alike, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from distcore_core.contracts import BACKEND, Rank, WorkerGroup
from distcore_core.registry.manager import Plugins

if TYPE_CHECKING:
    from distcore_testing.loops import TinyRun

STEPS = {"batch_size": 16, "learning_rate": 0.05, "optimizer": "sgd", "early_stop": -1}
"""Ten steps an epoch on 160 rows."""


class CallbackSuite:
    """Subclass with `name`, and `options` if needed.

    strategy: "module:function" of the ranks, with backend and its backend_options.
    worlds: the numbers of ranks whose exact run is compared with that of one process.
    """

    name: str
    options: Mapping[str, Any] = {}
    strategy = "distcore_local.data_parallel:DataParallel"
    backend = "local"
    backend_options: Mapping[str, Any] = {}
    worlds: tuple[int, ...] = (2,)

    @classmethod
    def run(cls, folder: Path | None = None, **changes: Any) -> TinyRun:
        """A run of 30 steps with it. changes: of the `trainer` section."""
        from distcore_testing.loops import TinyRun

        section = {"callbacks": [{"type": cls.name, **cls.options}]}
        checkpoints = str(folder) if folder is not None else None
        options = {**STEPS, **section, **changes}
        return TinyRun(options, rows=160, checkpoints=checkpoints, norm=True)

    @classmethod
    def found(cls, folder: Path | None = None, **changes: Any) -> dict[str, Any]:
        """What a run in this process ends with."""
        return bits_of(Rank(), cls.run(folder, **changes))

    @pytest.fixture(scope="class")
    @classmethod
    def whole(cls) -> dict[str, Any]:
        """The run that others are compared with."""
        return cls.found()

    def test_it_changes_what_is_trained_or_saved(self, whole: dict[str, Any]) -> None:
        assert whole["last"] != self.found(callbacks=[])["last"]

    def test_the_same_run_again_has_the_same_bits(self, whole: dict[str, Any]) -> None:
        assert self.found() == whole

    def test_an_evaluation_leaves_training_as_it_is(self, whole: dict[str, Any]) -> None:
        """However often there is one."""
        often = self.found(steps_per_checkpoint=3)
        assert often["trained"] == whole["trained"]
        assert often["last"] == whole["last"]

    def test_an_evaluation_that_fails_leaves_the_weights_as_they_are(self) -> None:
        from distcore_testing.loops import TinyNet
        from distcore_testing.ranks import bits
        from distcore_torch.roles import CALLBACK

        module = TinyNet(norm=True)
        made: Any = Plugins().make(CALLBACK, self.name, dict(self.options), module=module)
        for step in (1, 2):
            for each in module.parameters():
                each.data.mul_(0.5)
            made.after_step(step)
        before = bits(module)
        with suppress(ZeroDivisionError), made.around_evaluation():
            raise ZeroDivisionError
        assert bits(module) == before

    def test_what_is_best_is_what_was_evaluated(self) -> None:
        """The weights of the best round are those that the last round would have evaluated."""
        found = self.found(epochs=1)
        assert found["best"] == found["last"]

    def test_a_run_that_goes_on_from_a_checkpoint_has_the_same_bits(self, tmp_path: Path) -> None:
        """In the middle of an epoch, and of its rounds."""
        undisturbed = self.found(tmp_path / "whole", steps_per_checkpoint=4)
        self.found(tmp_path / "cut", steps_per_checkpoint=4, train_steps=12)
        assert self.found(tmp_path / "cut", steps_per_checkpoint=4) == undisturbed

    def test_an_exact_run_has_the_same_bits_for_any_number_of_ranks(self) -> None:
        from dataclasses import replace

        run = self.run(exact=True)
        alone = bits_of(Rank(), run)
        backend = Plugins().make(BACKEND, self.backend, self.backend_options)
        try:
            for world in self.worlds:
                arguments = (replace(run, strategy=self.strategy),)
                group = WorkerGroup(function=bits_of, arguments=arguments, ranks=world, threads=1)
                for index, found in enumerate(backend.run_group(group)):
                    assert found["trained"] == alone["trained"], f"rank {index} of {world}"
                    assert found["last"] == alone["last"], f"rank {index} of {world}"
                    assert found["statistics"] == alone["statistics"], f"rank {index} of {world}"
        finally:
            backend.close()


def bits_of(rank: Rank, run: TinyRun) -> dict[str, Any]:
    """What a rank ends with: the weights that were trained, the last and the best that were
    evaluated, as bytes, and the scores. It goes on from the run's checkpoints, if there are any."""
    from distcore_testing.loops import make_strategy, tiny_loop
    from distcore_testing.ranks import bits

    strategy = make_strategy(run.strategy)
    strategy.setup(rank)
    try:
        loop, _, _ = tiny_loop(run, strategy)
        if run.checkpoints is not None and any(Path(run.checkpoints).glob("step-*")):
            loop.resume(Path(run.checkpoints))
        finished = loop.run()
    finally:
        strategy.teardown()
    return {
        "trained": bits(loop.work.module),
        "last": {name: each.numpy().tobytes() for name, each in finished.last_weights.items()},
        "best": {name: each.numpy().tobytes() for name, each in finished.best_weights.items()},
        "statistics": finished.state.as_json()["statistics"],
    }
