"""One bit flips in a rank's weights or moments: the run stops within ten steps, and names rank and
tensor."""

import random
from collections import Counter

import pytest
from tests.conftest import some
from tests.hostile.conftest import SEED
from tests.hostile.flipping import Flip, all_outcomes, said

from distcore_core.contracts import WorkerGroup
from distcore_torch.training import checkpoint

STRATEGY = "distcore_local.data_parallel:DataParallel"


def outcomes(cases, world):
    from distcore_local.backend import LocalBackend
    from distcore_local.options import BackendOptions

    group = WorkerGroup(function=all_outcomes, arguments=(cases, STRATEGY), ranks=world, threads=1)
    ranks = LocalBackend(BackendOptions()).run_group(group)
    assert all(each == ranks[0] for each in ranks), "every rank says the same"
    return ranks[0]


def check(case, text):
    """Found within ten steps, the tensor named; returns (ranks that are named, whether the rank saw
    it itself)."""
    found = said(text)
    assert found is not None, (case, text)
    step, ranks, itself, tensors = found
    assert 0 <= step - case.step <= 10, (case, text)
    assert case.name in tensors, (case, text)
    assert case.rank in ranks, (case, text)
    return ranks, itself


@pytest.mark.parametrize("world", some([2, 4], [2]))
def test_a_look_at_every_step_finds_every_flipped_bit_and_names_rank_and_tensor(sweep, world):
    dice = random.Random(SEED + world)
    cases = [Flip.random(dice, world, ledger_steps=1) for _ in range(sweep.times(3, 50))]
    for case, text in zip(cases, outcomes(cases, world), strict=True):
        assert check(case, text) == ({case.rank}, True), (case, text)
    sweep.tried(
        f"a bit flipped in a rank's weights or moments, {world} ranks, `ledger_steps: 1`",
        len(cases),
        "stopped before the next update, rank and tensor named",
    )


@pytest.mark.parametrize("world", some([2, 4], [4]))
def test_a_look_at_every_tenth_step_finds_whatever_left_a_trace(sweep, world):
    """Of two ranks both are named, unless the rank saw it itself. A low bit of a moment may be
    rounded away before the look, and a high one may make all ranks' weights NaN, which stops the
    run too."""
    dice = random.Random(SEED + world)
    counts: Counter[str] = Counter()
    cases = [Flip.random(dice, world) for _ in range(sweep.times(3, 50))]
    for case, text in zip(cases, outcomes(cases, world), strict=True):
        if text == "finished" or text.startswith("Diverged"):
            counts["left no trace" if text == "finished" else "made the weights NaN"] += 1
            continue
        ranks, itself = check(case, text)
        assert ranks == ({case.rank} if itself or world > 2 else {0, 1}), (case, text)
        counts["named the rank" if len(ranks) == 1 else "named both ranks"] += 1
    sweep.tried(
        f"a bit flipped in a rank's weights or moments, {world} ranks, `ledger_steps: 10`",
        len(cases),
        ", ".join(f"{count} {what}" for what, count in sorted(counts.items())),
    )


@pytest.mark.system
def test_no_checkpoint_after_the_flip_counts(tmp_path):
    """The run goes on from the last one before, to the undisturbed bits."""
    more = {"steps_per_checkpoint": 4, "ledger_steps": 1}
    dice = random.Random(SEED)
    case = Flip.random(dice, 2, more=more, checkpoints=str(tmp_path / "cut"))
    (text,) = outcomes([case], 2)
    check(case, text)
    kept = checkpoint.list_checkpoints(tmp_path / "cut")
    assert all(int(each.name[-8:]) <= case.step for each in kept)
