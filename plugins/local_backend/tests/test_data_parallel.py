"""ddp: the same global batches and weights on any number of ranks, through deaths, and ranks
that drift are caught."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import worker_group_jobs

from distcore_core.contracts import WorkerGroup
from distcore_local.backend import LocalBackend
from distcore_local.options import BackendOptions
from distcore_testing.loops import TinyRun

pytestmark = pytest.mark.system

FIXED = {
    "effective_batch_size": 32,
    "batch_size": "auto",
    "learning_rate_scaling": "constant",
    "epochs": 3,
}
RUNS = {
    "plain": TinyRun(FIXED, rows=150, dropout=0.0),
    "dropout and norm": TinyRun(FIXED, dropout=0.3, norm=True),
    "dropout and norm again": TinyRun(FIXED, dropout=0.3, norm=True),
    "gloo": TinyRun(FIXED, dropout=0.3, norm=True),
    "few rows": TinyRun({**FIXED, "epochs": 2}, rows=33, validation_rows=1, dropout=0.0),
    "perturbed": TinyRun(FIXED, perturb=(1, 7)),
    "lbfgs": TinyRun(
        {**FIXED, "epochs": 1, "optimizer": {"type": "lbfgs", "max_iter": 3}}, dropout=0.0
    ),
    "accumulated": TinyRun({**FIXED, "gradient_accumulation_steps": 2}, dropout=0.0),
}
TWO_RANKS_ALONE = ("gloo", "dropout and norm again", "lbfgs")
PAIRS = [
    (world, run)
    for world in (2, 4)
    for run in RUNS
    if run != "perturbed" and (world == 2 or run not in TWO_RANKS_ALONE)
]


def backend():
    return LocalBackend(BackendOptions())


def group(function, *arguments, ranks=2, **more):
    return backend().run_group(
        WorkerGroup(function=function, arguments=arguments, ranks=ranks, threads=1, **more)
    )


@pytest.fixture(scope="module")
def worlds():
    """{world: [rank]{run: result}}: each number of ranks is started once."""
    few = {name: run for name, run in RUNS.items() if name not in TWO_RANKS_ALONE}
    return {
        world: group(worker_group_jobs.several, few if world == 4 else RUNS, ranks=world)
        for world in (1, 2, 4)
    }


def global_batches(ranks, run):
    steps = zip(*(rank[run]["seen"] for rank in ranks), strict=True)
    return [[row for part in step for row in part] for step in steps]


EXACT = {
    "shared memory": TinyRun({**FIXED, "exact": True}, dropout=0.3, norm=True),
    "gloo": TinyRun({**FIXED, "exact": True}, dropout=0.3, norm=True),
}


@pytest.mark.parametrize("world", [2, 3])
def test_exact_training_ends_with_the_same_bits_on_any_number_of_ranks(world):
    one = group(worker_group_jobs.several, EXACT, ranks=1)[0]["gloo"]
    for rank in group(worker_group_jobs.several, EXACT, ranks=world):
        for run in EXACT:
            assert (rank[run]["digest"], rank[run]["state"]) == (one["digest"], one["state"]), run


@pytest.mark.parametrize(("world", "run"), PAIRS)
def test_every_number_of_ranks_sees_the_same_global_batches(worlds, world, run):
    one = global_batches(worlds[1], run)
    assert one
    assert global_batches(worlds[world], run) == one


@pytest.mark.parametrize(("world", "run"), PAIRS)
def test_ranks_end_with_the_same_weights_and_statistics(worlds, world, run):
    results = [rank[run] for rank in worlds[world]]
    assert len({each["digest"] for each in results}) == 1
    assert len({json.dumps(each["state"]) for each in results}) == 1


@pytest.mark.parametrize(("world", "run"), [pair for pair in PAIRS if RUNS[pair[1]].dropout == 0])
def test_n_ranks_train_as_one_process_does(worlds, world, run):
    """Without dropout all that differs is the order of additions."""
    one, many = (
        worlds[1][0][run]["state"]["statistics"],
        worlds[world][0][run]["state"]["statistics"],
    )
    for split in one:
        for feature, metrics in one[split].items():
            for metric, values in metrics.items():
                found = many[split][feature][metric]
                assert [each is None for each in found] == [each is None for each in values]
                known = [(a, b) for a, b in zip(found, values, strict=True) if b is not None]
                assert [a for a, _ in known] == pytest.approx(
                    [b for _, b in known], rel=1e-3, abs=1e-5
                )


def test_with_dropout_the_validation_loss_agrees_within_noise(worlds):
    losses = [worlds[world][0]["dropout and norm"]["state"]["best"]["value"] for world in (1, 2, 4)]
    assert max(losses) - min(losses) < 0.25 * min(losses)


@pytest.mark.parametrize("world", [1, 2])
def test_the_same_run_again_gives_the_same_bits(worlds, world):
    first = worlds[world][0]
    assert first["dropout and norm"]["digest"] == first["dropout and norm again"]["digest"]


def test_shared_memory_and_gloo_give_the_same_bits_for_two_ranks(worlds):
    assert worlds[2][0]["dropout and norm"]["digest"] == worlds[2][0]["gloo"]["digest"]


def test_listeners_are_told_in_rank_0_alone_the_loop_asks_it(worlds):
    first, second = worlds[2]
    assert [each[0] for each in first["plain"]["events"]] == ["round"] * 3
    assert second["plain"]["events"] == []


@pytest.mark.parametrize("world", [2, 4])
def test_a_rank_that_trains_apart_is_named(worlds, world):
    for rank in worlds[world]:
        who = "ranks 0 and 1 differ" if world == 2 else "rank 1 of 4 differs from the others"
        assert rank["perturbed"].startswith(f"TrainingError: After step 10 {who} in last.bias")


def test_collectives(worlds):
    found = group(worker_group_jobs.collectives, ranks=2)
    for rank in found:
        assert rank["weights"] == found[0]["weights"]
        assert rank["stop"] == [False, True]
        assert rank["exchange"] == ["SharedSum", "SharedSum"]
        # Twice reduced: 1 + 10 in both ranks, then doubled. The bias had a gradient in rank 0
        # alone; the last had none.
        assert rank["gradients"] == [[22.0], [2.0], [22.0], [22.0], [22.0], [0.0]]
        assert rank["running_mean"] == [1.5, 1.5]
        assert rank["sum"] == [1.0, 2.0]
        assert rank["gather"] == [{"rank": 0}, {"rank": 1}]


def test_shared_sums_are_added_in_rank_order_however_ranks_run():
    assert group(worker_group_jobs.sums, 60, ranks=3) == [0, 0, 0]


def test_all_fall_back_to_gloo_when_one_cannot_map_the_memory():
    assert group(worker_group_jobs.no_memory) == ["InPlace", "InPlace"]


@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_rank_killed_in_mid_epoch_changes_no_bit(worlds, tmp_path, victim):
    run = TinyRun(FIXED, dropout=0.3, norm=True, checkpoints=str(tmp_path), kill={victim: 7})
    found = group(worker_group_jobs.several, {"run": run}, max_retries=1)
    assert (tmp_path / "died").exists()
    assert found[0]["run"]["digest"] == worlds[2][0]["dropout and norm"]["digest"]
    assert found[0]["run"]["state"] == worlds[2][0]["dropout and norm"]["state"]
    assert found[0]["run"]["best"] == worlds[2][0]["dropout and norm"]["best"]


def test_a_run_goes_on_under_another_number_of_ranks(tmp_path):
    options = {**FIXED, "train_steps": 6}
    first = group(
        worker_group_jobs.several, {"run": TinyRun(options, dropout=0.0, checkpoints=str(tmp_path))}
    )
    longer = TinyRun(
        {**FIXED, "train_steps": 12}, dropout=0.0, checkpoints=str(tmp_path), resume=True
    )
    second = group(worker_group_jobs.several, {"run": longer}, ranks=1)
    assert first[0]["run"]["state"]["step"] == 6
    assert second[0]["run"]["state"]["step"] == 12
    rows = global_batches(first, "run") + global_batches(second, "run")
    for epoch in (rows[:5], rows[5:10]):
        assert sorted(row for batch in epoch for row in batch) == list(range(150))
