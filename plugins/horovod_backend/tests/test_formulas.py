"""What becomes of the ranks' gradients under each option, beside the formula of Horovod's
documentation, by real launchers.

A rank's gradient is its share of the mean over all rows of the step; times the ranks it is the
rank's own mean, which is what Horovod's users hand over.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.cluster
JOBS = str(Path(__file__).with_name("process_group_jobs.py"))


def half(numbers):
    return numbers.astype(np.float16).astype(np.float32)


def adasum(first, second):
    """Maleki et al., Scaling Distributed Training with Adaptive Summation (2020), formula 3, of
    two gradients."""
    dot = first @ second
    return (1 - dot / (2 * first @ first)) * first + (1 - dot / (2 * second @ second)) * second


def plain(name, shares):
    """The gradient after the exchange. shares: [ranks, numbers] of one parameter."""
    ranks = len(shares)
    means = shares * ranks
    if name == "adasum":
        return adasum(*means)
    if name == "sum":
        return means.sum(0)
    if name == "fp16":
        return half(half(means).sum(0)) / ranks
    if name == "predivided":
        return (means / 4).sum(0) / (ranks / 4)
    if name == "predivided fp16":
        return half(half(means / 4).sum(0)) / (ranks / 4)
    return means.mean(0)


@pytest.mark.parametrize(("launcher", "count"), [("horovodrun", 5), ("mpirun", 6)])
def test_gradients_are_those_of_the_plain_formula(launch, tmp_path, launcher, count):
    words = [*getattr(launch, launcher)(2), sys.executable, JOBS, "formulas", str(tmp_path)]
    ran = launch.finish(launch.start(words, tmp_path))
    assert ran.code == 0, ran.text
    (line,) = [line.partition("FOUND")[2] for line in ran.text.splitlines() if "FOUND" in line]
    found = json.loads(line)
    assert found.pop("rank") == 0
    assert len(found) == count
    for name, ranks in found.items():
        assert ranks[0]["found"] == ranks[1]["found"], name
        for parameter in range(2):
            shares = np.array([rank["mine"][parameter] for rank in ranks], np.float32)
            expected = plain(name, shares)
            assert not np.allclose(expected, shares[0], rtol=0.01), (
                "the ranks' gradients must differ"
            )
            assert np.array(ranks[0]["found"][parameter]) == pytest.approx(
                expected, rel=1e-5, abs=1e-7
            ), name
