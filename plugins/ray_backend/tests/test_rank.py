"""What a rank tells its worker through the socket."""

import logging
import os
import sys
from multiprocessing import Pipe
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import ray_jobs

from distcore_core.contracts import Rank
from distcore_core.errors import DataError
from distcore_ray import rank, worker
from distcore_ray.shipping import Place, packed, unpacked


def test_the_last_numbers_are_told_of_a_stage_that_ended_between_two_looks(monkeypatch):
    """The loop ends its stage as soon as its last step is done: the driver's last line counts
    every row."""
    monkeypatch.setattr(rank, "SECONDS", 0.01)
    ours, theirs = Pipe()
    monkeypatch.setattr(rank, "_line", [rank.Line(theirs)])
    with rank.RankReporter().reporting() as progress:
        progress.begin("train", 10, "steps", 64)
        progress.done = 7
        while ours.recv()[1].done != 7:
            continue
        progress.done = 10
        progress.end()
    theirs.close()
    told = []
    while ours.poll():
        try:
            told.append(ours.recv())
        except EOFError:
            break
    assert told[-1][0] == "numbers"
    assert (told[-1][1].done, told[-1][1].rows_per_unit) == (10, 64)


@pytest.mark.parametrize(
    ("function", "kind"), [(ray_jobs.odd, DataError), (ray_jobs.own, ray_jobs.OwnError)]
)
def test_what_a_rank_raises_is_read_by_the_driver_alone(function, kind):
    """The worker, which cannot import what the driver can, failed instead; and the driver where
    an error of a plugin's is made of other things than its words."""
    process, connection = worker._started(dict(os.environ))
    payload = packed((function, ()))
    place = Rank(index=0, world=1, local_rank=0)
    connection.send(rank.Orders(Place.here(), place, payload, logging.INFO))
    try:
        what, text, error, cause = connection.recv()
    finally:
        process.kill()
        process.wait()
        connection.close()
    assert (what, cause) == ("raised", None)
    assert text.endswith("age is odd in row 3.")
    assert isinstance(error, bytes)
    assert isinstance(unpacked(error), kind)
    assert str(unpacked(error)) == "age is odd in row 3."


def test_a_rank_imports_what_the_driver_does_and_not_what_lies_where_ray_runs(
    tmp_path, monkeypatch
):
    """`ray start` in one folder and the command in another: ranks trained the class of the first."""
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "nets_of_two.py").write_text(f"def who(rank): return {name!r}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "old"))
    monkeypatch.syspath_prepend(tmp_path / "new")
    import nets_of_two

    payload = packed((nets_of_two.who, ()))
    monkeypatch.chdir(tmp_path / "old")
    process, connection = worker._started(dict(os.environ))
    monkeypatch.chdir(tmp_path / "new")
    place = Rank(index=0, world=1, local_rank=0)
    connection.send(rank.Orders(Place.here(), place, payload, logging.INFO))
    try:
        what, result = connection.recv()
    finally:
        process.kill()
        process.wait()
        connection.close()
    assert (what, unpacked(result)) == ("result", "new")
    del sys.modules["nets_of_two"]
