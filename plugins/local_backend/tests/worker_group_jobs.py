"""What the tests let worker groups run: importable by name from this folder, which the tests put
on sys.path."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import torch

from distcore_core.errors import DataError
from distcore_local import shared_memory
from distcore_local.data_parallel import DataParallel
from distcore_testing.loops import TinyRun, train_tiny

STRATEGY = "distcore_local.data_parallel:DataParallel"


def several(rank, runs):
    """Some runs one after another in one worker group; "gloo" in a name keeps that one off
    shared memory."""
    found = {}
    for name, run in runs.items():
        os.environ["LOCAL_WORLD_SIZE"] = "0" if "gloo" in name else str(rank.world)
        try:
            found[name] = train_tiny(rank, replace(run, strategy=STRATEGY))
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


def collectives(rank):
    """Each of a strategy's operations once."""
    strategy = DataParallel(False)
    strategy.setup(rank)
    torch.manual_seed(rank.index)
    module = torch.nn.Sequential(
        torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1, dtype=torch.float64)
    )
    strategy.prepare(module)
    found = {"weights": [each.tolist() for each in module.state_dict().values()]}
    for parameter in list(module.parameters())[:-1]:  # the last has no gradient in any rank
        parameter.grad = torch.full_like(parameter, 10.0**rank.index)
    module[0].bias.grad = None if rank.index else torch.ones(2)
    module[1].running_mean.add_(1.0 + rank.index)
    found["stop"] = [strategy.reduce(False), strategy.reduce(rank.index == 1)]
    found["gradients"] = [each.grad.unique().tolist() for each in module.parameters()]
    found["running_mean"] = module[1].running_mean.tolist()
    found["sum"] = strategy.sum(torch.tensor([float(rank.index), 1.0])).tolist()
    found["gather"] = strategy.gather({"rank": rank.index})
    found["exchange"] = [type(each).__name__ for each in strategy._exchanges]
    strategy.teardown()
    return found


def sums(rank, rounds):
    """Random numbers of every rank through shared memory, again and again; digests of what each
    rank got."""
    strategy = DataParallel(False)
    strategy.setup(rank)
    exchange = shared_memory.SharedSum(rank.index, rank.world, 1000, torch.float32, strategy.gather)
    wrong = 0
    for index in range(rounds):
        parts = [
            torch.randn(1000, generator=torch.Generator().manual_seed(97 * index + each))
            for each in range(rank.world)
        ]
        exchange.slot().copy_(parts[rank.index])
        if (index + rank.index) % 7 == 0:
            time.sleep(0.002)  # ranks are never in step
        expected = parts[0] + parts[1]
        for part in parts[2:]:
            expected = expected + part
        wrong += not torch.equal(exchange.sum(), expected)
    exchange.close()
    strategy.teardown()
    return wrong


def no_memory(rank):
    """Every rank falls back to gloo when one of them cannot map the memory."""
    if rank.index == 1:
        shared_memory.os.open = _refused
    strategy = DataParallel(False)
    strategy.setup(rank)
    found = type(strategy.exchange(10, torch.float32)).__name__
    strategy.teardown()
    return found


def _refused(*arguments):
    raise PermissionError(13, "Permission denied")


def threads(rank):
    return torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]


def exit_with(rank, code):
    if rank.index == 1:
        os._exit(code)
    time.sleep(60)


def wait_for_interrupt(rank, folder):
    try:
        (Path(folder) / str(rank.index)).touch()
        time.sleep(10**6)
    except KeyboardInterrupt:
        (Path(folder) / f"{rank.index}-interrupted").touch()
        raise


def train_until_interrupted(rank, run, folder):
    """As `train_tiny`; says when it has begun."""
    (Path(folder) / str(rank.index)).touch()
    return train_tiny(rank, replace(run, strategy=STRATEGY))


__all__ = ["TinyRun", "signal"]


def who(rank):
    """Where this rank says it is, and who started it."""
    return (
        os.getpid(),
        os.getppid(),
        sorted(name for name in os.environ if name.startswith("MASTER_")),
    )


def note_and_wait(rank, folder):
    """Leave this process's number, then wait for a rank that never comes, as in a collective."""
    (Path(folder) / f"{rank.index}.tmp").write_text(str(os.getpid()))
    (Path(folder) / f"{rank.index}.tmp").rename(Path(folder) / f"{rank.index}.pid")
    if rank.index == 1:
        time.sleep(10**6)
    strategy = DataParallel(False)
    strategy.setup(rank)
    strategy.gather(None)


def wait_for_one_that_stops(rank, folder):
    """Rank 0 ends when it is asked to; rank 1 waits for it if it hears of nothing, as in a
    collective."""
    from distcore_torch.training.heartbeat import WAITING, heartbeat

    if rank.index == 0:
        wait_for_interrupt(rank, folder)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    with heartbeat().during(WAITING):
        (Path(folder) / str(rank.index)).touch()
        time.sleep(10**6)


def raise_ours(rank, folder):
    from distcore_core.errors import ConfigError, ConfigIssue

    with (Path(folder) / "attempts").open("a") as file:
        file.write(f"{rank.index}\n")
    raise ConfigError([ConfigIssue(3, "trainer", "is odd")], "config.yaml")


class OddError(DataError):
    """A plugin's, made of two words: a pickle gives it one."""

    def __init__(self, column, row):
        super().__init__(f"{column} is odd in row {row}.")


def raise_odd(_):
    raise OddError("age", 3)


def raise_once(rank, folder):
    """An error that another attempt may not meet; of one rank, since the other may be late by
    more than a second."""
    marker = Path(folder) / "raised"
    if rank.index == 0 and not marker.exists():
        marker.touch()
        raise ConnectionResetError("a disk blinked")
    return rank.index


def unpicklable(rank):
    return lambda: None


def die_once(task):
    """A task (folder, number): number 3 kills its process the first time."""
    folder, number = task
    if number == 3 and not (Path(folder) / "died").exists():
        (Path(folder) / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def die_always(number):
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def train_slowly(rank, run, loading, computing):
    """As `train_tiny`; rank 1 sleeps three times as long as rank 0 in each batch's loading and
    computing."""
    from distcore_testing import loops

    strategy = DataParallel(False)
    strategy.setup(rank)
    loop, loader, _ = loops.tiny_loop(run, strategy)
    times = 3 if rank.index else 1
    loader.actions = dict.fromkeys(range(1000), lambda: time.sleep(loading * times))
    loop.work.module.register_forward_pre_hook(lambda module, batch: time.sleep(computing * times))
    finished = loop.run()
    strategy.teardown()
    return finished.state.step


def meet_a_full_disk(rank, told):
    """Rank 1 does; told: whether it says so by an error of ours."""
    from contextlib import nullcontext

    from distcore_core.errors import CheckpointError
    from distcore_data.os_errors import explained

    if rank.index == 1:
        words = explained("/dev", "the checkpoint", CheckpointError) if told else nullcontext()
        with words, open("/dev/full", "wb", buffering=0) as disk:
            disk.write(b"weights")


def hang_after_the_others(rank):
    """Rank 0 stands still at its last work, and the others are done."""
    from distcore_torch.training.heartbeat import SAVING, heartbeat

    if rank.index == 0:
        heartbeat().doing(SAVING)
        time.sleep(10**6)
