"""What every backend must hold: tasks in order, worker groups that start, fail and are retried
together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from distcore_core.contracts import BACKEND, Backend, WorkerGroup
from distcore_core.errors import TrainingError
from distcore_core.registry.manager import Plugins
from distcore_testing import jobs


class BackendSuite:
    """Subclass with `name`, and `options` if needed. ranks: of the worker groups that are tried,
    at least 2."""

    name: str
    options: Mapping[str, Any] = {}
    ranks = 2

    @pytest.fixture
    def backend(self) -> Iterator[Backend]:
        made = Plugins().make(BACKEND, self.name, self.options)
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

    def test_tasks_keep_their_order_and_none_is_fine(self, backend: Backend) -> None:
        assert list(backend.map(jobs.square, list(range(20)))) == [
            each * each for each in range(20)
        ]
        assert list(backend.map(jobs.square, [])) == []

    def test_a_tasks_function_may_be_an_object_that_holds_something(self, backend: Backend) -> None:
        assert list(backend.map(jobs.Table(tuple(range(5, 15))), [0, 3, 9])) == [5, 8, 14]

    def test_a_task_that_raises_says_so(self, backend: Backend) -> None:
        with pytest.raises(TypeError):
            list(backend.map(jobs.square, [1, "a", 2]))

    def test_a_rank_that_raises_ends_the_worker_group_and_is_named(self, backend: Backend) -> None:
        """With what it raised, so that a user need not look for logs."""
        with pytest.raises(TrainingError, match=r"(?s)rank 1\b.*rank one gives up"):
            backend.run_group(
                WorkerGroup(function=jobs.fail_in_rank_one, ranks=self.ranks, threads=1)
            )

    def test_a_killed_rank_is_retried_with_all_the_others_and_results_come_in_rank_order(
        self, backend: Backend, tmp_path: Path
    ) -> None:
        group = WorkerGroup(
            function=jobs.die_once,
            arguments=(str(tmp_path),),
            ranks=self.ranks,
            max_retries=1,
            threads=1,
        )
        found = [tuple(each) for each in backend.run_group(group)]
        assert [(rank, world) for rank, world, _ in found] == [
            (rank, self.ranks) for rank in range(self.ranks)
        ]
        assert all(0 <= local_rank < self.ranks for _, _, local_rank in found)
        assert len(jobs.attempts(tmp_path, self.ranks - 1)) == 2

    def test_without_retries_a_killed_rank_is_an_error_that_names_it(
        self, backend: Backend, tmp_path: Path
    ) -> None:
        group = WorkerGroup(
            function=jobs.die_once,
            arguments=(str(tmp_path),),
            ranks=self.ranks,
            max_retries=0,
            threads=1,
        )
        with pytest.raises(TrainingError, match=rf"rank {self.ranks - 1}\b"):
            backend.run_group(group)
        assert len(jobs.attempts(tmp_path, self.ranks - 1)) == 1
