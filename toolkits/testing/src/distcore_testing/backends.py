"""What every backend must hold: tasks in order, worker groups that start, meet, fail and are
retried together, nothing begun before it is asked for and nothing left."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from distcore_core.contracts import BACKEND, Backend, WorkerGroup
from distcore_core.errors import DataError, TrainingError
from distcore_core.registry.manager import Plugins
from distcore_testing import jobs, rank_jobs

LARGE = 4 << 20
"""Bytes of a rank's result that no pipe holds."""

THREADS = 2
"""Of a rank, as the suite asks for them."""


class BackendSuite:
    """Subclass with `name`, and `options` if needed. ranks: of the worker groups that are tried,
    at least 2. collective: False if ranks cannot meet through torch's gloo. Another process makes
    the backend by name and options, whatever `make` does."""

    name: str
    options: Mapping[str, Any] = {}
    ranks = 2
    collective = True

    def make(self) -> Backend:
        return Plugins().make(BACKEND, self.name, self.options)

    @pytest.fixture
    def backend(self) -> Iterator[Backend]:
        made = self.make()
        yield made
        made.close()

    def test_it_says_its_name_and_real_resources(self, backend: Backend) -> None:
        found = backend.resources()
        assert isinstance(backend, Backend)
        assert backend.name == self.name
        assert found.cpus >= 1
        assert found.nodes >= 1
        assert found.gpus >= 0
        assert found.memory_bytes >= 0

    def test_its_defaults_are_installed(self, backend: Backend) -> None:
        for role in ("processor", "loader", "trainer"):
            Plugins().find(f"{role}s", backend.defaults[role])

    def test_nothing_is_started_before_it_is_used_and_nothing_is_left(self, tmp_path: Path) -> None:
        """Neither processes nor threads: `plan` and `doctor` make backends, too. The environment
        does not say that this is a rank."""
        me, threads = os.getpid(), set(threading.enumerate())
        told = {name: os.environ.get(name) for name in rank_jobs.TOLD}
        before = rank_jobs.processes_of(me)
        made = self.make()
        assert rank_jobs.processes_of(me) <= before
        assert set(threading.enumerate()) <= threads
        list(made.map(jobs.square, list(range(4))))
        made.run_group(self.dying(tmp_path, 0, 0))
        made.close()
        made.close()
        assert rank_jobs.until(lambda: rank_jobs.processes_of(me) <= before, 20)
        assert {name: os.environ.get(name) for name in rank_jobs.TOLD} == told

    # -------------------------------------------------------------- tasks

    def test_tasks_keep_their_order_and_none_is_fine(self, backend: Backend) -> None:
        assert list(backend.map(jobs.square, list(range(20)))) == [
            each * each for each in range(20)
        ]
        assert list(backend.map(jobs.square, [])) == []
        assert list(backend.map(jobs.square, [3])) == [9]

    def test_a_tasks_function_may_be_an_object_that_holds_something(self, backend: Backend) -> None:
        assert list(backend.map(jobs.Table(tuple(range(5, 15))), [0, 3, 9])) == [5, 8, 14]

    def test_a_task_that_raises_says_so(self, backend: Backend) -> None:
        with pytest.raises(TypeError):
            list(backend.map(jobs.square, [1, "a", 2]))

    def test_what_a_task_raises_is_raised_as_it_is_after_the_results_before_it(
        self, backend: Backend
    ) -> None:
        results = backend.map(rank_jobs.DamagedAt(2), list(range(5)))
        assert [next(results)[0], next(results)[0]] == [0, 1]
        with pytest.raises(DataError, match=r"^row 2 is damaged$"):
            next(results)

    def test_a_task_whose_process_is_lost_runs_again(
        self, backend: Backend, tmp_path: Path
    ) -> None:
        function = rank_jobs.KilledOnce(str(tmp_path), 3, os.getpid())
        assert list(backend.map(function, list(range(8)))) == [each * each for each in range(8)]

    def test_few_tasks_are_begun_before_results_are_taken_and_none_once_it_is_closed(
        self, backend: Backend, tmp_path: Path
    ) -> None:
        """Results of a large dataset would else fill the memory."""
        few = 8 * backend.resources().cpus + 8
        results = backend.map(rank_jobs.Noted(str(tmp_path)), list(range(6 * few)))

        def begun() -> int:
            return len(list(tmp_path.glob("begun-*")))

        assert [next(results), next(results)] == [0, 1]
        assert not rank_jobs.until(lambda: begun() > few, seconds=1.5)
        close = getattr(results, "close", None)
        if close is not None:
            close()
            known = begun()
            assert not rank_jobs.until(lambda: begun() > known, seconds=0.5)

    # -------------------------------------------------------------- worker groups

    @pytest.fixture(scope="class")
    @classmethod
    def met(cls, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
        """What the ranks of a worker group say that met."""
        if not cls.collective:
            pytest.skip("its ranks do not meet through gloo")
        folder = tmp_path_factory.mktemp("met")
        made = Plugins().make(BACKEND, cls.name, cls.options)
        try:
            return made.run_group(
                WorkerGroup(
                    function=rank_jobs.meet,
                    arguments=(str(folder), LARGE),
                    ranks=cls.ranks,
                    threads=THREADS,
                )
            )
        finally:
            made.close()

    def test_ranks_meet_and_add_up(self, met: list[dict[str, Any]]) -> None:
        """A real collective, of every rank once."""
        whole = float(sum(10**rank for rank in range(self.ranks)))
        assert [each["sum"] for each in met] == [whole] * self.ranks

    def test_results_come_in_rank_order_whichever_ends_first(
        self, met: list[dict[str, Any]]
    ) -> None:
        assert [(each["index"], each["world"]) for each in met] == [
            (rank, self.ranks) for rank in range(self.ranks)
        ]
        assert {len(each["large"]) for each in met} == {LARGE}

    def test_each_rank_is_a_process_with_a_local_rank_of_its_own(
        self, met: list[dict[str, Any]]
    ) -> None:
        """Local ranks count the processes of a machine, from 0: they choose its GPUs."""
        assert len({(each["host"], each["node"], each["process"]) for each in met}) == self.ranks
        machines: dict[tuple[str, str], list[int]] = {}
        for each in met:
            machines.setdefault((each["host"], each["node"]), []).append(each["local_rank"])
        for local_ranks in machines.values():
            assert sorted(local_ranks) == list(range(len(local_ranks)))

    def test_the_environment_says_which_rank_it_is(self, met: list[dict[str, Any]]) -> None:
        """As torchrun would: RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE."""
        for each in met:
            here = [(other["host"], other["node"]) for other in met]
            told = {
                "RANK": each["index"],
                "WORLD_SIZE": self.ranks,
                "LOCAL_RANK": each["local_rank"],
                "LOCAL_WORLD_SIZE": here.count((each["host"], each["node"])),
            }
            assert each["told"] == {name: str(value) for name, value in told.items()}

    def test_a_rank_has_the_threads_that_were_asked_for(self, met: list[dict[str, Any]]) -> None:
        assert [each["threads"] for each in met] == [THREADS] * self.ranks

    def test_a_rank_that_raises_ends_the_worker_group_and_is_named(self, backend: Backend) -> None:
        """With what it raised, so that a user need not look for logs."""
        with pytest.raises(TrainingError, match=r"(?s)rank 1\b.*rank one gives up"):
            backend.run_group(
                WorkerGroup(function=jobs.fail_in_rank_one, ranks=self.ranks, threads=1)
            )

    def test_an_error_that_another_attempt_would_meet_is_raised_at_once_as_it_is(
        self, backend: Backend, tmp_path: Path
    ) -> None:
        group = WorkerGroup(
            function=rank_jobs.refuse,
            arguments=(str(tmp_path),),
            ranks=self.ranks,
            max_retries=2,
            threads=1,
        )
        with pytest.raises(DataError, match="the column 'colour' is missing"):
            backend.run_group(group)
        assert max(len(rank_jobs.attempts(tmp_path, rank)) for rank in range(self.ranks)) == 1

    def dying(self, folder: Path, times: int, max_retries: int) -> WorkerGroup:
        """A worker group whose last rank is killed in so many attempts."""
        return WorkerGroup(
            function=rank_jobs.die,
            arguments=(str(folder), times),
            ranks=self.ranks,
            max_retries=max_retries,
            threads=1,
        )

    def test_a_killed_rank_is_retried_with_all_the_others_and_results_come_in_rank_order(
        self, backend: Backend, tmp_path: Path
    ) -> None:
        """As often as was asked; the others, which wait for it, are ended and started again."""
        found = [tuple(each) for each in backend.run_group(self.dying(tmp_path, 2, 2))]
        assert [(rank, world) for rank, world, _ in found] == [
            (rank, self.ranks) for rank in range(self.ranks)
        ]
        assert not Path(tmp_path, "outlived").exists(), "ranks were left waiting for one that died"
        for rank in range(self.ranks):
            processes = rank_jobs.attempts(tmp_path, rank)
            assert len(set(processes)) == len(processes) == 3

    def _processes(self, folder: Path) -> list[int]:
        """The ranks that have begun there, in their last attempt."""
        found = [rank_jobs.attempts(folder, rank) for rank in range(self.ranks)]
        return [int(each[-1]) for each in found if each]

    def test_ranks_end_with_the_process_that_leads_them(self, tmp_path: Path) -> None:
        """Also if it is killed: they would train on, and write their checkpoints between those of
        the run that goes on."""
        group = WorkerGroup(
            function=rank_jobs.stay, arguments=(str(tmp_path),), ranks=self.ranks, threads=1
        )
        orders = (self.name, self.options, group)
        driver = get_context("spawn").Process(target=rank_jobs.lead, args=orders)
        driver.start()
        try:
            rank_jobs.until(
                lambda: len(self._processes(tmp_path)) == self.ranks or not driver.is_alive()
            )
            assert len(self._processes(tmp_path)) == self.ranks, "the ranks did not begin"
        finally:
            driver.kill()
            driver.join()
        ranks = self._processes(tmp_path)
        gone = rank_jobs.until(lambda: not any(map(rank_jobs.alive, ranks)), 20)
        assert gone, "ranks are left of a process that was killed"

    def test_an_interrupt_leaves_no_rank(self, backend: Backend, tmp_path: Path) -> None:
        """Ctrl-C ends a worker group, and who waits for it hears of it."""
        group = WorkerGroup(
            function=rank_jobs.stay,
            arguments=(str(tmp_path),),
            ranks=self.ranks,
            threads=1,
            grace_seconds=2.0,
        )

        over = threading.Event()  # after that an interrupt would end pytest

        def interrupt() -> None:
            rank_jobs.until(lambda: over.is_set() or len(self._processes(tmp_path)) == self.ranks)
            if not over.is_set() and len(self._processes(tmp_path)) == self.ranks:
                os.kill(os.getpid(), signal.SIGINT)

        with ThreadPoolExecutor(1) as pool:
            pool.submit(interrupt)
            try:
                with pytest.raises(KeyboardInterrupt):
                    backend.run_group(group)
            finally:
                over.set()
        assert len(self._processes(tmp_path)) == self.ranks
        gone = rank_jobs.until(lambda: not any(map(rank_jobs.alive, self._processes(tmp_path))), 20)
        assert gone, "ranks are left of a worker group that was interrupted"

    def test_without_retries_a_killed_rank_is_an_error_that_names_it(
        self, backend: Backend, tmp_path: Path
    ) -> None:
        """And nobody is left waiting for it."""
        with pytest.raises(TrainingError, match=rf"rank {self.ranks - 1}\b"):
            backend.run_group(self.dying(tmp_path, 1, 0))
        assert len(rank_jobs.attempts(tmp_path, self.ranks - 1)) == 1
        assert not Path(tmp_path, "outlived").exists(), "ranks were left waiting for one that died"
