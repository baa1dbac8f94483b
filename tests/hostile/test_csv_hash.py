"""Category values that were chosen to fall into one slot of the csv reader's table: its hash is
seeded for each process."""

import subprocess
import sys

import pyarrow as pa
import pytest

from distcore_data.sources import plaintext

pytestmark = pytest.mark.skipif(
    plaintext.compiled is None, reason="distcore was installed without a C compiler"
)

LEFT, RIGHT = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03
"""What the hash was made with before it had a seed."""

SLOTS = 1 << 17
"""Slots of a table of 30,000 texts."""


def unseeded(text):
    """The hash as it was: a word equal to LEFT forgets all words before it."""
    found = mixed(int.from_bytes(text[:8], "little"), len(text))
    for at in range(8, len(text), 8):
        found = mixed(int.from_bytes(text[at : at + 8], "little"), found)
    return found


def mixed(left, right):
    product = (left ^ LEFT) * (right ^ RIGHT)
    return (product ^ product >> 64) & (1 << 64) - 1


def chosen(count):
    """Texts that all had one hash."""
    return [b"%08d" % number + LEFT.to_bytes(8, "little") for number in range(count)]


def test_values_chosen_to_collide(sweep):
    count = sweep.times(30_000, 30_000)
    texts = chosen(count)
    assert {unseeded(text) for text in texts} == {0}
    assert not any(mark in text for text in texts for mark in (b",", b"\n", b"\r"))
    slots = {plaintext.compiled.hash(text) % SLOTS for text in texts}
    assert len(slots) > 0.85 * count  # 0.895 of them are to be expected of random numbers
    batch = plaintext.read(pa.py_buffer(b"\n".join(texts) + b"\n"), ",", ["c"], [("c", "category")])
    assert batch.column("c").indices.to_pylist() == list(range(count))
    sweep.tried(
        "a category value chosen for one slot of the csv reader's table",
        count,
        "spread over all slots",
    )


def test_another_process_has_another_hash(sweep):
    code = (
        "from distcore_data.sources import _plaintext; print(_plaintext.hash(b'Rome'), "
        "_plaintext.hash(b'a longer text'))"
    )
    times = sweep.times(3, 20)
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(times)
    ]
    assert len({run.stdout for run in runs}) == times
    sweep.tried("the reader's table in another process", times, "each had a hash of its own")
