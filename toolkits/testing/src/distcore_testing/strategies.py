"""What every strategy must hold: ranks that act as one, with sums, values and weights that are
those of one process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from distcore_core.contracts import BACKEND, WorkerGroup
from distcore_core.registry.manager import Plugins

PLAIN = {
    "effective_batch_size": 36,
    "batch_size": "auto",
    "learning_rate_scaling": "constant",
    "learning_rate": 0.05,
    "optimizer": {"type": "sgd", "momentum": 0.9},
    "epochs": 3,
}
"""SGD: a gradient that is too large by a factor moves weights further, which Adam hides."""


class StrategySuite:
    """Subclass with `strategy`: "module:function", which the ranks import and call for a strategy.

    backend, backend_options: whose worker groups the ranks are. worlds: the numbers of ranks.
    exact: whether `trainer.exact` gives the same bits for each of them.
    """

    strategy: str
    backend = "local"
    backend_options: Mapping[str, Any] = {}
    worlds: tuple[int, ...] = (1, 2, 3)
    exact = True

    @pytest.fixture(scope="class")
    @classmethod
    def ranks(cls, tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Any]]:
        """{world: what each rank was given}."""
        from distcore_testing.ranks import exercise

        backend = Plugins().make(BACKEND, cls.backend, cls.backend_options)
        folder = str(tmp_path_factory.mktemp("ranks"))
        arguments = (cls.strategy, cls.runs(), folder)
        try:
            return {
                world: backend.run_group(
                    WorkerGroup(function=exercise, arguments=arguments, ranks=world, threads=1)
                )
                for world in cls.worlds
            }
        finally:
            backend.close()

    @classmethod
    def runs(cls) -> dict[str, Any]:
        """Small runs whose last batches no two ranks divide: of seven rows and of one."""
        from distcore_testing.loops import TinyRun

        found = {
            "uneven": TinyRun(PLAIN, rows=151, dropout=0.0),
            "few rows": TinyRun(PLAIN, rows=37, validation_rows=1, dropout=0.0),
        }
        if cls.exact:
            found["exact"] = TinyRun({**PLAIN, "exact": True}, rows=168, dropout=0.3, norm=True)
        return found

    @pytest.fixture(scope="class")
    @classmethod
    def alone(cls) -> Any:
        """The same runs in one process."""
        from distcore_core.contracts import Rank
        from distcore_testing.loops import make_strategy
        from distcore_testing.ranks import trained_by

        strategy = make_strategy("")
        strategy.setup(Rank())
        return {name: trained_by(strategy, run) for name, run in cls.runs().items()}

    def test_every_rank_knows_which_it_is(self, ranks: dict[int, list[Any]]) -> None:
        for world, found in ranks.items():
            assert [each["rank"] for each in found] == [(index, world) for index in range(world)]

    def test_every_rank_gets_the_weights_and_buffers_of_rank_zero(
        self, ranks: dict[int, list[Any]]
    ) -> None:
        """To the bit, of every type; who is frozen too."""
        for world, found in ranks.items():
            for index, each in enumerate(found):
                for name, expected in found[0]["before"].items():
                    assert each["prepared"][name] == expected, f"{name}, rank {index} of {world}"

    def test_gradients_are_summed(self, ranks: dict[int, list[Any]]) -> None:
        """Not averaged, a missing one counts as zeros, and ranks without rows take part."""
        from distcore_testing.ranks import gradients

        for world, found in ranks.items():
            for step in found[0]["reduced"]:
                each_of = [gradients(step.split()[0], rank, world) for rank in range(world)]
                for index, parts in enumerate(zip(*each_of, strict=True)):
                    known = [part.double().numpy() for part in parts if part is not None]
                    for rank in found:
                        got = rank["reduced"][step][index]
                        if not known:
                            assert got is None or not got.any()
                            continue
                        assert got is not None, f"{step}: gradient {index} of {world} ranks"
                        assert np.allclose(got, sum(known), rtol=1e-5, atol=1e-6), (
                            f"{step}: gradient {index} of {world} ranks"
                        )

    def test_every_rank_has_the_same_bits(self, ranks: dict[int, list[Any]]) -> None:
        for world, found in ranks.items():
            for each in found[1:]:
                for step, reduced in found[0]["reduced"].items():
                    for a, b in zip(reduced, each["reduced"][step], strict=True):
                        assert np.array_equal(a, b), f"{step}, {world} ranks"
                for name, total in found[0]["sums"].items():
                    assert np.array_equal(total, each["sums"][name]), f"{name}, {world} ranks"
                for name, run in found[0]["trained"].items():
                    assert run["bits"] == each["trained"][name]["bits"], f"{name}, {world} ranks"

    def test_if_any_rank_wants_to_stop_all_hear_it(self, ranks: dict[int, list[Any]]) -> None:
        """At once, and the next step begins anew."""
        for world, found in ranks.items():
            expected = [False, *([True, False] * world), True]
            assert [each["stops"] for each in found] == [expected] * world

    def test_sums_of_small_tensors(self, ranks: dict[int, list[Any]]) -> None:
        from distcore_testing.ranks import summands

        for world, found in ranks.items():
            each_of = [summands(rank) for rank in range(world)]
            for name, first in each_of[0].items():
                total = np.sum([each[name].numpy() for each in each_of], 0)
                got = found[0]["sums"][name]
                assert got.shape == tuple(first.shape), f"{name}, {world} ranks"
                assert got.dtype == first.numpy().dtype, f"{name}, {world} ranks"
                close = np.allclose(got, total, rtol=1e-5 if first.is_floating_point() else 0)
                assert close, f"{name} of {world} ranks: {got} for {total}"

    def test_values_are_gathered_in_rank_order(self, ranks: dict[int, list[Any]]) -> None:
        """Whatever their sizes, in every rank, also after training."""
        from distcore_testing.ranks import value

        for world, found in ranks.items():
            expected = [value(rank) for rank in range(world)]
            for each in found:
                assert each["gathered"] == expected
                assert each["gathered last"] == list(range(world))

    def test_gathering_waits_for_every_rank(self, ranks: dict[int, list[Any]]) -> None:
        for world, found in ranks.items():
            expected = [f"{world}-{rank}" for rank in range(world)]
            assert [each["barrier"] for each in found] == [expected] * world

    def test_any_number_of_ranks_trains_the_weights_of_one_process(
        self, ranks: dict[int, list[Any]], alone: Any
    ) -> None:
        """Shares are uneven; all that differs is the order of additions."""
        for world, found in ranks.items():
            for name in ("uneven", "few rows"):
                for weight, expected in alone[name]["weights"].items():
                    got = found[0]["trained"][name]["weights"][weight]
                    assert np.allclose(got, expected, rtol=1e-3, atol=1e-5), (
                        f"{weight} of {name}, {world} ranks"
                    )
            shares = [each["trained"]["uneven"]["rows"] for each in found]
            assert world < 3 or len({sum(each) for each in shares}) > 1

    def test_every_rank_keeps_the_same_scores(self, ranks: dict[int, list[Any]]) -> None:
        for found in ranks.values():
            for name, run in found[0]["trained"].items():
                states = {json.dumps(each["trained"][name]["state"]) for each in found}
                assert states == {json.dumps(run["state"])}, name

    def test_exact_training_gives_one_process_s_bits(
        self, ranks: dict[int, list[Any]], alone: Any
    ) -> None:
        if not self.exact:
            pytest.skip("the strategy has no exact training")
        for world, found in ranks.items():
            for each in found:
                assert each["trained"]["exact"]["bits"] == alone["exact"]["bits"], f"{world} ranks"
