"""A tensor's bytes, whatever its strides: one number of many counts as contiguous, and is not."""

import pytest
import torch
from torch import nn

from distcore_core.errors import UserError
from distcore_torch.training.determinism import weights_digest
from distcore_torch.training.fingerprint import Fingerprint
from distcore_torch.training.plain import packed, unpacked
from distcore_torch.training.raw import raw_bytes
from distcore_torch.training.strategy import FlatStrategy, SingleProcess
from distcore_torch.training.tensorfile import read_tensors, tensor_writer

TYPES = (torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.bool)


def odd(dtype=torch.float32, count=1):
    found = torch.arange(9).to(dtype)[1::4][:count]
    assert found.stride() == (4,)
    return found


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("count", [0, 1, 2])
def test_strides_do_not_matter(dtype, count, tmp_path):
    tensor = odd(dtype, count)
    plain = torch.tensor(tensor.tolist(), dtype=dtype)
    assert raw_bytes(tensor).tolist() == raw_bytes(plain).tolist()
    assert torch.equal(unpacked(packed(tensor)), plain)
    found, expected = (Fingerprint([("w", each)]) for each in (tensor, plain))
    assert found.total() == expected.total()
    assert found.each() == expected.each()
    with (tmp_path / "file").open("wb") as file:
        tensor_writer({"w": tensor})(file)
    assert torch.equal(read_tensors(tmp_path / "file")["w"], plain)


def test_one_number_of_several_words_has_a_fingerprint():
    tensor = odd(torch.complex128)
    assert Fingerprint([("w", tensor)]).each() == Fingerprint([("w", tensor.clone())]).each()


def test_a_change_of_the_one_number_is_seen():
    tensor = odd(torch.float64)
    found = Fingerprint([("w", tensor)])
    before = found.total()
    tensor += 1
    assert found.total() != before
    assert len(found.changed()) == 1


class Alone(FlatStrategy):
    """Ranks that all hold the same."""

    def setup(self, rank):
        self.rank = rank

    def all_reduce(self, values):
        pass

    def gather(self, value):
        return [value]


def test_a_network_with_such_a_number_is_told_to_other_ranks():
    module = nn.Linear(2, 1)
    module.register_buffer("unit", odd())
    Alone().prepare(module)
    assert module.unit.tolist() == [1.0]
    plain = nn.Linear(2, 1)
    plain.register_buffer("unit", torch.ones(1))
    plain.load_state_dict(module.state_dict())
    assert weights_digest(module) == weights_digest(plain)


@pytest.mark.parametrize(
    "buffer",
    [torch.ones(1).expand(4), torch.eye(2).to_sparse(), torch.eye(2).to_sparse_csr()],
)
def test_a_buffer_that_no_worker_can_be_told_is_named(buffer):
    """No weights hold it, so that the trainer local, one process, trains with it."""
    module = nn.Linear(2, 1)
    module.register_buffer("unit", buffer, persistent=False)
    with pytest.raises(UserError, match=r"^unit is sparse, or a view "):
        Alone().prepare(module)
    SingleProcess().prepare(module)
