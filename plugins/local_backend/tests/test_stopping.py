"""What is told of ranks that were asked to end and met something meanwhile: no process is started."""

import errno
import pickle
import sys
from types import SimpleNamespace

import pytest

from distcore_core.contracts import Rank, WorkerGroup
from distcore_core.errors import CheckpointError, RankLost, Stopped, TrainingError
from distcore_local import rank, worker_group
from distcore_local.rank import Orders, Told

ORDERS = Orders(Rank(index=1, world=2, local_rank=1), 1, {}, 0)
FULL = OSError(errno.ENOSPC, "No space left on device")


def meet(rank, error):
    raise error


def told_of(error, received=2):
    payload = pickle.dumps((meet, (error,)))
    return rank._run(ORDERS, payload, SimpleNamespace(received=received))


@pytest.mark.parametrize(
    "error", [RankLost("gone"), RuntimeError("Connection closed by peer"), BrokenPipeError("gone")]
)
def test_a_lost_connection_is_a_consequence_where_all_were_to_end(error):
    assert told_of(error).kind == "stopped"
    assert told_of(error, received=0).kind == "raised"


@pytest.mark.parametrize(
    "error", [CheckpointError("There is no room"), FULL, ValueError("an extension's")]
)
def test_what_a_rank_meets_while_it_ends_is_told(error):
    """As a full disk that its last checkpoint meets."""
    told, before = told_of(error), told_of(error, received=0)
    assert told.kind == before.kind == "raised"
    assert (told.text, str(told.error), str(told.cause)) == (
        *(before.text, str(before.error), str(before.cause)),
    )


def asked(*told):
    """What an attempt raises whose ranks were asked to end and told this."""
    group = WorkerGroup(function=meet, ranks=len(told))
    attempt = worker_group.Attempt(group, 1, b"", None, 0)
    attempt.told = dict(enumerate(told))
    attempt.processes = [SimpleNamespace(exitcode=0, pid=7 + each) for each, _ in enumerate(told)]
    found = []
    for interrupt in (
        SimpleNamespace(asked=True, signal=2, stopped=lambda words: Stopped(words, 2)),
        SimpleNamespace(asked=False),
    ):
        with pytest.raises(BaseException) as caught:  # noqa: PT011 - Stopped is no Exception
            attempt.wait(interrupt)
        found.append(caught.value)
    return found


STOPPED = Told("stopped", error=Stopped("a checkpoint", 2))


def test_a_checkpoint_that_was_not_saved_after_ctrl_c_is_raised():
    """It read as one that was: nobody heard that the disk was full."""
    for error in asked(STOPPED, Told("raised", error=CheckpointError("no room"), cause=FULL)):
        assert (type(error), str(error)) == (CheckpointError, "no room")
        assert error.__cause__ is FULL
    for error in asked(Told("raised", text="OSError: full", cause=FULL), STOPPED):
        assert type(error) is TrainingError
        assert str(error) == "Training stopped: rank 0 (process 7) raised OSError: full."


def test_what_may_come_of_the_others_end_hides_no_signal():
    for told in (Told("raised", text="RuntimeError: closed"), STOPPED):
        for error in asked(STOPPED, told):
            assert (type(error), error.signal) == (Stopped, 2)


def leave(rank):
    sys.exit("bad flag")


def test_a_rank_whose_code_exits_says_so():
    """It was told to put its program under `if __name__`, as one that never began."""
    told = rank._run(ORDERS, pickle.dumps((leave, ())), SimpleNamespace(received=0))
    assert (told.kind, told.text) == ("raised", "SystemExit: bad flag")
