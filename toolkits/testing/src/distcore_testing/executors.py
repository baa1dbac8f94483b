"""What every executor must hold: each trial runs once, with parameters of the space that the seed
and the goal decide; a bad trial is its own affair."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import pytest

from distcore_core.contracts import BACKEND, EXECUTOR, Axis, Backend, SearchJob
from distcore_core.errors import ConfigError
from distcore_core.registry.manager import Plugins
from distcore_search.objective import Objective
from distcore_search.records import ENDED, read_record
from distcore_testing.rank_jobs import until
from distcore_testing.trial_jobs import (
    ROUNDS_OF_SLOW,
    QuickWork,
    most_at_once,
    quick_trial,
    search_in_a_group,
)

AXES = {
    "rate": Axis(kind="float", low=1e-4, high=1.0, log=True),
    "share": Axis(kind="float", low=0.0, high=1.0, step=0.25),
    "layers": Axis(kind="int", low=1, high=8),
    "kind": Axis(kind="choice", low=0, high=2),
}


class ExecutorSuite:
    """Subclass with `name`, and `options` if needed.

    backend: which backend the trials are beside, with backend_options. asked: False if the executor
    cannot choose parameters one after another (`variants` are then always given). stops: an
    `executor.scheduler` that stops a trial whose first rounds are worse than the others'. stopping:
    False if it lets every trial run to its end.
    """

    name: str
    options: Mapping[str, Any] = {}
    backend = "local"
    backend_options: Mapping[str, Any] = {}
    asked = True
    stopping = True
    stops: Mapping[str, Any] = MappingProxyType(
        {"type": "async_hyperband", "grace_period": 1, "reduction_factor": 2, "max_t": 100}
    )

    @pytest.fixture
    def place(self) -> Iterator[Backend]:
        made = Plugins().make(BACKEND, self.backend, self.backend_options)
        yield made
        made.close()

    def make(self, **more: Any) -> Any:
        return Plugins().make(EXECUTOR, self.name, {**self.options, **more})

    def job(
        self,
        folder: Path,
        variants: Any,
        trials: int = 4,
        mode: str = "well",
        goal: Literal["minimize", "maximize"] = "minimize",
        together: int = 1,
        **more: Any,
    ) -> SearchJob:
        """A search of trials that only write down what they were given; mode: see `quick_trial`."""
        objective = Objective("y", "loss", goal)
        work = QuickWork(
            parameters={}, objective=objective, directory=folder, mode=mode, together=together
        )
        known = None if variants is None else tuple(variants)
        count = trials if known is None else len(known)
        return SearchJob(
            function=quick_trial,
            work=work,
            axes=AXES,
            variants=known,
            trials=count,
            goal=goal,
            directory=folder,
            **more,
        )

    def variants(self, count: int = 4) -> list[dict[str, Any]]:
        return [
            {"rate": 0.001 * (each + 1), "share": 0.25, "layers": each + 1, "kind": each % 3}
            for each in range(count)
        ]

    def records(self, job: SearchJob) -> dict[str, Any]:
        folder = job.directory / "trials"
        return {path.name: read_record(path) for path in sorted(folder.iterdir())}

    # -------------------------------------------------------------- plans

    def test_it_says_how_many_run_at_once_and_who_chooses(
        self, place: Backend, tmp_path: Path
    ) -> None:
        planned = self.make(max_concurrent_trials=2).plan(
            self.job(tmp_path, self.variants()), place
        )
        assert planned["at_once"] == 2
        assert planned["algorithm"]
        assert all(isinstance(note, str) for note in planned["notes"])
        assert list(tmp_path.iterdir()) == []

    def test_an_unknown_option_and_a_scheduler_that_nobody_carries_out_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="num_sampels"):
            self.make(num_sampels=2)
        with pytest.raises(ConfigError, match=r"pbt.*async_hyperband"):
            self.make(scheduler={"type": "pbt"})

    # -------------------------------------------------------------- trials

    def test_every_trial_runs_once_with_its_own_parameters(
        self, place: Backend, tmp_path: Path
    ) -> None:
        job, told, states = self.job(tmp_path, self.variants()), list[str](), set[str]()

        def hear(name: str) -> None:
            told.append(name)
            states.add(read_record(job.work.folder(name)).get("state", "none"))

        self.make(max_concurrent_trials=2).run(job, place, hear)
        found = self.records(job)
        assert sorted(told) == sorted(found)
        assert states <= set(ENDED), "it tells of a trial whose record is not final"
        assert sorted(
            (each["raw"] for each in found.values()), key=lambda raw: raw["layers"]
        ) == list(job.variants or ())
        assert {each["state"] for each in found.values()} == {"finished"}
        assert {each["attempts"] for each in found.values()} == {1}

    def test_what_it_chooses_itself_is_of_the_space(self, place: Backend, tmp_path: Path) -> None:
        if not self.asked:
            pytest.skip("it chooses nothing itself")
        job = self.job(
            tmp_path, None, trials=6, points=({"layers": 7},), algorithm={"type": "optuna"}
        )
        self.make(max_concurrent_trials=2).run(job, place, lambda name: None)
        chosen = [each["raw"] for each in self.records(job).values()]
        assert len(chosen) == 6
        assert all(
            1e-4 <= raw["rate"] <= 1.0 and raw["layers"] in range(1, 9) and raw["kind"] in (0, 1, 2)
            for raw in chosen
        )
        assert all(raw["share"] in (0, 0.25, 0.5, 0.75, 1.0) for raw in chosen)
        assert any(raw["layers"] == 7 for raw in chosen)
        assert len({raw["rate"] for raw in chosen}) == 6

    def test_the_seed_decides_what_it_chooses(self, place: Backend, tmp_path: Path) -> None:
        """And the number of trials is the one that was asked for."""
        if not self.asked:
            pytest.skip("it chooses nothing itself")
        found = []
        for number, seed in enumerate((5, 5, 6)):
            folder = tmp_path / str(number)
            folder.mkdir()
            job = self.job(folder, None, trials=3, seed=seed, algorithm={"type": "optuna"})
            self.make(max_concurrent_trials=1).run(job, place, lambda name: None)
            found.append([each["raw"] for each in self.records(job).values()])
        assert [len(each) for each in found] == [3, 3, 3]
        assert found[0] == found[1] != found[2]

    @pytest.mark.parametrize("goal", ["minimize", "maximize"])
    def test_what_it_chooses_goes_for_the_goal(
        self, place: Backend, tmp_path: Path, goal: Literal["minimize", "maximize"]
    ) -> None:
        """After some trials, of which the loss is `layers`, the others are near the best."""
        if not self.asked:
            pytest.skip("it chooses nothing itself")
        job = self.job(tmp_path, None, trials=30, goal=goal, algorithm={"type": "optuna"})
        self.make(max_concurrent_trials=1).run(job, place, lambda name: None)
        layers = [each["raw"]["layers"] for each in self.records(job).values()]
        assert len(layers) == 30
        late = sum(layers[15:]) / 15
        assert late < 4 if goal == "minimize" else late > 5

    @pytest.mark.parametrize("most", [1, 2])
    def test_as_many_run_at_once_as_it_says(
        self, place: Backend, tmp_path: Path, most: int
    ) -> None:
        job = self.job(tmp_path, self.variants(), mode="beside", together=most)
        made = self.make(max_concurrent_trials=most)
        planned = made.plan(job, place)["at_once"]
        assert planned == most
        made.run(job, place, lambda name: None)
        assert most_at_once(tmp_path) == most
        assert {each["state"] for each in self.records(job).values()} == {"finished"}

    def test_a_trial_that_fails_or_dies_does_not_stop_the_others(
        self, place: Backend, tmp_path: Path
    ) -> None:
        """layers 1 writes its own failure, layers 2 is killed, the others finish."""
        job, told = self.job(tmp_path, self.variants(), mode="bad"), list[str]()
        self.make(max_concurrent_trials=2).run(job, place, told.append)
        states = {each["raw"]["layers"]: each for each in self.records(job).values()}
        assert {layers: each["state"] for layers, each in states.items()} == {
            1: "failed",
            2: "failed",
            3: "finished",
            4: "finished",
        }
        assert states[1]["error"] == "ValueError: as asked"
        assert states[2]["error"]
        assert len(told) == 4

    def test_trials_that_ended_are_not_repeated(self, place: Backend, tmp_path: Path) -> None:
        job = self.job(tmp_path, self.variants())
        self.make(max_concurrent_trials=1).run(job, place, lambda name: None)
        before = self.records(job)
        again = self.job(tmp_path, self.variants(), resume=True)
        told: list[str] = []
        self.make(max_concurrent_trials=1).run(again, place, told.append)
        assert self.records(again) == before
        assert told == []

    def test_a_trial_that_was_under_way_when_its_search_was_killed_goes_on(
        self, place: Backend, tmp_path: Path
    ) -> None:
        """With the same parameters, and no other one is run again."""
        job = self.job(tmp_path, self.variants(), mode="patient")
        made = (self.name, {**self.options, "max_concurrent_trials": 1})
        beside = (self.backend, self.backend_options)
        child = get_context("spawn").Process(target=search_in_a_group, args=(job, *made, *beside))
        child.start()
        waiting = job.directory / "waiting"
        try:
            assert until(lambda: waiting.exists() or child.exitcode is not None)
            assert waiting.exists(), "the search ended by itself"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid or 0, signal.SIGKILL)
            child.join()
        told: list[str] = []
        again = self.job(tmp_path, self.variants(), mode="patient", resume=True)
        self.make(max_concurrent_trials=1).run(again, place, told.append)
        found = {each["raw"]["layers"]: each for each in self.records(again).values()}
        assert sorted(found) == [1, 2, 3, 4]
        assert {each["state"] for each in found.values()} == {"finished"}
        assert [found[layers]["attempts"] for layers in (1, 2, 3, 4)] == [1, 2, 1, 1]
        assert len(told) == len(set(told)) == 3

    @pytest.mark.parametrize("goal", ["minimize", "maximize"])
    def test_a_bad_trial_is_stopped_early(
        self, place: Backend, tmp_path: Path, goal: Literal["minimize", "maximize"]
    ) -> None:
        """The first two are the best and have many rounds; those after them are worse."""
        if not self.stopping:
            pytest.skip("it stops no trial early")
        variants = self.variants(6) if goal == "minimize" else self.variants(6)[::-1]
        job = self.job(tmp_path, variants, mode="slow", goal=goal)
        self.make(max_concurrent_trials=2, scheduler=dict(self.stops)).run(
            job, place, lambda name: None
        )
        found = {each["raw"]["layers"]: each for each in self.records(job).values()}
        stopped = {layers for layers, each in found.items() if each["state"] == "stopped"}
        assert stopped
        assert variants[0]["layers"] not in stopped
        assert all(found[layers]["rounds"] < ROUNDS_OF_SLOW for layers in stopped)
        assert all(found[layers]["score"] == pytest.approx(float(layers)) for layers in stopped)
