"""Values between ranks: they come back as they went, and bytes of a stranger become an error and
nothing else."""

import pickle
import random
from pathlib import Path

import pytest
import torch

from distcore_core.errors import (
    CheckpointError,
    ConfigError,
    ConfigIssue,
    DifferentRun,
    TrainingError,
)
from distcore_torch.training.plain import packed, unpacked


def same(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


@pytest.mark.parametrize(
    "value",
    [
        *(
            None,
            True,
            7,
            -(2**70),
            0.1,
            float("inf"),
            "Größe",
            Path("/a/b"),
            [],
            (),
            {},
            {1: {"a": (1, [2.5])}},
        ),
        [torch.zeros(0, 3), torch.tensor(3.0), torch.arange(6, dtype=torch.int64).reshape(2, 3)],
        {"odd stride": torch.arange(14).reshape(2, 7)[:1, :1], "transposed": torch.randn(3, 2).T},
        {
            "half": torch.randn(3).bfloat16(),
            "flags": torch.tensor([True, False]),
            "complex": torch.randn(2) * 1j,
        },
    ],
)
def test_values_come_back(value):
    assert same(value, unpacked(packed(value)))


@pytest.mark.parametrize(
    ("error", "comes"),
    [
        (CheckpointError("It is gone. Look."), CheckpointError),
        (DifferentRun("Another."), DifferentRun),
        (type("Ours", (DifferentRun,), {})("Of a plugin."), DifferentRun),
    ],
)
def test_errors_come_back_as_distcores_own(error, comes):
    found = unpacked(packed(error))
    assert type(found) is comes
    assert str(found) == str(error)


def test_an_error_that_is_made_of_more_comes_back_as_its_base():
    found = unpacked(packed(ConfigError([ConfigIssue(3, "trainer", "is odd")])))
    assert "line 3: trainer: is odd" in str(found)


@pytest.mark.parametrize("value", [object(), {1.5: 2}, {"f": print}, ValueError("x"), b"raw"])
def test_what_is_not_plain_is_named(value):
    with pytest.raises(TrainingError, match="cannot travel between ranks"):
        packed(value)


class Evil:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def test_a_pickle_is_refused_and_not_run(tmp_path):
    evil = pickle.dumps(Evil(tmp_path / "mark"))
    with pytest.raises(TrainingError, match="What another rank sent cannot be read"):
        unpacked(torch.frombuffer(bytearray(evil), dtype=torch.uint8))
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    "header",
    [
        '{"tensor": ["float32", [1000000000000]]}',
        '{"tensor": ["float32", [-1]]}',
        '{"tensor": ["float99", [1]]}',
        '{"error": ["__builtins__", "x"]}',
        '{"error": ["dataclass", "x"]}',
        '{"__init__": 1}',
        '{"tuple": 1}',
        '{"a": 1, "b": 2}',
        "[" * 100_000,
        "1 2",
    ],
)
def test_headers_that_lie_are_errors(header):
    raw = header.encode()
    data = torch.frombuffer(bytearray(len(raw).to_bytes(8, "little") + raw), dtype=torch.uint8)
    with pytest.raises(TrainingError, match="cannot be read"):
        unpacked(data)


def test_flipped_bytes_are_errors_or_other_numbers():
    good = packed({"a": (1, 2.5, [torch.randn(4), Path("x")]), "b": CheckpointError("gone")})
    source = random.Random(3)
    for _ in range(500):
        bad = good.clone()
        bad[source.randrange(len(bad))] ^= 1 << source.randrange(8)
        try:
            unpacked(bad)
        except TrainingError:
            continue
