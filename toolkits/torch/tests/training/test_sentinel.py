"""What one rank's sentinel looks at; whole groups are in tests/hostile/test_sentinel.py."""

import pytest
import torch

from distcore_core.contracts import Rank
from distcore_core.errors import TrainingError
from distcore_torch.training.fingerprint import MASK
from distcore_torch.training.heartbeat import Heartbeat
from distcore_torch.training.ledger import LEDGER, Ledger, read_ledger
from distcore_torch.training.sentinel import Sentinel, Totals, _Board
from distcore_torch.training.strategy import FlatStrategy, SingleProcess


class Shared(torch.nn.Module):
    """Two tables in one, each saved under a name of its own; a buffer, and a count that is none."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(6, 4))
        self.register_buffer("seen", torch.zeros(3))
        self.count = torch.zeros(2)

    def get_extra_state(self):
        return self.count

    def set_extra_state(self, state):
        self.count = state

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        table = destination.pop(prefix + "table")
        destination[prefix + "one"], destination[prefix + "other"] = table[:2], table[2:]


@pytest.fixture
def watched():
    module, strategy = Shared(), SingleProcess()
    optimizer = torch.optim.Adam(module.parameters())
    module.table.grad = torch.ones_like(module.table)
    optimizer.step()
    strategy.setup(Rank())
    beat = Heartbeat(bytearray(1024))
    return module, optimizer, Sentinel(module, optimizer, strategy, 1, beat, None)


def flip(tensor):
    tensor.detach().view(-1)[-1:].view(torch.int32).bitwise_xor_(1 << 20)


def test_a_part_of_a_parameter_that_is_saved_by_itself_is_looked_at(watched):
    module, _, sentinel = watched
    with sentinel.watching(0):
        sentinel.stepped(1)
        flip(module.table)
        with pytest.raises(TrainingError, match=r"other.*bit 20"):
            sentinel.before_update()


def test_a_gpu_after_a_fault_hides_neither_the_error_nor_what_was_written_before(watched, tmp_path):
    module, optimizer, _ = watched
    ledger, strategy = Ledger(tmp_path / LEDGER), SingleProcess()
    strategy.setup(Rank())
    sentinel = Sentinel(module, optimizer, strategy, 1, Heartbeat(bytearray(1024)), ledger)

    def lost():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def end():
        with sentinel.watching(0):
            sentinel.stepped(1)
            sentinel._unwritten = 2, lost
            raise ValueError("the first")

    with pytest.raises(ValueError, match="the first"):
        end()
    assert [each.step for each in read_ledger(ledger.path)[0]] == [0, 0, 1]


def test_what_a_forward_pass_changes_is_no_flip(watched):
    module, _, sentinel = watched
    with sentinel.watching(0):
        sentinel.stepped(1)
        module.seen += 1
        module.count += 1
        sentinel.before_update()


def test_it_keeps_no_autograd_graph_alive(watched):
    """A table's own node, if it lived on, would tie later passes to the stream it was made on."""
    _, _, sentinel = watched
    with sentinel.watching(0):
        assert all(each.grad_fn is None for part in sentinel._parts for _, each in part._tensors)


@pytest.mark.parametrize("name", ["weights", "moments"])
def test_what_is_asked_for_is_compared_at_the_next_look(watched, monkeypatch, name):
    """As on a GPU, which is not waited for."""
    module, optimizer, sentinel = watched

    def asked(parts):
        later = [each.later() for each in parts]
        totals = [constant + sum(map(int, values)) for constant, values in later]
        return lambda: Totals(*(each & MASK for each in totals))

    with sentinel.watching(0):
        monkeypatch.setattr("distcore_torch.training.sentinel._asked", asked)
        sentinel._asks = True
        for step in (1, 2):
            sentinel.stepped(step)
            sentinel.before_update()
        sentinel.stepped(3)
        flip(module.table if name == "weights" else optimizer.state[module.table]["exp_avg"])
        sentinel.before_update()
        with pytest.raises(TrainingError, match=r"After step 3.*bit 20"):
            sentinel.stepped(4)


SHOWN = [(0, False), (MASK, True), (1 << 63, False)]


class Middle(FlatStrategy):
    """The second of three ranks, the others of which show what is in SHOWN."""

    def __init__(self):
        super().__init__()
        self.setup(Rank(index=1, world=3))

    def setup(self, rank):
        self.rank = rank

    def all_reduce(self, values):
        others = torch.tensor([0, 0, 0, 0, -(1 << 63), 0])
        assert values[[0, 1, 4, 5]].count_nonzero() == 0
        values += others

    def gather(self, value):
        return [SHOWN[0], value, SHOWN[2]]


class Plain:
    """The same by values alone."""

    rank = Rank(index=1, world=3)
    gather = Middle.gather


@pytest.mark.parametrize("strategy", [Middle, Plain])
def test_every_rank_sees_what_the_others_show(strategy):
    board = _Board(strategy())
    for _ in range(2):
        assert board.all(*SHOWN[1]) == SHOWN
    board.close()
