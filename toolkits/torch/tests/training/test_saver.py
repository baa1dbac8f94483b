"""Checkpoints beside training: of the step that asked, in order, two at most in flight, none
lost or half."""

import contextlib
import os
import signal
import threading
from pathlib import Path

import pytest
import torch

from distcore_core.contracts import Rank
from distcore_core.errors import CheckpointError, TrainingError
from distcore_testing.loops import TinyRun, tiny_loop, train_tiny
from distcore_testing.rank_jobs import until
from distcore_torch.training import checkpoint, saver
from distcore_torch.training.heartbeat import heartbeat
from distcore_torch.training.ledger import LEDGER, Ledger, read_ledger
from distcore_torch.training.strategy import SingleProcess

SECONDS = 60
OPTIONS = {"epochs": 3, "steps_per_checkpoint": 4, "early_stop": -1}


class Gate:
    """Lets checkpoints through to the disk one by one. arrived: steps that wanted to be written."""

    def __init__(self, monkeypatch):
        self.arrived, self.may = [], threading.Semaphore(0)
        self.save = checkpoint.save
        monkeypatch.setattr(checkpoint, "save", self.wait)

    def wait(self, directory, step, *given, **more):
        self.arrived.append(step)
        assert self.may.acquire(timeout=SECONDS)
        return self.save(directory, step, *given, **more)


@pytest.fixture
def gate(monkeypatch):
    return Gate(monkeypatch)


def made(folder, told=None, ledger=None):
    return saver.Saver(folder, None, ledger, heartbeat(), told)


def test_what_is_written_is_the_state_of_the_step_that_asked(tmp_path, gate):
    weight, told = torch.zeros(1000), []
    one = made(tmp_path, lambda step, path: told.append((step, path.name)))
    with one.saving():
        for step in (1, 2):
            weight.fill_(step)
            count = torch.tensor(2**53 + step)  # which no float has
            one.save(step, {"weights/w": weight, "count": count}, {}, {"step": step})
        weight.fill_(9)
        assert until(lambda: gate.arrived == [1])
        assert told == []
        gate.may.release(2)
    assert told == [(1, "step-00000001"), (2, "step-00000002")]
    for path in checkpoint.list_checkpoints(tmp_path):
        found = checkpoint.load(path)
        assert found.tensors["weights/w"].unique().tolist() == [float(found.step)]
        assert found.tensors["count"].item() == 2**53 + found.step


def test_two_may_be_in_flight_and_the_third_waits(tmp_path, gate):
    one, weight, third = made(tmp_path), torch.zeros(10), threading.Event()

    def save_three():
        with one.saving():
            for step in (1, 2, 3):
                one.save(step, {"w": weight}, {}, {"step": step})
            third.set()

    thread = threading.Thread(target=save_three)
    thread.start()
    assert until(lambda: gate.arrived == [1])
    assert not third.wait(0.2)
    gate.may.release()
    assert third.wait(SECONDS)
    gate.may.release(2)
    thread.join(SECONDS)
    assert gate.arrived == [1, 2, 3]


def test_buffers_are_used_again(tmp_path):
    one, seen = made(tmp_path), set()
    with one.saving():
        for step in range(1, 7):
            one.save(step, {"w": torch.full((100,), float(step))}, {}, {"step": step})
            seen.add(one._jobs[-1].buffers["w"].data_ptr())
    assert len(seen) <= saver.IN_FLIGHT


def test_a_disk_that_is_full_stops_the_run_and_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    real = checkpoint.save

    def full(directory, step, *given, **more):
        if step == 8:
            raise CheckpointError("There is no room for the checkpoint.")
        return real(directory, step, *given, **more)

    monkeypatch.setattr(checkpoint, "save", full)
    with pytest.raises(CheckpointError, match="no room"):
        train_tiny(Rank(), TinyRun(OPTIONS, checkpoints=str(tmp_path)))
    assert [each.name for each in checkpoint.list_checkpoints(tmp_path)] == ["step-00000004"]


def test_none_is_written_after_one_that_failed(tmp_path, monkeypatch):
    """Not even one that was in flight by then: their order has no gap."""
    one, both, real = made(tmp_path), threading.Event(), checkpoint.save

    def save(directory, step, *given, **more):
        if step == 1:
            assert both.wait(SECONDS)
            raise CheckpointError("There is no room for the checkpoint.")
        return real(directory, step, *given, **more)

    def save_both():
        with one.saving():
            for step in (1, 2):
                one.save(step, {"w": torch.zeros(3)}, {}, {"step": step})
            both.set()

    monkeypatch.setattr(checkpoint, "save", save)
    with pytest.raises(CheckpointError, match="no room"):
        save_both()
    assert checkpoint.list_checkpoints(tmp_path) == []


def test_ctrl_c_waits_until_its_checkpoint_is_whole(tmp_path, gate):
    run = TinyRun(OPTIONS, checkpoints=str(tmp_path))
    loop, loader, _ = tiny_loop(run, SingleProcess())
    loader.actions[5] = lambda: setattr(loop.progress, "stop", True)

    def open_late():
        assert until(lambda: gate.arrived[-1:] == [4])
        gate.may.release()
        assert until(lambda: gate.arrived[-1:] == [6])
        gate.may.release()

    thread = threading.Thread(target=open_late)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        loop.run()
    thread.join(SECONDS)
    assert checkpoint.load_newest(tmp_path).step == 6


def test_a_kill_while_a_checkpoint_is_written_leaves_the_one_before(tmp_path):
    """The child dies between the tensors of its second checkpoint; the run goes on from the
    first."""
    torch.set_num_threads(1)  # a forked child has no other threads of OpenMP's
    whole = train_tiny(Rank(), TinyRun(OPTIONS))
    child = os.fork()
    if not child:
        try:
            loop = tiny_loop(TinyRun(OPTIONS, checkpoints=str(tmp_path)), SingleProcess())[0]
            seen = []

            def die_in_the_second():
                seen.append(1)
                if len(seen) > 1 and checkpoint.list_checkpoints(tmp_path):
                    os.kill(os.getpid(), signal.SIGKILL)

            loop.saver._going_on = die_in_the_second
            loop.run()
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert [each.name for each in checkpoint.list_checkpoints(tmp_path)] == ["step-00000004"]
    assert [each for each in tmp_path.iterdir() if ".building-" in each.name]
    again = train_tiny(Rank(), TinyRun(OPTIONS, checkpoints=str(tmp_path)))
    assert again["digest"] == whole["digest"]
    assert not [each for each in tmp_path.iterdir() if ".building-" in each.name]


def test_an_error_waits_until_the_checkpoint_under_way_is_whole(tmp_path, gate):
    """What tells how to go on, or removes what is of no use, looks at what lies there."""
    one = made(tmp_path)

    def failed():
        with one.saving():
            one.save(1, {"w": torch.zeros(3)}, {}, {"step": 1})
            threading.Timer(0.1, gate.may.release).start()
            raise TrainingError("no")

    with pytest.raises(TrainingError, match="no"):
        failed()
    assert checkpoint.load_newest(tmp_path).step == 1


def test_a_second_ctrl_c_does_not_wait_for_the_disk(tmp_path, gate):
    one = made(tmp_path)

    def interrupted():
        with one.saving():
            for step in (1, 2):
                one.save(step, {"w": torch.zeros(3)}, {}, {"step": step})
            assert until(lambda: gate.arrived == [1])
            # The gate opens once the interrupt was seen, as a slow disk would.
            threading.Thread(
                target=lambda: (until(lambda: one._given_up), gate.may.release(2))
            ).start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert checkpoint.list_checkpoints(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_the_ledger_is_on_disk_before_the_checkpoint_of_its_step(tmp_path, gate):
    ledger = Ledger(tmp_path / LEDGER)
    one = made(tmp_path, ledger=ledger)
    with one.saving():
        ledger.add(3, "ab")
        one.save(3, {"w": torch.zeros(3)}, {}, {})
        assert until(lambda: gate.arrived == [3])
        assert [each.step for each in read_ledger(tmp_path / LEDGER)[0]] == [3]
        gate.may.release()


def test_of_a_large_state_there_is_one_copy(tmp_path, gate, monkeypatch):
    monkeypatch.setattr(saver, "LARGE", 39)
    one, weight, second = made(tmp_path), torch.zeros(10), threading.Event()
    buffers = set()

    def save_two():
        with one.saving():
            for step in (1, 2):
                one.save(step, {"w": weight}, {}, {"step": step})
                buffers.add(one._jobs[-1].buffers["w"].data_ptr())
            second.set()

    thread = threading.Thread(target=save_two)
    thread.start()
    assert until(lambda: gate.arrived == [1])
    assert not second.wait(0.2)
    gate.may.release()
    assert second.wait(SECONDS)
    gate.may.release()
    thread.join(SECONDS)
    assert gate.arrived == [1, 2]
    assert len(buffers) == 1


def test_what_no_step_changes_any_more_is_not_copied(tmp_path, monkeypatch):
    """Of a run that ends the last checkpoint and the last weights are the module's own."""
    real, copies = saver.copied, []
    monkeypatch.setattr(
        saver, "copied", lambda given, buffers: copies.append(len(given)) or real(given, buffers)
    )
    loop = tiny_loop(TinyRun(OPTIONS, checkpoints=str(tmp_path)), SingleProcess())[0]
    finished = loop.run()
    module = loop.work.module.state_dict()
    assert copies[-1] == 0
    assert min(copies[:-1]) > len(module)
    for name, each in module.items():
        assert finished.last_weights[name].data_ptr() == each.data_ptr()
    found = checkpoint.load_newest(tmp_path)
    assert found.step == loop.state.step
    for name, each in module.items():
        assert torch.equal(found.tensors[f"weights/{name}"], each)


def test_old_best_weights_end_before_new_ones_are_copied(monkeypatch):
    loop = tiny_loop(TinyRun(OPTIONS), SingleProcess())[0]
    real, held = loop._weights, []
    monkeypatch.setattr(loop, "_weights", lambda: held.append(len(loop.best_weights)) or real())
    finished = loop.run()
    assert len(held) > 2
    assert set(held[:-1]) == {0}
    assert finished.best_weights


def test_a_checkpoint_lies_where_the_run_began_and_is_told_as_it_was_named(tmp_path, gate):
    """Whatever an extension does to the working directory while it is written."""
    (tmp_path / "run").mkdir()
    (tmp_path / "elsewhere").mkdir()
    told = []
    with contextlib.chdir(tmp_path):
        folder = Path("run")
        ledger = Ledger(folder / LEDGER)
        one = made(folder / "c", lambda step, path: told.append(path), ledger)
        with one.saving():
            ledger.add(1, "ab")
            one.save(1, {"w": torch.zeros(10)}, {}, {"step": 1})
            with contextlib.chdir("elsewhere"):
                gate.may.release()
                assert until(lambda: checkpoint.list_checkpoints(tmp_path / "run/c"))
    assert told == [Path("run/c/step-00000001")]
    assert (tmp_path / "run" / LEDGER).exists()
    assert os.listdir(tmp_path / "elsewhere") == []
