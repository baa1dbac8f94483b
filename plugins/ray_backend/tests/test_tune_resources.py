"""How many trials fit beside each other, node by node; those that would wait for each other are
refused."""

from itertools import product
from pathlib import Path

import pytest

from distcore_core.errors import UserError
from distcore_ray.tune_options import TuneOptions
from distcore_ray.tune_resources import at_once, need_of
from distcore_testing import ExecutorSuite


class Elsewhere:
    """As a backend, of which the arithmetic asks nothing else. distributed: its trials have
    workers of their own."""

    def __init__(self, distributed=True):
        self.distributed = distributed


def fitting(*nodes, workers=1, each=None, distributed=True, trials=8, use_gpu=False, **options):
    """nodes: CPUs, or (CPUs, GPUs)."""
    options = TuneOptions.model_validate(options)
    asked = {"workers": workers, "resources_per_worker": each or {}, "use_gpu": use_gpu}
    job = ExecutorSuite().job(Path("unused"), [{}] * trials, **asked)
    shapes = [node if isinstance(node, tuple) else (float(node), 0.0) for node in nodes]
    return at_once(options, job, shapes, need_of(options, job, Elsewhere(distributed), shapes))


def test_as_many_trials_as_fit():
    assert fitting(8) == 8
    assert fitting(8, workers=2) == 4
    assert fitting(8, workers=2, each={"CPU": 2}) == 2
    assert fitting(8, workers=2, trial_driver_resources={"CPU": 1}) == 2
    assert fitting((8, 2), workers=1, each={"CPU": 1, "GPU": 1}) == 2
    assert fitting(8, workers=2, max_concurrent_trials=3) == 3
    assert fitting(2, 2, 2, workers=3) == 2
    assert fitting(0, 4, workers=2) == 2
    assert fitting(4, distributed=False, cpu_resources_per_trial=2) == 2
    assert fitting(4, distributed=False, max_concurrent_trials=8) == 4


def test_a_trial_that_trains_in_its_own_process_has_what_its_trainer_asks_for():
    """It had one CPU and no GPU: all trials shared the one that there was."""
    alone = {"distributed": False, "trials": 16}
    assert fitting((16, 1), use_gpu=True, **alone) == 1
    assert fitting((16, 1), use_gpu=True, gpu_resources_per_trial=0.25, **alone) == 4
    assert fitting((16, 1), use_gpu=True, gpu_resources_per_trial=0, **alone) == 16
    assert fitting((16, 1), **alone) == 16
    assert fitting(16, use_gpu=True, **alone) == 16  # on CPUs, where the cluster has no other
    assert fitting(16, each={"CPU": 8}, **alone) == 2
    assert fitting(16, each={"CPU": 8}, cpu_resources_per_trial=4, **alone) == 4
    assert fitting((16, 1), each={"GPU": 0.25}, use_gpu=True, **alone) == 4  # was 1
    # what is given is of all its workers: there was room for 4
    assert fitting(16, workers=2, cpu_resources_per_trial=2, **alone) == 8
    with pytest.raises(UserError, match=r"8 CPUs on one node.*num_threads"):
        fitting(4, 4, each={"CPU": 8}, **alone)  # of trees


def test_a_part_of_a_gpu_lies_on_one():
    """Of two GPUs with two workers on each a fifth was waited for without an end."""
    assert fitting((8, 2), workers=1, each={"CPU": 1, "GPU": 0.4}) == 4
    assert fitting((8, 2), distributed=False, gpu_resources_per_trial=0.3) == 6
    with pytest.raises(UserError, match="room for 4 such workers"):
        fitting((8, 2), workers=5, each={"CPU": 1, "GPU": 0.4})


def test_a_worker_lies_on_one_node():
    """Nine CPUs, but each node has room for one worker of two, so one trial of two workers; not
    two."""
    assert fitting(3, 3, 3, workers=2, each={"CPU": 2}) == 1
    assert fitting(3, 3, 2, distributed=False, cpu_resources_per_trial=2) == 3
    assert fitting((4, 1), (4, 1), workers=1, each={"CPU": 1, "GPU": 1}) == 2


@pytest.mark.parametrize(
    ("nodes", "given", "arithmetic"),
    [
        ([4], {"workers": 2, "max_concurrent_trials": 3}, r"3 trials at once × .0 for itself \+ 2 workers × 1 CPUs. = 6 "
            r"CPUs.*cluster has 4.*max_concurrent_trials to 2"),
        ([4], {"workers": 4, "trial_driver_resources": {"CPU": 1}}, r"1 for itself \+ 4 workers × 1 = 5 CPUs, but the Ray cluster "
            r"has 4"),
        ([(8, 1)], {"workers": 2, "each": {"CPU": 1, "GPU": 1}}, r"2 workers × 1 = 2 GPUs, but the Ray cluster has 1"),
        ([4], {"workers": 2, "cpu_resources_per_trial": 3}, r"cpu_resources_per_trial is 3.*2 workers × 1 CPUs"),
        ([2], {"distributed": False, "cpu_resources_per_trial": 3}, r"A trial needs 3 CPUs, but the Ray cluster has 2"),
        ([2, 2], {"distributed": False, "cpu_resources_per_trial": 3}, r"3 CPUs on one node, but the Ray cluster's nodes have 2, 2"),
        ([2, 2, 2], {"workers": 1, "each": {"CPU": 4}}, r"1 workers with 4 CPUs on one node each but .* nodes have 2, "
            r"2, 2: room for 0"),
        ([3, 3, 3], {"workers": 2, "each": {"CPU": 2}, "max_concurrent_trials": 2}, r"4 workers with 2 CPUs on one node each but .* 3, 3, 3: room "
            r"for 3 .*max_concurrent_trials to 1"),
        # The trial itself may come to lie on the smaller node, and then its second worker finds no
        # place, for ever.
        ([3, 2], {"workers": 2, "each": {"CPU": 2}, "trial_driver_resources": {"CPU": 1}}, r"beside 1 × 1 for the trials themselves, but .* 3, 2: room "
            r"for 1"),
    ],
)  # fmt: skip
def test_trials_that_would_wait_for_each_other_for_ever_are_refused(nodes, given, arithmetic):
    with pytest.raises(UserError, match=arithmetic):
        fitting(*nodes, **given)


@pytest.mark.parametrize(
    ("driver", "each", "workers"), [(1, 1, 2), (1, 2, 1), (2, 1, 1), (1, 3, 2)]
)
def test_wherever_the_trials_themselves_come_to_lie_their_workers_find_room(driver, each, workers):
    """Against every way of laying them on the nodes, one after another."""
    for nodes in product((1, 2, 3, 4), repeat=3):

        def room(trials, nodes=nodes):
            ways = [left for left in product(range(trials + 1), repeat=3) if sum(left) == trials]
            held = [
                [has - driver * count for has, count in zip(nodes, way, strict=True)]
                for way in ways
            ]
            return min(
                (sum(has // each for has in way) for way in held if min(way) >= 0), default=-1
            )

        expected = max(
            (count for count in range(1, 5) if room(count) >= count * workers), default=0
        )
        options = {
            "workers": workers,
            "each": {"CPU": each},
            "trial_driver_resources": {"CPU": driver},
            "trials": 4,
        }
        if expected:
            assert fitting(*nodes, **options) == expected, nodes
        else:
            with pytest.raises(UserError):
                fitting(*nodes, **options)


def test_a_large_cluster_takes_no_time():
    assert fitting(*[(64.0, 8.0)] * 64, workers=4, each={"CPU": 8, "GPU": 1}, trials=2000) == 128
    assert fitting(*[16] * 32, workers=1, trial_driver_resources={"CPU": 1}, trials=500) == 256
