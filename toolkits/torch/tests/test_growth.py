"""What a rank deals and plans does not grow with the number of ranks times itself: up to 4,096."""

import numpy as np

from distcore_core.contracts import Rank
from distcore_testing.counting import calls
from distcore_torch.sampler import LaneOrder, Lanes, Window, owned
from distcore_torch.train_options import TrainerOptions
from distcore_torch.training.exact.exchange import Shares
from distcore_torch.training.plan import TrainPlan
from distcore_torch.training.sentinel import accusation
from distcore_torch.training.stragglers import slowest

RANKS = 4096


def test_every_rank_finds_its_lanes_and_its_rows_at_once() -> None:
    """4,096 ranks over 2**40 rows: their shares are everything, once, and no rank's work depends on
    how many others there are."""
    lanes = Lanes(2**40, RANKS)
    at = [owned(Rank(index=each, world=RANKS), RANKS) for each in range(RANKS)]
    assert [each.start for each in at] == list(range(RANKS))
    batch = 16 * RANKS
    before, after = lanes.taken(123_456, 123_457, batch)
    assert (after - before).sum() == batch

    def of_one(world: int) -> int:
        rank, dealt = Rank(index=world // 2, world=world), Lanes(world << 20, world)

        def work() -> None:
            mine = owned(rank, world)
            dealt.taken(100, 101, 16 * world)
            rows = np.diff(dealt.starts)[mine.start]
            LaneOrder(int(rows), mine.start, 42, 0, Window(1024, 8)).rows(0)

        return calls(work)

    of_one(8)  # what is looked up once a process
    assert of_one(RANKS) == of_one(4)


def test_the_plan_of_a_run() -> None:
    options = TrainerOptions(batch_size=16, epochs=3)
    few, many = (
        calls(lambda world=world: TrainPlan.of(options, world, 2**40)) for world in (4, RANKS)
    )
    assert few == many


def test_the_branches_of_exact_training_for_all_ranks() -> None:
    def of_one(world: int) -> int:
        return calls(lambda: Shares(Rank(index=world - 1, world=world), world))

    assert of_one(4000) < 12 * of_one(400)


def test_what_the_first_rank_says_of_all() -> None:
    """Who is slowest, and who differs, among ten times as many ranks."""

    def looked(world: int) -> int:
        beats = [([0.0, 5.0, 20.0, 0.0, 0.0], each, "host") for each in range(world)]
        beats[7] = ([0.0, 25.0, 0.0, 0.0, 0.0], 7, "host")
        told = [{"changed": False, "where": [], "each": {"w": 1, "b": 2}} for _ in range(world)]
        told[7]["each"] = {"w": 1, "b": 3}

        def work() -> None:
            slowest(beats)
            assert "rank 7" in accusation(10, told)

        return calls(work)

    looked(10)
    assert looked(4000) < 12 * looked(400)
