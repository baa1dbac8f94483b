"""A fingerprint of tensors: the written formula, any order, every flipped bit, no layout."""

import hashlib
import random

import pytest
import torch

from distcore_torch.training import fingerprint
from distcore_torch.training.fingerprint import BLOCK, MASK, Fingerprint, hexadecimal


def odd(index):
    value = (index + 1) * 0x9E3779B97F4A7C15 & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return (value ^ (value >> 31)) | 1


def as_documented(name, tensor):
    """The formula of the module's first lines, word by word in Python."""
    raw = bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist())
    raw += bytes(-len(raw) % 8)
    own = 0
    for at in range(len(raw) // 8):
        word = int.from_bytes(raw[8 * at : 8 * at + 8], "little")
        own += word * odd(at % BLOCK) * odd(BLOCK + at // BLOCK)
    said = f"{name} {str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
    digest = hashlib.sha256(said.encode()).digest()
    constant, factor = (
        int.from_bytes(digest[:8], "little"),
        int.from_bytes(digest[8:16], "little") | 1,
    )
    return (constant + factor * own) & MASK


def some(seed=0):
    torch.manual_seed(seed)
    whole = torch.randn(2 * BLOCK + 20)
    return {
        "large": torch.randn(300, 301),
        "many blocks": torch.randn(2, BLOCK + 7),
        "odd": torch.randn(3),
        "scalar": torch.tensor(7.0),
        "half": torch.randn(5).bfloat16(),
        "double": torch.randn(9, dtype=torch.float64),
        "none": torch.zeros(0),
        "flags": torch.tensor([True, False, True]),
        "large and odd": torch.randn(2 * BLOCK + 5, generator=torch.Generator().manual_seed(seed)),
        "not on a word": whole[1 : 2 * BLOCK + 7],
    }


@pytest.mark.parametrize("by", ["compiled code", "torch"])
@pytest.mark.parametrize("name", some())
def test_a_tensors_fingerprint_is_the_documented_one(name, by, monkeypatch):
    if by == "torch":
        monkeypatch.setattr(fingerprint, "sums", None)
    tensor = some()[name]
    found = Fingerprint([(name, tensor)])
    assert found.total() == found.each()[name] == as_documented(name, tensor)
    constant, parts = found.later()
    assert (constant + sum(int(each) for each in parts)) & MASK == as_documented(name, tensor)


def test_the_total_is_the_sum_in_any_order():
    tensors = list(some().items())
    forward, backward = Fingerprint(tensors), Fingerprint(tensors[::-1])
    assert forward.total() == backward.total() == sum(forward.each().values()) & MASK
    assert len(hexadecimal(forward.total())) == 16


@pytest.mark.parametrize("name", [name for name, each in some().items() if each.numel()])
def test_every_flipped_bit_is_seen(name):
    tensors, dice = some(), random.Random(name)
    found = Fingerprint(tensors.items())
    before = found.each()
    raw = tensors[name].view(-1).view(torch.uint8) if tensors[name].dtype != torch.bool else None
    for _ in range(25):
        if raw is None:
            tensors[name][dice.randrange(3)] ^= True
        else:
            raw[dice.randrange(raw.numel())] ^= 1 << dice.randrange(8)
        after = found.each()
        assert {each for each in before if before[each] != after[each]} == {name}
        assert found.total() == sum(after.values()) & MASK
        before = after


def test_exchanged_tensors_rows_and_names_are_seen():
    one, other = torch.randn(64, 512), torch.randn(64, 512)
    found = Fingerprint({"one": one, "other": other}.items()).total()
    assert found != Fingerprint({"one": other, "other": one}.items()).total()
    assert found != Fingerprint({"one": one.flip(0), "other": other}.items()).total()
    assert found != Fingerprint({"one": one.view(512, 64), "other": other}.items()).total()


def test_layout_in_memory_does_not_matter():
    weight = torch.randn(8, 3, 5, 5)
    one = Fingerprint([("w", weight)]).total()
    other = weight.to(memory_format=torch.channels_last)
    found = Fingerprint([("w", other)])
    assert found.total() == one
    other[1, 2, 3, 4] += 1.0
    assert found.total() == Fingerprint([("w", other.contiguous())]).total() != one


def test_the_number_of_threads_does_not_matter():
    tensors, before = some(), torch.get_num_threads()
    try:
        found = set()
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.add(Fingerprint(tensors.items()).total())
    finally:
        torch.set_num_threads(before)
    assert len(found) == 1


def test_it_tells_if_a_tensor_has_moved():
    parameter = torch.nn.Parameter(torch.randn(4))
    found = Fingerprint([("p", parameter)])
    assert found.stands()
    parameter.data = torch.randn(4)
    assert not found.stands()


@pytest.mark.parametrize(
    "name", [name for name, each in some().items() if each.element_size() == 4 and each.numel()]
)
@pytest.mark.parametrize("bit", [0, 30, 31])
def test_it_tells_what_has_changed_since_the_last_time(name, bit):
    tensors = some()
    found = Fingerprint(tensors.items())
    found.total()
    found.total()
    assert found.changed() == []
    number = tensors[name].numel() - 1
    tensors[name].view(-1).view(torch.int32)[number] ^= -(1 << 31) if bit == 31 else 1 << bit
    found.total()
    large = ("large", "many blocks")  # of these the place is not known
    assert [each.split(" (bit")[0] for each in found.changed()] == [name]
    assert name in large or found.changed() == [f"{name} (bit {bit} of number {number})"]
    found.total()
    assert found.changed() == []


@pytest.mark.skipif(fingerprint.sums is None, reason="built without a C compiler")
@pytest.mark.parametrize(("words", "keys", "factors"), [(20, 2, 8), (16, 0, 8), (32, 2, 1)])
def test_words_without_a_factor_are_refused(words, keys, factors):
    with pytest.raises(ValueError, match="not a factor for each block"):
        fingerprint.sums.add_words(bytes(words), bytes(8 * keys), bytes(8 * factors))
